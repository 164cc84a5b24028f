import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Labels, best_of_workload
from kernelcast.models.losses import Aim, Combined, LambdaRank, ListMLE, LogMSE, PairwiseRank, RelativeThroughput
from kernelcast.models.losses.groups import comparable_pairs, lists_of, places
from kernelcast.models.protocol import PredictionKind

SCORES = torch.tensor([0.0, 2.0, 1.0, 5.0])
TIMES = torch.tensor([-3.0, -1.0, -2.0, -9.0])
WORKLOADS = torch.tensor([0, 0, 0, 1])
RANKING = [PairwiseRank(), PairwiseRank("logistic"), PairwiseRank(weighting="distance"), LambdaRank(), ListMLE()]

# programs of a batch: workload, log seconds with ties, prediction
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 0), st.floats(-3, 3, width=32)), min_size=1, max_size=12)


def labels_of(log_seconds, workload):
    return Labels.of(np.asarray(log_seconds, dtype=np.float64), np.asarray(workload))


def exact_labels(log_seconds, workload):
    """In double precision, as checks of gradients need them."""
    log_seconds, workload = np.asarray(log_seconds, dtype=np.float64), np.asarray(workload)
    best = best_of_workload(log_seconds, workload)
    return Labels(torch.from_numpy(log_seconds), torch.from_numpy(workload), torch.from_numpy(best))


def exact(rows):
    workload, log_seconds, prediction = zip(*rows, strict=True)
    return torch.tensor(prediction, dtype=torch.float64), exact_labels(log_seconds, workload)


def groups(rows):
    """The row numbers of each workload."""
    return [[i for i, row in enumerate(rows) if row[0] == index] for index in sorted({row[0] for row in rows})]


def test_hinge_over_the_pairs_of_one_workload():
    # pairs slower-faster of workload 0: 1-0 (difference 2), 1-2 (1), 2-0 (1); margin 1.5
    loss = PairwiseRank("hinge", margin=1.5)(SCORES, labels_of(TIMES, WORKLOADS))
    assert loss.item() == pytest.approx((0 + 0.5 + 0.5) / 3)


def test_hinge_of_a_wrong_order():
    loss = PairwiseRank("hinge", margin=1.0)(torch.tensor([1.0, 0.0]), labels_of([-2.0, -1.0], [3, 3]))
    assert loss.item() == pytest.approx(2.0)


def test_logistic_over_the_pairs_of_one_workload():
    expected = sum(math.log1p(math.exp(-difference)) for difference in (2.0, 1.0, 1.0)) / 3
    assert PairwiseRank("logistic")(SCORES, labels_of(TIMES, WORKLOADS)).item() == pytest.approx(expected, rel=1e-6)


def test_pairs_far_apart_count_for_more():
    # log seconds apart: 1-0 by 2, 1-2 by 1, 2-0 by 1; hinges as above
    loss = PairwiseRank("hinge", margin=1.5, weighting="distance")(SCORES, labels_of(TIMES, WORKLOADS))
    assert loss.item() == pytest.approx((2 * 0 + 1 * 0.5 + 1 * 0.5) / 4)


def test_lambdarank_by_hand():
    # three programs, throughputs 1, 1/2 and 1/4; predicted order: the second, the first, the third
    times = [0.0, math.log(2), math.log(4)]
    scores = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    discounts = [1 / math.log2(3), 1.0, 0.5]
    gains = [1.0, 0.5, 0.25]
    ideal = 1.0 + 0.5 / math.log2(3) + 0.25 * 0.5
    expected = 0.0
    for slower, faster in ((1, 0), (2, 0), (2, 1)):
        change = abs(gains[slower] - gains[faster]) * abs(discounts[slower] - discounts[faster]) / ideal
        expected += change * math.log1p(math.exp(-2.0 * float(scores[slower] - scores[faster])))
    # workload 1 has no pair and does not count
    scores = torch.cat([scores, torch.tensor([9.0], dtype=torch.float64)])
    loss = LambdaRank(steepness=2.0)(scores, exact_labels([*times, 5.0], [0, 0, 0, 1]))
    assert loss.item() == pytest.approx(expected)


