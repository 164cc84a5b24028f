"""Looks for what is wrong with this installation, machine and project; exit status 0 without a fault."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="doctor")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.doctor import doctor

    run_stage(doctor, config)


if __name__ == "__main__":
    launch(main)
