import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.measurement.journal import Ending, Try
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.table import spread, table_of_tries
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import MEASUREMENT_SCHEMA, Origin, Outcome, Workload

SECONDS = st.floats(1e-9, 1e3)


def repeats(seconds: list[float], visit: int = 0) -> list[TimedRepeat]:
    return [TimedRepeat(visit, index, 3, one, 1e-5, 1000.0 + index) for index, one in enumerate(seconds)]


def finished(workload: Workload, of_first: list[float], of_second: list[float]) -> Try:
    entry = Try(Candidate(workload.key, "p", "[[],[]]", Origin.EVOLVED))
    entry.build_seconds = 0.5
    # a resumed campaign may have written them in any order
    for repeat in [*repeats(of_second, visit=1), *reversed(repeats(of_first))]:
        entry.repeats.append(repeat)
    entry.ending = Ending(Outcome.MEASURED, "", "board 7", True, False, 2000.0)
    return entry


def test_a_row_says_all_that_is_known_of_a_try(small_matmul: Workload, target: dict[str, Any]) -> None:
    entry = finished(small_matmul, [2.0, 1.0, 4.0], [9.0])
    table = table_of_tries([small_matmul], target, [entry])
    assert table.schema.equals(MEASUREMENT_SCHEMA)
    (row,) = table.to_pylist()
    assert row["workload_name"] == "matmul_small"
    assert row["workload_kind"] == "matmul"
    assert json.loads(row["target"]) == target
    assert (row["origin"], row["outcome"], row["device"], row["checked"]) == ("evolved", "measured", "board 7", True)
    assert (row["build_seconds"], row["finished_at"], row["cut_short"]) == (0.5, 2000.0, False)
    assert row["run_seconds"] == [2.0, 1.0, 4.0, 9.0]
    assert row["visit"] == [0, 0, 0, 1]
    assert row["round_index"] == [0, 1, 2, 0]
    assert row["calls"] == [3] * 4
    assert row["spread"] == pytest.approx(1.5 / 2.0), "of the first visit alone"


def test_a_failure_is_a_row_with_its_reason_and_no_times(small_matmul: Workload, target: dict[str, Any]) -> None:
    entry = Try(Candidate(small_matmul.key, "p", "[[],[]]"))
    entry.ending = Ending(Outcome.CRASH, "SIGSEGV while running", "local", False, False, 2000.0)
    (row,) = table_of_tries([small_matmul], target, [entry]).to_pylist()
    assert (row["outcome"], row["message"], row["spread"], row["build_seconds"]) == (
        "crash",
        "SIGSEGV while running",
        None,
        None,
    )
    assert row["run_seconds"] == row["calls"] == row["visit"] == []


@given(seconds=st.lists(SECONDS, min_size=2, max_size=20), factor=st.floats(1e-3, 1e3))
def test_the_spread_has_no_unit(seconds: list[float], factor: float) -> None:
    one, other = spread(repeats(seconds)), spread(repeats([factor * each for each in seconds]))
    assert one is not None
    assert one >= 0
    assert one == pytest.approx(other, rel=1e-6, abs=1e-9)
    low, high = np.min(seconds), np.max(seconds)
    assert one <= (high - low) / low + 1e-9


def test_one_repeat_has_no_spread() -> None:
    assert spread([]) is None
    assert spread(repeats([1.0])) is None
    assert spread(repeats([1.0, 1.0])) == 0
