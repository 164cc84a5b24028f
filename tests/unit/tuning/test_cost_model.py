"""Real workloads, schedules, views, models and MetaSchedule's own search; only the times are made up."""

from __future__ import annotations

import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hydra.utils import instantiate

from kernelcast.errors import ConfigError, MalformedDataError, MissingInputError
from kernelcast.graphs.dataset.builders import Processes
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder
from kernelcast.graphs.dataset.store import read_description, read_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs
from kernelcast.machine import Host
from kernelcast.measurement import workloads
from kernelcast.measurement.local import LocalRunner
from kernelcast.measurement.sampling import sample_candidates, tune_context
from kernelcast.models.protocol import PredictionKind
from kernelcast.models.saved import save_model
from kernelcast.models.trained_on import TRAINED_ON_FILE, TrainedOn
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, Workload, measurement_table
from kernelcast.tuning import load_cost_model, tvm_cost_model
from kernelcast.tuning.draft_verify import DraftThenVerify
from kernelcast.tuning.learning import Refit
from kernelcast.tuning.search import SearchSettings
from kernelcast.tuning.session import tune
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import replayed_schedule, resolve_target, tvm_versions
from tests.unit.measurement.conftest import SETTINGS, with_settings

CONF = Path(__file__).resolve().parents[3] / "conf"
MODELS = {
    "lightgbm": ("features",),
    "gcn": ("ast",),
    "analytical": ("features", "statements"),
    "lightgbm_trace": ("trace",),
    "lightgbm_estimate": ("features", "statements"),
    "gcn_estimate": ("ast", "features", "statements"),
    "random": (),
}
"""Models and the views that they look at."""

CHANGES: dict[str, dict[str, Any]] = {
    "lightgbm_trace": {"view": "trace"},
    "lightgbm_estimate": {"estimate": True},
    "gcn_estimate": {"network": {**yaml.safe_load((CONF / "model/gcn.yaml").read_text())["network"], "estimate": True}},
}
"""What they have changed in their file of conf/model."""


class Silent:
    """A MetricLog that keeps nothing."""

    def metrics(self, values: Any, step: int) -> None:
        pass


def configured(group: str, name: str, **changes: Any) -> Any:
    return {**yaml.safe_load((CONF / group / f"{name}.yaml").read_text()), **changes}


def fitted(name: str, programs: Programs) -> Any:
    trainer = configured("trainer", "default", max_epochs=2, batch_elements=600)
    file = name.partition("_")[0]
    loss = instantiate(configured("loss", "log_mse" if file == "lightgbm" else "rank"))
    model = instantiate(
        configured("model", file, **CHANGES.get(name, {})), loss=loss, trainer=instantiate(trainer), seed=0
    )
    model.fit(programs, programs, Silent())
    return model


@pytest.fixture(scope="module")
def target() -> dict[str, Any]:
    return resolve_target({"kind": "llvm", "num-cores": 2})


@pytest.fixture(scope="module")
def matmul() -> Workload:
    return workloads.matmul("matmul", rows=64, columns=32, depth=48)


