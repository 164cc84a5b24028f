import pytest

from kernelcast.graphs.dataflow import OPCODE_MEANINGS, OPCODES
from kernelcast.graphs.facts import analyse
from kernelcast.graphs.kernels.computations import find_computations, read_rows
from kernelcast.graphs.kernels.opcodes import opcodes
from kernelcast.graphs.walker import walk
from kernelcast.tvm_compat import load_tvm

MOVES = {
    "copy": "B[i, j] = A[i, j]",
    "transpose": "B[i, j] = A[j, i]",
    "broadcast": "B[i, j] = A[i, 0]",
    "cast": 'D[i, j] = T.Cast("int32", A[i, j])',
    "gather": "B[i, j] = A[N[i], j]",
    "pad": "B[i, j] = T.if_then_else(i < 4, A[i, j], T.float32(0))",
    "choose": "B[i, j] = T.if_then_else(i < 4, A[i, j], A[j, i])",
    "iota": 'B[i, j] = T.Cast("float32", i + j)',
    "fill": "B[i, j] = T.float32(0)",
    "maximum": "B[i, j] = T.max(A[i, j] + A[j, i], T.float32(0))",
    "tanh": "B[i, j] = T.float32(1) + T.tanh(A[i, j])",
    "exp": "B[i, j] = T.exp(A[i, j]) / A[j, i]",
    "compare": 'D[i, j] = T.Cast("int32", A[i, j] < A[j, i])',
    "integer": "D[i, j] = D[i, j] // 3",
}

SUMS = {
    "contraction": "B[i, j] = B[i, j] + A[i, k] * A[k, j]",
    "reduce_sum": "B[i, j] = B[i, j] + A[i, k] * A[i, k]",
    "reduce_maximum": "B[i, j] = T.max(B[i, j], A[i, k])",
    "reduce_minimum": "B[i, j] = T.min(B[i, j], A[i, k])",
    "reduce_product": "B[i, j] = B[i, j] * A[i, k]",
    "reduce_other": "B[i, j] = T.Select(A[i, k] < B[i, j], A[i, k], B[i, j])",
    "convolution": "B[i, j] = B[i, j] + W[i + k, 0] * A[k, j]",
    "depthwise_convolution": "B[i, j] = B[i, j] + W[i + k, j] * A[k, j]",
}


def opcodes_of(arguments: str, body: str) -> list[str]:
    """Opcodes of a program, the parameters first."""
    head = f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main({arguments}):
"""
    table = walk(load_tvm().script.from_source(head + body))
    rows = read_rows(table)
    found = find_computations(table, rows, analyse(table).executions)
    return [OPCODES[code] for code in opcodes(table, rows, found)]


@pytest.mark.parametrize("code", MOVES)
def test_opcode_of_elementwise_statements(code: str) -> None:
    arguments = (
        'A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), D: T.Buffer((8, 8), "int32"), '
        'N: T.Buffer((8,), "int32")'
    )
    body = f"""
        for i0, j0 in T.grid(8, 8):
            with T.sblock("B"):
                i, j = T.axis.remap("SS", [i0, j0])
                {MOVES[code]}
"""
    found = opcodes_of(arguments, body)[-1]
    assert found == code


@pytest.mark.parametrize("code", SUMS)
def test_opcode_of_reductions(code: str) -> None:
    arguments = (
        'A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32"), W: T.Buffer((16, 8), "float32"), '
        'D: T.Buffer((8, 8), "float32")'
    )
    body = f"""
        for i0, j0, k0 in T.grid(8, 8, 8):
            with T.sblock("B"):
                i, j, k = T.axis.remap("SSR", [i0, j0, k0])
                with T.init():
                    B[i, j] = T.float32(0)
                {SUMS[code]}
"""
    assert opcodes_of(arguments, body)[-1] == code


def test_every_opcode_is_explained() -> None:
    assert tuple(OPCODE_MEANINGS) == OPCODES
    assert len(set(OPCODES)) == len(OPCODES)
    assert all(len(text) > 10 for text in OPCODE_MEANINGS.values())
