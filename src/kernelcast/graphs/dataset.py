"""From measurements to programs: replays every schedule, builds its views, takes its label."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.analysis import analyse
from kernelcast.graphs.ast import AstOptions, concatenate, syntax_tree
from kernelcast.graphs.features import flat_features
from kernelcast.graphs.labels import Labelling, labels_of
from kernelcast.graphs.programs import AstGraphs, FlatFeatures, Machine, Programs
from kernelcast.graphs.reader import parse_program
from kernelcast.graphs.store import Description, feature_version
from kernelcast.records import CAMPAIGN_FILE, MEASUREMENTS_FILE, WORKLOADS_FILE, Campaign, Measurements, Workload
from kernelcast.tvm_compat import (
    available_cores,
    load_tvm,
    module_json,
    runnable_module,
    scheduled_module,
    structural_key,
)

logger = logging.getLogger(__name__)

CHUNK_PROGRAMS = 64
"""Programs that one worker turns into arrays at a time."""

PROGRAMS_PER_WORKER = 512
"""Fewer than this many are not worth the seconds that another process needs to load TVM."""

ASSUMED_CACHE_BYTES = 512 * 1024
"""Taken for the features where the machine is unknown: what a core of most processors has at least for itself."""

REPLAYED_OTHERWISE = "replayed_otherwise"
OTHER_TARGET = "other_target"
UNKNOWN_WORKLOAD = "unknown_workload"


@dataclass(frozen=True)
class Views:
    """Everything that models see of some programs but the label.

    Attributes:
        ast: their trees.
        features: their rows, one array a program.
        names: the columns.
        keys: structural hash of what was replayed.
    """

    ast: AstGraphs
    features: list[np.ndarray]
    names: tuple[str, ...]
    keys: list[str]


def build_programs(
    measurements: Measurements,
    measurements_hash: str,
    labelling: Labelling,
    options: AstOptions,
    progress: Callable[[int, int], None],
) -> tuple[Programs, Description]:
    """Turns measurements into programs, in the order of their rows.

    Rows without a valid time, of another target than the campaign's, of an unknown workload, or whose schedule replays
    to another program than the one measured, are dropped and counted.

    Args:
        measurements: what `measure` wrote.
        measurements_hash: their hash, kept for the record.
        labelling: how repeats become labels.
        options: which parts of the trees are kept.
        progress: called with programs done and in all.

    Raises:
        MalformedDataError: no row is left, or a module cannot be read.
        ConfigError: labels are to be corrected and there is no reference time.
    """
    table = measurements.table
    labels = labels_of(table, labelling)
    reasons = labels.reasons
    reasons[~_among(table["workload_key"], list(measurements.workloads))] = UNKNOWN_WORKLOAD
    targets = [text for text in table["target"].unique().to_pylist() if _target(text) == measurements.campaign.target]
    reasons[~_among(table["target"], targets)] = OTHER_TARGET
    kept = np.flatnonzero(reasons == "")
    machine = machine_of(measurements.campaign)
    if machine is None:
        logger.warning(
            "the machine that measured is unknown: the features assume %d KiB of cache a core, and the roofline model "
            "cannot be used; after an import of times of this machine: `host=this`",
            ASSUMED_CACHE_BYTES // 1024,
        )
    cache_bytes = ASSUMED_CACHE_BYTES if machine is None else machine.cache_bytes
    columns = table.select(["workload_key", "program_key", "trace"]).take(pa.array(kept)).to_pydict()
    jobs = [
        (measurements.workloads[key], trace)
        for key, trace in zip(columns["workload_key"], columns["trace"], strict=True)
    ]
    views = _all_views(jobs, options, cache_bytes, progress) if jobs else None
    replayed = np.array(views.keys if views else [], dtype=object) == np.array(columns["program_key"], dtype=object)
    same = np.flatnonzero(replayed)
    lost = len(kept) - len(same)
    dropped = Counter(reasons[reasons != ""].tolist()) + Counter({REPLAYED_OTHERWISE: lost})
    if views is None or not len(same):
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
        raise MalformedDataError(f"no measured program is usable ({counts}); run `dvc repro measure`")

    rows = kept[same]
    found = {columns["workload_key"][i] for i in same}
    keys = [key for key in measurements.workloads if key in found]
    number = {key: index for index, key in enumerate(keys)}
    workloads = [measurements.workloads[key] for key in keys]
    programs = Programs(
        ast=views.ast if lost == 0 else views.ast.select(same),
        features=FlatFeatures(np.stack([views.features[i] for i in same]), views.names),
        log_seconds=labels.log_seconds[rows],
        workload=np.array([number[columns["workload_key"][i]] for i in same], dtype=np.int32),
        workload_names=tuple(workload.name for workload in workloads),
        program_key=np.array([columns["program_key"][i] for i in same], dtype=np.str_),
        machine=machine,
        feature_version=feature_version(options, views.names),
    )
    description = Description(
        workload_keys=tuple(keys),
        workload_kinds=tuple(workload.kind for workload in workloads),
        target=measurements.campaign.target,
        label=labelling.label,
        options=options,
        dropped=dict(sorted(dropped.items())),
        measurements_hash=measurements_hash,
        reference_correction=labelling.reference_correction,
        spread_limit=labelling.spread_limit,
        flagged=int(labels.flagged[rows].sum()),
        uncorrected=int(labels.uncorrected[rows].sum()),
    )
    return programs, description


def _among(column: pa.ChunkedArray, values: list[str]) -> np.ndarray:
    return np.asarray(pc.is_in(column, value_set=pa.array(values, pa.string())).to_numpy())


def _target(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise MalformedDataError(
            f"{MEASUREMENTS_FILE}: the target {text!r} of a row is not JSON ({error}); delete it and run "
            "`dvc repro measure`"
        ) from error


def machine_of(campaign: Campaign) -> Machine | None:
    """What the campaign says of the machine, as far as its target uses it: the peak of all cores, scaled to these."""
    host = campaign.host
    if host is None:
        return None
    cores = int(campaign.target.get("num-cores", host.cores))
    return Machine(
        cores=cores,
        vector_lanes=host.vector_lanes,
        peak_flops_per_second=host.peak_flops_per_second * cores / host.cores,
        bytes_per_second=host.bytes_per_second,
        cache_bytes=host.cache_bytes,
    )


def measurements_hash(directory: Path) -> str:
    """Hash of the files of a folder of measurements."""
    digest = hashlib.sha256()
    for name in (CAMPAIGN_FILE, WORKLOADS_FILE, MEASUREMENTS_FILE):
        digest.update((directory / name).read_bytes())
    return digest.hexdigest()[:16]


def program_views(module: str, options: AstOptions, cache_bytes: int) -> tuple[AstGraphs, np.ndarray, tuple[str, ...]]:
    """Tree, flat features and their names of one scheduled module in TVM's JSON."""
    facts = analyse(parse_program(module))
    row, names = flat_features(facts, cache_bytes)
    return syntax_tree(facts, options), row, names


