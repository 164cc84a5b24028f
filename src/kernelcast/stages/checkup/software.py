"""What is installed, and whether it fits together."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement

import kernelcast
from kernelcast.errors import KernelcastError
from kernelcast.stages.checkup.findings import Finding, Status
from kernelcast.stages.tracking.origin import git_state
from kernelcast.tvm_compat import TESTED_VERSIONS, check_versions, load_tvm, tvm_versions

AREA = "software"

XGBOOST_FLAVOURS = ("xgboost", "xgboost-cpu")

SET_UP_AGAIN = "run `scripts/setup` (of a checkout) to install the versions that were tested"


def software_findings(root: Path) -> Iterator[Finding]:
    """Python, kernelcast, TVM and the packages that it needs.

    Args:
        root: the checkout.
    """
    yield python_finding(sys.version_info[:3])
    yield revision_finding(*git_state(root), bool(shutil.which("git")))
    pair = pair_finding(tvm_versions())
    yield pair
    installed = installed_versions()
    yield from requirement_findings(importlib.metadata.requires("kernelcast") or [], installed)
    yield flavour_finding(installed)
    if pair.status is not Status.FAULT:
        yield _tvm_finding()
    yield _compiler_finding()


def python_finding(version: tuple[int, ...]) -> Finding:
    """The interpreter."""
    found = f"{'.'.join(map(str, version))} ({platform.python_implementation()}), {sys.executable}"
    if version < (3, 11):
        return Finding(AREA, "Python", found, Status.FAULT, "kernelcast needs Python 3.11 or newer")
    return Finding(AREA, "Python", found)


def revision_finding(revision: str, dirty: bool, git: bool) -> Finding:
    """Which kernelcast this is.

    Args:
        revision: of the checkout; `unknown` where nobody can say.
        dirty: whether its files differ from it.
        git: whether there is the program.
    """
    changed = ", files differ from it" if dirty and revision != "unknown" else ""
    found = f"{kernelcast.__version__}, git revision {revision[:12]}{changed}"
    if revision != "unknown":
        return Finding(AREA, "kernelcast", found)
    what = "git knows no revision here: is it a clone, and yours?" if git else "there is no git: install it."
    return Finding(
        AREA, "kernelcast", found, Status.WARNING, f"{what} Runs note what revision they ran, and DVC wants one"
    )


def pair_finding(versions: Mapping[str, str]) -> Finding:
    """The pair of TVM and its FFI: an ABI contract that nothing checks at run time."""
    found = ", ".join(f"{name} {version}" for name, version in versions.items())
    tested = ", ".join(f"{name} {version}" for name, version in TESTED_VERSIONS.items())
    if dict(versions) == TESTED_VERSIONS:
        return Finding(AREA, "TVM and its FFI", f"{found}: the pair that was tested")
    try:
        check_versions(dict(versions))
        advice = SET_UP_AGAIN
    except KernelcastError as error:
        advice = str(error)
    return Finding(AREA, "TVM and its FFI", f"{found}: not the tested pair ({tested})", Status.FAULT, advice)


def installed_versions() -> dict[str, str]:
    """Versions of all installed distributions, by their normalised names."""
    return {
        name.lower().replace("_", "-"): each.version
        for each in importlib.metadata.distributions()
        if (name := each.metadata["Name"])
    }


def requirement_findings(declared: list[str], installed: Mapping[str, str]) -> Iterator[Finding]:
    """Whether what kernelcast declares to need is there, in the versions that it declares; TVM and XGBoost apart."""
    shown, wrong = [], []
    for text in declared:
        requirement = Requirement(text)
        name = requirement.name.lower().replace("_", "-")
        if (requirement.marker and not requirement.marker.evaluate({"extra": ""})) or name in TESTED_VERSIONS:
            continue
        version = installed.get(name)
        if version is None:
            if name not in XGBOOST_FLAVOURS:
                wrong.append(f"{name} is missing")
        elif requirement.specifier.contains(version, prereleases=True):
            shown.append(f"{name} {version}")
        else:
            wrong.append(f"{name} is {version}, declared is {requirement.specifier}")
    if wrong:
        yield Finding(AREA, "packages not as declared", "; ".join(wrong), Status.WARNING, SET_UP_AGAIN)
    yield Finding(AREA, "packages as declared", ", ".join(shown))


def flavour_finding(installed: Mapping[str, str]) -> Finding:
    """XGBoost is published under two names that own the same folder."""
    found = [f"{name} {installed[name]}" for name in XGBOOST_FLAVOURS if name in installed]
    if len(found) == 1:
        return Finding(AREA, "XGBoost", found[0])
    if not found:
        return Finding(AREA, "XGBoost", "missing", Status.FAULT, SET_UP_AGAIN)
    return Finding(
        AREA, "XGBoost", f"{' and '.join(found)}: both own the folder xgboost/ and overwrite each other", Status.FAULT,
        f"pip uninstall {' '.join(XGBOOST_FLAVOURS)}, then {SET_UP_AGAIN}",
    )  # fmt: skip


def _tvm_finding() -> Finding:
    try:
        load_tvm()
        codegen = importlib.import_module("tvm.target.codegen")
        return Finding(AREA, "TVM loads", f"with LLVM {codegen.llvm_version_major()}")
    except Exception as error:  # whatever a broken installation throws
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Finding(AREA, "TVM loads", f"no: {reason}", Status.FAULT, SET_UP_AGAIN)


def _compiler_finding() -> Finding:
    compilers = [name for name in ("g++", "clang++", "c++") if shutil.which(name)]
    if compilers:
        return Finding(AREA, "C++ compiler", f"{', '.join(compilers)} (links networks and programs for other devices)")
    return Finding(
        AREA, "C++ compiler", "none", Status.WARNING,
        "install g++ or clang++: `tune network=...` links a library, runner=rpc links programs; the rest needs none",
    )  # fmt: skip
