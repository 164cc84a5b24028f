"""The GCN of `conf/model/gcn.yaml` as one writes it with PyTorch Geometric: its layers, poolings and objects."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_max_pool, global_mean_pool
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from kernelcast.models.networks.gcn import GCN


class GeometricGCN(nn.Module):
    """The same mathematics as `GCN` with the readout [mean, max], and its weights.

    Args:
        ours: whose sizes and weights it takes.
        dropout: share of values left out in training.
        normalise_once: the degrees of the nodes are counted once a batch and not in every layer, which is how a careful
            user of `GCNConv` writes it.
    """

    def __init__(self, ours: GCN, dropout: float, normalise_once: bool) -> None:
        super().__init__()
        encoder, readout = ours.encoder, ours.readout
        width = encoder.project.out_features
        self.normalise_once = normalise_once
        self.shift, self.spread = ours.output_shift, ours.output_scale
        self.kind = nn.Embedding(*encoder.kind.weight.shape)
        self.node_scale, self.kernel_scale = encoder.scale, readout.scale
        self.project = nn.Linear(encoder.project.in_features, width)
        self.node_norm = nn.LayerNorm(width)
        self.convolutions = nn.ModuleList(
            GCNConv(width, width, normalize=not normalise_once) for _ in ours.convolutions
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in ours.norms)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(2 * width)
        first, last = readout.layers[0], readout.layers[3]
        self.hidden = nn.Linear(2 * width + len(readout.scale.mean), width)
        self.output = nn.Linear(width, 1)
        for mine, theirs in (
            (self.kind, encoder.kind),
            (self.project, encoder.project),
            (self.node_norm, encoder.norm),
            (self.convolutions, ours.convolutions),
            (self.norms, ours.norms),
            (self.norm, readout.norm),
            (self.hidden, first),
            (self.output, last),
        ):
            mine.load_state_dict(theirs.state_dict())

    def forward(self, batch: Any) -> Tensor:
        """One number a graph of a `torch_geometric.data.Batch`."""
        nodes = torch.cat([self.kind(batch.kind), self.node_scale(batch.x)], dim=1)
        nodes = torch.relu(self.node_norm(self.project(nodes)))
        edges: tuple[Tensor, ...] = (batch.edge_index,)
        if self.normalise_once:
            edges = gcn_norm(batch.edge_index, None, len(nodes))
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            nodes = nodes + self.dropout(torch.relu(norm(convolution(nodes, *edges))))
        pooled = torch.cat([global_mean_pool(nodes, batch.batch), global_max_pool(nodes, batch.batch)], dim=1)
        known = torch.cat([self.norm(pooled), self.kernel_scale(batch.kernel)], dim=1)
        score = self.output(self.dropout(torch.relu(self.hidden(known)))).squeeze(1)
        return self.shift + self.spread * score
