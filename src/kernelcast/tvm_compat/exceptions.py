"""What Python code that TVM calls may raise."""

from __future__ import annotations

import importlib

from kernelcast.tvm_compat.loading import load_tvm


def keep_exceptions(*kinds: type[BaseException]) -> None:
    """Has exceptions of these kinds come out of TVM as what they are.

    One that is raised in a callback, with C++ between it and whoever called TVM, is a RuntimeError otherwise: Ctrl-C,
    for example, would not end a program but be taken for a failure of TVM.
    """
    load_tvm()
    error = importlib.import_module("tvm_ffi.error")
    for kind in kinds:
        error.register_error(kind)
