"""Writes docs/results.md anew of the figures that the experiments left."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="results")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.results import results

    run_stage(results, config)


if __name__ == "__main__":
    launch(main)
