"""The MLflow page as the README starts it, in a real browser."""

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Metric, Param

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


MANY = 500
"""Runs of an experiment beside the real ones, as a study of some days makes them."""


@pytest.fixture
def crowded(project: Project) -> str:
    """The id of an experiment with many short runs in the project's database."""
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    experiment_id = client.create_experiment("many", artifact_location=(project.root / "runs/artifacts").as_uri())
    for number in range(MANY):
        run = client.create_run(experiment_id, run_name=f"trial {number}")
        points = [Metric("valid/kendall_tau", step / MANY, number, step) for step in range(5)]
        client.log_batch(run.info.run_id, points, [Param("trainer.learning_rate", str(number))])
        client.set_terminated(run.info.run_id)
    return experiment_id


def test_the_page_lists_every_run_and_shows_what_one_is_made_of(
    project: Project, crowded: str, address: str, tmp_path: Path
) -> None:
    # MLF-09: single runs and a sweep, started by different commands, are on one page
    project.succeed("python", "scripts/train.py", "-m", "model=roofline", "split=random,workload")
    client = mlflow.MlflowClient(f"sqlite:///{project.root}/runs/mlflow.db")
    (gcn,) = client.search_runs(["1"], "attributes.run_name = 'gcn-rank on random'")
    split_hash = gcn.data.tags["kernelcast.split_hash"]

    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-quic", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1700, "height": 1100})
        # MLF-01: as the README says, in the database that nobody had to name
        page.goto(f"{address}/#/experiments/1/runs?workflowType=machine_learning")
        for name in ("measure", "graphs", "gcn-rank on random", "xgboost-rank on random", "evaluate", "report"):
            expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible(timeout=60_000)
        expect(page.get_by_role("link", name="sweep model=roofline split=random,workload").first).to_be_visible()
        expect(page.get_by_text("graphs (").first).to_be_visible()
        page.screenshot(path=tmp_path / "runs.png")

        page.get_by_role("link", name="gcn-rank on random", exact=True).first.click()
        expect(page.get_by_text("valid/kendall_tau").first).to_be_visible(timeout=60_000)
        expect(page.get_by_text("One cost model, fitted on one split.")).to_be_visible()
        expect(page.get_by_text(f"python scripts/repeat.py run={gcn.info.run_id}")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile(r"graphs \(\w+\)")).first).to_be_visible()
        page.screenshot(path=tmp_path / "run.png", full_page=True)
        page.get_by_text("+1", exact=True).first.click()
        expect(page.get_by_text("split random (").first).to_be_visible()
        page.screenshot(path=tmp_path / "datasets.png")
        page.keyboard.press("Escape")
        overview = page.url.split("?")[0]

        page.goto(f"{overview}/model-metrics")
        for group in ("train", "valid", "test"):
            expect(page.get_by_text(group, exact=True).first).to_be_visible(timeout=60_000)
        expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=60_000)
        page.screenshot(path=tmp_path / "metrics.png")

        page.goto(f"{overview}/artifacts")
        page.get_by_text("plots", exact=True).first.click()
        page.get_by_text("learning_curve.png", exact=True).first.click()
        expect(page.locator("img[src*='blob'], img[src*='get-artifact']").first).to_be_visible(timeout=60_000)
        page.screenshot(path=tmp_path / "artifact.png")

        # which runs used this split: the filter that the run's own note names
        query = urllib.parse.quote(f"tags.`kernelcast.split_hash` = '{split_hash}'")
        page.goto(f"{address}/#/experiments/1/runs?workflowType=machine_learning&searchFilter={query}")
        expect(page.get_by_role("link", name="xgboost-rank on random", exact=True).first).to_be_visible(timeout=60_000)
        expect(page.get_by_role("link", name="measure", exact=True)).to_have_count(0)
        page.screenshot(path=tmp_path / "filtered.png")

        # MLF-13: a page of many runs
        page.goto(f"{address}/#/experiments/{crowded}/runs?workflowType=machine_learning")
        expect(page.get_by_role("link", name=f"trial {MANY - 1}", exact=True).first).to_be_visible(timeout=60_000)
        page.screenshot(path=tmp_path / "many.png")
        browser.close()
    shots = {"runs", "run", "datasets", "metrics", "artifact", "filtered", "many"}
    assert {path.stem for path in tmp_path.glob("*.png")} == shots

    # MLF-13: and all of them are found by their best value, page by page
    found, token = [], None
    while not found or token:
        listed = client.search_runs(
            [crowded], order_by=["metrics.`valid/kendall_tau` DESC"], page_token=token, max_results=100
        )
        found, token = [*found, *listed], listed.token
    assert len(found) == MANY
