import json
import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelcast.errors import MalformedDataError
from kernelcast.measurement.journal import JOURNAL_FILE, Journal
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Outcome

ONE, TWO = Candidate("w", "p1", "[1]"), Candidate("w", "p2", "[2]")


def write_all_kinds(directory: Path) -> Path:
    """A journal with every kind of line; returns its path."""
    with Journal(directory) as journal:
        journal.plan([ONE, TWO])
        journal.exhaust("w")
        journal.built(ONE, 0.25)
        journal.repeat(ONE, TimedRepeat(0, 1e-3, 1e-5, 1000.5))
        journal.finish(TWO, Outcome.CRASH, "SIGABRT")
        journal.retry(TWO)
        journal.finish(TWO, Outcome.BUILD_ERROR, "no: such\n\"thing\"")  # fmt: skip
        journal.repeat(ONE, TimedRepeat(1, 2e-3, 1e-5, 1001.5))
        journal.finish(ONE, Outcome.MEASURED)
        journal.sync()
    return directory / JOURNAL_FILE


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write_all_kinds(tmp_path)
    with Journal(tmp_path) as journal:
        one, two = journal.planned("w")
        assert journal.exhausted == {"w"}
    assert (one.candidate, one.build_seconds, one.outcome) == (ONE, 0.25, Outcome.MEASURED)
    assert one.repeats == {0: TimedRepeat(0, 1e-3, 1e-5, 1000.5), 1: TimedRepeat(1, 2e-3, 1e-5, 1001.5)}
    assert (two.candidate, two.outcome, two.message) == (TWO, Outcome.BUILD_ERROR, 'no: such\n"thing"')


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, 400))
def test_a_torn_tail_is_set_aside_and_all_lines_before_it_are_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    directory = tmp_path_factory.mktemp("torn")
    path = write_all_kinds(directory)
    whole = path.read_bytes()
    torn = whole[: len(whole) - cut]
    path.write_bytes(torn)
    complete, _, tail = torn.rpartition(b"\n")
    with Journal(directory) as journal:
        journal.exhaust("more")
    asides = sorted(directory.glob(f"{JOURNAL_FILE}.torn-*"))
    assert b"".join(aside.read_bytes() for aside in asides) == tail
    assert path.read_bytes().startswith(complete + b"\n")
    with Journal(directory) as journal:
        assert "more" in journal.exhausted


def test_the_warning_about_a_torn_tail_names_file_and_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_all_kinds(tmp_path)
    lines = path.read_bytes().count(b"\n")
    path.write_bytes(path.read_bytes()[:-30])
    with caplog.at_level(logging.WARNING), Journal(tmp_path):
        pass
    assert f"{path}:{lines}:" in caplog.text
    assert f"{JOURNAL_FILE}.torn-1" in caplog.text


def test_a_second_torn_tail_does_not_overwrite_the_first(tmp_path: Path) -> None:
    path = write_all_kinds(tmp_path)
    for _ in range(2):
        with path.open("ab") as stream:
            stream.write(b'{"event": "bu')
        with Journal(tmp_path):
            pass
    assert [aside.name for aside in sorted(tmp_path.glob("*.torn-*"))] == [f"{JOURNAL_FILE}.torn-{n}" for n in (1, 2)]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"event": "no such event", "workload": "w", "program": "p1"}',
        b'{"event": "built", "workload": "w", "program": "never planned", "build_seconds": 1}',
        b'{"event": "planned", "workload": "w", "program": "p1", "trace": "[1]"}',
        b'{"event": "repeat", "workload": "w", "program": "p1", "round": 0, "run_seconds": 1}',
        b'{"event": "finished", "workload": "w", "program": "p1", "outcome": "lost", "message": ""}',
        b'{"event": "finished", "workload": "w", "program": "p1", "outcome": "crash", "message": null}',
        b'{"event": "built", "workload": "w", "program": "p1", "build_seconds": NaN}',
        b'{"event": "built", "workload": "w", "program": "p1", "build_seconds": true}',
        b'{"event": "planned", "workload": "w", "program": "p3", "trace": null}',
        b'{"event": "exhausted", "workload": []}',
        b"[" * 100_000,
        *(
            b'{"event": "repeat", "workload": "w", "program": "p1", "round": %b, "run_seconds": %b, '
            b'"reference_seconds": %b, "ended_at": %b}' % values
            for values in (
                (b"1e400", b"1", b"1", b"1"),
                (b"-1", b"1", b"1", b"1"),
                (b"7", b"-1", b"1", b"1"),
                (b"7", b"1e400", b"1", b"1"),
                (b"7", b"1", b"NaN", b"1"),
                (b"7", b"1", b"1", b'"now"'),
            )
        ),
    ],
)
def test_a_bad_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    path = write_all_kinds(tmp_path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]) + b"\n")
    with pytest.raises(MalformedDataError) as refused:
        Journal(tmp_path)
    assert f"{path}:4:" in str(refused.value)


def test_the_same_round_twice_is_refused(tmp_path: Path) -> None:
    path = write_all_kinds(tmp_path)
    repeats = [line for line in path.read_text().splitlines() if json.loads(line)["event"] == "repeat"]
    with path.open("a") as stream:
        stream.write(repeats[0] + "\n")
    with pytest.raises(MalformedDataError, match="round 0 twice"):
        Journal(tmp_path)
