import json

import pytest

from kernelcast.errors import MalformedDataError
from kernelcast.exchange.configuration import configuration_of
from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Workload

INSTRUCTIONS = [
    ["GetSBlock", [], ["matmul", "main"], ["b0"]],
    ["SamplePerfectTile", ["l1"], [2, 64], ["v1", "v2"]],
    ["SampleCategorical", [], [[0, 16, 64], [0.5, 0.25, 0.25]], ["v3"]],
    ["SampleComputeLocation", ["b0"], [], ["l4"]],
    ["EnterPostproc", [], [], []],
]


def test_decisions_have_names_and_plain_values() -> None:
    found = configuration_of(json.dumps([INSTRUCTIONS, [[1, [4, 8]], [2, 1], [3, -1]]]))
    sketch = found.pop("sketch")
    assert found == {"tile_1_0": 4, "tile_1_1": 8, "choice_2": 16, "location_3": -1}
    other = configuration_of(json.dumps([INSTRUCTIONS, [[1, [32, 1]], [2, 0], [3, 2]]]))
    assert other.pop("sketch") == sketch
    assert configuration_of(json.dumps([INSTRUCTIONS[:3], []]))["sketch"] != sketch


def test_programs_of_one_sketch_differ_and_have_the_same_names(candidates: list[tuple[Workload, Candidate]]) -> None:
    found = [configuration_of(candidate.trace) for _, candidate in candidates]
    assert len({json.dumps(one, sort_keys=True) for one in found}) == len(found)
    names: dict[object, set[str]] = {}
    for one in found:
        assert len(one) > 1
        assert names.setdefault(one["sketch"], set(one)) == set(one)


@pytest.mark.parametrize(
    "trace",
    [
        "",
        "5",
        "[]",
        "[[],[],[]]",
        "[[], [[0, 1]]]",
        '[[["SampleCategorical", [], [[1]], []]], [[0, 7]]]',
        "[5, [[0, 0]]]",
    ],
)
def test_what_is_no_trace_is_refused(trace: str) -> None:
    with pytest.raises(MalformedDataError, match="not a schedule trace"):
        configuration_of(trace)
