"""What every cost model must do, whichever file of conf/model makes it."""

import dataclasses
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from hydra.utils import get_class

from kernelcast.errors import KernelcastError, MalformedDataError
from kernelcast.graphs.dataset.store import Description, StoredTarget, StoredWorkload, write_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.models.protocol import PredictionKind
from kernelcast.models.saved import save_model
from kernelcast.models.validation import mean_kendall_tau

CONF = Path(__file__).resolve().parents[3] / "conf"
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
LOSSES = sorted(path.stem for path in (CONF / "loss").glob("*.yaml"))


def class_of(name):
    return get_class(yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())["_target_"])


def has_choice(name):
    return name in LEARNED and name not in OWN_LOSS and name not in VARIANTS


LEARNED = [name for name in MODELS if class_of(name).learned]
OWN_LOSS = ("tvm_mlp", "tvm_xgb")  # whatever the configuration says they minimise, and predict an order
VARIANTS = ("ensemble_machine_code",)  # the classes of another file with other columns: one loss is enough
# of made-up programs the estimate says nothing; test_estimate_table and test_machine_code have others
ESTIMATING = ("lightgbm_estimate", "lightgbm_machine_code")
SEEDLESS = ("analytical", "machine_code", "roofline", "tvm_xgb")  # nothing in them is random
# one loss of order and one of time for every model; the others with one quick network, since only they differ then
MAIN_LOSSES = ("rank", "log_mse")
QUICK = "mlp_segment"
CASES = [
    *((model, loss) for model in MODELS for loss in (MAIN_LOSSES if has_choice(model) else ("rank",))),
    *((QUICK, loss) for loss in LOSSES if loss not in MAIN_LOSSES),
]
LEARNING = [(model, loss) for model, loss in CASES if model in LEARNED and model not in ESTIMATING]

# a process that has neither the configuration nor this test
LOAD_AND_PREDICT = """
import sys
from pathlib import Path

import numpy as np

from kernelcast.graphs.dataset.store import read_programs
from kernelcast.models.saved import load_model

folder = Path(sys.argv[1])
programs = read_programs(folder / "programs")
models = {path.name: load_model(path) for path in sorted((folder / "models").iterdir())}
np.savez(folder / "predictions.npz", **{name: model.predict(programs) for name, model in models.items()})
np.savez(folder / "kinds.npz", **{name: np.array(model.kind.value) for name, model in models.items()})
"""


class Metrics:
    def __init__(self):
        self.rows = []

    def metrics(self, values, step):
        self.rows.append((step, dict(values)))


@pytest.fixture(scope="module")
def data(programs_of):
    programs = programs_of()
    rows = np.random.default_rng(1).permutation(len(programs))
    return programs, programs.select(np.sort(rows[:72])), programs.select(np.sort(rows[72:]))


@pytest.fixture(scope="module")
def fitted(model_of, data):
    models, logs = {}, {}
    for name, loss in CASES:
        models[name, loss], logs[name, loss] = model_of(name, loss, max_epochs=30), Metrics()
        models[name, loss].fit(data[1], data[2], logs[name, loss])
    return models, logs


