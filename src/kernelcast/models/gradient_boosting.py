"""Gradient-boosted trees over the flat features: the cost model of TVM's own tuner (Chen et al. 2018)."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import xgboost
from jaxtyping import Float64

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError
from kernelcast.files import read_json, require, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.models.batching import Labels
from kernelcast.models.checks import require_learnable, require_version
from kernelcast.models.description import describe, revive
from kernelcast.models.losses import Aim, Loss
from kernelcast.models.protocol import MetricLog, PredictionKind
from kernelcast.models.trainer import TrainerSettings
from kernelcast.models.validation import mean_kendall_tau

logger = logging.getLogger(__name__)

SETTINGS_FILE = "settings.json"
TREES_FILE = "trees.ubj"

OBJECTIVES: dict[Aim, dict[str, Any]] = {
    Aim.SQUARED_ERROR: {"objective": "reg:squarederror"},
    Aim.PAIRWISE: {
        "objective": "rank:pairwise",
        # pairs drawn from the whole workload, not from its slowest programs alone
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
        # the exponential gain limits labels to 31
        "ndcg_exp_gain": False,
    },
}
"""XGBoost's objective for what a loss aims at, with what belongs to it."""

LOGGED_ROUNDS = 100
"""About so many rounds of a training are logged: a curve needs no more points."""


