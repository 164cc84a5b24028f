"""Fuse or not: a learned model decides for each subgraph of a network that TVM's rule fuses.

A group of operators costs the time of one kernel when it is fused, and the sum over its operators' kernels when it is
not. What a call of a kernel costs, 1 to 2 microseconds, is not counted.

Source:
    Kaufman et al. 2021 (arXiv 2008.01040), sections 2.1 and 5: a learned model of kernels' times decides on fusion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.models.protocol import PredictionKind
from kernelcast.networks.fusing import FusionGroup
from kernelcast.networks.fusion_groups import FusionSpace
from kernelcast.networks.saved import SavedNetwork
from kernelcast.records import Workload
from kernelcast.tuning.network import network_tasks
from kernelcast.tuning.schedules import ChosenSchedule
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import make_target, prepare_for, replayed_schedule, structural_key


class Predictor(Protocol):
    """Predicts programs of one workload."""

    def __call__(self, workload: Workload, traces: Sequence[str]) -> Float64[np.ndarray, " programs"]:
        """ln(seconds) of each of `traces`; infinite where a program cannot be read."""


@dataclass(frozen=True)
class FusionChoice:
    """One group of operators and what speaks for fusing it.

    Attributes:
        group: the operators.
        fused_name: name of the kernel that does the work of all.
        member_names: names of the operators' kernels.
        predicted_fused_seconds: predicted time of the best schedule of the fused kernel.
        predicted_apart_seconds: the sum of those of the operators' kernels.
        measured_fused_seconds: as measured; None where the kernel was not.
        measured_apart_seconds: as measured; None where one of the kernels was not.
    """

    group: FusionGroup
    fused_name: str
    member_names: tuple[str, ...]
    predicted_fused_seconds: float
    predicted_apart_seconds: float
    measured_fused_seconds: float | None
    measured_apart_seconds: float | None

    @property
    def fuses(self) -> bool:
        """What the model decides; TVM's rule fuses all."""
        return self.predicted_fused_seconds <= self.predicted_apart_seconds

    @property
    def measured(self) -> tuple[float, float] | None:
        """Measured seconds, fused and apart, where both are known."""
        if self.measured_fused_seconds is None or self.measured_apart_seconds is None:
            return None
        return self.measured_fused_seconds, self.measured_apart_seconds


@dataclass(frozen=True)
class RuleCost:
    """What a rule of fusion costs.

    Attributes:
        rule: its name.
        fused: groups that it fuses, of those that were measured.
        run_seconds: of these groups, each times how often the network runs it.
        regret_seconds: what it loses to the best choice of each group.
    """

    rule: str
    fused: int
    run_seconds: float
    regret_seconds: float


@dataclass(frozen=True)
class FusionChoices:
    """What was decided for a network.

    Attributes:
        network: its name.
        choices: one a group, in the order in which the network first runs them.
        undecided: a line for each group that stays as TVM's rule has it, with the reason.
    """

    network: str
    choices: tuple[FusionChoice, ...]
    undecided: tuple[str, ...]

    @property
    def apart(self) -> tuple[str, ...]:
        """Keys of the fused kernels that the model takes apart: `apart` of `deployment.deploy`."""
        return tuple(choice.group.fused for choice in self.choices if not choice.fuses)

    def rules(self) -> list[RuleCost]:
        """What each rule costs over the groups that were measured both ways; none where there is no such group."""
        measured = [(choice, choice.measured) for choice in self.choices if choice.measured is not None]
        if not measured:
            return []
        seconds = np.array([both for _, both in measured], dtype=np.float64)
        counts = np.array([choice.group.count for choice, _ in measured])
        rules = {
            "TVM's rule": np.ones(len(measured), dtype=bool),
            "learned": np.array([choice.fuses for choice, _ in measured]),
            "nothing fused": np.zeros(len(measured), dtype=bool),
            "best": seconds[:, 0] <= seconds[:, 1],
        }
        costs = {name: float(np.dot(counts, np.where(fuses, *seconds.T))) for name, fuses in rules.items()}
        return [RuleCost(name, int(rules[name].sum()), cost, cost - costs["best"]) for name, cost in costs.items()]


