"""The nodes of a syntax tree and their features."""

from __future__ import annotations

import numpy as np

from kernelcast.graphs.kernels.compiled import compiled
from kernelcast.graphs.kernels.loop_facts import BINDINGS, INDICES, is_loop, lane_parts
from kernelcast.graphs.kernels.work import is_float
from kernelcast.graphs.vocabulary import NODE_FEATURE_INDEX, NODE_FEATURES, NODE_KIND_INDEX

MAGNITUDE_LIMIT = 1e6
"""Constants are cut off here: the largest float32 stands for minus infinity and is no larger than any other bound."""

WIDTH = len(NODE_FEATURES)

_EXECUTIONS, _CHILDREN, _POSITION = (NODE_FEATURE_INDEX[name] for name in ("executions", "children", "position"))
_EXTENT, _ITERATIONS, _FLOPS = (NODE_FEATURE_INDEX[name] for name in ("extent", "iterations_below", "flops_below"))
_BYTES_BELOW, _REDUCTION, _LANES = (NODE_FEATURE_INDEX[name] for name in ("bytes_below", "reduction", "lanes"))
_LANE_PARTS, _RUNS = NODE_FEATURE_INDEX["lane_parts"], NODE_FEATURE_INDEX["runs"]
_REPEATED, _REMOVABLE = NODE_FEATURE_INDEX["repeated"], NODE_FEATURE_INDEX["removable"]
_UNROLL_LIMIT, _UNROLLED = NODE_FEATURE_INDEX["unroll_limit"], NODE_FEATURE_INDEX["unrolled"]
_TOP_DOWN, _BOTTOM_UP = NODE_FEATURE_INDEX["top_down"], NODE_FEATURE_INDEX["bottom_up"]
_LARGEST = NODE_FEATURE_INDEX["largest_bytes"]
_IS_FLOAT, _DTYPE_BYTES = NODE_FEATURE_INDEX["is_float"], NODE_FEATURE_INDEX["dtype_bytes"]
_MAGNITUDE, _DIMENSIONS = NODE_FEATURE_INDEX["magnitude"], NODE_FEATURE_INDEX["dimensions"]
_BUFFER_BYTES, _TEMPORARY = NODE_FEATURE_INDEX["buffer_bytes"], NODE_FEATURE_INDEX["temporary"]
_STRIDE, _CONTIGUOUS = NODE_FEATURE_INDEX["stride_1"], NODE_FEATURE_INDEX["contiguous"]
SHOWN_STRIDES = sum(name.startswith("stride_") for name in NODE_FEATURE_INDEX)
_INVARIANT, _INNER_BYTES = NODE_FEATURE_INDEX["invariant"], NODE_FEATURE_INDEX["inner_bytes"]
_TOUCHED_BYTES, _REUSE = NODE_FEATURE_INDEX["touched_bytes"], NODE_FEATURE_INDEX["reuse"]
_REUSE_TRIPS, _REUSE_DISTANCE = NODE_FEATURE_INDEX["reuse_trips"], NODE_FEATURE_INDEX["reuse_distance"]
_REUSE_BYTES = NODE_FEATURE_INDEX["reuse_bytes"]
_CONSTANT, _BLOCK, _BRANCH, _STORE = (NODE_KIND_INDEX[kind] for kind in ("constant", "block", "branch", "store"))
_FIRST_AXIS, _LAST_AXIS = NODE_KIND_INDEX["axis_spatial"], NODE_KIND_INDEX["axis_other"]
_REDUCE = NODE_KIND_INDEX["axis_reduce"]
_LOGGED = np.array([feature.unit != "flag" for feature in NODE_FEATURES])


