"""The sweeper under the launchers that run jobs elsewhere, and many processes at one study."""

import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import optuna
import pytest
from optuna import load_study
from optuna.trial import TrialState
from packaging.version import Version

from hydra_plugins.kernelcast_optuna._sweep import storage_told
from kernelcast.errors import StorageError
from kernelcast.stages.studies import open_storage
from tests.unit.hydra_plugins.kernelcast_optuna.conftest import Application

COMPLETE, FAIL = TrialState.COMPLETE, TrialState.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["submitit_local", "ray"])
def test_trials_of_other_launchers_end_as_what_they_are(application: Application, launcher: str) -> None:
    space = "hydra.sweeper.space.x='choice(0,2,3)'"
    application.succeed(f"hydra/launcher={launcher}", "hydra.sweeper.jobs=2", space, "hydra.sweeper.trials=5", "seed=1")
    trials = application.study.trials
    assert {trial.params["x"] for trial in trials} == {0, 2, 3}
    assert [trial.state for trial in trials] == [FAIL if trial.params["x"] == 2 else COMPLETE for trial in trials]
    assert all(trial.intermediate_values for trial in trials)
    here = {trial.user_attrs["process"] for trial in trials}
    assert len(here) > 1
    assert sorted(int(folder.name) for folder in application.job_folders()) == [0, 1, 2, 3, 4]


WORKER = """
import sys
from optuna import create_study
from optuna.samplers import RandomSampler
from kernelcast.stages.studies import open_storage
study = create_study(
    study_name="shared", storage=open_storage(sys.argv[1]), load_if_exists=True, sampler=RandomSampler()
)
for _ in range(10):
    trial = study.ask()
    for step in range(5):
        trial.report(trial.suggest_float("x", 0, 1), step)
    study.tell(trial, trial.params["x"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_four_processes_and_a_reader_share_a_study(kind: str, tmp_path: Path) -> None:
    # OPT-01
    storage = str(tmp_path / "study.journal") if kind == "journal" else f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(study_name="shared", storage=open_storage(storage))
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(len(load_study(study_name="shared", storage=open_storage(storage)).trials))
            time.sleep(0.05)

    reader = threading.Thread(target=read)
    reader.start()
    command = [sys.executable, "-c", WORKER, storage]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    told = [worker.communicate()[1] for worker in workers]
    done.set()
    reader.join()
    assert [worker.returncode for worker in workers] == [0] * 4, told
    assert not any("locked" in each for each in told)
    trials = load_study(study_name="shared", storage=open_storage(storage)).trials
    assert [trial.state for trial in trials] == [COMPLETE] * 40
    assert [trial.number for trial in trials] == list(range(40))
    assert seen == sorted(seen)
    assert len(set(seen)) > 2


@pytest.mark.parametrize(
    ("storage", "told"),
    [
        ("nonsense://host/studies", "nonsense"),
        ("oracle://me:secret@host/studies", "driver"),
        ("sqlite:////dev/null/studies.db", "cannot write"),
    ],
)
def test_a_storage_that_cannot_be_opened_is_one_message_without_its_password(storage: str, told: str) -> None:
    with pytest.raises(Exception, match=re.escape(told)) as error:
        open_storage(storage)
    assert "secret" not in str(error.value)


def test_a_database_that_breaks_in_the_middle_of_a_sweep_is_one_message(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/studies.db"
    study = optuna.create_study(storage=open_storage(storage))
    with closing(sqlite3.connect(tmp_path / "studies.db")) as connection, connection:
        connection.execute("DROP TABLE trials")
    told = r"studies\.db cannot be read or written now: .*the same line goes on"
    with pytest.raises(StorageError, match=told), storage_told(storage):
        study.ask()


def test_optuna_hydra_and_the_launchers_fit_together_as_released() -> None:
    # HYD-01, HYD-02
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    for package in ("hydra-core", "omegaconf", "optuna", "sqlalchemy"):
        assert not Version(version(package)).is_prerelease, package
    assert Version(version("optuna")).major == 5
