"""The Python blocks of README and docs/ run as they stand, after the commands of the five-minute start.

Those fenced as `py` are fragments, with names that are the reader's: they have to be Python.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from tests.docs.pages import PAGES, ROOT, commands_of, name_of
from tests.pipeline.conftest import Project, copy_checkout

BLOCKS = Sybil([PythonCodeBlockParser()], patterns=["*.md"])
FRAGMENTS = Sybil([CodeBlockParser(language="py", evaluator=lambda example: None)], patterns=["*.md"])
WITH_BLOCKS = [page for page in PAGES if list(BLOCKS.parse(page).examples())]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A checkout in which a reader has followed the five-minute start, on fewer programs, up to the prediction."""
    project = copy_checkout(tmp_path_factory.mktemp("started"))
    for command in commands_of(ROOT / "docs/start.md"):
        if command.words[1:2] and command.words[1] in ("scripts/graphs.py", "scripts/train.py", "scripts/predict.py"):
            words = [word.replace("programs_per_workload=20", "programs_per_workload=3") for word in command.words]
            more = ("samples=4",) if words[1] == "scripts/predict.py" else ()
            printed = project.succeed(*words, *more)
    assert "matmul" in printed, "the last command is a prediction"
    # what the blocks name that a whole pipeline would have made
    shutil.copytree(project.root / "data/zen4", project.root / "data/graphs")
    project.succeed(
        "python", "scripts/train.py", "model=lightgbm", "loss=log_mse", "split=workload",
        "output=data/models/workload/lightgbm-log_mse",
    )  # fmt: skip
    project.succeed("python", "scripts/evaluate.py", "bootstrap_samples=50", "measurements=[data/datasets/zen4_1core]")
    project.succeed("python", "scripts/register.py", "split=workload")
    return project


@pytest.fixture
def inside(started: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(started.root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{started.root}/runs/mlflow.db")
    yield started.root
    os.chdir(ROOT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_the_python_blocks_of_a_page_run(inside: Path, page: Path) -> None:
    document = BLOCKS.parse(inside / page.relative_to(ROOT))
    for example in document.examples():
        example.evaluate()


def test_pages_have_blocks() -> None:
    # a parser that finds nothing would make the test above pass
    assert {"docs/reference/python.md", "docs/how-to/registry.md"} <= {name_of(page) for page in WITH_BLOCKS}


def test_fragments_are_python() -> None:
    found = [(page, example) for page in PAGES for example in FRAGMENTS.parse(page).examples()]
    assert "docs/how-to/tune.md" in {name_of(page) for page, _ in found}
    for page, example in found:
        compile(str(example.parsed), f"{name_of(page)}:{example.line}", "exec")
