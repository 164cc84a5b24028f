"""One instruction of x86-64 in AT&T syntax: what it does, reads and writes, how wide it is and how long it takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

VECTOR_BYTES = {"x": 16, "y": 32, "z": 64}
"""Of the registers xmm, ymm and zmm."""

SCALAR_BYTES, WORD_BYTES = 4, 8
"""Taken for a single float, and for anything in a general register."""

_FLOATING = re.compile(r"v?(fn?m(?:add|sub)\w*|add|sub|mul|div|max|min|sqrt)([ps])[sdh]$")
_ARRANGING = re.compile(
    r"v?p?(perm|insert|extract|unpck|shuf|blend|align|movs[lh]dup|movddup|movhlps|movlhps|broadcast|pack|expand|"
    r"compress|punpck|slldq|srldq|movlps|movhps|movhpd|movlpd)"
)
_REGISTER = re.compile(r"%\w+")
_VECTOR = re.compile(r"([xyz])mm(\d+)$")
_NUMBERED = re.compile(r"r(\d+)[dwb]?$")
_NAMED = {
    **{
        alias: f"r{name}x"
        for name in "abcd"
        for alias in (f"r{name}x", f"e{name}x", f"{name}x", f"{name}l", f"{name}h")
    },
    **{alias: f"r{name}" for name in ("si", "di", "bp", "sp") for alias in (f"r{name}", f"e{name}", name, f"{name}l")},
}
_SLOT = re.compile(r"-?\d*\(%r[sb]p\)$")
_IMMEDIATE = re.compile(r"\$(-?\d+)$")

_COMPARING = ("cmp", "test", "push", "pop", "ret", "nop", "bt", "vzeroupper", "prefetch", "ucomi", "vucomi")
"""Instructions that leave nothing in a register, beside the stack pointer."""

_MOVED_BYTES = {"movss": 4, "movd": 4, "movsd": 8, "movq": 8}
"""Of a move of one value into or out of a vector register, without the `v` of AVX."""

_LATENCY = {"multiply_add": 4, "add": 3, "multiply": 3, "divide": 11, "compare": 1}
"""Cycles until another instruction can use the result, on recent cores (Agner Fog's tables: Zen 2 to 4, Ice Lake)."""


class Kind(Enum):
    """What keeps an instruction's unit busy."""

    ARITHMETIC = "arithmetic"
    DIVISION = "division"
    GATHER = "gather"
    SCATTER = "scatter"
    SHUFFLE = "shuffle"
    LOAD = "load"
    BROADCAST = "broadcast"
    STORE = "store"
    MOVE = "move"
    VECTOR = "vector"
    MASK = "mask"
    INTEGER = "integer"
    INTEGER_DIVISION = "integer_division"
    BRANCH = "branch"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: as the assembler writes it.
        operands: in its order, the one that is written last.
        kind: what it keeps busy.
        width: bytes of the widest operand that it works on.
        reads: registers that it reads, those of addresses too; a register has one name whatever its width.
        writes: registers that it writes.
        load: the address that it loads from; None where it loads nothing.
        store: the address that it stores to, likewise.
        latency: cycles until its result can be used.
        fused: a multiply-add.
        changes: registers and slots of the stack that it writes.
    """

    opcode: str
    operands: tuple[str, ...]
    kind: Kind
    width: int = WORD_BYTES
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    load: str | None = None
    store: str | None = None
    latency: int = 1
    fused: bool = False
    changes: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        slots = (self.operands[-1],) if self.store is not None and is_slot(self.operands[-1]) else ()
        object.__setattr__(self, "changes", (*self.writes, *slots))

    @property
    def is_scalar(self) -> bool:
        """Works in general registers, or only controls where the program goes on."""
        return self.kind in (Kind.INTEGER, Kind.INTEGER_DIVISION, Kind.BRANCH, Kind.CALL)


@lru_cache(maxsize=1 << 16)
def parse(opcode: str, rest: str) -> Instruction:
    """The instruction of a line, which is the opcode and what follows it; the same line is read once."""
    operands = _operands(rest.partition("#")[0])
    accesses = [operand for operand in operands if "(" in operand]
    address = accesses[-1] if accesses else None
    stores = bool(operands) and "(" in operands[-1]
    reads, writes = _registers(operands)
    width = max((VECTOR_BYTES[found] for found in re.findall(r"%([xyz])mm", rest)), default=0)
    if opcode.startswith("lea"):
        return Instruction(opcode, operands, Kind.INTEGER, reads=reads, writes=writes)
    if opcode.startswith("j"):
        return Instruction(opcode, operands, Kind.BRANCH, reads=reads)
    if opcode.startswith("call"):
        return Instruction(opcode, operands, Kind.CALL, reads=reads, writes=("rax",))
    if opcode.startswith(_COMPARING):
        load = None if opcode.startswith("prefetch") else address
        return Instruction(opcode, operands, Kind.INTEGER, SCALAR_BYTES, (*reads, *writes), load=load)
    if floating := _FLOATING.match(opcode):
        return _floating(opcode, operands, (reads, writes), floating, width, address)
    if "gather" in opcode:
        return Instruction(opcode, operands, Kind.GATHER, width, reads, writes, load=address, latency=20)
    if "scatter" in opcode:
        return Instruction(opcode, operands, Kind.SCATTER, width, reads, store=address)
    if opcode.startswith("v") or width:
        return _vector(opcode, operands, (reads, writes), width, address, stores)
    return _integer(opcode, operands, (reads, writes), address, stores)


def immediate(operand: str) -> int | None:
    """The number that an operand is; None of another operand."""
    found = _IMMEDIATE.match(operand)
    return int(found.group(1)) if found else None


def is_slot(operand: str) -> bool:
    """It is a fixed place on the stack, where LLVM keeps what no register has room for."""
    return _SLOT.match(operand) is not None


@lru_cache(maxsize=1024)
def register(operand: str) -> str:
    """The name of a register whatever its width: `v3` of `%zmm3`, `rax` of `%eax`."""
    name = operand.lstrip("*%")
    if found := _VECTOR.match(name):
        return f"v{found.group(2)}"
    if found := _NUMBERED.match(name):
        return f"r{found.group(1)}"
    return _NAMED.get(name, name)


def registers_of(text: str) -> list[str]:
    """All registers that an operand names."""
    return [register(found) for found in _REGISTER.findall(text)]


def _floating(
    opcode: str,
    operands: tuple[str, ...],
    registers: tuple[tuple[str, ...], tuple[str, ...]],
    found: re.Match[str],
    width: int,
    address: str | None,
) -> Instruction:
    reads, writes = registers
    name, fused = found.group(1), found.group(1).startswith("f")
    operation = {"add": "add", "sub": "add", "mul": "multiply", "div": "divide", "sqrt": "divide"}.get(name, "compare")
    return Instruction(
        opcode,
        operands,
        Kind.DIVISION if operation == "divide" else Kind.ARITHMETIC,
        SCALAR_BYTES if found.group(2) == "s" else width,
        (*reads, *writes) if fused or _is_sse(opcode) else reads,
        writes,
        load=address,
        latency=_LATENCY["multiply_add" if fused else operation],
        fused=fused,
    )


def _vector(
    opcode: str,
    operands: tuple[str, ...],
    registers: tuple[tuple[str, ...], tuple[str, ...]],
    width: int,
    address: str | None,
    stores: bool,
) -> Instruction:
    reads, writes = registers
    arranges = _ARRANGING.match(opcode) is not None
    if stores:
        if "extract" in opcode:
            width = 32 if "x8" in opcode or "64x4" in opcode else 16 if "x4" in opcode or "128" in opcode else 4
        else:
            width = _MOVED_BYTES.get(opcode.removeprefix("v"), width)
        return Instruction(opcode, operands, Kind.SHUFFLE if arranges else Kind.STORE, width, reads, store=address)
    if arranges:
        if address is not None and "broadcast" in opcode:
            return Instruction(opcode, operands, Kind.BROADCAST, SCALAR_BYTES, reads, writes, load=address, latency=0)
        loaded = width
        if address is not None and "insert" in opcode:
            loaded = SCALAR_BYTES if "insertps" in opcode or opcode.endswith(("rd", "rq")) else 16
        # what stays in one half of a register is there sooner
        latency = 1 if width <= VECTOR_BYTES["x"] else 3
        reads = (*reads, *writes) if _is_sse(opcode) else reads
        return Instruction(opcode, operands, Kind.SHUFFLE, loaded, reads, writes, load=address, latency=latency)
    if opcode.startswith(("vmov", "mov")):
        width = _MOVED_BYTES.get(opcode.removeprefix("v"), width)
        if address is not None:
            return Instruction(opcode, operands, Kind.LOAD, width, reads, writes, load=address, latency=0)
        # from register to register it takes one lane of one and the others of another
        kind = Kind.SHUFFLE if opcode.endswith("movss") else Kind.MOVE
        return Instruction(opcode, operands, kind, width, reads, writes)
    if opcode.startswith(("vxor", "vpxor", "xorp", "pxor")) and len(set(operands)) == 1:
        # a zero, which waits for nothing
        return Instruction(opcode, operands, Kind.INTEGER, width, (), writes)
    latency = 4 if "cvt" in opcode or "rnd" in opcode or "round" in opcode else 1
    reads = (*reads, *writes) if _is_sse(opcode) else reads
    return Instruction(opcode, operands, Kind.VECTOR, width, reads, writes, load=address, latency=latency)


def _is_sse(opcode: str) -> bool:
    """Of the instructions without three operands, which work on the register that they write."""
    return not opcode.startswith("v")


def _integer(
    opcode: str,
    operands: tuple[str, ...],
    registers: tuple[tuple[str, ...], tuple[str, ...]],
    address: str | None,
    stores: bool,
) -> Instruction:
    reads, writes = registers
    if opcode.startswith("k"):
        return Instruction(opcode, operands, Kind.MASK, WORD_BYTES, reads, writes)
    if opcode.startswith(("xor", "sub")) and len(operands) == 2 and operands[0] == operands[1]:
        return Instruction(opcode, operands, Kind.INTEGER, WORD_BYTES, (), writes)
    if opcode.startswith("mov"):
        if stores:
            return Instruction(opcode, operands, Kind.INTEGER, WORD_BYTES, reads, store=address)
        latency = 4 if address is not None else 1
        return Instruction(opcode, operands, Kind.INTEGER, WORD_BYTES, reads, writes, load=address, latency=latency)
    if opcode.startswith(("idiv", "div")):
        return Instruction(
            opcode, operands, Kind.INTEGER_DIVISION, WORD_BYTES, (*reads, *writes), ("rax",), address, latency=15
        )
    latency = 3 if opcode.startswith("imul") else 1
    if stores:
        return Instruction(opcode, operands, Kind.INTEGER, WORD_BYTES, reads, load=address, store=address)
    if len(operands) <= 2:
        reads = (*reads, *writes)
    return Instruction(opcode, operands, Kind.INTEGER, WORD_BYTES, reads, writes, load=address, latency=latency)


def _registers(operands: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Registers that are read and those that are written, by the places of the operands alone."""
    reads: list[str] = []
    writes: list[str] = []
    for place, operand in enumerate(operands):
        named = registers_of(operand[operand.index("(") :] if "(" in operand else operand)
        if "(" in operand or not operand.startswith(("%", "*%")) or place < len(operands) - 1:
            reads += named
            continue
        writes += named[:1]
        # lanes that a mask leaves out keep what they had
        reads += named[1:] if "{z}" in operand or "{" not in operand else [*named[1:], named[0]]
    return tuple(reads), tuple(writes)


def _operands(text: str) -> tuple[str, ...]:
    """What commas outside of parentheses part."""
    found, depth, start = [], 0, 0
    for place, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    rest = text[start:].strip()
    return (*found, rest) if rest else tuple(found)
