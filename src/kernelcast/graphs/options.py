"""Which views are built, and what in them the papers ablate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelcast.errors import ConfigError
from kernelcast.graphs.views import VIEW_TYPES

DIRECTIONS = ("both", "forward", "backward")
STATIC_FEATURES = ("kernel", "node", "none")


@dataclass(frozen=True)
class ViewOptions:
    """What becomes of a program.

    Attributes:
        views: names of the views that are built, some of `views.VIEW_TYPES`.
        indices: index expressions of accesses are nodes of the tree.
        buffer_edges: accesses to one buffer are chained by edges of the tree.
        definition_edges: loops, block axes and the uses of axes are linked in the tree.
        direction: `forward` keeps edges from parent to child and from producer to consumer, `backward` their reverses,
            `both` all (Kaufman et al. 2021, section 5.2, ablate it).
        static_features: where tile sizes and static performance figures go: to the program as a whole (`kernel`), to
            every node (`node`), or nowhere (`none`).
        leave_out: groups of features that are left out, see `vocabulary.FEATURE_GROUPS`.
        log_scale: sizes and counts as `log1p`, not as they are; the flat row of a program always has them so.
    """

    views: Sequence[str] = ("ast", "dataflow", "features", "statements", "trace")
    indices: bool = True
    buffer_edges: bool = True
    definition_edges: bool = True
    direction: str = "both"
    static_features: str = "kernel"
    leave_out: Sequence[str] = ()
    log_scale: bool = True

    def __post_init__(self) -> None:
        from kernelcast.graphs.vocabulary import FEATURE_GROUPS

        for name in ("indices", "buffer_edges", "definition_edges", "log_scale"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"features.{name}: expected true or false, got {getattr(self, name)!r}")
        _require("direction", [self.direction], DIRECTIONS)
        _require("static_features", [self.static_features], STATIC_FEATURES)
        _require("views", self.views, tuple(VIEW_TYPES))
        _require("leave_out", self.leave_out, FEATURE_GROUPS)
        if not self.views:
            raise ConfigError(f"features.views is empty; name some of {', '.join(VIEW_TYPES)}")
        # the same choice in another order makes the same data
        object.__setattr__(self, "views", tuple(name for name in VIEW_TYPES if name in self.views))
        object.__setattr__(self, "leave_out", tuple(name for name in FEATURE_GROUPS if name in self.leave_out))


def _require(name: str, values: Sequence[object], allowed: Sequence[str]) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence) or any(value not in allowed for value in values):
        shown = values[0] if name in ("direction", "static_features") else values
        raise ConfigError(f"features.{name}: {shown!r}; choose from {', '.join(allowed)}")
