import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import to_dense_adj

from kernelcast.errors import ConfigError
from kernelcast.graphs.vocabulary import EDGE_KINDS, NODE_FEATURES, NODE_KINDS
from kernelcast.models.batching import Batches, Limits, Moments, moments
from kernelcast.models.networks.encoder import NodeEncoder
from kernelcast.models.networks.gcn import GCN
from kernelcast.models.networks.graphsage import GraphSAGE, TypedSAGELayer
from kernelcast.models.networks.readout import Readout, pool_max, pool_mean, pool_root, pool_sum
from kernelcast.models.networks.standardised import LARGEST_DEVIATION
from kernelcast.models.networks.tree_gru import ChildSumGRU, TreeGRU
from kernelcast.models.networks.widths import ViewWidths
from kernelcast.models.view_batches import graph_batch

WIDTHS = {"ast": ViewWidths(len(NODE_KINDS), len(EDGE_KINDS), len(NODE_FEATURES), 1)}
SHARED = {
    "widths": WIDTHS,
    "view": "ast",
    "width": 12,
    "kind_width": 4,
    "readout": ["mean", "max", "root"],
    "dropout": 0.1,
}
NETWORKS = {
    "gcn": lambda **more: GCN(**{**SHARED, "layers": 2, **more}),
    "graphsage": lambda **more: GraphSAGE(**{**SHARED, "layers": 2, "message_width": 6, "l2_normalize": True, **more}),
    "treegru": lambda **more: TreeGRU(**{**SHARED, "layers": 2, **more}),
}


def trees_of(programs, rows):
    return graph_batch(programs.view("ast", rows))


def batch_of(programs, rows):
    return Batches(programs, ["ast"]).read(rows)


def recursive_states(cell, inputs, parent):
    """The states of one tree, node by node."""

    def state(node):
        children = [state(child) for child in range(len(parent)) if parent[child] == node]
        past = torch.stack(children).sum(0) if children else torch.zeros(inputs.shape[1])
        of_update, of_reset, of_candidate = cell.input(inputs[node]).chunk(3)
        gated = torch.zeros(inputs.shape[1])
        for child in children:
            gated = gated + torch.sigmoid(of_reset + cell.reset(child)) * child
        update = torch.sigmoid(of_update + cell.update(past))
        states[node] = update * past + (1 - update) * torch.tanh(of_candidate + cell.candidate(gated))
        return states[node]

    states = {}
    state(0)
    return torch.stack([states[node] for node in range(len(parent))])


@given(seed=st.integers(0, 1000), largest=st.integers(1, 25))
@settings(max_examples=25, deadline=None)
def test_tree_gru_by_levels_equals_recursion(programs_of, seed, largest):
    programs = programs_of(workloads=1, per_workload=3, nodes=(1, largest), seed=seed)
    batch = trees_of(programs, np.arange(3))
    torch.manual_seed(seed)
    cell = ChildSumGRU(5)
    inputs = torch.randn(batch.num_nodes, 5)
    offset = programs.ast.node_offset
    with torch.no_grad():
        expected = [
            recursive_states(cell, inputs[begin:end], programs.ast.node_parent[begin:end])
            for begin, end in pairwise(offset)
        ]
        torch.testing.assert_close(cell(inputs, batch), torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_gcn_layer_is_the_normalised_adjacency(programs):
    batch = trees_of(programs, np.array([0, 1]))
    network = NETWORKS["gcn"](layers=1).eval()
    nodes = torch.randn(batch.num_nodes, SHARED["width"])
    adjacency = to_dense_adj(batch.edge_index, max_num_nodes=batch.num_nodes)[0].T + torch.eye(batch.num_nodes)
    scale = adjacency.sum(1).rsqrt()
    normalised = scale[:, None] * adjacency * scale[None, :]
    layer = network.convolutions[0]
    with torch.no_grad():
        convolved = normalised @ (nodes @ layer.lin.weight.T) + layer.bias
        expected = nodes + torch.relu(network.norms[0](convolved))
        torch.testing.assert_close(network.embed(nodes, batch), expected, rtol=1e-5, atol=1e-5)


def test_sage_layer_keeps_a_mean_for_every_kind_of_edge():
    layer = TypedSAGELayer(width=2, message_width=2, edge_kinds=2, l2_normalize=False)
    with torch.no_grad():
        layer.message.weight.copy_(torch.eye(2))
        layer.message.bias.zero_()
        # the update shows the means of both kinds: one in each output
        layer.update.weight.copy_(torch.tensor([[0.0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0]]))
        layer.update.bias.zero_()
        nodes = torch.tensor([[1.0, 0], [3.0, 0], [8.0, 0], [9.0, 0]])
        edge_index = torch.tensor([[0, 1, 2], [3, 3, 3]])
        updated = layer(nodes, edge_index, torch.tensor([0, 0, 1]))
    # node 3 hears 1 and 3 by kind 0 and 8 by kind 1; nodes without edges hear nothing
    assert updated.tolist() == [[0, 0], [0, 0], [0, 0], [2, 8]]


def test_l2_normalised_vectors_have_length_one():
    layer = TypedSAGELayer(width=4, message_width=3, edge_kinds=2, l2_normalize=True)
    updated = layer(torch.randn(5, 4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1]))
    torch.testing.assert_close(updated.norm(dim=1), torch.ones(5))


