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

WORD_SUFFIXES = {"b": 1, "w": 2, "l": 4, "q": 8}
"""Bytes of an access of general registers, by the last letter of the opcode."""

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
_SLOT = re.compile(r"-?\d*\(%rsp\)$")
_IMMEDIATE = re.compile(r"\$(-?\d{1,19})$")
_EXTENDING = re.compile(r"mov[sz]([bwl])[wlq]$")

_COMPARING = re.compile(
    r"(cmp|test|push|pop|ret|bt)[bwlq]?$|nop|vzeroupper|prefetch|k(or)?test[bwdq]$|v?u?comis[sdh]$|v?ptest$|vtestp[sd]$"
)
"""Instructions that leave nothing in a register, beside the stack pointer."""

_ONTO = re.compile(r"vperm[ti]2|vpternlog|vpdp|vdpbf16|vpmadd52|vpsh[lr]dv")
_WRITE_ONLY = re.compile(r"pshuf[dlh]|movs[lh]dup|movddup|cvt|sqrt|rsqrt|rcp|pabs|pmov")
"""Instructions of AVX that work on the register that they write, and those of SSE that do not."""

_MOVED_BYTES = {"movss": 4, "movd": 4, "movsd": 8, "movq": 8}
"""Of a move of one value into or out of a vector register, without the `v` of AVX."""

_HALVES = {"movlps": 8, "movlpd": 8, "movhps": 8, "movhpd": 8, "movddup": 8, "movsh": 2, "movw": 2}
"""Of what moves half a register, or less, to or from memory."""

_PIECES = {"b": 1, "w": 2, "d": 4, "q": 8}
"""Of one lane that is put into a vector or taken out of it."""

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
        loaded: bytes that it loads, where it loads any: one float where that goes into all lanes.
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
    loaded: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        slots = (self.operands[-1],) if self.store is not None and is_slot(self.operands[-1]) else ()
        object.__setattr__(self, "changes", (*self.writes, *slots))
        object.__setattr__(self, "loaded", SCALAR_BYTES if self.broadcasts else self.width)

    @property
    def broadcasts(self) -> bool:
        """What it loads goes into all lanes."""
        return self.kind is Kind.BROADCAST or any("{1to" in operand for operand in self.operands)

    @property
    def is_scalar(self) -> bool:
        """Works in general registers, or only controls where the program goes on."""
        return self.kind in (Kind.INTEGER, Kind.INTEGER_DIVISION, Kind.BRANCH, Kind.CALL)


@lru_cache(maxsize=1 << 16)
def parse(opcode: str, rest: str) -> Instruction:
    """The instruction of a line, which is the opcode and what follows it; the same line is read once."""
    operands = _operands(rest.partition("#")[0])
    accesses = [operand for operand in operands if "(" in operand]
    # without the mask of the lanes, so that equal addresses are told
    address = accesses[-1].partition("{")[0].rstrip() if accesses else None
    stores = bool(operands) and "(" in operands[-1]
    reads, writes = _registers(operands)
    width = max((VECTOR_BYTES[found] for found in re.findall(r"%([xyz])mm", rest)), default=0)
    if opcode.startswith("lea"):
        return Instruction(opcode, operands, Kind.INTEGER, reads=reads, writes=writes)
    if opcode.startswith("j"):
        return Instruction(opcode, operands, Kind.BRANCH, reads=reads)
    if opcode.startswith("call"):
        return Instruction(opcode, operands, Kind.CALL, reads=reads, writes=("rax",))
    if _COMPARING.match(opcode):
        load = None if opcode.startswith("prefetch") else address
        return Instruction(opcode, operands, Kind.INTEGER, width or _word(opcode), (*reads, *writes), load=load)
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
        (*reads, *writes) if fused or _works_on_target(opcode) else reads,
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
    reads = (*reads, *writes) if _works_on_target(opcode) else reads
    plain = opcode.removeprefix("v")
    if plain.startswith(("pinsr", "pextr")):
        width = _PIECES.get(opcode[-1], width) if address is not None else width
        store = address if stores else None
        load = None if stores else address
        return Instruction(opcode, operands, Kind.SHUFFLE, width, reads, writes, load, store)
    arranges = _ARRANGING.match(opcode) is not None
    if stores:
        if "extract" in opcode:
            width = _part_bytes(opcode)
        elif plain.startswith(("cvtps2ph", "pmov")):
            width //= 2
        else:
            width = {**_MOVED_BYTES, **_HALVES}.get(plain, width)
        arranges &= not plain.startswith("movl")
        return Instruction(opcode, operands, Kind.SHUFFLE if arranges else Kind.STORE, width, reads, store=address)
    if arranges:
        if address is not None and "broadcast" in opcode:
            several = "x" in plain.removeprefix("broadcast")
            kind, loaded = (Kind.LOAD, _part_bytes(opcode)) if several else (Kind.BROADCAST, SCALAR_BYTES)
            return Instruction(opcode, operands, kind, loaded, reads, writes, load=address, latency=0)
        loaded = _HALVES.get(plain, width) if address is not None else width
        if address is not None and "insert" in opcode:
            loaded = SCALAR_BYTES if "insertps" in opcode else _part_bytes(opcode)
        # what stays in one half of a register is there sooner
        latency = 1 if width <= VECTOR_BYTES["x"] else 3
        return Instruction(opcode, operands, Kind.SHUFFLE, loaded, reads, writes, load=address, latency=latency)
    if opcode.startswith(("vmov", "mov")):
        width = {**_MOVED_BYTES, **_HALVES}.get(plain, width)
        if address is not None:
            return Instruction(opcode, operands, Kind.LOAD, width, reads, writes, load=address, latency=0)
        # from register to register it takes one lane of one and the others of another
        kind = Kind.SHUFFLE if opcode.endswith("movss") else Kind.MOVE
        return Instruction(opcode, operands, kind, width, reads, writes)
    if opcode.startswith(("vxor", "vpxor", "xorp", "pxor")) and len(set(operands)) == 1:
        # a zero, which waits for nothing
        return Instruction(opcode, operands, Kind.INTEGER, width, (), writes)
    latency = 4 if "cvt" in opcode or "rnd" in opcode or "round" in opcode else 1
    return Instruction(opcode, operands, Kind.VECTOR, width, reads, writes, load=address, latency=latency)


