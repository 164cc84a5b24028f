"""The view `trace`: schedule traces as sequences of steps with numbers, read without TVM.

Source: Zhai et al. 2023 (TLP, arXiv 2211.03578). What the numbers are stands in `trace_columns.COLUMNS`. Python only
sorts what a trace holds into flat lists, by calls that loop in C; the numbers are computed for a whole chunk of traces.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import orjson
from jaxtyping import Float32, Float64, Int64

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.trace_columns import (
    ALIASES,
    ATTRIBUTES,
    COLUMN_NAMES,
    DECISIONS,
    OPERANDS,
    OTHER,
    PRIMITIVES,
    block_code,
    word_code,
)
from kernelcast.graphs.views import TraceTokens
from kernelcast.tvm_compat import trace_fault

__all__ = ["PRIMITIVES", "trace_tokens", "trace_view"]

Trace = str | bytes | list[Any]
"""In TVM's JSON, or what that parses to."""

HANDLE = re.compile(r"[blv][0-9]+")
"""Names by which instructions refer to what earlier ones made; every other text is a literal."""

GET_BLOCK = PRIMITIVES.index("GetSBlock")
CHOICE = PRIMITIVES.index("SampleCategorical")
ENTER_POSTPROC = PRIMITIVES.index("EnterPostproc")

_COLUMN = {name: place for place, name in enumerate(COLUMN_NAMES)}
_FAULTS = (TypeError, ValueError, LookupError, OverflowError, RecursionError, AttributeError)


def trace_tokens(trace: Trace) -> TraceTokens:
    """The steps of one trace, a view of length 1; many are quicker together, see `trace_view`."""
    return trace_view([trace])


def trace_view(traces: Sequence[Trace]) -> TraceTokens:
    """The steps of many traces, postprocessing included; no trace depends on the others.

    Raises:
        MalformedDataError: one is not a schedule trace; says which, counted from 0, and what is wrong.
    """
    chunk = _Chunk()
    for number, trace in enumerate(traces):
        parsed: Any = trace
        try:
            if isinstance(trace, str | bytes):
                parsed = orjson.loads(trace)
            chunk.add(parsed)
        except _FAULTS as error:
            fault = f"not JSON ({error})" if isinstance(error, orjson.JSONDecodeError) else trace_fault(parsed)
            raise _malformed(number, fault or f"{type(error).__name__}: {error}") from error
    return chunk.tokens()


def _malformed(number: int, fault: str) -> MalformedDataError:
    return MalformedDataError(
        f"trace {number} is not a schedule trace: {fault}; measure its program again or get a whole copy of the data"
    )


class _Kinds(dict[str, int]):
    """Codes of primitives by name."""

    def __missing__(self, kind: object) -> int:
        if not isinstance(kind, str):
            raise TypeError("the kind of an instruction is no name")
        return PRIMITIVES.index(OTHER)


_KINDS = _Kinds(
    {name: code for code, name in enumerate(PRIMITIVES)} | {old: PRIMITIVES.index(new) for old, new in ALIASES.items()}
)
# a kind that calls itself so is no known one
del _KINDS[OTHER]


class _Literals(dict[Any, int]):
    """Numbers and texts by the place at which their meaning stands in the tables; equal ones stand once."""

    def __init__(self) -> None:
        super().__init__()
        self.number = array("d")
        self.word = array("d")
        self.block = array("d")

    def __missing__(self, value: Any) -> int:
        is_text = isinstance(value, str) and value not in ("None", "")
        if value is None or isinstance(value, str):
            self.number.append(0.0)
        else:
            self.number.append(value)
        self.word.append(word_code(value) if is_text else 0)
        self.block.append(block_code(value) if is_text else 0)
        self[value] = place = len(self.number) - 1
        return place


class _Operands(dict[Any, int]):
    """What a trace's operands are: the number of an output in the chunk, or -1 - the place of a literal."""

    literals: _Literals

    def __missing__(self, operand: Any) -> int:
        if isinstance(operand, str) and HANDLE.fullmatch(operand):
            raise ValueError(f"{operand} is used and no instruction makes it")
        self[operand] = code = -1 - self.literals[operand]
        return code


