"""Runs a stage again as a run in MLflow did, after saying what differs from then: code, data, split, versions."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="repeat")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.repeating import repeat

    run_stage(repeat, config)


if __name__ == "__main__":
    launch(main)
