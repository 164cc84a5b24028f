"""The folders of a project: disk, the database of runs, what the stages have left so far."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from kernelcast.stages.checkup.findings import Finding, Status
from kernelcast.stages.tracking.address import answers, is_server, sqlite_file
from kernelcast.stages.tracking.backlog import kept_folders

AREA = "project"

GIB = 2**30

LEAST_FREE_BYTES = 1 * GIB
"""Below it a stage may not finish."""

ENOUGH_FREE_BYTES = 10 * GIB
"""Measurements, graphs and models of the default suite take less than 1 GiB; networks and experiments several."""


def project_findings(paths: Any, tracking: Any) -> Iterator[Finding]:
    """What is in a project's folders.

    Args:
        paths: `config.paths`.
        tracking: `config.tracking`.
    """
    yield disk_finding(Path(paths.root))
    yield writable_finding([Path(paths.root), Path(paths.runs)])
    yield database_finding(str(tracking.uri))
    yield from _unsent(Path(paths.runs))
    yield from _data(paths)


def disk_finding(root: Path) -> Finding:
    """Space on the disk of a folder."""
    try:
        usage = psutil.disk_usage(str(_existing(root)))
    except OSError as error:
        return Finding(
            AREA, "disk", f"{root}: {error.strerror}", Status.FAULT, "set another folder with paths.root=FOLDER"
        )
    return space_finding(root, usage.free, usage.total)


def space_finding(root: Path, free_bytes: int, total_bytes: int) -> Finding:
    """Whether so many bytes are enough."""
    found = f"{free_bytes / GIB:.3g} GiB of {total_bytes / GIB:.3g} GiB free at {root}"
    if free_bytes < LEAST_FREE_BYTES:
        advice = f"free some space: below {LEAST_FREE_BYTES / GIB:.0f} GiB a stage may not finish"
        return Finding(AREA, "disk", found, Status.FAULT, advice)
    if free_bytes < ENOUGH_FREE_BYTES:
        advice = "enough for the default workloads; whole networks and experiments take several GiB"
        return Finding(AREA, "disk", found, Status.WARNING, advice)
    return Finding(AREA, "disk", found)


def writable_finding(folders: list[Path]) -> Finding:
    """Whether files can be written there."""
    for folder in folders:
        try:
            with tempfile.TemporaryFile(dir=_existing(folder)) as file:
                file.write(b"checkup")
        except OSError as error:
            advice = "make it writable, or set another folder with paths.root=FOLDER"
            return Finding(AREA, "writable", f"{folder}: {error.strerror}", Status.FAULT, advice)
    return Finding(AREA, "writable", ", ".join(map(str, folders)))


def database_finding(uri: str) -> Finding:
    """The MLflow store."""
    what = "MLflow"
    if is_server(uri):
        if answers(uri):
            return Finding(AREA, what, f"the server {uri} answers")
        advice = "check the address; runs are kept in `paths.runs` until it answers (`python scripts/sync.py`)"
        return Finding(AREA, what, f"the server {uri} does not answer", Status.WARNING, advice)
    path = sqlite_file(uri)
    if path is None:
        return Finding(AREA, what, uri)
    if not path.exists():
        return Finding(AREA, what, f"{path} is not there yet; the first stage makes it")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (state,) = database.execute("pragma quick_check(1)").fetchone()
            counts = dict(database.execute("select lower(status), count(*) from runs group by 1").fetchall())
    except sqlite3.Error as error:
        state, counts = str(error), {}
    if state != "ok":
        advice = "move the file away; the next stage makes a new one, and the runs' files stay in runs/artifacts"
        return Finding(AREA, what, f"{path} is broken: {state}", Status.FAULT, advice)
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no runs"
    return Finding(AREA, what, f"{path}, {path.stat().st_size / 2**20:.1f} MiB; runs: {told}")


def _unsent(runs: Path) -> Iterator[Finding]:
    waiting = kept_folders(runs)
    if waiting:
        advice = "`python scripts/sync.py` sends them; so does the next stage when the server answers"
        yield Finding(AREA, "unsent runs", f"{len(waiting)} in {runs}", Status.WARNING, advice)


def _data(paths: Any) -> Iterator[Finding]:
    """What each stage has left; that there is none yet is no fault."""
    from kernelcast.graphs.dataset.store import META_FILE
    from kernelcast.records import MEASUREMENTS_FILE

    measured = Path(paths.measurements, MEASUREMENTS_FILE)
    yield _table("measurements", measured, "python scripts/measure.py")
    graphs = Path(paths.graphs, META_FILE)
    there = str(graphs.parent) if graphs.exists() else "none yet: python scripts/graphs.py"
    yield Finding(AREA, "graphs", there)
    models = sorted(Path(paths.models).glob("*/*/training.json"))
    yield Finding(AREA, "models", f"{len(models)} in {paths.models}" if models else "none yet: python scripts/train.py")
    for shipped in sorted(Path(paths.root, "data/datasets").glob(f"*/{MEASUREMENTS_FILE}")):
        yield _table("shipped data set", shipped, "git checkout data/datasets")


def _table(what: str, path: Path, command: str) -> Finding:
    if not path.exists():
        return Finding(AREA, what, f"none yet: {command}")
    import pyarrow.parquet as parquet
    from pyarrow import ArrowException

    try:
        rows = parquet.read_metadata(path).num_rows
    except (OSError, ArrowException) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Finding(
            AREA, what, f"{path} cannot be read: {reason}", Status.FAULT, f"move it away and run `{command}`"
        )
    return Finding(AREA, what, f"{rows} rows in {path.parent}")


def _existing(folder: Path) -> Path:
    """The folder, or the next one above it that there is."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