def fusion_tasks(saved: SavedNetwork, space: FusionSpace) -> list[Task]:
    """What to tune so that both variants of each group are measured: the network's tasks, and the groups' operators."""
    tasks = network_tasks(saved)
    known = {task.workload.key for task in tasks}
    members = {key for group in space.groups for key in group.members}
    for workload in space.workloads:
        if workload.key in members - known:
            tasks.append(Task(workload, sum(workload.networks.values())))
    return tasks


def sampled_traces(tasks: Sequence[Task], target: dict[str, Any], count: int, seed: int) -> dict[str, list[str]]:
    """Up to `count` random schedules of each workload, by its key, for the model to choose the best of.

    Raises:
        MeasurementError: TVM cannot schedule a workload for this target.
    """
    return {
        task.workload.key: [one.trace for one in sample_candidates(task.workload, target, count, seed)]
        for task in tasks
    }


def chosen_traces(schedules: Mapping[str, ChosenSchedule]) -> dict[str, list[str]]:
    """The schedules that a tuning ended with, by key of the workload: what `decide_fusion` predicts after a tuning."""
    return {key: [chosen.trace] for key, chosen in schedules.items()}


def model_predictor(model: TrainedModel, target: dict[str, Any]) -> Predictor:
    """Predicts by a trained model.

    Raises:
        ConfigError: the model only ranks programs of one workload, so that times of several cannot be compared or
            added; or it was trained for another target.
    """
    if model.model.kind is not PredictionKind.LOG_SECONDS:
        raise ConfigError(
            "fusion compares times of different kernels, and this model only ranks the programs of one; choose a model "
            "that predicts ln(seconds), for example one trained with loss=log_mse"
        )
    complete = make_target(target)
    model.require_target(complete)
    prepare_for(target)

    def predict(workload: Workload, traces: Sequence[str]) -> Float64[np.ndarray, " programs"]:
        schedules = [replayed_schedule(workload, trace) for trace in traces]
        keys = [structural_key(schedule.mod) for schedule in schedules]
        return model.judge(schedules, keys, complete, with_rows=False).predicted

    return predict


def decide_fusion(
    saved: SavedNetwork,
    space: FusionSpace,
    traces: Mapping[str, Sequence[str]],
    predict: Predictor,
    measured: Mapping[str, float],
) -> FusionChoices:
    r"""Decides for each group of operators.

    With P(k) the least prediction over the traces of the kernel k, in seconds::

        fused  where  P(fused kernel) <= sum over the operators' kernels m of P(m)

    Args:
        saved: the network.
        space: what can be fused in it.
        traces: schedules by key of the workload: random ones (`sampled_traces`) or those of a tuning (`chosen_traces`).
        predict: the model.
        measured: seconds of the best schedule by key of the workload, where it was measured.
    """
    workloads = {workload.key: workload for workload in (*space.workloads, *saved.workloads)}
    predicted = {
        key: float(np.exp(np.min(predict(workloads[key], traces[key]))))
        for key in dict.fromkeys(key for group in space.groups for key in (group.fused, *group.members))
        if key in workloads and traces.get(key)
    }
    choices, undecided = [], []
    for group in space.groups:
        keys = (group.fused, *group.members)
        missing = [key for key in keys if not np.isfinite(predicted.get(key, np.inf))]
        if missing:
            names = ", ".join(workloads[key].name if key in workloads else key for key in dict.fromkeys(missing))
            undecided.append(
                f"{workloads[group.fused].name if group.fused in workloads else group.fused}: no schedule of {names}"
            )
            continue
        choices.append(
            FusionChoice(
                group,
                workloads[group.fused].name,
                tuple(workloads[key].name for key in group.members),
                predicted[group.fused],
                sum(predicted[key] for key in group.members),
                measured.get(group.fused),
                sum(measured[key] for key in group.members) if all(key in measured for key in group.members) else None,
            )
        )
    return FusionChoices(saved.name, tuple(choices), tuple(undecided))
