"""Assembly of small loops, written by hand, and of real programs."""

from typing import Any

import pytest

from kernelcast.records import Workload
from kernelcast.tvm_compat import assembly, replayed_schedule, runnable_module


def listing(*functions: tuple[str, str]) -> str:
    """What LLVM writes of some functions: labels at the margin, instructions behind tabs."""
    lines = ["\t.text"]
    for name, body in functions:
        lines.append(f"{name}:")
        for line in body.strip().splitlines():
            opcode, _, rest = line.strip().partition(" ")
            lines.append(opcode if opcode.endswith(":") else f"\t{opcode}\t{rest.strip()}" if rest else f"\t{opcode}")
        lines.append(".Lfunc_end0:")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def plain(suite: dict[str, Workload]) -> dict[str, Any]:
    """Every workload without a schedule."""
    return {name: replayed_schedule(workload, "[[],[]]") for name, workload in suite.items()}


@pytest.fixture(scope="session")
def assemblies(modules: dict[str, list[Any]], target: dict) -> dict[str, list[str]]:
    """Code of two drawn programs of each workload."""
    return {name: [assembly(runnable_module(one), target) for one in drawn[:2]] for name, drawn in modules.items()}
