"""Where an access goes as the loops around it run: strides, distinct elements, cache lines.

An index is kept as a sum with one term a loop variable, which is what schedules make: `i // 4 * 8 + j * 2 + k`. A term
is a coefficient, or a table of its values where division makes it other than linear. Divisions of a sum are split
exactly where the parts allow it, and term by term (leaving out carries) where they do not. So counts of elements are
exact for affine indices and close estimates otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelcast.graphs.tensorir import Buffer, Expression

CACHE_LINE_BYTES = 64

Term = int | tuple[int, ...]
"""Value of one term by its loop variable: a coefficient, or all values from iteration 0 on."""


@dataclass(frozen=True, slots=True)
class Index:
    """One index as a sum of terms.

    Attributes:
        constant: what is left when all loop variables are zero.
        terms: loop variable to term; no zero terms.
    """

    constant: int
    terms: dict[int, Term]


ZERO = Index(0, {})


def index_of(expression: Expression, environment: dict[int, Index], extents: dict[int, int]) -> Index:
    """The sum that `expression` is, given the sums of the variables in it.

    Args:
        expression: an integer expression.
        environment: sums of loop variables (themselves) and of block axes (their bindings).
        extents: iterations by loop variable.
    """
    kind = expression.kind
    if kind == "variable":
        return environment.get(int(expression.value), ZERO)
    if kind == "constant":
        return Index(int(expression.value), {})
    parts = [index_of(operand, environment, extents) for operand in expression.operands]
    if kind == "add":
        return _sum(parts[0], parts[1], 1, extents)
    if kind == "sub":
        return _sum(parts[0], parts[1], -1, extents)
    if kind == "mul":
        for factor, other in ((parts[1], parts[0]), (parts[0], parts[1])):
            if not factor.terms:
                return _scaled(other, factor.constant)
    if kind in ("floordiv", "div", "floormod", "mod") and not parts[1].terms and parts[1].constant > 0:
        return _divided(parts[0], parts[1].constant, kind in ("floormod", "mod"), extents)
    if kind == "cast":
        return parts[0]
    # min, max, a choice or a gathered index: moves with everything in it
    total = ZERO
    for part in parts:
        total = _sum(total, part, 1, extents)
    return total


def _values(term: Term, extent: int) -> tuple[int, ...]:
    return tuple(range(0, term * extent, term)) if isinstance(term, int) else term


def _sum(a: Index, b: Index, sign: int, extents: dict[int, int]) -> Index:
    terms = dict(a.terms)
    for variable, term in b.terms.items():
        added = term * sign if isinstance(term, int) else tuple(sign * value for value in term)
        present = terms.get(variable)
        if present is None:
            terms[variable] = added
            continue
        if isinstance(present, int) and isinstance(added, int):
            joined: Term = present + added
        else:
            extent = extents[variable]
            joined = tuple(x + y for x, y in zip(_values(present, extent), _values(added, extent), strict=True))
        _put(terms, variable, joined)
    return Index(a.constant + sign * b.constant, terms)


def _put(terms: dict[int, Term], variable: int, term: Term) -> None:
    if term if isinstance(term, int) else any(term):
        terms[variable] = term
    else:
        terms.pop(variable, None)


def _scaled(index: Index, factor: int) -> Index:
    if factor == 0:
        return ZERO
    return Index(
        index.constant * factor,
        {
            variable: term * factor if isinstance(term, int) else tuple(factor * value for value in term)
            for variable, term in index.terms.items()
        },
    )


def _divided(index: Index, divisor: int, remainder: bool, extents: dict[int, int]) -> Index:
    """`index // divisor` or `index % divisor`, rounding down."""
    whole: dict[int, Term] = {}
    rest: dict[int, Term] = {}
    for variable, term in index.terms.items():
        if isinstance(term, int) and term % divisor == 0:
            whole[variable] = term // divisor
        elif not isinstance(term, int) and not any(value % divisor for value in term):
            whole[variable] = tuple(value // divisor for value in term)
        else:
            rest[variable] = term
    carried, constant = divmod(index.constant, divisor)
    low = high = constant
    for variable, term in rest.items():
        values = (0, term * (extents[variable] - 1)) if isinstance(term, int) else term
        low, high = low + min(values), high + max(values)
    if low >= 0 and high < divisor:
        return Index(constant, rest) if remainder else Index(carried, whole)
    start = constant % divisor if remainder else constant // divisor
    terms = {} if remainder else whole
    for variable, term in rest.items():
        # exact for a single term; for several, carries between them are left out
        moved = [constant + value for value in _values(term, extents[variable])]
        _put(terms, variable, tuple((m % divisor if remainder else m // divisor) - start for m in moved))
    return Index(start if remainder else carried + start, terms)


@dataclass(slots=True)
class Access:
    """One read or write of a buffer inside loops, and the box of elements that it touches as loops are added.

    Attributes:
        buffer: what it accesses.
        is_store: written, not read.
        dimensions: an index per dimension.
        distinct: distinct index values a dimension over the loops added so far.
        span: largest minus smallest index a dimension over the loops added so far.
        touched_bytes: bytes of the cache lines touched over the loops added so far.
        executions: accesses made over the loops added so far.
        stride: elements between two iterations of the innermost loop, 0 without a loop.
        inner_bytes: `touched_bytes` after the innermost loop.
        reuse_trips: extent of the innermost loop that leaves the address unchanged, 1 without.
        reuse_bytes: bytes that all accesses touch in one iteration of that loop.
    """

    buffer: Buffer
    is_store: bool
    dimensions: tuple[Index, ...]
    distinct: list[int] = field(default_factory=list)
    span: list[int] = field(default_factory=list)
    touched_bytes: int = CACHE_LINE_BYTES
    executions: int = 1
    has_loop: bool = False
    stride: int = 0
    inner_bytes: int = CACHE_LINE_BYTES
    reuse_trips: int = 1
    reuse_bytes: int = 0

    def __post_init__(self) -> None:
        self.distinct = [1] * len(self.dimensions)
        self.span = [0] * len(self.dimensions)

    @property
    def elements(self) -> int:
        """Distinct elements touched over the loops added so far."""
        count = 1
        for distinct, span, extent in zip(self.distinct, self.span, self.buffer.shape, strict=True):
            count *= min(distinct, span + 1, extent)
        return count

    def add_loop(self, variable: int, extent: int, bytes_per_iteration: int) -> None:
        """Puts the next loop outwards around the access.

        Args:
            variable: its variable.
            extent: its iterations.
            bytes_per_iteration: bytes that everything in the loop's body touches in one iteration.
        """
        self.executions *= extent
        moves = False
        stride, step = 0, 1
        for position in range(len(self.dimensions) - 1, -1, -1):
            term = self.dimensions[position].terms.get(variable)
            if term is not None and extent > 1:
                moves = True
                if isinstance(term, int):
                    stride += term * step
                    self.distinct[position] *= extent
                    self.span[position] += abs(term) * (extent - 1)
                else:
                    stride += (term[1] - term[0]) * step
                    self.distinct[position] *= len(set(term))
                    self.span[position] += max(term) - min(term)
            step *= self.buffer.shape[position]
        if moves:
            self.touched_bytes = self._lines() * CACHE_LINE_BYTES
        elif self.reuse_trips == 1:
            self.reuse_trips, self.reuse_bytes = extent, bytes_per_iteration
        if not self.has_loop:
            self.has_loop = True
            self.stride, self.inner_bytes = abs(stride), self.touched_bytes

    def _lines(self) -> int:
        """Cache lines of the box: the innermost dimensions are one run as long as they are covered whole."""
        lines, run, run_span, joined = 1, 1, 1, True
        shape = self.buffer.shape
        for position in range(len(shape) - 1, -1, -1):
            extent = shape[position]
            count = min(self.distinct[position], self.span[position] + 1, extent)
            if joined:
                run_span *= min(self.span[position] + 1, extent)
                run *= count
                joined = count == extent
            else:
                lines *= count
        return lines * min(run, -(-run_span * self.buffer.itemsize // CACHE_LINE_BYTES))
