import dataclasses
import json

import numpy as np
import pytest

from kernelcast.errors import KernelcastError, MalformedDataError, MissingInputError
from kernelcast.models.saved import MODEL_FILE, load_model, save_model

LEARNED = ("gcn", "xgboost")


@pytest.fixture(scope="module", params=LEARNED)
def fitted(request, model_of, programs_of):
    programs = programs_of(workloads=2, per_workload=8)
    log = type("Silent", (), {"metrics": lambda self, values, step: None})()
    model = model_of(request.param, max_epochs=1)
    model.fit(programs, programs, log)
    return model, programs


@pytest.fixture
def saved(fitted, tmp_path):
    save_model(fitted[0], tmp_path / "model")
    return tmp_path / "model"


def test_description_says_what_the_model_is(saved):
    description = json.loads((saved / MODEL_FILE).read_text())
    assert description["kind"] == "rank"
    assert description["class"].startswith("kernelcast.models.")
    assert "numpy" in description["libraries"]


def test_nothing_in_a_saved_model_is_a_pickle(saved):
    names = {file.name for file in saved.iterdir()}
    assert names <= {MODEL_FILE, "settings.json", "weights.safetensors", "trees.ubj"}


def test_saving_again_replaces_the_whole_model(fitted, saved):
    (saved / "left-over").write_text("of an older model")
    save_model(fitted[0], saved)
    assert not (saved / "left-over").exists()
    np.testing.assert_array_equal(load_model(saved).predict(fitted[1]), fitted[0].predict(fitted[1]))


def test_a_model_saved_again_after_loading_is_the_same(fitted, saved, tmp_path):
    save_model(load_model(saved), tmp_path / "copy")
    first, second = (json.loads((folder / MODEL_FILE).read_text()) for folder in (saved, tmp_path / "copy"))
    assert first == second


def test_an_unfitted_model_is_not_saved(model_of, tmp_path):
    for name in LEARNED:
        with pytest.raises(KernelcastError, match="not been fitted"):
            save_model(model_of(name), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_no_model_names_the_command_that_makes_one(tmp_path):
    with pytest.raises(MissingInputError, match="dvc repro train"):
        load_model(tmp_path / "nothing")


def test_every_missing_file_is_named(saved):
    for file in sorted(saved.iterdir()):
        content = file.read_bytes()
        file.unlink()
        with pytest.raises(MissingInputError, match=file.name):
            load_model(saved)
        file.write_bytes(content)


def test_every_torn_file_is_named(saved):
    for file in sorted(saved.iterdir()):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2])
        with pytest.raises(MalformedDataError, match=file.name):
            load_model(saved)
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("version", 99, "version 99"),
        ("class", "os.system", "os.system"),
        ("class", "kernelcast.models.saved.hashlib", "hashlib"),
        ("class", "kernelcast.models.no_such.Model", "no_such"),
        ("class", "kernelcast.models.trainer.TrainerSettings", "no cost model"),
        ("class", None, "None"),
        ("files", {"../settings.json": "0"}, "does not list"),
        ("files", None, "does not list"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(saved, entry, value, message):
    path = saved / MODEL_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), entry: value}))
    with pytest.raises(MalformedDataError, match=message):
        load_model(saved)


def test_settings_that_do_not_fit_are_refused(fitted, tmp_path):
    model, _ = fitted
    directory = tmp_path / "model"
    directory.mkdir()
    model.save(directory)
    settings = json.loads((directory / "settings.json").read_text())
    for name in sorted(settings):
        without = {key: value for key, value in settings.items() if key != name}
        (directory / "settings.json").write_text(json.dumps(without))
        with pytest.raises(MalformedDataError, match=f"{name}.*dvc repro train|lacks|{name}"):
            type(model).load(directory)


def test_programs_of_another_feature_version_are_refused(fitted, saved):
    other = dataclasses.replace(fitted[1], feature_version="2-other")
    with pytest.raises(MalformedDataError, match="2-other"):
        load_model(saved).predict(other)
