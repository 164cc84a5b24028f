import logging
import shutil
from pathlib import Path

import pytest

from kernelcast.errors import KernelcastError
from kernelcast.stages.evaluate import evaluate
from kernelcast.stages.report import report


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
    for name in ("xgboost", "random", "measured again", "layer_norm", "32 of 160 (20%)", "within 5% of its best time"):
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
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    requests: list[str] = []
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-quic"])
        page = browser.new_page(viewport={"width": width, "height": height}, offline=True)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((reported.root / "data/report/index.html").as_uri())
        for name in ("leaderboard", "predictions", "workloads", "learning", "state", "speeds", "spread"):
            page.wait_for_selector(f"#plot-{name} .main-svg", state="attached")
        assert page.locator("#plot-predictions .scatterlayer .trace").count() >= 4
        # the choice works by keyboard alone
        select = page.locator("select[data-chart=predictions]")
        before = page.locator("#plot-predictions").get_attribute("aria-label")
        select.focus()
        select.press("ArrowDown")
        select.press("Enter")
        page.wait_for_function(
            "before => document.getElementById('plot-predictions').getAttribute('aria-label') !== before", arg=before
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert requests == [(reported.root / "data/report/index.html").as_uri()]
    assert problems == []
