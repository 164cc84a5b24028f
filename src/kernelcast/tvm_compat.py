"""The only place that knows the faults of the TVM version in use and works around them.

Everything here loads TVM on first use, so importing this module costs nothing.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.records import Workload

if TYPE_CHECKING:
    import tvm
    from tvm.target import Target

TESTED_VERSIONS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
"""The pair that works: under tvm-ffi 0.1.15 this TVM segfaults on making a TuneContext or saving a module as JSON."""

INTRINSICS = "tvm.s_tir.tensor_intrin"
INTRINSICS_OF_MACHINE = {
    "x86_64": "x86",
    "amd64": "x86",
    "aarch64": "arm_cpu",
    "arm64": "arm_cpu",
    "riscv64": "riscv_cpu",
}


@lru_cache(maxsize=1)
def load_tvm() -> Any:
    """The module `tvm`, loaded without what makes that slow, and without torch.

    - TVM imports torch whenever it is installed (3 s, and every forked worker would carry its pages).
    - `import tvm.s_tir.tensor_intrin`, which TuneContext does, parses hundreds of CUDA and ROCm intrinsics, each
      through `inspect.stack()`: 20 to 100 s. Only the intrinsics of this machine's processor are loaded here; those of
      another kind of target come with `load_intrinsics`.

    Raises:
        ConfigError: the installed pair of `apache-tvm` and `apache-tvm-ffi` is not the one that works.
    """
    check_versions(tvm_versions())
    hide_torch = "torch" not in sys.modules
    if hide_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        tvm = importlib.import_module("tvm")
        importlib.import_module("tvm.s_tir")
    finally:
        if hide_torch:
            del sys.modules["torch"]
    _install_intrinsics_package()
    machine = platform.machine().lower()
    if machine in INTRINSICS_OF_MACHINE:
        load_intrinsics(INTRINSICS_OF_MACHINE[machine])
    return tvm


def load_intrinsics(kind: str) -> None:
    """Registers the tensor intrinsics of one kind (`x86`, `arm_cpu`, `cuda`, ...), once."""
    importlib.import_module(f"{INTRINSICS}.{kind}")


def _install_intrinsics_package() -> None:
    """Puts the package of the intrinsics in place without running its `__init__`, which imports all of them."""
    if INTRINSICS in sys.modules:
        return
    spec = importlib.util.find_spec(INTRINSICS)
    if spec is None:
        raise ConfigError(f"the installed TVM has no module {INTRINSICS}; install {_pinned()}")
    package = importlib.util.module_from_spec(spec)
    sys.modules[INTRINSICS] = package
    parent, _, name = INTRINSICS.rpartition(".")
    setattr(sys.modules[parent], name, package)


def tvm_versions() -> dict[str, str]:
    """Versions of the installed distributions; "missing" where there is none."""
    versions = {}
    for name in TESTED_VERSIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def check_versions(versions: dict[str, str]) -> None:
    """Refuses every pair but the tested one: the two share an ABI that nothing else checks.

    Raises:
        ConfigError: names both pairs and the command that installs the right one.
    """
    if versions != TESTED_VERSIONS:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        raise ConfigError(f"untested pair of TVM packages: {found}; other pairs crash. Run: pip install {_pinned()}")


def _pinned() -> str:
    return " ".join(f"{name}=={version}" for name, version in TESTED_VERSIONS.items())


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_target(config: Any) -> dict[str, Any]:
    """Completes a target from the configuration, so that TVM neither refuses it nor fails late.

    For the kind `llvm`, a missing `mcpu` becomes this host's processor, a missing `num-cores` the cores that this
    process may use.

    Args:
        config: a dict such as `{"kind": "llvm", "mcpu": None, "num-cores": None}`; None asks for the default.

    Raises:
        ConfigError: not a dict, an unknown kind, key or processor, or a number of cores that is none.
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
        cores = target.setdefault("num-cores", available_cores())
        if isinstance(cores, bool) or not isinstance(cores, int) or cores < 1:
            raise ConfigError(
                f"target.num-cores must be a positive integer, got {cores!r}; write "
                '{"kind": "llvm", "num-cores": 4}, or null for all cores that this process may use'
            )
        _fill_processor(target)
    make_target(target)
    return target


