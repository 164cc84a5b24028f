"""Sweeps of real trainings: how they show in MLflow, what prunes, and what a kill at any moment leaves."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow.entities import Run
from optuna import Study
from optuna.trial import TrialState

from kernelcast.graphs.dataset.store import read_description, write_programs
from kernelcast.graphs.splits import RandomSplit, Rows, SplitWorkload, WorkloadSplit, make_split, write_split
from kernelcast.stages.process_identity import process_may_live
from kernelcast.stages.studies import load_study
from tests.unit.stages.conftest import (
    TARGET,
    WORKLOADS,
    PipelineFolder,
    fresh_database,  # noqa: F401  # a fixture
    made_programs,
    trained_folder,  # noqa: F401  # a fixture
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/train.py"
TWO_JOBS = ("hydra/launcher=joblib", "hydra.sweeper.jobs=2")
TREES = ("hparams_search=xgboost", "split=random", "model.settings.rounds=20")


@dataclass(frozen=True)
class Sweeps:
    """A folder with graphs, and the sweeps in it."""

    root: Path

    def command(self, *overrides: str) -> list[str]:
        return [sys.executable, str(SCRIPT), "-m", f"paths.root={self.root}", *overrides]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def run(self, *overrides: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*overrides), cwd=self.root, env=self.environment, capture_output=True, text=True, check=False
        )

    def succeed(self, *overrides: str) -> str:
        done = self.run(*overrides)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def study(self, name: str) -> Study:
        return load_study(str(self.root / f"runs/optuna/{name}.journal"), name)

    def runs(self, query: str = "") -> list[Run]:
        client = mlflow.MlflowClient(f"sqlite:///{self.root}/runs/mlflow.db")
        experiment = client.get_experiment_by_name("kernelcast")
        return list(client.search_runs([experiment.experiment_id], query))

    def artifacts(self, run: Run) -> set[str]:
        client = mlflow.MlflowClient(f"sqlite:///{self.root}/runs/mlflow.db")
        return {item.path for item in client.list_artifacts(run.info.run_id, "study")}


@pytest.fixture
def sweeps(trained_folder: PipelineFolder, tmp_path: Path) -> Sweeps:  # noqa: F811
    """A folder of its own, in which the time is a V over a feature of the nodes: no order is there from the start."""
    root = trained_folder.copy(tmp_path / "project").root
    graphs = root / "data/graphs"
    description = read_description(graphs)
    programs = made_programs()
    programs.ast.node_features[:, 0] = programs.features.values[:, 0]
    programs.log_seconds[:] = 3.0 * np.abs(2.0 * programs.features.values[:, 0] - 1.0) - 10.0
    shutil.rmtree(graphs)
    graphs.mkdir()
    data_hash = write_programs(graphs, programs, description)
    workloads = tuple(SplitWorkload(f"{name}-key", name, name, {}, {}) for name in WORKLOADS)
    places = (programs.workload.astype(np.int64), programs.target.astype(np.int64))
    rows = Rows(*places, programs.program_key, workloads, (TARGET,))
    for name, splitter in (("random", RandomSplit(0.4, 0.1, 0)), ("workload", WorkloadSplit(0.5, 0.25, 0))):
        write_split(graphs, name, make_split(splitter, rows), rows, data_hash, {"seed": 0})
    return Sweeps(root)


def test_a_study_is_a_parent_with_its_trials_and_goes_on_to_its_number(sweeps: Sweeps) -> None:
    # MLF-07, HYD-07, HYD-11
    for trials, new in ((3, 3), (4, 1), (4, 0)):
        sweeps.succeed(*TREES, *TWO_JOBS, f"hydra.sweeper.trials={trials}")
        parent = sweeps.runs("tags.`kernelcast.stage` = 'sweep'")[0]
        children = sweeps.runs(f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
        assert parent.info.status == "FINISHED", "also a study that had its trials"
        assert [child.info.status for child in children] == ["FINISHED"] * new
        study = sweeps.study("xgboost")
        assert len(study.trials) == trials
        # the best of the whole study, though an earlier sweep found it
        assert parent.data.metrics["best/objective"] == study.best_value
        assert parent.data.params["best.trial"] == str(study.best_trial.number)
        assert float(parent.data.params["best.model.settings.learning_rate"]) == pytest.approx(
            study.best_params["model.settings.learning_rate"]
        )
        assert parent.data.tags["kernelcast.study"] == str(sweeps.root / "runs/optuna/xgboost.journal")
        names = {"study.html", "study.journal", "summary.json", "trials.csv"}
        assert sweeps.artifacts(parent) == {f"study/{name}" for name in names}
        numbers = {child.data.tags["kernelcast.trial"] for child in children}
        assert numbers == {str(number) for number in range(trials - new, trials)}
        for child in children:
            trial = study.trials[int(child.data.tags["kernelcast.trial"])]
            assert child.data.tags["kernelcast.trial_state"] == "COMPLETE"
            assert child.data.metrics["objective"] == trial.value
            assert trial.user_attrs["mlflow_run_id"] == child.info.run_id
            assert trial.intermediate_values, "the rounds of trees are reported"
    best = next(run for run in sweeps.runs() if run.info.run_id == parent.data.params["best.run_id"])
    assert best.data.metrics["objective"] == study.best_value


@pytest.mark.parametrize("devices", [(), ("trainer.devices=2",)], ids=["one process", "two processes"])
def test_a_training_that_learns_nothing_is_pruned_and_has_not_failed(sweeps: Sweeps, devices: tuple[str, ...]) -> None:
    # HYD-06, OPT-04, HYD-10: with two devices each trial is still one run with one folder
    sweeps.succeed(
        "hparams_search=gcn", "trainer=tiny", "split=random", "trainer.max_epochs=8", "trainer.patience=8",
        "trainer.batch_programs=8", *devices,
        "model.network.width=32", "model.network.layers=2", "model.network.dropout=0.0",
        "trainer.learning_rate=choice(0.01,1e-9)", "hydra/sweeper/sampler=random", "seed=11", "hydra.sweeper.trials=5",
        "hydra.sweeper.warmup=2", "hydra.sweeper.pruner.n_startup_trials=1", "hydra.sweeper.pruner.n_min_trials=1",
    )  # fmt: skip
    study = sweeps.study("gcn")
    good = [trial.number for trial in study.trials if trial.params["trainer.learning_rate"] == 0.01]
    bad = [trial for trial in study.trials if trial.params["trainer.learning_rate"] == 1e-9 and trial.number > good[0]]
    assert bad
    assert study.trials[good[0]].value > 0.8, "it learns at the other rate"
    for trial in bad:
        assert trial.state == TrialState.PRUNED, trial
        assert max(trial.intermediate_values) < 7
    assert TrialState.FAIL not in [trial.state for trial in study.trials]
    runs = {run.data.tags["kernelcast.trial"]: run for run in sweeps.runs("tags.`kernelcast.stage` = 'train'")}
    assert len(runs) == 5
    for trial in study.trials:
        run = runs[str(trial.number)]
        assert run.info.status == "FINISHED"
        assert run.data.tags["kernelcast.trial_state"] == trial.state.name
        assert ("pruned at step" in run.info.run_name) == (trial.state == TrialState.PRUNED)
        assert ("objective" in run.data.metrics) == (trial.state == TrialState.COMPLETE)
    # nothing to go on from is left
    assert not [folder for folder in sweeps.root.glob("runs/trainings/*") if folder.is_dir()]
    assert len(list(sweeps.root.glob("runs/train/sweeps/*/[0-9]*"))) == 5


def test_a_grid_with_a_job_that_fails_ends_the_others_or_stops_where_that_is_asked_for(sweeps: Sweeps) -> None:
    # HYD-04
    grid = ("model=random", "split=random,absent,workload")
    # at once: each parent has its own jobs
    lines = (grid, (*grid, "hydra.sweeper.max_batch_size=1"))
    begun = [
        subprocess.Popen(
            sweeps.command(*line), cwd=sweeps.root, env=sweeps.environment, stderr=subprocess.PIPE, text=True
        )
        for line in lines
    ]
    printed = [sweep.communicate()[1] for sweep in begun]
    assert [sweep.returncode for sweep in begun] == [2, 2]
    assert all("jobs of this sweep" in each for each in printed)
    states = [
        Counter(child.info.status for child in sweeps.runs(f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"))
        for parent in sweeps.runs("tags.`kernelcast.stage` = 'sweep'")
    ]
    assert sorted(states, key=Counter.total) == [{"FINISHED": 1, "FAILED": 1}, {"FINISHED": 2, "FAILED": 1}]
    failed = list(sweeps.root.glob("runs/train/sweeps/*/1/train.log"))
    assert ["Traceback" in log.read_text() for log in failed] == [True, True]


def test_a_sweep_that_is_killed_at_any_five_moments_ends_with_its_ten_trials(sweeps: Sweeps) -> None:
    # HYD-05, OPT-02
    line = (
        "hparams_search=gcn", "trainer=tiny", "split=random", "trainer.max_epochs=60", "trainer.patience=60", *TWO_JOBS,
        "hydra.sweeper.trials=10",
    )  # fmt: skip
    moments = random.Random(7)
    log = (sweeps.root / "log").open("w")
    for kill in range(5):
        with subprocess.Popen(sweeps.command(*line), cwd=sweeps.root, env=sweeps.environment, stderr=log) as sweep:
            wait_for_jobs(sweeps, sweep)
            time.sleep(moments.uniform(0.0, 10.0))
            assert sweep.poll() is None, "the sweep ended before it was killed"
            if kill in (1, 3):
                # a worker first; the sweep goes on until it is killed, too
                os.kill(moments.choice(workers(sweeps)), signal.SIGKILL)
                time.sleep(moments.uniform(0.0, 5.0))
            sweep.send_signal(signal.SIGKILL)
    sweeps.succeed(*line)
    trials = sweeps.study("gcn").trials
    counted = [trial for trial in trials if not trial.user_attrs.get("interrupted")]
    assert {trial.state for trial in counted} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert len(counted) == 10
    assert not [trial for trial in trials if trial.state in (TrialState.RUNNING, TrialState.WAITING)]
    # every interrupted one was tried again, with equal parameters
    interrupted = {trial.number: trial.params for trial in trials if trial.user_attrs.get("interrupted")}
    again = {trial.user_attrs["again_of"]: trial.params for trial in trials if "again_of" in trial.user_attrs}
    assert interrupted
    assert again == interrupted
    # each job has a folder of its own
    folders = [int(folder.name) for folder in sweeps.root.glob("runs/train/sweeps/*/[0-9]*")]
    assert len(set(folders)) == len(folders)
    runs = sweeps.runs()
    assert not [run for run in runs if run.info.status in ("RUNNING", "SCHEDULED")]
    states = Counter(run.data.tags["kernelcast.trial_state"] for run in runs if "kernelcast.trial" in run.data.tags)
    assert states["COMPLETE"] + states["PRUNED"] == 10
    assert states["RUNNING"] == 0
    assert not [folder for folder in sweeps.root.glob("runs/trainings/*") if folder.is_dir()]


def workers(sweeps: Sweeps) -> list[int]:
    """Processes of the trials that run."""
    running = [trial for trial in sweeps.study("gcn").trials if trial.state == TrialState.RUNNING]
    places = [trial.user_attrs["process"] for trial in running if "process" in trial.user_attrs]
    return [int(re.search(r"/(\d+)@", place)[1]) for place in places if process_may_live(place)]


def wait_for_jobs(sweeps: Sweeps, sweep: "subprocess.Popen[bytes]") -> None:
    """Waits until jobs of this sweep are at work, not those of one that was killed."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert sweep.poll() is None
        own = descendants(sweep.pid)
        if sweeps.root.joinpath("runs/optuna/gcn.journal").exists() and set(workers(sweeps)) & own:
            return
        time.sleep(0.3)
    raise AssertionError("no job began")


def descendants(pid: int) -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process(pid).children(recursive=True)}
