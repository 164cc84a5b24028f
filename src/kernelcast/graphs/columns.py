"""Which columns of a table of features the options keep, how they are scaled, and where those of the program go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.vocabulary import Feature


@dataclass(frozen=True)
class Columns:
    """The columns of one table that are kept.

    Attributes:
        names: their names.
        kept: their places in the table.
        logged: those that are sizes or counts and stored as `log1p`.
    """

    names: tuple[str, ...]
    kept: Int64[np.ndarray, " columns"]
    logged: Bool[np.ndarray, " columns"]

    def scaled(self, values: Float64[np.ndarray, "rows features"]) -> Float32[np.ndarray, "rows columns"]:
        """The columns of natural values as they are stored."""
        kept = values[:, self.kept]
        return np.log1p(kept, out=kept, where=self.logged).astype(np.float32)


@lru_cache(maxsize=64)
def columns(features: tuple[Feature, ...], leave_out: tuple[str, ...], log_scale: bool) -> Columns:
    """The columns of the table `features` without the groups `leave_out`."""
    kept = [place for place, feature in enumerate(features) if feature.group not in leave_out]
    return Columns(
        names=tuple(features[place].name for place in kept),
        kept=np.array(kept, dtype=np.int64),
        logged=np.array([log_scale and features[place].unit != "flag" for place in kept], dtype=bool),
    )


def columns_of(features: tuple[Feature, ...], options: ViewOptions) -> Columns:
    """The columns of the table `features` that `options` keep."""
    return columns(features, tuple(options.leave_out), options.log_scale)


def place_kernel_features(
    names: tuple[str, ...],
    nodes: Float32[np.ndarray, "nodes columns"],
    kernel_columns: Columns,
    kernel_values: Float64[np.ndarray, " features"],
    static_features: str,
) -> tuple[tuple[str, ...], Float32[np.ndarray, "nodes columns"], tuple[str, ...], Float32[np.ndarray, "1 columns"]]:
    """Features of the nodes of one graph and of the program as a whole, by where `static_features` puts the latter.

    Args:
        names: columns of the nodes.
        nodes: their values, scaled.
        kernel_columns: columns of the program.
        kernel_values: its natural values.
        static_features: one of `options.STATIC_FEATURES`.

    Returns:
        Names and values of the nodes, names and values of the program; of the latter none where they are with the nodes
        or left out.
    """
    if static_features == "none":
        return names, nodes, (), np.zeros((1, 0), dtype=np.float32)
    row = kernel_columns.scaled(kernel_values[None])
    if static_features == "kernel":
        return names, nodes, kernel_columns.names, row
    joined = np.concatenate([nodes, np.broadcast_to(row, (len(nodes), row.shape[1]))], axis=1)
    return (
        (*names, *(f"kernel_{name}" for name in kernel_columns.names)),
        joined,
        (),
        np.zeros((1, 0), dtype=np.float32),
    )
