"""The stage `sync`: what runs have kept is sent to their store, and the store is brought in order."""

from __future__ import annotations

import logging
from pathlib import Path

from omegaconf import DictConfig

from kernelcast.errors import StorageError
from kernelcast.stages.tracking import close_stale_runs, open_experiment, send_backlog
from kernelcast.stages.tracking.address import shown_address

logger = logging.getLogger(__name__)


def sync(config: DictConfig) -> None:
    """Sends what waits for the store of `config` (schema `SyncConfig`), and closes runs whose process is gone.

    Where the checkout was moved, the artifacts of earlier runs follow, as at the start of every run.

    Raises:
        StoreAwayError: the server does not answer.
        StorageError: some of it the store does not take.
    """
    client, experiment_id = open_experiment(config)
    backlog = send_backlog(client, config.tracking.uri, Path(config.paths.runs))
    close_stale_runs(client, experiment_id)
    logger.info(
        "%s: %d runs sent, %d wait for processes that still work at them, %d are for another store",
        shown_address(config.tracking.uri), len(backlog.sent), backlog.at_work, backlog.elsewhere,
    )  # fmt: skip
    if backlog.refused:
        raise StorageError(
            f"{backlog.refused} runs could not be sent, each for the reason above; when you do not want them any more, "
            f"remove their folders in {Path(config.paths.runs)}"
        )
