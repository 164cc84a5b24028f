"""The sweeper under a real Hydra application of a few lines."""

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from optuna import Study, load_study
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from hydra_plugins.kernelcast_optuna import distribution_of

CONF = Path(__file__).resolve().parents[3] / "conf"

APPLICATION = """
import math, time
import hydra

@hydra.main(version_base="1.3", config_path="conf", config_name="app")
def main(config):
    if config.x == 1:
        return math.nan
    if config.x == 2:
        raise RuntimeError("the third value is broken")
    time.sleep(config.seconds)
    return float(config.x)

main()
"""

CONFIGURATION = """
defaults:
  - override hydra/sweeper: optuna
x: 0
seconds: 0.0
seed: 0
direction: maximize
objective: x
paths:
  runs: {runs}
hydra:
  sweep:
    dir: {runs}/sweep
  sweeper:
    study: app
    trials: 6
    space:
      x: choice(0, 1, 2, 3)
"""


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """Folder of an application whose job returns NaN for x = 1 and raises for x = 2."""
    shutil.copytree(CONF / "hydra", tmp_path / "conf" / "hydra")
    (tmp_path / "conf" / "app.yaml").write_text(CONFIGURATION.format(runs=tmp_path / "runs"))
    (tmp_path / "app.py").write_text(APPLICATION)
    return tmp_path


def study_of(application: Path) -> Study:
    storage = JournalStorage(JournalFileBackend(str(application / "runs/optuna/app.journal")))
    return load_study(study_name="app", storage=storage)


def command(application: Path, *overrides: str) -> list[str]:
    return [sys.executable, str(application / "app.py"), "-m", *overrides]


def test_nan_and_raising_trials_fail_and_the_rest_go_on(application: Path) -> None:
    done = subprocess.run(
        command(application, "hydra.sweeper.trials=16"), capture_output=True, text=True, cwd=application, check=False
    )
    assert done.returncode == 0, done.stderr
    trials = study_of(application).trials
    assert len(trials) == 16
    assert {trial.params["x"] for trial in trials} == {0, 1, 2, 3}
    for trial in trials:
        failed = trial.params["x"] in (1, 2)
        assert trial.state == (TrialState.FAIL if failed else TrialState.COMPLETE)
    assert study_of(application).best_value == 3


def test_a_killed_study_ends_with_the_number_of_trials_asked_for(application: Path) -> None:
    slow = command(application, "seconds=0.5", "hydra.sweeper.space.x='choice(0, 3)'")
    with subprocess.Popen(slow, cwd=application) as process:
        journal = application / "runs/optuna/app.journal"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (journal.exists() and len(study_of(application).trials) >= 3):
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    before = [trial.number for trial in study_of(application).trials if trial.state == TrialState.COMPLETE]
    assert 0 < len(before) < 6
    subprocess.run(slow, check=True, cwd=application)
    states = [trial.state for trial in study_of(application).trials]
    assert states.count(TrialState.COMPLETE) == 6
    assert TrialState.RUNNING not in states
    subprocess.run(slow, check=True, cwd=application)
    assert len(study_of(application).trials) == len(states)


def test_a_study_that_goes_on_draws_no_trial_again(application: Path) -> None:
    for trials in (2, 4):
        wide = command(application, f"hydra.sweeper.trials={trials}", "hydra.sweeper.space.x='interval(3.0, 9.0)'")
        subprocess.run(wide, check=True, cwd=application)
    assert len({trial.params["x"] for trial in study_of(application).trials}) == 4


def test_a_second_sweep_on_a_study_at_work_is_refused_and_the_first_goes_on(application: Path) -> None:
    slow = command(application, "seconds=1.0", "hydra.sweeper.space.x='choice(0, 3)'")
    with subprocess.Popen(slow, cwd=application) as first:
        journal = application / "runs/optuna/app.journal"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (journal.exists() and study_of(application).trials):
            time.sleep(0.1)
        second = subprocess.run(slow, capture_output=True, text=True, cwd=application, check=False)
    assert second.returncode != 0
    assert "another sweep is at work on the study app" in second.stderr
    assert first.returncode == 0
    assert [trial.state for trial in study_of(application).trials] == [TrialState.COMPLETE] * 6


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("choice(32,64)", CategoricalDistribution([32, 64])),
        ("range(2,6)", IntDistribution(2, 5)),
        ("interval(0.0,0.5)", FloatDistribution(0.0, 0.5)),
        ("tag(log,interval(0.001,0.1))", FloatDistribution(0.001, 0.1, log=True)),
        ("int(interval(1,8))", IntDistribution(1, 8)),
    ],
)
def test_hydra_sweeps_become_distributions(sweep: str, expected: object) -> None:
    assert distribution_of(OverridesParser.create().parse_override(f"x={sweep}")) == expected


@pytest.mark.parametrize("sweep", ["x=range(0.0,1.0,0.5)", "x=choice([1],[2])"])
def test_a_sweep_that_cannot_be_sampled_is_named(sweep: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sweep)):
        distribution_of(OverridesParser.create().parse_override(sweep))