@pytest.fixture(scope="module")
def elsewhere(fitted, data, tmp_path_factory):
    """Predictions and kinds of all models, saved here and loaded in one new process in an empty folder."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "programs").mkdir()
    workloads = tuple(StoredWorkload(name, name, name, {}, {}) for name in data[0].workload_names)
    targets = (StoredTarget({}, "", data[0].machines[0], "none"),)
    description = Description(workloads, targets, "made up", ViewOptions())
    write_programs(folder / "programs", data[0], description)
    for (name, loss), model in fitted[0].items():
        save_model(model, folder / "models" / f"{name}-{loss}")
    (folder / "empty").mkdir()
    subprocess.run([sys.executable, "-c", LOAD_AND_PREDICT, str(folder)], cwd=folder / "empty", check=True, timeout=240)
    return np.load(folder / "predictions.npz"), np.load(folder / "kinds.npz")


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_predictions_are_one_finite_number_a_program(fitted, data, name, loss):
    prediction = fitted[0][name, loss].predict(data[0])
    assert prediction.shape == (len(data[0]),)
    assert prediction.dtype == np.float64
    assert np.isfinite(prediction).all()


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_a_new_process_predicts_the_same_without_the_configuration(fitted, elsewhere, data, name, loss):
    # HYD-12, XGB-03
    model = fitted[0][name, loss]
    predictions, kinds = elsewhere
    np.testing.assert_array_equal(predictions[f"{name}-{loss}"], model.predict(data[0]))
    assert kinds[f"{name}-{loss}"].item() == model.kind.value


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_company_does_not_change_a_prediction(fitted, data, name, loss):
    programs = data[0]
    model = fitted[0][name, loss]
    together = model.predict(programs)
    rows = [0, 40, 95]
    alone = np.concatenate([model.predict(programs.select(np.array([row]))) for row in rows])
    np.testing.assert_allclose(alone, together[rows], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        model.predict(programs.select(np.arange(96)[::-1])), together[::-1], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("name", "loss"), LEARNING)
def test_learns_the_order_of_what_it_was_shown(fitted, data, name, loss):
    train = data[1]
    prediction = fitted[0][name, loss].predict(train)
    assert mean_kendall_tau(prediction, train.log_seconds, train.workload) > 0.5


@pytest.mark.parametrize("name", [name for name in LEARNED if has_choice(name) and name not in ESTIMATING])
def test_predicts_time_in_log_seconds(fitted, data, name):
    model, train = fitted[0][name, "log_mse"], data[1]
    assert model.kind is PredictionKind.LOG_SECONDS
    error = np.sqrt(np.mean((model.predict(train) - train.log_seconds) ** 2))
    assert error < 0.5 * np.std(train.log_seconds)


def curves_of(rows, members):
    """What was logged by step, for each of the members that a name begins with; "" for a model without members."""
    curves = {}
    for step, values in rows:
        of_member = {}
        for name, value in values.items():
            first, _, rest = name.partition("/")
            member, metric = (first, rest) if first in members else ("", name)
            of_member.setdefault(member, {})[metric] = value
        for member, named in of_member.items():
            curves.setdefault(member, []).append((step, named))
    return curves


@pytest.mark.parametrize("name", LEARNED)
def test_logs_training_and_validation_by_step(fitted, name):
    members = {"gcn", "graphsage", "lightgbm"} if name.startswith("ensemble") else {""}
    curves = curves_of(fitted[1][name, "rank"].rows, members)
    assert set(curves) == members
    for rows in curves.values():
        steps = [step for step, _ in rows]
        assert steps == sorted(set(steps))
        assert steps[0] == 0
        assert all({"train/loss", "valid/loss", "valid/kendall_tau"} <= set(values) for _, values in rows)
        assert all(np.isfinite(list(values.values())).all() for _, values in rows)


@pytest.mark.parametrize("name", MODELS)
def test_equal_seeds_give_equal_models_and_leave_the_random_state_alone(model_of, data, name):
    # PYG-06, on a processor; test_train.py asks the same of a whole run
    import torch

    _, train, valid = data

    def predictions(seed):
        model = model_of(name, seed=seed, max_epochs=2)
        model.fit(train, valid, Metrics())
        return model.predict(valid)

    before = torch.random.get_rng_state(), random.getstate(), torch.get_num_threads()
    first = predictions(5)
    after = torch.random.get_rng_state(), random.getstate(), torch.get_num_threads()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    torch.manual_seed(99)
    np.testing.assert_array_equal(first, predictions(5))
    if name not in SEEDLESS:
        assert not np.array_equal(first, predictions(6))


@pytest.mark.parametrize("name", MODELS)
def test_no_programs_give_no_predictions(fitted, data, name):
    nothing = data[0].select(np.zeros(0, dtype=np.int64))
    assert fitted[0][name, "rank"].predict(nothing).shape == (0,)


@pytest.mark.parametrize("name", MODELS)
def test_no_validation_programs_are_no_error(model_of, data, name):
    _, train, valid = data
    model = model_of(name, max_epochs=2)
    model.fit(train, valid.select(np.zeros(0, dtype=np.int64)), Metrics())
    assert np.isfinite(model.predict(valid)).all()


@pytest.mark.parametrize("name", MODELS)
def test_another_feature_version_is_refused(fitted, data, name):
    other = dataclasses.replace(data[0], feature_version="2-other")
    with pytest.raises(MalformedDataError, match="2-other"):
        fitted[0][name, "rank"].predict(other)


@pytest.mark.parametrize("name", MODELS)
def test_predicting_before_fitting_is_refused(model_of, data, name):
    with pytest.raises(KernelcastError, match="not been fitted"):
        model_of(name).predict(data[0])


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("trouble", ["nothing", "not_finite", "no_pairs"])
def test_programs_that_teach_nothing_are_refused(model_of, data, name, trouble):
    _, train, valid = data
    if trouble == "nothing":
        bad = train.select(np.zeros(0, dtype=np.int64))
    elif trouble == "not_finite":
        bad = dataclasses.replace(train, log_seconds=np.where(np.arange(len(train)) == 3, np.inf, train.log_seconds))
    else:
        bad = train.select(np.unique(train.workload, return_index=True)[1])
    with pytest.raises(KernelcastError, match=r"nothing to rank|no programs|not a finite number"):
        model_of(name).fit(bad, valid, Metrics())
