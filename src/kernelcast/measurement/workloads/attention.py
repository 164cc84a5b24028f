"""Attention as one kernel."""

from __future__ import annotations

import math
from typing import Any

from kernelcast.measurement.workloads.construction import constant, from_tensors, placeholder, te
from kernelcast.measurement.workloads.sizes import check_dtype, check_sizes
from kernelcast.records import Workload


def attention(
    name: str,
    heads: int,
    tokens: int,
    dim: int,
    batch: int = 1,
    key_tokens: int | None = None,
    dtype: str = "float32",
) -> Workload:
    """Scaled dot-product attention: scores, their softmax, and the mean of the values that they weigh.

    Queries, keys and values are (batch, heads, tokens, dim), the result is (batch, tokens, heads, dim), as the layer
    that follows takes it.

    Source: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1.

    Args:
        name: of the workload.
        heads: attention heads.
        tokens: queries of each head; 1 for a language model that writes one token after the other.
        dim: features of a head.
        batch: sequences at once.
        key_tokens: keys and values of each head, as many as queries if not given.
        dtype: of the data.
    """
    keys_of_head = tokens if key_tokens is None else key_tokens
    sizes = check_sizes(name, batch=batch, heads=heads, tokens=tokens, key_tokens=keys_of_head, dim=dim)
    check_dtype(name, dtype)
    query = placeholder(name, "query", (batch, heads, tokens, dim), dtype)
    key = placeholder(name, "key", (batch, heads, keys_of_head, dim), dtype)
    value = placeholder(name, "value", (batch, heads, keys_of_head, dim), dtype)
    scale = constant(1 / math.sqrt(dim), dtype)
    # not topi's products: they take their right side for a weight, whose layout may be changed for free
    products = _product(query, key, transposed=True)
    scores = te().compute(products.shape, lambda *at: products[at] * scale, name="scores")
    largest = _over_keys(te().max, scores, "largest")
    weights = te().compute(scores.shape, lambda *at: te().exp(scores[at] - largest[at[:-1]]), name="weights")
    total = _over_keys(te().sum, weights, "total")
    weighted = _product(weights, value, transposed=False)
    # Divided in the end, as fused kernels do it. Were the weights divided first, their sum would feed the reduction of
    # the second product, and MetaSchedule makes programs that add it up several times without setting it to 0 again.
    output = te().compute(
        (batch, tokens, heads, dim), lambda b, i, h, j: weighted[b, h, i, j] / total[b, h, i], name="attention"
    )
    return from_tensors(attention, name, sizes, [query, key, value, output], dtype=dtype)


def _over_keys(reduce: Any, scores: Any, name: str) -> Any:
    k = te().reduce_axis((0, scores.shape[-1]), name="k")
    return te().compute(scores.shape[:-1], lambda *at: reduce(scores[*at, k], axis=k), name=name)


def _product(left: Any, right: Any, transposed: bool) -> Any:
    k = te().reduce_axis((0, left.shape[-1]), name="k")
    columns = right.shape[2] if transposed else right.shape[3]
    return te().compute(
        (*left.shape[:-1], columns),
        lambda b, h, i, j: te().sum(
            left[b, h, i, k] * (right[b, h, j, k] if transposed else right[b, h, k, j]), axis=k
        ),
        name="product",
    )
