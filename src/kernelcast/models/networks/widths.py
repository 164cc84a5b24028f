"""How wide each view of a data set is: what a network must know before it can be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelcast.graphs import dataflow, trace_columns, vocabulary
from kernelcast.graphs.programs import Programs

VOCABULARIES: dict[str, tuple[int, int]] = {
    "ast": (len(vocabulary.NODE_KINDS), len(vocabulary.EDGE_KINDS)),
    "dataflow": (len(dataflow.OPCODES), len(dataflow.EDGE_KINDS)),
    "trace": (len(trace_columns.PRIMITIVES), 0),
}
"""Kinds of elements and of edges of the views whose elements have a kind."""

FEATURES = {"ast": "feature_names", "dataflow": "feature_names"}
"""Where a view names the columns of an element; `names` where it is not listed."""


@dataclass(frozen=True)
class ViewWidths:
    """The widths of one view.

    Attributes:
        kinds: size of the vocabulary of nodes or steps; 0 where elements have no kind.
        edge_kinds: size of the vocabulary of edges; 0 where there are none.
        features: columns of an element.
        kernel_features: columns of the program as a whole.
    """

    kinds: int
    edge_kinds: int
    features: int
    kernel_features: int


Widths = Mapping[str, ViewWidths]
"""The widths of every view that a network may look at, by the view's name."""


class _Smallest(dict[str, ViewWidths]):
    def __missing__(self, view: str) -> ViewWidths:
        return ViewWidths(1, 1, 1, 0)


SMALLEST: Widths = _Smallest()
"""The smallest widths of any view, to make a network that is only looked at."""


def widths_of(programs: Programs) -> dict[str, ViewWidths]:
    """The widths of all views that the programs have."""
    found = {}
    for view in programs.sources:
        columns = programs.columns(view)
        kinds, edge_kinds = VOCABULARIES.get(view, (0, 0))
        found[view] = ViewWidths(
            kinds=kinds,
            edge_kinds=edge_kinds,
            features=len(columns[FEATURES.get(view, "names")]),
            kernel_features=len(columns.get("kernel_names", ())),
        )
    return found
