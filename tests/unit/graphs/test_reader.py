import json

import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.reader import parse_program
from kernelcast.graphs.tensorir import Block, Loop, is_float, itemsize
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload
from kernelcast.tvm_compat import load_tvm, module_json, scheduled_module


def test_buffers_have_their_sizes(suite: dict[str, Workload]) -> None:
    program = parse_program(suite["softmax"].module)
    parameters = [buffer for buffer in program.buffers if not buffer.temporary]
    assert {buffer.shape for buffer in parameters} == {(32, 64)}
    assert {buffer.size_bytes for buffer in parameters} == {32 * 64 * 4}
    assert {buffer.shape for buffer in program.buffers if buffer.temporary} == {(32,), (32, 64)}


def test_loops_nest_as_in_the_program(suite: dict[str, Workload]) -> None:
    statement = parse_program(suite["matmul"].module).body[0]
    extents = []
    while isinstance(statement, Loop):
        extents.append(statement.extent)
        statement = statement.body[0]
    assert extents == [64, 32, 48]
    assert isinstance(statement, Block)
    assert [axis.kind for axis in statement.axes] == ["axis_spatial", "axis_spatial", "axis_reduce"]
    assert len(statement.init) == len(statement.body) == 1


def test_a_layout_rewrite_that_the_build_takes_out_leaves_nothing(
    suite: dict[str, Workload], candidates: dict[str, list[Candidate]]
) -> None:
    load_tvm()
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    rewritten = 0
    for candidate in candidates["matmul"]:
        module = scheduled_module(suite["matmul"], candidate.trace)
        before = parse_program(module_json(module))
        after = parse_program(module_json(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)))
        if "layout_rewrite_preproc" in module.script():
            rewritten += 1
            assert len(after.body) == len(before.body) - 1
            assert len(after.buffers) == len(before.buffers) - 1
    assert rewritten, "no schedule rewrites a layout; draw more"


@pytest.mark.parametrize(
    ("dtype", "size", "floating"),
    [
        ("float32", 4, True),
        ("float16", 2, True),
        ("bfloat16", 2, True),
        ("int8", 1, False),
        ("uint64", 8, False),
        ("bool", 1, False),
        ("int8x16", 16, False),
        ("float32x4", 16, True),
        ("handle", 8, False),
    ],
)
def test_types(dtype: str, size: int, floating: bool) -> None:
    assert itemsize(dtype) == size
    assert is_float(dtype) is floating


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"nodes": [], "root_index": 0}', '{"nodes": [1], "root_index": 0}']
)
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(MalformedDataError, match="dvc repro measure"):
        parse_program(text)


def test_a_loop_of_unknown_length_is_refused(suite: dict[str, Workload]) -> None:
    document = json.loads(suite["matmul"].module)
    loop = next(node for node in document["nodes"] if node["type"].endswith(".For"))
    loop["data"]["extent"] = loop["data"]["loop_var"]
    with pytest.raises(MalformedDataError, match="extent of a loop is no constant"):
        parse_program(json.dumps(document))
