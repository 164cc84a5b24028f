"""Predictions of what users have are those of the same programs offline, whatever form they come in."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError
from kernelcast.exchange.importing import import_database
from kernelcast.exchange.metaschedule import DATABASE_RECORDS, DATABASE_WORKLOADS, write_database
from kernelcast.exchange.times import Times
from kernelcast.prediction import Predictor
from kernelcast.prediction.answer import SCHEMA
from kernelcast.prediction.schedules import write_schedules
from kernelcast.prediction.subjects import Subject
from kernelcast.records import MEASUREMENTS_FILE, read_measurements
from kernelcast.tvm_compat import (
    load_tvm,
    module_json,
    parse_module,
    replayed_schedule,
    scheduled_module,
    structural_key,
)
from tests.unit.prediction.conftest import PROGRAMS, Trained, made_up_seconds

SAME = 1e-5
"""A prediction may differ from the offline one by no more."""


@pytest.fixture(scope="module")
def predictor(trained: Trained) -> Predictor:
    return trained.predictor("lightgbm")


@pytest.fixture(scope="module")
def offline(trained: Trained) -> dict[str, float]:
    return trained.offline("lightgbm")


@pytest.fixture(scope="module")
def modules(trained: Trained) -> list[Any]:
    """The scheduled programs that have a label, in the order of the candidates."""
    return [scheduled_module(trained.workload_of(one), one.trace) for one in trained.candidates[1:]]


@pytest.fixture(scope="module")
def database(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("database")
    write_database(read_measurements(trained.measurements), folder, Times.all)
    return folder


def predicted_of(table: pd.DataFrame) -> dict[str, float]:
    return dict(zip(table["program_key"], table["prediction"], strict=True))


def assert_same(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), rtol=0, atol=SAME)


def test_modules_keep_their_order_and_their_offline_predictions(
    trained: Trained, predictor: Predictor, offline: dict[str, float], modules: list[Any]
) -> None:
    table = predictor.predict(modules)
    keys = [one.program_key for one in trained.candidates[1:]]
    assert table["program_key"].tolist() == keys
    np.testing.assert_allclose(table["prediction"], [offline[key] for key in keys], rtol=0, atol=SAME)
    np.testing.assert_allclose(table["predicted_microseconds"], 1e6 * np.exp(table["prediction"]))
    assert set(table["origin"]) == {"given"}
    assert table.attrs["kind"] == "log_seconds"
    assert list(table.columns) == SCHEMA.names
    # one alone is the same as among others
    alone = predictor.predict(modules[3])
    assert alone["prediction"].item() == pytest.approx(table["prediction"][3], abs=SAME)
    assert alone["rank"].item() == 1


def test_a_module_in_json_is_the_module(
    tmp_path: Path, predictor: Predictor, offline: dict[str, float], modules: list[Any]
) -> None:
    path = tmp_path / "program.json"
    path.write_text(module_json(modules[0]))
    table = predictor.predict(path)
    assert table["workload"].tolist() == ["program"]
    assert_same(predicted_of(table), {key: offline[key] for key in table["program_key"]})
    assert predictor.predict(str(path)).equals(table)
    # that of its function too
    path.write_text(module_json(modules[0]["main"]))
    assert predictor.predict(path).equals(table)


def test_pairs_and_schedules_are_the_same_programs(
    trained: Trained, predictor: Predictor, offline: dict[str, float]
) -> None:
    chosen = trained.candidates[1:4]
    pairs = [(parse_module(trained.workload_of(one).module), one.trace) for one in chosen]
    schedules = [replayed_schedule(trained.workload_of(one), one.trace) for one in chosen]
    expected = {one.program_key: offline[one.program_key] for one in chosen}
    assert_same(predicted_of(predictor.predict(pairs)), expected)
    assert_same(predicted_of(predictor.predict(schedules)), expected)
    assert_same(predicted_of(predictor.predict(pairs[0])), {chosen[0].program_key: expected[chosen[0].program_key]})
    # TVM's own trace, and its JSON as Python has it
    mixed = [(pairs[0][0], schedules[0].trace), (pairs[1][0], json.loads(chosen[1].trace))]
    assert predicted_of(predictor.predict(mixed)).keys() == {one.program_key for one in chosen[:2]}


@pytest.mark.parametrize("name", ["lightgbm", "trees_of_rank", "lightgbm_trace"])
def test_a_database_measurements_and_graphs_have_equal_predictions(name: str, trained: Trained, database: Path) -> None:
    predictor, expected = trained.predictor(name), trained.offline(name)
    assert_same(predicted_of(predictor.predict(trained.graphs)), expected)
    # in the order of the rows; the first program crashed, so it has no time and graphs have none of it
    timed = trained.candidates[1:]
    for what in (database, database / DATABASE_RECORDS, trained.measurements, trained.measurements / MEASUREMENTS_FILE):
        table = predictor.predict(what)
        assert len(table) == len(trained.candidates)
        found = table["prediction"].tolist()
        np.testing.assert_allclose(found[1:], [expected[one.program_key] for one in timed], rtol=0, atol=SAME)
        assert np.isfinite(found[0])
        measured = table["measured_microseconds"].tolist()
        assert np.isnan(measured[0])
        assert measured[1:] == pytest.approx([1e6 * made_up_seconds(one) for one in timed])
        # of a trace alone no program is made
        keys_known = name != "lightgbm_trace" or what.name.startswith("measurements")
        assert (table["program_key"].tolist() == [one.program_key for one in trained.candidates]) == keys_known


def test_of_a_workload_without_a_schedule_random_ones_are_drawn(trained: Trained, predictor: Predictor) -> None:
    workload = parse_module(trained.suite[0].module)
    table = predictor.predict(workload, samples=8, seed=1)
    assert len(table) == table["program_key"].nunique() == 8
    assert set(table["origin"]) == {"drawn"}
    # the best has rank 1 and the ratio 1, and ranks follow the predictions
    best = table.sort_values("prediction").iloc[0]
    assert (best["rank"], best["ratio_to_best"]) == (1, 1.0)
    np.testing.assert_allclose(
        table["ratio_to_best"], table["predicted_microseconds"] / table["predicted_microseconds"].min()
    )
    assert (table["rank"].rank(method="min") == table["prediction"].rank(method="min")).all()
    # the same draws are the same programs, others are not; each is what its trace makes
    assert predictor.predict(workload, samples=8, seed=1).equals(table)
    assert set(predictor.predict(workload, samples=8, seed=2)["program_key"]) != set(table["program_key"])
    made = [structural_key(scheduled_module(trained.suite[0], trace)) for trace in table["trace"]]
    assert made == table["program_key"].tolist()


def test_a_workload_can_be_predicted_as_it_stands(trained: Trained, predictor: Predictor) -> None:
    table = predictor.predict([parse_module(one.module) for one in trained.suite], samples=0)
    assert table["program_key"].tolist() == [one.key for one in trained.suite]
    assert table["rank"].tolist() == [1, 1]
    assert np.isfinite(table["predicted_microseconds"]).all()


def test_operators_by_name_and_shape(trained: Trained, predictor: Predictor) -> None:
    table = predictor.predict("matmul", shape={"rows": 64, "columns": 32, "depth": 48}, samples=4)
    expected = predictor.predict(trained.suite[0], samples=4)
    assert table["prediction"].tolist() == expected["prediction"].tolist()
    with pytest.raises(ConfigError, match=r"input=matmul: depth must be given; its sizes are rows, columns, depth, "):
        predictor.predict("matmul", shape={"rows": 64, "columns": 32})
    with pytest.raises(
        ConfigError, match=r"input=softmax: it has no row \(did you mean rows\?\); its sizes are rows, columns, dtype"
    ):
        predictor.predict("softmax", shape={"row": 64, "columns": 32})
    with pytest.raises(ConfigError, match="workload matmul: rows must be a positive"):
        predictor.predict("matmul", shape={"rows": -1, "columns": 32, "depth": 1})
    with pytest.raises(MissingInputError, match=r"input=matmull: .*no operator or network.* matmul, .*resnet18"):
        predictor.predict("matmull")


@pytest.mark.slow
def test_a_torch_module_is_its_kernels(predictor: Predictor) -> None:
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    table = predictor.predict(network, example=torch.zeros(2, 16), samples=4)
    assert table["workload"].str.startswith("Sequential.").all()
    assert table["workload"].nunique() == 2
    assert set(table["weight"]) == {1}
    with pytest.raises(ConfigError, match="goes with its input"):
        predictor.predict(network)


def test_a_model_of_order_has_no_times(trained: Trained, modules: list[Any]) -> None:
    predictor = trained.predictor("trees_of_rank")
    table = predictor.predict(modules)
    assert table.attrs["kind"] == "rank"
    assert "rank score" in table.attrs["unit"]
    assert table["predicted_microseconds"].isna().all()
    slope = predictor.trained.trained_on.slope
    # modules do not tell their workload: those with equal parameters are compared
    for first, last in ((0, PROGRAMS - 1), (PROGRAMS - 1, len(modules))):
        rows = table[first:last]
        expected = np.exp(slope * (rows["prediction"] - rows["prediction"].min()))
        np.testing.assert_allclose(rows["ratio_to_best"], expected)
        assert (rows["rank"] == rows["prediction"].rank(method="min")).all()


def test_a_model_of_traces_needs_traces(trained: Trained, modules: list[Any]) -> None:
    predictor = trained.predictor("lightgbm_trace")
    with pytest.raises(MalformedDataError, match="looks at the schedule's trace, and a module alone has none"):
        predictor.predict(modules[0])
    chosen = trained.candidates[1]
    schedule = replayed_schedule(trained.workload_of(chosen), chosen.trace)
    expected = trained.offline("lightgbm_trace")[chosen.program_key]
    # TVM's schedule keeps its trace
    assert predictor.predict(schedule)["prediction"].item() == pytest.approx(expected, abs=SAME)
    # among others that have one, the module without is said and the row stays
    table = predictor.predict([modules[1], schedule])
    assert table["prediction"].isna().tolist() == [True, False]
    assert "trace" in table["fault"][0]
    assert table["fault"][1] == ""


def test_programs_of_another_target_are_refused(
    trained: Trained, predictor: Predictor, database: Path, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    shutil.copytree(database, foreign)
    records = (foreign / DATABASE_RECORDS).read_text().splitlines()
    other = [record.replace('"num-cores":1', '"num-cores":64') for record in records]
    assert other != records
    (foreign / DATABASE_RECORDS).write_text("\n".join(other) + "\n")
    with pytest.raises(ConfigError, match=r"trained for .*\"num-cores\": 1.*programs are for .*\"num-cores\": 64"):
        predictor.predict(foreign)
    # of several targets the known one
    (foreign / DATABASE_RECORDS).write_text("\n".join([*other[:3], *records[:2]]) + "\n")
    assert len(predictor.predict(foreign)) == 2
    assert len(trained.predictor("lightgbm", any_target=True).predict(foreign)) == 5
    with pytest.raises(ConfigError, match=r"target=\{\"num-cores\": 64\}: the model was trained for"):
        predictor.predict("matmul", shape={"rows": 8, "columns": 8, "depth": 8}, target={"num-cores": 64})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a TVM module in JSON"),
        ('{"root_index": 0}', "not a TVM module in JSON"),
        ("[1, 2]", "not a TVM module in JSON but some other JSON"),
        ("\x00\x01", "not a TVM module in JSON"),
    ],
)
def test_what_is_no_module_is_one_message(tmp_path: Path, predictor: Predictor, text: str, message: str) -> None:
    path = tmp_path / "torn.json"
    path.write_text(text)
    with pytest.raises(MalformedDataError, match=message) as raised:
        predictor.predict(path)
    assert str(path) in str(raised.value)
    assert "tvm.ir.save_json" in str(raised.value)


def test_inputs_that_hold_nothing_are_one_message(tmp_path: Path, predictor: Predictor, database: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="a folder of none of the kinds"):
        predictor.predict(tmp_path / "folder")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ConfigError, match="a file of none of the kinds"):
        predictor.predict(tmp_path / "notes.txt")
    (tmp_path / "other.parquet").write_text("hello")
    with pytest.raises(ConfigError, match=r"name a measurements\.parquet or its folder"):
        predictor.predict(tmp_path / "other.parquet")
    empty = tmp_path / "empty"
    shutil.copytree(database, empty)
    (empty / DATABASE_RECORDS).write_text("")
    with pytest.raises(MalformedDataError, match="no record can be read; it is empty"):
        predictor.predict(empty)
    (empty / DATABASE_RECORDS).write_text('[0,[[[["')
    with pytest.raises(MalformedDataError, match=r"no record can be read; .*torn"):
        predictor.predict(empty)
    (empty / DATABASE_WORKLOADS).unlink()
    with pytest.raises(MissingInputError, match=f"{DATABASE_WORKLOADS}.*; name one that has both"):
        predictor.predict(empty)
    with pytest.raises(MalformedDataError, match="there is nothing to predict"):
        predictor.predict([])
    with pytest.raises(ConfigError, match=r"a builtins\.int cannot be predicted"):
        predictor.predict(3)


def test_a_module_without_constant_sizes_is_one_message(predictor: Predictor) -> None:
    load_tvm()
    from tvm import te, tirx

    size = tirx.Var("size", "int32")
    values = te.placeholder((size,), name="values")
    function = te.create_prim_func([values, te.compute((size,), lambda i: values[i] * 2)])
    with pytest.raises(MalformedDataError, match="none of 1 programs can be predicted"):
        predictor.predict(function, samples=0)


def test_python_runs_only_where_it_is_trusted(tmp_path: Path, predictor: Predictor) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    with pytest.raises(ConfigError, match=r"Python code runs when it is read.*trust_python=true"):
        predictor.predict(path)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ConfigError, match="module=NAME example=NAME"):
        predictor.predict(path, module="Net", trust_python=True)
    with pytest.raises(ConfigError, match="not both"):
        predictor.predict(path, module="Net", example="x", function="f", trust_python=True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_tvmscript_and_torch_in_a_python_file(
    tmp_path: Path, predictor: Predictor, offline: dict[str, float], modules: list[Any]
) -> None:
    # as TVM prints it, without imports
    script = tmp_path / "printed.py"
    script.write_text(modules[2].script())
    table = predictor.predict(script, trust_python=True)
    assert_same(predicted_of(table), {key: offline[key] for key in table["program_key"]})
    network = tmp_path / "network.py"
    network.write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, hidden=8):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(16, hidden)\n"
        "    def forward(self, values):\n"
        "        return torch.relu(self.layer(values))\n"
        "example = torch.zeros(2, 16)\n"
    )
    table = predictor.predict(
        network, module="Net", example="example", arguments={"hidden": 4}, trust_python=True, samples=4
    )
    assert table["workload"].str.startswith("network.").all()
    assert np.isfinite(table["predicted_microseconds"]).all()


def test_the_best_schedules_are_a_database_that_tvm_opens(
    trained: Trained, predictor: Predictor, tmp_path: Path
) -> None:
    answer = predictor.answer([Subject(one) for one in trained.suite], samples=6)
    folder = tmp_path / "schedules"
    assert write_schedules(answer, folder, 3, "a model") == 6
    load_tvm()
    from tvm.s_tir import meta_schedule

    stored = meta_schedule.database.JSONDatabase(work_dir=str(folder))
    for workload, rows in zip(trained.suite, answer.groups.values(), strict=True):
        entry = stored.commit_workload(parse_module(workload.module))
        seconds = [float(record.run_secs[0]) for record in stored.get_top_k(entry, 9)]
        np.testing.assert_allclose(seconds, 1e-6 * answer.microseconds[rows[:3]])
    # they are predictions: nothing takes them for times
    table = predictor.predict(folder)
    assert table["measured_microseconds"].isna().all()
    assert sorted(table["predicted_microseconds"]) == pytest.approx(
        sorted(answer.microseconds[row] for rows in answer.groups.values() for row in rows[:3]), rel=SAME
    )
    with pytest.raises(ConfigError, match="were predicted by a model"):
        import_database(folder, {}, lambda target: None, lambda done, total: None)
    # of modules alone there is no trace
    given = predictor.answer([Subject(trained.suite[0])], samples=0)
    with pytest.raises(ConfigError, match="nothing to write"):
        write_schedules(given, tmp_path / "none", 3, "a model")
    assert not (tmp_path / "none").exists()
