"""The sweeper in real processes: what ends well or badly, what is kept, what is refused."""

import csv
import json
import re
import subprocess

import pytest
from optuna import Study, load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.unit.hydra_plugins.kernelcast_optuna.conftest import Application

COMPLETE, FAIL, PRUNED, RUNNING = TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING

EVERY_END = "hydra.sweeper.space.x='choice(0,1,2,3,4)'"
WELL = "hydra.sweeper.space.x='choice(0,3)'"
WIDE = "hydra.sweeper.space.x='interval(5.0,9.0)'"


def test_each_trial_ends_as_what_it_is_and_the_rest_go_on(application: Application) -> None:
    printed = application.succeed(EVERY_END, "hydra.sweeper.trials=12", "seed=1")
    study = application.study
    assert len(study.trials) == 12
    assert {trial.params["x"] for trial in study.trials} == {0, 1, 2, 3, 4}
    # HYD-03: NaN is a failure, and the best of the rest is told
    # HYD-04: so is an error
    # HYD-06, OPT-04: a bad curve is pruned, once there is one to compare with
    first_end = next(trial.number for trial in study.trials if trial.state == COMPLETE)
    for trial in study.trials:
        unpruned = COMPLETE if trial.number <= first_end else PRUNED
        expected = {0: COMPLETE, 1: FAIL, 2: FAIL, 3: COMPLETE, 4: unpruned}[trial.params["x"]]
        assert trial.state == expected, trial
        assert set(trial.intermediate_values) == ({0, 1} if expected == PRUNED else {0, 1, 2, 3})
    assert study.best_value == 3
    assert "best trial" in printed
    # the reason is printed with each, in a table at the end, and the trace is in the job's own log
    assert "its objective is nan, not a finite number" in printed
    assert "RuntimeError: the third value is broken" in printed
    counts = {state: [trial.state for trial in study.trials].count(state) for state in (COMPLETE, FAIL, PRUNED)}
    assert f"{counts[COMPLETE]} COMPLETE, {counts[FAIL]} FAIL, {counts[PRUNED]} PRUNED" in printed
    assert "trials of the study app" in printed
    for folder in application.job_folders:
        log = (folder / "app.log").read_text()
        assert ("Traceback" in log and "in main" in log) == (study.trials[int(folder.name)].params["x"] == 2)
    assert len(application.job_folders) == 12
    # HYD-07: study, table, plots beside the sweep
    (record,) = application.records
    copy = load_study(study_name="app", storage=JournalStorage(JournalFileBackend(str(record / "study.journal"))))
    assert [trial.state for trial in copy.trials] == application.states()
    with (record / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["state"] for row in rows] == [state.name for state in application.states()]
    assert all(row["params_x"] for row in rows)
    page = (record / "study.html").read_text()
    assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?:""", page)
    for plot in ("Optimization History Plot", "Hyperparameter Importances", "Intermediate Values Plot"):
        assert plot in page
    summary = json.loads((record / "summary.json").read_text())
    assert summary["best"] == {"trial": study.best_trial.number, "value": 3.0, "params": {"x": 3}, "run_id": None}


@pytest.mark.slow
def test_a_study_that_goes_on_numbers_on_and_draws_nothing_again(application: Application) -> None:
    for trials in (2, 4):
        application.succeed(f"hydra.sweeper.trials={trials}", WIDE)
    assert len({trial.params["x"] for trial in application.study.trials}) == 4
    # HYD-05: a folder of its own for every job
    assert sorted(int(folder.name) for folder in application.job_folders) == [0, 1, 2, 3]


@pytest.mark.slow
def test_the_first_failure_ends_the_sweep_where_that_is_asked_for(application: Application) -> None:
    done = application.run(EVERY_END, "hydra.sweeper.trials=12", "hydra.sweeper.stop_on_failure=true", "seed=1")
    assert done.returncode != 0
    assert "hydra.sweeper.stop_on_failure is set" in done.stdout
    assert application.states()[-1] == FAIL
    assert FAIL not in application.states()[:-1]
    assert len(application.states()) < 12


@pytest.mark.slow
def test_a_sweep_of_which_nothing_comes_is_an_error(application: Application) -> None:
    done = application.run("hydra.sweeper.space.x='choice(1,2)'", "hydra.sweeper.trials=3")
    assert done.returncode != 0
    assert "no trial of the study app came to its end" in done.stdout
    assert application.states() == [FAIL] * 3


@pytest.mark.slow
def test_what_cannot_work_is_refused_before_any_trial(application: Application) -> None:
    application.succeed(WELL, "hydra.sweeper.trials=1")
    for overrides, told in (
        (("hydra.sweeper.space.x='choice(0,7)'", "hydra.sweeper.trials=2"), "trials from another space"),
        (("seconds=0.1",), "was begun with other settings"),
        (("direction=minimize",), "was begun with other settings"),
        (("hydra.sweeper.study=other", "y=range(1,3)"), "y"),
        (("hydra.sweeper.study=other", "hydra.sweeper.jobs=2"), "add hydra/launcher=joblib"),
        (("hydra.sweeper.study=other", "hydra.sweeper.trials=0"), "hydra.sweeper.trials=0: it must be 1 or more"),
        (("hydra.sweeper.study=other", "hydra.sweeper.storage=nonsense://x"), "nonsense"),
        (("hydra.sweeper.study=other", "hydra.sweeper.storage=mysql+aiomysql://x/y"), "kernelcast[mysql]"),
    ):
        done = application.run(*overrides)
        assert done.returncode != 0, overrides
        assert told in done.stdout + done.stderr, overrides
    trials = application.study.trials
    assert [trial.state for trial in trials if trial.state != FAIL] == [COMPLETE]
    assert len(application.job_folders) == 1


@pytest.mark.slow
def test_a_second_sweep_on_a_study_at_work_is_refused_and_the_first_goes_on(application: Application) -> None:
    slow = (WELL, "seconds=2.0", "hydra.sweeper.trials=4")
    with application.start(*slow) as first:
        application.wait_for(lambda study: bool(study.trials))
        second = application.run(*slow)
    assert second.returncode != 0
    assert "another sweep is at work on the study app" in second.stdout
    assert first.returncode == 0
    assert application.states() == [COMPLETE] * 4


@pytest.mark.slow
def test_a_study_in_sqlite_is_read_by_others_and_gone_on_with(application: Application) -> None:
    # HYD-02
    address = f"sqlite:///{application.root}/studies.db"
    for trials in (2, 3):
        application.succeed(WELL, f"hydra.sweeper.storage={address}", f"hydra.sweeper.trials={trials}")
    study = load_study(study_name="app", storage=address)
    assert [trial.state for trial in study.trials] == [COMPLETE] * 3
    assert study.trials[0].intermediate_values == {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}


def of_two(study: Study) -> bool:
    """Two trials have ended and two run."""
    states = [trial.state for trial in study.trials if "process" in trial.user_attrs]
    return states.count(COMPLETE) >= 2 and states.count(RUNNING) == 2


TWO_JOBS = ("hydra/launcher=joblib", "hydra.sweeper.jobs=2", WELL, "hydra.sweeper.trials=6")


@pytest.mark.slow
def test_two_trials_at_a_time_and_a_worker_that_is_killed_takes_none_with_it(application: Application) -> None:
    # HYD-11, OPT-02
    with application.start(*TWO_JOBS, "seconds=3.0") as sweep:
        application.wait_for(of_two)
        worker = next(trial.user_attrs["process"] for trial in application.study.trials if trial.state == RUNNING)
        subprocess.run(["kill", "-KILL", re.search(r"/(\d+)@", worker)[1]], check=True)
    assert sweep.returncode == 0
    trials = application.study.trials
    assert [trial.state for trial in trials].count(COMPLETE) == 6
    interrupted = [trial for trial in trials if trial.user_attrs.get("interrupted")]
    assert interrupted
    assert all(trial.state == FAIL for trial in interrupted)
    again = {trial.user_attrs["again_of"]: trial.params for trial in trials if "again_of" in trial.user_attrs}
    assert again == {trial.number: trial.params for trial in interrupted}
    assert len(trials) == 6 + len(interrupted)
    first, second, *_ = trials
    assert first.user_attrs["process"] != second.user_attrs["process"]
    assert first.datetime_complete > second.datetime_start
    # what Hydra's launcher says would number every job 0
    assert len({folder.name for folder in application.job_folders}) == len(application.job_folders)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["INT", "TERM", "KILL"])
def test_an_interrupted_sweep_goes_on_to_its_number_of_trials(application: Application, how: str) -> None:
    # HYD-05
    with application.start(*TWO_JOBS, "seconds=4.0") as sweep:
        application.wait_for(of_two)
        subprocess.run(["kill", f"-{how}", str(sweep.pid)], check=True)
    assert sweep.returncode != 0
    left = application.states()
    folders = {folder: (folder / "app.log").stat().st_mtime_ns for folder in application.job_folders}
    if how != "KILL":
        assert RUNNING not in left
    application.succeed(*TWO_JOBS, "seconds=4.0")
    trials = application.study.trials
    counted = [trial for trial in trials if not trial.user_attrs.get("interrupted")]
    assert [trial.state for trial in counted] == [COMPLETE] * 6
    assert RUNNING not in application.states()
    new = [folder for folder in application.job_folders if folder not in folders]
    assert min(int(folder.name) for folder in new) > max(int(folder.name) for folder in folders)
    assert {folder: (folder / "app.log").stat().st_mtime_ns for folder in folders} == folders
