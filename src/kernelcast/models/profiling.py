"""Where the time of a training goes: by torch's operators and by Python's functions."""

from __future__ import annotations

import cProfile
import io
import logging
import pstats
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

logger = logging.getLogger(__name__)

OPERATORS_FILE = "operators.txt"
FUNCTIONS_FILE = "functions.txt"
TRACE_FILE = "trace.json.gz"

ROWS = 40
"""Of each table."""

LONGEST = 5
"""Operators that the log names."""


@contextmanager
def profile_into(folder: Path) -> Iterator[None]:
    """Profiles the body and writes two tables and a trace into a new or empty folder.

    Both profilers make what they watch slower, Python's functions more than torch's operators: the figures tell shares,
    not speeds.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    functions = cProfile.Profile()
    with profile(activities=activities) as operators:
        functions.enable()
        try:
            yield
        finally:
            functions.disable()
    folder.mkdir(parents=True, exist_ok=True)
    averages = operators.key_averages()
    order = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    (folder / OPERATORS_FILE).write_text(averages.table(sort_by=order, row_limit=ROWS))
    operators.export_chrome_trace(str(folder / TRACE_FILE))
    printed = io.StringIO()
    pstats.Stats(functions, stream=printed).sort_stats("tottime").print_stats(ROWS)
    (folder / FUNCTIONS_FILE).write_text(f"times in seconds{printed.getvalue()}")
    longest = sorted(averages, key=lambda each: -each.self_cpu_time_total)[:LONGEST]
    logger.info(
        "profile in %s: %s and %s (times in seconds), %s (for chrome://tracing or Perfetto); longest operators, "
        "without what they call: %s",
        folder,
        OPERATORS_FILE,
        FUNCTIONS_FILE,
        TRACE_FILE,
        ", ".join(f"{each.key} {each.self_cpu_time_total / 1e3:.1f} ms" for each in longest) or "none",
    )
