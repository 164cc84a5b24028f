import dataclasses
import io
import json
import logging
import re
from pathlib import Path

import mlflow
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError, StorageError
from kernelcast.graphs.dataset.store import read_data_hash, read_description, read_programs
from kernelcast.graphs.splits import read_split, split_names
from kernelcast.machine import Host
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    Measurements,
    Workload,
    measurement_table,
    write_campaign,
    write_measurements,
)
from kernelcast.stages.config import register_schemas
from kernelcast.stages.graphs import graphs, progress_of, workload_table
from kernelcast.tvm_compat import resolve_target, tvm_versions

CONF = Path(__file__).resolve().parents[3] / "conf"


def config_of(root: Path, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("graphs", overrides=[f"paths.root={root}", *overrides])
    OmegaConf.resolve(config)
    return config


@pytest.fixture(scope="module")
def measurements() -> Measurements:
    target = resolve_target({"kind": "llvm", "num-cores": 2})
    suite = [
        workloads.matmul("matmul", rows=16, columns=16, depth=16),
        workloads.softmax("softmax", rows=16, columns=16),
        workloads.layer_norm("norm", rows=16, columns=16),
    ]
    rows = [row_of(workload, target, number) for workload in suite for number in range(4)]
    rows[0] |= {
        "outcome": "crash",
        **{name: [] for name in ("run_seconds", "visit", "round_index", "reference_seconds", "ended_at")},
    }
    # the last one met a machine that was sometimes busy
    rows[-1] |= {"spread": 1.5}
    host = Host("cpu", 2, 2**30, "Linux", 1e11, 1e10, vector_lanes=8, cache_bytes=2**19)
    return Measurements(
        Campaign(MEASUREMENTS_VERSION, target, host, tvm_versions(), {}, 0),
        {workload.key: workload for workload in suite},
        measurement_table(rows),
    )


def row_of(workload: Workload, target: dict, number: int) -> dict:
    candidate = sample_candidates(workload, target, number + 1, seed=0)[number]
    return {
        "workload_key": workload.key,
        "workload_name": workload.name,
        "workload_kind": workload.kind,
        "program_key": candidate.program_key,
        "trace": candidate.trace,
        "target": json.dumps(target),
        "outcome": "measured",
        "message": "",
        "build_seconds": 0.1,
        "run_seconds": [1e-5 * (number + 1)],
        "visit": [0],
        "round_index": [0],
        "reference_seconds": [1e-4],
        "ended_at": [0.0],
    }


def write(root: Path, measurements: Measurements) -> None:
    folder = root / "data" / "measurements"
    write_campaign(folder, measurements.campaign, measurements.workloads)
    write_measurements(folder, measurements.table)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, measurements: Measurements) -> Path:
    """A project in which the stage has run."""
    folder = tmp_path_factory.mktemp("project")
    write(folder, measurements)
    graphs(config_of(folder))
    return folder


def test_programs_and_both_splits_are_there(root: Path) -> None:
    programs = read_programs(root / "data" / "graphs")
    assert len(programs) == 11
    assert programs.workload_names == ("matmul", "softmax", "norm")
    assert split_names(root / "data" / "graphs") == ["random", "workload"]
    held_out = read_split(root / "data" / "graphs", "workload")
    parts = [set(programs.workload[rows].tolist()) for _, rows in held_out.parts()]
    assert sorted(len(part) for part in parts) == [1, 1, 1]
    assert set.union(*parts) == {0, 1, 2}
    assert sum(len(rows) for _, rows in read_split(root / "data" / "graphs", "random").parts()) == 11