def _works_on_target(opcode: str) -> bool:
    """It reads the register that it writes: all of SSE that have two operands for three, and some of AVX."""
    if opcode.startswith("v"):
        return _ONTO.match(opcode) is not None
    return not opcode.startswith("mov") and _WRITE_ONLY.match(opcode) is None


def _part_bytes(opcode: str) -> int:
    """Of a part of a vector that is taken out, put in or spread, by what the opcode says of it."""
    if "x8" in opcode or "64x4" in opcode:
        return VECTOR_BYTES["y"]
    return VECTOR_BYTES["x"] if "x4" in opcode or "64x2" in opcode or "128" in opcode else SCALAR_BYTES


def _word(opcode: str) -> int:
    """Bytes of an access of general registers."""
    if opcode.startswith("set"):
        return 1
    extending = _EXTENDING.match(opcode)
    return WORD_SUFFIXES.get(extending.group(1) if extending else opcode[-1], WORD_BYTES)


def _integer(
    opcode: str,
    operands: tuple[str, ...],
    registers: tuple[tuple[str, ...], tuple[str, ...]],
    address: str | None,
    stores: bool,
) -> Instruction:
    reads, writes = registers
    if opcode.startswith("k"):
        store = address if stores else None
        width = _PIECES.get(opcode[-1], WORD_BYTES)
        return Instruction(opcode, operands, Kind.MASK, width, reads, writes, None if stores else address, store)
    if opcode in ("cltd", "cqto"):
        return Instruction(opcode, operands, Kind.INTEGER, reads=("rax",), writes=("rdx",))
    if opcode.startswith(("xor", "sub")) and len(operands) == 2 and operands[0] == operands[1]:
        return Instruction(opcode, operands, Kind.INTEGER, WORD_BYTES, (), writes)
    if opcode.startswith("mov"):
        if stores:
            return Instruction(opcode, operands, Kind.INTEGER, _word(opcode), reads, store=address)
        latency = 4 if address is not None else 1
        return Instruction(opcode, operands, Kind.INTEGER, _word(opcode), reads, writes, load=address, latency=latency)
    if opcode.startswith(("idiv", "div")):
        return Instruction(
            opcode, operands, Kind.INTEGER_DIVISION, WORD_BYTES, (*reads, *writes), ("rax", "rdx"), address, latency=15
        )
    latency = 3 if opcode.startswith("imul") else 1
    if stores:
        return Instruction(opcode, operands, Kind.INTEGER, _word(opcode), reads, load=address, store=address)
    if len(operands) <= 2:
        reads = (*reads, *writes)
    return Instruction(opcode, operands, Kind.INTEGER, _word(opcode), reads, writes, load=address, latency=latency)


def _registers(operands: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Registers that are read and those that are written, by the places of the operands alone."""
    reads: list[str] = []
    writes: list[str] = []
    for place, operand in enumerate(operands):
        named = registers_of(operand[operand.index("(") :] if "(" in operand else operand)
        if "(" in operand or not operand.startswith(("%", "*%")) or place < len(operands) - 1:
            reads += named
            continue
        if not named:
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
