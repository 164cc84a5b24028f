"""The stage `repeat`: a stage runs again as a run in MLflow did."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from kernelcast.errors import ConfigError
from kernelcast.stages.config import SCHEMAS
from kernelcast.stages.lineage import SPLIT, present_digest
from kernelcast.stages.sweeping import OBJECTIVE_METRIC
from kernelcast.stages.tracking import (
    REPEATS_VARIABLE,
    STAGE_TAG,
    environment,
    find_unsent,
    open_experiment,
    provenance_tags,
)
from kernelcast.stages.tracking.origin import COMMIT_TAG, DIRTY_TAG, SOURCE_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

logger = logging.getLogger(__name__)

STAGES = {
    "measure": "measure:measure",
    "graphs": "graphs:graphs",
    "train": "train:train",
    "evaluate": "evaluate:evaluate",
    "tune": "tune:tune",
    "compare": "compare:compare",
    "report": "report:report",
    "register": "registry:register",
    "import": "importing:import_",
    "experiment": "experiment:experiment",
}
"""Module and function of each stage that is tracked."""

SAME = "the same"


@dataclass(frozen=True)
class Recorded:
    """What a run says of itself.

    Attributes:
        run: with its tags and datasets.
        stage: that it was an execution of.
        config: its resolved configuration.
        environment: versions, command line, Hydra's choices.
    """

    run: Run
    stage: str
    config: DictConfig
    environment: Mapping[str, Any]

    @classmethod
    def read(cls, client: MlflowClient, run: Run) -> Recorded:
        """Reads the run's artifacts.

        Raises:
            ConfigError: it is of no stage, or has kept no configuration.
        """
        from mlflow.exceptions import MlflowException

        name, stage = run.info.run_id, run.data.tags.get(STAGE_TAG, "")
        if stage not in STAGES:
            what = "the parent of a sweep: repeat one of the runs below it" if stage == "sweep" else "of no stage"
            raise ConfigError(f"run={name} is {what}; stages are {', '.join(STAGES)}")
        try:
            with tempfile.TemporaryDirectory() as folder:
                kept = OmegaConf.load(client.download_artifacts(name, "config.yaml", folder))
                around = json.loads(Path(client.download_artifacts(name, "environment.json", folder)).read_text())
        except (MlflowException, OSError, ValueError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"run={name} has not kept config.yaml and environment.json ({reason})") from error
        assert isinstance(kept, DictConfig)
        return cls(run, stage, kept, around)


def repeat(config: DictConfig) -> None:
    """Says what differs now from when the run `config.run` began, and runs its stage with the same values.

    A training takes the split that the run has kept where that of the graphs is another one now. Its model goes to
    `config.output`, or to this run's own folder, and not over the model of the run.

    Raises:
        ConfigError: there is no such run, or this kernelcast does not know its configuration.
    """
    client, experiment_id = open_experiment(config)
    recorded = Recorded.read(client, find_run(client, experiment_id, config.run))
    asked = rebased(recorded, config)
    compared = differences(recorded, asked)
    print_differences(recorded, compared)
    if config.compare_only:
        return
    if recorded.stage == "train":
        prepare_training(recorded, asked, config, compared)
    module, function = STAGES[recorded.stage].split(":")
    stage = getattr(importlib.import_module(f"kernelcast.stages.{module}"), function)
    with launched_as(recorded):
        stage(asked)
    tell_result(client, experiment_id, recorded)


def find_run(client: MlflowClient, experiment_id: str, run_id: str | None) -> Run:
    """The run of an id, or of the name that it had while its server was away.

    Raises:
        ConfigError: there is none.
    """
    from mlflow.exceptions import MlflowException

    if not run_id:
        raise ConfigError("run=null: name a run, `run=ID`; its page in MLflow shows the id")
    try:
        return client.get_run(find_unsent(client, experiment_id, run_id) or run_id)
    except MlflowException as error:
        raise ConfigError(f"run={run_id}: there is no such run; copy the id from its page in MLflow") from error


def rebased(recorded: Recorded, config: DictConfig) -> DictConfig:
    """The run's configuration for this checkout: what was below its root is below this one, runs are recorded here.

    Raises:
        ConfigError: this kernelcast knows other keys.
    """
    old, new = str(recorded.config.paths.root), str(config.paths.root)
    values = _moved(OmegaConf.to_container(recorded.config), old, new)
    values["tracking"] = OmegaConf.to_container(config.tracking, resolve=True)
    values["paths"] |= {"root": new, "runs": str(config.paths.runs)}
    try:
        asked = OmegaConf.merge(OmegaConf.structured(SCHEMAS[recorded.stage]), values)
        missing = OmegaConf.missing_keys(asked)
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
    else:
        if not missing:
            assert isinstance(asked, DictConfig)
            return asked
        reason = f"it has no {', '.join(sorted(missing))}"
    raise ConfigError(
        f"run={recorded.run.info.run_id} is of a kernelcast with other settings: {reason}; check out its revision, "
        f"{recorded.run.data.tags.get(COMMIT_TAG, 'unknown')}, and repeat it there"
    )


def differences(recorded: Recorded, asked: DictConfig) -> dict[str, tuple[str, str]]:
    """What may make a difference: then and now, by what it is."""
    then, now = recorded.run.data.tags, provenance_tags(Path(asked.paths.root))
    compared = {"git revision": (_revision(then), _revision(now))}
    compared["source of kernelcast"] = (then.get(SOURCE_TAG, "unknown"), now[SOURCE_TAG])
    around = environment()
    compared["python"] = (recorded.environment.get("python", "unknown"), around["python"])
    compared["processor"] = (recorded.environment.get("processor", "unknown"), around["processor"])
    packages, present = recorded.environment.get("packages", {}), around["packages"]
    for name in sorted({*packages, *present}, key=str.lower):
        versions = packages.get(name, "not there"), present.get(name, "not there")
        if versions[0] != versions[1]:
            compared[name] = versions
    old = str(recorded.config.paths.root)
    for entry in recorded.run.inputs.dataset_inputs if recorded.run.inputs else ():
        if any(tag.key == "mlflow.data.context" and tag.value == "output" for tag in entry.tags):
            continue
        dataset = entry.dataset
        source = Path(_moved(json.loads(dataset.source)["uri"], old, str(asked.paths.root)))
        compared[dataset.name] = (dataset.digest, present_digest(dataset.name, source)[: len(dataset.digest)])
    return compared


def print_differences(recorded: Recorded, compared: Mapping[str, tuple[str, str]]) -> None:
    """A table of what was compared."""
    name = recorded.run.info.run_name
    table = Table(title=f"{name}: then and now")
    for column in ("what", "then", "now"):
        table.add_column(column, overflow="fold")
    for what, (then, now) in compared.items():
        table.add_row(what, then, SAME if then == now else now)
    Console().print(table)
    differing = [what for what, (then, now) in compared.items() if then != now]
    if differing:
        logger.warning("differs from when %s ran: %s; the result may, too", name, ", ".join(differing))
    else:
        logger.info("nothing that was compared differs from when %s ran", name)


def prepare_training(
    recorded: Recorded, asked: DictConfig, config: DictConfig, compared: Mapping[str, tuple[str, str]]
) -> None:
    """Lets the training write elsewhere than the run did, and take the run's own split where it is another one now."""
    asked.output = config.output
    then, now = compared.get(f"{SPLIT}{asked.split}", (SAME, SAME))
    if then != now and asked.from_run is None:
        asked.from_run = recorded.run.info.run_id
        logger.info("the split %s is the one that the run has kept", asked.split)


