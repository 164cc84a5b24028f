"""A network of one's own; `python scripts/measure.py workload=own` measures its kernels (conf/workload/own.yaml)."""

import torch
from torch import nn


class Classifier(nn.Module):
    """Two layers and a softmax."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(128, hidden)
        self.second = nn.Linear(hidden, 10)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Probabilities of the classes."""
        return torch.softmax(self.second(torch.relu(self.first(values))), dim=-1)


def make_network(hidden: int) -> nn.Module:
    """The network; its weights may be any."""
    return Classifier(hidden)


def make_input() -> torch.Tensor:
    """An input of the size that counts."""
    return torch.zeros(32, 128)
