"""What the analytical model makes of a program, as columns, and the models that learn from them."""

import dataclasses

import numpy as np
import pytest
from hydra.errors import InstantiationException

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.flat_columns import PROGRAM_FEATURES, STATEMENT_FEATURES
from kernelcast.graphs.views import ESTIMATES, FlatFeatures, StatementRows
from kernelcast.models import estimate_table as estimate_module
from kernelcast.models.analytical import AnalyticalModel
from kernelcast.models.estimate_table import COLUMNS, ESTIMATE, ESTIMATE_VERSION, estimate_table, with_estimates
from kernelcast.models.saved import load_model, save_model

TREES = ("xgboost", "lightgbm")


@pytest.fixture
def programs(programs_of):
    """Programs of one to three statements of many sizes, whose times are what the analytical model says, times a factor
    that one column decides."""
    made = programs_of(workloads=5, per_workload=30)
    random = np.random.default_rng(0)
    counts = random.integers(1, 4, size=len(made))
    names = tuple(feature.name for feature in STATEMENT_FEATURES)
    values = np.ones((counts.sum(), len(names)))
    for name in ("executions", "flops", "accesses"):
        values[:, names.index(name)] = np.exp2(random.integers(0, 12, size=len(values)))
    statements = StatementRows(names, np.concatenate([[0], np.cumsum(counts)]), np.log1p(values).astype(np.float32))
    flat = np.log1p(random.integers(1, 1000, size=(len(made), len(PROGRAM_FEATURES)))).astype(np.float32)
    features = FlatFeatures(tuple(feature.name for feature in PROGRAM_FEATURES), flat)
    made = dataclasses.replace(made, sources={**made.sources, "statements": statements, "features": features})
    return dataclasses.replace(made, log_seconds=estimated(made) + 0.1 * (features.column("buffers") > 6))


def estimated(programs):
    return estimate_table(programs, "a test").column(ESTIMATE).astype(np.float64)


def test_the_estimate_is_what_the_analytical_model_predicts(programs, metric_log):
    model = AnalyticalModel(None, None, 0)
    model.fit(programs, programs, metric_log)
    np.testing.assert_allclose(estimated(programs), model.predict(programs), rtol=1e-6)


def test_a_row_is_that_of_its_program_whatever_stands_beside_it(programs):
    whole = estimate_table(programs, "a test")
    assert whole.names == COLUMNS
    assert np.isfinite(whole.values).all()
    rows = np.array([70, 3, 3, 149])
    some = programs.select(rows)
    np.testing.assert_array_equal(estimate_table(some, "a test").values, whole.values[rows])
    seen = with_estimates(some, "a test").view(ESTIMATES)
    np.testing.assert_array_equal(seen.values, whole.values[rows])
    assert len(with_estimates(programs.select(np.zeros(0, dtype=np.int64)), "a test")) == 0


def test_a_program_without_statements_has_a_row(programs):
    rows = programs.view("statements")
    offset = np.concatenate([[0, 0], rows.row_offset[2:]])
    empty = StatementRows(rows.names, offset, rows.values)
    found = estimate_table(dataclasses.replace(programs, sources={**programs.sources, "statements": empty}), "a test")
    assert np.isfinite(found.values).all()
    assert found.column("estimate_share_of_heaviest")[0] == 0
    none = StatementRows(rows.names, np.zeros_like(offset), rows.values[:0])
    assert np.isfinite(
        estimate_table(dataclasses.replace(programs, sources={**programs.sources, "statements": none}), "a test").values
    ).all()


def test_an_unknown_machine_is_refused_and_the_model_named(programs, model_of, metric_log):
    unknown = dataclasses.replace(programs, machines=(None,))
    with pytest.raises(ConfigError, match=r"LightGBM with model.estimate=true .*needs the peaks of the machine"):
        model_of("lightgbm", "log_mse", changes={"estimate": True}).fit(unknown, unknown, metric_log)


