"""Scores every trained model on the test programs of every split; writes tables, plots and predictions."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.evaluate import evaluate

    run_stage(evaluate, config)


if __name__ == "__main__":
    launch(main)
