"""The examples of docs/examples really work: they are put where the pages say, and trained by the real stages."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import FEW, as_run
from tests.docs.pages import ROOT
from tests.pipeline.conftest import Project

EXAMPLES = ROOT / "docs/examples"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_and_a_network_of_ones_own(followed: Project) -> None:
    model, layers = described(followed)
    assert [model["model"], layers["model"]] == ["own_model", "own_layers"]
    assert model["kind"] == "log_seconds"
    assert -1 <= model["metrics"]["test/kendall_tau"] <= 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_feature_of_ones_own(followed: Project, tmp_path: Path) -> None:
    # the page changes the source: in a checkout of its own
    project = Project(tmp_path / "checkout")
    shutil.copytree(followed.root, project.root)
    for made in ("runs", "data/graphs", "data/models"):
        shutil.rmtree(project.root / made)
    shutil.copytree(project.root / "data/datasets/zen4_1core", project.root / "data/measurements")
    project.edit("conf/graphs.yaml", "programs_per_workload: null", f"programs_per_workload: {FEW}")
    # a process that has not loaded the source before it was changed
    changed, *more = as_run("docs/how-to/own-feature.md")
    subprocess.run(changed, cwd=project.root, check=True)
    project.succeed_together(*more)
    for column in ("loads_per_store", "read_per_written"):
        assert column in (project.root / "docs/features.md").read_text()
    (trained,) = described(project)
    assert trained["feature_version"] != described(followed)[0]["feature_version"]
    (file,) = project.root.glob("runs/train/*/output/model/trained_on.json")
    columns = json.loads(file.read_text())["columns"]
    assert "loads_per_store" in columns["features"]["names"]
    assert "read_per_written" in columns["ast"]["kernel_names"]


def described(project: Project) -> list[dict[str, Any]]:
    """What the trainings in folders of their own say of themselves, the first one first."""
    return [json.loads(path.read_text()) for path in sorted(project.root.glob("runs/train/*/output/training.json"))]


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
