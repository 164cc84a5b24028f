"""Which epoch of a training was the best, and its weights."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn


class BestEpoch:
    """The best epoch so far.

    Args:
        network: its weights are those to keep until an epoch has ended.
        patience: epochs without a better one before training stops.
    """

    def __init__(self, network: nn.Module, patience: int) -> None:
        self._patience = patience
        self._latest = -1
        self.epoch = 0
        self.metric = math.nan
        self.weights = _copy_of_weights(network)

    def take(self, epoch: int, metric: float, maximize: bool, network: nn.Module) -> None:
        """Keeps the weights if this epoch is better than all before."""
        self._latest = epoch
        better = metric > self.metric if maximize else metric < self.metric
        if better or math.isnan(self.metric):
            self.epoch, self.metric, self.weights = epoch, metric, _copy_of_weights(network)

    @property
    def waited(self) -> int:
        """Epochs since the best one."""
        return max(self._latest - self.epoch, 0)

    @property
    def exhausted(self) -> bool:
        """Whether training should stop."""
        return self.waited >= self._patience

    def state(self) -> dict[str, Any]:
        """All of it, as tensors and plain values."""
        return {"latest": self._latest, "epoch": self.epoch, "metric": self.metric, "weights": self.weights}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        self._latest, self.epoch, self.metric = state["latest"], state["epoch"], state["metric"]
        self.weights = state["weights"]


def _copy_of_weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
