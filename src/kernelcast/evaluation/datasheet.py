"""The datasheet of a set of measurements: what is in it, how it came about, how noisy it is and what it lacks.

After Gebru et al. 2021 (Datasheets for datasets, CACM 64, arXiv 1803.09010): composition, collection, uses. Every
figure is counted in the measurements themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float64

from kernelcast.evaluation.machine import machine_states, state_sentence
from kernelcast.evaluation.noise import Source, paired_labels
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.repeats import Repeats
from kernelcast.records import Measurements, Outcome, Workload

PAUSE_SECONDS = 1800.0
"""Without a repeat for so long, measuring was stopped and gone on with, maybe on another machine of the same kind."""

FEW = 16
"""Fewer measured programs than this say little about the order of a workload's schedules."""


def datasheet(measurements: Measurements, name: str) -> str:
    """The datasheet as Markdown.

    Args:
        measurements: a finished folder.
        name: of the data set, its heading.
    """
    sections = (
        _heading(measurements, name),
        _composition(measurements),
        _collection(measurements),
        _noise(measurements),
        _gaps(measurements),
        _uses(),
    )
    return "\n".join(line for section in sections for line in (*section, "")).rstrip() + "\n"


def _heading(measurements: Measurements, name: str) -> list[str]:
    measured = measurements.measured
    workloads = set(measured["workload_key"].to_pylist())
    return [
        f"# {name}",
        "",
        f"{measured.num_rows} measured programs of {len(workloads)} workloads, made by `python scripts/export.py "
        "format=dataset`. One row a try to measure, with every raw repeat; the columns and their units are in "
        "the Parquet schema.",
    ]


def _composition(measurements: Measurements) -> list[str]:
    table = measurements.table
    outcomes = Counter(table["outcome"].to_pylist())
    origins = Counter(measurements.measured["origin"].to_pylist())
    of_workload = Counter(measurements.measured["workload_key"].to_pylist())
    kinds = Counter[str]()
    networks: dict[str, list[Workload]] = {}
    for key, workload in measurements.workloads.items():
        kinds[workload.kind] += of_workload[key]
        for network in workload.networks or ("single operators",):
            networks.setdefault(network, []).append(workload)
    rows = [
        (network, len(of), sum(of_workload[workload.key] for workload in of))
        for network, of in sorted(networks.items(), key=lambda entry: (not entry[1][0].networks, entry[0]))
    ]
    return [
        "## What is in it",
        "",
        f"- Outcomes: {_counts(outcomes)}.",
        f"- Origin of the measured: {_counts(origins)}.",
        f"- Kinds of workloads, by programs: {_counts(kinds)}.",
        "",
        "Workloads that several networks share are counted in each.",
        "",
        *_table(("network", "workloads", "measured programs"), rows),
    ]


def _collection(measurements: Measurements) -> list[str]:
    campaign, host = measurements.campaign, measurements.campaign.host
    versions = ", ".join(f"{package} {version}" for package, version in sorted(campaign.tvm.items()))
    timing = ", ".join(f"{name} {value}" for name, value in campaign.timing.items())
    checked = int(pc.sum(measurements.measured["checked"]).as_py() or 0)
    lines = [
        "## How, where and when",
        "",
        f"- Target: `{campaign.target}`; seed {campaign.seed}; {versions}.",
        f"- Timing: {timing}.",
        f"- Results of {checked} programs were compared with those of the unscheduled workload.",
    ]
    if host is not None:
        lines.append(
            f"- Machine: {host.cpu}; {host.cores} cores; {host.system}; "
            f"{host.peak_flops_per_second / 1e9:.0f} GFLOP/s, {host.bytes_per_second / 1e9:.0f} GB/s, "
            f"{host.cache_bytes // 1024} KiB of cache a core."
        )
    ended = Repeats.of(measurements.table).ended_at
    begins = _stretches(ended)
    for number, begin in enumerate(begins):
        inside = ended[ended >= begin]
        end = inside[inside < begins[number + 1]].max() if number + 1 < len(begins) else inside.max()
        which = (
            f"Stretch {number + 1} of {len(begins)}, apart by more than half an hour" if len(begins) > 1 else "Measured"
        )
        lines.append(f"- {which}: first repeat {_time(begin)}, last one {_time(end)}.")
    return lines


