import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

LAUNCH = Path(__file__).resolve().parents[3] / "conf" / "launch" / "default.yaml"

DRAWS = """
import logging.config, sys
from kernelcast.stages.graphs import progress_of
console = {"class": sys.argv[1], "stream": "ext://sys.stdout"}
logging.config.dictConfig({"version": 1, "handlers": {"console": console}, "root": {"handlers": ["console"]}})
with progress_of("graphs") as progress:
    progress(1, 3)
    logging.warning("a line of the log that says what happened")
    progress(2, 3)
"""


def drawn(tmp_path: Path, to_file: bool) -> tuple[str, str]:
    """What a terminal and a file get of a log line while a bar is on the terminal."""
    handler = OmegaConf.load(LAUNCH).job_logging.handlers.console["class"]
    ours, theirs = os.openpty()
    file = tmp_path / "out"
    with file.open("wb") as out:
        subprocess.run(
            [sys.executable, "-c", DRAWS, handler], stdout=out if to_file else theirs, stderr=theirs, check=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        )  # fmt: skip
    os.close(theirs)
    terminal = os.read(ours, 2**16).decode()
    os.close(ours)
    return terminal, file.read_text()


@pytest.mark.parametrize("to_file", [False, True])
def test_a_line_of_the_log_stands_above_the_bar(tmp_path: Path, to_file: bool) -> None:
    terminal, file = drawn(tmp_path, to_file)
    assert "━" in terminal
    assert ("what happened" in terminal, "what happened" in file) == (not to_file, to_file)
    # the cursor goes back, or on, between the two
    written = re.split(r"[\r\n]|\x1b\[2K", terminal)
    assert not [line for line in written if "━" in line and "what happened" in line]


SAYS = """
import logging, sys
from hydra import compose, initialize_config_dir
from hydra.core.utils import configure_log
from kernelcast.stages.config import register_schemas
register_schemas()
with initialize_config_dir(sys.argv[1], version_base="1.3"):
    hydra = compose("repeat", return_hydra_config=True).hydra
hydra.job.name, hydra.runtime.output_dir = "repeat", sys.argv[2]
configure_log(hydra.job_logging, hydra.verbose)
for name in ("matplotlib.font_manager", "alembic.runtime.plugins", "kernelcast.stages"):
    logging.getLogger(name).info("%s says something", name)
"""


def test_libraries_do_not_tell_of_every_step(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAYS, str(LAUNCH.parents[1]), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[3] for line in said.splitlines()] == ["kernelcast.stages"]
