"""Several models whose predictions are averaged: each errs in its own way, and errors that differ cancel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError
from kernelcast.files import read_json, write_json
from kernelcast.graphs.programs import Programs
from kernelcast.models.checks import require_learnable
from kernelcast.models.description import saved_value
from kernelcast.models.ensemble_members import Member, are_worth_processes, fit_side_by_side
from kernelcast.models.losses import Loss
from kernelcast.models.protocol import CostModel, MetricLog, PredictionKind
from kernelcast.models.saved import load_model, save_model
from kernelcast.models.setting_checks import require_count
from kernelcast.models.trainer import TrainerSettings
from kernelcast.tvm_compat import available_cores

logger = logging.getLogger(__name__)

SETTINGS_FILE = "settings.json"

LEAST_SPREAD = 1e-9
"""Below this, predictions of a workload's programs do not differ, and there is nothing to bring to one scale."""

SEED_STEP = 1000
"""Between the seeds of two ensembles, so that their members have different ones."""


@dataclass(frozen=True)
class Share:
    """What a member adds to the prediction: `scale * its own + shift`."""

    scale: float
    shift: float


class EnsembleModel:
    r"""The mean of its members, each brought to a common scale.

    Of ranks, with the mean m_w of a member's predictions for the programs of workload w::

        score(x) = mean over members k of  f_k(x) / s_k,    s_k^2 = mean over programs of (f_k(x) - m_w)^2

    Of log seconds, with the line (a_k, b_k) that fits member k best to the labels::

        ln seconds(x) = mean over members k of  a_k f_k(x) + b_k

    s_k, a_k and b_k come from the validation programs, from the training programs where there are none: what a model
    has learned from it fits too well. Members that learn nothing, as `analytical`, know what no sample shows.

    Source: Lakshminarayanan et al. 2017 (arXiv 1612.01474) for ensembles over seeds.

    Args:
        members: makes each member from `loss`, `trainer` and `seed`, by name; one that has a loss of its own keeps it.
        loss: of the members without their own; decides what the predictions mean.
        trainer: of the members.
        seed: of all; each member has another one made from it.
        jobs: members that are fitted at the same time, each in a process of its own; None: one a core. One after the
            other where there is little to learn from, and where a network trains on a GPU or on several devices.

    Raises:
        ConfigError: no members, or one that predicts ranks where seconds are wanted, or `jobs` below 1.
    """

    learned = True

    def __init__(
        self,
        members: Mapping[str, Callable[..., CostModel]],
        loss: Loss,
        trainer: TrainerSettings | None,
        seed: int,
        jobs: int | None = None,
    ) -> None:
        if not members:
            raise ConfigError("model.members is empty: name the models to average")
        if jobs is not None:
            require_count("model.jobs", jobs)
        self._kind = loss.predicts
        self._loss = loss
        self._jobs = jobs
        self._trainer = trainer
        self._members = {
            name: _made(make, loss, trainer, seed * SEED_STEP + number)
            for number, (name, make) in enumerate(members.items())
        }
        self._shares: dict[str, Share] = {}
        self._check_kinds()

    @property
    def kind(self) -> PredictionKind:
        """What the loss makes it predict."""
        return self._kind

    def fit(self, train: Programs, valid: Programs, log: MetricLog, workspace: Path | None = None) -> None:
        """Fits the members, several at a time where that is sooner, then brings them to one scale."""
        require_learnable(train, self._loss)
        logs = {name: _Prefixed(log, name) for name in self._members}
        members = [
            Member(name, model, None if workspace is None else _folder(workspace / name))
            for name, model in self._members.items()
        ]
        jobs = min(self._jobs or available_cores(), len(members))
        if jobs > 1 and are_worth_processes(train, self._trainer):
            with TemporaryDirectory(prefix="kernelcast-", dir=workspace) as folder:
                self._members = fit_side_by_side(members, jobs, train, valid, logs, Path(folder))
        else:
            for member in members:
                logger.info("member %s", member.name)
                member.model.fit(train, valid, logs[member.name], member.workspace)
        judges = valid if len(valid) else train
        # in the order in which a file has them: sums of floats depend on it
        self._shares = {
            name: self._share(member.predict(judges), judges) for name, member in sorted(self._members.items())
        }

    def predict(self, programs: Programs) -> Float64[np.ndarray, "programs"]:
        """One number a program, lower is faster, in the unit that `kind` tells."""
        if not self._shares:
            raise KernelcastError(
                "the ensemble has not been fitted: call fit, or load a saved one with load_model(FOLDER)"
            )
        parts = [
            share.scale * self._members[name].predict(programs) + share.shift for name, share in self._shares.items()
        ]
        mean: Float64[np.ndarray, "programs"] = np.mean(parts, axis=0)
        return mean

    def save(self, directory: Path) -> None:
        """Writes each member into a folder of its name."""
        if not self._shares:
            raise KernelcastError("the ensemble has not been fitted: there is nothing to save")
        for name, member in self._members.items():
            save_model(member, directory / name)
        shares = {name: [share.scale, share.shift] for name, share in self._shares.items()}
        write_json(directory / SETTINGS_FILE, {"kind": self._kind.value, "shares": shares})

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            MissingInputError: a member is not there.
            MalformedDataError: a file is torn.
        """
        settings = read_json(directory / SETTINGS_FILE, "train")
        model = cls.__new__(cls)
        try:
            model._kind = PredictionKind(saved_value(settings, "kind", directory))
            model._shares = {
                name: Share(float(scale), float(shift))
                for name, (scale, shift) in saved_value(settings, "shares", directory).items()
            }
        except (TypeError, ValueError) as error:
            raise MalformedDataError(
                f"{directory} is not a whole saved model ({error}); run `dvc repro train`"
            ) from error
        if any(Path(name).name != name for name in model._shares):
            raise MalformedDataError(f"{directory} names a member outside itself; run `dvc repro train`")
        model._members = {name: load_model(directory / name) for name in model._shares}
        return model

    def _check_kinds(self) -> None:
        if self._kind is not PredictionKind.LOG_SECONDS:
            return
        for name, member in self._members.items():
            if member.kind is not PredictionKind.LOG_SECONDS:
                raise ConfigError(
                    f"model.members.{name} predicts ranks, and the ensemble's loss asks for seconds: use loss=rank, or "
                    "leave the member out"
                )

    def _share(self, predicted: Float64[np.ndarray, "programs"], judges: Programs) -> Share:
        if self._kind is PredictionKind.RANK:
            groups, group = np.unique(judges.workload, return_inverse=True)
            means = np.bincount(group, predicted) / np.bincount(group, minlength=len(groups))
            spread = float(np.sqrt(np.mean((predicted - means[group]) ** 2)))
            return Share(1.0 / spread if spread > LEAST_SPREAD else 0.0, 0.0)
        if np.ptp(predicted) <= LEAST_SPREAD:
            return Share(0.0, float(np.mean(judges.log_seconds)))
        slope, shift = np.polyfit(predicted, judges.log_seconds, 1)
        return Share(float(slope), float(shift))


class _Prefixed:
    """A `MetricLog` that names the member."""

    def __init__(self, log: MetricLog, name: str) -> None:
        self._log = log
        self._name = name

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        self._log.metrics({f"{self._name}/{metric}": value for metric, value in values.items()}, step)


def _made(make: Callable[..., CostModel], loss: Loss, trainer: TrainerSettings | None, seed: int) -> CostModel:
    own = make.keywords if isinstance(make, partial) else {}
    return make(loss=own.get("loss", loss), trainer=trainer, seed=seed)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