class _Chunk:
    """Flat lists of everything that the traces hold."""

    def __init__(self) -> None:
        self.literals = _Literals()
        self.steps = [0]
        self.kinds: list[int] = []
        self.inputs: list[int] = []
        self.attributes: list[int] = []
        self.outputs: list[int] = []
        self.operand_codes: list[int] = []
        self.attribute_codes: list[int] = []
        self.made = 0
        self.decided_steps: list[int] = []
        self.decided_counts: list[int] = []
        self.decided_numbers = array("d")
        self.choices: list[int] = []
        self.probabilities = array("d")

    def add(self, trace: Any) -> None:
        """Takes one parsed trace apart; raises one of `_FAULTS` where it is none."""
        instructions, decisions = trace
        names: Sequence[str]
        names, inputs, attributes, outputs = zip(*instructions, strict=True) if instructions else ((), (), (), ())
        if {list} != set(map(type, chain(inputs, attributes, outputs, (trace, instructions, decisions)))):
            raise TypeError("a part that should be a list is none")
        kinds = list(map(_KINDS.__getitem__, names))

        made = list(chain.from_iterable(outputs))
        operands = _Operands(zip(made, range(self.made, self.made + len(made)), strict=True))
        if not {str}.issuperset(map(type, made)):
            raise TypeError("an output is no name")
        if len(operands) < len(made):
            raise ValueError("two instructions make something of the same name")
        operands.literals = self.literals
        counts = list(map(len, inputs))
        flat = list(chain.from_iterable(inputs))
        _unnest(flat, counts)
        self.operand_codes.extend(map(operands.__getitem__, flat))
        self.attribute_codes.extend(
            [self.literals[len(one) if one.__class__ in _NESTED else one] for one in chain.from_iterable(attributes)]
        )
        base = len(self.kinds)
        self._decide(decisions, kinds, attributes, base)
        self.kinds.extend(kinds)
        self.inputs.extend(counts)
        self.attributes.extend(map(len, attributes))
        self.outputs.extend(map(len, outputs))
        self.made += len(made)
        self.steps.append(len(self.kinds))

    def _decide(self, decisions: list[Any], kinds: list[int], attributes: Sequence[Any], base: int) -> None:
        if len({place for place, _ in decisions}) < len(decisions):
            raise ValueError("an instruction is decided twice")
        for place, value in decisions:
            if place.__class__ is not int or not 0 <= place < len(kinds):
                raise LookupError(f"a decision is of instruction {place}, of which there is none")
            numbers = value if value.__class__ is list else [value]
            if kinds[place] == CHOICE:
                candidates, probabilities = attributes[place]
                if value.__class__ is not int or value < 0:
                    raise TypeError(f"instruction {place}: the choice {value} is not a place among the candidates")
                numbers = [value, candidates[value]]
                self.choices.append(base + place)
                self.probabilities.append(probabilities[value])
            self.decided_steps.append(base + place)
            self.decided_counts.append(len(numbers))
            self.decided_numbers.extend(numbers)

    def tokens(self) -> TraceTokens:
        """The numbers of all steps."""
        offset = np.array(self.steps, dtype=np.int64)
        kinds = np.array(self.kinds, dtype=np.int64)
        values = np.zeros((len(kinds), len(COLUMN_NAMES)), dtype=np.float32)
        values[:, _COLUMN["after_postproc"]] = _after(kinds == ENTER_POSTPROC, offset)
        values[:, _COLUMN["inputs"]] = np.log1p(np.array(self.inputs, dtype=np.float64))
        values[:, _COLUMN["outputs"]] = np.log1p(np.array(self.outputs, dtype=np.float64))
        with np.errstate(over="ignore"):
            origin = self._set_operands(values, offset)
            self._set_attributes(values, kinds, origin)
            self._set_decisions(values)
        if not np.isfinite(values).all():
            step = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
            number = int(np.searchsorted(offset, step, side="right")) - 1
            raise _malformed(number, f"instruction {step - offset[number]} has a number that is not finite")
        return TraceTokens(COLUMN_NAMES, offset, kinds.astype(np.int16), values)

    def _set_operands(
        self, values: Float32[np.ndarray, "steps columns"], offset: Int64[np.ndarray, " traces_plus_1"]
    ) -> Int64[np.ndarray, " steps"]:
        """Sets the columns of operands; the step that made the first operand of each, its own number where none did."""
        step, place = _places(self.inputs)
        codes = np.array(self.operand_codes, dtype=np.int64)
        maker, maker_place = _places(self.outputs)
        handle = codes >= 0
        back = np.zeros(len(codes), dtype=np.int64)
        back[handle] = step[handle] - maker[codes[handle]]
        if (back[handle] <= 0).any():
            late = int(step[handle][np.flatnonzero(back[handle] <= 0)[0]])
            number = int(np.searchsorted(offset, late, side="right")) - 1
            raise _malformed(number, f"instruction {late - offset[number]} uses what a later one makes")
        # a text has its code, a number its logarithm, and no literal is both
        literal = _log(np.array(self.literals.number)) + np.array(self.literals.word)
        value = np.empty(len(codes), dtype=np.float64)
        value[handle] = maker_place[codes[handle]] + 1
        value[~handle] = literal[-1 - codes[~handle]]
        shown = place < OPERANDS
        column = _COLUMN["operand_1_back"] + 2 * place[shown]
        values[step[shown], column] = np.log1p(back[shown])
        values[step[shown], column + 1] = value[shown]

        origin = np.arange(len(values), dtype=np.int64)
        first = handle & (place == 0)
        origin[step[first]] = maker[codes[first]]
        return origin

    def _set_attributes(
        self,
        values: Float32[np.ndarray, "steps columns"],
        kinds: Int64[np.ndarray, " steps"],
        origin: Int64[np.ndarray, " steps"],
    ) -> None:
        step, place = _places(self.attributes)
        codes = np.array(self.attribute_codes, dtype=np.int64)
        shown = place < ATTRIBUTES
        number = _log(np.array(self.literals.number))
        values[step[shown], _COLUMN["attribute_1"] + place[shown]] = number[codes[shown]]

        named = (kinds[step] == GET_BLOCK) & (place == 0)
        block = np.zeros(len(kinds), dtype=np.float64)
        block[step[named]] = np.array(self.literals.block)[codes[named]]
        # written backwards, so that the first text of a step stays
        word = np.array(self.literals.word)[codes]
        texts = np.flatnonzero((word > 0) & (kinds[step] != GET_BLOCK))[::-1]
        values[step[texts], _COLUMN["word"]] = word[texts]

        # each round doubles how many steps back the origin lies
        length = (origin != np.arange(len(origin))).astype(np.int64)
        while length.size and (further := origin[origin]).tobytes() != origin.tobytes():
            length += length[origin]
            origin = further
        values[:, _COLUMN["block"]] = block[origin]
        values[:, _COLUMN["chain"]] = np.log1p(length)

    def _set_decisions(self, values: Float32[np.ndarray, "steps columns"]) -> None:
        decided, place = _places(self.decided_counts)
        steps = np.array(self.decided_steps, dtype=np.int64)
        values[steps, _COLUMN["decided"]] = self.decided_counts
        shown = place < DECISIONS
        numbers = _log(np.array(self.decided_numbers))
        values[steps[decided[shown]], _COLUMN["decision_1"] + place[shown]] = numbers[shown]
        values[np.array(self.choices, dtype=np.int64), _COLUMN["decision_3"]] = self.probabilities


