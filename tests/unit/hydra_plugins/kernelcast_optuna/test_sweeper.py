"""The sweeper as it is used: what ends well or badly, what is kept, what is refused, what a kill leaves."""

import csv
import json
import re
import subprocess

import pytest
from optuna import Study, load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.unit.hydra_plugins.kernelcast_optuna.conftest import Application, make_application

COMPLETE, FAIL, PRUNED, RUNNING = TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING

EVERY_END = "hydra.sweeper.space.x='choice(0,1,2,3,4)'"
WELL = "hydra.sweeper.space.x='choice(0,3)'"
WIDE = "hydra.sweeper.space.x='interval(5.0,9.0)'"


def trials(number: int) -> str:
    return f"hydra.sweeper.trials={number}"


def study(name: str) -> str:
    return f"hydra.sweeper.study={name}"


# by name: a line, and what is told when it is refused
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "another space": (("hydra.sweeper.space.x='choice(0,7)'", trials(2)), "trials from another space"),
    "another setting": (("seconds=0.1",), "was begun with other settings"),
    "another direction": (("direction=minimize",), "was begun with other settings"),
    "no such key": ((study("other"), "y=range(1,3)"), "would choose y, which the configuration does not have"),
    "no single values": ((study("other"), "x=choice([1],[2])"), "a study takes choice(...) of single values"),
    "two jobs in one process": ((study("other"), "hydra.sweeper.jobs=2"), "add hydra/launcher=joblib"),
    "no trials": ((study("other"), trials(0)), "hydra.sweeper.trials=0: it must be 1 or more"),
    "less than no trials": ((study("other"), trials(-1)), "hydra.sweeper.trials=-1: it must be 1 or more"),
    "no storage": ((study("other"), "hydra.sweeper.storage=nonsense://x"), "nonsense"),
    "no driver": ((study("other"), "hydra.sweeper.storage=mysql+aiomysql://x/y"), "kernelcast[mysql]"),
    "in memory": ((study("other"), "hydra.sweeper.storage=sqlite://"), "in the memory of one process"),
    "no name": (("hydra.sweeper.study=''",), "hydra.sweeper.study is empty"),
    "a folder": ((study("other"), "hydra.sweeper.storage=conf"), "Is a directory"),
}

LINES: dict[str, tuple[str, ...]] = {
    "every end": (study("every"), EVERY_END, trials(12), "seed=1"),
    "two": (study("on"), WIDE, trials(2)),
    "four": (study("on"), WIDE, trials(4)),
    "fewer than there are": (study("on"), WIDE, trials(3)),
    "a wider space": (study("on"), WIDE.replace("9.0", "9.5"), trials(5)),
    "to the first failure": (study("stop"), EVERY_END, trials(12), "hydra.sweeper.stop_on_failure=true", "seed=1"),
    "nothing": (study("nothing"), "hydra.sweeper.space.x='choice(1,2)'", trials(3)),
    "smallest": (study("smallest"), WELL, trials(4), "seed=1", "direction=minimize"),
    "one": (WELL, trials(1)),
    **{f"refused: {name}": line for name, (line, _) in REFUSED.items()},
    "sqlite": (study("kept"), WELL, "hydra.sweeper.storage=sqlite:///studies.db", trials(2)),
    "sqlite, on": (study("kept"), WELL, "hydra.sweeper.storage=sqlite:///studies.db", trials(3)),
}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Application:
    return make_application(tmp_path_factory.mktemp("used"))


@pytest.fixture(scope="module")
def answers(used: Application) -> dict[str, tuple[int, str]]:
    """Exit status and output of all `LINES`, in this order."""
    return used.run_together(LINES)


def test_each_trial_ends_as_what_it_is_and_the_rest_go_on(used: Application, answers) -> None:
    status, printed = answers["every end"]
    assert status == 0, printed
    study = used.study_of("every")
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
    # as it is typed
    assert re.search(r"best trial \d+: .* with (\S+=\S+ ?)+$", printed, re.MULTILINE)
    # the reason is printed with each, in a table at the end, and the trace is in the job's own log
    assert "its objective is nan, not a finite number" in printed
    assert "RuntimeError: the third value is broken" in printed
    counts = {state: [trial.state for trial in study.trials].count(state) for state in (COMPLETE, FAIL, PRUNED)}
    assert f"{counts[COMPLETE]} COMPLETE, {counts[FAIL]} FAIL, {counts[PRUNED]} PRUNED" in printed
    assert "trials of the study every" in printed
    for folder in used.job_folders("every"):
        log = (folder / "app.log").read_text()
        assert ("Traceback" in log and "in main" in log) == (study.trials[int(folder.name)].params["x"] == 2)
    assert len(used.job_folders("every")) == 12
    # HYD-07: study, table, plots beside the sweep
    (record,) = used.root.glob("runs/sweeps/every/*/study")
    copy = load_study(study_name="every", storage=JournalStorage(JournalFileBackend(str(record / "study.journal"))))
    assert [trial.state for trial in copy.trials] == used.states("every")
    with (record / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["state"] for row in rows] == [state.name for state in used.states("every")]
    assert all(row["params_x"] for row in rows)
    page = (record / "study.html").read_text()
    assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']https?:""", page)
    for plot in ("Optimization History Plot", "Hyperparameter Importances", "Intermediate Values Plot"):
        assert plot in page
    summary = json.loads((record / "summary.json").read_text())
    assert summary["best"] == {"trial": study.best_trial.number, "value": 3.0, "params": {"x": 3}, "run_id": None}


