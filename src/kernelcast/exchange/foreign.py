"""Workloads that another TVM wrote and this one cannot load: what can be told of them without it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

LENGTH_BYTES = 8
"""TVM puts the length of the module's text before it."""

ARGUMENT_INFO = "arg_info"
"""The entry of `Workload.arguments` that holds what the records of a database say of the arguments, as TVM writes it:
`["TENSOR", data type, shape]` each. It is the only source of their shapes where the module cannot be loaded."""

OPERATORS = ("conv", "matmul", "dense", "gemm", "softmax", "pool", "norm")
"""Parts of block names that name an operator, the more telling ones first; blocks around it pad, pack or add."""


def module_writer(text: str) -> str:
    """The version of the TVM that wrote a module's JSON; empty where it does not say."""
    try:
        raw = json.loads(text)
        # newer ones say it in `metadata`, those until 0.21 in `attrs`
        return str((raw.get("metadata") or raw.get("attrs") or {}).get("tvm_version", ""))
    except (ValueError, AttributeError, RecursionError):
        return ""


def kind_of(text: str) -> str:
    """What a module in the JSON of any TVM computes, by the names of its blocks.

    It is the first one that names an operator (a convolution rather than the matrix product inside it), else the first
    one that reduces, else the last one.
    """
    try:
        nodes = json.loads(text)["nodes"]
        blocks = [_block(nodes, node) for node in nodes if _type(node).endswith((".SBlock", ".Block"))]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "program"
    inner = [(name, reduces) for name, reduces in blocks if name != "root"]
    named = [name for word in OPERATORS for name, _ in inner if word in name.lower()]
    reducing = [name for name, reduces in inner if reduces]
    return (named or reducing or [name for name, _ in inner[-1:]] or ["program"])[0]


def _type(node: Mapping[str, Any]) -> str:
    return str(node.get("type", node.get("type_key", "")))


def _block(nodes: list[Any], node: Mapping[str, Any]) -> tuple[str, bool]:
    """Name of a block, and whether it reduces: those that do have an initial value."""
    # until 0.21: `attrs` with numbers of nodes as texts, and texts in `repr_str`
    fields = node.get("data") or node["attrs"]
    name = nodes[int(fields["name_hint"])]
    return str(name["data"] if "data" in name else name["repr_str"]), _type(nodes[int(fields["init"])]) not in (
        "",
        "None",
    )


def trace_key(workload_key: str, trace: str) -> str:
    """What stands for the structural hash of a program that cannot be made: 16 hexadecimal digits.

    Args:
        workload_key: equal traces of two workloads make two programs.
        trace: as JSON, decisions included, written in one way.
    """
    return hashlib.sha256(f"{workload_key}\n{trace}".encode()).hexdigest()[:16]


def packed_module(text: str) -> str:
    """A module's JSON as a line of a database holds it."""
    content = text.encode()
    return base64.b64encode(len(content).to_bytes(LENGTH_BYTES, "little") + content).decode()


def unpacked_module(packed: str) -> str:
    """The opposite of `packed_module`.

    Raises:
        ValueError: it is torn or something else.
    """
    content = base64.b64decode(packed, validate=True)
    if len(content) - LENGTH_BYTES != int.from_bytes(content[:LENGTH_BYTES], "little"):
        raise ValueError("the module has another length than is stated before it")
    return content[LENGTH_BYTES:].decode()
