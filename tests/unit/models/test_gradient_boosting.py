import dataclasses

import numpy as np
import pytest

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.views import FlatFeatures
from kernelcast.models.gradient_boosting import BoostingSettings
from kernelcast.models.protocol import PredictionKind
from kernelcast.models.saved import load_model, save_model

GOOD = {
    "rounds": 10,
    "patience": 3,
    "learning_rate": 0.1,
    "max_depth": 3,
    "min_child_weight": 1.0,
    "subsample": 1.0,
    "colsample_bytree": 1.0,
    "reg_lambda": 1.0,
    "threads": 1,
}


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


def test_ranks_a_toy_set(model_of, toy, metric_log):
    # case XGB-02
    train, valid = toy
    model = model_of("xgboost", "rank")
    model.fit(train, valid, metric_log)
    assert model.kind is PredictionKind.RANK
    assert pairwise_accuracy(model.predict(train), train) >= 0.9
    assert pairwise_accuracy(model.predict(valid), valid) >= 0.85


def test_parameters_come_from_our_own_file_after_loading(model_of, toy, metric_log, tmp_path):
    # case XGB-03
    train, valid = toy
    model = model_of("xgboost", "rank", seed=4)
    model.fit(train, valid, metric_log)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict(valid), model.predict(valid), atol=1e-6)
    # trained again with what was saved, it becomes the same model
    loaded.fit(train, valid, metric_log)
    np.testing.assert_array_equal(loaded.predict(valid), model.predict(valid))


def test_trees_after_the_best_round_are_left_out(model_of, toy, metric_log):
    train, valid = toy
    model = model_of("xgboost", "log_mse")
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


def test_other_features_are_refused(model_of, toy, metric_log):
    train, valid = toy
    model = model_of("xgboost")
    model.fit(train, valid, metric_log)
    renamed = dataclasses.replace(valid.features, names=tuple(f"other_{index}" for index in range(6)))
    with pytest.raises(MalformedDataError, match="other features"):
        model.predict(dataclasses.replace(valid, sources={"features": renamed}, rows=np.arange(len(valid))))


def test_programs_whose_columns_are_all_left_out_are_refused(model_of, toy, metric_log):
    train, valid = toy
    views = {"features": FlatFeatures((), np.zeros((len(train), 0), dtype=np.float32))}
    empty = dataclasses.replace(train, sources=views, rows=np.arange(len(train)))
    with pytest.raises(ConfigError, match="leave_out"):
        model_of("xgboost").fit(empty, valid, metric_log)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", 0),
        ("patience", 0),
        ("max_depth", 2.5),
        ("threads", 0),
        ("learning_rate", 0.0),
        ("learning_rate", 1.5),
        ("subsample", -1.0),
        ("colsample_bytree", 0.0),
        ("reg_lambda", -1.0),
        ("min_child_weight", float("nan")),
    ],
)
def test_a_value_that_cannot_work_names_its_key(key, value):
    with pytest.raises(ConfigError, match=f"model.settings.{key}={value}"):
        BoostingSettings(**{**GOOD, key: value})
