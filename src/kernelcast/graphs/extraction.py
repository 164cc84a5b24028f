"""From scheduled modules to all views that need the module, in one pass over each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.ast import syntax_tree
from kernelcast.graphs.dataflow import dataflow_graph
from kernelcast.graphs.facts import analyse
from kernelcast.graphs.features import program_row, program_rows, statement_rows, statement_table
from kernelcast.graphs.kernel_features import KERNEL_FEATURES, kernel_features
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.ragged import View
from kernelcast.graphs.views import AstGraphs, DataflowGraphs
from kernelcast.graphs.walker import walk

if TYPE_CHECKING:
    import tvm

EXTRACTED = ("ast", "dataflow", "features", "statements")
"""The views that are made here."""


def extract(modules: Iterable[tvm.IRModule], options: ViewOptions, cache_bytes: int) -> dict[str, View]:
    """Those of `options.views` that are made here, of some programs.

    Args:
        modules: what is built and timed, see `tvm_compat.runnable_module`; read one by one.
        options: which views, and how.
        cache_bytes: the cache of one core of the machine that measured, for the traffic of the flat features.

    Raises:
        MalformedDataError: a module holds no TensorIR function, or a loop or buffer whose size is no constant; there
            is no module.
    """
    wanted = [name for name in EXTRACTED if name in options.views]
    graphs = bool({"ast", "dataflow"} & set(wanted)) and options.static_features != "none"
    flat = bool({"features", "statements"} & set(wanted))
    without = np.zeros(len(KERNEL_FEATURES), dtype=np.float64)
    trees: list[AstGraphs] = []
    dataflow: list[DataflowGraphs] = []
    rows: list[np.ndarray] = []
    statements: list[np.ndarray] = []
    for module in modules if wanted else ():
        table = walk(module)
        facts = analyse(table)
        kernel_row = kernel_features(table, facts) if graphs else without
        if "ast" in wanted:
            trees.append(syntax_tree(table, facts, options, kernel_row))
        if "dataflow" in wanted:
            dataflow.append(dataflow_graph(table, facts, kernel_row, options))
        if flat:
            values, places = statement_table(table, facts)
            statements.append(values)
        if "features" in wanted:
            rows.append(program_row(table, facts, (values, places), cache_bytes))
    if wanted and not trees + dataflow + statements:
        raise MalformedDataError("no program to make views of; run `dvc repro measure`")
    made: dict[str, View] = {}
    if trees:
        made["ast"] = AstGraphs.concatenate(trees)
    if dataflow:
        made["dataflow"] = DataflowGraphs.concatenate(dataflow)
    if rows:
        made["features"] = program_rows(rows, options)
    if "statements" in wanted:
        made["statements"] = statement_rows(statements, options)
    return made
