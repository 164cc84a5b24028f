"""Shapes of tensors and of tiles as a fixed number of columns.

After Kaufman et al. 2021, section 3.1: a tensor has any number of dimensions, so its extents get a fixed number of
places, and their sum and product come along.
"""

from __future__ import annotations

from kernelcast.graphs.vocabulary import Feature

KAUFMAN = "Kaufman et al. 2021 (arXiv 2008.01040), section 3.1"

SLOTS = 6
"""Dimensions of a tensor that have a place of their own, counted from the innermost one longer than 1."""

PLACES = ("innermost", "second innermost", "third innermost", "fourth innermost", "fifth innermost", "sixth innermost")


def shape_features(prefix: str, group: str, what: str) -> tuple[Feature, ...]:
    """Columns for the extents of a tensor or of a part of one: a fixed number of them, their sum and their product."""
    extents = []
    for slot, place in enumerate(PLACES):
        rest = "times all further ones" if slot == SLOTS - 1 else "0 where there are fewer"
        meaning = f"extent of the {place} dimension longer than 1 of {what}, {rest}"
        extents.append(Feature(f"{prefix}_{slot + 1}", "elements", group, meaning, KAUFMAN))
    return (
        *extents,
        Feature(f"{prefix}_sum", "elements", group, f"sum of the extents longer than 1 of {what}", KAUFMAN),
        Feature(f"{prefix}_product", "elements", group, f"number of elements of {what}", KAUFMAN),
    )
