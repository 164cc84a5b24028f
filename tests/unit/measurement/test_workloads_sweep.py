"""Several shapes of one operator in one entry, as the configuration has it."""

from functools import partial
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.measurement.workloads import conv2d, elementwise, matmul, sweep


def test_workloads_are_named_after_their_sizes() -> None:
    made = sweep("products", matmul, [[2, 3, 4], {"depth": 4, "columns": 5, "rows": 2, "transpose_right": True}])
    assert [workload.name for workload in made] == ["products_2x3x4", "products_2x5x4_transpose_rightTrue"]
    assert [workload.key for workload in made] == [
        matmul("w", 2, 3, 4).key,
        matmul("w", 2, 5, 4, transpose_right=True).key,
    ]


def test_shapes_share_the_arguments_of_a_partial_operator() -> None:
    made = sweep("stages", partial(conv2d, kernel=[1, 3], layout="NCHW"), [[4, 5, 2, 3], [4, 6, 2, 3]])
    assert [workload.name for workload in made] == ["stages_4x5x2x3", "stages_4x6x2x3"]
    assert all(workload.arguments["kernel"] == [1, 3] for workload in made)


def test_the_configuration_makes_a_list() -> None:
    node = {
        "_target_": "kernelcast.measurement.workloads.sweep",
        "operator": {"_target_": "kernelcast.measurement.workloads.elementwise", "_partial_": True, "shape": [2, 3]},
        "shapes": [{"chain": ["relu"]}, {"chain": ["add", "relu"]}],
    }
    made = instantiate(OmegaConf.create(node), name="chains")
    assert [workload.name for workload in made] == ["chains_relu", "chains_add-relu"]
    assert made[1].key == elementwise("w", [2, 3], ["add", "relu"]).key
    assert made[1].arguments == {"shape": [2, 3], "chain": ["add", "relu"]}
    assert type(made[1].arguments["chain"]) is list


@pytest.mark.parametrize(
    ("operator", "shapes", "says"),
    [
        (matmul, [], "shapes must be a list with at least one shape"),
        (matmul, 3, "shapes must be a list with at least one shape, got 3"),
        (matmul, [[2, 3]], r"shapes has \[2, 3\] at place 1, which does not fit .*depth.*takes rows, columns, depth"),
        (matmul, [[2, 3, 4], {"row": 2}], r"shapes has {'row': 2} at place 2"),
        (matmul, [[2, 3, 4], [2, 3, 4]], r"shapes has \[2, 3, 4\] twice, again at place 2"),
        (matmul, [[2, 3, 0]], "workload mine_2x3x0: depth must be a positive integer"),
        ("matmul", [[2, 3, 4]], "operator must be a function"),
        (lambda name, size: size, [3], "operator makes no workload but a int"),
    ],
)
def test_a_mistake_is_named(operator: Any, shapes: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        sweep("mine", operator, shapes)
    assert "workload mine" in str(refused.value)
