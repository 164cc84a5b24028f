"""From the command line to a stage: the typed configuration in, an exit status out."""

import logging
import sys
from collections.abc import Callable
from typing import TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import KernelcastError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def run_stage(stage: Callable[[DictConfig], Result], config: DictConfig) -> Result:
    """Runs `stage` and turns an error that kernelcast explains into one message and its exit status.

    In a multirun the error goes on to Hydra, which ends that job and tells its launcher.
    """
    OmegaConf.resolve(config)
    try:
        return stage(config)
    except KernelcastError as error:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        logger.error("%s", error)
        sys.exit(error.exit_code)
