from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.evaluation import machine_plots, plots
from kernelcast.evaluation.palette import COLOURS, MATPLOTLIB_MARKERS, PLOTLY_MARKERS, style
from kernelcast.evaluation.results import Results
from kernelcast.models.protocol import PredictionKind

HISTORY = "step,train/loss,valid/kendall_tau,valid/loss\n0,1.0,,nan\n1,0.5,0.2,0.7\n2,0.4,0.3,0.6\n"


def points(figure) -> list[tuple[float, float]]:
    return [tuple(point) for axes in figure.axes for drawn in axes.collections for point in drawn.get_offsets()]


def test_a_parity_plot_has_log_axes_microseconds_and_the_line_of_equality() -> None:
    figure = plots.parity_figure(np.array([1e-6, 1e-3]), np.array([2e-6, 1e-3]), ["b", "a"], "gcn")
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    np.testing.assert_allclose(sorted(points(figure)), [(1.0, 2.0), (1000.0, 1000.0)])
    (line,) = axes.lines
    assert line.get_xdata() == pytest.approx([1.0, 1000.0])
    assert line.get_ydata() == pytest.approx([1.0, 1000.0])
    assert axes.get_legend_handles_labels()[1] == ["a", "b", "predicted = measured"]


def test_workloads_differ_in_colour_and_marker(make_programs) -> None:
    assert len({style(number) for number in range(64)}) == 64
    assert len(COLOURS) == len(MATPLOTLIB_MARKERS) == len(PLOTLY_MARKERS)
    programs = make_programs([-9.0, -8.0], [0, 1])
    figure = plots.prediction_figure(programs, np.array([-9.0, -8.0]), PredictionKind.LOG_SECONDS)
    colours = [tuple(drawn.get_facecolor()[0]) for drawn in figure.axes[0].collections]
    assert colours[0] != colours[1]


def test_a_model_of_ranks_gets_places_over_relative_times(make_programs) -> None:
    programs = make_programs(np.log([2e-6, 1e-6, 4e-6, 5e-3]), [0, 0, 0, 1])
    figure = plots.prediction_figure(programs, np.array([50.0, 7.0, 60.0, 1.0]), PredictionKind.RANK)
    np.testing.assert_allclose(sorted(points(figure)), [(1.0, 0.0), (1.0, 0.0), (2.0, 0.5), (4.0, 1.0)])


def test_no_programs_and_absurd_predictions_still_draw(make_programs, tmp_path: Path) -> None:
    empty = plots.prediction_figure(make_programs([], []), np.array([]), PredictionKind.LOG_SECONDS)
    empty.savefig(tmp_path / "empty.png")
    absurd = plots.prediction_figure(make_programs([-9.0], [0]), np.array([1e6]), PredictionKind.LOG_SECONDS)
    absurd.savefig(tmp_path / "absurd.png")
    assert (tmp_path / "absurd.png").stat().st_size > 1000


def test_a_legend_leaves_a_hundred_workloads_out(make_programs) -> None:
    programs = make_programs(np.linspace(-9, -8, 100), list(range(100)))
    figure = plots.prediction_figure(programs, programs.log_seconds, PredictionKind.LOG_SECONDS)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["predicted = measured"]
    # all of them are drawn, in the colours that few would have
    assert len(points(figure)) == 100
    colours = {tuple(colour) for drawn in figure.axes[0].collections for colour in drawn.get_facecolor()}
    assert len(colours) == len(COLOURS)


def test_the_learning_curve_leaves_gaps_where_nothing_finite_was_logged(tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text(HISTORY)
    assert plots.read_history(path) == {
        "train/loss": [(0, 1.0), (1, 0.5), (2, 0.4)],
        "valid/kendall_tau": [(1, 0.2), (2, 0.3)],
        "valid/loss": [(1, 0.7), (2, 0.6)],
    }
    losses, tau = plots.learning_curve_figure(path).axes
    assert [line.get_label() for line in losses.lines] == ["train/loss", "valid/loss"]
    assert list(tau.lines[0].get_ydata()) == [0.2, 0.3]


@pytest.mark.parametrize("content", ["", "epoch,train/loss\n0,1\n", "step,train/loss\n0,high\n"])
def test_a_torn_history_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "history.csv"
    path.write_text(content)
    if not content:
        assert plots.read_history(path) == {}
        return
    with pytest.raises(MalformedDataError, match=r"history\.csv.*dvc repro -f train"):
        plots.read_history(path)


def test_tau_by_workload_shows_every_model_and_the_mean_with_its_interval(results: Results) -> None:
    (axes,) = plots.tau_figure(results.splits[0]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mean, with interval", "matmul", "softmax"]
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["measured again", "gcn", "xgboost", "random"]


def test_the_leaderboard_has_a_panel_a_split(results: Results) -> None:
    panels = plots.leaderboard_figure(results.splits).axes
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["gcn", "xgboost", "random"]
    assert "never seen" in panels[1].get_title()


@pytest.mark.parametrize("module", [plots, machine_plots], ids=lambda module: module.__name__)
def test_nothing_global_is_used(module: ModuleType) -> None:
    assert "matplotlib.pyplot" not in vars(module)
    assert "pyplot" not in Path(module.__file__).read_text().split('"""', 2)[2]
