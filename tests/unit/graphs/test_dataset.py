import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs import dataset
from kernelcast.graphs.ast import AstOptions
from kernelcast.graphs.dataset import build_programs, machine_of
from kernelcast.graphs.labels import Labelling
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.store import Description
from kernelcast.records import Measurements


def build(measurements: Measurements, label: str = "minimum", **choices: Any) -> tuple[Programs, Description]:
    return build_programs(measurements, "hash", Labelling(label, **choices), AstOptions(), lambda done, total: None)


def repeats(*run_seconds: float, visit: Sequence[int] = (), reference: float = 1e-4) -> dict[str, list]:
    """All list columns of a row."""
    count = len(run_seconds)
    return {
        "run_seconds": list(run_seconds),
        "visit": list(visit) or [0] * count,
        "round_index": list(range(count)),
        "reference_seconds": [reference] * count,
        "ended_at": [1.0] * count,
    }


def edited(measurements: Measurements, edit: Callable[[list[dict]], object]) -> Measurements:
    rows = measurements.table.to_pylist()
    edit(rows)
    return dataclasses.replace(measurements, table=pa.Table.from_pylist(rows, schema=measurements.table.schema))


def test_every_measurement_becomes_a_program(measurements: Measurements) -> None:
    seen: list[tuple[int, int]] = []
    programs, description = build_programs(
        measurements, "hash", Labelling(), AstOptions(), lambda done, total: seen.append((done, total))
    )
    rows = measurements.table.to_pylist()
    assert programs.program_key.tolist() == [row["program_key"] for row in rows]
    np.testing.assert_allclose(np.exp(programs.log_seconds), [min(row["run_seconds"]) for row in rows])
    assert [programs.workload_names[number] for number in programs.workload] == [row["workload_name"] for row in rows]
    assert [description.workload_keys[number] for number in programs.workload] == [row["workload_key"] for row in rows]
    assert description.dropped == {}
    assert len(programs.ast) == len(programs.features.values) == len(rows)
    assert seen[-1] == (len(rows), len(rows))
    assert (programs.machine.cores, programs.machine.vector_lanes, programs.machine.cache_bytes) == (2, 16, 2**20)


@pytest.mark.parametrize(("asked", "share"), [({"num-cores": 1}, 0.25), ({"num-cores": 4}, 1.0), ({}, 1.0)])
def test_the_peak_is_that_of_the_cores_that_the_target_uses(
    measurements: Measurements, asked: dict, share: float
) -> None:
    campaign = measurements.campaign
    host = dataclasses.replace(campaign.host, cores=4)
    machine = machine_of(dataclasses.replace(campaign, host=host, target={"kind": "llvm", **asked}))
    assert machine.cores == 4 * share
    assert machine.peak_flops_per_second == host.peak_flops_per_second * share


