"""Names of kernels that say what they compute."""

from __future__ import annotations

from collections import Counter

LONGEST_KIND = 48
"""Characters of a kind that stay in a workload's name."""


def kind_of(function: str) -> str:
    """The operator kind from a TensorIR function's name, without numbers: `fused_conv2d_add` of `fused_conv2d1_add3`.

    TVM numbers functions that share a name, and marks some with `tir`.
    """
    words = [word.rstrip("0123456789") or word for word in function.split("_")]
    return "_".join(word for word in words if word not in ("tir", "te")) or function


class Names:
    """Readable and distinct names for the kernels of one network."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: Counter[str] = Counter()

    def next(self, kind: str) -> str:
        """The name of the next kernel of this kind: `resnet18.conv2d_3`."""
        short = kind if len(kind) <= LONGEST_KIND else kind[:LONGEST_KIND].rsplit("_", 1)[0] + "_etc"
        self._seen[short] += 1
        return f"{self._prefix}.{short}_{self._seen[short]}"
