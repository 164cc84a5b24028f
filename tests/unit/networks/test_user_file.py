"""Files of users: what they may hold, and one message for each way to get it wrong."""

from pathlib import Path
from typing import Any

import pytest

from kernelcast.errors import ConfigError
from kernelcast.networks import own
from kernelcast.networks.extract import workloads_of
from kernelcast.records import Workload

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"

TE = """
from tvm import te, tirx
def doubled(size):
    values = te.placeholder((size,), name="values")
    return [values, te.compute((size,), lambda i: values[i] * 2, name="doubled")]
"""


def program(tmp_path: Path, text: str, function: str, **arguments: Any) -> Workload:
    path = tmp_path / "mine.py"
    path.write_text(text)
    (workload,), _ = workloads_of(own.own_function("mine", str(path), function, arguments))
    return workload


def refused(tmp_path: Path, text: str, function: str = "f", **arguments: Any) -> str:
    with pytest.raises(ConfigError) as error:
        program(tmp_path, text, function, **arguments)
    message = str(error.value)
    assert message.startswith("workload.mine")
    assert "mine.py" in message
    return message


def test_tensor_expression(tmp_path: Path) -> None:
    workload = program(tmp_path, TE, "doubled", size=8)
    assert (workload.name, workload.kind, workload.networks) == ("mine", "doubled", {})
    assert workload.arguments == {"size": 8, "parameters": ["float32[8]", "float32[8]"]}
    assert workload == program(tmp_path, TE, "doubled", size=8)
    assert workload.key != program(tmp_path, TE, "doubled", size=9).key


def test_tensorir_function_and_module_are_the_same_program(tmp_path: Path) -> None:
    text = TE + (
        "import tvm\n"
        "function = te.create_prim_func(doubled(8)).with_attr('tirx.noalias', True)\n"
        "def made():\n    return function\n"
        "module = tvm.IRModule({'main': function.with_attr('global_symbol', 'main')})\n"
    )
    keys = {program(tmp_path, text, name).key for name in ("function", "made", "module")}
    assert keys == {program(tmp_path, TE, "doubled", size=8).key}


def test_a_file_imports_from_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "sizes_of_mine.py").write_text("SIZE = 8\n")
    text = TE + "from sizes_of_mine import SIZE\ndef made():\n    return doubled(SIZE)\n"
    assert program(tmp_path, text, "made").arguments["parameters"][0] == "float32[8]"


def test_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"workload\.mine\.file: there is no file .*none\.py; a relative name begins"):
        workloads_of(own.own_function("mine", str(tmp_path / "none.py"), "f"))


def test_function_is_missing(tmp_path: Path) -> None:
    assert refused(tmp_path, TE, "double").endswith("mine.py has no double; it has doubled")


def test_file_raises(tmp_path: Path) -> None:
    assert "mine.py:2: it raised ZeroDivisionError: division by zero" in refused(tmp_path, "a = 1\na / 0\n")
    assert "mine.py:1: it raised SyntaxError: " in refused(tmp_path, "def f(:\n")
    assert "mine.py:1: it raised SystemExit: 3" in refused(tmp_path, "raise SystemExit(3)\n")


def test_function_raises(tmp_path: Path) -> None:
    text = "def g():\n    raise ValueError('first\\nsecond')\ndef f():\n    g()\n"
    assert refused(tmp_path, text).endswith("mine.py:2: f raised ValueError: first")
    assert "f raised TypeError: f() got an unexpected keyword argument 'size'" in refused(
        tmp_path, "def f(): pass\n", size=3
    )


@pytest.mark.parametrize(
    ("value", "what"),
    [("3", "makes a int"), ("None", "makes a NoneType"), ("[1, 2]", "makes a list of int"), ("[]", "makes a list")],
)
def test_function_returns_something_else(tmp_path: Path, value: str, what: str) -> None:
    message = refused(tmp_path, f"def f():\n    return {value}\n")
    assert f"mine.py: f {what}; it must make a list of TE tensors" in message


def test_arguments_for_what_takes_none(tmp_path: Path) -> None:
    assert "f is no function and takes none" in refused(tmp_path, "f = 3\n", size=3)


def test_tensors_that_make_no_program(tmp_path: Path) -> None:
    # an output without its input
    text = TE + "def f():\n    return doubled(8)[1:]\n"
    assert "TVM makes no program of these tensors: " in refused(tmp_path, text)


def test_dynamic_shape(tmp_path: Path) -> None:
    text = TE + "def f():\n    return doubled(tirx.Var('n', 'int64'))\n"
    assert "f cannot be measured: values has the dynamic shape [n]; give numbers" in refused(tmp_path, text)


def test_module_with_other_functions(tmp_path: Path) -> None:
    text = TE + (
        "import tvm\none = te.create_prim_func(doubled(8))\n"
        "two = tvm.IRModule({'a': one.with_attr('global_symbol', 'a'), 'main': one})\n"
        "none = tvm.IRModule({'other': one.with_attr('global_symbol', 'other')})\n"
    )
    assert "two has the functions a, main; it must have one, named main" in refused(tmp_path, text, "two")
    assert "none has the functions other; it must have one, named main" in refused(tmp_path, text, "none")


def test_relax_module(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom tvm.relax.frontend.torch import from_exported_program\n"
        "def f():\n    return from_exported_program(torch.export.export(torch.nn.ReLU(), (torch.ones(3),)))\n"
    )
    assert "main is a Function, not a TensorIR PrimFunc" in refused(tmp_path, text)


NET = """
import torch
def net(): return torch.nn.Linear(3, 4)
def wrong(): return torch.nn.Linear
def positional(): return torch.ones(2, 3)
def several(): return (torch.ones(2, 3), torch.ones(2, 3))
def named(): return {"input": torch.ones(2, 3)}
plain = torch.ones(2, 3)
def text(): return "x"
def empty(): return ()
"""


def network(tmp_path: Path, module: str, example: str) -> list[Workload]:
    path = tmp_path / "nets.py"
    path.write_text(NET)
    return workloads_of(own.own_network("mine", str(path), module, example))[0]


@pytest.mark.parametrize("example", ["positional", "named", "plain"])
def test_network_with_an_example(tmp_path: Path, example: str) -> None:
    (workload,) = network(tmp_path, "net", example)
    assert (workload.name, workload.networks) == ("mine.fused_matmul_add_1", {"mine": 1})


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        ("wrong", "plain", r"workload\.mine\.module: .*nets\.py: wrong is no torch\.nn\.Module but a type"),
        ("net", "text", r"workload\.mine\.example: .*nets\.py: text must be a tensor, or a tuple .*, not a str"),
        ("net", "empty", "empty must be a tensor, or a tuple or mapping of tensors, not a tuple"),
        ("net", "none", r"workload\.mine\.example: .*nets\.py has no none; it has net, wrong, positional"),
        ("net", "several", "torch cannot export this network with this example: "),
    ],
)
def test_network_that_cannot_work(tmp_path: Path, module: str, example: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        network(tmp_path, module, example)


def test_the_examples_work() -> None:
    requests = [
        own.own_function("sum", str(EXAMPLES / "own_workload.py"), "scaled_sum", {"rows": 4, "columns": 8}),
        own.own_function("tensorir", str(EXAMPLES / "own_workload.py"), "double_and_add"),
        own.own_network("net", str(EXAMPLES / "own_network.py"), "make_network", "make_input", {"hidden": 8}),
    ]
    kinds = [[workload.kind for workload in workloads_of(request)[0]] for request in requests]
    assert kinds == [["scaled_sum"], ["double_and_add"], ["fused_matmul_add_relu", "fused_matmul_add", "softmax"]]
