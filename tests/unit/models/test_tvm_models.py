"""TVM's own models as peers: what the contract of all models does not say."""

import dataclasses
import importlib
import random
import tempfile

import numpy as np
import pytest
import torch

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.models.store_rows import by_workload, rows_of_stores, store_groups
from kernelcast.models.tvm_mlp import TvmMlpModel, TvmMlpSettings
from kernelcast.models.tvm_xgb import TvmXgbModel, TvmXgbSettings
from kernelcast.tvm_compat import load_tvm

XGB = {
    "rounds": 30,
    "patience": 10,
    "stop_on": "valid",
    "max_depth": 4,
    "gamma": 0.001,
    "min_child_weight": 0.0,
    "eta": 0.2,
    "threads": 1,
}
MLP = {
    "width": 8,
    "epochs": 4,
    "batch_size": 16,
    "learning_rate": 0.001,
    "weight_decay": 1e-6,
    "gradient_clip": 0.5,
}


@pytest.fixture
def xgb_of():
    return lambda **changes: TvmXgbModel(TvmXgbSettings(**{**XGB, **changes}), None, None, 0)


@pytest.fixture
def mlp_of(conf_of):
    from hydra.utils import instantiate

    trainer = instantiate(conf_of("trainer", "default"))
    return lambda **changes: TvmMlpModel(TvmMlpSettings(**{**MLP, **changes}), None, trainer, 0)


def without_stores(programs, bare):
    """The same programs, those of the rows `bare` without a row of stores."""
    view = programs.view("per_store")
    counts = view.counts("row")
    owner = np.repeat(np.arange(len(programs)), counts)
    counts[bare] = 0
    rows = dataclasses.replace(
        view, row_offset=np.concatenate([[0], np.cumsum(counts)]), values=view.values[~np.isin(owner, bare)]
    )
    sources = {**programs.sources, "per_store": rows}
    return dataclasses.replace(programs, sources=sources, rows=np.arange(len(programs)))


def test_trees_are_those_that_tvm_grows_of_the_same_rows(split, metric_log, xgb_of):
    train, valid = split
    model = xgb_of(stop_on="train", rounds=12)
    model.fit(train, valid, metric_log)

    load_tvm()
    theirs = importlib.import_module("tvm.s_tir.meta_schedule.cost_model.xgb_model")
    config = theirs.XGBConfig(max_depth=4, gamma=0.001, min_child_weight=0.0, eta=0.2, seed=0, nthread=1)
    peer = theirs.XGBModel(config=config, verbose_eval=0)
    ordered = by_workload(train)
    best = {one: ordered.log_seconds[ordered.workload == one].min() for one in np.unique(ordered.workload)}
    labels = np.exp([best[one] - time for one, time in zip(ordered.workload, ordered.log_seconds, strict=True)])
    packed = theirs.PackSum(xs=rows_of_stores(ordered), ys=labels.astype(np.float32))
    booster = importlib.import_module("xgboost").train(
        config.to_dict(), packed.dmatrix, num_boost_round=12, obj=lambda scores, _: packed.obj_square_error(scores)
    )
    peer.booster = booster
    np.testing.assert_allclose(-model.predict(valid), peer._predict(rows_of_stores(valid)), rtol=1e-3, atol=1e-4)


def test_validation_ends_the_trees_and_keeps_the_best(split, metric_log, xgb_of):
    train, valid = split
    model = xgb_of(rounds=300, patience=5)
    model.fit(train, valid, metric_log)
    last = max(step for step, _ in metric_log.rows)
    assert last < 299
    assert model._booster.num_boosted_rounds() <= last + 4
    assert np.isfinite(model.predict(valid)).all()


@pytest.mark.parametrize("kind", ["xgb", "mlp"])
def test_programs_without_a_store_have_a_score_and_are_not_learned_from(split, metric_log, xgb_of, mlp_of, kind):
    train, valid = split
    train, valid = without_stores(train, [0, len(train) - 1]), without_stores(valid, [0, len(valid) - 1])
    model = xgb_of() if kind == "xgb" else mlp_of()
    model.fit(train, valid, metric_log)
    prediction = model.predict(valid)
    assert np.isfinite(prediction).all()
    assert prediction[0] == prediction[-1]
    assert np.ptp(prediction) > 0
    with pytest.raises(MalformedDataError, match="per_store"):
        model.fit(without_stores(train, np.arange(len(train))), valid, metric_log)


def test_groups_are_the_workloads(split):
    programs = by_workload(split[0])
    groups = store_groups(programs)
    assert [len(group.rows) for group in groups] == np.bincount(programs.workload).tolist()
    np.testing.assert_allclose(
        np.log(np.concatenate([group.run_seconds for group in groups])), programs.log_seconds, rtol=1e-5
    )
    np.testing.assert_array_equal(
        np.concatenate([rows for group in groups for rows in group.rows]), programs.view("per_store").values
    )


@pytest.mark.parametrize("held_out", [0, 1, 17])
def test_the_network_trains_whatever_is_left_over_for_the_last_batch(split, metric_log, mlp_of, held_out):
    train, valid = split
    # 65 programs in batches of 16: the last one has one
    train, valid = train.select(np.arange(65)), valid.select(np.arange(held_out))
    model = mlp_of()
    model.fit(train, valid, metric_log)
    assert [step for step, _ in metric_log.rows] == [0, 1, 2, 3]
    assert np.isfinite(model.predict(train)).all()


def test_training_leaves_nothing_behind(split, metric_log, mlp_of, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    schedule, before = torch.optim.lr_scheduler.StepLR, random.getstate()
    model = mlp_of()
    model.fit(*split, metric_log)
    assert torch.optim.lr_scheduler.StepLR is schedule
    assert random.getstate() == before
    theirs = importlib.import_module("tvm.s_tir.meta_schedule.cost_model.mlp_model")
    assert theirs.random is random
    assert theirs.tempfile is tempfile
    assert list(tmp_path.iterdir()) == []


def test_larger_programs_beside_it_do_not_change_the_score_of_one(split, metric_log, mlp_of):
    train, valid = split
    model = mlp_of()
    model.fit(train, valid, metric_log)
    view = valid.view("per_store")
    first = view.row_offset[1]
    values = view.values.copy()
    values[first:] *= 1000
    larger = dataclasses.replace(view, values=values)
    beside = dataclasses.replace(valid, sources={"per_store": larger}, rows=np.arange(len(valid)))
    np.testing.assert_allclose(model.predict(beside)[0], model.predict(valid)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "good", "key", "value"),
    [
        (TvmXgbSettings, XGB, "rounds", 0),
        (TvmXgbSettings, XGB, "stop_on", "test"),
        (TvmXgbSettings, XGB, "eta", -1.0),
        (TvmMlpSettings, MLP, "epochs", 0),
        (TvmMlpSettings, MLP, "learning_rate", float("nan")),
    ],
)
def test_a_value_that_cannot_work_names_its_key(kind, good, key, value):
    with pytest.raises(ConfigError, match=f"model.settings.{key}={value}"):
        kind(**{**good, key: value})
