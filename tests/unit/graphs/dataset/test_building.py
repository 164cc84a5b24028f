import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from filelock import FileLock

from kernelcast.errors import ConfigError, MalformedDataError, StorageError
from kernelcast.graphs.dataset import building, plan
from kernelcast.graphs.dataset.builders import Builder, Processes, Ray
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder, machine_of
from kernelcast.graphs.dataset.store import Description, read_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.ragged import View
from kernelcast.records import Measurements

EVERYTHING = ViewOptions()
HERE = Processes(1)


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., tuple[Programs, Description]]:
    """Builds a store of measurements, or of several."""

    stores: list[Path] = []

    def built(
        *measurements: Measurements,
        label: str = "minimum",
        options: ViewOptions = EVERYTHING,
        builder: Builder = HERE,
        shard_programs: int = 4096,
        programs_per_workload: int | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        **labelling: Any,
    ) -> tuple[Programs, Description]:
        folders = [Folder(each, f"hash{number}") for number, each in enumerate(measurements)]
        choice = Choice(Labelling(label, **labelling), programs_per_workload)
        output = tmp_path / "graphs"
        with built_store(output, folders, choice, options, builder, shard_programs, progress) as (_, description):
            pass
        assert not [path for path in tmp_path.iterdir() if path != output and path.suffix != ".lock"]
        # a later build replaces it
        shutil.copytree(output, kept := tmp_path.with_name(f"{tmp_path.name}-{len(stores)}"))
        stores.append(kept)
        return read_programs(kept), description

    return built


def assert_same_views(found: Programs, expected: Programs) -> None:
    assert list(found.sources) == list(expected.sources)
    for name in expected.sources:
        one, other = found.view(name), expected.view(name)
        for field, value in vars(other).items():
            np.testing.assert_array_equal(getattr(one, field), value, err_msg=f"{name}.{field}")


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


Build = Callable[..., tuple[Programs, Description]]


def test_every_measurement_becomes_a_program(measurements: Measurements, build: Build) -> None:
    seen: list[tuple[int, int]] = []
    programs, description = build(measurements, progress=lambda done, total: seen.append((done, total)))
    rows = measurements.table.to_pylist()
    assert programs.program_key.tolist() == [row["program_key"] for row in rows]
    np.testing.assert_allclose(np.exp(programs.log_seconds), [min(row["run_seconds"]) for row in rows])
    assert [programs.workload_names[number] for number in programs.workload] == [row["workload_name"] for row in rows]
    stored = [description.workloads[number] for number in programs.workload]
    assert [workload.key for workload in stored] == [row["workload_key"] for row in rows]
    assert description.dropped == {}
    for name in ("ast", "dataflow", "features", "statements", "trace"):
        assert len(programs.view(name)) == len(rows)
    assert seen[-1] == (len(rows), len(rows))
    (machine,) = programs.machines
    assert (machine.cores, machine.vector_lanes, machine.cache_bytes) == (2, 16, 2**20)
    assert json.loads(programs.targets[0]) == {**measurements.campaign.target, "host": "cpu"}


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
    measurements: Measurements, build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = dataclasses.replace(measurements, campaign=dataclasses.replace(measurements.campaign, host=None))
    with caplog.at_level(logging.WARNING):
        programs, _ = build(unknown)
    assert programs.machines == (None,)
    assert "the machine that measured is unknown" in caplog.text
    assert len(programs) == measurements.table.num_rows


def test_the_label_is_a_choice(measurements: Measurements, build: Build) -> None:
    fastest, middle = build(measurements)[0], build(measurements, label="median")[0]
    assert (middle.log_seconds > fastest.log_seconds).all()
    with pytest.raises(ConfigError, match="label"):
        build(measurements, label="mean")


def test_rows_without_a_label_are_dropped_and_counted(measurements: Measurements, build: Build) -> None:
    # case TVM-09
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


