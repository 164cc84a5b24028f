"""Machine code of the kernels that run over the table of a program.

Compiling takes seconds, so the code is kept on disk. Numba looks at the file of a kernel alone to see whether its code
is stale: a change of a kernel that it calls, or of a table of kinds, would go unnoticed. So the code lives in a folder
named by a hash over all sources that it can depend on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

SOURCES = (
    "access_facts",
    "compiled",
    "index_terms",
    "index_values",
    "loop_facts",
    "table",
    "vocabulary",
    "work",
)
"""Modules of this package that hold kernels or what these take from Python."""

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""Numba's environment variable: where compiled code is kept, `~/.cache/kernelcast` by default."""

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


def compiled(function: _Kernel) -> _Kernel:
    """Compiles a function of numbers and arrays on its first call; it runs without the interpreter's lock."""
    import numba

    directory = cache_directory()
    if directory is None:
        return numba.njit(nogil=True, error_model="numpy")(function)
    before = numba.config.CACHE_DIR
    # numba reads it when a function is decorated
    numba.config.CACHE_DIR = str(directory)
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before


@lru_cache(maxsize=1)
def cache_directory() -> Path | None:
    """Where the code of exactly these sources is kept; None where nothing can be written."""
    digest = hashlib.sha256()
    for name in SOURCES:
        path = Path(__file__).with_name(f"{name}.py")
        digest.update(name.encode() + path.read_bytes())
    base = os.environ.get(CACHE_VARIABLE) or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    directory = Path(base) / "kernelcast" / f"kernels-{digest.hexdigest()[:16]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) else None
