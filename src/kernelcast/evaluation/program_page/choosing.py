"""Which program a person wants to look at."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.programs import Programs

RANKS = ("fastest", "slowest", "median")

SHOWN = 5
"""So many names a message lists."""


@dataclass(frozen=True)
class Wanted:
    """A program as a person names it: by its key, or by its place in its workload.

    Attributes:
        program: the key, or how it begins.
        workload: name of a workload; None takes the first one that has programs.
        rank: one of `RANKS`, or a place from 1 (the fastest); None is the fastest.
    """

    program: str | None = None
    workload: str | None = None
    rank: str | None = None


def find_program(programs: Programs, wanted: Wanted) -> int:
    """The row of the program.

    Raises:
        ConfigError: there is none, or several keys begin so; the message lists what comes near.
    """
    if not len(programs):
        raise ConfigError("there are no programs to look at; measure some and run `dvc repro graphs`")
    if wanted.program is not None:
        if wanted.workload is not None or wanted.rank is not None:
            raise ConfigError(
                f"program={wanted.program} names one program already; leave out workload_name and rank, or program"
            )
        return _by_key(programs, wanted.program)
    number = _workload_number(programs, wanted.workload)
    first = int(np.flatnonzero(programs.workload == number)[0])
    order = peers(programs, first)
    return int(order[_place(wanted.rank or RANKS[0], len(order), programs.workload_names[number])])


def peers(programs: Programs, row: int) -> Int64[np.ndarray, " programs"]:
    """The programs of the same workload and target, the fastest first; equal times in the order of their rows."""
    same = (programs.workload == programs.workload[row]) & (programs.target == programs.target[row])
    rows = np.flatnonzero(same).astype(np.int64)
    return rows[np.argsort(programs.log_seconds[rows], kind="stable")]


def is_rank(text: str) -> bool:
    """Whether a text is a place in a workload and not the beginning of a key: keys are longer than four digits."""
    return text in RANKS or (text.isdecimal() and len(text) <= 4)


def _by_key(programs: Programs, text: str) -> int:
    prefix = text.strip().lower()
    if not prefix:
        raise ConfigError("program is empty; give the first digits of a program's key, or leave it out")
    keys = programs.program_key.astype(np.str_)
    rows = np.flatnonzero(np.char.startswith(keys, prefix))
    found = np.unique(keys[rows])
    if len(found) == 0:
        distinct = np.unique(keys)
        place = int(np.searchsorted(distinct, prefix))
        near = distinct[max(0, place - 2) : place + 3]
        raise ConfigError(
            f"program={text}: no program's key begins so; those next to it are {', '.join(near)}. "
            f"Keys stand in measurements.parquet, or choose by workload_name=NAME and rank={'|'.join(RANKS)}|N"
        )
    if len(found) > 1:
        raise ConfigError(
            f"program={text}: {len(found)} programs' keys begin so, {', '.join(found[:SHOWN])}"
            f"{', ...' if len(found) > SHOWN else ''}; give more digits"
        )
    return int(rows[0])


def _workload_number(programs: Programs, name: str | None) -> int:
    if name is None:
        return int(programs.workload.min())
    used = {programs.workload_names[number]: int(number) for number in np.unique(programs.workload)}
    if name not in used:
        near = difflib.get_close_matches(name, used, n=SHOWN, cutoff=0.4)
        near += [other for other in used if name.lower() in other.lower() and other not in near]
        listed = near or list(used)
        told = ", ".join(listed[:SHOWN]) + (", ..." if len(listed) > SHOWN else "")
        why = "has no programs" if name in programs.workload_names else "is not among the workloads"
        raise ConfigError(f"workload_name={name} {why}; {'near it' if near else 'there'} are {told}")
    return used[name]


def _place(rank: str, count: int, workload: str) -> int:
    if rank in RANKS:
        return {"fastest": 0, "slowest": count - 1, "median": (count - 1) // 2}[rank]
    if not rank.isdecimal() or not 1 <= int(rank) <= count:
        raise ConfigError(
            f"rank={rank}: choose {', '.join(RANKS)} or a place from 1 to {count}, the programs of {workload}"
        )
    return int(rank) - 1
