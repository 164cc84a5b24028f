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
    assert summary.per_workload[2].metrics == pytest.approx({"mape": 0.1, "log_rmse": np.log(1.1)})
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


def test_names_of_metrics_are_unique() -> None:
    assert len(METRIC_BY_NAME) == len(METRICS)
