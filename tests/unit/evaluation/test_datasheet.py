"""What a datasheet counts, on measurements small enough to count by hand."""

import pytest

from kernelcast.evaluation.datasheet import PAUSE_SECONDS, datasheet
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, Workload, measurement_table

DAY = 1_700_000_000.0


def measured(first: float, again: float | None, begun: float, later: float) -> dict:
    """A program's row: its time, and when it was measured again, `later` seconds after."""
    visits = [0, 0] if again is None else [0, 0, 1, 1]
    return {
        "workload_key": "w",
        "workload_name": "matmul",
        "workload_kind": "matmul",
        "program_key": f"{first}",
        "trace": "[]",
        "target": "{}",
        "outcome": "measured",
        "run_seconds": [first, 2 * first, again, 2 * again] if again else [first, 2 * first],
        "visit": visits,
        "round_index": [0, 1, 0, 1][: len(visits)],
        "calls": [1] * len(visits),
        "reference_seconds": [1.0] * len(visits),
        "ended_at": [begun, begun + 1, begun + later, begun + later + 1][: len(visits)],
    }


def sheet(*rows: dict) -> str:
    campaign = Campaign(MEASUREMENTS_VERSION, {"kind": "llvm"}, None, {"apache-tvm": "0.27.0"}, {}, 0)
    workload = Workload("w", "matmul", "matmul", {}, "")
    return datasheet(Measurements(campaign, {"w": workload}, measurement_table(rows)), "some")


@pytest.mark.parametrize(
    ("later", "stretches", "compared"),
    [(PAUSE_SECONDS - 60, 1, False), (PAUSE_SECONDS + 60, 2, True)],
)
def test_stretches_of_measuring_are_told_apart_and_compared(later: float, stretches: int, compared: bool) -> None:
    text = sheet(
        measured(1.0, 1.1, DAY, later), measured(2.0, 2.2, DAY + 5, later), measured(3.0, 3.3, DAY + 9, later - 9),
        measured(4.0, None, DAY + 12, 0),
    )  # fmt: skip
    assert ("Stretch 2 of 2" in text) == (stretches == 2)
    assert ("- Measured: first repeat" in text) == (stretches == 1)
    sentence = "3 of them were measured again in a later stretch: the time there is 1.100 times the first one"
    assert (sentence in text) == compared
    assert "4 measured programs of 1 workloads" in text


def test_one_that_was_measured_again_at_once_says_nothing_about_stretches() -> None:
    text = sheet(measured(1.0, 1.1, DAY, 60), measured(2.0, None, DAY + 2 * PAUSE_SECONDS, 0))
    assert "Stretch 2 of 2" in text
    assert "in a later stretch" not in text
