"""TVM's `XGBModel`, the cost model of its tuner, as a peer: its own class trained on our programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import xgboost
from jaxtyping import Float64

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError
from kernelcast.files import read_json, require, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.models.checks import require_version
from kernelcast.models.description import describe, revive
from kernelcast.models.losses import Loss, PairwiseRank
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.rounds import Rounds
from kernelcast.models.setting_checks import require_counts, require_numbers
from kernelcast.models.store_rows import by_workload, require_stores, rows_of_stores, store_groups
from kernelcast.models.trainer import TrainerSettings
from kernelcast.tvm_compat import StoreRows, train_xgb

SETTINGS_FILE = "settings.json"
TREES_FILE = "trees.ubj"

STOPS = ("valid", "train")


@dataclass(frozen=True)
class TvmXgbSettings:
    """TVM's `XGBConfig`, and when training ends.

    Attributes:
        rounds: trees at most; 10,000 in TVM.
        patience: rounds without getting better before training stops.
        stop_on: what has to get better: Kendall's tau of the validation programs (`valid`), after which the best round
            is kept, or as in TVM the error on the training programs (`train`), after which all rounds are.
        max_depth: of a tree.
        gamma: least gain of a split.
        min_child_weight: least sum of second derivatives in a leaf.
        eta: share of each tree that is added.
        threads: of XGBoost.

    Raises:
        ConfigError: a value that cannot work.
    """

    rounds: int
    patience: int
    stop_on: str
    max_depth: int
    gamma: float
    min_child_weight: float
    eta: float
    threads: int

    def __post_init__(self) -> None:
        require_counts(self, "rounds", "patience", "max_depth", "threads")
        require_numbers(self, "gamma", "min_child_weight", "eta")
        if self.stop_on not in STOPS:
            raise ConfigError(f"model.settings.stop_on={self.stop_on}: use one of {', '.join(STOPS)}")

    def config(self, seed: int) -> dict[str, Any]:
        """The fields of TVM's `XGBConfig`."""
        return {
            "max_depth": self.max_depth,
            "gamma": self.gamma,
            "min_child_weight": self.min_child_weight,
            "eta": self.eta,
            "seed": seed,
            "nthread": self.threads,
        }


class TvmXgbModel:
    """TVM's XGBModel on the view `per_store`: trees whose sum over the stores of a program is its score.

    Args:
        settings: how the trees are grown.
        loss: not used: TVM has its own, the squared error of the best time of the workload over the program's.
        trainer: not used: epochs and batches mean nothing for trees.
        seed: XGBoost's; without samples of rows or columns, as in TVM, nothing depends on it.
    """

    learned = True

    def __init__(self, settings: TvmXgbSettings, loss: Loss | None, trainer: TrainerSettings | None, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._feature_version: str | None = None
        self._booster: xgboost.Booster | None = None

    @property
    def kind(self) -> PredictionKind:
        """An order: the scores are relative to the workload's best."""
        return PredictionKind.RANK

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Lets TVM grow trees until nothing gets better.

        Raises:
            KernelcastError: there is nothing to learn from.
            ConfigError: the programs have no view `per_store`.
        """
        require_stores(train)
        parts = {name: by_workload(part) for name, part in (("train", train), ("valid", valid)) if len(part)}
        stores = {name: StoreRows(rows_of_stores(part)) for name, part in parts.items()}
        rounds = Rounds(self._settings.rounds, self._settings.patience, PairwiseRank(), log, parts)
        by_training = self._settings.stop_on == "train"

        def ends(booster: Any, number: int) -> bool:
            wanted = [name for name in parts if rounds.wants(name, number)]
            stop = rounds.end(number, {name: -stores[name].scores(booster) for name in wanted})
            return number + 1 == self._settings.rounds if by_training else stop

        config = self._settings.config(self._seed)
        booster = train_xgb(store_groups(parts["train"]), config, self._settings.patience, ends)
        self._booster = booster if by_training else booster[: rounds.best + 1]
        self._feature_version = train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """TVM's scores with a minus sign: lower is faster."""
        require_version(self._feature_version, programs, "TVM's XGBModel")
        return -StoreRows(rows_of_stores(programs)).scores(self._booster)

    def save(self, directory: Path) -> None:
        """Writes settings as JSON and trees as UBJSON into an existing folder."""
        if self._booster is None:
            raise KernelcastError("TVM's XGBModel has not been fitted: there is nothing to save")
        settings = {
            "settings": describe(self._settings),
            "seed": self._seed,
            "feature_version": self._feature_version,
        }
        write_json(directory / SETTINGS_FILE, settings)
        self._booster.save_model(directory / TREES_FILE)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            MissingInputError: a file is not there.
            MalformedDataError: a file is torn or lacks an entry.
        """
        settings = read_json(directory / SETTINGS_FILE, "train")
        require(directory / TREES_FILE, "train")
        try:
            model = cls(revive(settings["settings"]), None, None, settings["seed"])
            model._feature_version = settings["feature_version"]
            model._booster = xgboost.Booster({"nthread": model._settings.threads})
            model._booster.load_model(directory / TREES_FILE)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedDataError(
                f"{directory} is not a whole saved model ({error}); run `dvc repro train`"
            ) from error
        return model