@pytest.fixture(scope="module")
def graphs(matmul: Workload, target: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of two small workloads, as the stage `graphs` makes them."""
    suite = [matmul, workloads.softmax("softmax", rows=32, columns=64)]
    rows = [
        {
            "workload_key": workload.key,
            "workload_name": workload.name,
            "workload_kind": workload.kind,
            "program_key": candidate.program_key,
            "trace": candidate.trace,
            "target": json.dumps(target),
            "outcome": "measured",
            "run_seconds": [1e-5 * (1 + int(candidate.program_key, 16) % 97)],
        }
        for workload in suite
        for candidate in sample_candidates(workload, target, 16, seed=3)
    ]
    host = Host("cpu", 4, 2**30, "Linux", 1e11, 1e10, vector_lanes=16, cache_bytes=2**20)
    campaign = Campaign(MEASUREMENTS_VERSION, target, host, tvm_versions(), {}, 0)
    measured = Measurements(campaign, {workload.key: workload for workload in suite}, measurement_table(rows))
    output = tmp_path_factory.mktemp("data") / "graphs"
    choice, silent = Choice(Labelling("minimum", "none", None, False)), lambda done, total: None
    with built_store(output, [Folder(measured, "0" * 16)], choice, ViewOptions(), Processes(1), 64, silent):
        pass
    return output


@pytest.fixture(scope="module")
def trained(graphs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each of `MODELS`, as the stage `train` leaves it."""
    programs, description = read_programs(graphs), read_description(graphs)
    folder = tmp_path_factory.mktemp("models")
    for name in MODELS:
        model = fitted(name, programs)
        (folder / name).mkdir()
        save_model(model, folder / name / "model", TrainedOn.of(model, programs, description))
    return folder


@pytest.fixture(scope="module")
def candidates(graphs: Path, matmul: Workload, target: dict[str, Any]) -> list[Any]:
    """The matmuls of `graphs`, in the order of its rows, as a search gives them to its cost model."""
    return as_candidates(matmul, target)


def as_candidates(workload: Workload, target: dict[str, Any], count: int = 16) -> list[Any]:
    from tvm.s_tir.meta_schedule import MeasureCandidate

    drawn = sample_candidates(workload, target, count, seed=3)
    return [MeasureCandidate(replayed_schedule(workload, each.trace), []) for each in drawn]


def context_of(workload: Workload, target: dict[str, Any]) -> Any:
    return tune_context(workload, target, 0, "replay-trace")


def results_of(seconds: list[float | None]) -> list[Any]:
    from tvm.s_tir.meta_schedule.runner import RunnerResult

    return [RunnerResult(None, "failed") if each is None else RunnerResult([each, 2 * each], None) for each in seconds]


@pytest.mark.parametrize("name", MODELS)
def test_tvm_14_first_scores_are_the_offline_predictions(
    name: str, trained: Path, graphs: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any]
) -> None:
    model = load_cost_model(trained / name)
    scores = model.predict(context_of(matmul, target), candidates)

    programs = read_programs(graphs)
    predicted = TrainedModel.load(trained / name).model.predict(programs)[programs.workload == 0]
    assert len(np.unique(predicted)) > 8
    np.testing.assert_allclose(scores, np.exp(predicted.min() - predicted), rtol=1e-5, atol=1e-12)
    assert model.score_of(candidates[3]) == scores[3]
    assert model.seconds > 0
    known = TrainedModel.load(trained / name)
    # only what it looks at is built
    assert known.trained_on.views == MODELS[name]
    times = known.model.predict(programs)
    if known.model.kind is PredictionKind.LOG_SECONDS:
        factor = np.exp(np.median(np.abs(times - programs.log_seconds)))
        assert known.trained_on.typical_factor == pytest.approx(factor)
    else:
        assert known.trained_on.typical_factor is None


def test_generations_of_a_round_are_compared_by_their_scores(
    trained: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any]
) -> None:
    context, model = context_of(matmul, target), load_cost_model(trained / "lightgbm")
    whole = load_cost_model(trained / "lightgbm").predict(context, candidates)
    first, second = model.predict(context, candidates[:8]), model.predict(context, candidates[8:])
    np.testing.assert_allclose(np.concatenate([first, second]), whole * (first[0] / whole[0]))
    model.update(context, candidates[:2], results_of([1e-3, None]))
    assert max(model.predict(context, candidates[8:])) == 1.0


@pytest.mark.parametrize("name", ["lightgbm", "gcn"])
def test_a_search_that_doubts_its_model_draws_once_for_each_program(
    name: str, trained: Path, matmul: Workload, target: dict[str, Any]
) -> None:
    context, candidates = context_of(matmul, target), as_candidates(matmul, target, 256)
    known = TrainedModel.load(trained / name)

    def logs(breadth: float, seed: int = 0) -> np.ndarray:
        model = load_cost_model(trained / name, breadth=breadth, seed=seed)
        return np.log(model.predict(context, candidates))

    sure, doubted = logs(0.0), logs(0.5)
    np.testing.assert_array_equal(logs(0.5), doubted)
    # in units of the model's error, whatever the units of its predictions are
    drawn = (doubted - sure) * known.slope / known.residual
    assert np.std(drawn) == pytest.approx(0.5, rel=0.15)
    assert abs(np.mean(drawn - np.max(drawn))) > 0.5
    np.testing.assert_allclose(np.diff(logs(1.0) - sure), 2 * np.diff(doubted - sure), atol=1e-4)
    # searches with other seeds doubt other programs
    assert abs(np.corrcoef(logs(0.5, seed=1) - sure, doubted - sure)[0, 1]) < 0.25
    # the order of a batch, and which programs it has, change nothing
    model = load_cost_model(trained / name, breadth=0.5)
    parts = [model.predict(context, candidates[place : place + 64][::-1])[::-1] for place in range(0, 256, 64)]
    np.testing.assert_allclose(np.diff(np.log(np.concatenate(parts))), np.diff(doubted), atol=1e-4)
    for wrong in (-0.5, np.nan, np.inf, True, "0.5"):
        with pytest.raises(ConfigError, match=f"breadth={wrong}: a number from 0"):
            load_cost_model(trained / name, breadth=wrong)  # type: ignore[arg-type]


