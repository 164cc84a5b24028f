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

_PARTIAL_BYTES = {
    **{"movss": 4, "movd": 4, "movsd": 8, "movq": 8, "movsh": 2, "movw": 2},
    **{"movlps": 8, "movlpd": 8, "movhps": 8, "movhpd": 8, "movddup": 8},
}
"""Of what moves one value or half a register to or from memory, without the `v` of AVX."""

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


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of assembly before anybody knows what it does.

    Attributes:
        opcode: as written.
        operands: as written.
        reads: registers that it reads by the places of the operands alone.
        writes: those that it writes, likewise.
        width: of the widest vector register; 0 without any.
        address: in memory, without the mask of the lanes, so that equal ones are told; None where there is none.
        stores: the last operand is in memory.
    """

    opcode: str
    operands: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    width: int
    address: str | None
    stores: bool

    @property
    def plain(self) -> str:
        """The opcode without the `v` of AVX."""
        return self.opcode.removeprefix("v")

    @property
    def target(self) -> tuple[str, ...]:
        """What it writes, for those that read it too: all of SSE that have two operands for three, and some of AVX."""
        if self.opcode.startswith("v"):
            reads = _ONTO.match(self.opcode) is not None
        else:
            reads = not self.opcode.startswith("mov") and _WRITE_ONLY.match(self.opcode) is None
        return self.writes if reads else ()

    def does(self, kind: Kind, width: int, reads: tuple[str, ...], latency: int = 1) -> Instruction:
        """The instruction, which stores where its last operand is in memory and else loads what is."""
        load, store = (None, self.address) if self.stores else (self.address, None)
        return Instruction(self.opcode, self.operands, kind, width, reads, self.writes, load, store, latency)


@lru_cache(maxsize=1 << 16)
def parse(opcode: str, rest: str) -> Instruction:
    """The instruction of a line, which is the opcode and what follows it; the same line is read once."""
    operands = _operands(rest.partition("#")[0])
    accesses = [operand for operand in operands if "(" in operand]
    address = accesses[-1].partition("{")[0].rstrip() if accesses else None
    width = max((VECTOR_BYTES[found] for found in re.findall(r"%([xyz])mm", rest)), default=0)
    stores = bool(operands) and "(" in operands[-1]
    line = _Line(opcode, operands, *_registers(operands), width, address, stores)
    if opcode.startswith("lea"):
        return Instruction(opcode, operands, Kind.INTEGER, reads=line.reads, writes=line.writes)
    if opcode.startswith("j"):
        return Instruction(opcode, operands, Kind.BRANCH, reads=line.reads)
    if opcode.startswith("call"):
        return Instruction(opcode, operands, Kind.CALL, reads=line.reads, writes=("rax",))
    if _COMPARING.match(opcode):
        load, reads = None if opcode.startswith("prefetch") else address, (*line.reads, *line.writes)
        return Instruction(opcode, operands, Kind.INTEGER, width or _word(opcode), reads, load=load)
    if floating := _FLOATING.match(opcode):
        return _floating(line, *floating.groups())
    if "gather" in opcode:
        return line.does(Kind.GATHER, width, line.reads, latency=20)
    if "scatter" in opcode:
        return line.does(Kind.SCATTER, width, line.reads)
    if opcode.startswith("v") or width:
        return _stored_vector(line) if stores else _vector(line)
    return _integer(line)


def immediate(operand: str) -> int | None:
    """The number that an operand is; None of another operand."""
    found = _IMMEDIATE.match(operand)
    return int(found.group(1)) if found else None


def is_on_stack(address: str) -> bool:
    """It lies on the stack, where LLVM keeps what no register has room for; it uses rbp as any other register."""
    return "%rsp" in address


def is_slot(operand: str) -> bool:
    """It is a fixed place on the stack."""
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


def _floating(line: _Line, name: str, lanes: str) -> Instruction:
    fused = name.startswith("f")
    operation = {"add": "add", "sub": "add", "mul": "multiply", "div": "divide", "sqrt": "divide"}.get(name, "compare")
    return Instruction(
        line.opcode,
        line.operands,
        Kind.DIVISION if operation == "divide" else Kind.ARITHMETIC,
        SCALAR_BYTES if lanes == "s" else line.width,
        (*line.reads, *(line.writes if fused else line.target)),
        line.writes,
        load=line.address,
        latency=_LATENCY["multiply_add" if fused else operation],
        fused=fused,
    )


def _stored_vector(line: _Line) -> Instruction:
    """What takes a vector, or a part of it, to memory."""
    plain, width = line.plain, line.width
    if plain.startswith("pextr"):
        width = _PIECES.get(plain[-1], width)
    elif "extract" in plain:
        width = _part_bytes(plain)
    elif plain.startswith(("cvtps2ph", "pmov")):
        width //= 2
    else:
        width = _PARTIAL_BYTES.get(plain, width)
    # the lower half is stored as it is
    arranges = plain.startswith("pextr") or (_ARRANGING.match(plain) is not None and not plain.startswith("movl"))
    return line.does(Kind.SHUFFLE if arranges else Kind.STORE, width, (*line.reads, *line.target))


def _vector(line: _Line) -> Instruction:
    """What works on vectors and leaves its result in a register."""
    plain, width, reads, loads = line.plain, line.width, (*line.reads, *line.target), line.address is not None
    if plain.startswith(("pinsr", "pextr")):
        return line.does(Kind.SHUFFLE, _PIECES.get(plain[-1], width) if loads else width, reads)
    if _ARRANGING.match(plain):
        if loads and "broadcast" in plain:
            # a part of several floats is a load like any other
            several = "x" in plain.removeprefix("broadcast")
            kind, loaded = (Kind.LOAD, _part_bytes(plain)) if several else (Kind.BROADCAST, SCALAR_BYTES)
            return line.does(kind, loaded, reads, latency=0)
        loaded = width
        if loads:
            part = SCALAR_BYTES if "insertps" in plain else _part_bytes(plain)
            loaded = part if "insert" in plain else _PARTIAL_BYTES.get(plain, width)
        # what stays in one half of a register is there sooner
        return line.does(Kind.SHUFFLE, loaded, reads, latency=1 if width <= VECTOR_BYTES["x"] else 3)
    if plain.startswith("mov"):
        width = _PARTIAL_BYTES.get(plain, width)
        if loads:
            return line.does(Kind.LOAD, width, reads, latency=0)
        # from register to register it takes one lane of one and the others of another
        return line.does(Kind.SHUFFLE if plain == "movss" else Kind.MOVE, width, reads)
    if plain.startswith(("xorp", "pxor")) and len(set(line.operands)) == 1:
        # a zero, which waits for nothing
        return line.does(Kind.INTEGER, width, ())
    converts = any(word in plain for word in ("cvt", "rnd", "round"))
    return line.does(Kind.VECTOR, width, reads, latency=4 if converts else 1)


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


def _integer(line: _Line) -> Instruction:
    opcode, operands, reads = line.opcode, line.operands, line.reads
    if opcode.startswith("k"):
        return line.does(Kind.MASK, _PIECES.get(opcode[-1], WORD_BYTES), reads)
    if opcode in ("cltd", "cqto"):
        return Instruction(opcode, operands, Kind.INTEGER, reads=("rax",), writes=("rdx",))
    if opcode.startswith(("xor", "sub")) and len(operands) == 2 and operands[0] == operands[1]:
        return line.does(Kind.INTEGER, WORD_BYTES, ())
    if opcode.startswith("mov"):
        loads = line.address is not None and not line.stores
        return line.does(Kind.INTEGER, _word(opcode), reads, latency=4 if loads else 1)
    if opcode.startswith(("idiv", "div")):
        found = (*reads, *line.writes)
        return Instruction(
            opcode, operands, Kind.INTEGER_DIVISION, WORD_BYTES, found, ("rax", "rdx"), line.address, latency=15
        )
    if line.stores:
        # it works on what it loads from there
        return Instruction(opcode, operands, Kind.INTEGER, _word(opcode), reads, load=line.address, store=line.address)
    if len(operands) <= 2:
        reads = (*reads, *line.writes)
    return line.does(Kind.INTEGER, _word(opcode), reads, latency=3 if opcode.startswith("imul") else 1)


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
