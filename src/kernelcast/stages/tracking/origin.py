"""Who ran which code, with what, in which process: what a run says about where it comes from."""

from __future__ import annotations

import getpass
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import kernelcast
from kernelcast.stages.process_identity import process_identity
from kernelcast.stages.provenance import code_hash
from kernelcast.stages.tracking.names import LONGEST_PARAM

PROCESS_TAG = "kernelcast.process"
SOURCE_TAG = "kernelcast.source_hash"
DIRTY_TAG = "kernelcast.git_dirty"
COMMIT_TAG = "mlflow.source.git.commit"

CODE = ("src", "scripts", "conf", "dvc.yaml", "pyproject.toml", "requirements.lock")
"""What of a checkout decides what a run does; `dvc.lock` and the pages of results change while stages run."""

LIBRARIES = ("kernelcast", "apache-tvm", "torch", "torch-geometric", "xgboost-cpu", "xgboost", "lightgbm", "numpy")
"""Whose versions decide figures."""

LONGEST_DIFF = 2**20
"""Bytes of a difference from the revision that a run keeps."""


def provenance_tags(root: Path) -> dict[str, str]:
    """The git revision, whether files differ from it, a hash of the code as it is, the command line, the process."""
    revision, dirty = git_state(root)
    return {
        "mlflow.user": user_name(),
        "mlflow.source.name": Path(sys.argv[0]).name,
        "mlflow.source.type": "LOCAL",
        COMMIT_TAG: revision,
        DIRTY_TAG: str(dirty).lower(),
        SOURCE_TAG: code_hash(Path(kernelcast.__file__).parent),
        "kernelcast.command": command_line()[:LONGEST_PARAM],
        PROCESS_TAG: process_identity(),
        "kernelcast.versions": ", ".join(f"{name} {version}" for name, version in library_versions().items()),
    }


def command_line() -> str:
    """What was typed, quoted as for a shell."""
    script = Path(sys.argv[0])
    program = ["python", f"scripts/{script.name}"] if script.parent.name == "scripts" else [script.name]
    return shlex.join([*program, *sys.argv[1:]])


def environment() -> dict[str, Any]:
    """What somebody who repeats a run needs beside its configuration: the whole command line, all versions, choices."""
    from kernelcast.measurement.host import cpu_identity

    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return {
        "command": [sys.executable, *sys.argv],
        "python": platform.python_version(),
        "processor": cpu_identity(),
        "packages": dict(sorted(packages.items(), key=lambda package: str(package[0]).lower())),
        **launched(),
    }


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide figures."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def launched() -> dict[str, Any]:
    """What Hydra knows of this run beside its configuration: which files were chosen, what was overridden."""
    if not HydraConfig.initialized():
        return {"choices": {}, "overrides": []}
    hydra = HydraConfig.get()
    return {
        "choices": OmegaConf.to_container(hydra.runtime.choices),
        "overrides": OmegaConf.to_container(hydra.overrides.task),
    }


def user_name() -> str:
    """Who runs this; a container may run as a number that has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def git_state(root: Path) -> tuple[str, bool]:
    """The checked-out revision and whether code differs from it, also in new files; `unknown` outside git."""
    try:
        return _git(root, "rev-parse", "HEAD").strip(), bool(_git(root, "status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True


def source_difference(root: Path) -> str:
    """How the code differs from the checked-out revision, as a patch; empty where it does not, or by very much."""
    try:
        # of new files it names only that they are there, which an index of our own would change
        new = _git(root, "ls-files", "--others", "--exclude-standard", "--", *CODE).splitlines()
        added = "".join(_new_file(root, name) for name in new)
        patch = _git(root, "diff", "HEAD", "--", *CODE) + added
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError):
        return ""
    return patch if len(patch) <= LONGEST_DIFF else ""


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _new_file(root: Path, name: str) -> str:
    command = ["git", "-C", str(root), "diff", "--no-index", "--", os.devnull, name]
    # its exit status is 1 where files differ, and here they always do
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
