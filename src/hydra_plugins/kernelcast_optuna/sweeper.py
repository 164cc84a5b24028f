"""The sweeper that Hydra finds; what it does is in the modules beside it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from kernelcast.errors import ConfigError, KernelcastError

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

logger = logging.getLogger(__name__)

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM, as shells have it."""


class OptunaSweeper(Sweeper):
    """Asks an Optuna study for trials, lets Hydra's launcher run them, tells the study how they ended.

    Args:
        trials: how many finished trials the study shall have; a study that was interrupted goes on to that number.
        jobs: trials at a time; more than one needs a launcher that runs them in other processes.
        study: name of the study.
        storage: path of an Optuna journal, or the address of a database.
        seed: seed of the sampler.
        stop_on_failure: whether the first trial that fails ends the sweep.
        warmup: steps (epochs, rounds of trees) that every trial is given before it may be pruned.
        space: configuration key to a Hydra sweep expression: `choice(32, 64)`, `range(1, 5)`, `interval(0.0, 0.5)`,
            `tag(log, interval(1e-4, 1e-2))`.
        sampler: makes the sampler from a seed.
        pruner: decides from the metric of each step which trials are not worth going on with.
    """

    def __init__(
        self,
        trials: int,
        jobs: int,
        study: str,
        storage: str,
        seed: int,
        stop_on_failure: bool,
        warmup: int,
        space: Mapping[str, str],
        sampler: Callable[..., BaseSampler],
        pruner: BasePruner,
    ) -> None:
        self.trials = trials
        self.jobs = jobs
        self.study_name = study
        self.storage = str(storage)
        self.seed = seed
        self.stop_on_failure = stop_on_failure
        self.warmup = warmup
        self.space = dict(space)
        self.sampler = sampler
        self.pruner = pruner
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra hands over what a sweep needs."""
        self.hydra_context = hydra_context
        self.config = config
        if "n_jobs" in config.hydra.launcher:
            # joblib's own limit; with one it would run the job in this process after all
            with open_dict(config.hydra.launcher):
                config.hydra.launcher.n_jobs = max(self.jobs, 2)
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> float | None:
        """Runs trials until the study has `trials` finished ones; returns the best value.

        Raises:
            ConfigError: a setting that cannot work, or another sweep on this study.
            KernelcastError: no trial came to its end, or one failed and the sweep was to stop then.
        """
        from hydra_plugins.kernelcast_optuna._sweep import run_sweep

        try:
            self._check()
            return run_sweep(self, arguments)
        except KernelcastError as error:
            logger.error("%s", error)
            raise
        except KeyboardInterrupt:
            logger.error("interrupted; the same line goes on with the study %s", self.study_name)
            sys.exit(INTERRUPTED)

    def _check(self) -> None:
        if not self.study_name.strip():
            raise ConfigError("hydra.sweeper.study is empty; name the study")
        for name, least in (("trials", 1), ("jobs", 1), ("warmup", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"hydra.sweeper.{name}={getattr(self, name)}: it must be {least} or more")
        if self.jobs > 1 and self.in_process:
            raise ConfigError(
                f"hydra.sweeper.jobs={self.jobs}: Hydra's own launcher runs one job after the other; add "
                "hydra/launcher=joblib (processes on this machine), submitit_local, submitit_slurm or ray"
            )

    @property
    def in_process(self) -> bool:
        """Whether the launcher runs jobs in this process."""
        assert self.config is not None
        return str(self.config.hydra.launcher._target_).endswith(".BasicLauncher")

    @property
    def folder(self) -> Path:
        """Of this sweep alone."""
        assert self.config is not None
        return Path(self.config.hydra.sweep.dir)

    def trial_config(self, overrides: list[str]) -> DictConfig:
        """The configuration of a trial with `overrides`."""
        assert self.hydra_context is not None
        assert self.config is not None
        composed: DictConfig = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        return composed

    def write_settings(self) -> None:
        """Keeps the sweep's own configuration beside its jobs, as Hydra's sweepers do."""
        assert self.config is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        settings: Any = self.config
        OmegaConf.save(settings, self.folder / "multirun.yaml")
