"""Compares the tunings of several methods and seeds: tables, curves and tests."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="compare")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.compare import compare

    run_stage(compare, config)


if __name__ == "__main__":
    launch(main)