@contextmanager
def launched_as(recorded: Recorded) -> Iterator[None]:
    """Lets Hydra say what it said when the run began: which files were chosen, what was overridden."""
    hydra: Any = HydraConfig.instance()
    before = hydra.cfg
    assert before is not None
    hydra.cfg = copy.deepcopy(before)
    with read_write(hydra.cfg.hydra), open_dict(hydra.cfg.hydra):
        # alone, what was a trial of a study is a training as any other
        choices = {**recorded.environment.get("choices", {}), "hparams_search": None}
        hydra.cfg.hydra.runtime.choices = choices
        hydra.cfg.hydra.overrides.task = recorded.environment.get("overrides", [])
    os.environ[REPEATS_VARIABLE] = recorded.run.info.run_id
    try:
        yield
    finally:
        del os.environ[REPEATS_VARIABLE]
        hydra.cfg = before


def tell_result(client: MlflowClient, experiment_id: str, recorded: Recorded) -> None:
    """One line that compares the objective of both runs, where they have one."""
    query = f"tags.`kernelcast.repeats` = '{recorded.run.info.run_id}'"
    found = client.search_runs([experiment_id], query, max_results=1, order_by=["attributes.start_time DESC"])
    then = recorded.run.data.metrics.get(OBJECTIVE_METRIC)
    now = found[0].data.metrics.get(OBJECTIVE_METRIC) if found else None
    if then is not None and now is not None:
        logger.info("objective then %.6g, now %.6g: run %s", then, now, found[0].info.run_id)


def _revision(tags: Mapping[str, str]) -> str:
    return tags.get(COMMIT_TAG, "unknown")[:12] + (" and changes" if tags.get(DIRTY_TAG) == "true" else "")


def _moved(value: Any, old: str, new: str) -> Any:
    """`value` with every path below `old` below `new`."""
    if isinstance(value, dict):
        return {key: _moved(child, old, new) for key, child in value.items()}
    if isinstance(value, list):
        return [_moved(child, old, new) for child in value]
    if isinstance(value, str) and (value == old or value.startswith(f"{old}/")):
        return new + value.removeprefix(old)
    return value
