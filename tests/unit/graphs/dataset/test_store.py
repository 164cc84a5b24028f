import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.files import atomic_directory, json_hash
from kernelcast.graphs.dataset.store import (
    Description,
    StoredTarget,
    StoredWorkload,
    check_store,
    feature_version,
    read_data_hash,
    read_description,
    read_programs,
    write_programs,
)
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Machine, Programs
from kernelcast.graphs.views import AstGraphs, FlatFeatures, StatementRows

OPTIONS = ViewOptions(views=("ast", "features"), indices=False)
MACHINE = Machine(2, 8, 1e11, 1e10, 2**20)
TARGETS = (StoredTarget({"kind": "llvm"}, "a cpu", MACHINE, "m"), StoredTarget({"kind": "cuda"}, "", None, "n"))


@pytest.fixture
def programs(hand_made: AstGraphs) -> Programs:
    views = {
        "ast": hand_made,
        "features": FlatFeatures(("a_bytes", "b_flops"), np.arange(6, dtype=np.float32).reshape(3, 2)),
    }
    return Programs.in_memory(
        views,
        log_seconds=np.array([-9.0, -8.0, -7.0]),
        workload=np.array([0, 0, 1], dtype=np.int32),
        workload_names=("one", "two"),
        target=np.array([0, 1, 0], dtype=np.int16),
        targets=tuple(target.label for target in TARGETS),
        machines=(MACHINE, None),
        program_key=np.array(["x" * 16, "y" * 16, "z" * 16]),
        feature_version=feature_version(OPTIONS, {name: view.columns() for name, view in views.items()}),
    )


@pytest.fixture
def description() -> Description:
    return Description(
        workloads=(
            StoredWorkload("k1", "one", "matmul", {"rows": 3}, {"resnet18": 2}),
            StoredWorkload("k2", "two", "softmax", {}, {}),
        ),
        targets=TARGETS,
        label="minimum",
        options=OPTIONS,
        dropped={"crash": 1},
        spread_limit=0.5,
    )


@pytest.fixture
def folder(tmp_path: Path, programs: Programs, description: Description) -> Path:
    with atomic_directory(tmp_path / "graphs") as temporary:
        write_programs(temporary, programs, description, shard_programs=2)
    return tmp_path / "graphs"


def test_round_trip(folder: Path, programs: Programs, description: Description) -> None:
    found = read_programs(folder)
    for name, value in vars(programs.ast).items():
        np.testing.assert_array_equal(getattr(found.ast, name), value, err_msg=name)
    for name in ("log_seconds", "workload", "target", "program_key"):
        np.testing.assert_array_equal(getattr(found, name), getattr(programs, name))
        assert getattr(found, name).dtype == getattr(programs, name).dtype
    np.testing.assert_array_equal(found.features.values, programs.features.values)
    for name in ("workload_names", "targets", "machines", "feature_version"):
        assert getattr(found, name) == getattr(programs, name)
    assert read_description(folder) == description
    check_store(folder)


def test_a_target_tells_its_host(description: Description) -> None:
    assert [json.loads(target.label) for target in description.targets] == [
        {"kind": "llvm", "host": "a cpu"},
        {"kind": "cuda"},
    ]


def test_opening_reads_no_shard(folder: Path) -> None:
    for path in (folder / "shards").rglob("*.npy"):
        path.unlink()
    assert len(read_programs(folder)) == 3


def test_a_batch_reads_only_its_own_shard(folder: Path, programs: Programs) -> None:
    for path in (folder / "shards" / "00001").glob("ast.*.npy"):
        path.unlink()
    view = read_programs(folder).view("ast", np.array([1, 0]))
    np.testing.assert_array_equal(view.node_kind, programs.view("ast", np.array([1, 0])).node_kind)
    with pytest.raises(MissingInputError, match="00001"):
        read_programs(folder).view("ast", np.array([2]))


