"""The MLflow page as the README starts it, in a real browser."""

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.conftest import ROOT, Project

pytestmark = pytest.mark.browser


@pytest.fixture
def address(project: Project, tmp_path: Path) -> Iterator[str]:
    """Where the server answers that the README's own line starts, in the project's folder."""
    line = re.search(r"^((?:\w+=\S+ )*)(mlflow ui .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert line is not None
    settings = dict(word.split("=", 1) for word in line.group(1).split())
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*project.command(*line.group(2).split()), "--port", str(port)],
            cwd=project.root,
            env={**project.environment, **settings},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, 15)
            server.wait(30)


def wait_for(url: str, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"{url} does not answer")


def test_the_page_lists_every_run_and_shows_metrics_and_plots_of_one(
    project: Project, address: str, tmp_path: Path
) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-quic", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{address}/#/experiments/1/runs?workflowType=machine_learning")
        for name in ("measure", "graphs", "gcn-rank on random", "xgboost-rank on random", "evaluate", "report"):
            expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible(timeout=60_000)
        page.screenshot(path=tmp_path / "runs.png")
        page.get_by_role("link", name="gcn-rank on random", exact=True).first.click()
        expect(page.get_by_text("valid/kendall_tau").first).to_be_visible(timeout=60_000)
        page.screenshot(path=tmp_path / "run.png")
        page.goto(f"{page.url.split('?')[0]}/artifacts")
        page.get_by_text("plots", exact=True).first.click()
        page.get_by_text("learning_curve.png", exact=True).first.click()
        expect(page.locator("img[src*='blob'], img[src*='get-artifact']").first).to_be_visible(timeout=60_000)
        page.screenshot(path=tmp_path / "artifact.png")
        browser.close()
    assert {path.name for path in tmp_path.glob("*.png")} == {"runs.png", "run.png", "artifact.png"}
