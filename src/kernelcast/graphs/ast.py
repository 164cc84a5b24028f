"""The abstract syntax tree of a scheduled program as arrays.

After Tomczak et al. 2019 (arXiv 1904.11876), with memory features of the kind that Ansor (arXiv 2006.06762, appendix B)
takes: the tree holds loops, blocks, statements, accesses and arithmetic; its leaves are constants and variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.accesses import Access
from kernelcast.graphs.analysis import ProgramFacts, StatementFacts
from kernelcast.graphs.programs import AstGraphs
from kernelcast.graphs.tensorir import Axis, Block, Branch, Expression, Loop, Statement, Store, is_float, itemsize
from kernelcast.graphs.vocabulary import EDGE_KIND_INDEX, NODE_FEATURE_INDEX, NODE_FEATURES, NODE_KIND_INDEX

MAGNITUDE_LIMIT = 1e6
"""Constants are cut off here: the largest float32 stands for minus infinity and is no larger than any other bound."""

_LOGGED = np.array([feature.unit != "flag" for feature in NODE_FEATURES])
_WIDTH = len(NODE_FEATURES)


@dataclass(frozen=True)
class AstOptions:
    """Which parts of the tree are kept.

    Attributes:
        indices: the index expressions of accesses are nodes.
        buffer_edges: accesses to one buffer are chained.
        definition_edges: loops, block axes and uses of axes are linked.
    """

    indices: bool = True
    buffer_edges: bool = True
    definition_edges: bool = True

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool):
                raise ConfigError(f"features.{name}: expected true or false, got {value!r}")


def syntax_tree(facts: ProgramFacts, options: AstOptions) -> AstGraphs:
    """The tree of one analysed program, as `AstGraphs` of length 1."""
    return _TreeBuilder(facts, options).graphs()


def concatenate(graphs: list[AstGraphs]) -> AstGraphs:
    """Many `AstGraphs` one after the other; at least one."""

    def offsets(parts: list[np.ndarray]) -> np.ndarray:
        lengths = np.concatenate([np.diff(part) for part in parts])
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])

    return AstGraphs(
        node_kind=np.concatenate([part.node_kind for part in graphs]),
        node_features=np.concatenate([part.node_features for part in graphs]),
        node_parent=np.concatenate([part.node_parent for part in graphs]),
        node_depth=np.concatenate([part.node_depth for part in graphs]),
        node_offset=offsets([part.node_offset for part in graphs]),
        edge_index=np.concatenate([part.edge_index for part in graphs], axis=1),
        edge_kind=np.concatenate([part.edge_kind for part in graphs]),
        edge_offset=offsets([part.edge_offset for part in graphs]),
    )


class _TreeBuilder:
    """Adds nodes in depth-first order."""

    def __init__(self, facts: ProgramFacts, options: AstOptions) -> None:
        self.facts = facts
        self.options = options
        self.kinds: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.rows: list[list[float]] = []
        self.accesses_of: dict[int, list[int]] = {}
        self.definitions: dict[int, int] = {}
        self.uses: list[tuple[int, int]] = []
        self.constant_variables: set[int] = set()

    def graphs(self) -> AstGraphs:
        """Builds all arrays."""
        root = self._node("function", -1, 1)
        self._statements(self.facts.program.body, root, 1)
        parent = np.array(self.parents, dtype=np.int32)
        features = np.array(self.rows, dtype=np.float64)
        children = np.bincount(parent[1:], minlength=len(parent))
        features[:, NODE_FEATURE_INDEX["children"]] = children
        features[:, NODE_FEATURE_INDEX["position"]] = _positions(parent)
        features[:, _LOGGED] = np.log1p(features[:, _LOGGED])
        edge_index, edge_kind = self._edges(parent)
        return AstGraphs(
            node_kind=np.array(self.kinds, dtype=np.int16),
            node_features=features.astype(np.float32),
            node_parent=parent,
            node_depth=np.array(self.depths, dtype=np.int16),
            node_offset=np.array([0, len(parent)], dtype=np.int64),
            edge_index=edge_index,
            edge_kind=edge_kind,
            edge_offset=np.array([0, len(edge_kind)], dtype=np.int64),
        )

    def _node(self, kind: str, parent: int, executions: int, **features: float) -> int:
        number = len(self.kinds)
        self.kinds.append(NODE_KIND_INDEX[kind])
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        row = [0.0] * _WIDTH
        row[0] = executions
        for name, value in features.items():
            row[NODE_FEATURE_INDEX[name]] = value
        self.rows.append(row)
        return number

    def _statements(self, body: tuple[Statement, ...], parent: int, executions: int) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self._loop(statement, parent)
            elif isinstance(statement, Block):
                self._block(statement, parent, executions)
            else:
                self._simple(self.facts.statements[id(statement)], parent)

    def _loop(self, loop: Loop, parent: int) -> None:
        facts = self.facts.loops[id(loop)]
        number = self._node(
            loop.kind,
            parent,
            facts.executions,
            extent=loop.extent,
            iterations_below=facts.iterations_below,
            flops_below=facts.flops_below,
            bytes_below=facts.touched_bytes,
            reduction=facts.reduction,
            lanes=facts.lanes if facts.lanes > 1 and not facts.scalar else 0,
            unroll_limit=facts.unroll_limit,
            unrolled=facts.unrolled,
        )
        self.definitions[loop.variable] = number
        self._statements(loop.body, number, facts.executions * loop.extent)

    def _block(self, block: Block, parent: int, executions: int) -> None:
        number = self._node("block", parent, executions)
        for axis in block.axes:
            self._axis(axis, number, executions)
        self.constant_variables.update(axis.variable for axis in block.unit_axes)
        if block.predicate is not None:
            self._expression(block.predicate, number, executions, 0, {})
        if block.init:
            self._statements(block.init, self._node("init", number, executions), executions)
        self._statements(block.body, number, executions)
        flops = sum(
            self.facts.statements[id(statement)].flops
            for statement in block.body
            if id(statement) in self.facts.statements
        )
        self.rows[number][NODE_FEATURE_INDEX["flops_below"]] = flops

    def _axis(self, axis: Axis, parent: int, executions: int) -> None:
        reduction = axis.kind == "axis_reduce"
        number = self._node(axis.kind, parent, executions, extent=axis.extent, reduction=reduction)
        self.definitions[axis.variable] = number
        for variable in self.facts.axes[axis.variable].terms:
            self.uses.append((self.definitions[variable], number))

    def _simple(self, facts: StatementFacts, parent: int) -> None:
        statement = facts.statement
        executions, lanes = facts.executions, facts.lanes if facts.lanes > 1 else 0
        if isinstance(statement, Store) and facts.target is not None:
            number = self._access("store", facts.target, parent, executions, lanes)
            self._indices(statement.indices, number, executions, lanes, facts.accesses)
            self._expression(statement.value, number, executions, lanes, facts.accesses)
        elif isinstance(statement, Branch):
            number = self._node("branch", parent, executions)
            self._expression(statement.condition, number, executions, lanes, facts.accesses)
            self._statements(statement.then, number, executions)
            self._statements(statement.otherwise, number, executions)
        elif not isinstance(statement, Loop | Block | Store):
            number = self._node("evaluate", parent, executions, lanes=lanes)
            self._expression(statement.value, number, executions, lanes, facts.accesses)

    def _access(self, kind: str, access: Access, parent: int, executions: int, lanes: int) -> int:
        buffer = access.buffer
        number = self._node(
            kind,
            parent,
            executions,
            lanes=lanes,
            is_float=is_float(buffer.dtype),
            dtype_bytes=buffer.itemsize,
            dimensions=sum(extent > 1 for extent in buffer.shape),
            buffer_bytes=buffer.size_bytes,
            temporary=buffer.temporary,
            stride=access.stride,
            contiguous=access.stride == 1,
            invariant=access.stride == 0,
            inner_bytes=access.inner_bytes,
            touched_bytes=access.touched_bytes,
            reuse=access.executions / access.elements,
            reuse_trips=access.reuse_trips,
            reuse_bytes=access.reuse_bytes,
        )
        self.accesses_of.setdefault(buffer.number, []).append(number)
        return number

    def _indices(
        self, indices: tuple[Expression, ...], parent: int, executions: int, lanes: int, accesses: dict[int, Access]
    ) -> None:
        for index in indices if self.options.indices else ():
            self._expression(index, parent, executions, lanes, accesses)

    def _expression(
        self, expression: Expression, parent: int, executions: int, lanes: int, accesses: dict[int, Access]
    ) -> None:
        kind = expression.kind
        if kind == "load" and id(expression) in accesses:
            number = self._access(kind, accesses[id(expression)], parent, executions, lanes)
            self._indices(expression.operands, number, executions, lanes, accesses)
            return
        magnitude = min(abs(expression.value), MAGNITUDE_LIMIT) if kind == "constant" else 0.0
        if kind == "variable" and expression.value in self.constant_variables:
            kind = "constant"
        number = self._node(
            kind,
            parent,
            executions,
            lanes=lanes,
            is_float=is_float(expression.dtype),
            dtype_bytes=itemsize(expression.dtype),
            magnitude=magnitude,
        )
        definition = self.definitions.get(int(expression.value)) if kind == "variable" else None
        if definition is not None:
            self.uses.append((definition, number))
        for operand in expression.operands:
            self._expression(operand, number, executions, lanes, accesses)

    def _edges(self, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pairs: dict[str, np.ndarray] = {}
        child = np.arange(1, len(parent), dtype=np.int32)
        pairs["parent_to_child"] = np.stack([parent[1:], child])
        # children of one parent, in order: a stable sort by parent puts siblings beside each other
        order = (np.argsort(parent[1:], kind="stable") + 1).astype(np.int32)
        together = parent[order[1:]] == parent[order[:-1]]
        pairs["next_sibling"] = np.stack([order[:-1][together], order[1:][together]])
        chains = list(self.accesses_of.values()) if self.options.buffer_edges else []
        pairs["next_same_buffer"] = _as_edges([pair for chain in chains for pair in pairwise(chain)])
        pairs["definition_to_use"] = _as_edges(self.uses if self.options.definition_edges else [])
        parts, kinds = [], []
        for name, edges in pairs.items():
            kind = EDGE_KIND_INDEX[name]
            parts += [edges, edges[::-1]]
            kinds += [np.full(edges.shape[1], kind), np.full(edges.shape[1], kind + 1)]
        return np.concatenate(parts, axis=1).astype(np.int32), np.concatenate(kinds).astype(np.int8)


def _positions(parent: np.ndarray) -> np.ndarray:
    """How many siblings stand before each node."""
    order = np.argsort(parent, kind="stable")
    sorted_parent = parent[order]
    first = np.searchsorted(sorted_parent, sorted_parent, side="left")
    positions = np.empty(len(parent), dtype=np.int64)
    positions[order] = np.arange(len(parent)) - first
    return positions


def _as_edges(pairs: list[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, dtype=np.int32).reshape(-1, 2).T
