"""A real Hydra application of a few lines under the sweeper."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from optuna import Study, load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

CONF = Path(__file__).resolve().parents[4] / "conf"
MANY_COMMANDS = Path(__file__).resolve().parents[3] / "pipeline/many_commands.py"

# x = 1: NaN, 2: an error, 4: a curve that a pruner ends; else x itself, after a while
APPLICATION = """
import math, time
import hydra
from kernelcast.stages.sweep_job import trial_of_this_job

@hydra.main(version_base="1.3", config_path="conf", config_name="app")
def main(config):
    trial = trial_of_this_job(config.objective)
    for step in range(4):
        trial.report({"x": -1.0 if config.x == 4 else 1.0, "other": 0.0}, step)
    if config.x == 1:
        return math.nan
    if config.x == 2:
        raise RuntimeError("the third value is broken")
    time.sleep(config.seconds)
    return -1.0 if config.x == 4 else float(config.x)

if __name__ == "__main__":
    main()
"""

CONFIGURATION = """
defaults:
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: random
x: 0
seconds: 0.0
seed: 0
direction: maximize
objective: x
paths:
  runs: {runs}
hydra:
  callbacks:
    swept_job:
      _target_: kernelcast.stages.sweep_job.SweptJob
  sweep:
    dir: {runs}/sweeps/${{hydra.sweeper.study}}/${{now:%H-%M-%S-%f}}
  sweeper:
    study: app
    trials: 6
    warmup: 1
    pruner:
      n_startup_trials: 1
      n_min_trials: 1
    space:
      x: choice(0, 1, 2, 3)
"""


@dataclass(frozen=True)
class Application:
    """A folder with a script and its configuration."""

    root: Path

    def command(self, *overrides: str) -> list[str]:
        return [sys.executable, str(self.root / "app.py"), "-m", *overrides]

    def run(self, *overrides: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*overrides), capture_output=True, text=True, cwd=self.root, env=self.environment, check=False
        )

    def succeed(self, *overrides: str) -> str:
        done = self.run(*overrides)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run_together(self, lines: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[int, str]]:
        """Exit status and output of each line, one after the other in one process, which loads all libraries once."""
        done = subprocess.run(
            [sys.executable, str(MANY_COMMANDS)], capture_output=True, text=True, cwd=self.root, env=self.environment,
            input=json.dumps([[str(self.root / "app.py"), "-m", *line] for line in lines.values()]), check=True,
        )  # fmt: skip
        return dict(zip(lines, map(tuple, json.loads(done.stdout)), strict=True))

    def start(self, *overrides: str) -> "subprocess.Popen[bytes]":
        # whoever started the tests in the background may have turned SIGINT off for all below
        def heed_interrupts() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        return subprocess.Popen(
            self.command(*overrides), cwd=self.root, env=self.environment, preexec_fn=heed_interrupts
        )

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": "200"}

    @property
    def journal(self) -> Path:
        return self.root / "runs/optuna/app.journal"

    @property
    def study(self) -> Study:
        return self.study_of("app")

    def study_of(self, name: str) -> Study:
        journal = JournalFileBackend(str(self.root / f"runs/optuna/{name}.journal"))
        return load_study(study_name=name, storage=JournalStorage(journal))

    def states(self, name: str = "app") -> list[TrialState]:
        return [trial.state for trial in self.study_of(name).trials]

    def wait_for(self, condition: Callable[[Study], bool], seconds: float = 120) -> None:
        """Waits until the study is there and the condition holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.journal.exists() and self.journal.stat().st_size:
                try:
                    if condition(self.study):
                        return
                except KeyError:  # the journal is there before the study
                    pass
            time.sleep(0.1)
        raise AssertionError("waited in vain")

    def job_folders(self, name: str = "app") -> list[Path]:
        return [folder for folder in self.root.glob(f"runs/sweeps/{name}/*/*") if folder.name.isdigit()]


@pytest.fixture
def application(tmp_path: Path) -> Application:
    return make_application(tmp_path)


def make_application(root: Path) -> Application:
    shutil.copytree(CONF / "hydra", root / "conf" / "hydra")
    (root / "conf" / "app.yaml").write_text(CONFIGURATION.format(runs=root / "runs"))
    (root / "app.py").write_text(APPLICATION)
    return Application(root)