def _stretches(ended_at: Float64[np.ndarray, " repeats"]) -> Float64[np.ndarray, " stretches"]:
    """When each stretch of measuring ended its first repeat, ascending; repeats of unknown time belong to none."""
    times = np.sort(ended_at[np.isfinite(ended_at)])
    return times[np.flatnonzero(np.diff(times, prepend=-np.inf) > PAUSE_SECONDS)]


def _noise(measurements: Measurements) -> list[str]:
    pairs = paired_labels(measurements.measured, Labelling())
    lines = ["## How noisy it is", ""]
    if pairs.source is Source.VISITS and len(pairs.ratios):
        lines.append(
            f"{len(pairs.ratios)} programs were built and measured again later; the larger of both times (minimum over "
            f"the rounds) is {np.median(pairs.ratios):.3f} times the smaller one in the median and "
            f"{np.quantile(pairs.ratios, 0.9):.3f} times at the 90th percentile."
        )
        lines += _across_stretches(measurements)
    else:
        lines.append("No program was measured again, so nothing says how well a measurement repeats.")
    states = machine_states(measurements)
    if states:
        lines.append(state_sentence(states))
    return lines


def _across_stretches(measurements: Measurements) -> list[str]:
    """How programs that were measured again in a later stretch compare: whether the stretches can be mixed."""
    repeats = Repeats.of(measurements.measured)
    stretch = np.searchsorted(_stretches(repeats.ended_at), repeats.ended_at, side="right")
    seconds = {visit: np.full(repeats.rows, np.inf) for visit in (0, 1)}
    places = {visit: np.zeros(repeats.rows) for visit in (0, 1)}
    for visit in (0, 1):
        of = repeats.visit == visit
        np.minimum.at(seconds[visit], repeats.row[of], repeats.run_seconds[of])
        np.maximum.at(places[visit], repeats.row[of], stretch[of])
    later = np.isfinite(seconds[1]) & (places[1] > places[0])
    ratios = seconds[1][later] / seconds[0][later]
    if not len(ratios):
        return []
    return [
        f"{len(ratios)} of them were measured again in a later stretch: the time there is {np.median(ratios):.3f} "
        "times the first one in the median, and both differ by a factor of "
        f"{np.exp(np.median(np.abs(np.log(ratios)))):.3f}."
    ]


def _gaps(measurements: Measurements) -> list[str]:
    counted = Counter(measurements.measured["workload_key"].to_pylist())
    few = sorted(
        (workload.name, counted[key]) for key, workload in measurements.workloads.items() if counted[key] < FEW
    )
    failures = Counter(
        outcome for outcome in measurements.table["outcome"].to_pylist() if outcome != Outcome.MEASURED.value
    )
    listed = ", ".join(f"{name} ({count})" for name, count in few) or "none"
    return [
        "## What it lacks",
        "",
        f"- Workloads with fewer than {FEW} measured programs, most of them with no more in their space: {listed}.",
        f"- Failed tries, kept as rows without times: {_counts(failures) if failures else 'none'}.",
        "- One machine: nothing tells how another one orders these programs.",
    ]


def _uses() -> list[str]:
    return [
        "## What to do with it",
        "",
        "`python scripts/graphs.py 'measurements=[FOLDER]'` makes graphs, labels and splits of it. Labels are the "
        "minimum of the first visit's rounds unless told otherwise; later visits are for the noise ceiling alone. "
        "Times of different targets or machines must not be mixed in one workload.",
    ]


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
