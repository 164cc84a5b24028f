"""Configurations of other stages, composed by a stage that runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

import kernelcast
from kernelcast.errors import ConfigError
from kernelcast.stages.config import register_schemas
from kernelcast.stages.config_nodes import project_root


def conf_folder() -> Path:
    """The configuration files: of the checkout that holds this package, or below the current folder.

    Raises:
        ConfigError: there is none.
    """
    for root in (Path(kernelcast.__file__).resolve().parents[2], Path(project_root())):
        if (root / "conf").is_dir():
            return root / "conf"
    raise ConfigError("there is no folder conf; run the command in a checkout of kernelcast")


@contextmanager
def hydra_at(folder: Path) -> Iterator[None]:
    """Lets Hydra compose from `folder`, also within a script that Hydra runs, which would be refused."""
    hydra = GlobalHydra.instance()
    script, hydra.hydra = hydra.hydra, None
    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            yield
    finally:
        hydra.hydra = script


def composed(stage: str, overrides: Sequence[str], caller: DictConfig, hydra_knows: bool = False) -> DictConfig:
    """The resolved configuration of the stage `stage` with the paths and the tracking of the caller's.

    Args:
        stage: name of a root configuration.
        overrides: as on the command line.
        caller: configuration of the stage that asks.
        hydra_knows: also makes it Hydra's current configuration, for a stage that asks Hydra what was chosen; only in a
            process that runs no other job.

    Raises:
        ConfigError: an override names what there is not, or a value of the wrong type.
    """
    register_schemas()
    try:
        with hydra_at(conf_folder()):
            config = compose(stage, overrides=list(overrides), return_hydra_config=True)
        if hydra_knows:
            HydraConfig.instance().set_config(config)
        with open_dict(config):
            del config["hydra"]
        for node in ("paths", "tracking"):
            config[node] = OmegaConf.merge(config[node], OmegaConf.to_container(caller[node], resolve=True))
        OmegaConf.resolve(config)
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise ConfigError(f"`python scripts/{stage}.py {' '.join(overrides)}` cannot be: {reason}") from error
    return config
