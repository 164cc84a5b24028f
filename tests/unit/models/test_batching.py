import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from kernelcast.graphs.views import AstGraphs, DataflowGraphs
from kernelcast.models.batching import Batches, Limits, SequentialBatches, ShuffledBatches, pack
from kernelcast.models.view_batches import graph_batch


def edge_index(graphs):
    return np.stack([graphs.edge_source, graphs.edge_target]).astype(np.int64)


def graph_lists(graphs):
    """The same graphs as PyTorch Geometric objects."""
    listed = []
    for program in range(len(graphs)):
        nodes = slice(graphs.node_offset[program], graphs.node_offset[program + 1])
        edges = slice(graphs.edge_offset[program], graphs.edge_offset[program + 1])
        listed.append(
            Data(
                x=torch.from_numpy(graphs.node_features[nodes]),
                kind=torch.from_numpy(graphs.node_kind[nodes].astype(np.int64)),
                edge_index=torch.from_numpy(edge_index(graphs)[:, edges]),
                edge_kind=torch.from_numpy(graphs.edge_kind[edges].astype(np.int64)),
                kernel=torch.from_numpy(graphs.kernel_features[program : program + 1]),
                num_nodes=int(graphs.node_offset[program + 1] - graphs.node_offset[program]),
            )
        )
    return listed


def as_dataflow(programs):
    """The same programs with their trees as dataflow graphs."""
    trees = programs.ast
    graphs = DataflowGraphs(
        feature_names=trees.feature_names,
        kernel_names=trees.kernel_names,
        node_offset=trees.node_offset,
        edge_offset=trees.edge_offset,
        node_opcode=trees.node_kind,
        node_features=trees.node_features,
        edge_source=trees.edge_source,
        edge_target=trees.edge_target,
        edge_kind=trees.edge_kind,
        kernel_features=trees.kernel_features,
    )
    return dataclasses.replace(programs, sources={**programs.sources, "dataflow": graphs})


def assert_same_as_geometric(programs, rows, view="ast"):
    batch = graph_batch(programs.view(view, rows))
    reference = Batch.from_data_list([graph_lists(programs.ast)[row] for row in rows])
    torch.testing.assert_close(batch.node_features, reference.x)
    torch.testing.assert_close(batch.node_kind, reference.kind)
    torch.testing.assert_close(batch.edge_index, reference.edge_index)
    torch.testing.assert_close(batch.edge_kind, reference.edge_kind)
    torch.testing.assert_close(batch.graph, reference.batch)
    torch.testing.assert_close(batch.root, reference.ptr[:-1])
    torch.testing.assert_close(batch.kernel_features, reference.kernel)
    assert batch.num_graphs == reference.num_graphs
    assert batch.num_nodes == reference.num_nodes


def without_edges_of(programs, node_of_program):
    """The same programs with the edges of one node of each program left out."""
    graphs = programs.ast
    program = np.repeat(np.arange(len(graphs)), np.diff(graphs.edge_offset))
    isolated = np.asarray(node_of_program)[program]
    keep = (edge_index(graphs) != isolated).all(axis=0)
    counts = np.bincount(program[keep], minlength=len(graphs))
    cut = dataclasses.replace(
        graphs,
        edge_source=graphs.edge_source[keep],
        edge_target=graphs.edge_target[keep],
        edge_kind=graphs.edge_kind[keep],
        edge_offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
    )
    return dataclasses.replace(programs, sources={**programs.sources, "ast": cut})


