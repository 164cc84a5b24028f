"""The examples of docs/examples really work: they are put where the pages say, and trained by the real stage."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, commands_of
from tests.pipeline.conftest import Project, copy_checkout, make_small

EXAMPLES = ROOT / "docs/examples"
TINY = ("trainer=tiny", "split=random")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout with a few measured programs of the shipped data set, as `measure` would have left them."""
    project = copy_checkout(tmp_path_factory.mktemp("examples"))
    make_small(project)
    shutil.copytree(project.root / "data/datasets/zen4_1core", project.root / "data/measurements")
    project.edit("conf/graphs.yaml", "programs_per_workload: null", "programs_per_workload: 12")
    project.edit("conf/graphs.yaml", "only_kinds: []", 'only_kinds: ["*matmul*"]')
    return project


def run_page(project: Project, page: str, *more: str) -> None:
    """Runs the commands of a page as they stand; those that train get what makes them short."""
    for command in commands_of(ROOT / page):
        words = command.words
        if words[1:2] == ("scripts/train.py",):
            words = (*words, *more)
        if words[0] in ("cp", "git"):
            subprocess.run(words, cwd=project.root, check=True)
        else:
            project.succeed(*words)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_a_network_and_a_feature_of_ones_own(measured: Project) -> None:
    # one test: each goes on with what the one before has made
    measured.succeed("python", "scripts/graphs.py")
    run_page(measured, "docs/how-to/own-model.md", "trainer=tiny")
    made = sorted(measured.root.glob("runs/train/*/output/training.json"))
    described = [json.loads(path.read_text()) for path in made]
    assert [entry["model"] for entry in described] == ["own_model", "own_layers"]
    assert described[0]["kind"] == "log_seconds"
    assert -1 <= described[0]["metrics"]["test/kendall_tau"] <= 1
    old = described[0]["feature_version"]
    run_page(measured, "docs/how-to/own-feature.md", "trainer=tiny")
    assert "loads_per_store" in (measured.root / "docs/features.md").read_text()
    assert "read_per_written" in (measured.root / "docs/features.md").read_text()
    newest = max(measured.root.glob("runs/train/*/output/training.json"))
    assert json.loads(newest.read_text())["feature_version"] != old
    columns = json.loads((newest.parent / "model/trained_on.json").read_text())["columns"]
    assert "loads_per_store" in columns["features"]["names"]
    assert "read_per_written" in columns["ast"]["kernel_names"]


def test_the_examples_compile_and_are_named_by_a_page() -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs/how-to").glob("*.md"))
    for path in EXAMPLES.iterdir():
        if path.is_file():
            assert path.name in pages, f"no page names docs/examples/{path.name}"
        if path.suffix == ".py":
            compile(path.read_text(), str(path), "exec")


def test_the_patch_of_a_feature_still_applies(tmp_path: Path) -> None:
    for name in ("features", "flat_columns", "kernel_features"):
        target = tmp_path / f"src/kernelcast/graphs/{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / f"src/kernelcast/graphs/{name}.py", target)
    for arguments in (("init", "-q"), ("apply", str(EXAMPLES / "own_feature.patch"))):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    assert "loads_per_store" in (tmp_path / "src/kernelcast/graphs/flat_columns.py").read_text()
