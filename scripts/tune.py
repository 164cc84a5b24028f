"""Finds fast schedules of workloads or of a whole network by a cost model; run again, it goes on where it stopped."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="tune")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.tune import tune

    run_stage(tune, config)


if __name__ == "__main__":
    launch(main)
