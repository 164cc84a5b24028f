"""Tunings in processes of their own that are killed in the middle."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernelcast.errors import MeasurementError
from kernelcast.files import only_process
from kernelcast.trials import TRIALS_FILE, read_trials
from kernelcast.tuning.session import trials_so_far

PROGRAM = Path(__file__).with_name("tune_small.py")
TRIALS = 12


def events(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a torn last line is nothing."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def start(folder: Path) -> subprocess.Popen[str]:
    """Begins, or goes on with, the small tuning."""
    command = [sys.executable, str(PROGRAM), str(folder), str(TRIALS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tvm_06_tun_01_killed_at_any_moment_it_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    folder = tmp_path / "tuning"
    journal = folder / "measured" / "journal.jsonl"
    rows: list[dict[str, Any]] = []
    # in the middle of the first round, of a later one, and between two
    for number, kind, count in [
        (signal.SIGKILL, "repeat", 5),
        (signal.SIGINT, "built", 5),
        (signal.SIGKILL, "finished", 7),
    ]:
        process = start(folder)
        while sum(event["event"] == kind for event in events(journal)) < count:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.01)
        # what is there can be read by others all the time
        assert trials_so_far(folder).to_pylist()[: len(rows)] == rows
        with pytest.raises(MeasurementError, match="taken"), only_process(folder, MeasurementError("taken")):
            pass
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        printed, _ = process.communicate(timeout=60)
        assert psutil.wait_procs(family, timeout=60)[1] == []
        assert process.returncode != 0
        if number == signal.SIGINT:
            assert "are kept, the same command goes on from here" in printed
        assert not (folder / TRIALS_FILE).exists()
        assert trials_so_far(folder).to_pylist()[: len(rows)] == rows
        rows = trials_so_far(folder).to_pylist()
        for path in (journal, folder / "rounds.jsonl", folder / "database_tuning_record.json"):
            # as if it had died while writing
            with path.open("ab") as stream:
                stream.write(b'{"event": "torn')
    process = start(folder)
    printed, _ = process.communicate(timeout=200)
    assert process.returncode == 0, printed
    table = read_trials(folder / TRIALS_FILE)
    assert table.to_pylist()[: len(rows)] == rows
    assert table.num_rows == TRIALS
    assert len({(row["workload_key"], row["program_key"]) for row in table.to_pylist()}) == TRIALS
    # each program was measured once, and each is a trial
    done = events(journal)
    finished = [(event["workload"], event["program"]) for event in done if event["event"] == "finished"]
    assert sorted(finished) == sorted((row["workload_key"], row["program_key"]) for row in table.to_pylist())
    assert len((folder / "database_tuning_record.json").read_text().splitlines()) == TRIALS
