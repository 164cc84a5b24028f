"""Tensor programs of one's own; `python scripts/measure.py workload=own` measures them (conf/workload/own.yaml)."""

from tvm import te
from tvm.script import tirx as T  # noqa: N812


def scaled_sum(rows: int, columns: int) -> list[te.Tensor]:
    """The sum of each row times its scale, as a tensor expression: inputs first, then outputs."""
    values = te.placeholder((rows, columns), name="values")
    scale = te.placeholder((rows,), name="scale")
    column = te.reduce_axis((0, columns), name="column")
    total = te.compute((rows,), lambda row: te.sum(values[row, column], axis=column), name="total")
    return [values, scale, te.compute((rows,), lambda row: total[row] * scale[row], name="scaled")]


@T.prim_func(s_tir=True)
def double_and_add(
    left: T.Buffer((128, 128), "float32"),
    right: T.Buffer((128, 128), "float32"),
    result: T.Buffer((128, 128), "float32"),
) -> None:
    """Twice the first matrix plus the second, as TensorIR."""
    for row, column in T.grid(128, 128):
        with T.sblock("result"):
            i, j = T.axis.remap("SS", [row, column])
            result[i, j] = left[i, j] * T.float32(2.0) + right[i, j]
