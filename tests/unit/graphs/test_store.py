import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.files import atomic_directory, json_hash
from kernelcast.graphs.ast import AstOptions
from kernelcast.graphs.programs import AstGraphs, FlatFeatures, Machine, Programs
from kernelcast.graphs.store import (
    Description,
    feature_version,
    read_data_hash,
    read_description,
    read_programs,
    write_programs,
)

NAMES = ("a_bytes", "b_flops")
OPTIONS = AstOptions(indices=False)


@pytest.fixture
def programs(hand_made: AstGraphs) -> Programs:
    return Programs(
        ast=hand_made,
        features=FlatFeatures(np.arange(6, dtype=np.float32).reshape(3, 2), NAMES),
        log_seconds=np.array([-9.0, -8.0, -7.0]),
        workload=np.array([0, 0, 1], dtype=np.int32),
        workload_names=("one", "two"),
        program_key=np.array(["x" * 16, "y" * 16, "z" * 16]),
        machine=Machine(2, 8, 1e11, 1e10, 2**20),
        feature_version=feature_version(OPTIONS, NAMES),
    )


@pytest.fixture
def description() -> Description:
    return Description(
        ("k1", "k2"), ("matmul", "softmax"), {"kind": "llvm"}, "minimum", OPTIONS, {"crash": 1}, "m", spread_limit=0.5
    )


@pytest.fixture
def folder(tmp_path: Path, programs: Programs, description: Description) -> Path:
    with atomic_directory(tmp_path / "graphs") as temporary:
        write_programs(temporary, programs, description)
    return tmp_path / "graphs"


def test_round_trip(folder: Path, programs: Programs, description: Description) -> None:
    found = read_programs(folder)
    for name, value in vars(programs.ast).items():
        stored = getattr(found.ast, name)
        np.testing.assert_array_equal(stored, value, err_msg=name)
        assert stored.dtype == value.dtype
    for name in ("log_seconds", "workload", "program_key"):
        np.testing.assert_array_equal(getattr(found, name), getattr(programs, name))
    np.testing.assert_array_equal(found.features.values, programs.features.values)
    assert found.features.names == NAMES
    assert (found.workload_names, found.machine, found.feature_version) == (
        programs.workload_names,
        programs.machine,
        programs.feature_version,
    )
    assert read_description(folder) == description


def test_an_unknown_machine_stays_unknown(tmp_path: Path, programs: Programs, description: Description) -> None:
    write_programs(tmp_path, dataclasses.replace(programs, machine=None), description)
    assert read_programs(tmp_path).machine is None


def test_arrays_are_mapped_not_read(folder: Path) -> None:
    assert isinstance(read_programs(folder).ast.node_features, np.memmap)


def test_programs_without_any_edge_can_be_stored(tmp_path: Path, programs: Programs, description: Description) -> None:
    write_programs(tmp_path, programs.select(np.array([1, 2])), description)
    found = read_programs(tmp_path)
    assert found.ast.edge_index.shape == (2, 0)
    assert found.select(np.array([1])).ast.node_kind.tolist() == [0, 1, 2]


def test_the_hash_is_of_the_content(tmp_path: Path, folder: Path, programs: Programs, description: Description) -> None:
    again = tmp_path / "again"
    again.mkdir()
    assert write_programs(again, programs, description) == read_data_hash(folder) == read_data_hash(again)
    programs.log_seconds[0] += 1e-9
    assert write_programs(again, programs, description) != read_data_hash(folder)


def test_other_options_or_columns_are_another_feature_version() -> None:
    versions = {
        feature_version(AstOptions(), NAMES),
        feature_version(AstOptions(indices=False), NAMES),
        feature_version(AstOptions(buffer_edges=False), NAMES),
        feature_version(AstOptions(), NAMES[::-1]),
    }
    assert len(versions) == 4


def test_no_folder_names_the_stage_that_makes_it(tmp_path: Path) -> None:
    for read in (read_programs, read_description, read_data_hash):
        with pytest.raises(MissingInputError, match="dvc repro graphs"):
            read(tmp_path / "graphs")


def test_a_torn_array_is_refused(folder: Path) -> None:
    path = folder / "node_features.npy"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(MalformedDataError, match=r"node_features\.npy.*dvc repro graphs"):
        read_programs(folder)


@pytest.mark.parametrize("content", [b"", b"not an array"])
def test_a_file_that_is_no_array_is_refused(folder: Path, content: bytes) -> None:
    (folder / "workload.npy").write_bytes(content)
    with pytest.raises(MalformedDataError, match=r"workload\.npy"):
        read_programs(folder)


def test_a_missing_array_is_named(folder: Path) -> None:
    (folder / "edge_kind.npy").unlink()
    with pytest.raises(MissingInputError, match=r"edge_kind\.npy"):
        read_programs(folder)


def test_an_array_of_another_size_is_refused(folder: Path) -> None:
    np.save(folder / "log_seconds.npy", np.zeros(2))
    with pytest.raises(MalformedDataError, match=r"log_seconds\.npy has shape \[2\], expected \[3\]"):
        read_programs(folder)


def test_arrays_that_contradict_each_other_are_refused(folder: Path) -> None:
    np.save(folder / "node_offset.npy", np.array([0, 4, 5, 7]))
    with pytest.raises(MalformedDataError, match="do not belong together"):
        read_programs(folder)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda meta: meta.update(version=0), "version 0, this kernelcast reads 1"),
        (lambda meta: meta.update(feature_version="old"), "feature version old"),
        (lambda meta: meta["options"].update(indices=True), "feature version"),
        (lambda meta: meta["options"].update(extra=True), "options"),
        (lambda meta: meta.pop("machine"), "lacks machine"),
        (lambda meta: meta["machine"].pop("cores"), "machine"),
    ],
)
def test_other_descriptions_are_refused(folder: Path, edit: Callable[[dict], object], says: str) -> None:
    path = folder / "meta.json"
    meta = json.loads(path.read_text())
    del meta["hash"]
    edit(meta)
    path.write_text(json.dumps({**meta, "hash": json_hash(meta)}))
    with pytest.raises(MalformedDataError, match=f"{says}.*dvc repro graphs"):
        read_programs(folder)


def test_any_edit_of_the_description_is_refused(folder: Path) -> None:
    path = folder / "meta.json"
    written = json.loads(path.read_text())
    for name in written:
        for value in (None, 5, -1, True, "x", [], {}):
            path.write_text(json.dumps({**written, name: value}))
            for read in (read_programs, read_description, read_data_hash):
                with pytest.raises(MalformedDataError, match=r"meta\.json.*dvc repro"):
                    read(folder)


def test_any_flipped_byte_of_an_array_is_refused(folder: Path) -> None:
    for path in sorted(folder.glob("*.npy")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(MalformedDataError, match=r"do not belong together, or were changed.*dvc repro graphs"):
            read_programs(folder)
        path.write_bytes(content)
    assert len(read_programs(folder)) == 3


def test_a_failure_while_writing_leaves_the_old_folder(
    folder: Path, programs: Programs, description: Description
) -> None:
    before = read_data_hash(folder)

    def write_half() -> None:
        with atomic_directory(folder) as temporary:
            write_programs(temporary, programs.select(np.array([0])), description)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert read_data_hash(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == ["graphs"]
