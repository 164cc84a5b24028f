"""What was decided about fusion, for the terminal and for a file."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from kernelcast.tuning.fusion import FusionChoice, FusionChoices


def fusion_json(choices: FusionChoices) -> dict[str, Any]:
    """The choices and what each rule costs; seconds."""
    return {
        "network": choices.network,
        "choices": [
            {**dataclasses.asdict(choice), "fuses": choice.fuses, "default_fuses": True} for choice in choices.choices
        ],
        "undecided": list(choices.undecided),
        "rules": [dataclasses.asdict(rule) for rule in choices.rules()],
    }


def fusion_tables(choices: FusionChoices) -> list[Table]:
    """One row a group, and one row a rule where groups were measured both ways."""
    groups = _table(f"{choices.network}: fused or not, by the learned model; TVM's rule fuses all")
    groups.add_column("kernel", overflow="fold")
    for head in ("operators", "times", "fuse", "predicted µs", "apart", "measured µs", "apart"):
        groups.add_column(head, justify="right")
    for choice in choices.choices:
        groups.add_row(*_cells(choice))
    tables = [groups]
    if choices.rules():
        rules = _table(f"{choices.network}: what each rule of fusion costs a run of the network")
        rules.add_column("rule")
        for head in ("groups fused", "ms", "regret ms"):
            rules.add_column(head, justify="right")
        for rule in choices.rules():
            rules.add_row(
                rule.rule, str(rule.fused), f"{1e3 * rule.run_seconds:.4g}", f"{1e3 * rule.regret_seconds:.3g}"
            )
        tables.append(rules)
    if choices.undecided:
        undecided = _table("as TVM's rule has them, since nothing could be predicted")
        undecided.add_column("kernel and reason", overflow="fold")
        for line in choices.undecided:
            undecided.add_row(Text(line))
        tables.append(undecided)
    return tables


def _cells(choice: FusionChoice) -> list[str | Text]:
    return [
        Text(choice.fused_name),
        str(len(choice.member_names)),
        str(choice.group.count),
        "yes" if choice.fuses else "no",
        _microseconds(choice.predicted_fused_seconds),
        _microseconds(choice.predicted_apart_seconds),
        _microseconds(choice.measured_fused_seconds),
        _microseconds(choice.measured_apart_seconds),
    ]


def _microseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:.4g}"


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
