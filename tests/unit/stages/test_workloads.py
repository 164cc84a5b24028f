"""Workloads of a configuration: joined where they are equal, refused where they cannot be."""

import logging
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads import matmul
from kernelcast.records import Workload
from kernelcast.stages.workloads import make_workloads, merged

MATMUL = {"_target_": "kernelcast.measurement.workloads.matmul", "rows": 4, "columns": 4, "depth": 4}
NETWORK = {"_target_": "kernelcast.networks.catalogue.dqn"}


def workload(key: str, name: str, **networks: int) -> Workload:
    return Workload(key, name, "add", {}, "{}", networks)


def made(**entries: Any) -> list[Workload]:
    return make_workloads(OmegaConf.create(entries))


def two_matmuls(name: str, rows: int) -> list[Workload]:
    return [matmul(f"{name}_{side}", side, 4, 4) for side in (rows, rows + 1)]


def test_operators_in_their_order() -> None:
    several = {"_target_": f"{__name__}.two_matmuls", "rows": 8}
    assert [entry.name for entry in made(one=MATMUL, more=several, last={**MATMUL, "rows": 5})] == [
        "one",
        "more_8",
        "more_9",
        "last",
    ]


def test_operators_that_compute_the_same_are_refused() -> None:
    with pytest.raises(ConfigError, match="workload: one and two compute the same; remove one"):
        made(one=MATMUL, two=MATMUL)


def test_shared_kernels_count_for_each_network(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, other, second = workload("a", "n.add_1", n=2), workload("b", "n.add_2", n=1), workload("a", "m.add_1", m=3)
    assert merged([first, other, second]) == [Workload("a", "n.add_1", "add", {}, "{}", {"n": 2, "m": 3}), other]
    assert "2 workloads: 1 of the 3 asked for compute the same" in caplog.text


def test_a_kernel_joins_the_operator_that_computes_the_same() -> None:
    assert merged([workload("a", "add"), workload("a", "n.add_1", n=2)]) == [workload("a", "add", n=2)]
    assert merged([workload("a", "n.add_1", n=2), workload("a", "add")]) == [workload("a", "n.add_1", n=2)]


def test_nothing_is_said_where_nothing_is_joined(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert len(merged([workload("a", "one"), workload("b", "two")])) == 2
    assert caplog.text == ""


def test_equal_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="two workloads have the name same"):
        merged([workload("a", "same"), workload("b", "same")])


def test_two_entries_of_one_network_need_names() -> None:
    message = r"one and two are both the network dqn; give one another name: workload\.two\.network=NAME"
    with pytest.raises(ConfigError, match=message):
        made(one={**NETWORK, "network": "dqn"}, two={**NETWORK, "network": "dqn", "batch": 2})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"rows": 4}, r"workload\.mine: expected a `_target_`"),
        ({"_target_": "kernelcast.networks.catalogue.dqn", "sise": 4}, r"workload\.mine: kernelcast\.networks.*sise"),
        ({"_target_": "builtins.dict"}, r"workload\.mine: builtins\.dict makes no workload but a dict"),
    ],
)
def test_entries_that_make_no_workload(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(mine=entry)


def test_a_relative_file_begins_where_the_command_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from tvm import te\n"
        "def f(size):\n"
        "    values = te.placeholder((size,), name='values')\n"
        "    return [values, te.compute((size,), lambda i: values[i] + 1, name='more')]\n"
    )
    monkeypatch.chdir(tmp_path)
    entry = {"_target_": "kernelcast.networks.own.own_function", "file": "mine.py", "function": "f"}
    (only,) = made(mine={**entry, "arguments": {"size": 6}})
    assert (only.name, only.arguments["parameters"]) == ("mine", ["float32[6]", "float32[6]"])
