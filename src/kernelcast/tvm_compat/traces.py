"""The shape of a schedule trace in TVM's JSON, the same from TVM 0.16 to 0.27: `[instructions, decisions]`.

An instruction is `[kind, inputs, attributes, outputs]`, a decision `[number of the instruction, value]`.
"""

from __future__ import annotations

from typing import Any


def trace_fault(trace: Any) -> str:
    """Why this is not a parsed schedule trace, with the place; empty where it has the shape of one."""
    if not (isinstance(trace, list) and len(trace) == 2 and all(isinstance(part, list) for part in trace)):
        return "it is not a pair of instructions and decisions"
    instructions, decisions = trace
    for number, instruction in enumerate(instructions):
        if not (isinstance(instruction, list) and len(instruction) == 4):
            return f"instruction {number} is not [kind, inputs, attributes, outputs]"
        if not isinstance(instruction[0], str):
            return f"instruction {number}: its kind is {str(instruction[0])[:40]!r}, not a name"
        for name, part in zip(("inputs", "attributes", "outputs"), instruction[1:], strict=True):
            if not isinstance(part, list):
                return f"instruction {number} ({instruction[0]}): its {name} are no list"
        if not all(isinstance(name, str) for name in instruction[3]):
            return f"instruction {number} ({instruction[0]}): an output is no name"
    decided = set()
    for place, decision in enumerate(decisions):
        if not (isinstance(decision, list) and len(decision) == 2):
            return f"decision {place} is not [instruction, value]"
        number = decision[0]
        if type(number) is not int or not 0 <= number < len(instructions):
            return f"decision {place} is of instruction {str(number)[:40]}, of which there is none"
        if number in decided:
            return f"decision {place}: instruction {number} is decided twice"
        decided.add(number)
    return ""
