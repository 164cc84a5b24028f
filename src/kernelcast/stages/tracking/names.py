"""What MLflow takes: names, lengths, how many points of a curve."""

from __future__ import annotations

import hashlib
import re
from typing import Any

LONGEST_NAME = 250
"""Characters of a name that MLflow takes."""

LONGEST_PARAM = 500
"""Characters of a parameter that the page shows; the resolved configuration holds it whole."""

DENSE_STEPS = 256
"""From the first on, all of which a curve keeps."""

STEPS_A_DOUBLING = 64
"""That a curve keeps of every later stretch that doubles its length: at most 1000 points for 500,000 steps."""


def allowed_name(name: str) -> str:
    """The name of a metric or parameter as MLflow takes it: `_` for what it refuses, a long one cut, with a hash."""
    # what is in the name may be a user's: of a workload, a network, a method
    parts = re.sub(r"[^/\w.\- :]", "_", name).split("/")
    # it has to be a path without empty parts and without `.` or `..`
    mapped = "/".join(part if part.strip(". ") else "_" for part in parts)
    if len(mapped) <= LONGEST_NAME:
        return mapped
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{mapped[: LONGEST_NAME - len(digest) - 1].rstrip('/')}_{digest}"


def is_kept(step: int) -> bool:
    """Whether a curve keeps the point at `step`: all at first, later ever fewer, so that a page draws it at once."""
    if step < DENSE_STEPS:
        return True
    # of the stretch [2^k, 2^(k+1))
    stride = (1 << (step.bit_length() - 1)) // STEPS_A_DOUBLING
    return step % stride == 0


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one level with dotted names."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf
        for key, child in value.items()
        for name, leaf in flatten(child, f"{prefix}.{key}" if prefix else str(key)).items()
    }
