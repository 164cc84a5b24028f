import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
SHELL = sorted(path.name for path in SCRIPTS.iterdir() if path.is_file() and path.read_bytes().startswith(b"#!"))


def ran(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A shell script of a checkout that has nothing but its scripts, called from a folder in it."""
    shutil.copytree(SCRIPTS, root / "scripts")
    (root / "docs").mkdir()
    return subprocess.run(command, cwd=root / "docs", capture_output=True, text=True, timeout=60)


def test_these_are_the_shell_scripts() -> None:
    assert SHELL == ["docs", "lock", "quickstart", "setup", "test"]


@pytest.mark.parametrize("name", SHELL)
def test_a_shell_script_says_what_it_does_and_does_nothing(tmp_path: Path, name: str) -> None:
    done = ran(tmp_path, f"../scripts/{name}", "--help")
    first = (SCRIPTS / name).read_text().splitlines()[1].removeprefix("# ")
    assert done.stdout.startswith(first)
    assert (done.returncode, done.stderr) == (0, "")
    assert not {"#", "set -euo"} & set(done.stdout.splitlines())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "scripts"]


def test_a_mistyped_argument_of_setup_installs_nothing(tmp_path: Path) -> None:
    done = ran(tmp_path, "../scripts/setup", "tests")
    assert (done.returncode, done.stderr) == (1, "setup: unknown argument tests; there is test, and --help\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "scripts"]
