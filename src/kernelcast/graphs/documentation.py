"""Writes `docs/features.md` from the tables of the columns: `python -m kernelcast.graphs.documentation`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelcast.graphs import dataflow, flat_columns, kernel_features, per_store, trace_columns, vocabulary
from kernelcast.graphs.machine_code import columns as machine_code
from kernelcast.graphs.vocabulary import Column, Feature

PATH = Path("docs/features.md")

INTRODUCTION = """# What the models see

`graphs` makes these views of every program; `conf/features` says which, and what in them. This page is made from the
tables in the code by `python -m kernelcast.graphs.documentation`.

A column counts what its unit says, and holds `log(1 + value)` of it; with `features.log_scale=false` the value itself.
Flags are 0 or 1 and never scaled. `features.leave_out` leaves out whole groups. A column that means nothing for a kind
of row is 0 there. Bytes touched are counted in cache lines of 64 bytes.
"""


def features_page() -> str:
    """The whole page in Markdown."""
    sections = [
        INTRODUCTION,
        _section(
            "ast",
            "The syntax tree of the scheduled TensorIR program, after Tomczak et al. 2019 (arXiv 1904.11876). Nodes "
            "stand in depth-first order. Serial loops that run once and axes of length one are no nodes.",
        ),
        _listed("Kinds of nodes", vocabulary.NODE_KINDS),
        _listed(
            "Kinds of edges; `features.direction=forward` keeps the first of each pair, `backward` the second",
            vocabulary.EDGE_KINDS,
        ),
        "Features of a node:\n",
        _features(vocabulary.NODE_FEATURES),
        _section(
            "dataflow",
            "Parameters and blocks as nodes, tensors as edges, after Kaufman et al. 2021 (arXiv 2008.01040).",
        ),
        "Opcodes:\n",
        _rows(("opcode", "meaning"), dataflow.OPCODE_MEANINGS.items()),
        "Edges:\n",
        _rows(("edge", "meaning"), dataflow.EDGE_KIND_MEANINGS.items()),
        "Features of a node:\n",
        _features(dataflow.NODE_FEATURES),
        _section(
            "Features of the program as a whole",
            "Of `ast` and `dataflow`: with `features.static_features=kernel` once a program, with `node` repeated at "
            "every node, with `none` left out.",
        ),
        _features(kernel_features.KERNEL_FEATURES),
        _section("statements", "One row a statement: a store or a call for its effect."),
        _features(flat_columns.STATEMENT_FEATURES),
        _section("features", "One row a program, of the same width whatever the program; always `log(1 + value)`."),
        _features(flat_columns.PROGRAM_FEATURES),
        _section(
            "trace",
            "The schedule trace as a sequence of primitives, after Zhai et al. 2023 (TLP, arXiv 2211.03578). It needs "
            "no module, so programs of other TVM versions have it too. `log1p` is the sign of x times log(1 + |x|).",
        ),
        _listed("Primitives", trace_columns.PRIMITIVES),
        "Values of a step:\n",
        _columns(trace_columns.COLUMNS),
        _section(
            "per_store",
            "TVM's own features of every store (`PerStoreFeature`), for models that expect them; they cost what they "
            "cost in TVM. `log2` is the sign of x times log2(1 + |x|).",
        ),
        _columns(per_store.COLUMNS),
        _section(
            "machine_code",
            "What LLVM made of the program, read from its x86-64 assembly: the program is built for it and not run. "
            "Counts are over all threads and executions; a loop turns as often as what it compares says. `log1p` is "
            "log(1 + x).",
        ),
        _columns(machine_code.COLUMNS),
    ]
    return "\n".join(sections)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}\n"


def _listed(title: str, names: Iterable[str]) -> str:
    return f"{title}: {', '.join(f'`{name}`' for name in names)}.\n"


def _features(features: Sequence[Feature]) -> str:
    rows = ((f"`{one.name}`", one.unit, one.group, one.meaning, one.source) for one in features)
    return _rows(("column", "unit", "group", "meaning", "source"), rows)


def _columns(columns: Sequence[Column]) -> str:
    return _rows(("column", "unit", "meaning"), ((f"`{one.name}`", one.unit, one.meaning) for one in columns))


def _rows(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    # a bar would end the cell
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PATH.write_text(features_page())