def test_the_run_knows_its_data_and_what_was_dropped(root: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{root}/runs/mlflow.db")
    run = client.search_runs(["1"], "tags.`kernelcast.stage` = 'graphs'")[-1]
    assert run.info.status == "FINISHED"
    assert run.data.metrics["graphs/programs"] == 11
    assert run.data.metrics["graphs/dropped/crash"] == 1
    assert run.data.metrics["graphs/flagged"] == 1
    assert run.data.metrics["graphs/uncorrected"] == 0
    assert run.data.params["reference_correction"] == "none"
    assert run.data.tags["kernelcast.data_hash"] == read_data_hash(root / "data" / "graphs")
    digest = run.inputs.dataset_inputs[0].dataset.digest
    assert digest == read_description(root / "data" / "graphs").measurements_hash


def test_the_same_measurements_give_the_same_data(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = read_data_hash(root / "data" / "graphs")
    with caplog.at_level(logging.INFO):
        graphs(config_of(root))
    assert read_data_hash(root / "data" / "graphs") == before
    assert "dropped 1 of 12 measurements: crash" in caplog.text
    assert "flagged 1 of 11 programs: their repeats spread more than 1 " in caplog.text


def test_another_label_is_other_data(root: Path) -> None:
    graphs(config_of(root, "features.indices=false", f"paths.graphs={root}/other"))
    other, usual = read_programs(root / "other"), read_programs(root / "data" / "graphs")
    assert other.feature_version != usual.feature_version
    assert len(other.ast.node_kind) < len(usual.ast.node_kind)
    np.testing.assert_array_equal(other.features.values, usual.features.values)


def test_flagged_programs_are_left_out_on_request(root: Path) -> None:
    graphs(config_of(root, "drop_flagged=true", f"paths.graphs={root}/calm"))
    assert len(read_programs(root / "calm")) == 10
    assert read_description(root / "calm").dropped == {"crash": 1, "spread_above_limit": 1}


def test_no_measurements_name_the_stage_that_makes_them(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"data/measurements.*dvc repro measure"):
        graphs(config_of(tmp_path))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("label=mean", "label: 'mean' is unknown"),
        ("reference_correction=subtract", "reference_correction: 'subtract' is unknown"),
        ("spread_limit=-1", "spread_limit=-1"),
        ("drop_flagged=true spread_limit=null", "drop_flagged=true needs a spread_limit"),
        ("features.indices=perhaps", "features.indices: expected true or false"),
        ("split.random.test_share=2", "test_share"),
        ("+split.mine={shares:3}", "split.mine: expected a `_target_`"),
        ("+features.depth=3", "features: kernelcast.graphs.options.ViewOptions cannot be made"),
        ("features.direction=sideways", "features.direction: 'sideways'; choose from both, forward, backward"),
        ("features.views=[]", "features.views is empty"),
        ("features.views=[ast,tokens]", "features.views: .*choose from ast, dataflow"),
        ("features.leave_out=[cost]", "features.leave_out: .*choose from structure, loops"),
        ("builder.workers=0", "builder.workers=0"),
        ("measurements=[]", "name at least one folder"),
        ("programs_per_workload=0", "programs_per_workload=0"),
    ],
)
def test_a_value_that_cannot_work_is_named_before_anything_is_read(tmp_path: Path, override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        graphs(config_of(tmp_path, *override.split(" ")))


def test_too_few_workloads_leave_nothing_half_written(tmp_path: Path, measurements: Measurements) -> None:
    only = measurements.table.filter(
        np.array([name == "norm" for name in measurements.table["workload_name"].to_pylist()])
    )
    write(tmp_path, dataclasses.replace(measurements, table=only))
    with pytest.raises(ConfigError, match=r"at least 3 workloads of different shapes with .*there is 1"):
        graphs(config_of(tmp_path))
    assert not (tmp_path / "data" / "graphs").exists()
    graphs(config_of(tmp_path, "~split.workload"))
    assert split_names(tmp_path / "data" / "graphs") == ["random"]


def test_torn_measurements_are_refused(tmp_path: Path, measurements: Measurements) -> None:
    write(tmp_path, measurements)
    path = tmp_path / "data" / "measurements" / "measurements.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(MalformedDataError, match=r"measurements\.parquet cannot be read"):
        graphs(config_of(tmp_path))


def test_progress_in_a_file_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), progress_of("graphs") as progress:
        for done in range(1, 5):
            progress(done, 4)
    assert [record.message for record in caplog.records] == ["graphs: 4 of 4 programs"]


@pytest.mark.parametrize("name", ["[/]", "[red]matmul", "a\\[b]"])
def test_a_name_that_looks_like_markup_is_shown_as_it_is(root: Path, name: str) -> None:
    programs = read_programs(root / "data" / "graphs")
    named = dataclasses.replace(programs, workload_names=(name, *programs.workload_names[1:]))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(workload_table(named))
    assert f" {name} " in console.export_text()


def test_many_workloads_are_shown_by_network(root: Path) -> None:
    programs = read_programs(root / "data" / "graphs")
    # as many as the shipped data set has would fill ten screens
    names = [f"resnet18.conv_{number}" for number in range(50)] + ["[mine].dense", "matmul", "softmax"]
    many = dataclasses.replace(
        programs,
        workload_names=tuple(names),
        workload=np.resize([0, 1, 50, 51, 51, 52], len(programs)).astype(programs.workload.dtype),
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(workload_table(many))
    lines = [re.findall(r"[^ │]+(?: [^ │]+)*", line) for line in console.export_text().splitlines() if "│" in line]
    rows = np.bincount(many.workload, minlength=len(names))
    assert [line[:3] for line in lines] == [
        ["resnet18", "50", str(rows[:50].sum())],
        ["[mine]", "1", str(rows[50])],
        ["single operators", "2", str(rows[51:].sum())],
    ]


def test_what_was_asked_for_is_no_warning(
    tmp_path: Path, measurements: Measurements, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, measurements)
    with caplog.at_level(logging.INFO):
        graphs(config_of(tmp_path, "programs_per_workload=3", "~splitter@split.workload"))
    levels = {record.message: record.levelname for record in caplog.records if record.message.startswith("dropped")}
    assert levels == {
        "dropped 2 of 12 measurements: beyond_programs_per_workload": "INFO",
        "dropped 1 of 12 measurements: crash": "WARNING",
    }


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path, measurements: Measurements) -> None:
    write(tmp_path, measurements)
    folder = tmp_path / "data" / "measurements"
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(StorageError, match=r"data/measurements is there and is not what is written here"):
        graphs(config_of(tmp_path, f"paths.graphs={folder}"))
    assert sorted(path.name for path in folder.iterdir()) == before


def test_what_was_dropped_is_said_before_a_split_cannot_be_made(
    tmp_path: Path, measurements: Measurements, caplog: pytest.LogCaptureFixture
) -> None:
    rows = measurements.table.to_pylist()
    for row in rows[:-1]:
        row["program_key"] = "0" * 16
    table = measurement_table(rows)
    write(tmp_path, dataclasses.replace(measurements, table=table))
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ConfigError, match=r"split.random: .*`~splitter@split.random`"),
    ):
        graphs(config_of(tmp_path))
    assert "dropped 10 of 12 measurements: replayed_otherwise" in caplog.text
