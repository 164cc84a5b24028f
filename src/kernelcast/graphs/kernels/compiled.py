"""Machine code of kernels: functions of numbers and arrays, as those over the table of a program.

Compiling takes seconds, so the code is kept on disk. Numba looks at the file of a kernel alone to see whether its code
is stale: a change of a kernel that it calls, or of a table of kinds, would go unnoticed. So the code of a module
lives in a folder named by a hash over the module and all modules of this package that it imports, directly or not.
Checkouts with equal sources share it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""Numba's environment variable: where compiled code is kept; below `~/.cache/kernelcast` by default."""

PACKAGE = "kernelcast"

_IMPORT = re.compile(rf"^\s*from ({re.escape(PACKAGE)}\.[\w.]+) import", re.MULTILINE)

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


def compiled(function: _Kernel, *, any_order: bool = False) -> _Kernel:
    """Compiles a function of numbers and arrays on its first call; it runs without the interpreter's lock.

    Args:
        function: what is compiled.
        any_order: sums of floating-point numbers may be taken in any order, several at a time; infinities and what is
            no number count as ever.
    """
    import numba

    # not all of "fast math", most of which takes numbers for granted
    settings: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"reassoc", "contract", "nsz"} if any_order else False,
    }
    kernel: Any = numba.njit(**settings)(function)
    directory = cache_directory(function.__module__)
    if directory is not None:
        from kernelcast.graphs.kernels.code_cache import CodeCache

        # what numba's own `enable_caching` sets
        kernel._cache = CodeCache(function, directory)
    return kernel


@cache
def cache_directory(module: str) -> Path | None:
    """Where the code of a module's kernels is kept, as its sources are now; None where nothing can be written."""
    digest = hashlib.sha256()
    for name, text in sorted(sources(module).items()):
        digest.update(f"{name}\n{text}".encode())
    try:
        base = os.environ.get(CACHE_VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        directory = Path(base) / "kernelcast" / f"{module.rpartition('.')[2]}-{digest.hexdigest()[:16]}"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return directory if os.access(directory, os.W_OK) else None


def sources(module: str) -> dict[str, str]:
    """The text of a module of this package and of those of the package that it imports, directly or not, by name."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = Path(__file__).parents[2].joinpath(*name.removeprefix(PACKAGE).split(".")).with_suffix(".py")
        if name not in found and path.is_file():
            found[name] = path.read_text(encoding="utf-8")
            waiting += _IMPORT.findall(found[name])
    return found
