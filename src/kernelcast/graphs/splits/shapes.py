"""When two workloads are the same one for a model, whatever they are called."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import MalformedDataError
from kernelcast.tvm_compat import load_tvm, parse_module, structural_key


def anchor_key(module: str) -> str:
    """Hash of the computation that decides how a kernel is scheduled: of the reduction with the most work.

    A convolution alone, with its bias and activation fused, or taken out of a network have one anchor: TVM itself takes
    the schedule found for one of them for the others (`module_equality="anchor-block"` of its tuning databases).
    Shapes, strides, layout and type of the computation are part of it; padding and what is fused to it are not. Where
    nothing is reduced it is the whole program.

    Args:
        module: the unscheduled module as JSON.

    Returns:
        16 hexadecimal digits; empty where this TVM cannot read the module.
    """
    try:
        unscheduled = parse_module(module)
    except MalformedDataError:
        return ""  # of another TVM: its other identities remain
    program = _plain(unscheduled)
    try:
        block = importlib.import_module("tvm.s_tir.analysis").find_anchor_sblock(program)
    except Exception:  # TVM's error for work that it cannot count, of whatever type
        block = None
    if block is None:
        return structural_key(program)
    value = importlib.import_module("tvm_ffi").structural_hash(block, map_free_vars=True)
    return f"{value & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def _plain(module: Any) -> Any:
    """A copy without what depends on where it comes from: networks count in 64 bits, and mark their functions."""
    tvm = load_tvm()
    # TVM's error where data are of 64 bits, as tokens are: then the counts remain as they are
    with contextlib.suppress(Exception):
        module = importlib.import_module("tvm.tirx.transform").ForceNarrowIndexToInt32()(module)
    functions = {}
    for name, function in module.functions.items():
        for attribute in dict(function.attrs or {}):
            function = function.without_attr(attribute)
        functions[name] = function
    return tvm.IRModule(functions)


def shape_numbers(
    workloads: Iterable[tuple[str, str, dict[str, Any], str]],
) -> Int64[np.ndarray, " workloads"]:
    """Numbers the shapes of workloads: two have one shape if any of their identities is equal, or by way of a third.

    The identities: the structural key; kind and arguments, where arguments are known; the anchor. Too much in common is
    the safe side: such workloads are held out together, and a test stays one.

    Args:
        workloads: key, kind, arguments and anchor of each.
    """
    first: dict[str, int] = {}
    parent: list[int] = []

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for number, (key, kind, arguments, anchor) in enumerate(workloads):
        parent.append(number)
        identities = [f"key {key}"]
        if arguments:
            identities.append(f"made {kind} {json.dumps(arguments, sort_keys=True)}")
        if anchor:
            identities.append(f"anchor {anchor}")
        for identity in identities:
            parent[root(number)] = root(first.setdefault(identity, number))
    roots = [root(number) for number in range(len(parent))]
    return np.unique(np.array(roots, dtype=np.int64), return_inverse=True)[1].astype(np.int64)
