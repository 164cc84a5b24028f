"""What the loops of a program do with work and memory, computed once for the syntax tree and the flat features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelcast.graphs.accesses import Access, Index, index_of
from kernelcast.graphs.tensorir import Block, Branch, Expression, Loop, Program, Statement, Store, is_float

FLOAT_OPERATIONS = frozenset(("add", "sub", "mul", "div", "min", "max", "exp", "sqrt", "tanh", "math"))
"""Kinds that are one floating-point operation each when their value is of floating-point type."""

TRANSCENDENTAL = frozenset(("exp", "sqrt", "tanh", "math"))
"""Those of them that cost many cycles."""

UNROLL_DEPTH_LIMIT = 8
"""Nested loops that TVM's unrolling takes at most (`auto_max_depth`)."""


@dataclass(slots=True)
class LoopFacts:
    """What is known of one loop.

    Attributes:
        loop: the loop.
        executions: how often it is started.
        iterations_below: innermost iterations in one execution.
        flops_below: floating-point operations in one execution.
        touched_bytes: distinct bytes in one execution, in cache lines.
        body_bytes: the same in one iteration.
        unroll_limit: steps that unrolling may make here.
        unrolled: becomes straight code.
        scalar: marked vectorised, but run one by one: a condition in it differs between lanes.
        reduction: drives a reduced axis.
        lanes: extent of the vectorised loop here or around, 1 without.
        parents: facts of the loops around, outermost first.
        children: loops directly below.
    """

    loop: Loop
    executions: int
    unroll_limit: int
    lanes: int
    parents: tuple[LoopFacts, ...]
    iterations_below: int = 0
    flops_below: int = 0
    touched_bytes: int = 0
    body_bytes: int = 0
    unrolled: bool = False
    scalar: bool = False
    reduction: bool = False
    children: list[LoopFacts] = field(default_factory=list)


@dataclass(slots=True)
class StatementFacts:
    """What is known of one store, intrinsic call or condition.

    Attributes:
        statement: the statement.
        loops: facts of the loops around, outermost first.
        executions: product of their extents.
        lanes: extent of the vectorised loop around, 1 without or where lanes cannot run together.
        flops: floating-point operations of one execution.
        transcendental: those of them that are exp, sqrt, tanh, ...
        accesses: loads by the expression's identity, in program order.
        target: the access of a store.
        unrolled_steps: copies of the statement in straight code.
    """

    statement: Statement
    loops: tuple[LoopFacts, ...]
    executions: int
    lanes: int
    flops: int = 0
    transcendental: int = 0
    accesses: dict[int, Access] = field(default_factory=dict)
    target: Access | None = None
    unrolled_steps: int = 1

    def all_accesses(self) -> list[Access]:
        """Loads in program order, then the store."""
        return [*self.accesses.values(), *([self.target] if self.target is not None else [])]


@dataclass(slots=True)
class ProgramFacts:
    """What is known of a program.

    Attributes:
        program: the program.
        loops: by the loop's identity, in program order.
        statements: by the statement's identity, in program order.
        roots: outermost loops.
        axes: index of every block axis by its variable.
        touched_bytes: distinct bytes touched, in cache lines.
    """

    program: Program
    loops: dict[int, LoopFacts] = field(default_factory=dict)
    statements: dict[int, StatementFacts] = field(default_factory=dict)
    roots: list[LoopFacts] = field(default_factory=list)
    axes: dict[int, Index] = field(default_factory=dict)
    touched_bytes: int = 0

    @property
    def flops(self) -> int:
        """Floating-point operations of one run."""
        return sum(facts.flops * facts.executions for facts in self.statements.values())

    def moved_bytes(self, cache_bytes: int) -> int:
        """Bytes between memory and a cache of `cache_bytes` that drops what was not used for longest.

        A loop brings in what it touches once if one iteration fits: what the next iteration uses again is still there.
        Otherwise each iteration brings in all that its own inner loops bring in. Below the innermost loops all fits.
        """
        if self.touched_bytes <= cache_bytes or not self.roots:
            return self.touched_bytes
        return sum(_moved(facts, cache_bytes) for facts in self.roots)


