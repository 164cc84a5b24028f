"""An answer on the terminal: the best programs of a workload, or a line a workload with the network's sum."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from kernelcast.evaluation.metrics import kendall_tau, mape
from kernelcast.prediction.answer import Answer
from kernelcast.prediction.subjects import Origin

ABSENT = "-"
NO_TIMES = (
    "This model predicts an order, no times: scores have no unit and compare programs of one workload only; "
    "times of the best are an estimate from the model's validation."
)
MEASURED = (
    "Of each workload the program that is predicted to be fastest, its measured time, and that of the one that was "
    "measured to be fastest (least)."
)
WORDS = {
    Origin.GIVEN: "given program",
    Origin.DRAWN: "random schedule",
    Origin.RECORDED: "recorded program",
}
LARGE = 1e4
LEAST_MEASURED = 2
"""Programs of a workload without which there is no order to compare."""


def heading(answer: Answer, top: int) -> str:
    """What the table shows."""
    counts = Counter(one.origin for one in answer.subjects)
    counted = ", ".join(f"{count} {WORDS[origin]}{'s' * (count != 1)}" for origin, count in counts.items())
    if len(answer.groups) > 1:
        workloads = len({workload for workload, _ in answer.groups})
        several = f" on {len(answer.targets)} targets" if len(answer.targets) > 1 else ""
        return f"{workloads} workload{'s' * (workloads != 1)}{several}: {counted}"
    name = answer.subjects[0].workload.name
    shown = f", the {top} that are predicted to be fastest" if len(answer.subjects) > top else ""
    return f"{name}: {counted}{shown}"


def table(answer: Answer, top: int) -> Table:
    """The `top` best programs of a workload; of several workloads one line each."""
    return _programs(answer, top) if len(answer.groups) == 1 else _workloads(answer)


def notes(answer: Answer) -> list[str]:
    """What the tables do not say, a line each."""
    lines = [] if answer.times else [NO_TIMES]
    if len(answer.groups) > 1 and bool(np.isfinite(answer.measured_microseconds).any()):
        lines.append(MEASURED)
    lines += _sums(answer)
    lines += [_agreement(answer) or _trust(answer)]
    return list(filter(None, lines))


def _programs(answer: Answer, top: int) -> Table:
    [rows] = answer.groups.values()
    table = _table()
    measured = bool(np.isfinite(answer.measured_microseconds[rows]).any())
    table.add_column("rank", justify="right")
    table.add_column("program", no_wrap=True)
    table.add_column("predicted us" if answer.times else "score", justify="right")
    table.add_column("ratio to best", justify="right")
    if measured:
        table.add_column("measured us", justify="right")
    for row in rows[:top].tolist():
        predicted = answer.microseconds[row] if answer.times else answer.predicted[row]
        cells = [
            str(answer.ranks.get(row, ABSENT)),
            answer.subjects[row].program_key or ABSENT,
            number(predicted),
            ratio(answer.ratios[row]),
        ]
        table.add_row(*map(Text, [*cells, *([number(answer.measured_microseconds[row])] if measured else [])]))
    return table


def _workloads(answer: Answer) -> Table:
    """One line a workload; in 80 columns there is room for the sums of a network or for measured times."""
    weights = any(one.workload.networks for one in answer.subjects)
    measured = bool(np.isfinite(answer.measured_microseconds).any())
    table = _table()
    table.add_column("workload", overflow="fold", min_width=24)
    heads = ["programs", "best us" if answer.times else "best score"]
    heads += ["measured us", "least us"] if measured else ["median us" if answer.times else "median ratio"]
    heads += ["runs"] if weights else []
    heads += ["us in all"] if weights and answer.times and not measured else []
    for head in heads:
        table.add_column(head, justify="right")
    for (_, target), rows in answer.groups.items():
        known = rows[np.isfinite(answer.predicted[rows])]
        best, count = int(rows[0]), sum(answer.subjects[rows[0]].workload.networks.values())
        values = answer.microseconds if answer.times else answer.predicted
        name = answer.subjects[best].workload.name + _apart(answer, json.loads(target))
        cells = [name, str(len(rows)), number(values[best])]
        if measured:
            times = answer.measured_microseconds[rows]
            least = np.nanmin(times) if np.isfinite(times).any() else np.nan
            cells += [number(answer.measured_microseconds[best]), number(least)]
        elif not len(known):
            cells.append(ABSENT)
        else:
            cells.append(number(np.median(values[known])) if answer.times else ratio(np.median(answer.ratios[known])))
        if weights:
            cells.append(str(count) if count else ABSENT)
        if "us in all" in heads:
            cells.append(number(count * answer.microseconds[best]) if count else ABSENT)
        table.add_row(*map(Text, cells))
    return table


def _apart(answer: Answer, target: Mapping[str, Any]) -> str:
    """What tells a target from the others of an answer; empty where there is one."""
    keys = dict.fromkeys(key for one in answer.targets for key in one)
    told = [f"{key}={target.get(key)}" for key in keys if len({json.dumps(one.get(key)) for one in answer.targets}) > 1]
    return f" ({', '.join(told)})" if told else ""


def _sums(answer: Answer) -> list[str]:
    """What the kernels of each network take in all, by the best predicted program of each."""
    kernels: dict[str, list[float]] = defaultdict(list)
    for rows in answer.groups.values():
        best = int(rows[0])
        for network, weight in answer.subjects[best].workload.networks.items():
            kernels[network].append(weight * answer.microseconds[best])
    if not answer.times:
        return [f"{network}: times of kernels cannot be added up by a model of order" for network in kernels]
    lines = []
    for network, times in kernels.items():
        missing = int(np.isnan(times).sum())
        counted = f"{len(times) - missing} kernel{'s' * (len(times) - missing != 1)}"
        line = f"{network}: {number(float(np.nansum(times)))} us in {counted}, each as often as "
        line += "it runs, by its best predicted program"
        lines.append(line + (f"; {missing} without a prediction are not counted" if missing else ""))
    return lines


def _agreement(answer: Answer) -> str:
    """How the predictions of measured programs agree with the times; empty where too few were measured."""
    known = np.isfinite(answer.measured_microseconds) & np.isfinite(answer.predicted)
    groups = [rows[known[rows]] for rows in answer.groups.values()]
    taus = [
        kendall_tau(answer.measured_microseconds[rows], answer.predicted[rows])
        for rows in groups
        if len(np.unique(answer.measured_microseconds[rows])) >= LEAST_MEASURED
    ]
    if not taus:
        return ""
    text = f"Against the measured times: Kendall's tau {np.nanmean(taus):.2f} within workloads (mean of {len(taus)})"
    if answer.times:
        truth = np.log(answer.measured_microseconds[known] * 1e-6)
        text += f", mean error of the times {mape(truth, answer.predicted[known]):.0%}"
    return f"{text}; programs that the model was trained on say nothing about new ones."


def _trust(answer: Answer) -> str:
    """How far the times are to be believed; empty for a model of order, and where nobody knows."""
    if not answer.times or answer.typical_factor is None:
        return ""
    return (
        f"In the model's validation half of the times were within a factor of {answer.typical_factor:.2f} of the "
        "measured ones; for programs unlike those that it learned from, tiny ones above all, they may be further off."
    )


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)


def number(value: float) -> str:
    """Four significant digits, no exponent in large ones; a dash where there is no value."""
    if not np.isfinite(value):
        return ABSENT
    return f"{value:.0f}" if abs(value) >= LARGE else f"{value:.4g}"


def ratio(value: float) -> str:
    """How many times the best."""
    return f"{value:.2f}" if np.isfinite(value) else ABSENT
