"""Targets: what programs are compiled for, made complete and compared with what this machine has."""

from __future__ import annotations

import importlib
import json
import os
import platform
from typing import TYPE_CHECKING, Any

from kernelcast.errors import ConfigError
from kernelcast.tvm_compat.cuda import choose_compiler, describe_gpu, why_not_here
from kernelcast.tvm_compat.loading import INTRINSICS_OF_MACHINE, load_intrinsics, load_tvm

if TYPE_CHECKING:
    from tvm.target import Target

CUDA_LIMITS = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
"""What every GPU since 2012 (compute capability 3.0) offers without opting in to more."""

DEFAULT_ARCH = "sm_80"
"""What building is checked with where neither the configuration nor a GPU says."""

INTRINSICS_OF_KIND = {"cuda": "cuda", "rocm": "rocm", "metal": "metal", "hexagon": "hexagon"}

NEVER_GENERATED = frozenset(
    """
    64bit cldemote clflushopt clwb clzero enqcmd fsgsbase fxsr hreset invpcid kl lwp movdir64b movdiri mwaitx
    pconfig pku prefetchi prfchw ptwrite rdpid rdpru rdrnd rdseed rtm serialize sgx shstk tsxldtrk uintr usermsr
    waitpkg wbnoinvd widekl xsave xsavec xsaveopt xsaves
    """.split()  # noqa: SIM905, forty lines otherwise
)
"""Instruction sets of LLVM's that no program uses without asking: a virtual machine that hides them does no harm."""


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_target(config: Any) -> dict[str, Any]:
    """Completes a target from the configuration, so that TVM neither refuses it nor fails late.

    For the kind `llvm`, a missing `mcpu` becomes this host's processor, a missing `num-cores` the cores that this
    process may use. For the kind `cuda`, a missing `arch` and missing limits become those of this machine's GPU; where
    `arch` is given, no GPU is needed.

    Args:
        config: a dict such as `{"kind": "llvm", "mcpu": None, "num-cores": None}`; None asks for the default.

    Raises:
        ConfigError: not a dict, an unknown kind, key or processor, a number of cores that is none, or no GPU to ask.
    """
    if isinstance(config, str) or (isinstance(config, dict) and " " in str(config.get("kind", ""))):
        text = config if isinstance(config, str) else str(config["kind"])
        raise ConfigError(
            f"target: the one-line form {text!r} is no longer understood by TVM; write {json.dumps(_dict_form(text))}"
        )
    if not isinstance(config, dict) or not config.get("kind"):
        raise ConfigError(
            f'target: expected a dict with a `kind`, for example {{"kind": "llvm", "num-cores": 4}}, got {config!r}'
        )
    target = {key: value for key, value in config.items() if value is not None}
    if target["kind"] == "llvm":
        if "num-cores" not in target and not is_of_this_machine(target):
            raise ConfigError(
                f"target.num-cores: the threads of programs for {target['mtriple']} are not this machine's to tell; "
                "set it to the cores of the device"
            )
        cores = target.setdefault("num-cores", available_cores())
        if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
            raise ConfigError(
                f"target.num-cores must be a positive integer, got {cores!r}; write "
                '{"kind": "llvm", "num-cores": 4}, or null for all cores that this process may use'
            )
        _fill_processor(target)
    if target["kind"] == "cuda":
        _fill_gpu(target)
    make_target(target)
    return target


def check_runs_here(target: dict[str, Any]) -> None:
    """Makes sure that programs of a complete target can run, and be timed, on this machine.

    Raises:
        ConfigError: another kind or architecture, instructions that this processor does not have, more threads than
            there are cores, or, for `cuda`, no GPU that runs them; then it says whether they can be built.
    """
    if target["kind"] == "cuda":
        reason = why_not_here(target, make_target(target))
        if reason:
            raise ConfigError(reason)
        return
    if target["kind"] != "llvm":
        raise ConfigError(
            f"target.kind: measuring runs programs on this machine's processor or GPU, so it must be llvm or cuda, "
            f"got {target['kind']!r}"
        )
    if not is_of_this_machine(target):
        raise ConfigError(
            f"target.mtriple: measuring runs programs on this machine, which is {platform.machine()}, got "
            f"{target['mtriple']!r}; leave it out, or measure on devices by runner=rpc"
        )
    missing = missing_instructions(target, host_instructions())
    if missing:
        raise ConfigError(
            f"target.mcpu: programs for {target.get('mcpu', 'this target')} use instructions that this machine's "
            f"processor does not have ({', '.join(missing)}) and would be killed; write null for this machine's"
        )
    if target["num-cores"] > available_cores():
        raise ConfigError(
            f"target.num-cores: this process may use {available_cores()}, got {target['num-cores']}: threads that wait "
            "for each other's core cannot be timed; write null for all cores"
        )


def is_of_this_machine(target: dict[str, Any]) -> bool:
    """Whether programs of an `llvm` target are for this machine's architecture."""
    machine, architecture = platform.machine().lower(), _architecture(target)
    return INTRINSICS_OF_MACHINE.get(architecture, architecture) == INTRINSICS_OF_MACHINE.get(machine, machine)


