"""From the command line to a stage: the composed configuration in, an exit status out."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import KernelcastError
from kernelcast.files import storage_errors

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

INTERRUPTED = 130
"""Exit status after Ctrl-C or SIGTERM, as shells have it."""


def run_stage(stage: Callable[[DictConfig], Result], config: DictConfig) -> Result:
    """Runs `stage`; an error that kernelcast explains becomes one message and its exit status, without a traceback.

    In a multirun the error goes on to Hydra, so that the other jobs still run.
    """
    try:
        OmegaConf.resolve(config)
        with storage_errors(Path(config.paths.root)):
            return stage(config)
    except KernelcastError as error:
        logger.error("%s", error)
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        logger.error("interrupted; what was finished is kept, the same command goes on from there")
        sys.exit(INTERRUPTED)
