"""Programs that are built before they are timed, and chosen by their machine code: real builds, a real model."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from kernelcast.errors import ConfigError, MeasurementError
from kernelcast.graphs.dataset.builders import Processes
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder
from kernelcast.graphs.dataset.store import read_description, read_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.machine import Host
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.remote import RpcRunner
from kernelcast.measurement.sampling import sample_candidates
from kernelcast.measurement.settings import RunnerSettings
from kernelcast.models.trained_on import TrainedOn
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, measurement_table
from kernelcast.tuning.database import TuningDatabase
from kernelcast.tuning.inspection import Inspector
from kernelcast.tuning.learning import Frozen, Learning, Refit
from kernelcast.tuning.measuring import open_bench
from kernelcast.tuning.search import SearchSettings, TaskSearch
from kernelcast.tuning.session import tune
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.timed_model import TimedModel
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import make_target, replayed_schedule, tvm_versions
from tests.unit.measurement.conftest import with_settings
from tests.unit.measurement.lab import Lab
from tests.unit.tuning.test_session import random_model

CONF = Path(__file__).resolve().parents[3] / "conf"
FACTOR = 3

Tuned = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def model(task: Task, target: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """The model of machine code that learns nothing, with what it would say of itself after training."""
    rows = [
        {
            "workload_key": task.workload.key,
            "workload_name": task.workload.name,
            "workload_kind": task.workload.kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "outcome": "measured",
            "run_seconds": [1e-5 * (1 + int(candidate.program_key, 16) % 97)],
        }
        for candidate in sample_candidates(task.workload, target, 6, seed=3)
    ]
    host = Host("cpu", 4, 2**30, "Linux", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
    campaign = Campaign(MEASUREMENTS_VERSION, target, host, tvm_versions(), {}, 0)
    measured = Measurements(campaign, {task.workload.key: task.workload}, measurement_table(rows))
    output = tmp_path_factory.mktemp("data") / "graphs"
    views = ViewOptions(views=("features", "statements", "machine_code"))
    choice = Choice(Labelling("minimum", "none", None, False))
    with built_store(output, [Folder(measured, "0" * 16)], choice, views, Processes(1), 64, lambda done, total: None):
        pass
    programs = read_programs(output)
    found = instantiate(yaml.safe_load((CONF / "model/machine_code.yaml").read_text()), loss=None, trainer=None, seed=0)
    found.fit(programs, programs, None)
    return TrainedModel(found, TrainedOn.of(found, programs, read_description(output)))


def inspector(model: TrainedModel, learning: Learning | None = None) -> Inspector:
    return Inspector(model, Frozen() if learning is None else learning, FACTOR, 60.0)


def predictions(model: TrainedModel, task: Task, traces: dict[str, str], target: dict[str, Any]) -> dict[str, float]:
    """What the model says of programs that it builds itself, by their hashes."""
    schedules = [replayed_schedule(task.workload, trace) for trace in traces.values()]
    judged = model.judge(schedules, list(traces), make_target(target), with_rows=False)
    assert not judged.faults
    return dict(zip(traces, judged.predicted.tolist(), strict=True))


def proposed(folder: Path) -> list[list[dict[str, Any]]]:
    """The programs of each round, as a tuning wrote them down."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [line["programs"] for line in lines if line["event"] == "proposed"]


@pytest.fixture
def tuned(
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    runner: LocalRunner,
    settings: RunnerSettings,
    tmp_path: Path,
) -> Tuned:
    """Tunes in one folder and gives the trials; `settings`, `runner` and what else `search` has can be changed."""

    def run(chooser: Inspector | None, **changes: Any) -> list[dict[str, Any]]:
        where, how = changes.pop("runner", runner), changes.pop("settings", settings)
        wanted = replace(search, **changes)
        table = tune([task], target, random_model(), wanted, where, how, tmp_path, 0, "inspected", inspector=chooser)
        return table.to_pylist()

    return run


def test_what_is_timed_is_what_the_model_puts_first_of_what_was_built(
    tmp_path: Path,
    model: TrainedModel,
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    tuned: Tuned,
) -> None:
    chooser = inspector(model)
    rows = tuned(chooser)
    assert [row["outcome"] for row in rows] == ["measured"] * search.trials
    assert len({row["program_key"] for row in rows}) == search.trials
    # more than the trials themselves
    assert len(chooser._codes) >= 2 * search.trials
    rounds = proposed(tmp_path)
    said = predictions(
        model, task, {one["program_key"]: one["trace"] for programs in rounds for one in programs}, target
    )
    for programs in rounds:
        keys = [one["program_key"] for one in programs]
        # scores are the offline predictions in units of the best of those that were looked at, which comes first
        scores = np.array([one["score"] for one in programs])
        np.testing.assert_allclose(np.log(scores), -np.array([said[key] - said[keys[0]] for key in keys]), atol=1e-5)
        assert scores[0] == 1.0
    # nobody that waited was better than one that was timed
    waiting = [one.score for one in chooser._waiting[task.workload.key]]
    assert waiting, "some were built and never timed"
    assert max(waiting) <= rounds[-1][-1]["score"]
    assert all(0 < row["model_seconds"] < row["search_seconds"] for row in rows)


def test_a_tuning_that_goes_on_learns_again_from_the_code_of_its_trials(model: TrainedModel, tuned: Tuned) -> None:
    before = tuned(inspector(model), trials=4)
    chooser = inspector(model, Refit(least_trials=3))
    rows = tuned(chooser, trials=8)
    assert rows[: len(before)] == before
    assert len({row["program_key"] for row in rows}) == 8
    assert chooser._codes.keys() >= {row["program_key"] for row in rows}
    [known] = chooser._scorer._workloads.values()
    assert known.trials.keys() == {row["program_key"] for row in rows}
    with pytest.raises(MeasurementError, match=r"method\.inspect\.factor = 3, this run has None"):
        tuned(None, trials=9)


