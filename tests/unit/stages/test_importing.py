import json
import logging
from pathlib import Path

import mlflow
import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError, MissingInputError
from kernelcast.graphs.dataset.store import read_programs
from kernelcast.machine import Host
from kernelcast.measurement import workloads
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.models.roofline import RooflineModel
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    measurement_table,
    read_campaign,
    read_measurements,
    write_campaign,
    write_measurements,
)
from kernelcast.stages.config import register_schemas
from kernelcast.stages.exporting import export
from kernelcast.stages.graphs import graphs
from kernelcast.stages.importing import import_, wanted_target
from kernelcast.tvm_compat import resolve_target, tvm_versions

CONF = Path(__file__).resolve().parents[3] / "conf"


def config_of(stage: str, root: Path, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(stage, overrides=[f"paths.root={root}", *overrides])
    OmegaConf.resolve(config)
    return config


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose measurements are exported as a database."""
    root = tmp_path_factory.mktemp("measured")
    target = resolve_target({"kind": "llvm", "num-cores": 1})
    suite = [
        workloads.matmul("matmul", rows=16, columns=16, depth=16),
        workloads.softmax("softmax", rows=16, columns=16),
        workloads.layer_norm("norm", rows=16, columns=16),
    ]
    rows = [
        {
            "workload_key": workload.key,
            "workload_name": workload.name,
            "workload_kind": workload.kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "outcome": "run_timeout" if number == 3 else "measured",
            "run_seconds": [] if number == 3 else [1e-5 * (number + 1), 2e-5 * (number + 1)],
        }
        for workload in suite
        for number, candidate in enumerate(sample_candidates(workload, target, 4, seed=0))
    ]
    host = Host("cpu", 1, 2**30, "Linux", 1e11, 1e10, vector_lanes=8, cache_bytes=2**19)
    folder = root / "data" / "measurements"
    campaign = Campaign(MEASUREMENTS_VERSION, target, host, tvm_versions(), {}, 0)
    write_campaign(folder, campaign, {workload.key: workload for workload in suite})
    write_measurements(folder, measurement_table(rows))
    export(config_of("export", root))
    return root


@pytest.fixture(scope="module")
def source(measured: Path) -> Path:
    return measured / "data" / "export" / "metaschedule"


@pytest.fixture(scope="module")
def imported(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose measurements come from the database."""
    root = tmp_path_factory.mktemp("imported")
    import_(config_of("import", root, f"source={source}"))
    return root


@pytest.fixture(scope="module")
def runs(imported: Path) -> str:
    """One MLflow database for all: to make one takes seconds. The run of `imported` is the first in it."""
    return f"paths.runs={imported}/runs"


def test_graphs_of_imported_and_of_measured_times_are_the_same(measured: Path, imported: Path, runs: str) -> None:
    for root in (measured, imported):
        graphs(config_of("graphs", root, runs))
    original, copy = (read_programs(root / "data" / "graphs") for root in (measured, imported))
    assert len(copy) == len(original) == 9
    assert copy.workload_names == original.workload_names == ("matmul", "softmax", "norm")
    np.testing.assert_array_equal(copy.program_key, original.program_key)
    np.testing.assert_array_equal(copy.log_seconds, original.log_seconds)
    np.testing.assert_array_equal(copy.ast.node_kind, original.ast.node_kind)
    assert copy.machines == (None,)
    with pytest.raises(ConfigError, match="host=this"):
        RooflineModel(None, None, 0).fit(copy, copy, None)


def test_the_run_counts_what_came_in(imported: Path, source: Path) -> None:
    client = mlflow.MlflowClient(f"sqlite:///{imported}/runs/mlflow.db")
    run = client.search_runs(["1"], "tags.`kernelcast.stage` = 'import'")[-1]
    assert run.info.status == "FINISHED"
    counts = {name.removeprefix("import/"): value for name, value in run.data.metrics.items()}
    assert counts == {"records": 12, "failed_records": 3, "copies": 0, "set_aside": 0, "measured": 9, "run_error": 3}
    assert run.inputs.dataset_inputs[0].dataset.name == "measurements"


def test_this_machine_is_described_when_it_measured(
    source: Path, imported: Path, runs: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        import_(config_of("import", tmp_path, runs, f"source={source}", "host=this", "target={num-cores: 1}"))
    campaign, _ = read_campaign(tmp_path / "data" / "measurements")
    assert campaign.host is not None
    assert campaign.host.peak_flops_per_second > 1e8
    assert read_campaign(imported / "data" / "measurements")[0].host is None
    assert (
        "12 records, 9 with times and 3 of failures, became 12 programs of 3 workloads (9 measured, 3 run_error)"
        in caplog.text
    )


def test_what_is_there_stays_unless_it_is_an_import_to_be_replaced(source: Path, runs: str, tmp_path: Path) -> None:
    import_(config_of("import", tmp_path, runs, f"source={source}"))
    folder = tmp_path / "data" / "measurements"
    with pytest.raises(ConfigError, match="overwrite=true"):
        import_(config_of("import", tmp_path, f"source={source}"))
    import_(config_of("import", tmp_path, runs, f"source={source}", "overwrite=true"))
    assert read_measurements(folder).table.num_rows == 12
    (folder / "journal.jsonl").write_text("months of work")
    with pytest.raises(ConfigError, match=r"journal\.jsonl, so it was not imported"):
        import_(config_of("import", tmp_path, runs, f"source={source}", "overwrite=true"))
    assert (folder / "journal.jsonl").read_text() == "months of work"


@pytest.mark.parametrize(
    ("overrides", "kind", "says"),
    [
        ([], ConfigError, "source is missing"),
        (["source='  '"], ConfigError, "source is missing"),
        (["source=/no/such/folder"], MissingInputError, "/no/such/folder/database_workload.json does not exist"),
        (["source={source}/broken"], MalformedDataError, r"database_workload\.json:1: not a workload"),
    ],
)
def test_a_mistake_is_said_and_leaves_no_measurements(
    source: Path, runs: str, tmp_path: Path, overrides: list[str], kind: type[KernelcastError], says: str
) -> None:
    broken = tmp_path / "source" / "broken"
    broken.mkdir(parents=True)
    for name in ("database_workload.json", "database_tuning_record.json"):
        (broken / name).write_text("garbage\n")
        (broken.parent / name).write_bytes((source / name).read_bytes())
    given = [one.replace("{source}", str(broken.parent)) for one in overrides]
    with pytest.raises(kind, match=says):
        import_(config_of("import", tmp_path, runs, *given))
    assert not (tmp_path / "data").exists()


def test_a_target_is_chosen_by_a_mapping(source: Path, tmp_path: Path) -> None:
    config = config_of("import", tmp_path, f"source={source}", "target={num-cores: 1, keys: [cpu]}")
    assert wanted_target(config.target) == {"num-cores": 1, "keys": ["cpu"]}
    assert wanted_target(None) == {}
    for value in ("llvm", 5, ["cpu"]):
        with pytest.raises(ConfigError, match="is not a mapping"):
            wanted_target(value)