def host_instructions() -> dict[str, bool]:
    """LLVM's instruction sets, and whether this machine's processor offers each one to this process."""
    load_tvm()
    ask = importlib.import_module("tvm_ffi").get_global_func("tvm.codegen.llvm.GetHostCPUFeatures", allow_missing=True)
    return {} if ask is None else {str(name): bool(there) for name, there in ask().items()}


def missing_instructions(target: dict[str, Any], host: dict[str, bool]) -> list[str]:
    """Instruction sets that programs of an `llvm` target may use and `host` says that it does not have."""
    codegen = importlib.import_module("tvm.target.codegen")
    used = {str(name) for name in codegen.llvm_get_cpu_features(make_target(target))}
    return sorted(name for name in used - NEVER_GENERATED if not host.get(name, True))


def _fill_processor(target: dict[str, Any]) -> None:
    load_tvm()
    codegen = importlib.import_module("tvm.target.codegen")
    if "mtriple" in target:
        return
    of_host = "mcpu" not in target
    mcpu = target.setdefault("mcpu", codegen.llvm_get_system_cpu())
    if not isinstance(mcpu, str) or not codegen.llvm_is_valid_cpu(mcpu, codegen.llvm_get_system_triple()):
        raise ConfigError(f"target.mcpu: LLVM knows no processor {mcpu!r}; write null for this host's")
    if of_host and "mattr" not in target:
        hide_missing(target, host_instructions())


def hide_missing(target: dict[str, Any], host: dict[str, bool]) -> None:
    """Switches off what the processor's model has and this machine does not: a virtual machine may hide some of it."""
    missing = missing_instructions(target, host)
    if missing:
        target["mattr"] = [f"-{name}" for name in missing]


def _fill_gpu(target: dict[str, Any]) -> None:
    if "arch" not in target:
        gpu = describe_gpu()
        if isinstance(gpu, str):
            default = {**CUDA_LIMITS, "arch": DEFAULT_ARCH, **target}
            raise ConfigError(f"{why_not_here(default, make_target(default))}, or name its architecture in target.arch")
        found = {
            "arch": gpu.arch,
            "max_threads_per_block": gpu.max_threads_per_block,
            "max_shared_memory_per_block": gpu.max_shared_memory_per_block,
            "thread_warp_size": gpu.thread_warp_size,
        }
        target.update({key: value for key, value in found.items() if key not in target})
    for key, value in CUDA_LIMITS.items():
        target.setdefault(key, value)


def make_target(target: dict[str, Any]) -> Target:
    """The TVM target of a complete dict.

    Raises:
        ConfigError: TVM refuses it; the message is TVM's first line.
    """
    load_tvm()
    # TVM would ask the GPU, and a process that has used CUDA cannot be forked into others that use it
    assert target.get("kind") != "cuda" or "arch" in target, "complete a target by `resolve_target` first"
    try:
        return importlib.import_module("tvm.target").Target(target)
    except (ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"target: TVM refuses {json.dumps(target)}: {reason}") from error


def prepare_for(target: dict[str, Any]) -> None:
    """Loads the tensor intrinsics that programs of a target may use, and chooses the compiler of CUDA.

    Touches no device, so a server may call it before it forks workers; again it costs nothing.
    """
    load_tvm()
    if target["kind"] == "llvm":
        kind = INTRINSICS_OF_MACHINE.get(_architecture(target))
    else:
        kind = INTRINSICS_OF_KIND.get(target["kind"])
    if kind is not None:
        load_intrinsics(kind)
    if target["kind"] == "cuda":
        choose_compiler()


def device_of(target: dict[str, Any]) -> Any:
    """TVM's device that runs programs of a target; to name it touches nothing."""
    tvm = load_tvm()
    return tvm.cuda(0) if target["kind"] == "cuda" else tvm.cpu()


def reference_target(target: dict[str, Any]) -> dict[str, Any]:
    """The target for a workload without a schedule: for `cuda` this host's processor, since it binds no threads."""
    return target if target["kind"] == "llvm" else resolve_target({"kind": "llvm", "num-cores": 1})


def vector_bits(target: dict[str, Any]) -> int:
    """Bits of one vector register that LLVM uses in programs of an `llvm` target."""
    load_tvm()
    codegen = importlib.import_module("tvm.target.codegen")
    complete = make_target(target)
    if INTRINSICS_OF_MACHINE.get(_architecture(target)) != "x86":
        return int(codegen.llvm_get_vector_width(complete))
    # TVM answers 512 for every x86 processor
    features = {str(name) for name in codegen.llvm_get_cpu_features(complete)}
    if "avx512f" in features and "prefer-256-bit" not in features:
        return 512
    return 256 if "avx" in features else 128


def _architecture(target: dict[str, Any]) -> str:
    return str(target.get("mtriple", platform.machine())).split("-")[0].lower()


def _dict_form(text: str) -> dict[str, Any]:
    """What `llvm -num-cores=4 -mcpu=native` says, as a dict."""
    words = text.split()
    target: dict[str, Any] = {"kind": words[0]}
    for word in words[1:]:
        key, _, value = word.lstrip("-").partition("=")
        if value:
            target[key] = int(value) if value.isdigit() else value
    target.setdefault("num-cores", available_cores())
    return target