_NESTED = frozenset((list, dict))


def _unnest(flat: list[Any], counts: list[int]) -> None:
    """Puts the content of lists among the operands in their place, and corrects the counts of operands a step."""
    if _NESTED.isdisjoint(map(type, flat)):
        return
    ends = list(accumulate(counts))
    nested = [place for place, operand in enumerate(flat) if operand.__class__ in _NESTED]
    for place in reversed(nested):
        content = list(_content(flat[place]))
        counts[bisect_right(ends, place)] += len(content) - 1
        flat[place : place + 1] = content


def _content(operand: Any) -> Iterable[Any]:
    if isinstance(operand, dict):
        operand = list(chain.from_iterable(operand.items()))
    if isinstance(operand, list):
        for one in operand:
            yield from _content(one)
    else:
        yield operand


def _places(counts: Sequence[int]) -> tuple[Int64[np.ndarray, " elements"], Int64[np.ndarray, " elements"]]:
    """Row and place in the row of every element, given how many each row has."""
    lengths = np.array(counts, dtype=np.int64)
    row = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    return row, np.arange(len(row), dtype=np.int64) - (np.cumsum(lengths) - lengths)[row]


def _after(mark: np.ndarray, offset: Int64[np.ndarray, " traces_plus_1"]) -> np.ndarray:
    """Whether a marked step stands before a step in its trace."""
    before = np.concatenate([[0], np.cumsum(mark)])
    return (before[:-1] - np.repeat(before[offset[:-1]], np.diff(offset))) > 0


def _log(numbers: Float64[np.ndarray, " numbers"]) -> Float64[np.ndarray, " numbers"]:
    return np.asarray(np.sign(numbers) * np.log1p(np.abs(numbers)))
