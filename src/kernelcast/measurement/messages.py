"""What the measuring process and its workers say to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Outcome, Workload


@dataclass(frozen=True)
class Sample:
    """Asks for candidates of a workload; answered by `Sampled`.

    Attributes:
        count: candidates wanted.
        seed: of the sampling.
        measured: traces that were measured and their seconds; where there are some, candidates evolve from them.
    """

    workload: Workload
    target: dict[str, Any]
    count: int
    seed: int
    measured: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class SampleMore:
    """Asks for the next candidates of the last `Sample`; answered by `Sampled`."""


@dataclass(frozen=True)
class Sampled:
    """Some of the candidates, and whether there may be more; fewer in all where the space has no more."""

    candidates: tuple[Candidate, ...]
    more: bool


@dataclass(frozen=True)
class Argument:
    """One tensor that a program takes."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Build:
    """Asks for the program that `trace` makes of `workload`; answered by `Built`.

    Attributes:
        trace: the schedule trace as JSON; None for the unscheduled module itself.
        export: where to write the program as a shared library, for another device; None where it runs in this worker.
        linker: the compiler that links the library; None for this machine's.
        whole: with the blocks that change the layout of weights, which are not timed.
        at_once: whether it can run then; else `Finish` has to follow, for a program that may never run.
        cores: to build on, until its code was read; empty: those that are for building.
    """

    workload: Workload
    trace: str | None
    target: dict[str, Any]
    export: Path | None = None
    linker: str | None = None
    whole: bool = False
    at_once: bool = True
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Built:
    """The program is machine code now.

    Attributes:
        build_seconds: time of the build.
        arguments: what an exported one takes.
        is_whole: whether nothing was left out of an exported one.
    """

    build_seconds: float
    arguments: tuple[Argument, ...] = ()
    is_whole: bool = True


@dataclass(frozen=True)
class Finish:
    """Asks for what a program that was not built at once lacks to run; answered by `Built`."""


@dataclass(frozen=True)
class ReadCode:
    """Asks for the assembly of the program; answered by `Code`."""


@dataclass(frozen=True)
class Code:
    """Assembly, see `tvm_compat.listing_of`."""

    listing: str


@dataclass(frozen=True)
class Prepare:
    """Asks for random inputs and a first run, whose results must be right; answered by `Prepared`.

    Attributes:
        seed: of the inputs.
        expected: file with the results of the unscheduled workload; None: they only have to be finite numbers.
    """

    seed: int
    expected: Path | None = None


@dataclass(frozen=True)
class Prepared:
    """The program has run; `call_seconds` is a rough time of one call."""

    call_seconds: float


@dataclass(frozen=True)
class WriteResults:
    """Asks for random inputs and one run, whose results are written to `path`; answered by `Prepared`."""

    seed: int
    path: Path


@dataclass(frozen=True)
class Repeat:
    """Asks for one repeat; answered by `Repeated`.

    Attributes:
        calls: calls in a row, after one that does not count (unless a call is long, see `UNWARMED_SECONDS`).
        cores: the cores to run on, one a thread; empty: wherever the system likes.
        flush_bytes: memory that is written before each call so that caches hold nothing of use; 0: caches stay warm.
    """

    calls: int
    cores: tuple[int, ...] = ()
    flush_bytes: int = 0


@dataclass(frozen=True)
class Repeated:
    """Mean seconds a call, and when the repeat ended (seconds since 1970)."""

    run_seconds: float
    ended_at: float


@dataclass(frozen=True)
class Failed:
    """The program cannot be measured; the worker ends after this."""

    outcome: Outcome
    message: str