@given(rows=st.lists(st.integers(0, 11), min_size=1, max_size=12), seed=st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_batches_equal_those_of_pytorch_geometric(programs_of, rows, seed):
    # trees of one node among them: no edges at all
    programs = programs_of(workloads=3, per_workload=4, nodes=(1, 9), seed=seed)
    assert_same_as_geometric(programs, np.array(rows))
    assert_same_as_geometric(as_dataflow(programs), np.array(rows), "dataflow")


@pytest.mark.parametrize("position", range(4))
def test_isolated_last_node_keeps_its_place_and_that_of_the_following_graphs(programs_of, position):
    # case PYG-01
    programs = programs_of(workloads=2, per_workload=2, nodes=(4, 9))
    last = np.full(4, -1)
    last[position] = np.diff(programs.ast.node_offset)[position] - 1
    isolated = without_edges_of(programs, last)
    assert len(isolated.ast.edge_kind) < len(programs.ast.edge_kind)
    assert_same_as_geometric(isolated, np.arange(4))


def test_levels_hold_every_node_once_under_its_parent(programs):
    batch = graph_batch(programs.view("ast", np.array([5, 0, 9])))
    assert torch.equal(torch.sort(torch.cat(batch.levels)).values, torch.arange(batch.num_nodes))
    assert torch.equal(batch.levels[0], batch.root)
    assert (batch.parent[batch.root] == -1).all()
    for above, level in zip(batch.levels, batch.levels[1:], strict=False):
        # slot finds the parent in the level above
        assert torch.equal(above[batch.slot[batch.parent[level]]], batch.parent[level])
    assert torch.equal(batch.graph[batch.parent[batch.parent >= 0]], batch.graph[batch.parent >= 0])


def test_labels_and_workloads_follow_the_rows(programs):
    rows = np.array([30, 2, 2, 71])
    labels = Batches(programs, ["ast"]).read(rows).labels
    np.testing.assert_allclose(labels.log_seconds.numpy(), programs.log_seconds[rows], rtol=1e-6)
    np.testing.assert_array_equal(labels.workload.numpy(), programs.workload[rows])
    for row, best in zip(rows, labels.best_log_seconds.tolist(), strict=True):
        assert best == pytest.approx(programs.log_seconds[programs.workload == programs.workload[row]].min())


def test_pack_fills_up_to_the_limit_and_lets_a_large_part_stand_alone():
    parts = [np.array([index]) for index in range(5)]
    batches = pack(parts, [3, 4, 20, 5, 5], Limits(programs=3, elements=10))
    assert [batch.tolist() for batch in batches] == [[0, 1], [2], [3, 4]]
    assert [len(batch) for batch in pack(parts, [1] * 5, Limits(programs=2, elements=10))] == [2, 2, 1]


def test_shuffled_batches_have_every_program_once_and_bounded_nodes(programs):
    batches = ShuffledBatches(programs, ["ast"], Limits(64, 200), chunk_programs=4, seed=3)
    sizes = np.diff(programs.ast.node_offset)
    for epoch in range(3):
        plan = batches.plan(epoch)
        assert sorted(np.concatenate(plan).tolist()) == list(range(len(programs)))
        assert max(sizes[rows].sum() for rows in plan) <= 200


def test_shuffled_batches_keep_programs_of_a_workload_together(programs):
    for rows in ShuffledBatches(programs, ["ast"], Limits(10**6, 10**6), chunk_programs=4, seed=0).plan(0):
        chunks = programs.workload[rows].reshape(-1, 4)
        assert (chunks == chunks[:, :1]).all()


def test_shuffled_batches_repeat_with_the_seed_and_differ_between_epochs(programs):
    def orders(seed):
        batches = ShuffledBatches(programs, ["ast"], Limits(64, 200), chunk_programs=4, seed=seed)
        return [np.concatenate(batches.plan(epoch)).tolist() for epoch in range(2)]

    assert orders(7) == orders(7)
    assert orders(7)[0] != orders(7)[1]
    assert orders(7) != orders(8)


def test_iterating_shuffled_batches_goes_through_the_epochs(programs):
    batches = ShuffledBatches(programs, ["ast"], Limits(64, 200), chunk_programs=4, seed=0)
    for epoch in range(2):
        seen = torch.cat([batch.labels.log_seconds for batch in batches]).numpy()
        expected = programs.log_seconds[np.concatenate(batches.plan(epoch))]
        np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_sequential_batches_keep_the_order(programs):
    rows = np.arange(len(programs))[::-1]
    batches = SequentialBatches(programs, ["ast"], Limits(64, 150), rows)
    assert len(batches) == len(list(batches)) > 1
    seen = torch.cat([batch.labels.log_seconds for batch in batches]).numpy()
    np.testing.assert_allclose(seen, programs.log_seconds[rows], rtol=1e-6)


def test_no_programs_make_no_batches(programs):
    nothing = programs.select(np.zeros(0, dtype=np.int64))
    assert list(SequentialBatches(nothing, ["ast"], Limits(64, 100))) == []
    assert list(ShuffledBatches(nothing, ["ast"], Limits(64, 100), 4, 0)) == []


def test_moving_a_batch_keeps_its_values(programs):
    batch = graph_batch(programs.view("ast", np.array([1, 2])))
    moved = batch.to("cpu")
    assert torch.equal(moved.edge_index, batch.edge_index)
    assert len(moved.levels) == len(batch.levels)


def test_graphs_of_one_node_have_one_level(programs_of):
    programs = programs_of(workloads=1, per_workload=3, nodes=(1, 1))
    assert isinstance(programs.ast, AstGraphs)
    batch = graph_batch(programs.view("ast", np.arange(3)))
    assert batch.edge_index.shape == (2, 0)
    assert [len(level) for level in batch.levels] == [3]