def test_a_study_that_goes_on_numbers_on_and_draws_nothing_again(used: Application, answers) -> None:
    # HYD-05: a folder of its own for every job
    for name in ("two", "four", "fewer than there are", "a wider space"):
        assert answers[name][0] == 0, answers[name][1]
    assert len({trial.params["x"] for trial in used.study_of("on").trials}) == 5
    assert sorted(int(folder.name) for folder in used.job_folders("on")) == [0, 1, 2, 3, 4]
    assert "nothing to do: raise hydra.sweeper.trials" in answers["fewer than there are"][1]


def test_the_first_failure_ends_the_sweep_where_that_is_asked_for(used: Application, answers) -> None:
    status, printed = answers["to the first failure"]
    assert status != 0
    assert "hydra.sweeper.stop_on_failure is set" in printed
    *before, last = used.states("stop")
    assert last == FAIL
    assert FAIL not in before
    assert len(before) < 11


def test_a_sweep_of_which_nothing_comes_is_an_error(used: Application, answers) -> None:
    status, printed = answers["nothing"]
    assert status != 0
    assert "no trial of the study nothing came to its end" in printed
    assert used.states("nothing") == [FAIL] * 3


def test_the_direction_says_which_trial_is_the_best(used: Application, answers) -> None:
    assert answers["smallest"][0] == 0
    assert {trial.value for trial in used.study_of("smallest").trials} == {0.0, 3.0}
    assert "x = 0.0000 with x=0" in answers["smallest"][1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_before_any_trial(answers, name: str) -> None:
    status, printed = answers[f"refused: {name}"]
    assert status != 0
    assert REFUSED[name][1] in printed


def test_what_was_refused_has_left_no_trial(used: Application, answers) -> None:
    trials = used.study.trials
    assert [trial.state for trial in trials if trial.state != FAIL] == [COMPLETE]
    assert len(used.job_folders()) == 1
    assert used.job_folders("other") == []


def test_a_study_in_sqlite_is_read_by_others_and_gone_on_with(used: Application, answers) -> None:
    # HYD-02
    assert [answers[name][0] for name in ("sqlite", "sqlite, on")] == [0, 0]
    study = load_study(study_name="kept", storage=f"sqlite:///{used.root}/studies.db")
    assert [trial.state for trial in study.trials] == [COMPLETE] * 3
    assert study.trials[0].intermediate_values == {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}


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


def of_two(study: Study) -> bool:
    """Two trials have ended and two run."""
    states = [trial.state for trial in study.trials if "process" in trial.user_attrs]
    return states.count(COMPLETE) >= 2 and states.count(RUNNING) == 2


TWO_JOBS = ("hydra/launcher=joblib", "hydra.sweeper.jobs=2", WELL, "hydra.sweeper.trials=6")


@pytest.mark.slow
def test_two_trials_at_a_time_and_a_worker_that_is_killed_takes_none_with_it(application: Application) -> None:
    # HYD-11, OPT-02
    with application.start(*TWO_JOBS, "seconds=2.0") as sweep:
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
    assert len({folder.name for folder in application.job_folders()}) == len(application.job_folders())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["INT", "TERM", "KILL"])
def test_an_interrupted_sweep_goes_on_to_its_number_of_trials(application: Application, how: str) -> None:
    # HYD-05
    with application.start(*TWO_JOBS, "seconds=2.0") as sweep:
        application.wait_for(of_two)
        subprocess.run(["kill", f"-{how}", str(sweep.pid)], check=True)
    assert sweep.returncode != 0
    left = application.states()
    folders = {folder: (folder / "app.log").stat().st_mtime_ns for folder in application.job_folders()}
    if how != "KILL":
        assert RUNNING not in left
    application.succeed(*TWO_JOBS, "seconds=2.0")
    trials = application.study.trials
    counted = [trial for trial in trials if not trial.user_attrs.get("interrupted")]
    assert [trial.state for trial in counted] == [COMPLETE] * 6
    assert RUNNING not in application.states()
    new = [folder for folder in application.job_folders() if folder not in folders]
    assert min(int(folder.name) for folder in new) > max(int(folder.name) for folder in folders)
    assert {folder: (folder / "app.log").stat().st_mtime_ns for folder in folders} == folders
