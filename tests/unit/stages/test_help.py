"""`--help` and `--version` of every script."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelcast import errors
from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.stages.conf_files import ConfFile
from kernelcast.stages.config import SCHEMAS
from kernelcast.stages.entry import INTERRUPTED
from kernelcast.stages.help import EXIT_STATUSES, help_page, one_line, options_of, version_lines

ROOT = Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"

ALL_AT_ONCE = """
import contextlib, io, os, runpy, sys
scripts, *arguments = sys.argv[1:]
for script in scripts.split(os.pathsep):
    sys.argv = [script, *arguments]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            runpy.run_path(script, run_name="__main__")
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
    print(os.path.basename(script), status, printed.getvalue().replace(chr(10), " "))
print("loaded:", *{"tvm", "torch", "numpy", "mlflow", "pandas"} & set(sys.modules))
"""
"""Runs several scripts in one process, one after the other, and prints a line for each."""


def run_all(folder: Path, *arguments: str) -> tuple[dict[str, tuple[int, str]], str]:
    """Exit status and output of every script, run from `folder`, and which heavy modules that loaded."""
    scripts = sorted(str(ROOT / "scripts" / f"{root}.py") for root in SCHEMAS)
    command = [sys.executable, "-c", ALL_AT_ONCE, ":".join(scripts), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *lines, loaded = done.stdout.splitlines()
    found = {}
    for line in lines:
        script, status, printed = line.split(" ", 2)
        found[Path(script).stem] = (int(status), printed)
    return found, loaded


@pytest.mark.parametrize("root", SCHEMAS)
def test_help_names_every_group_option_and_key(root: str) -> None:
    page = help_page(CONF, root, [], {})
    words = set(page.split())
    file = ConfFile.read(CONF / f"{root}.yaml")
    assert page.count(f"  python scripts/{root}.py") >= 2, "no examples"
    for choice in file.defaults:
        if choice.group.startswith("schema"):
            continue
        assert any(word.startswith((f"{choice.group}=", f"{choice.group}@")) for word in words)
        options = options_of(CONF, choice.group)
        assert len(options) == 1 or set(options) <= words
        if choice.option and choice.group != "launch":
            for key in ConfFile.read(CONF / choice.group / f"{choice.option}.yaml").keys:
                assert key.path in page
    for key in file.keys:
        assert key.path.startswith("hydra.") or f"  {key.path}" in page
    for code in EXIT_STATUSES:
        assert f"\n  {code} " in page
    assert "docs/reference/command-line.md" in page


def test_help_of_another_option_shows_its_keys() -> None:
    page = help_page(CONF, "train", ["model=xgboost", "-m", "loss=rank,log_mse", "seed=1"], {})
    assert "model.settings.rounds=" in page
    assert "model.network" not in page
    assert "* xgboost" in page


def test_help_of_an_option_that_is_not_there_lists_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"model=gnc: .* gcn, graphsage"):
        help_page(CONF, "train", ["model=gnc"], {})


def test_help_tells_what_a_flag_stands_for() -> None:
    assert "the same as probe=true" in help_page(CONF, "measure", [], {"--probe": "probe=true"})


def test_the_exit_statuses_are_those_of_the_errors() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    of_errors = {kind.exit_code for kind in kinds if issubclass(kind, KernelcastError)}
    assert all(issubclass(kind, KernelcastError) for kind in kinds)
    assert {0, INTERRUPTED, *of_errors} == set(EXIT_STATUSES)


def test_a_meaning_is_one_sentence() -> None:
    assert one_line("All of it (Chen et al. 2018). It ranks.") == "All of it (Chen et al. 2018)"
    assert one_line("A study of the GCN: python scripts/train.py -m hparams_search=gcn") == "A study of the GCN"


def test_scripts_answer_from_any_folder_without_loading_what_is_slow(tmp_path: Path) -> None:
    found, loaded = run_all(tmp_path, "--help")
    assert set(found) == set(SCHEMAS)
    for root, (status, printed) in found.items():
        assert status == 0, printed
        assert printed.startswith(f"python scripts/{root}.py")
    assert loaded == "loaded:"
    assert not list(tmp_path.iterdir())


def test_scripts_refuse_from_any_folder_what_there_is_not(tmp_path: Path) -> None:
    found, _ = run_all(tmp_path, "pahts.root=here")
    assert set(found) == set(SCHEMAS)
    for root, (status, printed) in found.items():
        assert status == 1, printed
        assert "Traceback" not in printed
        assert f"scripts/{root}.py: Could not override 'pahts.root'" in printed
        assert "--help" in printed
    assert not list(tmp_path.iterdir())


def test_the_version_names_the_pair_and_warns_of_an_untested_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # TVM-04: the pair of TVM and its FFI is shown, and an untested one is warned of
    assert [line.split()[0] for line in version_lines()] == ["kernelcast", "apache-tvm", "apache-tvm-ffi"]
    monkeypatch.setattr(
        "kernelcast.tvm_compat.loading.tvm_versions",
        lambda: {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post3"},
    )
    *_, pair, warning = version_lines()
    assert pair == "apache-tvm-ffi 0.1.15.post3"
    assert warning.startswith("warning: ")
    assert "0.1.14.post1" in warning
    assert "scripts/setup" in warning


def test_text_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = help_page(CONF, "measure", [], {})
    wide = [line for line in page.splitlines() if len(line) > 80]
    # commands and values are not broken
    assert all(re.match(r"  (python scripts/|[\w.-]+=|\S+: )", line) for line in wide), wide
