"""The machine code that TVM makes of a program, as text."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.tvm_compat.loading import load_tvm
from kernelcast.tvm_compat.targets import make_target

X86 = ("x86_64", "amd64")


def require_x86(target: Mapping[str, Any]) -> None:
    """Makes sure that the code for a target is x86-64 code.

    Raises:
        ConfigError: it is not.
    """
    triple = str(target.get("mtriple", "")).lower() or platform.machine().lower()
    if target.get("kind") != "llvm" or not triple.startswith(X86):
        raise ConfigError(
            f"the view `machine_code` reads x86-64 code, and the target is {dict(target)}; leave it out of "
            "features.views for programs of this target, and tune for it with method.inspect=null"
        )


def assembly(module: Any, target: dict[str, Any]) -> str:
    """The assembly of a program exactly as it is built and timed, in AT&T syntax; builds it, which takes its time.

    Args:
        module: what is built, see `runnable_module`.
        target: what it was measured on, or would be.

    Raises:
        ConfigError: code for this target is no x86-64 code.
        MalformedDataError: LLVM cannot build it.
    """
    require_x86(target)
    try:
        built = load_tvm().compile(module, target=make_target(target)).mod
    except Exception as error:
        # whatever TVM and LLVM throw
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise MalformedDataError(
            f"a program cannot be built for {target}, so that nobody can read its code: {reason}; leave `machine_code` "
            "out of features.views"
        ) from error
    return listing_of(built)


def listing_of(built: Any) -> str:
    """The assembly of a program that was built, in AT&T syntax.

    Args:
        built: the runtime module that TVM has compiled it to.

    Raises:
        MalformedDataError: nothing of it is LLVM's.
    """
    waiting = [built]
    while waiting:
        module = waiting.pop()
        if module.kind == "llvm":
            return str(module.inspect_source("asm"))
        waiting += module.imports
    raise MalformedDataError("a program that was built has no code of LLVM; report this with your version of TVM")
