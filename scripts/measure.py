"""Measures random schedules of every workload; killed at any moment, the same command goes on where it was."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="measure")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.measure import measure

    run_stage(measure, config)


if __name__ == "__main__":
    launch(main, flags={"--probe": "probe=true"})
