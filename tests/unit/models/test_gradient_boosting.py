import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.views import FlatFeatures
from kernelcast.models.gradient_boosting import relevance
from kernelcast.models.lightgbm_model import LightGBMModel, LightGBMSettings
from kernelcast.models.losses import ListMLE, LogMSE
from kernelcast.models.protocol import PredictionKind
from kernelcast.models.rounds import WATCHED, spread_rows
from kernelcast.models.saved import load_model, save_model
from kernelcast.models.validation import mean_kendall_tau
from kernelcast.models.xgboost_model import XGBoostModel, XGBoostSettings

GOOD = {
    "rounds": 10,
    "patience": 3,
    "learning_rate": 0.1,
    "subsample": 1.0,
    "colsample_bytree": 1.0,
    "reg_lambda": 1.0,
    "threads": 1,
}
SETTINGS = {
    XGBoostSettings: {"max_depth": 3, "min_child_weight": 1.0},
    LightGBMSettings: {"num_leaves": 7, "min_child_samples": 5},
}
MODELS = {XGBoostSettings: XGBoostModel, LightGBMSettings: LightGBMModel}
LIBRARIES = ("xgboost", "lightgbm")


@pytest.fixture
def toy(programs_of):
    """40 programs of each of 5 workloads: more than the 31 places that an exponential gain could tell apart."""
    programs = programs_of(workloads=5, per_workload=40, nodes=(1, 2))
    random = np.random.default_rng(0)
    values = random.normal(size=(200, 6)).astype(np.float32)
    log_seconds = values[:, 0] - 0.5 * values[:, 1] + 0.3 * np.abs(values[:, 2])
    names = tuple(f"column_{index}" for index in range(6))
    views = {"features": FlatFeatures(names, values)}
    programs = dataclasses.replace(programs, sources=views, log_seconds=log_seconds.astype(float))
    rows = random.permutation(200)
    return programs.select(rows[:140]), programs.select(rows[140:])


def pairwise_accuracy(prediction, programs):
    right = total = 0
    for index in np.unique(programs.workload):
        rows = np.flatnonzero(programs.workload == index)
        slower = programs.log_seconds[rows][:, None] > programs.log_seconds[rows][None, :]
        right += int((slower & (prediction[rows][:, None] > prediction[rows][None, :])).sum())
        total += int(slower.sum())
    return right / total


@pytest.mark.parametrize("loss", ["rank", "lambdarank", "throughput"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_ranks_a_toy_set(model_of, toy, metric_log, name, loss):
    # case XGB-02: the lowest and the highest XGBoost that pyproject.toml allows are one; a run's tags name it
    train, valid = toy
    model = model_of(name, loss)
    model.fit(train, valid, metric_log)
    assert model.kind is PredictionKind.RANK
    assert pairwise_accuracy(model.predict(train), train) >= 0.9
    assert pairwise_accuracy(model.predict(valid), valid) >= (0.9 if (name, loss) == ("xgboost", "rank") else 0.8)


@pytest.mark.parametrize("name", LIBRARIES)
def test_parameters_come_from_our_own_file_after_loading(model_of, toy, metric_log, tmp_path, name):
    # case XGB-03
    train, valid = toy
    model = model_of(name, "rank", seed=4)
    model.fit(train, valid, metric_log)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(valid), model.predict(valid), atol=1e-6)
    # trained again with what was saved, it becomes the same model
    loaded.fit(train, valid, metric_log)
    np.testing.assert_array_equal(loaded.predict(valid), model.predict(valid))


@pytest.mark.parametrize("name", LIBRARIES)
def test_trees_after_the_best_round_are_left_out(model_of, toy, metric_log, name):
    train, valid = toy
    model = model_of(name, "log_mse")
    model.fit(train, valid, metric_log)
    logged = min(values["valid/loss"] for _, values in metric_log.rows)
    assert np.mean((model.predict(valid) - valid.log_seconds) ** 2) <= logged * 1.001


def test_few_rounds_are_all_logged_and_many_are_thinned(model_of, conf_of, toy, metric_log):
    from hydra.utils import instantiate

    loss = instantiate(conf_of("loss", "log_mse"))
    boosting = conf_of("model", "xgboost")
    for rounds, at_most in ((5, 5), (250, 130)):
        metric_log.rows.clear()
        settings = {**boosting["settings"], "rounds": rounds, "patience": rounds}
        model = instantiate({**boosting, "settings": settings}, loss=loss, trainer=None, seed=0)
        model.fit(*toy, metric_log)
        assert 5 <= len(metric_log.rows) <= at_most


@pytest.mark.parametrize("name", LIBRARIES)
def test_other_features_are_refused(model_of, toy, metric_log, name):
    train, valid = toy
    model = model_of(name)
    model.fit(train, valid, metric_log)
    renamed = dataclasses.replace(valid.features, names=tuple(f"other_{index}" for index in range(6)))
    with pytest.raises(MalformedDataError, match="other features"):
        model.predict(dataclasses.replace(valid, sources={"features": renamed}, rows=np.arange(len(valid))))


@pytest.mark.parametrize("name", LIBRARIES)
def test_programs_whose_columns_are_all_left_out_are_refused(model_of, toy, metric_log, name):
    train, valid = toy
    views = {"features": FlatFeatures((), np.zeros((len(train), 0), dtype=np.float32))}
    empty = dataclasses.replace(train, sources=views, rows=np.arange(len(train)))
    with pytest.raises(ConfigError, match="leave_out"):
        model_of(name).fit(empty, valid, metric_log)


@pytest.mark.parametrize("kind", MODELS)
def test_a_loss_that_trees_cannot_minimise_is_refused(kind):
    with pytest.raises(ConfigError, match="ListMLE"):
        MODELS[kind](kind(**GOOD, **SETTINGS[kind]), ListMLE(), None, 0)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_torn_file_of_trees_is_named(model_of, toy, metric_log, tmp_path, name):
    model = model_of(name)
    model.fit(*toy, metric_log)
    model.save(tmp_path)
    trees = tmp_path / model.trees_file
    trees.write_bytes(trees.read_bytes()[:100])
    with pytest.raises(MalformedDataError, match="not a whole saved model"):
        type(model).load(tmp_path)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    "columns", [{"pooled": ["statements", "per_store"]}, {"view": "trace", "pooled": ["statements"]}]
)
def test_columns_of_other_views_teach_it_too(programs_of, conf_of, metric_log, tmp_path, name, columns):
    from hydra.utils import instantiate

    programs = programs_of()
    rows = np.random.default_rng(0).permutation(len(programs))
    train, valid = programs.select(rows[:72]), programs.select(rows[72:])
    model = instantiate(
        {**conf_of("model", name), **columns}, loss=instantiate(conf_of("loss", "rank")), trainer=None, seed=0
    )
    model.fit(train, valid, metric_log)
    prediction = model.predict(train)
    assert mean_kendall_tau(prediction, train.log_seconds, train.workload) > 0.3
    save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(train), prediction)


