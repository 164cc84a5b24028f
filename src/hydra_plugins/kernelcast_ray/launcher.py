"""Jobs of a multirun on the machines of a Ray cluster, each with the same kernelcast and the same folders.

Hydra imports this module at every start: Ray is imported when used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from kernelcast.errors import ConfigError

logger = logging.getLogger(__name__)

STARTS = 4
"""So often Ray is started on this machine: it gives its own processes 30 s, too few where all cores are at work."""


class RayLauncher(Launcher):
    """Runs every job as a Ray task of its own; Ray decides how many run at a time.

    Args:
        address: of the cluster, as `ray.init` takes it (`auto`, `ray://HOST:10001`); None starts one on this machine.
        cores: that Ray reserves for a job.
        gpus: that Ray reserves for a job, and shows it alone.
    """

    def __init__(self, address: str | None, cores: float, gpus: float) -> None:
        self.address = address
        self.cores = cores
        self.gpus = gpus
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None
        self.config: DictConfig | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra hands over what a job needs; Ray is started here, in the main thread, before any job.

        Raises:
            ConfigError: Ray is not installed, or the cluster is not there.
        """
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config
        try:
            start_ray(self.address)
        except ConfigError as error:
            logger.error("%s", error)
            raise

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Runs all jobs; comes back when the last one has ended."""
        assert self.config is not None
        assert self.hydra_context is not None
        assert self.task_function is not None
        setup_globals()
        Path(self.config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)
        import ray

        # a job that was lost is the sweep's to repeat, under a number of its own
        remote = ray.remote(num_cpus=self.cores, num_gpus=self.gpus, max_retries=0)(run_remotely)
        common = ray.put((self.hydra_context, self.config, self.task_function, Singleton.get_state()))
        running = []
        for number, overrides in enumerate(job_overrides, initial_job_idx):
            logger.info("job %d on Ray: %s", number, " ".join(filter_overrides(overrides)))
            running.append(remote.remote(common, list(overrides), number))
        returned: list[JobReturn] = ray.get(running)
        return returned


def start_ray(address: str | None) -> None:
    """Joins a cluster, or starts one of this machine; once in a process.

    Raises:
        ConfigError: Ray is not installed, or the cluster is not there.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("hydra/launcher=ray needs Ray: run `pip install 'kernelcast[ray]'`") from error
    if ray.is_initialized():
        return
    for attempt in range(STARTS if address is None else 1, 0, -1):
        try:
            ray.init(address, include_dashboard=False, log_to_driver=True, logging_level=logging.WARNING)
            return
        except Exception as error:  # Ray says so by errors of many kinds, and by plain ones
            ray.shutdown()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if attempt > 1:
                logger.warning("Ray did not start (%s): once more", reason)
                continue
            raise ConfigError(
                f"hydra.launcher.address={address}: no Ray cluster answers ({reason}); start one with "
                "`ray start --head`, or leave the address out to use this machine"
            ) from error


def run_remotely(
    common: tuple[HydraContext, DictConfig, TaskFunction, Mapping[Any, Any]], overrides: list[str], number: int
) -> JobReturn:
    """One job, in a process of Ray's."""
    context, config, task, state = common
    setup_globals()
    Singleton.set_state(state)
    job = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(job):
        job.hydra.job.id = f"{job.hydra.job.name}_{number}"
        job.hydra.job.num = number
    HydraConfig.instance().set_config(job)
    return run_job(
        hydra_context=context,
        config=job,
        task_function=task,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
