"""XGBoost as a cost model: what TVM's own tuner uses (Chen et al. 2018), over our columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from jaxtyping import Float32, Float64

from kernelcast.models.gradient_boosting import BoostedTrees, BoostingSettings, Table, as_prediction
from kernelcast.models.losses import Aim
from kernelcast.models.rounds import Rounds
from kernelcast.models.setting_checks import require_counts, require_numbers

OBJECTIVES: dict[Aim, dict[str, Any]] = {
    Aim.SQUARED_ERROR: {"objective": "reg:squarederror"},
    Aim.PAIRWISE: {
        "objective": "rank:pairwise",
        # a few pairs drawn for every program, of the whole workload: neither all, whose number grows with the square,
        # nor those of its slowest programs alone
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
        # the exponential gain limits labels to 31
        "ndcg_exp_gain": False,
    },
    Aim.LAMBDARANK: {
        "objective": "rank:ndcg",
        # each of the programs that are ranked first is compared with all of its workload
        "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 32,
        "ndcg_exp_gain": False,
    },
}
"""XGBoost's objective for what a loss aims at, with what belongs to it."""


@dataclass(frozen=True)
class XGBoostSettings(BoostingSettings):
    """How XGBoost grows its trees; its own names where it has one.

    Attributes:
        max_depth: of a tree.
        min_child_weight: least sum of second derivatives in a leaf.

    Raises:
        ConfigError: a value that cannot work.
    """

    max_depth: int
    min_child_weight: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(self, "max_depth")
        require_numbers(self, "min_child_weight")

    def parameters(self) -> dict[str, Any]:
        """What XGBoost's `train` takes."""
        return {
            "learning_rate": self.learning_rate,
            "max_depth": self.max_depth,
            "min_child_weight": self.min_child_weight,
            "subsample": self.subsample,
            "colsample_bytree": self.colsample_bytree,
            "reg_lambda": self.reg_lambda,
            "nthread": self.threads,
            "tree_method": "hist",
        }


class XGBoostModel(BoostedTrees):
    """Trees of XGBoost; the arguments are those of `BoostedTrees`."""

    package = "XGBoost"
    trees_file = "trees.ubj"
    objectives = OBJECTIVES

    def _grow(self, tables: Mapping[str, Table], rounds: Rounds) -> xgboost.Booster:
        matrices = {
            part: xgboost.DMatrix(
                table.values,
                label=table.labels,
                qid=np.repeat(np.arange(len(table.group_sizes)), table.group_sizes),
                base_margin=table.start,
                nthread=self._settings.threads,
            )
            for part, table in tables.items()
        }
        parameters = {
            **self._settings.parameters(),
            **self.objectives[self._aim],
            "seed": self._seed,
            "disable_default_eval_metric": True,
        }
        booster = xgboost.train(
            parameters,
            matrices["train"],
            num_boost_round=self._settings.rounds,
            callbacks=[_Watch(rounds, self._aim, matrices)],
            verbose_eval=False,
        )
        return booster[: rounds.best + 1]

    def _output(
        self, values: Float32[np.ndarray, "programs columns"], start: Float64[np.ndarray, "programs"] | None
    ) -> np.ndarray:
        matrix = xgboost.DMatrix(values, base_margin=start, nthread=self._settings.threads)
        return np.asarray(self._trees.predict(matrix))

    def _read(self, path: Path) -> xgboost.Booster:
        booster = xgboost.Booster({"nthread": self._settings.threads})
        booster.load_model(path)
        return booster


class _Watch(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Shows `rounds` what the trees say after every round; XGBoost only adds the new tree to what it kept."""

    def __init__(self, rounds: Rounds, aim: Aim, matrices: Mapping[str, xgboost.DMatrix]) -> None:
        super().__init__()
        self._rounds, self._aim = rounds, aim
        self._matrices = matrices

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether to stop."""
        wanted = {part: matrix for part, matrix in self._matrices.items() if self._rounds.wants(part, epoch)}
        outputs = {part: model.predict(matrix) for part, matrix in wanted.items()}
        return self._rounds.end(epoch, {part: as_prediction(self._aim, output) for part, output in outputs.items()})
