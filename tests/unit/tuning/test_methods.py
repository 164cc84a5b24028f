"""What a tuning that is gone on with must agree in: every setting of a method that changes what it finds."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.models.random_model import RandomModel
from kernelcast.models.saved import save_model
from kernelcast.tuning.learning import Frozen, Refit
from kernelcast.tuning.methods import Inspect, Random, Trained, TvmMlp, TvmXgb

METHOD = Trained("a", Refit(), draft="b", inspect=Inspect("b", Refit()))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two trained models, and the first one once more elsewhere."""
    for seed, name in enumerate(("a", "b")):
        save_model(RandomModel(None, None, seed), tmp_path / name / "model")
    shutil.copytree(tmp_path / "a", tmp_path / "moved")
    return tmp_path


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("the model of method.model", replace(METHOD, model="b")),
        ("the model of method.draft", replace(METHOD, draft="a")),
        ("the model of method.draft", replace(METHOD, draft=None)),
        ("method.verify_share", replace(METHOD, verify_share=0.5)),
        ("method.learning._target_", replace(METHOD, learning=Frozen())),
        ("method.learning.least_trials", replace(METHOD, learning=Refit(least_trials=9))),
        ("the model of method.inspect.model", replace(METHOD, inspect=Inspect("a", Refit()))),
        ("method.inspect.learning.most_trials", replace(METHOD, inspect=Inspect("b", Refit(most_trials=9)))),
        ("method.inspect.factor", replace(METHOD, inspect=Inspect("b", Refit(), factor=3))),
        ("method.inspect.breadth", replace(METHOD, inspect=Inspect("b", Refit(), breadth=0.0))),
        ("method.inspect.build_seconds", replace(METHOD, inspect=Inspect("b", Refit(), build_seconds=3.0))),
        ("method.inspect", replace(METHOD, inspect=None)),
    ],
)
def test_another_setting_is_another_tuning(root: Path, key: str, changed: Trained) -> None:
    before, after = METHOD.identity(root), changed.identity(root)
    differing = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert any(name == key or name.startswith(f"{key}.") for name in differing)
    # and nothing else that was not changed
    assert all(name.startswith(key.rpartition(".")[0]) or key.rpartition(".")[2] in name for name in differing)


def test_where_a_model_lies_and_what_a_method_is_called_changes_nothing(root: Path) -> None:
    same = replace(METHOD, model=str(root / "moved"), name="mine", any_target=True)
    assert same.identity(root) == METHOD.identity(root)


def test_what_has_no_settings_is_told_by_its_name(root: Path) -> None:
    assert [method.identity(root) for method in (TvmXgb(), TvmMlp(), Random())] == [{}, {}, {}]


def test_a_model_that_is_not_there_is_missed(root: Path) -> None:
    changed: Any = replace(METHOD, model="nowhere")
    with pytest.raises(MissingInputError, match="nowhere"):
        changed.identity(root)
    inspecting = replace(METHOD, inspect=Inspect("nowhere", Refit()))
    # no stage of the pipeline makes it
    with pytest.raises(MissingInputError, match=r"inspect\.model: .*/nowhere; .*features=machine_code.*output=nowhere"):
        inspecting.inspector(root)


@pytest.mark.parametrize("breadth", [-1.0, float("nan"), float("inf"), True])
def test_a_doubt_that_is_none_is_named(breadth: float) -> None:
    with pytest.raises(ConfigError, match=f"method.inspect.breadth={breadth}: a number from 0"):
        Inspect("a", Refit(), breadth=breadth)