def test_tvm_14_no_model_is_an_error(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"nothing.*dvc repro train"):
        load_cost_model(tmp_path / "nothing")
    shutil.copytree(trained / "lightgbm", tmp_path / "copy")
    path = tmp_path / "copy/model" / TRAINED_ON_FILE
    description = json.loads(path.read_text())
    for changed, kind, message in (
        ({**description, "feature_version": "0" * 16}, MalformedDataError, "torn or edited"),
        (None, MissingInputError, "not whole"),
    ):
        path.unlink() if changed is None else path.write_text(json.dumps(changed))
        with pytest.raises(kind, match=message):
            load_cost_model(tmp_path / "copy")


def test_what_a_model_was_trained_on_must_be_what_is_built(trained: Path, tmp_path: Path) -> None:
    known = TrainedOn.read(trained / "gcn/model")
    known.write(tmp_path)
    assert TrainedOn.read(tmp_path) == known
    path = tmp_path / TRAINED_ON_FILE
    whole = json.loads(path.read_text())
    for changes, message in (
        ({"version": 99}, "version 99"),
        ({"feature_version": "other"}, "features of version other.*dvc repro graphs"),
        ({"options": {**whole["options"], "indices": False}}, "dvc repro graphs"),
        ({"columns": {}}, "dvc repro graphs"),
        ({"targets": [{}]}, "not what was saved"),
        ({"views": None}, "not what was saved"),
    ):
        path.write_text(json.dumps({**whole, **changes}))
        with pytest.raises(MalformedDataError, match=message):
            TrainedOn.read(tmp_path)
    path.unlink()
    with pytest.raises(MissingInputError, match="does not say what it was trained on"):
        TrainedOn.read(tmp_path)


def test_another_target_is_an_error_unless_allowed(
    trained: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any]
) -> None:
    other = context_of(matmul, {**target, "num-cores": 1})
    with pytest.raises(ConfigError, match=r'trained for .*"num-cores": 2.*any_target'):
        load_cost_model(trained / "lightgbm").predict(other, candidates)
    scores = load_cost_model(trained / "lightgbm", any_target=True).predict(other, candidates)
    assert len(np.unique(scores)) > 1


def test_a_candidate_that_cannot_be_read_gets_the_worst_score(
    trained: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    from tvm.ir import IRModule
    from tvm.s_tir import Schedule
    from tvm.s_tir.meta_schedule import MeasureCandidate
    from tvm.script import tirx

    @tirx.prim_func
    def symbolic(a: tirx.handle, n: tirx.int32) -> None:
        buffer = tirx.match_buffer(a, (n,))
        for i in range(n):
            buffer[i] = tirx.float32(0)

    unreadable = MeasureCandidate(Schedule(IRModule({"main": symbolic})), [])
    context, model = context_of(matmul, target), load_cost_model(trained / "lightgbm")
    with caplog.at_level(logging.WARNING):
        scores = model.predict(context, [*candidates, unreadable, unreadable])
        model.predict(context, [unreadable])
    assert scores[-1] == scores[-2] == 0 < scores[:-2].min()
    assert [record.message.count("no constant") for record in caplog.records] == [1]
    with pytest.raises(MalformedDataError, match="none of the 1 candidates can be read"):
        load_cost_model(trained / "lightgbm").predict(context, [unreadable])


def test_tvm_16_other_loops_and_buffers_than_those_trained_on(trained: Path, target: dict[str, Any]) -> None:
    conv = workloads.conv1d("conv", width=16, channels=8, filters=16, kernel=3, padding=1)
    for name in MODELS:
        scores = load_cost_model(trained / name).predict(context_of(conv, target), as_candidates(conv, target, 4))
        assert np.isfinite(scores).all()
        assert scores.max() == 1.0


def test_tvm_20_a_frozen_model_stays_as_it_is_and_refit_learns(
    trained: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any]
) -> None:
    context = context_of(matmul, target)
    frozen, online = load_cost_model(trained / "lightgbm"), load_cost_model(trained / "lightgbm", Refit())
    before = frozen.predict(context, candidates)
    np.testing.assert_array_equal(online.predict(context, candidates), before)
    # the other way round than the model says
    seconds: list[float | None] = [1e-4 * float(score) for score in before]
    for model in (frozen, online):
        model.update(context, candidates[:14], results_of([*seconds[:12], None, None]))
    np.testing.assert_array_equal(frozen.predict(context, candidates), before)
    learned = online.predict(context, candidates)
    assert np.corrcoef(np.log(learned[:12]), np.log(before[:12]))[0, 1] < -0.5


