import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelcast.errors import ConfigError
from kernelcast.graphs.dataflow import EDGE_KINDS as DATAFLOW_EDGE_KINDS
from kernelcast.graphs.dataflow import OPCODES
from kernelcast.graphs.flat_columns import STATEMENT_FEATURES
from kernelcast.graphs.per_store import COLUMN_NAMES as STORE_NAMES
from kernelcast.graphs.trace_columns import COLUMN_NAMES as TRACE_NAMES
from kernelcast.graphs.trace_columns import PRIMITIVES
from kernelcast.graphs.vocabulary import EDGE_KINDS, NODE_FEATURES, NODE_KINDS
from kernelcast.models.batching import Batches, Limits, Moments, moments
from kernelcast.models.networks.encoder import NodeEncoder
from kernelcast.models.networks.gcn import GCN
from kernelcast.models.networks.graphsage import GraphSAGE, TypedSAGELayer
from kernelcast.models.networks.mlp_segment import SegmentMLP
from kernelcast.models.networks.readout import Readout
from kernelcast.models.networks.standardised import LARGEST_DEVIATION
from kernelcast.models.networks.trace_transformer import TraceTransformer
from kernelcast.models.networks.tree_gru import ChildSumGRU, TreeGRU
from kernelcast.models.networks.widths import ViewWidths
from kernelcast.models.view_batches import graph_batch

WIDTHS = {
    "ast": ViewWidths(len(NODE_KINDS), len(EDGE_KINDS), len(NODE_FEATURES), 1),
    "dataflow": ViewWidths(len(OPCODES), len(DATAFLOW_EDGE_KINDS), len(NODE_FEATURES), 1),
    "statements": ViewWidths(0, 0, len(STATEMENT_FEATURES), 0),
    "per_store": ViewWidths(0, 0, len(STORE_NAMES), 0),
    "trace": ViewWidths(len(PRIMITIVES), 0, len(TRACE_NAMES), 0),
}
SHARED = {
    "widths": WIDTHS,
    "view": "ast",
    "width": 12,
    "kind_width": 4,
    "readout": ["mean", "max", "root"],
    "dropout": 0.1,
}
ROWS = {"widths": WIDTHS, "dropout": 0.1}
NETWORKS = {
    "gcn": lambda **more: GCN(**{**SHARED, "layers": 2, **more}),
    "graphsage": lambda **more: GraphSAGE(**{**SHARED, "layers": 2, "message_width": 6, "l2_normalize": True, **more}),
    "treegru": lambda **more: TreeGRU(**{**SHARED, "layers": 2, **more}),
    "graphsage_dataflow": lambda **more: NETWORKS["graphsage"](**{"view": "dataflow", **more}),
    "lstm": lambda **more: NETWORKS["graphsage"](**{"readout": ["lstm"], "reduction": {"layers": 2}, **more}),
    "transformer": lambda **more: NETWORKS["gcn"](
        **{"readout": ["transformer", "sum"], "reduction": {"window": 8, "heads": 2}, **more}
    ),
    "mlp_segment": lambda **more: SegmentMLP(
        **{**ROWS, "view": "statements", "width": 12, "row_layers": 2, "program_layers": 2, **more}
    ),
    "mlp_per_store": lambda **more: NETWORKS["mlp_segment"](**{"view": "per_store", **more}),
    "trace_transformer": lambda **more: TraceTransformer(
        **{
            **ROWS,
            "width": 12,
            "code_width": 3,
            "layers": 2,
            "heads": 2,
            "window": 4,
            "readout": ["mean", "sum"],
            **more,
        }
    ),
}
OVER_GRAPHS = [name for name in NETWORKS if name not in ("mlp_segment", "mlp_per_store", "trace_transformer")]
VIEWS = list(WIDTHS)


def trees_of(programs, rows):
    return graph_batch(programs.view("ast", rows))


def batch_of(programs, rows):
    return Batches(programs, VIEWS).read(rows)


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


