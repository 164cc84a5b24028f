"""The shape of a schedule trace in TVM's JSON, the same from TVM 0.16 to 0.27: `[instructions, decisions]`.

An instruction is `[kind, inputs, attributes, outputs]`, a decision `[number of the instruction, value]`.
"""

from __future__ import annotations

from itertools import chain
from typing import Any


def trace_fault(trace: Any) -> str:
    """Why this is not a parsed schedule trace, with the place; empty where it has the shape of one."""
    if not (isinstance(trace, list) and len(trace) == 2 and all(isinstance(part, list) for part in trace)):
        return "it is not a pair of instructions and decisions"
    instructions, decisions = trace
    for number, instruction in enumerate([] if _are_instructions(instructions) else instructions):
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


def _are_instructions(instructions: list[Any]) -> bool:
    """Whether all are well-formed, without saying which is not: databases hold millions, nearly all of them are."""
    if not {list}.issuperset(map(type, instructions)) or not {4}.issuperset(map(len, instructions)):
        return False
    kinds, inputs, attributes, outputs = zip(*instructions, strict=True) if instructions else ((), (), (), ())
    return (
        {list}.issuperset(map(type, chain(inputs, attributes, outputs)))
        and {str}.issuperset(map(type, kinds))
        and {str}.issuperset(map(type, chain.from_iterable(outputs)))
    )
