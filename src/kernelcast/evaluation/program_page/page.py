"""The page itself: one HTML file with everything in it."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2
import numpy as np

from kernelcast.evaluation.program_page.comparing import Tree, aligned, line_keys, matched_nodes
from kernelcast.evaluation.program_page.content import column_data, kernel_view, program_data
from kernelcast.graphs.dataset.store import Description
from kernelcast.graphs.programs import Programs

TEMPLATE = "page.html.j2"
STYLE = "page.css"
SCRIPTS = ("format.js", "scene.js", "tree.js", "dataflow.js", "tables.js", "start.js")
"""In the order in which they are put into the page."""

TRACE_ALONE = (
    "Only the schedule trace is shown: it needs no module, and these programs have no other view. Either the data were "
    "built so (features.views), or they come from a TVM that this one cannot read."
)


@dataclass(frozen=True)
class Shown:
    """A program to show.

    Attributes:
        row: its place among the programs.
        splits: which part of which split it is in.
        source: its TensorIR as text, None where that is not at hand.
    """

    row: int
    splits: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None


def page_data(
    programs: Programs, description: Description, shown: Sequence[Shown], no_source: str = ""
) -> dict[str, Any]:
    """What the page shows, as plain data.

    Args:
        programs: of the store.
        description: of the store.
        shown: one program, or two to compare.
        no_source: why there is no TensorIR to show.
    """
    made = [program_data(programs, description, one.row, one.splits, one.source) for one in shown]
    return {
        "programs": made,
        "columns": column_data(programs, description),
        "tables": _tables(),
        "comparison": _comparison(programs, [one.row for one in shown], made) if len(shown) == 2 else None,
        "label": description.label,
        "options": {
            "direction": description.options.direction,
            "static_features": description.options.static_features,
            "leave_out": list(description.options.leave_out),
            "log_scale": description.options.log_scale,
        },
        "views": list(programs.sources),
        "kernel": kernel_view(programs),
        "no_source": no_source,
        "notice": TRACE_ALONE if list(programs.sources) == ["trace"] else "",
    }


def render_page(data: Mapping[str, Any]) -> str:
    """The whole page as HTML, from `page_data`."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["duration"] = duration
    folder = importlib.resources.files("kernelcast.evaluation.program_page")
    return environment.from_string(folder.joinpath(TEMPLATE).read_text(encoding="utf-8")).render(
        data=data,
        style=folder.joinpath(STYLE).read_text(encoding="utf-8"),
        script="".join(folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS),
        version=importlib.metadata.version("kernelcast"),
    )


def duration(seconds: float) -> str:
    """A time in the unit in which it has few digits."""
    for factor, unit in ((1e-3, "µs"), (1.0, "ms")):
        if seconds < factor:
            return f"{seconds / factor * 1e3:.4g} {unit}"
    return f"{seconds:.4g} s"


def _tables() -> dict[str, Any]:
    """What the numbers of nodes, edges and steps stand for."""
    from kernelcast.graphs import dataflow, trace_columns, vocabulary

    return {
        "node_kinds": list(vocabulary.NODE_KINDS),
        "edge_kinds": list(vocabulary.EDGE_KINDS),
        "opcodes": list(dataflow.OPCODES),
        "opcode_meanings": dict(dataflow.OPCODE_MEANINGS),
        "flow_kinds": list(dataflow.EDGE_KINDS),
        "primitives": list(trace_columns.PRIMITIVES),
        "words": list(trace_columns.WORDS),
    }


def _comparison(programs: Programs, rows: Sequence[int], made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counterparts of nodes, steps and lines."""
    left, right = made
    found: dict[str, Any] = {}
    if "ast" in left:
        trees = []
        for row in rows:
            view = programs.view("ast", np.array([row], dtype=np.int64))
            trees.append(Tree(view.node_kind, view.node_parent, view.node_features))
        found["ast"] = matched_nodes(*trees).tolist()
    if "dataflow" in left:
        found["dataflow"] = aligned((left["dataflow"]["kind"], right["dataflow"]["kind"]))
    if "trace" in left:
        steps = [
            [(step, *values) for step, values in zip(one["trace"]["primitive"], one["trace"]["values"], strict=True)]
            for one in made
        ]
        found["trace"] = aligned((steps[0], steps[1]), (left["trace"]["primitive"], right["trace"]["primitive"]))
    if left["source"] is not None and right["source"] is not None:
        found["source"] = aligned(*zip(line_keys(left["source"]), line_keys(right["source"]), strict=True))
    return found