def test_tvm_14_a_saved_model_that_is_loaded_is_used_with_what_it_learned(
    trained: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any], tmp_path: Path
) -> None:
    context = context_of(matmul, target)
    model = load_cost_model(trained / "lightgbm", Refit())
    before = model.predict(context, candidates)
    model.update(context, candidates[:12], results_of([1e-4 * float(score) for score in before[:12]]))
    learned = model.predict(context, candidates)
    assert not np.allclose(learned, before)
    model.save(str(tmp_path / "saved"))
    names = {path.suffix for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert names == {".json", ".npz", ".txt"}

    again = load_cost_model(tmp_path / "saved", Refit())
    np.testing.assert_allclose(again.predict(context, candidates), learned)
    other = load_cost_model(trained / "gcn", Refit())
    other.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(other.predict(context, candidates), learned)
    with pytest.raises(MissingInputError, match=r"learning\.json"):
        other.load(str(tmp_path / "nothing"))


def test_the_better_model_looks_at_the_best_of_the_draft_alone(
    trained: Path, matmul: Workload, target: dict[str, Any], candidates: list[Any], tmp_path: Path
) -> None:
    context = context_of(matmul, target)
    draft, better = (TrainedModel.load(trained / name) for name in ("analytical", "lightgbm"))
    by_draft, by_better = (tvm_cost_model(each).predict(context, candidates) for each in (draft, better))
    both = tvm_cost_model(DraftThenVerify(draft, better, 0.25))
    scores = both.predict(context, candidates)
    first = np.argsort(-by_draft, kind="stable")[:4]
    rest = np.setdiff1d(np.arange(len(candidates)), first)
    np.testing.assert_allclose(scores[first], by_better[first] / by_better[first].max())
    assert scores[rest].max() <= scores[first].min()
    np.testing.assert_array_equal(np.argsort(-scores[rest], kind="stable"), np.argsort(-by_draft[rest], kind="stable"))
    both.save(str(tmp_path / "saved"))
    again = load_cost_model(tmp_path / "saved", verify_share=0.25)
    np.testing.assert_array_equal(again.predict(context, candidates), scores)
    whole = tvm_cost_model(DraftThenVerify(draft, better, 1.0)).predict(context, candidates)
    np.testing.assert_allclose(whole, by_better)
    with pytest.raises(ConfigError, match="verify_share=0"):
        DraftThenVerify(draft, better, 0)


@pytest.mark.slow
def test_tvm_18_a_network_of_torch_in_the_same_process_disturbs_no_measurement(
    trained: Path, matmul: Workload, target: dict[str, Any], tmp_path: Path
) -> None:
    # torch has long been imported here, and has trained; 32 trials are built and timed in workers all the same
    assert "torch" in sys.modules
    search = SearchSettings(trials=32, trials_per_round=16, population=32, generations=1, threads=1)
    model, settings = load_cost_model(trained / "gcn", Refit()), with_settings(SETTINGS, batch_size=16)
    task = Task(matmul, weight=1)
    rows = tune([task], target, model, search, LocalRunner(), settings, tmp_path / "tuning", 0, "gcn", "").to_pylist()
    assert [row["outcome"] for row in rows] == ["measured"] * 32


def test_the_search_of_anyone_takes_it(trained: Path, matmul: Workload, target: dict[str, Any], tmp_path: Path) -> None:
    """MetaSchedule's own search, builder and runner of Python around it: three lines of the user's."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder
    from tvm.s_tir.meta_schedule.runner import PyRunner, PyRunnerFuture, RunnerResult

    from kernelcast.tvm_compat import make_target, parse_module

    @derived_object
    class NoBuilder(PyBuilder):  # type: ignore[misc]
        def build(self, build_inputs: Any) -> Any:
            # MetaSchedule removes the folder
            return [BuilderResult(f"{tempfile.mkdtemp(dir=tmp_path)}/built", None) for _ in build_inputs]

    @derived_object
    class Future(PyRunnerFuture):  # type: ignore[misc]
        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return RunnerResult([1e-3], None)

    @derived_object
    class NoRunner(PyRunner):  # type: ignore[misc]
        def run(self, runner_inputs: Any) -> Any:
            return [Future() for _ in runner_inputs]

    model = load_cost_model(trained / "gcn", Refit(), draft=trained / "lightgbm")
    database = meta_schedule.tune_tir(
        parse_module(matmul.module),
        make_target(target),
        str(tmp_path),
        max_trials_global=8,
        num_trials_per_iter=4,
        builder=NoBuilder(),
        runner=NoRunner(),
        cost_model=model,
        strategy=meta_schedule.search_strategy.EvolutionarySearch(population_size=16, genetic_num_iters=1),
        seed=0,
        num_tuning_cores=1,
        post_optimization=False,
    )
    assert len(database.get_all_tuning_records()) == 8
    assert model.seconds > 0