def test_a_second_visit_changes_no_label(measurements: Measurements, build: Build) -> None:
    def visited_again(rows: list[dict]) -> None:
        rows[0] |= repeats(2e-5, 3e-5, 1e-6, visit=[0, 0, 1])

    programs, _ = build(edited(measurements, visited_again))
    assert np.exp(programs.log_seconds[0]) == pytest.approx(2e-5)


def test_how_labels_came_about_is_described(measurements: Measurements, build: Build) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows:
            row |= repeats(2e-5, 2e-5, reference=2e-4)
        rows[0] |= repeats(2e-5, 9e-5, 9e-5, reference=1e-4)
        rows[1] |= repeats(2e-5, 2e-5, reference=float("nan"))

    spoiled = edited(measurements, spoil)
    programs, description = build(spoiled, reference_correction="divide", spread_limit=0.3)
    assert np.exp(programs.log_seconds[:3]) == pytest.approx([2e-5, 2e-5, 1e-5])
    assert (description.label, description.reference_correction) == ("minimum", "divide")
    assert (description.spread_limit, description.flagged, description.uncorrected) == (0.3, 1, 1)
    fewer, description = build(spoiled, spread_limit=0.3, drop_flagged=True)
    assert (len(fewer), description.flagged) == (len(programs) - 1, 0)
    assert description.dropped == {"spread_above_limit": 1}


@pytest.mark.parametrize("field", ["program_key", "trace"])
def test_a_program_that_replays_otherwise_is_dropped(measurements: Measurements, build: Build, field: str) -> None:
    def spoil(rows: list[dict]) -> None:
        # another hash, or a trace that does not apply to this workload
        rows[1][field] = "0" * 16 if field == "program_key" else rows[-1]["trace"]

    programs, description = build(edited(measurements, spoil))
    whole, _ = build(measurements)
    assert description.dropped == {"replayed_otherwise": 1}
    assert_same_views(programs, whole.select(np.delete(np.arange(len(whole)), 1)))


def test_workloads_without_a_program_are_left_out(measurements: Measurements, build: Build) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows:
            if row["workload_name"] == "softmax":
                row |= {"outcome": "crash", **repeats()}

    programs, description = build(edited(measurements, spoil))
    assert "softmax" not in programs.workload_names
    assert len(description.workloads) == len(programs.workload_names) == 3
    assert set(programs.workload.tolist()) == {0, 1, 2}


def test_nothing_usable_says_why(measurements: Measurements, build: Build) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows:
            row |= {"outcome": "build_error", **repeats()}

    with pytest.raises(MalformedDataError, match=rf"{measurements.table.num_rows} build_error.*dvc repro measure"):
        build(edited(measurements, spoil))


def test_a_limit_takes_as_many_of_each_workload(measurements: Measurements, build: Build) -> None:
    # case TEN-03
    programs, description = build(measurements, programs_per_workload=3)
    assert np.bincount(programs.workload).tolist() == [3, 3, 3, 3]
    assert description.dropped == {"beyond_programs_per_workload": measurements.table.num_rows - 12}
    more, _ = build(measurements, programs_per_workload=5)
    assert set(programs.program_key) < set(more.program_key)
    with pytest.raises(ConfigError, match="programs_per_workload=0"):
        build(measurements, programs_per_workload=0)


