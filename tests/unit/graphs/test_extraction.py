from typing import Any

import numpy as np
import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.extraction import EXTRACTED, extract
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.ragged import View
from kernelcast.graphs.views import VIEW_TYPES

CACHE_BYTES = 2**20


def assert_same(a: View, b: View) -> None:
    assert type(a) is type(b)
    for name, value in vars(a).items():
        np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)


def test_views_are_those_that_are_asked_for(modules: dict[str, list[Any]]) -> None:
    drawn = modules["matmul"][:2]
    made = extract(drawn, ViewOptions(views=tuple(VIEW_TYPES)), CACHE_BYTES)
    assert tuple(made) == EXTRACTED
    for name, view in made.items():
        assert type(view) is VIEW_TYPES[name]
        assert len(view) == len(drawn)
        only = extract(drawn, ViewOptions(views=(name,)), CACHE_BYTES)
        assert list(only) == [name]
        assert_same(only[name], view)
    assert extract(drawn, ViewOptions(views=("trace",)), CACHE_BYTES) == {}


def test_programs_in_another_order_give_the_same_rows_in_that_order(modules: dict[str, list[Any]]) -> None:
    drawn = [module for programs in modules.values() for module in programs[:2]]
    order = np.random.default_rng(0).permutation(len(drawn))
    made = extract(drawn, ViewOptions(), CACHE_BYTES)
    moved = extract((drawn[place] for place in order), ViewOptions(), CACHE_BYTES)
    for name, view in made.items():
        assert_same(view.select(order), moved[name])


def test_columns_do_not_depend_on_the_program(modules: dict[str, list[Any]]) -> None:
    names = {
        tuple((view, tuple(part.columns().items())) for view, part in extract(drawn[:1], ViewOptions(), 1).items())
        for drawn in modules.values()
    }
    assert len(names) == 1


def test_no_program_is_said(modules: dict[str, list[Any]]) -> None:
    with pytest.raises(MalformedDataError, match="no program"):
        extract([], ViewOptions(), CACHE_BYTES)