def _all_views(
    jobs: list[tuple[Workload, str]], options: AstOptions, cache_bytes: int, progress: Callable[[int, int], None]
) -> Views:
    chunks = [jobs[start : start + CHUNK_PROGRAMS] for start in range(0, len(jobs), CHUNK_PROGRAMS)]
    done: dict[int, Views] = {}
    finished = 0
    for number, views in _run(chunks, options, cache_bytes):
        done[number] = views
        finished += len(views.keys)
        progress(finished, len(jobs))
    ordered = [done[number] for number in range(len(chunks))]
    return Views(
        ast=concatenate([views.ast for views in ordered]),
        features=[row for views in ordered for row in views.features],
        names=ordered[0].names,
        keys=[key for views in ordered for key in views.keys],
    )


def _run(
    chunks: list[list[tuple[Workload, str]]], options: AstOptions, cache_bytes: int
) -> Iterator[tuple[int, Views]]:
    """Views of each chunk as it is done, with its number; over as many processes as pay."""
    count = sum(len(chunk) for chunk in chunks)
    workers = min(available_cores(), math.ceil(count / PROGRAMS_PER_WORKER))
    if workers == 1:
        for number, chunk in enumerate(chunks):
            yield number, _chunk_views(chunk, options, cache_bytes)
        return
    # TVM and its threads do not survive a plain fork
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=load_tvm) as pool:
        futures = {
            pool.submit(_chunk_views, chunk, options, cache_bytes): number for number, chunk in enumerate(chunks)
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def _chunk_views(chunk: list[tuple[Workload, str]], options: AstOptions, cache_bytes: int) -> Views:
    load_tvm()
    trees, rows, keys = [], [], []
    names: tuple[str, ...] = ()
    for workload, trace in chunk:
        module = scheduled_module(workload, trace)
        tree, row, names = program_views(module_json(runnable_module(module)), options, cache_bytes)
        trees.append(tree)
        rows.append(row)
        keys.append(structural_key(module))
    return Views(concatenate(trees), rows, names, keys)
