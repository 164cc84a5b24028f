"""What becomes of trials that were interrupted, however far the closing itself came."""

from pathlib import Path

import optuna
import pytest
from optuna import Study
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from hydra_plugins.kernelcast_optuna._trials import close_interrupted, close_left_over, finished_trials
from kernelcast.stages.process_identity import process_identity
from kernelcast.stages.studies import TrialNote, note, open_storage

SPACE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return optuna.create_study(
        storage=open_storage(str(tmp_path / "study.journal")), sampler=optuna.samplers.RandomSampler(seed=0)
    )


def test_an_interrupted_trial_is_closed_queued_again_and_counted_once(study: Study) -> None:
    # OPT-02
    trial = study.ask(SPACE)
    close_interrupted(study, trial.number, "killed")
    assert study.trials[0].state == TrialState.FAIL
    assert finished_trials(study) == 0
    again = study.ask(SPACE)
    assert again.params == trial.params
    study.tell(again, 0.5)
    assert finished_trials(study) == 1
    assert [other.state for other in study.trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_a_closing_that_was_killed_half_way_is_done_once(study: Study) -> None:
    trial = study.ask(SPACE)
    study.enqueue_trial(trial.params, user_attrs={TrialNote.AGAIN.value: trial.number})
    close_left_over(study)
    assert study.trials[0].state == TrialState.FAIL
    assert [other.state for other in study.trials[1:]] == [TrialState.WAITING]


def test_a_trial_that_was_drawn_in_part_keeps_what_was_queued(study: Study) -> None:
    study.enqueue_trial({"x": 0.25, "y": 0.75})
    half = study.ask({"x": SPACE["x"]})
    close_left_over(study)
    assert study.trials[half.number].state == TrialState.FAIL
    assert study.ask(SPACE).params == {"x": 0.25, "y": 0.75}


def test_a_job_that_had_ended_when_its_sweep_was_killed_counts(study: Study) -> None:
    trial = study.ask(SPACE)
    note(study, trial.number, TrialNote.VALUE, 0.75)
    close_left_over(study)
    assert (study.trials[0].state, study.trials[0].value) == (TrialState.COMPLETE, 0.75)
    assert len(study.trials) == 1


def test_parameters_that_kill_their_process_again_and_again_fail(study: Study) -> None:
    first = study.ask(SPACE).params
    for _ in range(3):
        number = next(trial.number for trial in study.trials if trial.state == TrialState.RUNNING)
        close_interrupted(study, number, "out of memory", by_itself=True)
        if finished_trials(study):
            break
        assert study.ask(SPACE).params == first
    assert finished_trials(study) == 1
    last = study.trials[-1]
    assert last.state == TrialState.FAIL
    assert last.user_attrs[TrialNote.REASON] == "its process went away 3 times: out of memory"
    # a user who stops a sweep again and again is no fault of the parameters
    number = study.ask(SPACE).number
    for _ in range(5):
        close_interrupted(study, number, "the sweep was interrupted")
        number = study.ask(SPACE).number
    assert finished_trials(study) == 1


def test_this_process_is_not_waited_for(study: Study) -> None:
    trial = study.ask(SPACE)
    note(study, trial.number, TrialNote.PROCESS, process_identity())
    close_left_over(study)
    assert study.trials[0].state == TrialState.FAIL
