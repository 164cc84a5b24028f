import logging
import re
import shutil
from pathlib import Path

import pytest

from kernelcast.errors import KernelcastError
from kernelcast.stages.evaluate import evaluate
from kernelcast.stages.report import report
from tests.unit.evaluation.browser import opened


@pytest.fixture(scope="module")
def reported(trained_folder, tmp_path_factory: pytest.TempPathFactory):
    folder = trained_folder.copy(tmp_path_factory.mktemp("reported"))
    evaluate(folder.config)
    report(folder.config)
    return folder


@pytest.fixture
def folder(reported, tmp_path: Path):
    return reported.copy(tmp_path)


def test_the_page_names_every_model_and_where_to_look_is_logged(folder, caplog: pytest.LogCaptureFixture) -> None:
    page = folder.root / "data/report/index.html"
    page.unlink()
    with caplog.at_level(logging.INFO):
        report(folder.config)
    html = page.read_text()
    for name in (
        "xgboost",
        "random",
        "measured again",
        "layer_norm",
        "32 of 160 (20%)",
        "conv2d",
        "within 5% of its best time",
    ):
        assert name in html
    for place in (str(page), "table.csv", "mlflow ui --backend-store-uri sqlite:///"):
        assert place in caplog.text


@pytest.mark.parametrize(
    ("missing", "stage"),
    [
        ("measurements/measurements.parquet", "measure"),
        ("evaluation/results.json", "evaluate"),
        ("evaluation/predictions.parquet", "evaluate"),
        ("evaluation/learning.csv", "evaluate"),
    ],
)
def test_a_missing_input_names_its_stage_and_leaves_the_old_page(folder, missing: str, stage: str) -> None:
    before = (folder.root / "data/report/index.html").read_bytes()
    (folder.root / "data" / missing).unlink()
    with pytest.raises(KernelcastError, match=f"dvc repro {stage}"):
        report(folder.config)
    assert (folder.root / "data/report/index.html").read_bytes() == before


@pytest.mark.parametrize("name", ["results.json", "predictions.parquet"])
def test_a_torn_input_is_named(folder, name: str) -> None:
    path = folder.root / "data/evaluation" / name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(KernelcastError, match=name):
        report(folder.config)


@pytest.mark.browser
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_in_a_browser_every_plot_draws_without_a_network_and_fits_the_screen(reported, width: int, height: int) -> None:
    with opened(reported.root / "data/report/index.html", width, height) as page:
        for name in ("leaderboard", "learning", "state", "speeds", "spread"):
            page.locator(f"#plot-{name}").scroll_into_view_if_needed()
            page.wait_for_selector(f"#plot-{name} .main-svg", state="attached")
        # families of operators, each with a colour and a shape of its own, and the line of a perfect prediction
        assert page.locator("#parity .scatterlayer .trace").count() >= 3
        # the choice works by keyboard alone
        select = page.locator("#parity-controls select").first
        caption = page.locator("#parity figcaption")
        before = caption.inner_text()
        select.focus()
        select.press("ArrowDown")
        select.press("Enter")
        assert caption.inner_text() != before


def test_without_graphs_the_page_says_so_and_has_the_rest(folder) -> None:
    shutil.rmtree(folder.root / "data/graphs")
    report(folder.config)
    html = (folder.root / "data/report/index.html").read_text()
    assert "data/graphs is not at hand" in html
    # what the measurements of a busy machine allow to say of it
    assert re.search("Trust xgboost: on workloads|xgboost ranks best", html)


def test_a_torn_store_of_graphs_is_named_and_leaves_the_old_page(folder) -> None:
    page = folder.root / "data/report/index.html"
    before = page.read_bytes()
    meta = folder.root / "data/graphs/meta.json"
    meta.write_text(meta.read_text()[:100])
    with pytest.raises(KernelcastError, match=r"meta\.json"):
        report(folder.config)
    assert page.read_bytes() == before
