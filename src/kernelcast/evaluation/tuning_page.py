"""The section of the page of results about one comparison of tunings."""

from __future__ import annotations

from kernelcast.evaluation.markdown import markdown_table, one_line
from kernelcast.evaluation.table import ABSENT, percentage, short
from kernelcast.evaluation.tuning_record import LatencyRow, MethodRow, Span, SubjectCell, TuningRecord

FIGURE_TEXT = "Best time known over the best so far, against trials and against wall time: median and quartiles"


def tuning_section(record: TuningRecord, figure: str | None = None) -> str:
    """All of it in Markdown: methods, curves, subjects, latencies, and how it was made.

    Args:
        record: what is shown.
        figure: address of its curves, from the page; None: there are none.
    """
    parts = [f"## {record.title}", record.caption, _methods(record)]
    if figure is not None:
        parts.append(f"![{FIGURE_TEXT}]({figure})")
    parts.append(_subjects(record))
    parts += [_latency(network, rows) for network, rows in record.latency.items()]
    return "\n\n".join([*parts, _footer(record)]) + "\n"


def _methods(record: TuningRecord) -> str:
    head = ["method", "trials", "area ↑", "end ↑", "to reach ↓", "reached ↑", "ratio ↓", "wall ↓", "model"]
    rows = [
        [
            row.method,
            str(row.most_trials),
            _span(row.area, ".2f"),
            _span(row.final_speed, ".2f"),
            *_reach(row),
            f"{short(row.seconds)} s",
            percentage(row.model_share),
        ]
        for row in sorted(record.methods, key=lambda row: -(row.area.value or 0.0))
    ]
    return markdown_table(head, rows)


def _reach(row: MethodRow) -> list[str]:
    if row.trials is None or row.ratio is None or row.reached is None:
        return [ABSENT] * 3
    return [_span(row.trials, ".0f"), f"{row.reached:.0%}", _span(row.ratio, ".2f")]


def _subjects(record: TuningRecord) -> str:
    methods = [row.method for row in record.methods]
    known = record.reference is not None
    rows = [[name, *(_cell(cells[method], known) for method in methods)] for name, cells in record.subjects.items()]
    reached = f", in brackets the trials until {record.reference}'s end was reached" if known else ""
    sentence = f"Milliseconds at the end, in parentheses the trials until then{reached}:"
    return f"{sentence}\n\n{markdown_table(['workload', *methods], rows)}"


def _cell(cell: SubjectCell, reference_known: bool) -> str:
    if cell.best_seconds is None:
        return ABSENT
    text = f"{1e3 * cell.best_seconds:.4g} ({cell.made:.0f})"
    if not reference_known:
        return text
    return f"{text} [{'never' if cell.trials is None else format(cell.trials, '.0f')}]"


def _latency(network: str, rows: tuple[LatencyRow, ...]) -> str:
    shown = [
        [
            row.contender,
            f"{1e3 * row.minimum_seconds:.4g}",
            f"{1e3 * row.median_seconds:.4g}",
            f"{row.minimum_seconds / rows[0].minimum_seconds:.2f}",
        ]
        for row in rows
    ]
    head = ["with", "minimum, ms", "median, ms", "minimum, to the first"]
    return f"Latency of {network}, in turns:\n\n" + markdown_table(head, shown)


def _span(span: Span, digits: str) -> str:
    """The figure with its interval; what too few tunings reach is beyond every number."""
    value, low, high = ("∞" if end is None else format(end, digits) for end in (span.value, span.low, span.high))
    return f"{value} [{low}, {high}]"


def _footer(record: TuningRecord) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items()))
    facts = [f"{record.date}, code {record.revision}; {versions}", f"measured on {record.measured_on}"]
    return "<sub>" + ". ".join(one_line(fact) for fact in facts) + ".</sub>"
