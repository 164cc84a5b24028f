import dataclasses
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.evaluation.program_page.choosing import Wanted, find_program, is_rank, peers
from kernelcast.evaluation.program_page.columns import described
from kernelcast.evaluation.program_page.comparing import Tree, aligned, line_keys, matched_nodes
from kernelcast.evaluation.program_page.content import percentiles
from kernelcast.evaluation.program_page.page import TRACE_ALONE, Shown, duration, page_data, render_page
from kernelcast.graphs import dataflow, flat_columns, kernel_features, per_store, trace_columns, vocabulary
from kernelcast.graphs.dataset.store import Description, StoredTarget, StoredWorkload
from kernelcast.graphs.machine_code import columns as machine_code
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.trace import trace_view
from kernelcast.graphs.views import AstGraphs, FlatFeatures, StatementRows
from kernelcast.graphs.vocabulary import EDGE_KIND_INDEX, NODE_FEATURES, NODE_KIND_INDEX

ALARM = "</script><script>alert('x')</script> & \"co\" <img src=x onerror=alert(1)>"
TRACE = json.dumps([[["GetSBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1", "l2"]]], []])
EXTENT = [feature.name for feature in NODE_FEATURES].index("extent")


def trees(*parents: Sequence[int], kinds: Sequence[Sequence[str]] = ()) -> AstGraphs:
    """Trees with an edge from every parent to its children; a chain of loops unless told."""
    sizes = [len(parent) for parent in parents]
    offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    names = kinds or [["function", *["loop_serial"] * (size - 1)] for size in sizes]
    features = np.zeros((offset[-1], len(NODE_FEATURES)), dtype=np.float32)
    features[:, EXTENT] = np.log1p(np.arange(offset[-1]))
    below = [[(above, node) for node, above in enumerate(parent) if above >= 0] for parent in parents]
    edges = np.array([pair for pairs in below for pair in pairs], dtype=np.int32).reshape(-1, 2)
    return AstGraphs(
        feature_names=tuple(feature.name for feature in NODE_FEATURES),
        kernel_names=("flops", "of_another_version"),
        node_offset=offset,
        edge_offset=np.concatenate([[0], np.cumsum([len(pairs) for pairs in below])]).astype(np.int64),
        node_kind=np.array([NODE_KIND_INDEX[name] for each in names for name in each], dtype=np.int16),
        node_features=features,
        node_parent=np.concatenate([np.asarray(parent, dtype=np.int32) for parent in parents]),
        node_depth=np.zeros(offset[-1], dtype=np.int16),
        edge_source=edges[:, 0],
        edge_target=edges[:, 1],
        edge_kind=np.full(len(edges), EDGE_KIND_INDEX["parent_to_child"], dtype=np.int8),
        kernel_features=np.arange(2 * len(parents), dtype=np.float32).reshape(-1, 2),
    )


def programs_with(
    views: dict[str, Any], workload: Sequence[int], names: Sequence[str] = ("matmul", "conv")
) -> Programs:
    count = len(workload)
    return Programs.in_memory(
        views,
        # the last program is the fastest
        log_seconds=-np.arange(count, dtype=np.float64) - 5,
        workload=np.asarray(workload, dtype=np.int32),
        workload_names=tuple(names),
        program_key=np.array([f"{number:x}abc{number:012x}" for number in range(count)]),
        feature_version="1",
    )


def description_of(programs: Programs, **changes: Any) -> Description:
    workloads = tuple(
        StoredWorkload(f"{number}", name, "dense", {"rows": 64}, {})
        for number, name in enumerate(programs.workload_names)
    )
    target = StoredTarget({"kind": "llvm", "num-cores": 2}, "AMD EPYC", None, "0" * 16)
    return dataclasses.replace(Description(workloads, (target,), "minimum", ViewOptions()), **changes)


