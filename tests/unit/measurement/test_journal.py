import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelcast.errors import MalformedDataError, StorageError
from kernelcast.measurement.journal import JOURNAL_FILE, Ending, Journal, Repeats
from kernelcast.measurement.sampling import Candidate
from kernelcast.measurement.timing import TimedRepeat
from kernelcast.records import Origin, Outcome

ONE, TWO = Candidate("w", "p1", "[1]"), Candidate("w", "p2", "[2]", Origin.EVOLVED)
SECONDS = st.floats(0, 1e12, allow_nan=False)
MEASURED = Ending(Outcome.MEASURED, "", "local", True, False, 1002.0)
AGAIN = Ending(Outcome.CRASH, "SIGSEGV", "local", False, False, 1003.0)
NO_SUCH = Ending(Outcome.BUILD_ERROR, 'no: such\n"thing"', "board", False, True, 1001.0)
REPEATS = [TimedRepeat(0, 0, 7, 1e-3, 1e-5, 1000.5), TimedRepeat(0, 1, 8, 2e-3, 1e-5, 1001.5)]
LATER = TimedRepeat(1, 0, 9, 3e-3, 2e-5, 1002.5)


def write_all_kinds(directory: Path) -> Path:
    """A journal with every kind of line; returns its path."""
    with Journal(directory) as journal:
        journal.plan([ONE, TWO])
        journal.exhaust("w", Origin.EVOLVED, 5)
        one, two = journal.planned("w")
        journal.built(one, 0.25)
        journal.repeat(one, REPEATS[0])
        journal.finish(two, 0, Ending(Outcome.CRASH, "SIGABRT", "local", False, False, 1000.0))
        journal.retry(two)
        journal.finish(two, 0, NO_SUCH)
        journal.repeat(one, REPEATS[1])
        journal.finish(one, 0, MEASURED)
        journal.repeat(one, LATER)
        journal.finish(one, 1, AGAIN)
        journal.sync()
    return directory / JOURNAL_FILE


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    write_all_kinds(tmp_path)
    with Journal(tmp_path) as journal:
        one, two = journal.planned("w")
        assert journal.exhausted == {("w", Origin.EVOLVED): 5}
        assert journal.planned("another workload") == []
    assert (one.candidate, one.build_seconds, one.outcome) == (ONE, 0.25, Outcome.MEASURED)
    assert (one.ending, one.again) == (MEASURED, AGAIN)
    assert not one.has_failed, "a second visit does not undo the first"
    assert list(one.repeats) == [*REPEATS, LATER]
    assert (one.repeats.of_visit(0), one.repeats.of_visit(1)) == (REPEATS, [LATER])
    assert (two.candidate, two.ending, two.again, two.has_failed) == (TWO, NO_SUCH, None, True)


@given(
    st.lists(
        st.builds(
            TimedRepeat,
            visit=st.integers(0, 3),
            round_index=st.integers(0, 2**53 - 1),
            calls=st.integers(1, 2**53 - 1),
            run_seconds=SECONDS,
            reference_seconds=SECONDS,
            ended_at=SECONDS,
        )
    )
)
def test_repeats_are_packed_without_a_loss(repeats: list[TimedRepeat]) -> None:
    packed = Repeats()
    for repeat in repeats:
        packed.append(repeat)
    assert list(packed) == repeats
    assert len(packed) == len(repeats)
    for visit in range(4):
        assert packed.of_visit(visit) == [repeat for repeat in repeats if repeat.visit == visit]
    assert all(isinstance(repeat.calls, int) for repeat in packed)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(run_seconds=st.floats(0, 1e300), ended_at=SECONDS, message=st.text(), trace=st.text())
def test_numbers_and_texts_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, run_seconds: float, ended_at: float, message: str, trace: str
) -> None:
    directory = tmp_path_factory.mktemp("exact")
    repeat = TimedRepeat(0, 0, 1, run_seconds, 1e-5, ended_at)
    ending = Ending(Outcome.RUN_ERROR, message, "ü", True, True, ended_at)
    # half of a surrogate pair is no character; TVM's texts have none
    trace = trace.encode("utf-8", "replace").decode()
    with Journal(directory) as journal:
        journal.plan([Candidate("w", "p", trace)])
        journal.repeat(journal.planned("w")[0], repeat)
        journal.finish(journal.planned("w")[0], 0, ending)
    with Journal(directory) as journal:
        (entry,) = journal.planned("w")
    assert (entry.candidate.trace, list(entry.repeats), entry.ending) == (trace, [repeat], ending)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, 600))
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
        journal.exhaust("more", Origin.RANDOM, 1)
    asides = sorted(directory.glob(f"{JOURNAL_FILE}.torn-*"))
    assert b"".join(aside.read_bytes() for aside in asides) == tail
    assert path.read_bytes().startswith(complete + b"\n")
    with Journal(directory) as journal:
        assert ("more", Origin.RANDOM) in journal.exhausted


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


FINISHED = {
    "event": "finished", "workload": "w", "program": "p1", "visit": 0, "outcome": "crash", "message": "", "device": "",
    "checked": False, "cut_short": False, "ended_at": 1.0,
}  # fmt: skip
REPEAT = {
    "event": "repeat", "workload": "w", "program": "p1", "visit": 0, "round_index": 7, "calls": 1, "run_seconds": 1.0,
    "reference_seconds": 1.0, "ended_at": 1.0,
}  # fmt: skip