def _moved(facts: LoopFacts, cache_bytes: int) -> int:
    if facts.body_bytes <= cache_bytes or not facts.children:
        return facts.touched_bytes
    return max(facts.touched_bytes, facts.loop.extent * sum(_moved(child, cache_bytes) for child in facts.children))


def analyse(program: Program) -> ProgramFacts:
    """Computes the facts of a program.

    Conditions are taken as always true, so a guarded statement counts in full.
    """
    facts = ProgramFacts(program)
    analyst = _Analyst(facts)
    accesses = analyst.visit(program.body, (), 1, 1, 0)
    facts.touched_bytes = _footprint(accesses)
    for statement in facts.statements.values():
        for loop in statement.loops:
            if loop.unrolled:
                statement.unrolled_steps *= loop.loop.extent
    return facts


def loads(expression: Expression) -> Iterator[Expression]:
    """The loads in an expression, each with the loads in its indices before it."""
    for operand in expression.operands:
        yield from loads(operand)
    if expression.kind == "load":
        yield expression


def lazy_conditions(expression: Expression) -> Iterator[Expression]:
    """The conditions of choices that evaluate one side only."""
    if expression.kind == "select" and expression.value:
        yield expression.operands[0]
    for operand in expression.operands:
        yield from lazy_conditions(operand)


def _footprint(accesses: list[Access]) -> int:
    """Distinct bytes of all accesses; those to one buffer are taken to overlap."""
    largest: dict[int, int] = {}
    for access in accesses:
        number = access.buffer.number
        if access.touched_bytes > largest.get(number, 0):
            largest[number] = access.touched_bytes
    return sum(largest.values())


def _operations(expression: Expression, kinds: frozenset[str]) -> int:
    count = int(expression.kind in kinds and is_float(expression.dtype))
    # an index is no floating-point work
    operands = () if expression.kind == "load" else expression.operands
    return count + sum(_operations(operand, kinds) for operand in operands)


class _UnrollState:
    """What TVM's unrolling pass keeps while it goes outwards."""

    __slots__ = ("depth", "rolled_depth", "steps")

    def __init__(self) -> None:
        self.steps, self.depth, self.rolled_depth = 0, 0, 0


