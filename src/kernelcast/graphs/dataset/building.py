"""From measurements to a store: takes labels, has the views built shard by shard, and joins the two."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import ConfigError, MalformedDataError, StorageError
from kernelcast.files import atomic_directory, only_process, remove_leftovers
from kernelcast.graphs.dataset.builders import Builder
from kernelcast.graphs.dataset.plan import ASSUMED_CACHE_BYTES, Plan, PlannedUnits
from kernelcast.graphs.dataset.selection import Choice, Folder, choose_rows, distinct_targets, target_names
from kernelcast.graphs.dataset.shards import ShardInfo, read_shard_info, shard_jobs, write_shard
from kernelcast.graphs.dataset.store import META_FILE, SHARDS_FOLDER, Description, StoredTarget, write_store
from kernelcast.graphs.dataset.unit import Built, build_unit, code_hash, unit_hash
from kernelcast.graphs.kernels.compiled import cache_directory
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.views import MODULE_VIEWS, VIEW_TYPES

logger = logging.getLogger(__name__)

REPLAYED_OTHERWISE = "replayed_otherwise"


@contextmanager
def built_store(
    output: Path,
    folders: Sequence[Folder],
    choice: Choice,
    options: ViewOptions,
    builder: Builder,
    shard_programs: int,
    progress: Callable[[int, int], None],
) -> Iterator[tuple[Path, Description]]:
    """Turns measurements into a store, in the order of folders and rows; it replaces `output` when the body ends well.

    Rows that are of no use, or whose schedule replays to another program than the one measured, are dropped and
    counted. Shards lie beside `output` until then, so that a build that was killed, or whose splits could not be made,
    goes on with those that the same code, options and programs made.

    Args:
        output: the folder of the store.
        folders: what was measured.
        choice: labels, and which rows are taken.
        options: which views are built, and how.
        builder: where the views are built.
        shard_programs: programs of a shard.
        progress: called with programs done and in all.

    Yields:
        The folder of the finished store, to which files may be added, and its description.

    Raises:
        MalformedDataError: no row is left, or a module cannot be read.
        ConfigError: a size that cannot work, or labels are to be corrected and there is no reference time.
        StorageError: another build is at work there.
    """
    if isinstance(shard_programs, bool) or shard_programs < 1:
        raise ConfigError(f"shard_programs={shard_programs}: at least 1")
    options = possible_options(folders, options)
    targets = distinct_targets(folders)
    if needs_modules(options):
        _warn_of_unknown_machines(targets)
    dropped: Counter[str] = Counter()
    chosen = choose_rows(folders, targets, choice, needs_modules(options), dropped)
    _require_rows(len(chosen), dropped)
    plan = Plan(chosen, options, shard_programs)
    scratch = output.with_name(f"{output.name}.building")
    taken = StorageError(
        f"another process builds graphs in {output}; wait for it, or write elsewhere with paths.graphs=FOLDER"
    )
    with only_process(output, taken):
        remove_leftovers(output)
        with atomic_directory(output, META_FILE) as folder:
            shards = _build_shards(scratch, plan, builder, progress)
            used, rows = _placed(folder / SHARDS_FOLDER, scratch, plan, shards)
            dropped[REPLAYED_OTHERWISE] += len(plan) - len(rows)
            _require_rows(len(rows), dropped)
            columns, workloads = plan.columns(rows, target_names(targets))
            description = Description(
                workloads=workloads,
                targets=targets,
                label=choice.labelling.label,
                options=options,
                dropped={reason: count for reason, count in sorted(dropped.items()) if count},
                reference_correction=choice.labelling.reference_correction,
                spread_limit=choice.labelling.spread_limit,
                **plan.flags(rows),
            )
            write_store(folder, used, columns, description)
            yield folder, description
        # only when the store stands: whatever fails before keeps the shards
        shutil.rmtree(scratch)


def _placed(
    folder: Path, scratch: Path, plan: Plan, shards: Sequence[ShardInfo]
) -> tuple[list[ShardInfo], Int64[np.ndarray, " programs"]]:
    """Puts the shards that hold anything into `folder`; gives these, and the rows of the plan that they hold."""
    used, rows = [], [np.zeros(0, dtype=np.int64)]
    for spans, shard in zip(plan.shards, shards, strict=True):
        if shard.programs:
            rows.append(shard_jobs(scratch / shard.name) + spans[0].start)
            shutil.copytree(scratch / shard.name, folder / shard.name, copy_function=_link)
            used.append(shard)
    return used, np.concatenate(rows)


def needs_modules(options: ViewOptions) -> bool:
    """Whether a view needs more than the trace."""
    return bool(MODULE_VIEWS & set(options.views))


def possible_options(folders: Sequence[Folder], options: ViewOptions) -> ViewOptions:
    """The views that can be built: of workloads that this TVM cannot load only the trace."""
    workloads = [workload for folder in folders for workload in folder.measurements.workloads.values()]
    if "trace" not in options.views or any(workload.loadable for workload in workloads):
        return options
    without = ", ".join(name for name in options.views if name != "trace")
    if without:
        logger.warning(
            "another TVM wrote these workloads (%s): their programs have the trace view only, not %s",
            ", ".join(sorted({workload.written_by for workload in workloads})), without,
        )  # fmt: skip
    return replace(options, views=("trace",))


def _build_shards(scratch: Path, plan: Plan, builder: Builder, progress: Callable[[int, int], None]) -> list[ShardInfo]:
    """All shards, in order; those that are there already are taken."""
    scratch.mkdir(exist_ok=True)
    code = code_hash()
    made_of = [unit_hash(code, (plan.unit(span) for span in spans)) for spans in plan.shards]
    names = [f"{number:05d}-{hashed}" for number, hashed in enumerate(made_of)]
    for leftover in scratch.iterdir():
        if leftover.name not in names:
            shutil.rmtree(leftover)
    missing = [number for number, name in enumerate(names) if not (scratch / name).exists()]
    spans = [(number, span) for number in missing for span in plan.shards[number]]
    done = len(plan) - sum(len(span) for _, span in spans)
    if done:
        logger.info("going on after an interrupted build: %d of %d programs are there", done, len(plan))
    if missing and needs_modules(plan.options) and not _is_compiled():
        logger.info(
            "the first build with this code compiles its kernels once: half a minute, or more on a busy machine"
        )
    built: dict[int, dict[int, Built]] = {number: {} for number in missing}
    for position, result in builder.run(build_unit, PlannedUnits(plan, [span for _, span in spans])):
        number, span = spans[position]
        built[number][span.start] = result
        if len(built[number]) == len(plan.shards[number]):
            _write(scratch / names[number], made_of[number], plan.shards[number], built.pop(number))
        done += len(span)
        progress(done, len(plan))
    return [read_shard_info(scratch / name) for name in names]


def _is_compiled() -> bool:
    """Whether an earlier build has left the machine code of the kernels."""
    folder = cache_directory("kernelcast.graphs.kernels.access_facts")
    return folder is not None and any(folder.iterdir())


def _write(folder: Path, made_of: str, spans: Sequence[range], built: dict[int, Built]) -> None:
    parts = [built[span.start] for span in spans if len(built[span.start].kept)]
    places = [built[span.start].kept + span.start - spans[0].start for span in spans]
    kept = np.concatenate(places)
    names = parts[0].views if parts else ()
    views = {name: VIEW_TYPES[name].concatenate([part.views[name] for part in parts]) for name in names}
    write_shard(folder, made_of, views, kept)


def _link(source: str, target: str) -> None:
    """One file under two names, where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _require_rows(count: int, dropped: Counter[str]) -> None:
    if count == 0:
        counts = ", ".join(f"{number} {reason}" for reason, number in sorted(dropped.items()))
        raise MalformedDataError(f"no measured program is usable ({counts}); run `dvc repro measure`")


def _warn_of_unknown_machines(targets: Sequence[StoredTarget]) -> None:
    if any(target.machine is None for target in targets):
        logger.warning(
            "the machine that measured is unknown: the features assume %d KiB of cache a core, and the roofline model "
            "cannot be used; after an import of times of this machine: `host=this`",
            ASSUMED_CACHE_BYTES // 1024,
        )
