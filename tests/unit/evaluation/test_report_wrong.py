import dataclasses
import json

import numpy as np
import pytest

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.comparisons import Comparison
from kernelcast.evaluation.report_page.columns import Column
from kernelcast.evaluation.report_page.explored import Explored, Predicted
from kernelcast.evaluation.report_page.headline import headline
from kernelcast.evaluation.report_page.surrogate import amount, explain, sentences, trust_sentence
from kernelcast.evaluation.report_page.wrong import losses, worst_programs
from kernelcast.evaluation.results import Results


def explored_of(log_seconds: np.ndarray, workload: np.ndarray, **columns: np.ndarray) -> Explored:
    count = len(log_seconds)
    workloads = int(workload.max()) + 1
    return Explored(
        key=np.array([f"{number:016x}" for number in range(count)], dtype=object),
        log_seconds=log_seconds,
        workload=workload.astype(np.int64),
        workload_names=tuple(f"w{number}" for number in range(workloads)),
        kinds=tuple("conv2d" if number % 2 else "dense" for number in range(workloads)),
        networks=((),) * workloads,
        origin=np.zeros(count, dtype=np.int64),
        spread=np.zeros(count),
        schedules=[""] * count,
        columns=columns,
        parts={},
        predicted=(),
        notes=(),
    )


def claimed(log_seconds: np.ndarray) -> Predicted:
    return Predicted("random", "m", True, np.arange(len(log_seconds)), log_seconds, log_seconds)


def test_the_worst_programs_come_first_with_the_way_they_are_wrong() -> None:
    explored = explored_of(np.log([1.0, 2.0, 4.0]), np.array([0, 0, 0]))
    first, second = worst_programs(explored, claimed(np.log([1.0, 6.0, 2.0])), most=2)
    assert (first.row, first.verdict) == (1, "faster than claimed")
    assert first.factor == pytest.approx(3.0)
    assert (first.measured, first.claimed) == (pytest.approx(2.0), pytest.approx(6.0))
    assert (second.row, second.verdict) == (2, "slower than claimed")


def test_a_loss_is_what_the_first_choice_costs_and_nothing_where_it_is_right() -> None:
    explored = explored_of(np.log([1.0, 3.0, 5.0, 5.05, 1.0, 2.0]), np.array([0, 0, 1, 1, 2, 2]))
    (loss,) = losses(explored, claimed(np.log([2.0, 1.0, 9.0, 1.0, 1.0, 2.0])))
    assert (loss.workload, loss.chosen, loss.best, loss.programs) == (0, 1, 0, 2)
    assert loss.factor == pytest.approx(3.0)


@pytest.fixture
def planted() -> tuple[Explored, Predicted]:
    """400 programs of 8 workloads; those without vectors, a quarter, take 4 times what is claimed."""
    random = np.random.default_rng(0)
    workload = np.repeat(np.arange(8), 50)
    truth = random.normal(-8, 1, 400)
    scalar = np.arange(400) % 4 == 0
    explored = explored_of(
        truth,
        workload,
        vector_share=np.where(scalar, 0.0, 0.9).astype(np.float32),
        flops=random.lognormal(10, 1, 400).astype(np.float32),
    )
    noise = random.normal(0, 0.05, 400)
    return explored, claimed(truth + noise - np.where(scalar, np.log(4.0), 0.0))


def test_what_was_planted_is_found_and_told_with_counts(planted: tuple[Explored, Predicted]) -> None:
    explanation = explain(*planted)
    assert explanation is not None
    assert explanation.tested == 400
    assert explanation.worst == 40
    found = {row for group in explanation.groups for row in group.rows.tolist()}
    assert found == set(range(0, 400, 4))
    assert sum(group.of_worst for group in explanation.groups) == 40
    for group in explanation.groups:
        assert group.words.startswith("with nothing vectorised")
        assert group.factor == pytest.approx(4.0, rel=0.05)
        assert group.slower == 1.0
    said = sentences(explanation)
    assert "median error factor 4.0" in said[0]
    assert "of 400" in said[0]
    assert said[-1].startswith("Best known: programs ")
    # the same in workloads that a tree was not fitted to
    assert explanation.explained > 0.9
    assert trust_sentence(explanation).startswith("Such groups account for")


def test_errors_without_a_cause_are_not_given_one(planted: tuple[Explored, Predicted]) -> None:
    explored, _ = planted
    random = np.random.default_rng(1)
    explanation = explain(explored, claimed(explored.log_seconds + random.normal(0, 0.3, 400)))
    assert explanation is not None
    assert explanation.explained < 0.02
    assert "read them as a description" in trust_sentence(explanation)


