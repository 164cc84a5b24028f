import errno
from pathlib import Path

import pytest

from kernelcast.errors import MalformedDataError, MissingInputError, StorageError
from kernelcast.files import atomic_directory, atomic_file, read_json, storage_errors, write_json


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(RuntimeError), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_json(path, "measure") == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_folder_leaves_the_old_one_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_directory(path) as temporary:
        (temporary / "old").touch()
    with pytest.raises(RuntimeError), atomic_directory(path) as temporary:
        (temporary / "new").touch()
        raise RuntimeError
    assert [child.name for child in path.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("old", "new"):
        with atomic_directory(path) as temporary:
            (temporary / name).touch()
    assert [child.name for child in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_nan_never_reaches_a_json_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "value.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_input_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"absent\.json.*dvc repro measure"):
        read_json(tmp_path / "absent.json", "measure")


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe"])
def test_a_broken_file_is_named_with_the_next_step(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(MalformedDataError, match=r"value\.json.*dvc repro graphs"):
        read_json(path, "graphs")


def test_a_full_disk_is_a_storage_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"value\.json.*no space left"), storage_errors(tmp_path / "value.json"):
        raise OSError(errno.ENOSPC, "No space left on device")
