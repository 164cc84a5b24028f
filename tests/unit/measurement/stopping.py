"""Campaigns in processes of their own, and what they leave when they are stopped."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from kernelcast.measurement.journal import JOURNAL_FILE
from kernelcast.records import read_measurements

PROGRAM = Path(__file__).with_name("measure_small.py")

Process = subprocess.Popen[str]


def rows(directory: Path) -> list[dict[str, Any]]:
    """The finished table."""
    table: pa.Table = read_measurements(directory).table
    return list(table.to_pylist())


def events(directory: Path) -> list[dict[str, Any]]:
    """All that the journal says; a torn last line is nothing."""
    path = directory / JOURNAL_FILE
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def journalled(directory: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind."""
    return [event for event in events(directory) if event["event"] == kind]


def start(directory: Path, samples: int, cores: int = 1, evolved_share: float = 0.0) -> Process:
    """Begins, or goes on with, the small campaign."""
    command = [sys.executable, str(PROGRAM), str(directory), str(samples), str(cores), str(evolved_share)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(process: Process, directory: Path, kind: str, count: int, visit: int | None = None) -> None:
    """Returns when so many events have happened."""
    while True:
        seen = journalled(directory, kind)
        if sum(visit is None or event["visit"] == visit for event in seen) >= count:
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def end(process: Process, number: int) -> str:
    """Sends a signal and makes sure that neither the process nor anything it started is left. Returns its output."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    return printed
