"""Replay on measured spaces: made-up ones that are small enough to reckon with, and a real one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.graphs.dataset.builders import Processes
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder
from kernelcast.graphs.dataset.store import Description, StoredWorkload, read_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.views import FlatFeatures, StatementRows
from kernelcast.models.analytical import AnalyticalModel
from kernelcast.models.protocol import PredictionKind
from kernelcast.records import (
    MEASUREMENTS_VERSION,
    Campaign,
    Measurements,
    Workload,
    measurement_table,
    read_measurements,
)
from kernelcast.trials import TRIALS_SCHEMA, read_trials, write_trials
from kernelcast.tuning.learning import Refit
from kernelcast.tuning.replay import ReplaySettings, picked, replay_all
from kernelcast.tuning.replay_guides import FromNothing, MakeGuide, Pretrained, RandomOrder, xgb_fit
from kernelcast.tuning.replay_space import MeasuredSpace, measured_spaces

DATA_SET = Path(__file__).resolve().parents[3] / "data" / "datasets" / "zen4_1core"
SECONDS_COLUMNS = ("search_seconds", "model_seconds", "elapsed_seconds")
RAN, FAILED = 27, 3
TARGET = {"kind": "llvm", "num-cores": 1}


class FromFeature:
    """A model that predicts a column of the features: the logarithm of the time, a little or much off."""

    learned = False
    kind = PredictionKind.LOG_SECONDS

    def __init__(self, column: str) -> None:
        self._column = column
        self.asked = 0

    def predict(self, programs: Programs) -> np.ndarray:
        assert np.isnan(programs.log_seconds).all()  # nobody may look at what is to be found
        self.asked += 1
        return programs.features.column(self._column).astype(np.float64)


@pytest.fixture(scope="module")
def made_up() -> tuple[Measurements, Programs, Description]:
    """Three workloads of 27 programs that ran and 3 that failed; programs 1 ms apart from each other."""
    random = np.random.default_rng(0)
    rows, seconds, features, stores, counts = [], [], [], [], []
    for number in range(3):
        order = random.permutation(RAN)
        for program in range(RAN + FAILED):
            row = {
                "workload_key": f"workload{number}",
                "workload_name": f"w{number}",
                "workload_kind": "matmul",
                "program_key": f"{number:04x}{program:012x}",
                "trace": "",
                "target": '{"kind": "llvm", "num-cores": 1}',
                "build_seconds": 0.5,
            }
            if program >= RAN:
                rows.append({**row, "outcome": "run_timeout", "build_seconds": None})
                continue
            time = 1e-3 * (1 + order[program])
            seconds.append(time)
            rows.append(
                {
                    **row,
                    "outcome": "measured",
                    "run_seconds": [2 * time, time, time / 10],
                    "calls": [3, 4, 1000],
                    "visit": [0, 0, 1],
                }
            )
            offset = 0.4 * random.normal()
            features.append([np.log(time), np.log(time) + offset, offset, -np.log(time)])
            counts.append(2)
            stores += [[np.log(time), offset], [offset, 1.0]]
    workloads = {f"workload{number}": f"w{number}" for number in range(3)}
    measurements = Measurements(
        Campaign(MEASUREMENTS_VERSION, TARGET, None, {}, {}, 0),
        {key: Workload(key, name, "matmul", {}, "") for key, name in workloads.items()},
        measurement_table(rows),
    )
    programs = Programs.in_memory(
        {
            "features": FlatFeatures(("time", "noisy", "offset", "wrong"), np.array(features, dtype=np.float32)),
            "per_store": StatementRows(
                ("a", "b"), np.concatenate([[0], np.cumsum(counts)]), np.array(stores, dtype=np.float32)
            ),
        },
        log_seconds=np.log(seconds),
        workload=np.repeat(np.arange(3), RAN).astype(np.int32),
        workload_names=tuple(workloads.values()),
        program_key=np.array([row["program_key"] for row in rows if row["outcome"] == "measured"]),
        feature_version="1",
        targets=(Folder(measurements, "").stored_target.label,),
    )
    stored = tuple(StoredWorkload(key, name, "matmul", {}, {}) for key, name in workloads.items())
    return measurements, programs, Description(stored, (), "minimum", ViewOptions())


@pytest.fixture(scope="module")
def spaces(made_up: tuple[Measurements, Programs, Description]) -> list[MeasuredSpace]:
    return measured_spaces(*made_up)


@pytest.fixture
def guides() -> dict[str, MakeGuide]:
    return {
        "random": RandomOrder,
        "known": Pretrained.frozen(FromFeature("time")),
        "noisy": Pretrained.frozen(FromFeature("noisy")),
        "tvm_xgb": FromNothing.maker(xgb_fit(), warmup=8),
    }


def column(table: pa.Table, name: str, method: str, seed: int = 0, workload: str = "w0") -> np.ndarray:
    rows = [
        row
        for row in table.to_pylist()
        if (row["method"], row["seed"], row["workload_name"]) == (method, seed, workload)
    ]
    return np.array([row[name] for row in rows])


def test_a_space_has_every_program_that_was_tried_and_hides_its_time(spaces: list[MeasuredSpace]) -> None:
    assert [space.workload_name for space in spaces] == ["w0", "w1", "w2"]
    for space in spaces:
        assert (len(space), space.ran) == (RAN + FAILED, RAN)
        assert np.isnan(space.programs.log_seconds).all()
        assert np.isnan(space.run_seconds[RAN:]).all()
        assert set(space.outcome[RAN:]) == {"run_timeout"}
        assert space.program_key[:RAN].tolist() == space.programs.program_key.tolist()
        # the build, and the calls of the first visit alone: three of twice the time, four of it
        np.testing.assert_allclose(space.measure_seconds[:RAN], 0.5 + 10 * space.run_seconds[:RAN])
        np.testing.assert_array_equal(space.measure_seconds[RAN:], 0.0)


def test_programs_of_other_targets_and_lone_ones_make_no_space(
    made_up: tuple[Measurements, Programs, Description],
) -> None:
    measurements, programs, description = made_up
    lone = programs.select(np.array([0, RAN, RAN + 1]))
    assert [space.workload_name for space in measured_spaces(measurements, lone, description)] == ["w1"]
    elsewhere = Measurements(
        Campaign(MEASUREMENTS_VERSION, {"kind": "cuda"}, None, {}, {}, 0), measurements.workloads, measurements.table
    )
    assert measured_spaces(elsewhere, programs, description) == []


def test_the_whole_space_is_tried_once_when_the_budget_allows(
    spaces: list[MeasuredSpace], guides: dict[str, MakeGuide], tmp_path: Path
) -> None:
    guides.pop("tvm_xgb")
    table = replay_all(spaces, guides, ReplaySettings(100, 7), [0, 1])
    assert table.schema.equals(TRIALS_SCHEMA)
    write_trials(tmp_path / "trials.parquet", table)
    assert read_trials(tmp_path / "trials.parquet").equals(table)
    for method in guides:
        for seed in (0, 1):
            keys = column(table, "program_key", method, seed)
            assert sorted(keys) == sorted(spaces[0].program_key.tolist())
            failed = np.array([time is None for time in column(table, "run_seconds", method, seed)])
            assert failed.sum() == FAILED
            assert (column(table, "outcome", method, seed)[failed] == "run_timeout").all()
            assert all(score is None for score in column(table, "score", method, seed)[failed])
            np.testing.assert_array_equal(column(table, "round", method, seed), np.arange(30) // 7)
    # one tuning of all spaces: numbers and time go on
    assert column(table, "trial", "known", 1, "w2").tolist() == list(range(60, 90))
    assert column(table, "round", "known", 1, "w1")[0] == 5
    elapsed = np.concatenate([column(table, "elapsed_seconds", "known", 1, f"w{number}") for number in range(3)])
    assert (np.diff(elapsed) >= 0).all()


def test_the_seed_decides_everything_but_the_seconds(spaces: list[MeasuredSpace], guides: dict[str, MakeGuide]) -> None:
    settings = ReplaySettings(21, 7, exploration=0.3)
    first, again = (replay_all(spaces[:1], guides, settings, [3]).drop_columns(SECONDS_COLUMNS) for _ in range(2))
    assert first.equals(again)
    other = replay_all(spaces[:1], guides, settings, [4]).drop_columns(SECONDS_COLUMNS)
    assert not np.array_equal(column(first, "program_key", "noisy", 3), column(other, "program_key", "noisy", 4))


def test_batches_cost_what_measuring_cost_when_it_was_real(
    spaces: list[MeasuredSpace], guides: dict[str, MakeGuide]
) -> None:
    table = replay_all(spaces[:1], guides, ReplaySettings(30, 10, exploration=0.0), [0])
    cost = dict(zip(spaces[0].program_key.tolist(), spaces[0].measure_seconds.tolist(), strict=True))
    for method in guides:
        keys = column(table, "program_key", method)
        search, model, measure = (
            column(table, name, method) for name in ("search_seconds", "model_seconds", "measure_seconds")
        )
        for batch in (slice(0, 10), slice(10, 20), slice(20, 30)):
            np.testing.assert_allclose(measure[batch], sum(cost[key] for key in keys[batch]))
        assert (search >= model).all()
        assert (model[:10] > 0).all()
        batches = [0, 10, 20]
        np.testing.assert_allclose(
            column(table, "elapsed_seconds", method)[batches], np.cumsum((search + measure)[batches])
        )


def test_a_model_that_knows_finds_the_best_at_once_and_is_asked_once(spaces: list[MeasuredSpace]) -> None:
    model = FromFeature("time")
    table = replay_all(spaces, {"known": Pretrained.frozen(model)}, ReplaySettings(12, 4, exploration=0.0), [0])
    assert model.asked == len(spaces)
    for workload, space in zip(("w0", "w1", "w2"), spaces, strict=True):
        found = [time for time in column(table, "run_seconds", "known", workload=workload) if time is not None]
        # failures come where chance puts them, what ran in the order of the times
        np.testing.assert_allclose(found, np.sort(space.run_seconds[:RAN])[: len(found)])
        scores = [score for score in column(table, "score", "known", workload=workload) if score is not None]
        np.testing.assert_allclose(scores, found[0] / np.array(found), rtol=1e-5)


def test_models_meet_failures_as_often_as_chance_does(
    spaces: list[MeasuredSpace], guides: dict[str, MakeGuide]
) -> None:
    table = replay_all(spaces, {name: guides[name] for name in ("known", "random")}, ReplaySettings(10, 10), range(40))
    outcomes = np.array(table["outcome"].to_pylist())
    methods = np.array(table["method"].to_pylist())
    for method in ("known", "random"):
        # 1200 trials of each, a tenth of the programs fails
        assert abs(np.mean(outcomes[methods == method] != "measured") - FAILED / (RAN + FAILED)) < 0.03


def test_tvm_xgb_is_random_until_it_is_trained_and_better_than_random_then(spaces: list[MeasuredSpace]) -> None:
    trained: list[int] = []

    def counted(trials: Programs) -> Callable[[Programs], np.ndarray]:
        trained.append(len(trials))
        assert np.isfinite(trials.log_seconds).all()
        return xgb_fit()(trials)

    space, settings = spaces[1], ReplaySettings(24, 6, exploration=0.0)
    guides = {"tvm_xgb": FromNothing.maker(counted, warmup=10), "random": RandomOrder}
    table = replay_all([space], guides, settings, range(3))
    ran = [column(table, "outcome", "tvm_xgb", seed, "w1") == "measured" for seed in range(3)]
    counts = [int(one[:asked].sum()) for one in ran for asked in (6, 12, 18)]
    assert trained == [count for count in counts if count >= 10]
    assert len(trained) >= 5
    for seed in range(3):
        ours, chance = (column(table, "run_seconds", method, seed, "w1") for method in guides)
        both = [column(table, "program_key", method, seed, "w1")[:12].tolist() for method in guides]
        assert both[0] == both[1]
        assert np.mean([time for time in ours[12:] if time]) < np.mean([time for time in chance[12:] if time])


def test_nothing_is_trained_for_a_few_more_trials(spaces: list[MeasuredSpace]) -> None:
    trained: list[int] = []
    space = spaces[0]

    def fit(trials: Programs) -> Callable[[Programs], np.ndarray]:
        trained.append(len(trials))
        return lambda programs: np.zeros(len(programs))

    guide = FromNothing(fit, 10, space.programs, seed=0)
    rows = np.arange(RAN)
    asked = [count for count in (9, 10, 11, 12, 14, 15) if guide.learn(rows[:count], np.log(space.run_seconds[:count]))]
    assert asked == trained == [10, 12, 15]


def test_a_correction_of_a_wrong_model_finds_what_the_model_does_not(spaces: list[MeasuredSpace]) -> None:
    guides = {
        "wrong": Pretrained.frozen(FromFeature("wrong")),
        "wrong-online": Pretrained.learning(FromFeature("wrong"), Refit(), slope=0.5, residual=0.8),
    }
    table = replay_all(spaces, guides, ReplaySettings(20, 5, exploration=0.2), [0])
    best = {
        method: [np.nanmin(column(table, "run_seconds", method, 0, f"w{number}").astype(float)) for number in range(3)]
        for method in guides
    }
    assert np.mean(best["wrong-online"]) < np.mean(best["wrong"])


def test_a_score_that_is_no_number_stops_the_replay(spaces: list[MeasuredSpace]) -> None:
    class Torn(FromFeature):
        def predict(self, programs: Programs) -> np.ndarray:
            return np.full(len(programs), np.nan)

    with pytest.raises(KernelcastError, match="torn scores 27 of 27 programs of w0 with no finite number; train"):
        replay_all(spaces, {"torn": Pretrained.frozen(Torn("time"))}, ReplaySettings(4, 2), [0])


@pytest.mark.parametrize(
    ("values", "name"),
    [((0, 4), "trials"), ((4, 0), "trials_per_round"), ((True, 4), "trials"), ((4, 4, 1.5), "exploration")],
)
def test_settings_that_cannot_work_are_named(values: tuple[float, ...], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ReplaySettings(*values)


def test_nothing_to_replay_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no workload has two programs"):
        replay_all([], {"random": RandomOrder}, ReplaySettings(4, 2), [0])


def test_explored_programs_are_the_share_that_is_asked_for() -> None:
    random = np.random.default_rng(0)
    scores, ties, tried = np.arange(100.0), random.random(100), np.zeros(100, dtype=np.bool_)
    tried[99] = True
    rounds = [picked(scores, ties, tried, 6, 0.05, random) for _ in range(2000)]
    assert all(len(set(chosen.tolist())) == 6 and 99 not in chosen for chosen in rounds)
    explored = [np.count_nonzero(chosen != np.arange(98, 92, -1)) for chosen in rounds]
    # 0.3 of a program in each round; hardly ever one that the scores would have chosen
    assert abs(np.mean(explored) - 0.3) < 0.04
    ties, tried = np.array([3.0, 1.0, 2.0, 0.0]), np.zeros(4, dtype=np.bool_)
    assert picked(np.zeros(4), ties, tried, 4, 0.0, random).tolist() == [3, 1, 2, 0]


def test_a_real_space_is_replayed_with_tvms_model_and_the_analytical_one(tmp_path: Path) -> None:
    whole = read_measurements(DATA_SET)
    names = np.array(whole.table["workload_name"].to_pylist())
    chosen = np.concatenate([np.flatnonzero(names == name)[:10] for name in ("matmul_projection", "softmax_classes")])
    measurements = Measurements(whole.campaign, whole.workloads, whole.table.take(chosen))
    options = ViewOptions(views=("features", "statements", "per_store"))
    with built_store(
        tmp_path / "graphs",
        [Folder(measurements, "hash")],
        Choice(Labelling()),
        options,
        Processes(1),
        4096,
        lambda done, total: None,
    ) as (_, description):
        pass
    programs = read_programs(tmp_path / "graphs")
    spaces = measured_spaces(measurements, programs, description)
    assert [len(space) for space in spaces] == [10, 10]
    analytical = AnalyticalModel(None, None, 0)
    analytical.fit(programs, programs.select(np.zeros(0, dtype=np.int64)), None)
    guides = {"tvm_xgb": FromNothing.maker(xgb_fit(), warmup=4), "analytical": Pretrained.frozen(analytical)}
    table = replay_all(spaces, guides, ReplaySettings(8, 4), [0])
    assert table.num_rows == 2 * 2 * 8
    assert set(table["outcome"].to_pylist()) == {"measured"}
    for space in spaces:
        # building and timing for a quarter of a second
        assert (space.measure_seconds > 0.05).all()
        np.testing.assert_allclose(
            np.log(space.run_seconds), programs.log_seconds[np.isin(programs.program_key, space.program_key)]
        )