def test_programs_that_cannot_be_built_are_trials_that_failed(
    model: TrainedModel, search: SearchSettings, settings: RunnerSettings, tuned: Tuned
) -> None:
    hasty = with_settings(settings, build_timeout_seconds=0.001)
    with pytest.raises(MeasurementError, match=r"build_timeout.*nothing can be tuned.*still building after 0\.001 s"):
        tuned(inspector(model), settings=hasty)
    # the cause is gone: the same command goes on
    rows = tuned(inspector(model))
    assert sum(row["outcome"] == "measured" for row in rows) == search.trials


def test_where_no_code_can_be_had_the_search_decides_and_nothing_is_lost(
    model: TrainedModel, search: SearchSettings, tuned: Tuned, caplog: pytest.LogCaptureFixture
) -> None:
    chooser = Inspector(model, Frozen(), FACTOR, 0.001)
    with caplog.at_level(logging.INFO):
        rows = tuned(chooser)
    assert [row["outcome"] for row in rows] == ["measured"] * search.trials
    assert {row["score"] for row in rows} == {None}
    warning = "of none of 6 programs the machine code could be had, so the search alone decides; the first: "
    assert caplog.text.count(warning) == 1, "once a workload"
    assert "raise method.inspect.build_seconds" in caplog.text
    assert "matmul_small: 0 of 6 programs built" in caplog.text
    assert "built again" not in caplog.text
    [left] = chooser._left.values()
    assert not {one.program_key for one in left} & {row["program_key"] for row in rows}
    assert len(left) + len(rows) == len(chooser._codeless)


def test_a_space_is_exhausted_when_everything_was_timed(
    tmp_path: Path,
    model: TrainedModel,
    task: Task,
    target: dict[str, Any],
    search: SearchSettings,
    runner: LocalRunner,
    settings: RunnerSettings,
) -> None:
    chooser = inspector(model)
    database = TuningDatabase(tmp_path, [task.workload], target)
    wanted = replace(search, population=16)
    searched = TaskSearch(task, target, wanted, database.tvm_database, TimedModel(random_model()), 0, set())
    proposals = searched.propose(16, 16)
    with open_bench(tmp_path / "measured", target, runner, settings) as bench:
        chosen = chooser.choose(task, searched.context, proposals, 2, bench)
        # two chosen and FACTOR times as many waiting
        left = len(proposals) - 2 - 2 * FACTOR
        assert left > 0
        assert not chooser.take_left(task, 0)
        rounds = [chosen]
        while found := chooser.choose(task, searched.context, [], 2, bench):
            rounds.append(found)
        bench.forget_built()
    rest = chooser.take_left(task, 100)
    keys = [one.candidate.program_key for found in rounds for one in found] + [one.program_key for one in rest]
    assert sorted(keys) == sorted(one.candidate.program_key for one in proposals)
    assert not chooser.take_left(task, 100)


def test_who_did_not_build_a_program_pays_for_its_build(
    tmp_path: Path, task: Task, target: dict[str, Any], runner: LocalRunner, settings: RunnerSettings
) -> None:
    programs = [(task.workload, one) for one in sample_candidates(task.workload, target, 2, seed=0)]
    with open_bench(tmp_path, target, runner, settings) as bench:
        assert all(isinstance(code, str) for code in bench.read_codes(programs[:1], 60.0))
        first = bench.measure(programs)
        bench.forget_built()
    with open_bench(tmp_path, target, runner, settings) as bench:
        again = bench.measure(programs)
    assert again[0].measure_seconds > first[0].measure_seconds + 0.01
    assert again[1].measure_seconds == pytest.approx(first[1].measure_seconds)


@pytest.fixture
def devices() -> Iterator[RpcRunner]:
    with ExitStack() as stack:
        lab = Lab(stack)
        lab.start("board", 1)
        yield RpcRunner("127.0.0.1", lab.port, "board", None, 600, 30, None)


def test_programs_for_a_device_are_inspected_here(model: TrainedModel, devices: RpcRunner, tuned: Tuned) -> None:
    chooser = inspector(model)
    rows = tuned(chooser, runner=devices, trials=2)
    assert [row["outcome"] for row in rows] == ["measured"] * 2
    assert len(chooser._codes) >= 4


def test_what_cannot_work_is_refused_before_anything_is_built(
    tmp_path: Path, model: TrainedModel, target: dict[str, Any], tuned: Tuned
) -> None:
    for factor in (1, 0, 2.5, True):
        with pytest.raises(ConfigError, match=rf"method\.inspect\.factor={factor}"):
            Inspector(model, Frozen(), factor, 60.0)  # type: ignore[arg-type]
    featureless = {name: columns for name, columns in model.trained_on.columns.items() if name != "features"}
    with pytest.raises(ConfigError, match=r"method\.inspect\.learning: .* freeze the model"):
        inspector(replace(model, trained_on=replace(model.trained_on, columns=featureless)), Refit())
    blind = replace(model, trained_on=replace(model.trained_on, views=("features",)))
    with pytest.raises(ConfigError, match=r"method\.inspect\.model: this model does not look at machine code"):
        inspector(blind)
    arm = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 1}
    with pytest.raises(ConfigError, match=r"reads x86-64 code.*method\.inspect=null"):
        inspector(model).require_target(arm)
    with pytest.raises(ConfigError, match=r"the model was trained for"):
        inspector(model).require_target({**target, "num-cores": 64})
    with pytest.raises(ConfigError, match=r"search\.population \(5\).*\(6 programs.*3 times \(method\.inspect\.factor"):
        tuned(inspector(model), population=5)
    assert not any(tmp_path.iterdir())
