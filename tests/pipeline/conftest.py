"""A copy of the checkout with everything small, in which the real pipeline has run once."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FEW_MODELS = ("xgboost", "gcn", "tvm_xgb")
"""What the small `dvc repro` trains: trees, a network, one with TVM's features; beside them ensemble and baselines."""


@dataclass(frozen=True)
class Project:
    """A checkout of its own, with its own `src` before the installed one."""

    root: Path

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command as a user types it in the project's folder."""
        return subprocess.run(
            self.command(*command), cwd=self.root, env={**self.environment, **(environment or {})},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def succeed(self, *command: str) -> str:
        """Runs a command that must succeed; returns all it printed."""
        done = self.run(*command)
        printed = done.stdout + done.stderr
        assert done.returncode == 0, printed
        return printed

    def run_together(
        self, commands: Iterable[Sequence[str]], environment: Mapping[str, str] | None = None
    ) -> list[tuple[int, str]]:
        """Status and output of each command, all in one process; see `many_commands`."""
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("many_commands.py"))], cwd=self.root,
            env={**self.environment, **(environment or {})}, input=json.dumps([list(command) for command in commands]),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [(status, printed) for status, printed in json.loads(done.stdout)]

    def succeed_together(self, *commands: Sequence[str]) -> list[str]:
        """What each command printed; all must succeed."""
        answers = self.run_together(commands)
        for command, (status, printed) in zip(commands, answers, strict=True):
            assert status == 0, f"{' '.join(command)}\n{printed}"
        return [printed for _, printed in answers]

    def command(self, *command: str) -> list[str]:
        return [
            sys.executable if command[0] == "python" else str(Path(sys.executable).with_name(command[0])),
            *command[1:],
        ]

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"}

    def edit(self, file: str, old: str, new: str) -> None:
        """Edits a file as a user would in an editor."""
        path = self.root / file
        text = path.read_text()
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new))


def copy_checkout(root: Path) -> Project:
    """All files of the checkout that git tracks or would track, as a repository of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "everything"]):
        subprocess.run([*git, *arguments], cwd=root, check=True, capture_output=True)
    return Project(root)


def make_small(project: Project) -> None:
    """Small workloads, few candidates, short trainings: the same stages, the same code."""
    conf = project.root / "conf"
    shutil.copy(conf / "workload" / "tiny.yaml", conf / "workload" / "default.yaml")
    shutil.copy(conf / "runner" / "quick.yaml", conf / "runner" / "default.yaml")
    shutil.copy(conf / "trainer" / "tiny.yaml", conf / "trainer" / "default.yaml")
    lines = (conf / "measure.yaml").read_text().splitlines()
    small = ["samples_per_workload: 10 # few" if line.startswith("samples_per_workload") else line for line in lines]
    assert small != lines
    (conf / "measure.yaml").write_text("\n".join(small) + "\n")


def train_few(project: Project) -> None:
    """Leaves the models of `FEW_MODELS` in `dvc.yaml`: all go through the same command, and unit tests train each."""
    path = project.root / "dvc.yaml"
    lines = path.read_text().splitlines(keepends=True)
    models = [re.match(r" +- \{model: (\w+),", line) for line in lines]
    kept = [line for line, model in zip(lines, models, strict=True) if model is None or model[1] in FEW_MODELS]
    assert len(kept) < len(lines)
    path.write_text("".join(kept))


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small project after each stage ran once by its script, with two models on one split."""
    small = copy_checkout(tmp_path_factory.mktemp("checkout"))
    make_small(small)
    models = [
        ("scripts/train.py", f"model={model}", "split=random", f"output=data/models/random/{model}")
        for model in ("gcn", "xgboost")
    ]
    # each in a process of its own: `reproduced`
    small.succeed_together(
        ("scripts/measure.py",), ("scripts/graphs.py",), *models, ("scripts/evaluate.py",), ("scripts/report.py",)
    )
    return small


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small project after its first `dvc repro`, with few models on every split."""
    small = copy_checkout(tmp_path_factory.mktemp("reproduced"))
    make_small(small)
    train_few(small)
    small.succeed("dvc", "repro")
    return small
