"""LightGBM as a cost model (Ke et al. 2017), over our columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from jaxtyping import Float32, Float64

from kernelcast.models.gradient_boosting import BoostedTrees, BoostingSettings, Table, as_prediction
from kernelcast.models.losses import Aim
from kernelcast.models.rounds import Rounds
from kernelcast.models.setting_checks import require_counts

OBJECTIVES: dict[Aim, dict[str, Any]] = {
    Aim.SQUARED_ERROR: {"objective": "regression"},
    # the nearest that LightGBM has to plain pairs: those of the first half or so of a workload count, not its top alone
    Aim.PAIRWISE: {"objective": "lambdarank", "lambdarank_truncation_level": 100},
    Aim.LAMBDARANK: {"objective": "lambdarank", "lambdarank_truncation_level": 30},
}
"""LightGBM's objective for what a loss aims at, with what belongs to it."""


@dataclass(frozen=True)
class LightGBMSettings(BoostingSettings):
    """How LightGBM grows its trees.

    Attributes:
        num_leaves: of a tree at most; LightGBM splits the leaf that gains most, however deep it is.
        min_child_samples: least programs in a leaf.

    Raises:
        ConfigError: a value that cannot work.
    """

    num_leaves: int
    min_child_samples: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(self, "num_leaves", least=2)
        require_counts(self, "min_child_samples")

    def parameters(self) -> dict[str, Any]:
        """What LightGBM's `train` takes."""
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_child_samples": self.min_child_samples,
            "subsample": self.subsample,
            # LightGBM samples the programs only where it is told how often
            "subsample_freq": 1,
            "colsample_bytree": self.colsample_bytree,
            "reg_lambda": self.reg_lambda,
            "num_threads": self.threads,
            # equal seeds give equal trees
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


class LightGBMModel(BoostedTrees):
    """Trees of LightGBM; the arguments are those of `BoostedTrees`."""

    package = "LightGBM"
    trees_file = "trees.txt"
    objectives = OBJECTIVES

    def _grow(self, tables: Mapping[str, Table], rounds: Rounds) -> lightgbm.Booster:
        parameters = {
            **self._settings.parameters(),
            **self.objectives[self._aim],
            "seed": self._seed,
            "metric": "none",
        }
        if self._aim is not Aim.SQUARED_ERROR:
            # linear; the default doubles with each place and ends at 31
            most = max(int(table.labels.max()) for table in tables.values())
            parameters["label_gain"] = list(range(most + 1))
        train = _dataset(tables["train"], self._aim, parameters)
        sets = {
            part: train if part == "train" else _dataset(table, self._aim, parameters, reference=train)
            for part, table in tables.items()
        }
        parts = {id(data): part for part, data in sets.items()}
        outputs: dict[str, np.ndarray] = {}

        def keep(output: np.ndarray, data: lightgbm.Dataset) -> list[tuple[str, float, bool]]:
            outputs[parts[id(data)]] = output
            return []

        def watch(environment: Any) -> None:
            number = environment.iteration
            wanted = {
                part: as_prediction(self._aim, output) for part, output in outputs.items() if rounds.wants(part, number)
            }
            if rounds.end(number, wanted):
                raise lightgbm.callback.EarlyStopException(rounds.best, [])

        booster = lightgbm.train(
            parameters,
            train,
            num_boost_round=self._settings.rounds,
            valid_sets=list(sets.values()),
            valid_names=list(sets),
            feval=keep,
            callbacks=[watch],
        )
        kept = booster.model_to_string(num_iteration=rounds.best + 1)
        return lightgbm.Booster(model_str=kept)

    def _output(
        self, values: Float32[np.ndarray, "programs columns"], start: Float64[np.ndarray, "programs"] | None
    ) -> np.ndarray:
        grown = np.asarray(self._trees.predict(values, num_threads=self._settings.threads))
        # the trees do not know what they started from
        return grown if start is None else grown + start

    def _read(self, path: Path) -> lightgbm.Booster:
        try:
            return lightgbm.Booster(model_file=path)
        except lightgbm.basic.LightGBMError as error:
            raise ValueError(str(error)) from error


def _dataset(
    table: Table, aim: Aim, parameters: dict[str, Any], reference: lightgbm.Dataset | None = None
) -> lightgbm.Dataset:
    ranked = aim is not Aim.SQUARED_ERROR
    return lightgbm.Dataset(
        table.values,
        label=table.labels,
        group=table.group_sizes if ranked else None,
        init_score=table.start,
        params=parameters,
        reference=reference,
    )
