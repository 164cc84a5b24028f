"""The page of results in Markdown, all of it made of the records of the experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernelcast.evaluation.bootstrap import Estimate
from kernelcast.evaluation.experiment_record import Record, RecordedSplit, Row
from kernelcast.evaluation.markdown import markdown_table, one_line
from kernelcast.evaluation.results import Role
from kernelcast.evaluation.summary import METRIC_BY_NAME
from kernelcast.evaluation.table import ABSENT, number, percentage, short
from kernelcast.evaluation.tuning_page import tuning_section
from kernelcast.evaluation.tuning_record import TuningRecord

SHARES = ("mape", "ape")
"""Endings of the names of metrics that are shown as percentages."""

INTRODUCTION = """# Results

Made by `python scripts/results.py` of the files in `results/`, which the experiments and `compare.py publish=NAME`
write; no figure is typed by hand. All experiments, and this page:
`python scripts/experiment.py -m 'experiment=glob(*)'`.

Every figure is the mean over the seeds and the tested workloads, with its bootstrap interval in brackets. **Bold**: the
best model. A `≈` marks those that a paired bootstrap over the workloads does not tell from the best. The noise ceiling
is what a second measurement of the same programs reaches; it is no model.
"""


def render_page(
    records: Sequence[Record],
    order: Sequence[str] = (),
    tunings: Sequence[TuningRecord] = (),
    figures: Mapping[str, str] | None = None,
) -> str:
    """The page.

    Args:
        records: of the experiments.
        order: names that come first, before the tunings; the others follow by name.
        tunings: published comparisons.
        figures: address of the curves of a comparison, from the page, by its name.
    """
    placed = sorted(records, key=lambda record: ([*order, record.name].index(record.name), record.name))
    first = [_section(record) for record in placed if record.name in order]
    rest = [_section(record) for record in placed if record.name not in order]
    between = [tuning_section(record, (figures or {}).get(record.name)) for record in tunings]
    return "\n".join([INTRODUCTION, *first, *between, *rest]).rstrip() + "\n"


def _section(record: Record) -> str:
    tables = _by_split(record) if record.columns == "metrics" else _by_metric(record)
    parts = [f"## {record.title}", f"{record.question}\n\nStands for: {record.source}.", *tables]
    if record.failed:
        parts.append("Without a result:\n\n" + "\n".join(f"- {one_line(entry)}" for entry in record.failed))
    return "\n\n".join([*parts, _footer(record)]) + "\n"


def _by_split(record: Record) -> Iterator[str]:
    """A table a split, a column a metric."""
    for result in record.splits:
        shown = [name for name in record.metrics if any(name in row.metrics for row in result.rows)]
        head = ["model", *(_heading(name) for name in shown), "train, s", "predict, µs"]
        rows = [
            [_name(row, record), *(_figure(row, name) for name in shown), _seconds(row), _microseconds(row)]
            for row in result.rows
        ]
        yield f"{_split_sentence(result)}\n\n{markdown_table(head, rows)}"


def _by_metric(record: Record) -> Iterator[str]:
    """A table a metric, a column a split."""
    labels = list(dict.fromkeys(row.label for result in record.splits for row in result.rows))
    for name in record.metrics:
        found = [{row.label: row for row in result.rows} for result in record.splits]
        rows = [
            [
                next(_name(rows[label], record) for rows in found if label in rows),
                *(_figure(rows[label], name) if label in rows else ABSENT for rows in found),
            ]
            for label in labels
            if any(label in rows and name in rows[label].metrics for rows in found)
        ]
        if rows:
            head = ["model", *(result.split for result in record.splits)]
            yield f"{METRIC_BY_NAME[name].label}:\n\n{markdown_table(head, rows)}"
    yield "\n".join(f"- {_split_sentence(result)}" for result in record.splits)


def _split_sentence(result: RecordedSplit) -> str:
    known = "workloads seen in training" if result.known_workloads else "workloads never seen in training"
    return (
        f"Split `{result.split}` ({known}): {result.test_programs} programs of {result.test_workloads} "
        f"workload{'s' * (result.test_workloads != 1)} to test on, {result.train_programs} programs to learn from; "
        f"intervals over {result.resampling}."
    )


def _footer(record: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
    data = ", ".join(
        f"`{digest}`" + (f" ({variant})" if len(record.data) > 1 else "") for variant, digest in record.data.items()
    )
    facts = [
        f"Again: `{record.command}`",
        f"{record.date}, code {record.revision}; {versions}",
        f"{record.programs} programs of {record.workloads} workloads, label `{record.label}`, data {data}",
        f"measured on {'; '.join(record.measured_on)}; trained on {record.trained_on}",
        f"seeds {', '.join(map(str, record.seeds))}; {record.confidence:.0%} intervals",
    ]
    return "<sub>" + ". ".join(one_line(fact) for fact in facts) + ".</sub>"


def _name(row: Row, record: Record) -> str:
    if row.role == Role.CEILING:
        return f"*{row.label}* (noise ceiling)"
    few = f" ({row.seeds} of {len(record.seeds)} seeds)" if row.seeds < len(record.seeds) else ""
    return f"{row.label}{few}"


def _figure(row: Row, name: str) -> str:
    estimate = row.metrics.get(name)
    if estimate is None:
        return ABSENT
    text = _interval(estimate, name)
    if name in row.best:
        return f"**{text}**"
    return f"≈ {text}" if name in row.tied else text


def _interval(estimate: Estimate, name: str) -> str:
    written = percentage if name.endswith(SHARES) or "ape_" in name or "_ape" in name else number
    return f"{written(estimate.value)} [{written(estimate.low)}, {written(estimate.high)}]"


def _heading(name: str) -> str:
    metric = METRIC_BY_NAME[name]
    return f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"


def _seconds(row: Row) -> str:
    return ABSENT if row.train_seconds is None else short(row.train_seconds)


def _microseconds(row: Row) -> str:
    return ABSENT if row.predict_microseconds is None else short(row.predict_microseconds)