class _Analyst:
    """Goes through a program once, outwards for memory and inwards for work."""

    def __init__(self, facts: ProgramFacts) -> None:
        self.facts = facts
        self.environment: dict[int, Index] = {}
        self.extents: dict[int, int] = {}
        self.loop_of: dict[int, LoopFacts] = {}
        self.unroll = _UnrollState()
        self.conditions: list[Expression] = []

    def visit(
        self, body: tuple[Statement, ...], loops: tuple[LoopFacts, ...], executions: int, lanes: int, limit: int
    ) -> list[Access]:
        """Visits statements in order; gives the accesses in them with the loops inside `body` added."""
        found: list[Access] = []
        before = self.unroll
        for statement in body:
            self.unroll = _UnrollState()
            found += self._statement(statement, loops, executions, lanes, limit)
            before.steps += self.unroll.steps
            before.depth = max(before.depth, self.unroll.depth)
            before.rolled_depth = max(before.rolled_depth, self.unroll.rolled_depth)
        self.unroll = before
        return found

    def _statement(
        self, statement: Statement, loops: tuple[LoopFacts, ...], executions: int, lanes: int, limit: int
    ) -> list[Access]:
        if isinstance(statement, Loop):
            return self._loop(statement, loops, executions, lanes, limit)
        if isinstance(statement, Block):
            return self._block(statement, loops, executions, lanes, limit)
        facts = StatementFacts(statement, loops, executions, lanes)
        self.facts.statements[id(statement)] = facts
        if isinstance(statement, Branch):
            self._expression(facts, statement.condition)
            self.conditions.append(statement.condition)
            found = facts.all_accesses()
            for part in (statement.then, statement.otherwise):
                found += self.visit(part, loops, executions, lanes, limit)
            self.conditions.pop()
            return found
        self.unroll.steps += 1
        self._lanes(facts, statement.value)
        self._expression(facts, statement.value)
        if isinstance(statement, Store):
            for index in statement.indices:
                self._expression(facts, index, counts=False)
            facts.target = Access(statement.buffer, True, self._indices(statement.indices))
        return facts.all_accesses()

    def _expression(self, facts: StatementFacts, expression: Expression, counts: bool = True) -> None:
        if counts:
            facts.flops += _operations(expression, FLOAT_OPERATIONS)
            facts.transcendental += _operations(expression, TRANSCENDENTAL)
            for loop in facts.loops:
                loop.flops_below += facts.flops * (facts.executions // loop.executions)
        for load in loads(expression):
            if id(load) not in facts.accesses and load.buffer is not None:
                facts.accesses[id(load)] = Access(load.buffer, False, self._indices(load.operands))

    def _indices(self, indices: tuple[Expression, ...]) -> tuple[Index, ...]:
        return tuple(index_of(index, self.environment, self.extents) for index in indices)

    def _loop(
        self, loop: Loop, parents: tuple[LoopFacts, ...], executions: int, lanes: int, limit: int
    ) -> list[Access]:
        limit = limit if loop.unroll_limit is None else loop.unroll_limit
        lanes = lanes * loop.extent if loop.kind == "loop_vectorized" else lanes
        facts = LoopFacts(loop, executions, limit, lanes, parents)
        self.facts.loops[id(loop)] = facts
        (parents[-1].children if parents else self.facts.roots).append(facts)
        self.environment[loop.variable] = Index(0, {loop.variable: 1})
        self.extents[loop.variable] = loop.extent
        self.loop_of[loop.variable] = facts
        accesses = self.visit(loop.body, (*parents, facts), executions * loop.extent, lanes, limit)
        facts.body_bytes = _footprint(accesses)
        for access in accesses:
            access.add_loop(loop.variable, loop.extent, facts.body_bytes)
        facts.touched_bytes = _footprint(accesses)
        below = sum(child.iterations_below for child in facts.children)
        facts.iterations_below = loop.extent * max(below, 1)
        self._unroll(facts)
        return accesses

    def _unroll(self, facts: LoopFacts) -> None:
        """Follows `UnrollLoop` of TVM: innermost serial loops outwards, while the steps stay under the limit."""
        loop, state = facts.loop, self.unroll
        if loop.kind == "loop_vectorized" and not facts.scalar:
            # is no loop any more when unrolling comes
            return
        fits = state.rolled_depth == 0 and state.depth <= UNROLL_DEPTH_LIMIT
        serial = loop.kind == "loop_serial" or facts.scalar
        automatic = serial and fits and loop.extent * state.steps <= facts.unroll_limit
        facts.unrolled = automatic or loop.kind == "loop_unrolled"
        if facts.unrolled:
            state.steps *= loop.extent
            state.depth += 1
        else:
            state.rolled_depth += 1

    def _block(
        self, block: Block, loops: tuple[LoopFacts, ...], executions: int, lanes: int, limit: int
    ) -> list[Access]:
        for axis in (*block.unit_axes, *block.axes):
            index = index_of(axis.binding, self.environment, self.extents)
            self.environment[axis.variable] = self.facts.axes[axis.variable] = index
            if axis.kind == "axis_reduce":
                for variable in index.terms:
                    self.loop_of[variable].reduction = True
        # an init runs where all reduced axes are at their start: once for each of their runs
        reduced = 1
        for loop in loops:
            reduced *= loop.loop.extent if loop.reduction else 1
        found = self.visit(block.init, loops, max(1, executions // reduced), lanes, limit)
        if block.predicate is not None:
            self.conditions.append(block.predicate)
        found += self.visit(block.body, loops, executions, lanes, limit)
        if block.predicate is not None:
            self.conditions.pop()
        return found

    def _lanes(self, facts: StatementFacts, value: Expression) -> None:
        """Takes the lanes away where `VectorizeLoop` of TVM gives up: under a condition that differs between them."""
        vectorised = [loop for loop in facts.loops if loop.loop.kind == "loop_vectorized"]
        if not vectorised:
            return
        conditions = [*self.conditions, *lazy_conditions(value)]
        indices = [index_of(condition, self.environment, self.extents) for condition in conditions]
        for loop in vectorised:
            if any(loop.loop.variable in index.terms for index in indices):
                loop.scalar = True
                facts.lanes = 1