def test_lambdarank_looks_at_the_places_that_count():
    scores = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    LambdaRank(top=1)(scores, exact_labels([-4.0, -3.0, -1.0, -2.0], [0] * 4)).backward()
    # a swap of the third and the fourth changes nothing at the first place; of each with the first it does
    assert (scores.grad != 0).all()
    swapped = torch.tensor([0.0, 1.0, 3.0, 2.0], dtype=torch.float64)
    near = LambdaRank(top=1)(swapped, exact_labels([-4.0, -3.0, -1.0, -2.0], [0] * 4))
    pairs = [(1, 0), (2, 0), (3, 0)]
    gains = [math.exp(-4.0 - time) for time in (-4.0, -3.0, -1.0, -2.0)]
    expected = sum((gains[j] - gains[i]) * math.log1p(math.exp(-float(swapped[i] - swapped[j]))) for i, j in pairs)
    assert near.item() == pytest.approx(expected)


def test_listmle_by_hand():
    # from the fastest: programs 0, 2, 1 with preferences 0, -1, -2; the one of workload 1 has no choice
    first = math.log(1 + math.exp(-1) + math.exp(-2))
    second = math.log(math.exp(-1) + math.exp(-2)) + 1
    assert ListMLE()(SCORES, labels_of(TIMES, WORKLOADS)).item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_listmle_stands_scores_far_apart():
    scores = torch.tensor([0.0, 1e6, -1e6], requires_grad=True)
    loss = ListMLE()(scores, labels_of([-3.0, -2.0, -1.0], [0, 0, 0]))
    loss.backward()
    assert loss.item() == pytest.approx((1e6 + 2e6) / 2)
    assert torch.isfinite(scores.grad).all()


def test_throughput_by_hand():
    # the best of the workload may be in another batch
    whole = labels_of([0.0, math.log(2), math.log(4)], [7, 7, 7])
    batch = whole.select(torch.tensor([1, 2]))
    loss = RelativeThroughput()(torch.tensor([-0.5, -0.75]), batch)
    assert loss.item() == pytest.approx((0.0 + 0.5**2) / 2)


def test_log_mse_is_the_mean_squared_difference():
    loss = LogMSE()(torch.tensor([-1.0, -2.0]), labels_of([-1.5, -4.0], [0, 1]))
    assert loss.item() == pytest.approx((0.25 + 4.0) / 2)


def test_a_combination_is_the_weighted_sum():
    terms = {"time": LogMSE(), "order": PairwiseRank("logistic")}
    labels = labels_of(TIMES, WORKLOADS)
    both = Combined(terms, {"time": 0.5, "order": 3.0})
    expected = 0.5 * terms["time"](SCORES, labels) + 3.0 * terms["order"](SCORES, labels)
    assert both(SCORES, labels).item() == pytest.approx(expected.item())


def test_a_combination_predicts_what_its_terms_want():
    equal = {"a": 1.0, "b": 1.0}
    time = Combined({"a": ListMLE(), "b": LogMSE()}, equal)
    assert (time.predicts, time.monitor, time.maximize) == (PredictionKind.LOG_SECONDS, "valid/loss", False)
    assert time.output_range(np.array([-4.0, -2.0])) == (-3.0, 1.0)
    assert time.aim is None
    order = Combined({"a": PairwiseRank(), "b": PairwiseRank("logistic")}, equal)
    assert (order.predicts, order.monitor, order.maximize) == (PredictionKind.RANK, "valid/kendall_tau", True)
    assert order.aim is Aim.PAIRWISE
    throughput = Combined({"a": RelativeThroughput(), "b": LambdaRank()}, equal)
    assert (throughput.predicts, throughput.monitor) == (PredictionKind.RANK, "valid/loss")
    assert throughput.boosting_labels(np.array([0.0, math.log(2)]), np.array([0, 0])).tolist() == [-1.0, -0.5]


@pytest.mark.parametrize(
    ("losses", "weights", "message"),
    [
        ({}, {}, "losses is empty"),
        ({"a": LogMSE()}, {"b": 1.0}, "every loss needs one weight"),
        ({"a": LogMSE()}, {"a": 0}, r"loss.weights.a=0"),
        ({"a": LogMSE()}, {"a": math.inf}, r"loss.weights.a=inf"),
        (
            {"a": LogMSE(), "b": RelativeThroughput()},
            {"a": 1.0, "b": 1.0},
            "cannot be log_seconds and throughput at once .a wants log_seconds, b wants throughput",
        ),
    ],
)
def test_a_combination_without_sense_is_refused(losses, weights, message):
    with pytest.raises(ConfigError, match=message):
        Combined(losses, weights)