@pytest.mark.parametrize("shard_programs", [1, 5, 7])
def test_sizes_of_shards_and_units_change_nothing(
    measurements: Measurements, build: Build, shard_programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = build(measurements)
    monkeypatch.setattr(plan, "UNIT_PROGRAMS", 3)
    cut, _ = build(measurements, shard_programs=shard_programs)
    assert cut.program_key.tolist() == whole.program_key.tolist()
    assert_same_views(cut, whole)
    with pytest.raises(ConfigError, match="shard_programs=0"):
        build(measurements, shard_programs=0)


def test_a_shard_whose_programs_all_replay_otherwise_is_left_out(measurements: Measurements, build: Build) -> None:
    def spoil(rows: list[dict]) -> None:
        for row in rows[4:8]:
            row["program_key"] = "0" * 16

    programs, description = build(edited(measurements, spoil), shard_programs=4)
    whole, _ = build(measurements)
    assert description.dropped == {"replayed_otherwise": 4}
    assert_same_views(programs, whole.select(np.delete(np.arange(len(whole)), range(4, 8))))


def stop_at_16(done: int, total: int) -> None:
    if done >= 16:
        raise StoppedError


def built_units(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Programs of every unit that is built from now on."""
    asked: list[int] = []
    real = building.build_unit
    monkeypatch.setattr(building, "build_unit", lambda unit: asked.append(len(unit)) or real(unit))
    return asked


class StoppedError(Exception):
    """Raised in the middle of a build."""


def test_an_interrupted_build_goes_on_with_the_shards_it_has(
    measurements: Measurements, build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole, _ = build(measurements)

    with pytest.raises(StoppedError):
        build(measurements, shard_programs=8, progress=stop_at_16)
    asked = built_units(monkeypatch)
    with caplog.at_level(logging.INFO):
        programs, _ = build(measurements, shard_programs=8)
    assert sum(asked) == len(programs) - 16
    assert f"16 of {len(programs)} programs are there" in caplog.text
    assert_same_views(programs, whole)


def test_what_other_options_left_is_not_gone_on_with(
    measurements: Measurements, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # case PYG-04
    with pytest.raises(StoppedError):
        build(measurements, shard_programs=8, progress=stop_at_16)
    asked = built_units(monkeypatch)
    programs, _ = build(measurements, shard_programs=8, options=ViewOptions(indices=False))
    assert sum(asked) == len(programs)


def test_other_code_does_not_go_on_with_old_shards(
    measurements: Measurements, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # case PYG-04: nobody has to remember to raise a version
    hashes = []
    real = building.write_shard
    monkeypatch.setattr(
        building, "write_shard", lambda folder, made_of, *rest: hashes.append(made_of) or real(folder, made_of, *rest)
    )
    build(measurements)
    monkeypatch.setattr(building, "code_hash", lambda: "other code")
    build(measurements)
    assert len(set(hashes)) == 2


def test_a_second_build_of_the_same_folder_is_refused(measurements: Measurements, build: Build, tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".graphs.lock"),
        pytest.raises(StorageError, match=r"another process builds graphs in .*graphs"),
    ):
        build(measurements)


def test_a_body_that_fails_keeps_what_was_built(
    measurements: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # splits that cannot be made cost no second build
    settings = ([Folder(measurements, "hash")], Choice(Labelling()), EVERYTHING, HERE, 8, lambda done, total: None)
    with pytest.raises(StoppedError), built_store(tmp_path / "graphs", *settings):
        raise StoppedError
    assert not (tmp_path / "graphs").exists()
    monkeypatch.setattr(building, "build_unit", None)
    with built_store(tmp_path / "graphs", *settings):
        pass
    assert len(read_programs(tmp_path / "graphs")) == measurements.table.num_rows


def test_a_build_holds_its_folder_to_the_end(measurements: Measurements, tmp_path: Path) -> None:
    settings = ([Folder(measurements, "hash")], Choice(Labelling()), EVERYTHING, HERE, 8)
    refused = []

    def begin_another(done: int, total: int) -> None:
        with (
            pytest.raises(StorageError, match="another process builds graphs"),
            built_store(tmp_path / "graphs", *settings, lambda done, total: None),
        ):
            pass
        refused.append(done)

    with built_store(tmp_path / "graphs", *settings, begin_another):
        pass
    assert refused
    assert len(read_programs(tmp_path / "graphs")) == measurements.table.num_rows


@pytest.mark.slow
@pytest.mark.parametrize("builder", [Processes(2), Ray(workers=2)])
def test_several_processes_give_the_same_programs(
    measurements: Measurements, build: Build, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, _ = build(measurements)
    monkeypatch.setattr(plan, "UNIT_PROGRAMS", 5)
    together, _ = build(measurements, builder=builder)
    assert together.program_key.tolist() == alone.program_key.tolist()
    assert_same_views(together, alone)


def on_another_target(measurements: Measurements, **changes: Any) -> Measurements:
    """The same rows as if they had been measured elsewhere."""
    target = {**measurements.campaign.target, **changes}
    other = edited(measurements, lambda rows: [row.update(target=json.dumps(target)) for row in rows])
    return dataclasses.replace(other, campaign=dataclasses.replace(measurements.campaign, target=target))


def test_targets_of_several_folders_stay_apart(measurements: Measurements, build: Build) -> None:
    # case TVM-07
    other = on_another_target(measurements, **{"num-cores": 1})
    programs, description = build(measurements, other)
    count = measurements.table.num_rows
    assert programs.target.tolist() == [0] * count + [1] * count
    assert [json.loads(target)["num-cores"] for target in programs.targets] == [2, 1]
    assert [machine.cores for machine in programs.machines] == [2, 1]
    # only programs of one target are compared with each other
    assert (programs.workload[:count] + 4).tolist() == programs.workload[count:].tolist()
    assert [workload.key for workload in description.workloads[:4]] == [
        workload.key for workload in description.workloads[4:]
    ]
    assert programs.workload_names[0] == "matmul on num-cores=2"
    assert programs.workload_names[4] == "matmul on num-cores=1"


def test_what_two_folders_of_a_target_measured_counts_once(measurements: Measurements, build: Build) -> None:
    programs, description = build(measurements, measurements)
    assert len(programs) == measurements.table.num_rows
    assert description.dropped == {"measured_twice": measurements.table.num_rows}


def test_workloads_of_one_name_get_names_that_tell_them_apart(measurements: Measurements, build: Build) -> None:
    renamed = dataclasses.replace(
        measurements,
        workloads={key: dataclasses.replace(each, name="same") for key, each in measurements.workloads.items()},
    )
    programs, description = build(renamed)
    assert len(set(programs.workload_names)) == 4
    assert all(
        name == f"same_{workload.key[:6]}"
        for name, workload in zip(programs.workload_names, description.workloads, strict=True)
    )


def test_views_are_a_choice(measurements: Measurements, build: Build) -> None:
    programs, _ = build(measurements, options=ViewOptions(views=("trace", "features")))
    assert list(programs.sources) == ["features", "trace"]
    view: View = programs.view("trace", np.array([3]))
    assert len(view) == 1


def foreign(measurements: Measurements, names: Sequence[str]) -> Measurements:
    """The same measurements as if another TVM had written some workloads."""
    workloads = {
        key: dataclasses.replace(each, written_by="0.16.0") if each.name in names else each
        for key, each in measurements.workloads.items()
    }
    return dataclasses.replace(measurements, workloads=workloads)


def test_programs_of_another_tvm_have_their_trace(
    measurements: Measurements, build: Build, caplog: pytest.LogCaptureFixture
) -> None:
    everything = [workload.name for workload in measurements.workloads.values()]
    with caplog.at_level(logging.WARNING):
        programs, description = build(foreign(measurements, everything))
    assert list(programs.sources) == ["trace"]
    assert len(programs) == measurements.table.num_rows
    assert "another TVM wrote these workloads (0.16.0): their programs have the trace view only" in caplog.text
    assert description.options.views == ("trace",)


def test_programs_of_another_tvm_are_not_mixed_with_whole_ones(measurements: Measurements, build: Build) -> None:
    some = foreign(measurements, ["softmax"])
    programs, description = build(some)
    assert description.dropped == {"trace_only": 8}
    assert "softmax" not in programs.workload_names
    traces, description = build(some, options=ViewOptions(views=("trace",)))
    assert (len(traces), description.dropped) == (measurements.table.num_rows, {})
