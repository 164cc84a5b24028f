"""Draws what the models see of one program, or of two side by side, as one HTML page."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="look")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.look import look

    run_stage(look, config)


if __name__ == "__main__":
    launch(main)
