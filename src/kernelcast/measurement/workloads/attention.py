"""Attention as one kernel."""

from __future__ import annotations

import math
from typing import Any

from kernelcast.measurement.workloads.construction import constant, from_tensors, placeholder, te, topi
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
    query = placeholder(name, "query", (batch * heads, tokens, dim), dtype)
    key = placeholder(name, "key", (batch * heads, keys_of_head, dim), dtype)
    value = placeholder(name, "value", (batch * heads, keys_of_head, dim), dtype)
    scale = constant(1 / math.sqrt(dim), dtype)
    # not topi's products: they take their right side for a weight, whose layout may be changed for free
    products = _product(query, key, transposed=True)
    scores = te().compute(products.shape, lambda b, i, j: products[b, i, j] * scale, name="scores")
    output = _product(topi().nn.softmax(scores, axis=2), value, transposed=False)
    return from_tensors(attention, name, sizes, [query, key, value, output], dtype=dtype)


def _product(left: Any, right: Any, transposed: bool) -> Any:
    k = te().reduce_axis((0, left.shape[2]), name="k")
    columns = right.shape[1] if transposed else right.shape[2]
    return te().compute(
        (left.shape[0], left.shape[1], columns),
        lambda b, i, j: te().sum(left[b, i, k] * (right[b, j, k] if transposed else right[b, k, j]), axis=k),
        name="product",
    )
