"""Writes finished measurements in the format of another tool."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="export")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.exporting import export

    run_stage(export, config)


if __name__ == "__main__":
    launch(main)
