from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.evaluation import interactive
from kernelcast.evaluation.machine import (
    STRETCHES,
    MachineState,
    drift_sentence,
    machine_states,
    speeds,
    state_sentence,
)
from kernelcast.evaluation.machine_plots import machine_figure
from kernelcast.records import MEASUREMENTS_VERSION, Campaign, Measurements, measurement_table

NAN = float("nan")


def campaign_of(*rows: tuple[str, list[float], list[float]]) -> Measurements:
    """Rows of (device, reference seconds, end of the repeat)."""
    plain = {"workload_key": "k", "workload_name": "w", "workload_kind": "matmul", "trace": "", "target": "{}"}
    table = measurement_table(
        {
            **plain,
            "program_key": str(number),
            "outcome": "measured",
            "device": device,
            "run_seconds": [1.0] * len(reference),
            "reference_seconds": reference,
            "ended_at": ended,
        }
        for number, (device, reference, ended) in enumerate(rows)
    )
    return Measurements(Campaign(MEASUREMENTS_VERSION, {}, None, {}, {}, 0), {}, table)


def state_of(slowdown: np.ndarray, device: str = "local") -> MachineState:
    reference = slowdown.tolist()
    (state,) = machine_states(campaign_of((device, reference, [60.0 * at for at in range(len(reference))])))
    return state


def test_the_state_is_relative_to_the_best_and_in_order_of_time() -> None:
    (state,) = machine_states(
        campaign_of(("local", [2e-3, 1e-3], [160.0, 100.0]), ("local", [1.04e-3, NAN, 1e-3], [130.0, 190.0, NAN]))
    )
    np.testing.assert_allclose(state.minutes, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(state.slowdown, [1.0, 1.04, 2.0])
    assert state.near_best == pytest.approx(2 / 3)
    assert state_sentence([state]).startswith(
        "67% of the 3 repeats were timed while the reference kernel was within 5%"
    )


def test_each_device_is_relative_to_its_own_best_over_one_time() -> None:
    fast, slow = machine_states(campaign_of(("b", [4e-3, 8e-3], [60.0, 0.0]), ("a", [1e-3], [120.0])))
    assert (fast.device, slow.device) == ("a", "b")
    assert (fast.minutes.tolist(), slow.minutes.tolist()) == ([2.0], [0.0, 1.0])
    np.testing.assert_allclose(slow.slowdown, [2.0, 1.0])
    assert "a: 100% of the 1 repeats" in state_sentence([fast, slow])


def test_a_campaign_without_references_has_no_state() -> None:
    assert machine_states(campaign_of(("local", [NAN, 0.0], [1.0, 2.0]), ("local", [], []))) == []
    assert state_sentence([]) == ""


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50))
def test_the_speeds_hold_every_repeat(reference: list[float]) -> None:
    state = state_of(np.array(reference))
    edges, (share,) = speeds([state])
    assert share.sum() == pytest.approx(1.0)
    assert edges[0] == 1.0
    assert (np.diff(edges) > 0).all()
    assert state.slowdown.min() == 1.0


def test_two_speeds_show_as_two_peaks() -> None:
    random = np.random.default_rng(0)
    slowdown = np.repeat([1.0, 1.37], [600, 400]) * (1 + 0.02 * random.random(1000))
    # a few far slower ones leave the others their bins
    slowdown[-3:] = 50.0
    edges, (share,) = speeds([state_of(slowdown)])
    peaks = edges[:-1][share > 0.02]
    assert peaks.min() == 1.0
    assert ((peaks < 1.05) | ((peaks > 1.3) & (peaks < 1.45))).all()
    assert share[edges[:-1] > 1.3].sum() == pytest.approx(0.4)


def test_the_plots_have_a_series_a_device_and_few_points() -> None:
    random = np.random.default_rng(0)
    states = [state_of(1 + random.random(5000), device) for device in ("a", "b")]
    timeline, histogram = machine_figure(states).axes
    assert [line.get_label() for line in timeline.lines][:2] == ["a", "b"]
    assert len(histogram.patches) == 2
    chart = interactive.state_chart(states)
    points = [trace for trace in chart.data if trace.mode == "markers"]
    assert [trace.name for trace in points] == ["a", "b"]
    assert all(len(trace.x) == interactive.MOST_STATE_POINTS // 2 for trace in points)
    assert chart.data[0].x[0] == states[0].minutes[0]
    assert chart.data[0].x[-1] == states[0].minutes[-1]
    assert [trace.name for trace in interactive.speeds_chart(states).data] == ["a", "b"]


def test_no_line_is_drawn_over_a_pause_and_the_drift_says_how_long_a_stretch_is() -> None:
    # an hour, seven hours of nothing, an hour
    ended = np.concatenate([np.linspace(0, 3600, 500), np.linspace(8 * 3600, 9 * 3600, 500)])
    (state,) = machine_states(campaign_of(("local", [1e-6] * 1000, ended.tolist())))
    line = next(trace for trace in interactive.state_chart([state]).data if trace.mode == "lines")
    assert np.isnan(line.y).sum() == 1
    assert line.x[np.flatnonzero(np.isnan(line.y))[0] - 1] < 60 + state.stretch_minutes
    assert f"stretches of {9 * 60 / STRETCHES:.3g} minutes" in drift_sentence([state])


def test_an_undisturbed_machine_draws_too(tmp_path: Path) -> None:
    state = state_of(np.ones(1))
    assert state.near_best == 1.0
    machine_figure([state]).savefig(tmp_path / "state.png")
    assert (tmp_path / "state.png").stat().st_size > 1000
    (trace,) = interactive.speeds_chart([state]).data
    assert (trace.x[0], trace.y[0]) == (1.0, 1.0)


def test_the_spread_chart_rises_to_all_programs_and_marks_the_limit() -> None:
    chart = interactive.spread_chart(np.array([0.3, 0.1, 0.2]), 0.25)
    assert chart.data[0].x.tolist() == [0.1, 0.2, 0.3]
    assert chart.data[0].y.tolist() == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert chart.layout.shapes[0].x0 == 0.25
    assert not interactive.spread_chart(np.array([0.3]), None).layout.shapes
