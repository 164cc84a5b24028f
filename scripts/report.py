"""Writes the report: one self-contained HTML page about the measurements and the models."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="report")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.report import report

    run_stage(report, config)


if __name__ == "__main__":
    launch(main)
