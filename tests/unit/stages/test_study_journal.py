"""A journal is whole whatever became of its writers, and a file that is none stays as it is."""

import json
import resource
from pathlib import Path

import optuna
import pytest
from optuna import Study

from kernelcast.errors import ConfigError, StorageError
from kernelcast.stages.studies import load_study, open_storage


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


@pytest.fixture
def study(journal: Path) -> Study:
    """With one trial that has ended and one that runs."""
    made = optuna.create_study(study_name="whole", storage=open_storage(str(journal)))
    made.tell(made.ask(), 0.5)
    made.ask()
    return made


def values(journal: Path) -> list[float | None]:
    return [trial.value for trial in load_study(str(journal), "whole").trials]


@pytest.mark.parametrize("torn", [b'{"op_code":4,"worker', b'{"op', b"\0\0\0", b'{"op_code":4' + b"x" * 200_000])
@pytest.mark.parametrize("goes_on", [True, False], ids=["same process", "next process"])
def test_half_a_line_is_replaced_by_whoever_writes_next(
    study: Study, journal: Path, torn: bytes, goes_on: bool
) -> None:
    with journal.open("ab") as stream:
        stream.write(torn)
    assert values(journal) == [0.5, None]
    writer = study if goes_on else load_study(str(journal), "whole")
    writer.tell(1, 0.25)
    assert values(journal) == [0.5, 0.25]
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_a_disk_that_is_full_in_the_middle_of_a_line_leaves_nothing_of_it(study: Study, journal: Path) -> None:
    before = journal.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            study.tell(1, 0.25)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.read_bytes() == before
    study.tell(1, 0.25)
    assert values(journal) == [0.5, 0.25]


@pytest.mark.parametrize("content", [b"hello\nworld", b'{"a": 1}', b"\xff\0\n\xfe", b"SQLite format 3\0"])
def test_a_file_that_is_no_journal_is_refused_and_stays_as_it_is(journal: Path, content: bytes) -> None:
    journal.write_bytes(content)
    with pytest.raises(StorageError, match=r"cannot open the studies in .*study\.journal: .*is no journal"):
        open_storage(str(journal))
    assert journal.read_bytes() == content


def test_what_stands_behind_a_journal_and_is_none_is_not_removed(study: Study, journal: Path) -> None:
    with journal.open("ab") as stream:
        stream.write(b"a note of mine")
    with pytest.raises(ValueError, match="is no journal"):
        study.tell(1, 0.25)
    assert journal.read_bytes().endswith(b"a note of mine")


def test_a_journal_that_is_broken_is_one_message(journal: Path) -> None:
    journal.write_text('{"op_code"\n{"op_code":0}\n')
    with pytest.raises(StorageError, match=r"cannot open the studies in .*study\.journal"):
        open_storage(str(journal))


@pytest.mark.timeout(20)
def test_a_lock_from_before_the_journal_was_moved_holds_up_nobody(study: Study, journal: Path) -> None:
    # of a process that was killed at the moment of writing
    Path(f"{journal}.lock").symlink_to(journal.with_name("elsewhere") / "study.journal")
    load_study(str(journal), "whole").tell(1, 0.25)
    assert values(journal) == [0.5, 0.25]


def test_a_lock_leads_to_its_journal_from_every_folder(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(journal.parent.parent)
    storage = open_storage(str(journal.relative_to(journal.parent.parent)))
    lock = storage._backend._append_lock
    lock.acquire()
    assert Path(f"{journal}.lock").resolve() == journal.resolve()
    lock.release()


@pytest.mark.parametrize("storage", ["", " ", "sqlite://", "sqlite:///:memory:"])
def test_a_storage_that_no_other_process_could_open_is_refused(storage: str) -> None:
    with pytest.raises(ConfigError, match=r"hydra\.sweeper\.storage.*use a file's path"):
        open_storage(storage)