@pytest.mark.parametrize(("key", "value"), [("view", "ast"), ("pooled", ["features"])])
def test_a_view_without_a_row_of_columns_is_refused(key, value):
    settings = XGBoostSettings(**GOOD, **SETTINGS[XGBoostSettings])
    with pytest.raises(ConfigError, match=f"model.{key}.*use "):
        XGBoostModel(settings, LogMSE(), None, 0, **{key: value})


def test_relevance_counts_the_slower_times_of_the_workload():
    slowness = np.array([3.0, 1.0, 1.0, 2.0, 5.0, 4.0], dtype=np.float32)
    workload = np.array([0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(relevance(slowness, workload), [0, 2, 2, 1, 0, 1])


@given(sizes=st.lists(st.integers(1, 3 * WATCHED), min_size=1, max_size=5))
def test_watched_rows_are_spread_over_every_workload(sizes):
    workload = np.repeat(np.arange(len(sizes)), sizes)
    rows = spread_rows(workload)
    assert len(set(rows.tolist())) == len(rows)
    np.testing.assert_array_equal(np.bincount(workload[rows]), np.minimum(sizes, WATCHED))
    for number, size in enumerate(sizes):
        of = rows[workload[rows] == number] - sum(sizes[:number])
        # no gap is larger than the size demands
        assert np.diff([*of, size]).max() <= -(-size // WATCHED)


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", 0),
        ("patience", 0),
        ("threads", 0),
        ("learning_rate", 0.0),
        ("learning_rate", 1.5),
        ("subsample", -1.0),
        ("colsample_bytree", 0.0),
        ("reg_lambda", -1.0),
    ],
)
def test_a_value_that_cannot_work_names_its_key(kind, key, value):
    with pytest.raises(ConfigError, match=f"model.settings.{key}={value}"):
        kind(**{**GOOD, **SETTINGS[kind], key: value})


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (XGBoostSettings, "max_depth", 2.5),
        (XGBoostSettings, "min_child_weight", float("nan")),
        (LightGBMSettings, "num_leaves", 1),
        (LightGBMSettings, "min_child_samples", 0),
    ],
)
def test_a_value_of_one_library_that_cannot_work_names_its_key(kind, key, value):
    with pytest.raises(ConfigError, match=f"model.settings.{key}={value}"):
        kind(**{**GOOD, **SETTINGS[kind], key: value})
