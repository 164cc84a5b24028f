"""Predicts how long programs run, or which is faster, by a trained model; runs none of them."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="predict")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.predict import predict

    run_stage(predict, config)


if __name__ == "__main__":
    launch(main)
