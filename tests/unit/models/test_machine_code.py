"""The model of machine code, and the models that learn how far it is off."""

import dataclasses

import numpy as np
import pytest

from kernelcast.errors import ConfigError
from kernelcast.graphs.flat_columns import PROGRAM_FEATURES
from kernelcast.graphs.machine_code.columns import COLUMN_NAMES
from kernelcast.graphs.views import ESTIMATES, FlatFeatures
from kernelcast.models.estimate_table import COLUMNS, with_estimates
from kernelcast.models.machine_code import START, MachineCodeModel, machine_code_seconds, machine_code_table
from kernelcast.models.protocol import PredictionKind
from kernelcast.models.saved import load_model, save_model

TREES = ("xgboost", "lightgbm")


@pytest.fixture
def programs(programs_of):
    """Programs of many sizes, whose times are what the model says, times a factor that one column decides."""
    made = programs_of(workloads=5, per_workload=30)
    random = np.random.default_rng(0)
    code = np.exp2(random.uniform(0, 20, size=(len(made), len(COLUMN_NAMES))))
    code[:, COLUMN_NAMES.index("parallel_cycles")] = code[:, COLUMN_NAMES.index("cycles")] * random.integers(0, 2)
    flat = np.log1p(random.integers(1, 1000, size=(len(made), len(PROGRAM_FEATURES)))).astype(np.float32)
    sources = {
        **made.sources,
        "machine_code": FlatFeatures(COLUMN_NAMES, np.log1p(code).astype(np.float32)),
        "features": FlatFeatures(tuple(feature.name for feature in PROGRAM_FEATURES), flat),
    }
    made = dataclasses.replace(made, sources=sources)
    slower = code[:, COLUMN_NAMES.index("gathers")] > 2**10
    return dataclasses.replace(made, log_seconds=table(made).column(START).astype(np.float64) + 0.2 * slower)


def table(programs):
    return machine_code_table(programs, "a test")


def of_columns(**values):
    """One program without memory traffic, whose code has these columns."""
    code = np.zeros((1, len(COLUMN_NAMES)))
    for name, value in values.items():
        code[0, COLUMN_NAMES.index(name)] = value
    return FlatFeatures(COLUMN_NAMES, np.log1p(code).astype(np.float32))


def seconds(programs, extent=1.0, cores=1, **values):
    names = tuple(feature.name for feature in PROGRAM_FEATURES)
    flat = np.zeros((1, len(names)), dtype=np.float32)
    flat[0, names.index("parallel_extent")] = np.log1p(extent)
    machine = dataclasses.replace(programs.machines[0], cores=cores)
    return float(machine_code_seconds(of_columns(**values), FlatFeatures(names, flat), machine)[0])


def test_cycles_take_as_long_as_the_clock_says(programs):
    # 1e11 flops of 1 core in 8 lanes, two multiply-adds a cycle
    assert seconds(programs, cycles=1e6) == pytest.approx(1e6 / (1e11 / 8 / 4), rel=1e-3)


def test_cores_share_what_lies_in_parallel_loops(programs):
    alone, shared = (seconds(programs, 4, cores, cycles=1e6, parallel_cycles=1e6) for cores in (1, 2))
    serial = seconds(programs, 4, 2, cycles=1e6)
    # the peak is that of all cores together, so that one of two has half of it
    assert shared == pytest.approx(alone, rel=1e-3)
    assert serial == pytest.approx(2 * alone, rel=1e-3)


def test_an_odd_iteration_leaves_a_core_without_work(programs):
    even, odd = (seconds(programs, extent, 2, cycles=1e6, parallel_cycles=1e6) for extent in (4, 3))
    assert odd == pytest.approx(even * 4 / 3, rel=1e-3)


def test_the_model_predicts_what_the_table_begins_with(programs, metric_log):
    model = MachineCodeModel(None, None, 0)
    model.fit(programs, programs, metric_log)
    np.testing.assert_allclose(table(programs).column(START), model.predict(programs), rtol=1e-6)
    assert model.kind is PredictionKind.LOG_SECONDS


def test_a_row_is_that_of_its_program_whatever_stands_beside_it(programs):
    whole, rows = table(programs), np.array([70, 3, 3, 149])
    some = programs.select(rows)
    np.testing.assert_array_equal(table(some).values, whole.values[rows])
    both = with_estimates(some, "a test", estimate=True, machine_code=True).view(ESTIMATES)
    assert both.names == (*COLUMNS, *whole.names)
    np.testing.assert_array_equal(both.values[:, len(COLUMNS) :], whole.values[rows])
    alone = with_estimates(some, "a test", estimate=False, machine_code=True).view(ESTIMATES)
    np.testing.assert_array_equal(alone.values, whole.values[rows])
    assert len(table(programs.select(np.zeros(0, dtype=np.int64)))) == 0


@pytest.mark.parametrize("name", ["machine_code", "lightgbm_machine_code", "ensemble_machine_code"])
def test_without_the_view_the_next_step_is_named(programs, model_of, metric_log, name):
    sources = {view: source for view, source in programs.sources.items() if view != "machine_code"}
    without = dataclasses.replace(programs, sources=sources)
    with pytest.raises(ConfigError, match=r"no view `machine_code`.*features\.views.*dvc repro graphs"):
        model = model_of(name, "log_mse", max_epochs=1)
        model.fit(without, without, metric_log)
        model.predict(without)


def test_an_unknown_machine_is_refused_and_the_model_named(programs, model_of, metric_log):
    unknown = dataclasses.replace(programs, machines=(None,))
    with pytest.raises(ConfigError, match=r"LightGBM with model.machine_code=true .*needs the peaks of the machine"):
        model_of("lightgbm", "log_mse", changes={"machine_code": True}).fit(unknown, unknown, metric_log)


@pytest.mark.parametrize("loss", ["log_mse", "rank", "lambdarank"])
@pytest.mark.parametrize("name", TREES)
def test_trees_begin_with_the_time_of_the_code_and_correct_it(programs, trees_correct, name, loss):
    trees_correct(name, loss, "machine_code", programs)


def test_a_network_sees_the_code(programs, model_of, metric_log, tmp_path):
    model = model_of("gcn", "rank", max_epochs=20, changes={"network": {"machine_code": True}})
    model.fit(programs, programs, metric_log)
    code = programs.view("machine_code")
    other = FlatFeatures(code.names, code.values + np.float32(1.0))
    elsewhere = dataclasses.replace(programs, sources={**programs.sources, "machine_code": other})
    assert np.abs(model.predict(programs) - model.predict(elsewhere)).max() > 0.01
    save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(programs), model.predict(programs))