@pytest.fixture
def programs() -> Programs:
    """Four programs of two workloads with every kind of view that can be made by hand."""
    flat = FlatFeatures(("flops", "mystery"), np.array([[1, 3], [2, 3], [3, 3], [9, 3]], dtype=np.float32))
    rows = StatementRows(("executions",), np.array([0, 1, 3, 3, 4]), np.arange(4, dtype=np.float32).reshape(4, 1))
    views = {
        "ast": trees([-1, 0, 1], [-1, 0, 0, 2], [-1], [-1, 0]),
        "features": flat,
        "statements": rows,
        "trace": trace_view([TRACE] * 4),
    }
    return programs_with(views, [0, 0, 0, 1])


def page_of(programs: Programs, *rows: int, **changes: Any) -> str:
    return render_page(page_data(programs, description_of(programs, **changes), [Shown(row) for row in rows]))


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found.group(1))
    return data


class Page(HTMLParser):
    """What a browser would load, which tags there are, and the text outside of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside = tag
        self.loads += [value for name, value in attributes if name in ("src", "srcset", "data") and value]
        self.loads += [value for name, value in attributes if name == "href" and value and not value.startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def test_the_header_says_what_the_program_is(programs: Programs) -> None:
    shown = Shown(1, {"random": "valid", "network": "left out (other shape)"})
    html = render_page(page_data(programs, description_of(programs), [shown]))
    text = " ".join(Page(html).text.split())
    for expected in (
        "matmul, dense: rows 64",
        "1abc000000000001",
        "kind llvm, num-cores 2",
        "AMD EPYC",
        "2.479 ms",
        "place 2 of 3 of its workload, by minimum time",
        "random: valid, network: left out (other shape)",
    ):
        assert expected in text, expected
    assert data_of(html)["programs"][0]["rank"] == 2


def test_every_value_is_the_one_that_a_model_gets(programs: Programs) -> None:
    shown = data_of(page_of(programs, 1))["programs"][0]
    view = programs.view("ast", np.array([1]))
    np.testing.assert_array_equal(np.array(shown["ast"]["values"], dtype=np.float32), view.node_features)
    assert shown["ast"]["parent"] == [-1, 0, 0, 2]
    assert shown["ast"]["edges"] == {str(EDGE_KIND_INDEX["parent_to_child"]): [[0, 1], [0, 2], [2, 3]]}
    assert shown["statements"]["values"] == [[1], [2]]
    assert shown["features"]["values"] == [2, 3]
    assert shown["kernel"]["values"] == [2, 3]
    assert shown["trace"]["primitive"] == programs.view("trace").primitive[2:4].tolist()


def test_percentiles_are_among_the_programs_of_the_workload(programs: Programs) -> None:
    shown = data_of(page_of(programs, 2))["programs"][0]
    # the fourth program has more flops, but is of another workload
    assert shown["features"] == {"values": [3, 3], "percentiles": [83.3, None], "compared": 3}
    assert shown["statements"]["percentiles"] == [33.3]


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_percentiles_lie_between_0_and_100_and_rise_with_the_value(values: list[int]) -> None:
    column = np.array(values, dtype=np.float32)[:, None]
    found = [percentiles(row, column)[0] for row in column]
    if len(set(values)) == 1:
        assert found == [None] * len(values)
    else:
        assert all(place is not None and 0 < place < 100 for place in found)
        ordered = [place for _, place in sorted(zip(values, found, strict=True))]
        assert ordered == sorted(ordered)


def test_columns_are_explained_and_unknown_ones_shown_without_a_meaning(programs: Programs) -> None:
    columns = data_of(page_of(programs, 0))["columns"]
    extent = columns["ast"][EXTENT]
    assert extent["scale"] == "log1p"
    assert extent["unit"] == "iterations"
    assert extent["meaning"]
    assert columns["kernel"][1] == {"name": "of_another_version", "unit": "", "meaning": "", "scale": ""}
    assert columns["features"][1] == {"name": "mystery", "unit": "", "meaning": "", "scale": ""}


@pytest.mark.parametrize("log_scale", [True, False])
def test_how_a_column_is_scaled_follows_its_table_and_the_options(log_scale: bool) -> None:
    options = ViewOptions(log_scale=log_scale)

    def scales(view: str, *names: str) -> list[str]:
        return [column.scale for column in described(names, view, options)]

    logged = "log1p" if log_scale else ""
    assert scales("ast", "extent", "reduction", "kernel_flops") == [logged, "", logged]
    assert scales("dataflow", "tensor_bytes", "is_float", "kernel_inner_is_reduced") == [logged, "", ""]
    assert scales("trace", "after_postproc", "inputs", "word", "decision_1") == ["", "log1p", "", "log1p"]
    assert scales("per_store", "float_mul", "is_gpu") == ["log2", ""]
    assert scales("statements", "executions") == [logged]
    assert scales("machine_code", "cycles", "heaviest_share") == ["log1p", "log1p"]
    # the rows of programs are scaled in any case
    assert scales("features", "flops", "first_is_init") == ["log1p", "log1p"]


def test_every_column_of_every_table_has_a_meaning() -> None:
    tables = {
        "ast": vocabulary.NODE_FEATURES,
        "dataflow": dataflow.NODE_FEATURES,
        "kernel": kernel_features.KERNEL_FEATURES,
        "features": flat_columns.PROGRAM_FEATURES,
        "statements": flat_columns.STATEMENT_FEATURES,
        "per_store": per_store.COLUMNS,
        "trace": trace_columns.COLUMNS,
        "machine_code": machine_code.COLUMNS,
    }
    for view, rows in tables.items():
        columns = described([row.name for row in rows], view, ViewOptions())
        assert all(column.meaning for column in columns), view
        assert not any(column.unit.startswith("log") for column in columns), view


def test_what_a_name_holds_cannot_run_in_the_page(programs: Programs) -> None:
    hostile = dataclasses.replace(programs, workload_names=(ALARM, "conv"))
    description = description_of(hostile)
    bad = dataclasses.replace(description.workloads[0], kind=ALARM, arguments={ALARM: ALARM}, networks={ALARM: 1})
    target = dataclasses.replace(description.targets[0], target={ALARM: ALARM}, host=ALARM)
    description = dataclasses.replace(description, workloads=(bad, description.workloads[1]), targets=(target,))
    shown = [Shown(row, {ALARM: ALARM}, ALARM) for row in (0, 1)]
    html = render_page(page_data(hostile, description, shown, ALARM))
    plain = Page(page_of(programs, 0, 1))
    page = Page(html)
    assert ALARM in page.text
    assert page.loads == []
    # no tag is there that a harmless name does not bring, but the names' own lines
    assert page.tags.count("script") == plain.tags.count("script") == 2
    assert "img" not in page.tags
    assert data_of(html)["programs"][0]["source"] == ALARM
    assert data_of(html)["programs"][0]["workload"] == ALARM


def test_the_page_loads_nothing(programs: Programs) -> None:
    html = page_of(programs, 0, 1)
    assert Page(html).loads == []
    assert "default-src 'none'" in html
    assert "url(" not in html[html.index("<style>") : html.index("</style>")].replace("url(#", "")
    assert '<html lang="en">' in html


def test_values_that_json_does_not_have_are_shown_as_they_are(programs: Programs) -> None:
    values = np.array([[np.nan, np.inf]] * 4, dtype=np.float32)
    broken = dataclasses.replace(programs, sources={"features": FlatFeatures(("flops", "mystery"), values)})
    assert data_of(page_of(broken, 0))["programs"][0]["features"]["values"] == ["nan", "inf"]


def test_programs_with_traces_alone_say_why(programs: Programs) -> None:
    alone = dataclasses.replace(programs, sources={"trace": programs.sources["trace"]})
    html = page_of(alone, 0)
    assert TRACE_ALONE in Page(html).text
    assert set(data_of(html)["columns"]) == {"trace"}
    assert TRACE_ALONE not in Page(page_of(programs, 0)).text


@pytest.mark.parametrize("nodes", [1, 2000])
def test_trees_of_one_and_of_many_nodes(nodes: int) -> None:
    # half of them in one deep chain, half of them siblings
    parent = [-1, *range(nodes // 2 - 1), *[0] * (nodes - nodes // 2)][:nodes]
    programs = programs_with({"ast": trees(parent, parent)}, [0, 0])
    data = data_of(page_of(programs, 0, 1))
    assert len(data["programs"][0]["ast"]["values"]) == nodes
    assert data["comparison"]["ast"] == list(range(nodes))


def test_two_programs_are_compared_view_by_view(programs: Programs) -> None:
    shown = [Shown(0, source="for i in range(4):\n  a"), Shown(1, source="for i in range(8):\n    a\n    b")]
    comparison = page_data(programs, description_of(programs), shown)["comparison"]
    # the loop with a loop in it stands for the loop with a loop in it
    assert comparison["ast"] == [0, 2, 3]
    assert comparison["trace"] == [(0, 0), (1, 1)]
    assert comparison["source"] == [(0, 0), (1, 1), (None, 2)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_alignment_keeps_order_and_loses_nothing(left: list[int], right: list[int]) -> None:
    for pairs in (
        aligned((left, right)),
        aligned((left, right), ([key // 2 for key in left], [key // 2 for key in right])),
    ):
        assert [one for one, _ in pairs if one is not None] == list(range(len(left)))
        assert [other for _, other in pairs if other is not None] == list(range(len(right)))
        assert all(pair != (None, None) for pair in pairs)
    assert aligned((left, left)) == [(number, number) for number in range(len(left))]


def test_lines_are_compared_without_indentation_numbers_and_fused_names() -> None:
    assert line_keys("  for i_0_fused in T.grid(8, 4):\n\tx") == (
        ["for i_0_fused in T.grid(8, 4):", "x"],
        ["for # in T.grid(#, #):", "x"],
    )


parents = st.lists(st.integers(0, 100), max_size=14).map(
    # depth-first: each node hangs below the one before it or below one of its ancestors
    lambda draws: _depth_first(draws)
)


def _depth_first(draws: list[int]) -> list[int]:
    parent = [-1]
    for draw in draws:
        path = [len(parent) - 1]
        while parent[path[-1]] >= 0:
            path.append(parent[path[-1]])
        parent.append(path[draw % len(path)])
    return parent


def made_tree(parent: list[int], draws: list[int]) -> Tree:
    kinds = ("loop_serial", "block", "store", "load", "loop_parallel")
    names = ["function", *(kinds[draws[node % len(draws)] % len(kinds)] for node in range(1, len(parent)))]
    return Tree(
        np.array([NODE_KIND_INDEX[name] for name in names], dtype=np.int16),
        np.array(parent, dtype=np.int32),
        np.zeros((len(parent), 1), dtype=np.float32),
    )


@settings(deadline=None)
@given(parents, parents, st.lists(st.integers(0, 9), min_size=1, max_size=14))
def test_no_node_has_two_counterparts_and_a_tree_is_its_own(
    left: list[int], right: list[int], draws: list[int]
) -> None:
    one, other = made_tree(left, draws), made_tree(right, draws[::-1])
    found = matched_nodes(one, other)
    paired = found[found >= 0]
    assert len(set(paired.tolist())) == len(paired)
    assert found[0] == 0
    for node, counterpart in enumerate(found.tolist()):
        if counterpart >= 0:
            kinds = {vocabulary.NODE_KINDS[one.kind[node]], vocabulary.NODE_KINDS[other.kind[counterpart]]}
            assert len(kinds) == 1 or all(kind.startswith("loop_") for kind in kinds)
    assert matched_nodes(one, one).tolist() == list(range(len(left)))


def test_a_loop_more_around_a_block_leaves_the_block_its_counterpart() -> None:
    def tree(*loops: tuple[str, float]) -> Tree:
        names = ["function", *(kind for kind, _ in loops), "block", "axis_spatial", "store", "load"]
        depth = len(loops)
        parent = [-1, *range(depth + 1), depth + 1, depth + 1, depth + 3]
        extents = [0.0, *(extent for _, extent in loops), 0.0, 1.0, 0.0, 0.0]
        return Tree(
            np.array([NODE_KIND_INDEX[name] for name in names], dtype=np.int16),
            np.array(parent, dtype=np.int32),
            np.array(extents, dtype=np.float32)[:, None],
        )

    left = tree(("loop_parallel", 8), ("loop_serial", 4))
    right = tree(("loop_parallel", 8), ("loop_serial", 2), ("loop_unrolled", 3), ("loop_serial", 4))
    assert matched_nodes(left, right).tolist() == [0, 1, 4, 5, 6, 7, 8]
    assert matched_nodes(right, left).tolist() == [0, 1, -1, -1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("wanted", "row"),
    [
        (Wanted(), 2),
        (Wanted(rank="slowest"), 0),
        (Wanted(rank="median"), 1),
        (Wanted(rank="3"), 0),
        (Wanted(workload="conv"), 3),
        (Wanted(program="1abc"), 1),
        (Wanted(program="3ABC000000000003"), 3),
    ],
)
def test_a_program_is_found_by_key_or_place(programs: Programs, wanted: Wanted, row: int) -> None:
    assert find_program(programs, wanted) == row


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (Wanted(program="ffff"), "3abc000000000003"),
        (Wanted(program=""), "program is empty"),
        (Wanted(program="1abc", rank="slowest"), "leave out workload_name and rank"),
        (Wanted(workload="matmull"), "near it are matmul"),
        (Wanted(workload="zzz"), "there are matmul, conv"),
        (Wanted(rank="4"), "from 1 to 3, the programs of matmul"),
        (Wanted(rank="0"), "from 1 to 3"),
        (Wanted(rank="quickest"), "fastest, slowest, median"),
    ],
)
def test_what_is_not_there_is_told_with_what_comes_near(programs: Programs, wanted: Wanted, told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        find_program(programs, wanted)


def test_a_beginning_of_several_keys_lists_them(programs: Programs) -> None:
    same = dataclasses.replace(programs, program_key=np.array(["aa1", "aa2", "ab1", "ab2"]))
    with pytest.raises(ConfigError, match="2 programs' keys begin so, aa1, aa2; give more digits"):
        find_program(same, Wanted(program="aa"))


def test_a_workload_without_programs_says_so(programs: Programs) -> None:
    with pytest.raises(ConfigError, match="conv has no programs"):
        find_program(programs.select(np.array([0, 1])), Wanted(workload="conv"))
    with pytest.raises(ConfigError, match="no programs to look at"):
        find_program(programs.select(np.array([], dtype=np.int64)), Wanted())


def test_peers_are_of_the_same_workload_and_target(programs: Programs) -> None:
    mixed = dataclasses.replace(programs, target=np.array([0, 1, 0, 0], dtype=np.int16))
    assert peers(mixed, 0).tolist() == [2, 0]
    assert peers(mixed, 1).tolist() == [1]


def test_places_and_keys_are_told_apart() -> None:
    assert all(is_rank(text) for text in ("fastest", "median", "slowest", "1", "9999"))
    assert not any(is_rank(text) for text in ("12345", "12ab", "a", ""))


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5e-6, "1.5 µs"), (2.5e-4, "250 µs"), (0.0123456, "12.35 ms"), (3.0, "3 s")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text
