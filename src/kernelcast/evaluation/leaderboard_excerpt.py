"""The leaderboard of the README: some rows and columns of one experiment, between two marks."""

from __future__ import annotations

from collections.abc import Sequence

from kernelcast.evaluation.experiment_record import Record, Row
from kernelcast.evaluation.markdown import markdown_table
from kernelcast.evaluation.summary import METRIC_BY_NAME
from kernelcast.evaluation.table import ABSENT

BEGIN, END = "<!-- leaderboard, by scripts/results.py -->", "<!-- end of leaderboard -->"

EXPERIMENT = "networks"
ROWS = {
    "measured again": "*measured again* (noise ceiling)",
    "ensemble-rank": "`ensemble`",
    "graphsage-rank": "`graphsage`",
    "gcn-rank": "`gcn`",
    "lightgbm_estimate-log_mse": "`lightgbm_estimate`",
    "lightgbm-log_mse": "`lightgbm`",
    "analytical": "`analytical`, which learns nothing",
    "tvm_xgb": "TVM's own XGBModel, on the same programs",
    "random": "a random order",
}
METRICS = ("top_1", "top_5", "kendall_tau")


def with_leaderboard(page: str, records: Sequence[Record]) -> str:
    """The page with the table anew between its marks; as it is without marks, or without the experiment."""
    record = next((record for record in records if record.name == EXPERIMENT), None)
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if record is None or not begin or not end:
        return page
    return f"{before}{BEGIN}\n{leaderboard(record)}\n{END}{after}"


def leaderboard(record: Record) -> str:
    """The table of the experiment's first split, with what it is of."""
    split = record.splits[0]
    found = {row.label: row for row in split.rows}
    rows = [
        [name, *(_figure(found[label], metric) for metric in METRICS)] for label, name in ROWS.items() if label in found
    ]
    seeds = f"{len(record.seeds)} seeds" if len(record.seeds) > 1 else "one seed so far"
    table = markdown_table(["model", *(METRIC_BY_NAME[metric].label for metric in METRICS)], rows)
    return (
        f"On {split.test_programs} programs of {split.test_workloads} kernels of networks that no model had seen "
        f"({seeds}, {record.confidence:.0%} intervals):\n\n{table}"
    )


def _figure(row: Row, metric: str) -> str:
    estimate = row.metrics.get(metric)
    return ABSENT if estimate is None else f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
