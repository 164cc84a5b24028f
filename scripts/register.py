"""Registers the best model of a split in the MLflow Model Registry."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="register")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.registry import register

    run_stage(register, config)


if __name__ == "__main__":
    launch(main)