def test_poolings_by_hand(programs_of):
    batch = trees_of(programs_of(workloads=1, per_workload=2, nodes=(2, 2)), np.arange(2))
    nodes = torch.tensor([[1.0], [3.0], [-5.0], [-7.0]])
    assert pool_mean(nodes, batch).tolist() == [[2.0], [-6.0]]
    assert pool_max(nodes, batch).tolist() == [[3.0], [-5.0]]
    assert pool_root(nodes, batch).tolist() == [[1.0], [-5.0]]
    torch.testing.assert_close(pool_sum(nodes, batch), torch.tensor([[0.4], [-1.2]]))


def test_encoder_standardises_and_cuts_far_values(programs):
    batch = trees_of(programs, np.arange(4))
    width = batch.node_features.shape[1]
    encoder = NodeEncoder(len(NODE_KINDS), width, 3, 4)
    deviation = torch.full((width,), 2.0)
    deviation[0] = 0.0
    encoder.scale.take(Moments(np.ones(width), deviation.numpy().astype(np.float64)))
    seen = {}
    encoder.project.register_forward_hook(lambda module, inputs, output: seen.update(joined=inputs[0]))
    encoder(batch)
    features = seen["joined"][:, 3:]
    torch.testing.assert_close(features[:, 2], (batch.node_features[:, 2] - 1) / 2)
    # a feature that never varies is only centred
    torch.testing.assert_close(features[:, 0], batch.node_features[:, 0] - 1)
    encoder.scale.take(Moments(np.zeros(width), np.full(width, 1e-4)))
    encoder(batch)
    assert seen["joined"][:, 3:].abs().max() == LARGEST_DEVIATION


@pytest.mark.parametrize("name", NETWORKS)
def test_a_program_gets_the_same_number_alone_and_in_a_batch(programs, name):
    network = NETWORKS[name]().eval()
    rows = np.array([3, 50, 8, 90, 8])
    with torch.no_grad():
        together = network(batch_of(programs, rows))
        alone = torch.cat([network(batch_of(programs, np.array([row]))) for row in rows])
    assert together.shape == (5,)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_weight_gets_a_gradient(programs, name):
    network = NETWORKS[name]().eval()
    network(batch_of(programs, np.arange(40))).square().sum().backward()
    without = [weight for weight, value in network.named_parameters() if value.grad is None or not value.grad.any()]
    assert without == []


def test_output_range_shifts_and_scales(programs):
    network = NETWORKS["gcn"]().eval()
    batch = batch_of(programs, np.arange(6))
    with torch.no_grad():
        plain = network(batch)
        network.set_output_range(-7.0, 2.0)
        torch.testing.assert_close(network(batch), plain * 2 - 7)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "change", [{"width": 0}, {"layers": 0}, {"dropout": 1.0}, {"readout": ["median"]}, {"readout": []}]
)
def test_wrong_settings_name_their_key(name, change):
    with pytest.raises(ConfigError, match=f"model.network.{next(iter(change))}="):
        NETWORKS[name](**change)


def test_readout_names_the_poolings_there_are():
    with pytest.raises(ConfigError, match="mean, sum, max, root"):
        Readout(4, 0, ["typo"], 0.0)


def test_moments_equal_those_of_all_nodes_at_once(programs, monkeypatch):
    # pieces smaller than the data
    monkeypatch.setattr("kernelcast.models.batching.PIECE", Limits(64, 100))
    found = moments(programs, [("ast", "node_features"), ("ast", "kernel_features")])
    nodes, kernels = found["ast", "node_features"], found["ast", "kernel_features"]
    features = programs.ast.node_features.astype(np.float64)
    np.testing.assert_allclose(nodes.mean, features.mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(nodes.deviation, features.std(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(kernels.mean, programs.ast.kernel_features.mean(axis=0, dtype=np.float64))


@pytest.mark.parametrize("name", NETWORKS)
def test_kernel_features_reach_the_prediction(programs, name):
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    batch = batch_of(programs, np.arange(3))
    one, other = (
        dataclasses.replace(
            batch, views={"ast": dataclasses.replace(batch.graphs("ast"), kernel_features=torch.full((3, 1), value))}
        )
        for value in (0.0, 1.0)
    )
    assert (network(one) != network(other)).all()
