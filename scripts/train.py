"""Trains one cost model; with -m a grid or an Optuna study of them. Returns the objective that a sweep looks at."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def main(config: DictConfig) -> float:
    """Entry point."""
    from kernelcast.stages.train import train

    return run_stage(train, config)


if __name__ == "__main__":
    launch(main)
