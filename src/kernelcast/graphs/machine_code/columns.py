"""The columns of the view `machine_code`: instructions and cycles of a whole program, over all its threads."""

from __future__ import annotations

from kernelcast.graphs.machine_code.instructions import Kind
from kernelcast.graphs.vocabulary import Column

MACHINE_CODE_VERSION = 2
"""Raised whenever a column changes its meaning: part of the version of the features."""

CYCLES = "cycles"
PARALLEL_CYCLES = "parallel_cycles"

WIDTHS = (4, 16, 32, 64)
"""Bytes of a single float and of the vector registers."""

_COUNTED = "log1p of a count"
_IN_CYCLES = "log1p of cycles"
OF_KIND = {
    Kind.GATHER: ("gathers", "Vectors loaded lane by lane."),
    Kind.SCATTER: ("scatters", "Vectors stored lane by lane."),
    Kind.SHUFFLE: ("shuffles", "Lanes moved within or between vectors."),
    Kind.MOVE: ("moves", "Copies of a vector register."),
    Kind.VECTOR: ("vector_operations", "Operations on vectors that are no arithmetic of floats."),
    Kind.MASK: ("mask_operations", "Operations on masks of lanes."),
    Kind.BRANCH: ("branches", "Jumps."),
    Kind.CALL: ("calls", "Calls, of exp and the like among them."),
    Kind.DIVISION: ("divisions", "Divisions and square roots of floats."),
}

COLUMNS = (
    Column("instructions", _COUNTED, "All instructions."),
    *(Column(f"arithmetic_{width}", _COUNTED, f"Operations on floats of {width} bytes at once.") for width in WIDTHS),
    Column("multiply_adds", _COUNTED, "Of these the multiply-adds."),
    *(Column(f"loads_{width}", _COUNTED, f"Loads of {width} bytes into a vector register.") for width in WIDTHS),
    *(Column(f"stores_{width}", _COUNTED, f"Stores of {width} bytes out of a vector register.") for width in WIDTHS),
    Column("broadcasts", _COUNTED, "One float loaded into all lanes."),
    *(Column(name, _COUNTED, meaning) for name, meaning in OF_KIND.values()),
    Column("integer_operations", _COUNTED, "Operations on addresses, counters and other whole numbers."),
    Column("stack_loads", _COUNTED, "Loads of what a register had no room for."),
    Column("stack_stores", _COUNTED, "Stores of what a register has no room for."),
    Column("resized_reloads", _COUNTED, "Loads of more than what was just stored there: no store forwards to them."),
    Column(CYCLES, _IN_CYCLES, "All of it, one core alone, everything in the first cache (`cycles.Cycles.total`)."),
    Column("busiest_cycles", _IN_CYCLES, "Of the busiest unit of each loop."),
    *(
        Column(f"{part}_cycles", _IN_CYCLES, meaning)
        for part, meaning in (
            ("issue", "To issue the instructions."),
            ("arithmetic", "Of the units for floats."),
            ("memory", "Of loads and stores."),
            ("shuffle", "Of the units that move lanes."),
            ("chain", "Of waiting for the iteration before."),
            ("extra", "Of gathers, calls, divisions, with which nothing overlaps."),
        )
    ),
    Column(PARALLEL_CYCLES, _IN_CYCLES, "What of `cycles` lies in the bodies of parallel loops."),
    Column("loops", _COUNTED, "Loops in the code."),
    Column("depth", _COUNTED, "Loops around the innermost one, itself included."),
    Column("guessed_loops", _COUNTED, "Loops whose iterations no constant tells; twice is taken."),
    Column("code_instructions", _COUNTED, "Instructions in the code, each once."),
    Column("heaviest_share", "log1p of a share", "Share of `cycles` of the loop that takes most."),
    Column("heaviest_trips", _COUNTED, "Iterations of that loop each time."),
    Column("heaviest_chain", _IN_CYCLES, "That one iteration of it waits for the one before."),
    Column("heaviest_arithmetic", _IN_CYCLES, "Of the units for floats in one iteration of it."),
    Column("heaviest_instructions", _COUNTED, "In one iteration of it."),
)  # fmt: skip

COLUMN_NAMES = tuple(column.name for column in COLUMNS)
