import ast
import errno
from pathlib import Path

import pytest
import yaml

from kernelcast.errors import MalformedDataError, MissingInputError, StorageError
from kernelcast.files import (
    atomic_directory,
    atomic_file,
    command_of,
    only_process,
    read_json,
    remove_leftovers,
    scratch_folder,
    storage_errors,
    write_json,
)

ROOT = Path(__file__).resolve().parents[2]


def makers() -> set[str]:
    """Whatever a call in the source names as the maker of a file that it reads."""
    readers = {"read_json", "read_text", "require", "unreadable"}
    return {
        argument.value
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in readers
        for argument in node.args[1:2]
        if isinstance(argument, ast.Constant)
    }


def test_every_next_step_is_a_command_that_there_is() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    named = makers()
    assert {"measure", "tune"} <= named
    for made_by in named:
        command, name = command_of(made_by).rsplit(" ", 1)
        assert (command == "dvc repro" and name in stages) or (command == "python" and (ROOT / name).is_file())


def test_what_a_killed_run_left_in_the_scratch_folder_is_gone(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "half").touch()
    with scratch_folder(tmp_path) as folder:
        assert folder.is_absolute()
        assert list(folder.iterdir()) == []
        (folder / "file").touch()
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe", b"\0" * 9, b"[" * 100_000, b"1" * 5000])
def test_a_broken_file_is_named_with_the_next_step(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "value.json"
    path.write_bytes(content)
    with pytest.raises(MalformedDataError, match=r"value\.json.*dvc repro graphs"):
        read_json(path, "graphs")


def test_a_folder_in_place_of_an_input_is_named_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "value.json").mkdir()
    with pytest.raises(MalformedDataError, match=r"value\.json cannot be read.*dvc repro graphs"):
        read_json(tmp_path / "value.json", "graphs")


def test_a_name_that_is_taken_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(StorageError, match=r"taken.*in the way|taken.*a file is where a folder should be"):
        write_json(tmp_path / "taken" / "value.json", 1)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"folder.*a folder is where a file should be"):
        write_json(tmp_path / "folder", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "taken"]


def test_leftovers_of_killed_writers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "value[1].json"
    write_json(path, 1)
    for name in (".value[1].json.ab", ".value1.json.ab", ".other.json.ab", "value[1].json.ab"):
        (tmp_path / name).touch()
    (tmp_path / ".value[1].json.folder").mkdir()
    # without its file a lock would be no lock
    (tmp_path / ".value[1].json.lock").touch()
    remove_leftovers(path)
    assert sorted(child.name for child in tmp_path.iterdir()) == [
        ".other.json.ab", ".value1.json.ab", ".value[1].json.lock", "value[1].json", "value[1].json.ab"
    ]  # fmt: skip


def test_a_full_disk_is_a_storage_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"value\.json.*no space left"), storage_errors(tmp_path / "value.json"):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("there", ["file", "folder"])
def test_what_is_no_earlier_output_is_never_replaced(tmp_path: Path, there: str) -> None:
    path = tmp_path / "mine"
    if there == "file":
        path.write_text("thesis")
    else:
        path.mkdir()
        (path / "thesis.tex").write_text("thesis")
    says = r"mine is there and is not what is written here \(it has no meta.json\)"
    with pytest.raises(StorageError, match=says), atomic_directory(path, "meta.json"):
        pass
    assert path.exists()
    # an empty folder, or an earlier output, is replaced
    for content in ({}, {"meta.json": "{}"}):
        other = tmp_path / f"other{len(content)}"
        other.mkdir()
        for name, text in content.items():
            (other / name).write_text(text)
        with atomic_directory(other, "meta.json") as temporary:
            (temporary / "new").write_text("")
        assert [file.name for file in other.iterdir()] == ["new"]


def test_a_folder_is_held_by_one_process_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    taken = StorageError("taken")
    with only_process(path, taken):
        remove_leftovers(path)
        with pytest.raises(StorageError, match="taken"), only_process(path, taken):
            pass
    with only_process(path, taken):
        pass