def test_a_part_of_a_store_can_be_written(tmp_path: Path, folder: Path, description: Description) -> None:
    part = read_programs(folder).select(np.array([2, 1]))
    write_programs(tmp_path / "part", part, description)
    found = read_programs(tmp_path / "part")
    assert found.program_key.tolist() == ["z" * 16, "y" * 16]
    assert found.ast.edge_source.shape == (0,)
    assert found.select(np.array([0])).ast.node_kind.tolist() == [0, 1, 2]


def test_the_hash_is_of_the_content(tmp_path: Path, folder: Path, programs: Programs, description: Description) -> None:
    again = tmp_path / "again"
    assert write_programs(again, programs, description, 2) == read_data_hash(folder) == read_data_hash(again)
    programs.log_seconds[0] += 1e-9
    assert write_programs(again, programs, description, 2) != read_data_hash(folder)


def test_other_options_or_columns_are_another_feature_version() -> None:
    # case PYG-04
    columns = {"features": {"names": ("a", "b")}}
    versions = {
        feature_version(ViewOptions(), columns),
        feature_version(ViewOptions(), {"features": {"names": ("b", "a")}}),
        *(
            feature_version(dataclasses.replace(ViewOptions(), **{name: value}), columns)
            for name, value in {
                "views": ("ast",),
                "indices": False,
                "buffer_edges": False,
                "definition_edges": False,
                "direction": "forward",
                "static_features": "node",
                "leave_out": ("reuse",),
                "log_scale": False,
            }.items()
        ),
    }
    assert len(versions) == 2 + len(dataclasses.fields(ViewOptions))


def test_no_folder_names_the_stage_that_makes_it(tmp_path: Path) -> None:
    for read in (read_programs, read_description, read_data_hash, check_store):
        with pytest.raises(MissingInputError, match="dvc repro graphs"):
            read(tmp_path / "graphs")


@pytest.mark.parametrize("content", [b"", b"not an array"])
def test_a_file_that_is_no_array_is_refused(folder: Path, content: bytes) -> None:
    (folder / "workload.npy").write_bytes(content)
    with pytest.raises(MalformedDataError, match=r"workload\.npy"):
        read_programs(folder)


def test_an_array_of_another_size_is_refused(folder: Path) -> None:
    np.save(folder / "log_seconds.npy", np.zeros(2))
    with pytest.raises(MalformedDataError, match=r"log_seconds\.npy has shape \[2\], expected \[3\]"):
        read_programs(folder)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda meta: meta.update(version=0), "version 0, this kernelcast reads"),
        (lambda meta: meta.update(feature_version="old"), "feature version old"),
        (lambda meta: meta["description"]["options"].update(indices=True), "feature version"),
        (lambda meta: meta["description"]["options"].update(extra=True), "otherwise than expected"),
        (lambda meta: meta.pop("shards"), "lacks shards"),
        (lambda meta: meta["description"]["targets"][0]["machine"].pop("cores"), "otherwise than expected"),
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


def test_any_flipped_byte_of_an_array_is_found_by_a_check(folder: Path) -> None:
    for path in sorted(folder.rglob("*.npy")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(MalformedDataError, match=r"(changed|cannot be read).*dvc repro graphs"):
            check_store(folder)
        path.write_bytes(content)
    check_store(folder)


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


@pytest.mark.parametrize("order", [1, -1])
def test_the_hash_of_a_shard_does_not_depend_on_the_order_of_views(
    tmp_path: Path, programs: Programs, description: Description, order: int
) -> None:
    # names of views in JSON are sorted, those of a build are not
    views = {
        **programs.sources,
        "statements": StatementRows(("a",), np.arange(4), np.ones((3, 1), dtype=np.float32)),
        "per_store": StatementRows(("b",), np.arange(4), np.zeros((3, 1), dtype=np.float32)),
    }
    columns = {name: view.columns() for name, view in views.items()}
    whole = dataclasses.replace(
        programs, sources=dict(list(views.items())[::order]), feature_version=feature_version(OPTIONS, columns)
    )
    write_programs(tmp_path / "all", whole, description)
    check_store(tmp_path / "all")
