"""Arrays and texts as one compressed text in the page: numbers as JSON would be several times as large."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

KINDS = {"<f4": "Float32", "<u4": "Uint32", "<u2": "Uint16", "|u1": "Uint8"}
"""Types of arrays that a page gets, and what the browser calls them."""

KEPT_BITS = 16
"""Bits of a float's 23 of fraction that are kept, 1 part in 100,000; a screen shows no more."""


def packed(content: Mapping[str, Any]) -> str:
    """Arrays, lists of texts and plain values as base64 of gzip, for `unpack` in `data.js`.

    The first 4 bytes are the length of a JSON text; it says where in the bytes behind it each array lies. An array
    stands in the JSON as `{"array": kind, "at": first byte, "count": numbers}`, at a multiple of 4.

    Args:
        content: values by name, nested; arrays are of a kind in `KINDS`.
    """
    parts: list[bytes] = []
    length = 0

    def placed(value: Any) -> Any:
        nonlocal length
        if isinstance(value, np.ndarray):
            data = np.ascontiguousarray(value).tobytes()
            data += bytes(-len(data) % 4)
            entry = {"array": KINDS[value.dtype.str], "at": length, "count": len(value)}
            parts.append(data)
            length += len(data)
            return entry
        if isinstance(value, Mapping):
            return {key: placed(each) for key, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [placed(each) for each in value]
        return value

    head = json.dumps(placed(content), allow_nan=False).encode()
    head += b" " * (-len(head) % 4)
    whole = len(head).to_bytes(4, "little") + head + b"".join(parts)
    # without a date, or equal data would make another page every time
    return base64.b64encode(gzip.compress(whole, compresslevel=9, mtime=0)).decode()


def short_floats(values: np.ndarray) -> np.ndarray:
    """Floats of 32 bits with `KEPT_BITS` bits of fraction, rounded."""
    single = np.asarray(values, dtype="<f4").copy()
    bits = single.view(np.uint32)
    dropped = 23 - KEPT_BITS
    finite = np.isfinite(single)
    bits[finite] = (bits[finite] + np.uint32(1 << (dropped - 1))) & np.uint32(~((1 << dropped) - 1) & 0xFFFFFFFF)
    return single


def smallest(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers from 0 on in the smallest type that holds them."""
    largest = int(numbers.max()) if len(numbers) else 0
    kind = "|u1" if largest < 1 << 8 else "<u2" if largest < 1 << 16 else "<u4"
    return np.asarray(numbers, dtype=kind)
