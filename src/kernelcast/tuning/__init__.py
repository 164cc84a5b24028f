"""Tuning: the search for a fast schedule, driven by a cost model, and what came of it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelcast.tuning.cost_model import load_cost_model, tvm_cost_model

__all__ = ["load_cost_model", "tvm_cost_model"]


def __getattr__(name: str) -> Any:
    """Imports on first use: `--help` of the scripts knows this package's choices and needs no more."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernelcast.tuning import cost_model

    return getattr(cost_model, name)