@pytest.mark.parametrize("loss", RANKING)
def test_no_comparable_pair_gives_zero_with_a_gradient(loss):
    scores = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    # three workloads of one program
    value = loss(scores, labels_of([-1.0, -1.0, -5.0], [0, 1, 2]))
    value.backward()
    assert value.item() == 0.0
    assert scores.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("loss", RANKING)
def test_gradient_pulls_a_wrong_pair_apart(loss):
    scores = torch.tensor([0.0, 0.1], requires_grad=True)
    loss(scores, labels_of([-1.0, -2.0], [0, 0])).backward()
    # descending raises the slower one's score and lowers the faster one's
    assert scores.grad[0] < 0 < scores.grad[1]


@pytest.mark.parametrize(
    "loss",
    [
        PairwiseRank("logistic"),
        PairwiseRank("logistic", weighting="distance"),
        LambdaRank(),
        LambdaRank(steepness=0.5, top=2),
        ListMLE(),
        LogMSE(),
        RelativeThroughput(),
        Combined({"time": LogMSE(), "order": ListMLE()}, {"time": 0.3, "order": 2.0}),
    ],
)
def test_gradients_are_those_of_differences(loss):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(9, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = exact_labels(np.random.default_rng(3).normal(size=9), [4, 0, 4, 0, 2, 4, 0, 4, 0])
    assert torch.autograd.gradcheck(lambda prediction: loss(prediction, labels), [scores])


@settings(deadline=None, max_examples=50)
@given(ROWS)
def test_pairs_and_pair_losses_are_those_of_two_loops(rows):
    prediction, labels = exact(rows)
    expected = [
        (i, j) for group in groups(rows) for i in group for j in group if labels.log_seconds[i] > labels.log_seconds[j]
    ]
    slower, faster = comparable_pairs(labels.log_seconds, labels.workload)
    assert sorted(zip(slower.tolist(), faster.tolist(), strict=True)) == sorted(expected)
    for weighting in ("equal", "distance"):
        total = weights = 0.0
        for i, j in expected:
            weight = 1.0 if weighting == "equal" else float(labels.log_seconds[i] - labels.log_seconds[j])
            total += weight * max(0.0, 1.0 - float(prediction[i] - prediction[j]))
            weights += weight
        found = PairwiseRank(weighting=weighting)(prediction, labels).item()
        assert found == pytest.approx(total / weights if expected else 0.0)


@settings(deadline=None, max_examples=50)
@given(ROWS, st.sampled_from([None, 1, 3]))
def test_lambdarank_is_that_of_a_loop_over_the_workloads(rows, top):
    prediction, labels = exact(rows)
    times = labels.log_seconds.tolist()
    losses = []
    for group in groups(rows):
        pairs = [(i, j) for i in group for j in group if times[i] > times[j]]
        if not pairs:
            continue
        gain = {i: math.exp(min(times[k] for k in group) - times[i]) for i in group}
        # in ties the one that stands first in the batch
        order = sorted(group, key=lambda i: float(prediction[i]))
        discount = {
            i: 0.0 if top is not None and place >= top else 1 / math.log2(place + 2) for place, i in enumerate(order)
        }
        counted = sorted(discount.values(), reverse=True)
        ideal = sum(g * d for g, d in zip(sorted(gain.values(), reverse=True), counted, strict=True))
        losses.append(
            sum(
                abs((gain[i] - gain[j]) * (discount[i] - discount[j]))
                / ideal
                * math.log1p(math.exp(-float(prediction[i] - prediction[j])))
                for i, j in pairs
            )
        )
    found = LambdaRank(top=top)(prediction, labels).item()
    assert found == pytest.approx(sum(losses) / len(losses) if losses else 0.0)


@settings(deadline=None, max_examples=50)
@given(ROWS)
def test_listmle_is_that_of_a_loop_over_the_places(rows):
    prediction, labels = exact(rows)
    terms = []
    for group in groups(rows):
        order = sorted(group, key=lambda i: float(labels.log_seconds[i]))
        for place, i in enumerate(order[:-1]):
            rest = sum(math.exp(-float(prediction[k])) for k in order[place:])
            terms.append(math.log(rest) + float(prediction[i]))
    assert ListMLE()(prediction, labels).item() == pytest.approx(sum(terms) / len(terms) if terms else 0.0)


@settings(deadline=None, max_examples=50)
@given(ROWS)
def test_lists_hold_every_program_once_in_order(rows):
    _, labels = exact(rows)
    lists = lists_of(labels.log_seconds, labels.workload)
    found = [row[filled].tolist() for row, filled in zip(lists.program, lists.filled, strict=True)]
    assert found == [sorted(group, key=lambda i: float(labels.log_seconds[i])) for group in groups(rows)]
    assert lists.counts.tolist() == [len(group) for group in groups(rows)]


@settings(deadline=None, max_examples=50)
@given(ROWS)
def test_places_are_those_of_a_loop_over_the_workloads(rows):
    workload, times = np.array([row[0] for row in rows]), np.array([float(row[1]) for row in rows])
    expected = np.zeros(len(rows))
    for group in groups(rows):
        expected[group] = np.unique(times[group], return_inverse=True)[1]
    assert places(times, workload).tolist() == expected.tolist()


@pytest.mark.parametrize("loss", [*RANKING, LogMSE(), RelativeThroughput()])
def test_labels_of_boosted_trees_have_the_order_of_the_times(loss):
    log_seconds, workload = np.array([-1.0, -3.0, -3.0, -2.0, -9.0, -8.0]), np.array([0, 0, 0, 0, 1, 1])
    labels = loss.boosting_labels(log_seconds, workload)
    assert labels.dtype == np.float32
    for i, j in combinations(range(6), 2):
        if workload[i] == workload[j]:
            assert np.sign(labels[i] - labels[j]) == np.sign(log_seconds[i] - log_seconds[j])


def test_boosting_labels_are_places_within_the_workload():
    log_seconds = np.array([-1.0, -3.0, -3.0, -2.0, -9.0, -8.0])
    assert PairwiseRank().boosting_labels(log_seconds, np.array([0, 0, 0, 0, 1, 1])).tolist() == [2, 0, 0, 1, 0, 1]
    assert len(places(np.zeros(0), np.zeros(0, dtype=np.int64))) == 0


def test_outputs_start_near_the_labels():
    assert LogMSE().output_range(np.array([-4.0, -2.0])) == (-3.0, 1.0)
    # one label: the spread says nothing
    assert LogMSE().output_range(np.array([-4.0])) == (-4.0, 1.0)
    assert PairwiseRank().output_range(np.array([-4.0, -2.0])) == (0.0, 1.0)
    shift, scale = RelativeThroughput().output_range(np.array([-4.0, -2.0]))
    assert -1 < shift - scale < shift + scale < 0


def test_configured_losses_say_what_they_predict(conf_of):
    kinds = {
        "rank": PredictionKind.RANK,
        "rank_logistic": PredictionKind.RANK,
        "lambdarank": PredictionKind.RANK,
        "listmle": PredictionKind.RANK,
        "throughput": PredictionKind.RANK,
        "log_mse": PredictionKind.LOG_SECONDS,
        "combined": PredictionKind.LOG_SECONDS,
    }
    assert {name: instantiate(conf_of("loss", name)).predicts for name in kinds} == kinds


@pytest.mark.parametrize(
    ("loss", "arguments", "key"),
    [
        (PairwiseRank, {"surrogate": "square"}, "loss.surrogate"),
        (PairwiseRank, {"margin": 0}, "loss.margin"),
        (PairwiseRank, {"margin": "wide"}, "loss.margin"),
        (PairwiseRank, {"weighting": "noise"}, "loss.weighting"),
        (LambdaRank, {"steepness": -1}, "loss.steepness"),
        (LambdaRank, {"top": 0}, "loss.top"),
        (LambdaRank, {"top": 2.5}, "loss.top"),
    ],
)
def test_wrong_settings_name_their_key(loss, arguments, key):
    with pytest.raises(ConfigError, match=key):
        loss(**arguments)
