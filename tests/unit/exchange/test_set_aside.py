import logging
from pathlib import Path

import pytest

from kernelcast.exchange.set_aside import SetAside


def test_one_warning_a_kind_with_place_count_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    aside = SetAside()
    assert aside.first() == ""
    for line in (7, 3, 9):
        aside.add("not a record", Path("records.json"), line, f"reason {line}")
    aside.add("torn", Path("records.json"), 12, "no end")
    with caplog.at_level(logging.WARNING):
        aside.warn()
    assert [record.message for record in caplog.records] == [
        "records.json:7, the first of them: set aside 3 lines: not a record (reason 7)",
        "records.json:12: set aside 1 line: torn (no end)",
    ]
    assert aside.first() == "records.json:7: not a record: reason 7"
