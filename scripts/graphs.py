"""Turns measured programs into graphs, flat features, labels and splits."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="graphs")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.graphs import graphs

    run_stage(graphs, config)


if __name__ == "__main__":
    launch(main)
