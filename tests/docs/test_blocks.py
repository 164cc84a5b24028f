"""The Python blocks of README and docs/ run as they stand, after the commands of the five-minute start.

Those fenced as `py` are fragments, with names that are the reader's: they have to be Python.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from tests.docs.pages import PAGES, ROOT, name_of
from tests.pipeline.conftest import Project

BLOCKS = Sybil([PythonCodeBlockParser()], patterns=["*.md"])
FRAGMENTS = Sybil([CodeBlockParser(language="py", evaluator=lambda example: None)], patterns=["*.md"])
WITH_BLOCKS = [page for page in PAGES if list(BLOCKS.parse(page).examples())]


@pytest.fixture
def inside(followed: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(followed.root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{followed.root}/runs/mlflow.db")
    yield followed.root
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
