"""Sends to MLflow what runs have kept while its server was away, and closes runs whose process is gone."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="sync")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.syncing import sync

    run_stage(sync, config)


if __name__ == "__main__":
    launch(main)
