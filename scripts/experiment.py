"""Runs one experiment of docs/results.md; with -m several: -m 'experiment=glob(*)' runs all."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="experiment")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.experiment import experiment

    run_stage(experiment, config)


if __name__ == "__main__":
    launch(main)