def spoilt(event: dict[str, object], **changes: object) -> bytes:
    """A line with other values; None leaves one out."""
    return json.dumps({key: value for key, value in {**event, **changes}.items() if value is not None}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"",
        b"[" * 100_000,
        b'{"event": "no such event", "workload": "w", "program": "p1"}',
        b'{"event": "built", "workload": "w", "program": "never planned", "build_seconds": 1}',
        b'{"event": "built", "workload": "w", "program": "p1", "build_seconds": NaN}',
        b'{"event": "built", "workload": "w", "program": "p1", "build_seconds": true}',
        b'{"event": "planned", "workload": "w", "program": "p1", "trace": "[1]", "origin": "random"}',
        b'{"event": "planned", "workload": "w", "program": "p3", "trace": null, "origin": "random"}',
        b'{"event": "planned", "workload": "w", "program": "p3", "trace": "[1]", "origin": "found"}',
        b'{"event": "planned", "workload": "w", "program": "p3", "trace": "[1]"}',
        b'{"event": "exhausted", "workload": [], "origin": "random", "wanted": 1}',
        b'{"event": "exhausted", "workload": "w", "origin": "random"}',
        b'{"event": "exhausted", "workload": "w", "origin": "random", "wanted": -1}',
        spoilt(FINISHED, outcome="lost"),
        spoilt(FINISHED, message=7),
        spoilt(FINISHED, visit=-1),
        spoilt(FINISHED, device=None),
        spoilt(FINISHED, ended_at="now"),
        spoilt(REPEAT, round_index=-1),
        spoilt(REPEAT, round_index=1.5),
        spoilt(REPEAT, calls=None),
        spoilt(REPEAT, calls=2**53),
        spoilt(REPEAT, visit=True),
        spoilt(REPEAT, run_seconds=-1),
        spoilt(REPEAT, run_seconds=float("inf")),
        spoilt(REPEAT, reference_seconds=float("nan")),
        spoilt(REPEAT, ended_at=[]),
        # what the first release wrote
        b'{"event": "repeat", "workload": "w", "program": "p1", "round": 7, "run_seconds": 1, "reference_seconds": 1, '
        b'"ended_at": 1}',
    ],
)
def test_a_bad_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    path = write_all_kinds(tmp_path)
    lines = path.read_bytes().splitlines()
    content = b"\n".join([*lines[:3], line, *lines[3:]]) + b"\n"
    path.write_bytes(content)
    with pytest.raises(MalformedDataError) as refused:
        Journal(tmp_path)
    assert f"{path}:4:" in str(refused.value)
    assert path.read_bytes() == content


def test_the_same_round_twice_is_refused(tmp_path: Path) -> None:
    path = write_all_kinds(tmp_path)
    repeats = [line for line in path.read_text().splitlines() if json.loads(line)["event"] == "repeat"]
    with path.open("a") as stream:
        stream.write(repeats[0] + "\n")
    with pytest.raises(MalformedDataError, match="round 0 of visit 0 twice"):
        Journal(tmp_path)


def limit_files(size: int | None) -> None:
    """Has the system refuse this process files larger than `size`, as a full disk does; None: no more."""
    _, hard = psutil.Process().rlimit(psutil.RLIMIT_FSIZE)
    psutil.Process().rlimit(psutil.RLIMIT_FSIZE, (hard if size is None else size, hard))


def test_a_line_that_the_disk_refuses_leaves_no_half_behind(tmp_path: Path) -> None:
    path = write_all_kinds(tmp_path)
    whole = path.read_bytes()
    with Journal(tmp_path) as journal:
        one, _ = journal.planned("w")
        limit_files(len(whole) + 20)
        try:
            with pytest.raises(StorageError, match=f"cannot write {path}: "):
                journal.repeat(one, TimedRepeat(1, 1, 1, 1.0, 1.0, 1.0))
        finally:
            limit_files(None)
        assert path.read_bytes() == whole
        assert len(one.repeats) == 3, "nothing is known that is not written"
        # the disk has room again
        journal.repeat(one, TimedRepeat(1, 1, 1, 1.0, 1.0, 1.0))
    with Journal(tmp_path) as journal:
        assert len(journal.planned("w")[0].repeats) == 4
    assert not list(tmp_path.glob("*.torn-*"))


def test_a_folder_in_the_way_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).mkdir()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path / JOURNAL_FILE}: "):
        Journal(tmp_path)


def test_threads_that_write_at_the_same_time_write_whole_lines(tmp_path: Path) -> None:
    lock = threading.Lock()
    with Journal(tmp_path) as journal:
        journal.plan([Candidate("w", str(number), "[]") for number in range(4)])

        def write(number: int) -> None:
            for index in range(50):
                # as the recorder of a campaign does
                with lock:
                    journal.repeat(journal.tries["w", str(number)], TimedRepeat(0, index, 1, 1.0, 1.0, 1.0))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(write, range(4)))
    with Journal(tmp_path) as journal:
        assert [len(entry.repeats) for entry in journal.planned("w")] == [50] * 4
