"""Names of kernels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.networks.naming import LONGEST_KIND, Names, kind_of


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("conv2d10", "conv2d"),
        ("fused_conv2d1_add3_relu", "fused_conv2d_add_relu"),
        ("fused_tir_sigmoid_tir_tanh1", "fused_sigmoid_tanh"),
        ("max_pool2d", "max_pool2d"),
        ("broadcast_to3", "broadcast_to"),
        ("123", "123"),
        ("tir", "tir"),
    ],
)
def test_kind_has_no_numbers(function: str, kind: str) -> None:
    assert kind_of(function) == kind


def test_names_count_by_kind() -> None:
    names = Names("dqn")
    assert [names.next(kind) for kind in ("add", "relu", "add")] == ["dqn.add_1", "dqn.relu_1", "dqn.add_2"]


@given(st.lists(st.text("ab_", min_size=1, max_size=80)))
def test_names_are_distinct_and_short(kinds: list[str]) -> None:
    names = Names("n")
    made = [names.next(kind) for kind in kinds]
    assert len(set(made)) == len(made)
    assert all(len(name) <= LONGEST_KIND + 12 for name in made)
