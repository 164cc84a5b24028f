"""What an experiment does, read from its configuration and checked before any work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.stages.composing import composed
from kernelcast.stages.entry import LARGEST_SEED

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""Labels and names become folders; `@` separates the seed."""

FOLDER = "data/experiments"
"""Where experiments are, below `paths.root`."""


@dataclass(frozen=True)
class Variant:
    """One way to make the graphs of an experiment.

    Attributes:
        name: what the rows of the table call it.
        folder: has `graphs`, `models` and `evaluation`.
        overrides: of `scripts/graphs.py`.
    """

    name: str
    folder: Path
    overrides: tuple[str, ...]

    @property
    def graphs(self) -> Path:
        """The programs and splits."""
        return self.folder / "graphs"

    @property
    def models(self) -> Path:
        """One folder a split, in it one a row and seed."""
        return self.folder / "models"

    @property
    def evaluation(self) -> Path:
        """What `evaluate` found."""
        return self.folder / "evaluation"


@dataclass(frozen=True)
class Training:
    """One model to train.

    Attributes:
        label: the row of the table.
        variant: the graphs that it learns from.
        split: name of the split.
        seed: of everything random in it.
        overrides: of `scripts/train.py`.
    """

    label: str
    variant: Variant
    split: str
    seed: int
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder of the model: row and seed."""
        return f"{self.label}@{self.seed}"

    @property
    def output(self) -> Path:
        """Where the model goes."""
        return self.variant.models / self.split / self.name


@dataclass(frozen=True)
class Plan:
    """An experiment.

    Attributes:
        name: of its file.
        folder: all that it makes.
        variants: the graphs, by name.
        splits: of every variant, by name: a file of conf/splitter and its settings.
        trainings: row by row, seeds first: the first seed of every row is there before the second of any.
    """

    name: str
    folder: Path
    variants: Mapping[str, Variant]
    splits: Mapping[str, Mapping[str, Any]]
    trainings: Sequence[Training]

    @property
    def labels(self) -> list[str]:
        """The rows of the table, in the order of the file."""
        return list(dict.fromkeys(training.label for training in self.trainings))


def read_plan(config: DictConfig) -> Plan:
    """The plan of the configuration `config` (schema `ExperimentConfig`).

    Raises:
        ConfigError: a name that can be no folder, a row that names what there is not, no row, split or seed, or
            settings that `scripts/graphs.py` or `scripts/train.py` would refuse.
    """
    from kernelcast.evaluation.summary import METRIC_BY_NAME

    settings: dict[str, Any] = OmegaConf.to_container(config, resolve=True, enum_to_str=True)  # type: ignore[assignment]
    seeds = settings["seeds"]
    if not seeds or len({*seeds}) < len(seeds) or not all(0 <= seed <= LARGEST_SEED for seed in seeds):
        raise ConfigError(f"seeds={seeds}: name at least one, from 0 to {LARGEST_SEED}, and none twice")
    for key in ("runs", "splits", "graphs", "metrics"):
        if not settings[key]:
            raise ConfigError(f"{key} is empty: experiment {settings['name']} has nothing to show")
    for name in [settings["name"], *settings["graphs"], *settings["splits"], *settings["runs"]]:
        if not LABEL.fullmatch(str(name)):
            raise ConfigError(f"experiment {settings['name']}: {name!r} becomes a folder; use letters, digits, _ . + -")
    unknown = [name for name in settings["metrics"] if name not in METRIC_BY_NAME]
    if unknown:
        raise ConfigError(f"metrics: there is no {', '.join(unknown)}; choose from {', '.join(METRIC_BY_NAME)}")
    folder = Path(config.paths.root, FOLDER, settings["name"])
    variants = {
        name: Variant(name, folder / name, tuple(overrides or ())) for name, overrides in settings["graphs"].items()
    }
    rows = {label: _row(label, run, variants) for label, run in settings["runs"].items()}
    trainings = [
        Training(
            label,
            variant,
            split,
            seed,
            (*chosen, *settings["train_overrides"], *overrides, f"split={split}", f"seed={seed}"),
        )
        for seed in seeds
        for split in settings["splits"]
        for label, (variant, chosen, overrides) in rows.items()
    ]
    return Plan(settings["name"], folder, variants, settings["splits"], trainings)


def _row(label: str, run: Any, variants: Mapping[str, Variant]) -> tuple[Variant, tuple[str, ...], tuple[str, ...]]:
    """The graphs of a row, the model and loss that it chooses, and what it sets besides."""
    known = {"model", "loss", "graphs", "overrides"}
    if not isinstance(run, Mapping) or "model" not in run or not set(run) <= known:
        raise ConfigError(f"runs.{label}: expected `model` and, if need be, `loss`, `graphs` and `overrides`: {run}")
    name = run.get("graphs", next(iter(variants)))
    if name not in variants:
        raise ConfigError(f"runs.{label}: there are no graphs {name}; choose from {', '.join(variants)}")
    return variants[name], (f"model={run['model']}", f"loss={run.get('loss', 'rank')}"), tuple(run.get("overrides", ()))


def training_config(training: Training, caller: DictConfig, hydra_knows: bool = False) -> DictConfig:
    """The resolved configuration of a training; see `composed`.

    Raises:
        ConfigError: there is no such configuration.
    """
    config = composed("train", training.overrides, caller, hydra_knows)
    config.paths.graphs, config.paths.models = str(training.variant.graphs), str(training.variant.models)
    config.output = str(training.output)
    return config


def graphs_config(variant: Variant, splits: Mapping[str, Mapping[str, Any]], caller: DictConfig) -> DictConfig:
    """The resolved configuration of the graphs of a variant, with the splits of the experiment alone.

    Raises:
        ConfigError: there is no such configuration, or a split names no file of conf/splitter.
    """
    default = {str(name) for name in composed("graphs", [], caller).split}
    removed = [f"~splitter@split.{name}" for name in sorted(default - set(splits))]
    chosen = [
        f"{'' if name in default else '+'}splitter@split.{name}={_splitter(name, split)}"
        for name, split in splits.items()
    ]
    config = composed("graphs", [*removed, *chosen, *variant.overrides], caller)
    for name, split in splits.items():
        for key, value in split.items():
            if key != "splitter":
                OmegaConf.update(config, f"split.{name}.{key}", value, merge=False, force_add=True)
    config.paths.graphs = str(variant.graphs)
    return config


def _splitter(name: str, split: Mapping[str, Any]) -> str:
    if not isinstance(split, Mapping) or not isinstance(split.get("splitter"), str):
        raise ConfigError(f"splits.{name}: expected `splitter`, a file of conf/splitter, and its settings")
    return str(split["splitter"])
