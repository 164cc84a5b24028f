"""Which operators TVM fuses into one kernel, and networks where some of these stay apart.

TVM's rule (`FuseOps`, after Chen et al. 2018, arXiv 1802.04799, section 3) looks at the kinds of operators alone. It
puts operators that belong together into a function of Relax; `FuseTIR` makes one TensorIR function of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from kernelcast.tvm_compat import load_tvm, structural_key


@dataclass(frozen=True)
class FusionGroup:
    """Operators that TVM's rule fuses into one kernel.

    Attributes:
        fused: key of the workload that does the work of all.
        members: key of each operator's own workload, in the order of their calls. Operators that only give a tensor
            another shape are left out: on their own they are no kernel but a view.
        count: how often the network runs the group.
    """

    fused: str
    members: tuple[str, ...]
    count: int


def fused_module(module: Any, apart: Collection[str] = ()) -> Any:
    """A legalised network with its operators fused by TVM's rule.

    Args:
        module: of `kernels.legalised`.
        apart: keys of fused kernels whose operators stay kernels of their own.
    """
    tvm = load_tvm()
    transform = tvm.relax.transform
    grouped = transform.FuseOps()(module)
    if apart:
        kernels = transform.FuseTIR()(grouped)
        taken_apart = {
            variable: grouped[variable]
            for variable in _groups(grouped)
            if kernel_key(kernels[variable.name_hint]) in apart
        }
        functions = dict(grouped.functions_items())
        main = grouped.get_global_var("main")
        functions[main] = grouped[main].inline_functions(taken_apart)
        # inlining left names for what is passed to the operators
        passes = [transform.CanonicalizeBindings(), transform.DeadCodeElimination()]
        grouped = tvm.transform.Sequential(passes)(tvm.IRModule(functions, attrs=grouped.attrs))
    return transform.FuseTIR()(grouped)


def fusion_groups(module: Any) -> list[FusionGroup]:
    """The groups that TVM's rule makes of a legalised network, in the order in which the network first runs them.

    Left out are groups that hold more than calls of TensorIR functions, and such as only give a tensor another shape.
    """
    tvm = load_tvm()
    grouped = tvm.relax.transform.FuseOps()(module)
    kernels = tvm.relax.transform.FuseTIR()(grouped)
    made = {}
    for variable in _groups(grouped):
        members = list(calls_of(grouped[variable]))
        bindings = sum(len(block.bindings) for block in grouped[variable].body.blocks)
        fused = kernels[variable.name_hint]
        if len(members) == bindings and not is_view(fused):
            keys = tuple(kernel_key(grouped[name]) for name in members if not is_view(grouped[name]))
            made[variable.name_hint] = (kernel_key(fused), keys)
    counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for function in calls_of(kernels["main"]):
        if function.name_hint in made:
            counts[made[function.name_hint]] += 1
    return [FusionGroup(fused, members, count) for (fused, members), count in counts.items()]


def calls_of(function: Any) -> Iterator[Any]:
    """What a function of Relax calls by `call_tir`, call by call."""
    relax = load_tvm().relax
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir":
                yield value.args[0]


def is_view(function: Any) -> bool:
    """Whether a TensorIR function only gives a tensor another shape, so that a compiled network has a view instead."""
    return bool(load_tvm().relax.analysis.has_reshape_pattern(function))


def kernel_key(function: Any) -> str:
    """The key of the workload that a TensorIR function of a network is."""
    return structural_key(load_tvm().IRModule({"main": function.with_attr("global_symbol", "main")}))


def _groups(grouped: Any) -> Iterator[Any]:
    relax = load_tvm().relax
    for variable, function in grouped.functions_items():
        if isinstance(function, relax.Function) and function.attrs and "Primitive" in function.attrs:
            yield variable