def test_encoder_standardises_and_cuts_far_values(programs):
    batch = trees_of(programs, np.arange(4))
    width = batch.node_features.shape[1]
    encoder = NodeEncoder(len(NODE_KINDS), width, 3, 4)
    deviation = torch.full((width,), 2.0)
    deviation[0] = 0.0
    encoder.scale.take(Moments(np.ones(width), deviation.numpy().astype(np.float64)))
    encoder.kind.weight.data.zero_()
    features = encoder.scale(batch.node_features)
    torch.testing.assert_close(features[:, 2], (batch.node_features[:, 2] - 1) / 2)
    # a feature that never varies is only centred
    torch.testing.assert_close(features[:, 0], batch.node_features[:, 0] - 1)
    with torch.no_grad():
        expected = torch.relu(encoder.norm(features @ encoder.project.weight[:, 3:].T + encoder.project.bias))
        torch.testing.assert_close(encoder(batch), expected)
    encoder.scale.take(Moments(np.zeros(width), np.full(width, 1e-4)))
    assert encoder.scale(batch.node_features).abs().max() == LARGEST_DEVIATION


def test_encoder_is_one_layer_over_kind_and_features(programs):
    batch = trees_of(programs, np.arange(4))
    encoder = NodeEncoder(len(NODE_KINDS), batch.node_features.shape[1], 3, 4)
    joined = torch.cat([encoder.kind(batch.node_kind), encoder.scale(batch.node_features)], dim=1)
    expected = torch.relu(encoder.norm(encoder.project(joined)))
    torch.testing.assert_close(encoder(batch), expected, rtol=1e-5, atol=1e-5)
    weights = list(encoder.parameters())
    once = torch.autograd.grad(encoder(batch).square().sum(), weights)
    again = torch.autograd.grad(expected.square().sum(), weights)
    torch.testing.assert_close(once, again, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize(
    "change",
    [
        *({"width": 0}, {"layers": 0}, {"dropout": 1.0}, {"readout": ["median"]}, {"readout": []}, {"readout": "mean"}),
        {"view": "trace"},
    ],
)
@pytest.mark.parametrize("name", ["gcn", "graphsage", "treegru"])
def test_wrong_settings_name_their_key(name, change):
    with pytest.raises(ConfigError, match=f"model.network.{next(iter(change))}="):
        NETWORKS[name](**change)


@pytest.mark.parametrize(
    ("name", "change", "key"),
    [
        ("gcn", {"reduction": {"heads": 0}}, "reduction.heads=0"),
        ("gcn", {"reduction": {"head": 4}}, "reduction.head: .*layers, heads, window"),
        ("gcn", {"readout": ["transformer"], "reduction": {"heads": 5}}, "width=12: the 5 heads"),
        ("mlp_segment", {"view": "trace"}, "view=trace: use statements or per_store"),
        ("mlp_segment", {"row_layers": 0}, "row_layers=0"),
        ("mlp_segment", {"program_layers": 1.5}, "program_layers=1.5"),
        ("trace_transformer", {"heads": 5}, "width=12: the 5 heads"),
        ("trace_transformer", {"window": 0}, "window=0"),
        ("trace_transformer", {"readout": ["mode"]}, "readout="),
    ],
)
def test_settings_of_parts_name_their_key(name, change, key):
    with pytest.raises(ConfigError, match=f"model.network.{key}"):
        NETWORKS[name](**change)


@pytest.mark.parametrize("name", ["gcn", "mlp_segment", "trace_transformer"])
def test_a_view_that_the_data_lack_is_named(name):
    with pytest.raises(ConfigError, match=r"features\.views"):
        NETWORKS[name](widths={"features": ViewWidths(0, 0, 7, 0)})


def test_readout_names_the_poolings_there_are():
    with pytest.raises(ConfigError, match="mean, sum, max, root, lstm, transformer"):
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


@pytest.mark.parametrize("name", OVER_GRAPHS)
def test_kernel_features_reach_the_prediction(programs, name):
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    batch = batch_of(programs, np.arange(3))
    view = network.view
    one, other = (
        dataclasses.replace(
            batch, views={view: dataclasses.replace(batch.graphs(view), kernel_features=torch.full((3, 1), value))}
        )
        for value in (0.0, 1.0)
    )
    assert (network(one) != network(other)).all()