@pytest.mark.parametrize(
    ("name", "changes"), [("lightgbm", {"estimate": True}), ("gcn", {"network": {"estimate": True}})]
)
def test_a_model_that_learned_from_other_estimates_is_refused(
    programs, model_of, metric_log, tmp_path, monkeypatch, name, changes
):
    model = model_of(name, "log_mse", max_epochs=1, changes=changes)
    model.fit(programs, programs, metric_log)
    save_model(model, tmp_path / "model")
    monkeypatch.setattr(estimate_module, "ESTIMATE_VERSION", ESTIMATE_VERSION + 1)
    with pytest.raises(MalformedDataError, match=r"learned from estimates .* version 1, .* version 2; run `dvc repro"):
        load_model(tmp_path / "model")


DRAWN = {
    "lanes": (1, 1, 4, 7, 16, 49),
    "extent": (0, 1, 2, 8, 14, 64),
    "is_reduction": (0, 0, 1),
    "is_straight": (0, 1),
    "is_init": (0, 0, 1),
    "is_guarded": (0, 0, 1),
    "stride": (0, 1, 1, 2, 64),
    "runs": (1, 1, 2),
    "iterations": (1, 1, 8),
    "trips": (1, 8, 64),
    "distance": (1, 8, 64),
}
"""Values of the columns whose names hold these words; of others any power of two."""


def test_the_version_is_that_of_these_estimates(programs):
    """Another value here: the analytical model has changed, so raise ESTIMATE_VERSION, and put the value in."""
    random, rows = np.random.default_rng(5), programs.view("statements")
    choices = [
        next((values for word, values in DRAWN.items() if word in name), 2 ** np.arange(12)) for name in rows.names
    ]
    drawn = np.stack([random.choice(values, size=len(rows.values)) for values in choices], axis=1)
    lanes = rows.names.index("lanes")
    drawn[:, rows.names.index("lane_parts")] = [int(count).bit_count() for count in drawn[:, lanes]]
    flags = np.array([feature.unit == "flag" for feature in STATEMENT_FEATURES])
    statements = dataclasses.replace(rows, values=np.where(flags, drawn, np.log1p(drawn)).astype(np.float32))
    sizes = np.log1p(2.0 ** random.integers(0, 30, size=(len(programs), len(PROGRAM_FEATURES)))).astype(np.float32)
    features = dataclasses.replace(programs.features, values=sizes)
    sources = {**programs.sources, "statements": statements, "features": features}
    machine = dataclasses.replace(programs.machines[0], vector_lanes=16)
    table = estimate_table(dataclasses.replace(programs, sources=sources, machines=(machine,)), "a test")
    # each rule is at work somewhere
    assert [name for name in COLUMNS if np.ptp(table.column(name)) == 0] == []
    assert (ESTIMATE_VERSION, float(np.abs(table.values).mean())) == (1, pytest.approx(6.4854097, rel=1e-5))


@pytest.mark.parametrize("value", ["no", "maybe", 1, None])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("lightgbm", "estimate"),
        ("xgboost", "estimate"),
        ("lightgbm", "machine_code"),
        ("xgboost", "machine_code"),
        ("gcn", "network.estimate"),
        ("gcn", "network.machine_code"),
        ("graphsage", "network.estimate"),
        ("graphsage", "network.l2_normalize"),
    ],
)
def test_a_flag_that_is_none_is_refused(model_of, name, key, value):
    changes = {"network": {key.partition(".")[2]: value}} if "." in key else {key: value}
    with pytest.raises((ConfigError, InstantiationException), match=rf"model\.{key}={value}: it must be true or false"):
        model_of(name, "log_mse", changes=changes)


@pytest.mark.parametrize("loss", ["log_mse", "rank", "lambdarank"])
@pytest.mark.parametrize("name", TREES)
def test_trees_begin_with_the_estimate_and_correct_it(programs, trees_correct, name, loss):
    trees_correct(name, loss, "estimate", programs)


def test_a_network_sees_the_estimate(programs, model_of, metric_log, tmp_path):
    model = model_of("gcn", "rank", max_epochs=20, changes={"network": {"estimate": True}})
    model.fit(programs, programs, metric_log)
    faster = dataclasses.replace(programs.machines[0], peak_flops_per_second=1e14)
    elsewhere = dataclasses.replace(programs, machines=(faster,))
    # nothing else in the trees knows of the machine
    assert np.abs(model.predict(programs) - model.predict(elsewhere)).max() > 0.01
    save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(programs), model.predict(programs))
