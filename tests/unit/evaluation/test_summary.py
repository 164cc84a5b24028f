import numpy as np
import pytest

from kernelcast.evaluation.summary import METRIC_BY_NAME, METRICS, summarise
from kernelcast.models.protocol import PredictionKind

TRUTH = np.log([1e-6, 2e-6, 3e-6, 1e-3, 2e-3, 5e-4])
WORKLOAD = [0, 0, 0, 1, 1, 2]


def test_overall_is_the_mean_over_the_workloads_not_over_the_programs(make_programs) -> None:
    programs = make_programs(TRUTH, WORKLOAD)
    predicted = np.array([0.0, 1.0, 2.0, 2.0, 1.0, 0.0])
    summary = summarise(programs, predicted, PredictionKind.RANK)
    assert [scores.metrics.get("kendall_tau") for scores in summary.per_workload] == [1.0, -1.0, None]
    assert summary.overall["kendall_tau"] == 0.0
    assert summary.overall["pairwise_accuracy"] == 0.5


def test_a_single_program_is_not_ranked_and_said_so_but_its_time_counts(make_programs) -> None:
    summary = summarise(make_programs(TRUTH, WORKLOAD), TRUTH + np.log(1.1), PredictionKind.LOG_SECONDS)
    assert summary.unranked == ("w2",)
    assert summary.per_workload[2].metrics == pytest.approx(
        {"mape": 0.1, "median_ape": 0.1, "p90_ape": 0.1, "log_rmse": np.log(1.1)}
    )
    assert summary.overall["mape"] == pytest.approx(0.1)


def test_programs_of_equal_time_have_no_order(make_programs) -> None:
    summary = summarise(make_programs([-9.0, -9.0, -8.0, -7.0], [0, 0, 1, 1]), np.arange(4.0), "rank")
    assert summary.unranked == ("w0",)
    assert summary.overall["kendall_tau"] == 1.0


def test_a_model_of_ranks_has_no_error_of_time(make_programs) -> None:
    overall = summarise(make_programs(TRUTH, WORKLOAD), TRUTH, PredictionKind.RANK).overall
    assert "mape" not in overall
    assert "log_rmse" not in overall


def test_the_top_5_of_5_programs_is_absent_rather_than_perfect(make_programs) -> None:
    truth = np.arange(11.0)
    summary = summarise(make_programs(truth, [0] * 5 + [1] * 6), -truth, "rank")
    assert "top_5" not in summary.per_workload[0].metrics
    assert summary.overall["top_5"] == pytest.approx(np.exp(-1))


def test_workloads_without_test_programs_are_left_out(make_programs) -> None:
    programs = make_programs(TRUTH[:3], [2, 2, 2], names=["a", "b", "c"])
    assert [scores.workload for scores in summarise(programs, TRUTH[:3], "log_seconds").per_workload] == ["c"]


def test_a_prediction_that_knows_nothing_scores_as_by_chance(make_programs) -> None:
    overall = summarise(make_programs(TRUTH, WORKLOAD), np.zeros(6), "log_seconds").overall
    for name, value in overall.items():
        if METRIC_BY_NAME[name].by_chance is not None:
            assert value == METRIC_BY_NAME[name].by_chance


def test_clear_pairs_need_a_noise_and_a_pair_beyond_it(make_programs) -> None:
    programs = make_programs(np.log([1e-6, 1.05e-6, 2e-6, 1e-3, 1.01e-3]), [0, 0, 0, 1, 1])
    # wrong where nobody can know the order
    predicted = np.array([1.0, 0.0, 2.0, 1.0, 0.0])
    assert "clear_pairwise_accuracy" not in summarise(programs, predicted, "rank").overall
    summary = summarise(programs, predicted, "rank", noise_ratio=1.1)
    assert summary.overall["clear_pairwise_accuracy"] == 1.0
    assert "clear_pairwise_accuracy" not in summary.per_workload[1].metrics
    assert summary.overall["pairwise_accuracy"] == pytest.approx((2 / 3 + 0) / 2)


def test_the_tile_size_ape_is_summed_over_kernels(make_programs) -> None:
    # chosen 2 of best 1, chosen 110 of best 100
    programs = make_programs(np.log([1.0, 2.0, 100.0, 110.0]), [0, 0, 1, 1])
    overall = summarise(programs, np.array([1.0, 0.0, 1.0, 0.0]), "rank").overall
    assert overall["tile_size_ape"] == pytest.approx((1 + 10) / (1 + 100))
    assert overall["top_1"] == pytest.approx((0.5 + 100 / 110) / 2)


def test_no_programs_have_no_figures(make_programs) -> None:
    summary = summarise(make_programs([], []), np.zeros(0), "log_seconds")
    assert (summary.overall, summary.per_workload, summary.unranked) == ({}, (), ())


def test_names_of_metrics_are_unique() -> None:
    assert len(METRIC_BY_NAME) == len(METRICS)
