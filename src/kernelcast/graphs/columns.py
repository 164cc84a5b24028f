"""Columns of views: which of them the options keep, how their values are scaled, where features of the program go."""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.vocabulary import Feature


@cache
def kept_columns(features: tuple[Feature, ...], leave_out: tuple[str, ...]) -> Int64[np.ndarray, " kept"]:
    """The columns whose group is not left out."""
    return np.array([place for place, feature in enumerate(features) if feature.group not in leave_out], dtype=np.int64)


@cache
def column_names(features: tuple[Feature, ...], leave_out: tuple[str, ...]) -> tuple[str, ...]:
    """The names of these columns."""
    return tuple(features[place].name for place in kept_columns(features, leave_out))


@cache
def logged_columns(features: tuple[Feature, ...]) -> Bool[np.ndarray, " features"]:
    """The columns that are stored as `log1p`: all but flags."""
    return np.array([feature.unit != "flag" for feature in features], dtype=bool)


def scaled(
    values: Float64[np.ndarray, "rows features"], features: tuple[Feature, ...], options: ViewOptions
) -> Float32[np.ndarray, "rows kept"]:
    """Natural values as the options want them: columns left out, sizes and counts as `log1p`.

    Args:
        values: one column a feature.
        features: all features of the table.
        options: `leave_out` and `log_scale` count.
    """
    leave_out = tuple(options.leave_out)
    kept = kept_columns(features, leave_out)
    chosen = values[:, kept] if leave_out else values
    if options.log_scale:
        chosen = np.where(logged_columns(features)[kept], np.log1p(chosen), chosen)
    return chosen.astype(np.float32)


def place_kernel_row(
    node_features: Float32[np.ndarray, "nodes features"],
    names: tuple[str, ...],
    kernel_row: Float64[np.ndarray, " kernel_features"],
    kernel_features: tuple[Feature, ...],
    options: ViewOptions,
) -> tuple[Float32[np.ndarray, "nodes columns"], tuple[str, ...], Float32[np.ndarray, "1 kernel"], tuple[str, ...]]:
    """Puts the features of the program as a whole where `static_features` wants them.

    Args:
        node_features: the nodes of one program, scaled.
        names: their columns.
        kernel_row: natural values, one a feature of `kernel_features`.
        kernel_features: what they mean.
        options: `static_features`, `leave_out` and `log_scale` count.

    Returns:
        Node features and their names, kernel features and their names.
    """
    if options.static_features == "none":
        return node_features, names, np.zeros((1, 0), dtype=np.float32), ()
    row = scaled(kernel_row[None], kernel_features, options)
    kernel_names = column_names(kernel_features, tuple(options.leave_out))
    if options.static_features == "kernel":
        return node_features, names, row, kernel_names
    repeated = np.broadcast_to(row, (len(node_features), row.shape[1]))
    # a node may have a column of the same name
    joined = tuple(f"kernel_{name}" for name in kernel_names)
    empty = np.zeros((1, 0), dtype=np.float32)
    return np.concatenate([node_features, repeated], axis=1), names + joined, empty, ()
