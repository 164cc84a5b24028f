"""Tuning: the search for a fast schedule, driven by a cost model, and what came of it."""

from kernelcast.tuning.cost_model import load_cost_model, tvm_cost_model

__all__ = ["load_cost_model", "tvm_cost_model"]