def test_few_programs_equal_errors_and_a_single_workload_are_told_as_they_are(
    planted: tuple[Explored, Predicted],
) -> None:
    explored, predicted = planted
    few = dataclasses.replace(
        predicted,
        rows=predicted.rows[:20],
        log_seconds=predicted.log_seconds[:20],
        log_ranked_as=predicted.log_ranked_as[:20],
    )
    assert explain(explored, few) is None
    same = explain(explored, claimed(explored.log_seconds))
    assert (same.groups, same.best, same.explained) == ((), None, None)
    assert list(sentences(same)) == []
    alone = dataclasses.replace(explored, workload=np.zeros(400, dtype=np.int64))
    assert "single workload" in trust_sentence(explain(alone, predicted))
    # without columns the kind alone is left to split by
    bare = explain(dataclasses.replace(explored, columns={}), predicted)
    assert all("vector" not in sentence for sentence in sentences(bare))


@pytest.mark.parametrize(
    ("value", "column", "text"),
    [
        (0.25, Column("a", "A", share=True), "25%"),
        (0.004, Column("a", "A", share=True), "0.4%"),
        (16.0, Column("a", "A", "lanes"), "16 lanes"),
        (65536.0, Column("a", "A", "B"), "65.5 kB"),
        (2e9, Column("a", "A", "flop"), "2 Gflop"),
        (12_000.0, Column("a", "A", "iterations"), "12 k iterations"),
        (0.2487, Column("a", "A", "flop/B"), "0.249 flop/B"),
    ],
)
def test_amounts_are_said_as_a_reader_says_them(value: float, column: Column, text: str) -> None:
    assert amount(value, column) == text


def test_the_summary_names_what_is_behind_its_words(results: Results) -> None:
    # the split of unseen workloads decides
    top = headline(results)
    assert (top.split, top.best.model) == ("workload", "gcn")
    known = dataclasses.replace(results, splits=results.splits[:1])
    top = headline(known)
    assert "on workloads seen in training it ranks best" in top.trust
    assert "shown to be better than xgboost; not shown to be better than random" in top.sure


def test_a_best_model_that_does_not_beat_chance_is_not_to_be_trusted(results: Results) -> None:
    split = results.splits[1]
    poor = dataclasses.replace(split.models[1], metrics={"kendall_tau": Estimate(0.05, -0.1, 0.2)})
    top = headline(dataclasses.replace(results, splits=(dataclasses.replace(split, models=(poor,)),)))
    assert top.trust.startswith("Trust no model yet: on workloads never seen in training the best, gcn, is not shown")


def test_what_limits_the_best_model_is_the_noise_the_model_or_what_it_has_not_seen(results: Results) -> None:
    ceiling, gcn = results.splits[1].models
    near = dataclasses.replace(gcn, metrics={"kendall_tau": Estimate(0.945, 0.9, 0.95)})
    split = dataclasses.replace(results.splits[1], models=(ceiling, near))
    assert "the noise of the measurements" in headline(dataclasses.replace(results, splits=(split,))).limit
    low = dataclasses.replace(gcn, metrics={"kendall_tau": Estimate(0.2, 0.1, 0.3)})
    split = dataclasses.replace(results.splits[1], models=(ceiling, low))
    limit = headline(dataclasses.replace(results, splits=(results.splits[0], split))).limit
    assert "not the noise, of whose ceiling (measured again)" in limit
    assert "what it has not seen: on known workloads its tau is 0.500, on unknown ones 0.200" in limit


def test_noisy_measurements_choose_no_model(results: Results) -> None:
    noisy = dataclasses.replace(results.noise, ratio_median=Estimate(1.34, 1.2, 1.5))
    top = headline(dataclasses.replace(results, noise=noisy))
    assert top.trust.startswith("Measure again before you trust any model: two measurements of the same program differ")
    assert "by 34% in the median. So far gcn ranks best" in top.trust
    assert top.limit.startswith("What limits it: the noise of the measurements: other work disturbed them")


def test_a_model_that_is_ahead_of_none_is_not_the_one_to_trust(results: Results) -> None:
    known = results.splits[0]
    level = tuple(dataclasses.replace(pair, low=-0.1, p=0.5, p_holm=0.5) for pair in known.comparisons)
    top = headline(dataclasses.replace(results, splits=(dataclasses.replace(known, comparisons=level),)))
    assert top.trust.startswith("No model is shown to be ahead: on workloads seen in training gcn ranks best")


def test_many_others_are_counted_and_not_listed(results: Results) -> None:
    split = results.splits[0]
    gcn = next(model for model in split.models if model.model == "gcn")
    names = [f"m{number}" for number in range(6)]
    others = tuple(
        dataclasses.replace(gcn, model=name, metrics={"kendall_tau": Estimate(0.1, 0.0, 0.2)}) for name in names
    )
    pairs = tuple(Comparison("gcn", name, "kendall_tau", 0.4, 0.1, 0.6, 12, 0.01, 0.02) for name in names)
    many = dataclasses.replace(split, models=(gcn, *others), comparisons=pairs)
    assert "better than m0, m1, m2 and 3 others." in headline(dataclasses.replace(results, splits=(many,))).sure
    assert json.dumps(headline(results).trust)
