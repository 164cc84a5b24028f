"""What a checkup finds: each with how bad it is and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text


class Status(StrEnum):
    """How bad a finding is."""

    OK = "OK"
    """Nothing to do."""

    WARNING = "warning"
    """Things work, but not all or not well."""

    FAULT = "fault"
    """Something does not work."""


STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.FAULT: "bold red"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        area: what it belongs to.
        what: what was looked at.
        found: what is there, with units.
        status: how bad it is.
        advice: what to do about it; empty where nothing is to do.
    """

    area: str
    what: str
    found: str
    status: Status = Status.OK
    advice: str = ""


def findings_table(findings: Sequence[Finding]) -> Table:
    """All findings as a table for the terminal, one after the other, by area."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    table.add_column("what", overflow="fold")
    table.add_column("found, and what to do about it", overflow="fold", ratio=1)
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            table.add_section()
            table.add_row("", Text(area, style="bold"), "")
        told = Text(finding.found)
        if finding.advice:
            told.append(f"\n{finding.advice}", style=STYLES[finding.status])
        table.add_row(Text(finding.status.value, style=STYLES[finding.status]), Text(finding.what), told)
    return table


def count_sentence(findings: Sequence[Finding]) -> str:
    """How many findings there are of each kind."""
    counts = {status: sum(finding.status is status for finding in findings) for status in Status}
    several = {status: "" if status is Status.OK or count == 1 else "s" for status, count in counts.items()}
    return ", ".join(f"{count} {status.value}{several[status]}" for status, count in counts.items())


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """All findings for machines."""
    return {
        "counts": {status.value: sum(finding.status is status for finding in findings) for status in Status},
        "findings": [asdict(finding) for finding in findings],
    }