def check_runs_here(target: dict[str, Any]) -> None:
    """Makes sure that programs of a complete target can run, and be timed, on this machine.

    Raises:
        ConfigError: another kind, another architecture, or more threads than there are cores.
    """
    if target["kind"] != "llvm":
        raise ConfigError(
            f"target.kind: measuring runs programs on this machine's processor, so it must be llvm, "
            f"got {target['kind']!r}"
        )
    machine = platform.machine().lower()
    architecture = str(target.get("mtriple", machine)).split("-")[0].lower()
    if INTRINSICS_OF_MACHINE.get(architecture, architecture) != INTRINSICS_OF_MACHINE.get(machine, machine):
        raise ConfigError(
            f"target.mtriple: measuring runs programs on this machine, which is {machine}, got {target['mtriple']!r}; "
            "leave it out"
        )
    if target["num-cores"] > available_cores():
        raise ConfigError(
            f"target.num-cores: this process may use {available_cores()}, got {target['num-cores']}: threads that wait "
            "for each other's core cannot be timed; write null for all cores"
        )


def _fill_processor(target: dict[str, Any]) -> None:
    load_tvm()
    codegen = importlib.import_module("tvm.target.codegen")
    if "mtriple" not in target:
        mcpu = target.setdefault("mcpu", codegen.llvm_get_system_cpu())
        if not isinstance(mcpu, str) or not codegen.llvm_is_valid_cpu(mcpu, codegen.llvm_get_system_triple()):
            raise ConfigError(f"target.mcpu: LLVM knows no processor {mcpu!r}; write null for this host's")


def make_target(target: dict[str, Any]) -> Target:
    """The TVM target of a complete dict.

    Raises:
        ConfigError: TVM refuses it; the message is TVM's first line.
    """
    load_tvm()
    try:
        return importlib.import_module("tvm.target").Target(target)
    except (ValueError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"target: TVM refuses {json.dumps(target)}: {reason}") from error


def runnable_module(module: Any) -> tvm.IRModule:
    """The part of a scheduled program that is built and timed, as by MetaSchedule's own builder.

    A schedule may change the layout of weights. The block that does so (`meta_schedule.layout_rewrite_preproc`) belongs
    to the compilation of a network, so here it is emptied, and the program takes weights of the new shape.
    """
    load_tvm()
    transform = importlib.import_module("tvm.s_tir.transform")
    return transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)


def vector_bits(target: dict[str, Any]) -> int:
    """Bits of one vector register of the instruction set that an `llvm` target compiles for."""
    load_tvm()
    return int(importlib.import_module("tvm.target.codegen").llvm_get_vector_width(make_target(target)))


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


def structural_key(module: Any) -> str:
    """Structural hash of a TVM module, 16 hexadecimal digits; equal modules have equal keys, in every process."""
    load_tvm()
    value = importlib.import_module("tvm_ffi").structural_hash(module)
    return f"{value & 0xFFFF_FFFF_FFFF_FFFF:016x}"


@lru_cache(maxsize=256)
def parse_module(text: str) -> tvm.IRModule:
    """A TVM module from its JSON; the last few are remembered.

    Raises:
        MalformedDataError: it is not a module.
    """
    tvm = load_tvm()
    try:
        module = tvm.ir.load_json(text)
    except Exception as error:  # whatever TVM's parser throws: json, tvm.error, ValueError
        raise MalformedDataError(f"not a TVM module in JSON: {str(error).strip().splitlines()[0]}") from error
    if not isinstance(module, tvm.IRModule):
        raise MalformedDataError(f"not a TVM module in JSON but a {type(module).__name__}")
    return module


def module_json(module: Any) -> str:
    """A TVM module as JSON, which `parse_module` reads."""
    return str(load_tvm().ir.save_json(module))


def scheduled_module(workload: Workload, trace: str) -> tvm.IRModule:
    """The program that a schedule trace makes of a workload, postprocessing included.

    Its structural hash is the `program_key` that `measure` recorded.

    Args:
        workload: the unscheduled module.
        trace: the schedule trace as JSON.

    Raises:
        MalformedDataError: the trace is not JSON, or does not apply to this workload.
    """
    load_tvm()
    schedules = importlib.import_module("tvm.s_tir.schedule")
    # the seed only matters for decisions that the trace leaves open: none
    schedule = schedules.Schedule(parse_module(workload.module), seed=1, error_render_level="fast")
    try:
        schedules.Trace.apply_json_to_schedule(json.loads(trace), schedule)
    except (
        Exception
    ) as error:  # json, tvm.error.*, ScheduleError: all mean that this trace is no trace of this workload
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise MalformedDataError(f"the trace does not apply to workload {workload.name}: {reason}") from error
    return schedule.mod
