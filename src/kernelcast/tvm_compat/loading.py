"""Loads TVM quickly, without torch, and only in the versions that work."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from kernelcast.errors import ConfigError

TESTED_VERSIONS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
"""The pair that works: under tvm-ffi 0.1.15 this TVM segfaults on making a TuneContext or saving a module as JSON."""

INTRINSICS = "tvm.s_tir.tensor_intrin"
INTRINSICS_OF_MACHINE = {
    "x86_64": "x86",
    "amd64": "x86",
    "aarch64": "arm_cpu",
    "arm64": "arm_cpu",
    "riscv64": "riscv_cpu",
}


_LOADING = threading.RLock()
"""A thread that asks while another one loads has to wait: a module is listed before it is whole, and torch is away."""


@lru_cache(maxsize=1)
def load_tvm() -> Any:
    """The module `tvm`, loaded without what makes that slow, and without torch.

    - TVM imports torch whenever it is installed (3 s, and every forked worker would carry its pages).
    - `import tvm.s_tir.tensor_intrin`, which TuneContext does, parses hundreds of CUDA and ROCm intrinsics, each
      through `inspect.stack()`: 20 to 100 s. Only the intrinsics of this machine's processor are loaded here; those of
      another kind of target come with `load_intrinsics`.

    Raises:
        ConfigError: the installed pair of `apache-tvm` and `apache-tvm-ffi` is not the one that works.
    """
    check_versions(tvm_versions())
    with _LOADING:
        hide_torch = "torch" not in sys.modules
        if hide_torch:
            sys.modules["torch"] = None  # type: ignore[assignment]
        try:
            tvm = importlib.import_module("tvm")
            importlib.import_module("tvm.s_tir")
        finally:
            if hide_torch:
                del sys.modules["torch"]
        _install_intrinsics_package()
        machine = platform.machine().lower()
        if machine in INTRINSICS_OF_MACHINE:
            load_intrinsics(INTRINSICS_OF_MACHINE[machine])
    return tvm


def load_intrinsics(kind: str) -> None:
    """Registers the tensor intrinsics of one kind (`x86`, `arm_cpu`, `cuda`, ...), once."""
    name = f"{INTRINSICS}.{kind}"
    with _LOADING:
        if name not in sys.modules:
            with _cheap_frames():
                importlib.import_module(name)


@contextmanager
def _cheap_frames() -> Iterator[None]:
    """Replaces `inspect.stack`, which TVM's parser calls for each of hundreds of intrinsics.

    The parser wants the frames alone. The real one also looks up the source of each, through every loaded module: 13
    to 100 s instead of 2 for the intrinsics of CUDA.
    """
    original = inspect.stack

    def frames(context: int = 1) -> list[inspect.FrameInfo]:
        found = []
        frame = inspect.currentframe()
        while frame is not None and frame.f_back is not None:
            frame = frame.f_back
            found.append(
                inspect.FrameInfo(frame, frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None, None)
            )
        return found

    inspect.stack = frames
    try:
        yield
    finally:
        inspect.stack = original


def _install_intrinsics_package() -> None:
    """Puts the package of the intrinsics in place without running its `__init__`, which imports all of them."""
    if INTRINSICS in sys.modules:
        return
    spec = importlib.util.find_spec(INTRINSICS)
    if spec is None:
        raise ConfigError(f"the installed TVM has no module {INTRINSICS}; install {_pinned()}")
    package = importlib.util.module_from_spec(spec)
    sys.modules[INTRINSICS] = package
    parent, _, name = INTRINSICS.rpartition(".")
    setattr(sys.modules[parent], name, package)


def tvm_versions() -> dict[str, str]:
    """Versions of the installed distributions; "missing" where there is none."""
    versions = {}
    for name in TESTED_VERSIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def check_versions(versions: dict[str, str]) -> None:
    """Refuses every pair but the tested one: the two share an ABI that nothing else checks.

    Raises:
        ConfigError: names both pairs and the command that installs the right one.
    """
    if versions != TESTED_VERSIONS:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise ConfigError(f"untested pair of TVM packages: {found}; other pairs crash. Run: pip install {_pinned()}")


def _pinned() -> str:
    return " ".join(f"{name}=={version}" for name, version in TESTED_VERSIONS.items())
