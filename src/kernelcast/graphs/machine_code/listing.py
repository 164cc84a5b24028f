"""From assembly to the blocks of the functions that a program spends its time in."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelcast.graphs.machine_code.instructions import Instruction, Kind, parse

COMPUTE = "main_compute_"
"""What TVM calls the function with the loops of a program; what stands around it checks arguments."""

WRAPPER = "__tvm_ffi_main"
"""What checks the arguments; of a function that does not say that its arguments do not overlap the loops are in it."""

PARALLEL = ".L__tvm_parallel_lambda"
"""What the bodies of parallel loops begin with."""


@dataclass
class Block:
    """Straight code: only its first instruction is jumped to, only its last one jumps.

    Attributes:
        label: what jumps to it call it; empty where none does.
        instructions: in their order.
    """

    label: str = ""
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def jump(self) -> Instruction | None:
        """The branch that it ends with."""
        last = self.instructions[-1] if self.instructions else None
        return last if last is not None and last.kind is Kind.BRANCH else None

    @property
    def returns(self) -> bool:
        """The function ends here."""
        return bool(self.instructions) and self.instructions[-1].opcode.startswith("ret")


def functions(assembly: str) -> dict[str, list[Block]]:
    """The blocks of the functions that compute, by name; empty where there is none."""
    compute = COMPUTE if f"\n{COMPUTE}:" in f"\n{assembly}" else WRAPPER
    found: dict[str, list[Block]] = {}
    blocks: list[Block] | None = None
    for line in assembly.splitlines():
        if not line:
            continue
        if line[0] not in " \t":
            label = line.partition(":")[0]
            if label == compute or label.startswith(PARALLEL):
                blocks = found[label] = [Block()]
            elif label.startswith((".Lfunc_end", ".LCPI")) or not label.startswith(".L"):
                blocks = None
            elif blocks is not None and label.startswith(".LBB"):
                blocks.append(Block(label))
        elif blocks is not None:
            opcode, _, rest = line.strip().partition("\t")
            if opcode[:1] in ("", ".", "#"):
                continue
            instruction = parse(opcode, rest)
            blocks[-1].instructions.append(instruction)
            if instruction.kind is Kind.BRANCH:
                blocks.append(Block())
    return {
        name: [block for place, block in enumerate(listed) if block.instructions or block.label or place == 0]
        for name, listed in found.items()
    }
