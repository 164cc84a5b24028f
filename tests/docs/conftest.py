"""A checkout in which a reader has followed pages of docs/, on few programs: made once, in one process."""

from collections.abc import Iterator, Sequence

import pytest

from tests.docs.pages import ROOT, commands_of
from tests.pipeline.conftest import Project, copy_checkout, make_small

FEW = 8
"""Programs of a workload, where a page takes more."""


def as_run(page: str) -> Iterator[Sequence[str]]:
    """The commands of a page as they stand, as `Project.run_together` takes them; predictions of fewer schedules."""
    for command in commands_of(ROOT / page):
        words = [word.replace("programs_per_workload=20", f"programs_per_workload={FEW}") for word in command.words]
        if words[0] == "python":
            yield [*words[1:], *(["samples=4"] if words[1] == "scripts/predict.py" else [])]
        elif words[0] in ("cp", "git"):
            yield words


@pytest.fixture(scope="session")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """After the five-minute start up to the prediction, the page of own models, and what a whole pipeline would add."""
    project = copy_checkout(tmp_path_factory.mktemp("followed"))
    make_small(project)
    # few workloads too, some of them of each network
    project.edit("conf/graphs.yaml", "only_kinds: []", 'only_kinds: ["*matmul*"]')
    start = [words for words in as_run("docs/start.md") if words[0] != "scripts/measure.py"]
    trained = [
        "scripts/train.py", "model=lightgbm_estimate", "loss=log_mse", "split=workload",
        "output=data/models/workload/lightgbm_estimate-log_mse",
    ]  # fmt: skip
    evaluated = ["scripts/evaluate.py", "bootstrap_samples=50", "measurements=[data/datasets/zen4_1core]"]
    pipeline = [["cp", "-r", "data/zen4", "data/graphs"], trained, evaluated, ["scripts/register.py", "split=workload"]]
    printed = project.succeed_together(*start, *pipeline, *as_run("docs/how-to/own-model.md"))
    assert "matmul" in printed[len(start) - 1], "the last command is a prediction"
    return project
