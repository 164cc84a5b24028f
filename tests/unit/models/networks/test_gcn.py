import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_dense_adj

from kernelcast.graphs.vocabulary import EDGE_KINDS, NODE_FEATURES, NODE_KINDS
from kernelcast.models.networks.adjacency import Adjacency, EdgeRows, product_on_device, rows_on_device
from kernelcast.models.networks.gcn import GCN, GraphConvolution
from kernelcast.models.networks.widths import ViewWidths
from kernelcast.models.view_batches import graph_batch

WIDTH = 12


def network(layers):
    widths = {"ast": ViewWidths(len(NODE_KINDS), len(EDGE_KINDS), len(NODE_FEATURES), 1)}
    return GCN(
        widths=widths, view="ast", width=WIDTH, kind_width=4, layers=layers, readout=["mean", "max"], dropout=0.1
    )


def test_a_layer_is_the_normalised_adjacency(programs):
    batch = graph_batch(programs.view("ast", np.array([0, 1])))
    gcn = network(1).eval()
    nodes = torch.randn(batch.num_nodes, WIDTH)
    edges = to_dense_adj(batch.edge_index, max_num_nodes=batch.num_nodes)[0].T + torch.eye(batch.num_nodes)
    scale = edges.sum(1).rsqrt()
    normalised = scale[:, None] * edges * scale[None, :]
    layer = gcn.convolutions[0]
    with torch.no_grad():
        convolved = normalised @ (nodes @ layer.lin.weight.T) + layer.bias
        expected = nodes + torch.relu(gcn.norms[0](convolved))
        torch.testing.assert_close(gcn.embed(nodes, batch), expected, rtol=1e-5, atol=1e-5)


def test_layers_equal_those_of_pytorch_geometric_with_the_same_weights(programs):
    batch = graph_batch(programs.view("ast", np.arange(30)))
    gcn = network(3).eval()
    theirs = torch.nn.ModuleList(GCNConv(WIDTH, WIDTH) for _ in range(3))
    for convolution in gcn.convolutions:
        torch.nn.init.normal_(convolution.bias)
    theirs.load_state_dict(gcn.convolutions.state_dict())
    ours_in = torch.randn(batch.num_nodes, WIDTH, requires_grad=True)
    theirs_in = ours_in.detach().clone().requires_grad_()
    ours_out = gcn.embed(ours_in, batch)
    nodes = theirs_in
    for convolution, norm in zip(theirs, gcn.norms, strict=True):
        nodes = nodes + torch.relu(norm(convolution(nodes, batch.edge_index)))
    torch.testing.assert_close(ours_out, nodes, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(nodes)
    ours = torch.autograd.grad((ours_out * weights).sum(), [ours_in, *gcn.convolutions.parameters()])
    expected = torch.autograd.grad((nodes * weights).sum(), [theirs_in, *theirs.parameters()])
    for mine, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine.view_as(other), other, rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 1000), nodes=st.integers(1, 9), edges=st.integers(0, 30))
@settings(max_examples=40, deadline=None)
def test_any_edges_equal_pytorch_geometric(seed, nodes, edges):
    """Directed ones, several between two nodes, from a node to itself, and none."""
    torch.manual_seed(seed)
    edge_index = torch.randint(nodes, (2, edges))
    layer, theirs = GraphConvolution(3).double(), GCNConv(3, 3).double()
    torch.nn.init.normal_(layer.bias)
    theirs.load_state_dict(layer.state_dict())
    inputs = torch.randn(nodes, 3, dtype=torch.float64, requires_grad=True)
    ours = layer(inputs, Adjacency.of(edge_index, nodes))
    expected = theirs(inputs, edge_index)
    torch.testing.assert_close(ours, expected)
    weights = torch.randn_like(expected)
    mine = torch.autograd.grad((ours * weights).sum(), [inputs, layer.lin.weight, layer.bias])
    other = torch.autograd.grad((expected * weights).sum(), [inputs, theirs.lin.weight, theirs.bias])
    for gradient, exact in zip(mine, other, strict=True):
        torch.testing.assert_close(gradient, exact)


def test_what_other_devices_compute_is_the_same():
    row, column = torch.randint(20, (2, 90))
    rows = EdgeRows.of(row, column, 20)
    for mine, other in zip((rows.first, rows.nodes), rows_on_device(row, column, 20), strict=True):
        assert torch.equal(mine, other)
    scale, vectors, bias = torch.rand(20), torch.randn(20, 5), torch.randn(5)
    expected = product_on_device(rows.first, rows.nodes, scale, vectors, bias)
    torch.testing.assert_close(rows.product(scale, vectors, bias), expected)
