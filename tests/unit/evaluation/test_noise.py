import numpy as np
import pyarrow as pa
import pytest

from kernelcast.evaluation.bootstrap import Resampling
from kernelcast.evaluation.noise import flat_values, half_labels, noise_of
from kernelcast.evaluation.results import Role
from kernelcast.evaluation.scoring import Bootstrap, ceiling
from kernelcast.records import measurement_table

SETTINGS = Bootstrap(samples=50, confidence=0.95, seed=0)


def measured(rows: dict[tuple[str, str], list[tuple[int, float]]]) -> pa.Table:
    """Rows of (workload, program) to repeats of (round, seconds)."""
    return measurement_table(
        [
            {
                "workload_key": name,
                "workload_name": name,
                "workload_kind": "matmul",
                "program_key": key,
                "trace": "",
                "target": "",
                "outcome": "measured",
                "message": "",
                "build_seconds": 0.1,
                "run_seconds": [seconds for _, seconds in repeats],
                "round_index": [number for number, _ in repeats],
                "reference_seconds": [1e-3] * len(repeats),
                "ended_at": [0.0] * len(repeats),
            }
            for (name, key), repeats in rows.items()
        ]
    )


def test_each_label_is_the_minimum_over_its_own_rounds() -> None:
    labels = half_labels(measured({("w0", "a"): [(0, 4e-6), (1, 9e-6), (2, 2e-6), (3, 3e-6), (5, 8e-6)]}))
    assert labels.row == {("w0", "a"): 0}
    np.testing.assert_allclose(np.exp(labels.even_log_seconds), [2e-6])
    np.testing.assert_allclose(np.exp(labels.odd_log_seconds), [3e-6])


def test_the_noise_is_a_ratio_of_the_larger_over_the_smaller() -> None:
    noise = noise_of(half_labels(measured({("w0", "a"): [(0, 1e-6), (1, 2e-6)], ("w0", "b"): [(0, 2e-6), (1, 1e-6)]})))
    assert noise is not None
    assert (noise.programs, noise.unpaired) == (2, 0)
    assert noise.ratio_median == pytest.approx(2.0)
    assert noise.ratio_p90 == pytest.approx(2.0)


def test_programs_without_a_time_in_both_halves_are_counted_not_guessed() -> None:
    labels = half_labels(
        measured({("w0", "a"): [(0, 1e-6), (2, 1e-6)], ("w0", "b"): [(0, 1e-6), (1, float("nan"))], ("w0", "c"): []})
    )
    assert labels.unpaired == 3
    assert noise_of(labels) is None


def test_a_slice_of_a_table_keeps_its_own_values() -> None:
    table = measured({("w0", "a"): [(0, 1.0), (1, 2.0)], ("w0", "b"): [(0, 3.0), (1, 4.0)]}).slice(1)
    assert flat_values(table, "run_seconds", np.float64).tolist() == [3.0, 4.0]
    assert half_labels(table).row == {("w0", "b"): 0}


def test_the_ceiling_scores_one_half_as_a_prediction_of_the_other(make_programs) -> None:
    programs = make_programs([-9.0, -8.0, -7.0, -6.0], [0, 0, 0, 1])
    keys = [str(key) for key in programs.program_key]
    rows = {
        ("w0", keys[0]): [(0, 1e-6), (1, 3e-6)],
        ("w0", keys[1]): [(0, 2e-6), (1, 2e-6)],
        ("w0", keys[2]): [(0, 4e-6), (1, 4e-6)],
        # another workload's program of the same key is another program
        ("w7", keys[3]): [(0, 4e-6), (1, 4e-6)],
    }
    result = ceiling(programs, half_labels(measured(rows)), Resampling.PROGRAMS, SETTINGS)
    assert result is not None
    assert (result.role, result.programs) == (Role.CEILING, 3)
    # one of three pairs is in the other order
    assert result.metrics["kendall_tau"].value == pytest.approx(1 / 3)
    assert result.metrics["mape"].value == pytest.approx(2 / 3)


def test_there_is_no_ceiling_without_programs_that_were_measured_twice(make_programs) -> None:
    programs = make_programs([-9.0, -8.0], [0, 0])
    assert ceiling(programs, half_labels(measured({("w0", "x"): [(0, 1.0)]})), Resampling.PROGRAMS, SETTINGS) is None
