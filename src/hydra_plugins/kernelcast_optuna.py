"""A Hydra sweeper on Optuna's ask and tell.

The published plugin wants Optuna before version 3 and stops at the first NaN
(https://github.com/facebookresearch/hydra/issues/3024, https://github.com/facebookresearch/hydra/issues/3333).
Hydra takes sweepers from the namespace `hydra_plugins` alone, and imports all of it at every start: Optuna is imported
when used.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

logger = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
"""Attribute of a trial whose process went away before it ended; such a trial is not counted."""


class OptunaSweeper(Sweeper):
    """Asks an Optuna study for the next trials, lets Hydra's launcher run them, tells the study how they ended.

    Args:
        trials: how many finished trials the study shall have; a study that was interrupted goes on to that number.
        jobs: trials that are asked for and given to the launcher together.
        study: name of the study.
        storage: file of the study, an Optuna journal.
        seed: seed of the sampler.
        space: configuration key to a Hydra sweep expression: `choice(32, 64)`, `range(1, 5)`, `interval(0.0, 0.5)`,
            `tag(log, interval(1e-4, 1e-2))`.
    """

    def __init__(self, trials: int, jobs: int, study: str, storage: str, seed: int, space: dict[str, str]) -> None:
        self.trials = trials
        self.jobs = jobs
        self.study_name = study
        self.storage = Path(storage)
        self.seed = seed
        self.space = dict(space)
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra hands over what a sweep needs."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> float | None:
        """Runs trials until the study has `trials` finished ones; returns the best value."""
        fixed, distributions = self._parse(arguments)
        with self._sole_owner():
            return self._sweep(fixed, distributions)

    @contextmanager
    def _sole_owner(self) -> Iterator[None]:
        """Keeps a second sweep off the study: it would take the trials of this one for those of a dead process."""
        self.storage.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(f"{self.storage}.sweep", timeout=0):
                yield
        except Timeout as error:
            raise ConfigError(
                f"another sweep is at work on the study {self.study_name} ({self.storage}); wait for it, "
                "or name another hydra.sweeper.study"
            ) from error

    def _sweep(self, fixed: list[str], distributions: dict[str, BaseDistribution]) -> float | None:
        from optuna.trial import TrialState

        assert self.config is not None
        study = self._open_study()
        Path(self.config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, Path(self.config.hydra.sweep.dir) / "multirun.yaml")
        while (left := self.trials - finished_trials(study)) > 0:
            asked = [study.ask(distributions) for _ in range(min(self.jobs, left))]
            overrides = [[*fixed, *(f"{key}={value}" for key, value in trial.params.items())] for trial in asked]
            for returned, trial in zip(self._launch(overrides, asked[0].number), asked, strict=True):
                value = objective_of(returned)
                if value is None:
                    study.tell(trial, state=TrialState.FAIL)
                    logger.warning("trial %d failed: %s", trial.number, reason_of(returned))
                else:
                    study.tell(trial, value)
        return self._best(study)

    def _launch(self, overrides: Sequence[Sequence[str]], first: int) -> Sequence[JobReturn]:
        assert self.launcher is not None
        self.validate_batch_is_legal(overrides)
        return self.launcher.launch(overrides, initial_job_idx=first)

    def _parse(self, arguments: list[str]) -> tuple[list[str], dict[str, BaseDistribution]]:
        """Splits the command line and the configured space into fixed overrides and what the study chooses."""
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        space = parser.parse_overrides([f"{key}={sweep}" for key, sweep in self.space.items()])
        typed = parser.parse_overrides(arguments)
        distributions: dict[str, BaseDistribution] = {}
        fixed = []
        for override in [*space, *typed]:
            key = override.get_key_element()
            distributions.pop(key, None)  # what is typed wins over the file
            if override.is_sweep_override():
                distributions[key] = distribution_of(override)
            elif override.input_line is not None:
                fixed.append(override.input_line)
        return fixed, distributions

    def _open_study(self) -> Study:
        """Opens or makes the study; trials that a dead process left open are closed and not counted."""
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
        from optuna.trial import TrialState

        assert self.config is not None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            study_name=self.study_name,
            storage=JournalStorage(JournalFileBackend(str(self.storage))),
            direction=self.config.direction,
            load_if_exists=True,
        )
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            study._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)
            study.tell(trial.number, state=TrialState.FAIL)
        done = finished_trials(study)
        # the seed alone would draw the first trials a second time when a study goes on
        study.sampler = optuna.samplers.TPESampler(seed=self.seed + done)
        logger.info("study %s in %s: %d of %d trials finished", self.study_name, self.storage, done, self.trials)
        if done >= self.trials:
            logger.warning("nothing to do: raise hydra.sweeper.trials or name another hydra.sweeper.study")
        return study

    def _best(self, study: Study) -> float | None:
        from optuna.trial import TrialState

        assert self.config is not None
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not complete:
            logger.error("no trial of the study %s succeeded", self.study_name)
            return None
        logger.info("best trial %d: %s = %.4f with %s", study.best_trial.number, self.config.objective,
                    study.best_value, study.best_params)  # fmt: skip
        return float(study.best_value)


def finished_trials(study: Study) -> int:
    """Trials that ended by themselves, well or not."""
    return sum(
        trial.state.is_finished() and not trial.user_attrs.get(INTERRUPTED, False)
        for trial in study.get_trials(deepcopy=False)
    )


def objective_of(returned: JobReturn) -> float | None:
    """The finite number that a job returned, or None when it failed."""
    if returned.status != JobStatus.COMPLETED:
        return None
    value = returned.return_value
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def reason_of(returned: JobReturn) -> str:
    """Why a job has no objective."""
    if returned.status != JobStatus.COMPLETED:
        error: Any = returned._return_value
        return f"{type(error).__name__}: {error}"
    return f"its objective is {returned.return_value}, not a finite number"


def distribution_of(override: Override) -> BaseDistribution:
    """Optuna's distribution for a Hydra sweep expression.

    Raises:
        ValueError: the expression is none that a study can sample; the message names the key.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    sweep = override.value()
    log = isinstance(sweep, IntervalSweep | RangeSweep) and "log" in sweep.tags
    if isinstance(sweep, ChoiceSweep):
        # lists and mappings have no place in a study
        values = [value for value in override.sweep_iterator() if isinstance(value, str | int | float)]
        if len(values) == len(sweep.list):
            return CategoricalDistribution(values)
    if isinstance(sweep, IntervalSweep):
        start, end = sweep.start, sweep.end
        assert start is not None
        assert end is not None
        if isinstance(start, int) and isinstance(end, int):
            return IntDistribution(start, end, log=log)
        return FloatDistribution(float(start), float(end), log=log)
    if isinstance(sweep, RangeSweep) and isinstance(sweep.start, int) and isinstance(sweep.stop, int):
        return IntDistribution(sweep.start, sweep.stop - 1, log=log, step=int(sweep.step))
    raise ValueError(
        f"{override.input_line}: a study takes choice(...) of single values, interval(...), range(...) of integers"
    )
