"""Makes measurements of a MetaSchedule tuning database."""

import hydra
from omegaconf import DictConfig

from kernelcast.stages.config import register_schemas
from kernelcast.stages.entry import launch, run_stage

register_schemas()


@hydra.main(version_base="1.3", config_path="../conf", config_name="import")
def main(config: DictConfig) -> None:
    """Entry point."""
    from kernelcast.stages.importing import import_

    run_stage(import_, config)


if __name__ == "__main__":
    launch(main)