@compiled
def number_nodes(place: np.ndarray, parent: np.ndarray, indices: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows that are nodes of the tree, and the node of each row, -1 where it is none.

    Args:
        place: where each row stands, see `loop_facts`.
        parent: the parent's row.
        indices: index expressions are nodes.
    """
    node, rows = np.full(len(place), -1, np.int32), np.empty(len(place), np.int32)
    count = 0
    for row in range(len(place)):
        if place[row] != BINDINGS and (indices or place[row] != INDICES):
            node[row] = count
            rows[count] = row
            count += 1
    return rows[:count], node


@compiled
def family(rows: np.ndarray, node: np.ndarray, parent: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parent of each node, its number of children, and how many siblings stand before it."""
    count = len(rows)
    above, children = np.full(count, -1, np.int32), np.zeros(count, np.int32)
    position = np.zeros(count, np.int32)
    for number in range(1, count):
        above[number] = node[parent[rows[number]]]
        position[number] = children[above[number]]
        children[above[number]] += 1
    return above, children, position


@compiled
def put_access(
    features: np.ndarray,
    access: int,
    executions: int,
    buffer: int,
    elements: np.ndarray,
    access_bytes: np.ndarray,
    strides: np.ndarray,
    reuse: np.ndarray,
    runs: np.ndarray,
    shape: np.ndarray,
    shape_offset: np.ndarray,
    element_bytes: np.ndarray,
    temporary: np.ndarray,
) -> None:
    """Writes what is known of an access."""
    size, dimensions = element_bytes[buffer], 0
    for place in range(shape_offset[buffer], shape_offset[buffer + 1]):
        size *= shape[place]
        dimensions += shape[place] > 1
    features[_DIMENSIONS], features[_BUFFER_BYTES] = dimensions, size
    features[_TEMPORARY] = temporary[buffer]
    for place in range(SHOWN_STRIDES):
        features[_STRIDE + place] = strides[access, place]
    features[_RUNS] = runs[access]
    features[_CONTIGUOUS], features[_INVARIANT] = strides[access, 0] == 1, strides[access, 0] == 0
    features[_INNER_BYTES], features[_TOUCHED_BYTES] = access_bytes[access, 0], access_bytes[access, 1]
    features[_REUSE] = executions / elements[access]
    features[_REUSE_TRIPS], features[_REUSE_BYTES] = reuse[access, 0], reuse[access, 1]
    features[_REUSE_DISTANCE] = reuse[access, 2]


@compiled
def node_features(
    rows: np.ndarray,
    children: np.ndarray,
    position: np.ndarray,
    kind: np.ndarray,
    extent: np.ndarray,
    dtype: np.ndarray,
    dtype_bytes: np.ndarray,
    value: np.ndarray,
    statement: np.ndarray,
    executions: np.ndarray,
    reduction: np.ndarray,
    lanes: np.ndarray,
    scalar: np.ndarray,
    unroll_limit: np.ndarray,
    unrolled: np.ndarray,
    flops: np.ndarray,
    iterations: np.ndarray,
    touched: np.ndarray,
    largest: np.ndarray,
    access: np.ndarray,
    access_buffer: np.ndarray,
    elements: np.ndarray,
    access_bytes: np.ndarray,
    strides: np.ndarray,
    reuse: np.ndarray,
    runs: np.ndarray,
    repeated: np.ndarray,
    removable: np.ndarray,
    shape: np.ndarray,
    shape_offset: np.ndarray,
    element_bytes: np.ndarray,
    temporary: np.ndarray,
    log_scale: bool,
) -> np.ndarray:
    """The features of all nodes, sizes and counts as `log1p` with `log_scale`; arguments are columns and facts."""
    result = np.zeros((len(rows), WIDTH), np.float32)
    features = np.zeros(WIDTH, np.float64)
    for number in range(len(rows)):
        row = rows[number]
        for column in range(WIDTH):
            features[column] = 0
        features[_EXECUTIONS] = executions[row]
        features[_CHILDREN], features[_POSITION] = children[number], position[number]
        if is_loop(kind[row]):
            features[_EXTENT], features[_ITERATIONS] = extent[row], iterations[row]
            features[_FLOPS], features[_BYTES_BELOW] = flops[row], touched[row, 0]
            features[_REDUCTION], features[_UNROLLED] = reduction[row], unrolled[row]
            features[_LANES] = lanes[row] if lanes[row] > 1 and not scalar[row] else 0
            features[_LANE_PARTS] = lane_parts(int(features[_LANES]))
            features[_UNROLL_LIMIT] = unroll_limit[row]
            features[_TOP_DOWN] = executions[row] * extent[row]
            features[_BOTTOM_UP] = iterations[row] // extent[row]
            for place in range(largest.shape[1]):
                features[_LARGEST + place] = largest[row, place]
        elif _FIRST_AXIS <= kind[row] <= _LAST_AXIS:
            features[_EXTENT], features[_REDUCTION] = extent[row], kind[row] == _REDUCE
        elif kind[row] == _BLOCK:
            features[_FLOPS] = flops[row]
        else:
            features[_IS_FLOAT], features[_DTYPE_BYTES] = is_float(dtype[row]), dtype_bytes[row]
            if statement[row] >= 0 and kind[row] != _BRANCH and lanes[row] > 1:
                features[_LANES], features[_LANE_PARTS] = lanes[row], lane_parts(lanes[row])
            if kind[row] == _CONSTANT:
                features[_MAGNITUDE] = min(abs(value[row]), MAGNITUDE_LIMIT)
            if access[row] >= 0:
                put_access(
                    features,
                    access[row],
                    executions[row],
                    access_buffer[access[row]],
                    elements,
                    access_bytes,
                    strides,
                    reuse,
                    runs,
                    shape,
                    shape_offset,
                    element_bytes,
                    temporary,
                )
                if kind[row] == _STORE:
                    features[_REPEATED], features[_REMOVABLE] = repeated[row], removable[row]
        for column in range(WIDTH):
            if features[column] != 0:
                natural = features[column]
                result[number, column] = np.log1p(natural) if log_scale and _LOGGED[column] else natural
    return result
