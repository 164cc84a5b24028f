"""Members of an ensemble that learn side by side, each in a real process of its own."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from kernelcast.errors import KernelcastError
from kernelcast.models import ensemble_members
from kernelcast.models.protocol import TrainingPruned

# a process that learns for hours and says when the first epoch is over
LEARN_LONG = """
import sys
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
from conftest import make_model, make_programs

from kernelcast.models import ensemble_members

ensemble_members.WORTH_PROGRAMS = 0
programs = make_programs()
model = make_model("ensemble", "rank", changes={"jobs": 2}, max_epochs=100_000, patience=100_000)
model.fit(programs, programs, SimpleNamespace(metrics=lambda values, step: print("epoch", flush=True)))
"""


class Killing:
    """A MetricLog at whose first value the processes of the members are killed, as the system does without memory."""

    def metrics(self, values, step):
        for process in multiprocessing.active_children():
            process.kill()


class Pruning:
    """A MetricLog of a trial that is not worth going on with."""

    def metrics(self, values, step):
        raise TrainingPruned("not as good as others")


@pytest.fixture(autouse=True)
def worth(monkeypatch):
    """However few programs there are."""
    monkeypatch.setattr(ensemble_members, "WORTH_PROGRAMS", 0)


@pytest.fixture
def ensemble_of(model_of):
    def make(jobs, **trainer):
        return model_of("ensemble", "rank", changes={"jobs": jobs}, **{"max_epochs": 3, **trainer})

    return make


def curves(rows):
    """The values of each member by step."""
    return {
        (name, step): value for step, values in rows for name, value in values.items() if not name.endswith("seconds")
    }


def test_side_by_side_and_one_after_the_other_are_the_same(ensemble_of, split, tmp_path, caplog):
    train, valid = split
    predicted, logged = {}, {}
    for jobs in (1, 2):
        log = type("Log", (), {"rows": [], "metrics": lambda self, values, step: self.rows.append((step, values))})()
        model = ensemble_of(jobs)
        with caplog.at_level("INFO"):
            model.fit(train, valid, log, tmp_path / f"workspace-{jobs}")
        predicted[jobs], logged[jobs] = model.predict(valid), curves(log.rows)
        model.save(tmp_path)
    np.testing.assert_array_equal(predicted[1], predicted[2])
    assert logged[1] == pytest.approx(logged[2], nan_ok=True)
    # a line of a member names it
    assert "gcn: epoch 3 of at most 3: " in caplog.text
    assert not multiprocessing.active_children()
    kept = {path.name for path in (tmp_path / "workspace-2").iterdir()}
    assert kept == {"gcn", "graphsage", "lightgbm"}, "and none of the folder that models came through"


@pytest.mark.slow
def test_what_a_member_raises_arrives_and_ends_the_others(ensemble_of, split, metric_log):
    with pytest.raises(KernelcastError, match=r"training loss became nan in epoch \d+, batch \d+ .* lower trainer"):
        ensemble_of(2, learning_rate=1e30, gradient_clip=0.0).fit(*split, metric_log)
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_process_that_dies_is_told_of(ensemble_of, split):
    with pytest.raises(KernelcastError, match=r"fitted the member \w+ ended with status -9 .*model.jobs=1"):
        ensemble_of(2, max_epochs=1000, patience=1000).fit(*split, Killing())
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_trial_that_is_pruned_ends_all(ensemble_of, split):
    with pytest.raises(TrainingPruned):
        ensemble_of(2, max_epochs=1000, patience=1000).fit(*split, Pruning())
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_no_process_outlives_the_one_that_asked():
    process = subprocess.Popen(
        [sys.executable, "-c", LEARN_LONG, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "epoch\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert sum("spawn_main" in " ".join(child.cmdline()) for child in family) == 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def test_few_programs_other_devices_and_workers_of_another_are_not_worth_processes(monkeypatch, programs, conf_of):
    trainer, two = (instantiate(conf_of("trainer", "default", devices=devices)) for devices in (1, 2))
    worth = ensemble_members.are_worth_processes
    assert worth(programs, trainer)
    assert worth(programs, None), "members without a network have no trainer"
    assert not worth(programs, two)
    monkeypatch.setattr(ensemble_members, "WORTH_PROGRAMS", len(programs) + 1)
    assert not worth(programs, trainer)
    monkeypatch.setattr(ensemble_members, "WORTH_PROGRAMS", 0)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    assert not worth(programs, trainer)


@pytest.mark.parametrize("jobs", [0, -1, 1.5, True, "two"])
def test_a_number_of_members_at_a_time_that_is_none_is_refused(ensemble_of, jobs):
    with pytest.raises(InstantiationException, match=r"model.jobs=.*: it must be a whole number of at least 1"):
        ensemble_of(jobs)