def test_an_unknown_machine_is_said_and_stays_unknown(
    measurements: Measurements, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = dataclasses.replace(measurements, campaign=dataclasses.replace(measurements.campaign, host=None))
    with caplog.at_level(logging.WARNING):
        programs, _ = build(unknown)
    assert programs.machine is None
    assert "the machine that measured is unknown" in caplog.text
    assert len(programs) == measurements.table.num_rows


def test_the_label_is_a_choice(measurements: Measurements) -> None:
    fastest, middle = build(measurements)[0], build(measurements, "median")[0]
    assert (middle.log_seconds > fastest.log_seconds).all()
    with pytest.raises(ConfigError, match="label"):
        build(measurements, "mean")


def test_rows_without_a_label_are_dropped_and_counted(measurements: Measurements) -> None:
    times = [[1e-5], [0.0], [1e10], [float("nan")]]

    def spoil(rows: list[dict]) -> None:
        for row, seconds in zip(rows, times, strict=False):
            row |= repeats(*seconds)
        rows[4] |= {"outcome": "build_timeout", **repeats()}
        rows[5]["target"] = '{"kind": "llvm", "num-cores": 64}'

    programs, description = build(edited(measurements, spoil))
    assert description.dropped == {
        "build_timeout": 1,
        "failure_value": 1,
        "not_a_number": 1,
        "not_positive": 1,
        "other_target": 1,
    }
    assert len(programs) == measurements.table.num_rows - 5
    assert np.isfinite(programs.log_seconds).all()
    assert programs.program_key[0] == measurements.table["program_key"][0].as_py()


def test_a_second_visit_changes_no_label(measurements: Measurements) -> None:
    def visited_again(rows: list[dict]) -> None:
        rows[0] |= repeats(2e-5, 3e-5, 1e-6, visit=[0, 0, 1])

    programs, _ = build(edited(measurements, visited_again))
    assert np.exp(programs.log_seconds[0]) == pytest.approx(2e-5)


def test_how_labels_came_about_is_described(measurements: Measurements) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows:
            row |= repeats(2e-5, 2e-5, reference=2e-4)
        rows[0] |= repeats(2e-5, 9e-5, 9e-5, reference=1e-4)
        rows[1] |= repeats(2e-5, 2e-5, reference=float("nan"))

    spoiled = edited(measurements, spoil)
    programs, description = build(spoiled, "minimum", reference_correction="divide", spread_limit=0.3)
    assert np.exp(programs.log_seconds[:3]) == pytest.approx([2e-5, 2e-5, 1e-5])
    assert (description.label, description.reference_correction) == ("minimum", "divide")
    assert (description.spread_limit, description.flagged, description.uncorrected) == (0.3, 1, 1)
    fewer, description = build(spoiled, "minimum", spread_limit=0.3, drop_flagged=True)
    assert (len(fewer), description.flagged) == (len(programs) - 1, 0)
    assert description.dropped == {"spread_above_limit": 1}


def test_a_program_that_replays_otherwise_is_dropped(measurements: Measurements) -> None:
    def spoil(rows: list[dict]) -> None:
        rows[1]["program_key"] = "0" * 16

    programs, description = build(edited(measurements, spoil))
    whole, _ = build(measurements)
    assert description.dropped == {"replayed_otherwise": 1}
    kept = np.delete(np.arange(len(whole)), 1)
    np.testing.assert_array_equal(programs.ast.node_features, whole.select(kept).ast.node_features)
    np.testing.assert_array_equal(programs.features.values, whole.select(kept).features.values)


def test_workloads_without_a_program_are_left_out(measurements: Measurements) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows:
            if row["workload_name"] == "softmax":
                row |= {"outcome": "crash", **repeats()}

    programs, description = build(edited(measurements, spoil))
    assert "softmax" not in programs.workload_names
    assert len(description.workload_kinds) == len(programs.workload_names) == 3
    assert set(programs.workload.tolist()) == {0, 1, 2}


def test_nothing_usable_says_why(measurements: Measurements) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows:
            row |= {"outcome": "build_error", **repeats()}

    with pytest.raises(MalformedDataError, match=rf"{measurements.table.num_rows} build_error.*dvc repro measure"):
        build(edited(measurements, spoil))


def test_a_trace_of_another_workload_is_refused(measurements: Measurements) -> None:
    def spoil(rows: list[dict]) -> None:
        rows[0]["trace"] = rows[-1]["trace"]

    with pytest.raises(MalformedDataError, match="trace does not apply to workload matmul"):
        build(edited(measurements, spoil))


@pytest.mark.slow
def test_several_processes_give_the_same_programs(measurements: Measurements, monkeypatch: pytest.MonkeyPatch) -> None:
    alone, _ = build(measurements)
    monkeypatch.setattr(dataset, "PROGRAMS_PER_WORKER", 16)
    monkeypatch.setattr(dataset, "CHUNK_PROGRAMS", 5)
    together, _ = build(measurements)
    assert together.program_key.tolist() == alone.program_key.tolist()
    for name, value in vars(alone.ast).items():
        np.testing.assert_array_equal(value, getattr(together.ast, name), err_msg=name)
    np.testing.assert_array_equal(alone.features.values, together.features.values)