@dataclass(frozen=True)
class BoostingSettings:
    """How the trees are grown; XGBoost's names where it has one.

    Attributes:
        rounds: trees at most.
        patience: rounds without a better validation metric before training stops.
        learning_rate: share of each tree that is added.
        max_depth: of a tree.
        min_child_weight: least sum of second derivatives in a leaf.
        subsample: share of the programs that each tree sees.
        colsample_bytree: share of the features that each tree sees.
        reg_lambda: L2 penalty on the leaves.
        threads: of XGBoost.

    Raises:
        ConfigError: a value that cannot work.
    """

    rounds: int
    patience: int
    learning_rate: float
    max_depth: int
    min_child_weight: float
    subsample: float
    colsample_bytree: float
    reg_lambda: float
    threads: int

    def __post_init__(self) -> None:
        for name in ("rounds", "patience", "max_depth", "threads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"model.settings.{name}={value}: it must be a whole number of at least 1")
        for name, most in (("learning_rate", 1.0), ("subsample", 1.0), ("colsample_bytree", 1.0)):
            if not _is_number(getattr(self, name)) or not 0 < getattr(self, name) <= most:
                raise ConfigError(
                    f"model.settings.{name}={getattr(self, name)}: it must be above 0 and at most {most:g}"
                )
        for name in ("min_child_weight", "reg_lambda"):
            if not _is_number(getattr(self, name)) or getattr(self, name) < 0:
                raise ConfigError(
                    f"model.settings.{name}={getattr(self, name)}: it must be a finite number of at least 0"
                )

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


class GradientBoostingModel:
    """XGBoost on `Programs.features`, with the objective that the loss names.

    Args:
        settings: how the trees are grown.
        loss: what to minimise; it decides what the predictions mean.
        trainer: not used: epochs and batches mean nothing for trees; every model takes it.
        seed: of the samples of programs, features and pairs.

    Raises:
        ConfigError: XGBoost has nothing like the loss.
    """

    learned = True

    def __init__(self, settings: BoostingSettings, loss: Loss, trainer: TrainerSettings | None, seed: int) -> None:
        if loss.aim not in OBJECTIVES:
            raise ConfigError(f"XGBoost cannot minimise {type(loss).__name__}; use loss=rank or loss=log_mse")
        self._settings = settings
        self._loss = loss
        self._objective = OBJECTIVES[loss.aim]
        self._seed = seed
        self._feature_names: tuple[str, ...] = ()
        self._feature_version: str | None = None
        self._booster: xgboost.Booster | None = None

    @property
    def kind(self) -> PredictionKind:
        """What the loss makes the trees predict."""
        return self._loss.predicts

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Grows trees until the validation metric stops getting better, and keeps those up to the best round.

        Raises:
            KernelcastError: there is nothing to learn from.
            MalformedDataError: a label is not a finite number.
            ConfigError: the programs have no flat features.
        """
        require_learnable(train, self._loss)
        if not train.features.names:
            raise ConfigError(
                "model=xgboost has no column to learn from: features.leave_out leaves all groups out; keep one and run "
                "`dvc repro graphs`"
            )
        # programs of a workload must stand together for XGBoost's groups
        sets = {"train": _sorted_by_workload(train), "valid": _sorted_by_workload(valid)}
        matrices = {name: self._labelled(programs) for name, programs in sets.items() if len(programs)}
        progress = _Progress(self._settings, self._loss, log, watched="valid" if "valid" in matrices else "train")
        names = {id(matrix): name for name, matrix in matrices.items()}

        def metrics(prediction: np.ndarray, matrix: xgboost.DMatrix) -> list[tuple[str, float]]:
            return _metrics(prediction, sets[names[id(matrix)]], self._loss)

        booster = xgboost.train(
            {
                **self._settings.parameters(),
                **self._objective,
                "seed": self._seed,
                "disable_default_eval_metric": True,
            },
            matrices["train"],
            num_boost_round=self._settings.rounds,
            evals=[(matrix, name) for name, matrix in matrices.items()],
            custom_metric=metrics,
            callbacks=[progress],
            verbose_eval=False,
        )
        logger.info(
            "grew %d trees, kept %d with %s %.4g",
            booster.num_boosted_rounds(),
            progress.best_round + 1,
            progress.monitor,
            progress.best_metric,
        )
        self._booster = booster[: progress.best_round + 1]
        self._feature_names, self._feature_version = train.features.names, train.feature_version

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """One number a program, lower is faster, in the unit that `kind` tells."""
        require_version(self._feature_version, programs, "the XGBoost model")
        assert self._booster is not None
        if programs.features.names != self._feature_names:
            raise MalformedDataError(
                "the programs have other features than the XGBoost model was fitted to; train it again"
            )
        if len(programs) == 0:
            return np.zeros(0, dtype=np.float64)
        matrix = xgboost.DMatrix(programs.features.values, nthread=self._settings.threads)
        return np.asarray(self._booster.predict(matrix), dtype=np.float64)

    def save(self, directory: Path) -> None:
        """Writes the trees as UBJSON; settings in a file of our own, since XGBoost's does not keep them all."""
        if self._booster is None:
            raise KernelcastError("the XGBoost model has not been fitted: there is nothing to save")
        settings = {
            "settings": describe(self._settings),
            "loss": describe(self._loss),
            "seed": self._seed,
            "feature_names": list(self._feature_names),
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
            model = cls(revive(settings["settings"]), revive(settings["loss"]), None, settings["seed"])
            model._feature_names = tuple(settings["feature_names"])
            model._feature_version = settings["feature_version"]
            model._booster = xgboost.Booster({"nthread": model._settings.threads})
            model._booster.load_model(directory / TREES_FILE)
        except (KeyError, TypeError, xgboost.core.XGBoostError) as error:
            raise MalformedDataError(
                f"{directory} is not a whole saved model ({error}); run `dvc repro train`"
            ) from error
        return model

    def _labelled(self, programs: Programs) -> xgboost.DMatrix:
        return xgboost.DMatrix(
            programs.features.values,
            label=self._loss.boosting_labels(programs.log_seconds, programs.workload),
            qid=programs.workload,
            nthread=self._settings.threads,
        )


class _Progress(xgboost.callback.TrainingCallback):  # type: ignore[misc]
    """Logs rounds, remembers the best one and stops after `patience` rounds without a better one."""

    def __init__(self, settings: BoostingSettings, loss: Loss, log: MetricLog, watched: str) -> None:
        super().__init__()
        self._settings = settings
        self._log = log
        self._watched = watched
        self._every = max(1, settings.rounds // LOGGED_ROUNDS)
        self._metric = loss.monitor.rpartition("/")[2]
        self._maximize = loss.maximize
        self.monitor = f"{watched}/{self._metric}"
        self.best_round = 0
        self.best_metric = math.nan

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Whether to stop."""
        metrics = {f"{name}/{metric}": of[metric][-1] for name, of in evals_log.items() for metric in of}
        # a metric without a value (one program a workload) says nothing
        metrics = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        metric = metrics.get(self.monitor, math.nan)
        better = metric > self.best_metric if self._maximize else metric < self.best_metric
        if better or (math.isnan(self.best_metric) and not math.isnan(metric)):
            self.best_metric, self.best_round = metric, epoch
        elif math.isnan(self.best_metric):
            self.best_round = epoch
        stop = epoch - self.best_round >= self._settings.patience
        if epoch % self._every == 0 or stop:
            self._log.metrics(metrics, epoch)
        return stop


def _metrics(prediction: np.ndarray, programs: Programs, loss: Loss) -> list[tuple[str, float]]:
    value = loss(
        torch.from_numpy(np.asarray(prediction, dtype=np.float32)), Labels.of(programs.log_seconds, programs.workload)
    )
    tau = mean_kendall_tau(np.asarray(prediction, dtype=np.float64), programs.log_seconds, programs.workload)
    return [("loss", float(value)), ("kendall_tau", tau)]


def _sorted_by_workload(programs: Programs) -> Programs:
    return programs.select(np.argsort(programs.workload, kind="stable"))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
