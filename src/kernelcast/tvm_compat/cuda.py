"""CUDA: the GPU of this machine, the compiler of its kernels, and what is missing where there is none.

A process that has asked the GPU anything can no longer be forked into workers that use it
(`cudaErrorInitializationError`), so the GPU is described by a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelcast.tvm_compat.loading import load_tvm

COMPILE_MODE = "TVM_CUDA_COMPILE_MODE"
"""TVM's environment variable: `nvrtc` (the Python package cuda-bindings) or `nvcc` (the program)."""

ASK_TIMEOUT_SECONDS = 120

COPY_BYTES = 512 * 1024**2
"""More than the caches of GPUs hold."""

COPIES = 5
RUNTIME_LIBRARY = "libtvm_runtime_cuda.so"
LIBRARIES = {"libcuda.so.1": "the NVIDIA driver", "libcudart.so.13": "the runtime of CUDA 13"}
"""What TVM's runtime library for CUDA needs."""


@dataclass(frozen=True)
class GpuDescription:
    """The first GPU of this machine.

    Attributes:
        name: as the driver calls it.
        arch: what kernels are compiled for, for example `sm_90`.
        max_threads_per_block: threads of a block.
        max_shared_memory_per_block: bytes that a block may use without opting in to more.
        thread_warp_size: threads of a warp.
        multiprocessors: number of streaming multiprocessors.
        cache_bytes: size of the L2 cache.
        memory_bytes: size of the memory.
        clock_hertz: highest clock of the multiprocessors.
        bytes_per_second: bytes read and written by a large copy in the GPU's memory, the best of a few.
    """

    name: str
    arch: str
    max_threads_per_block: int
    max_shared_memory_per_block: int
    thread_warp_size: int
    multiprocessors: int
    cache_bytes: int
    memory_bytes: int
    clock_hertz: float
    bytes_per_second: float

    @property
    def peak_flops_per_second(self) -> float:
        """Float32 multiply-adds, 2 flops each, of all multiprocessors at the highest clock, without tensor cores.

        Source: CUDA C++ Programming Guide, table of arithmetic instructions a clock: 64 a multiprocessor for compute
        capability 6.0, 7.x and 8.0, 128 for the others since 5.0.
        """
        lanes = 64 if self.arch == "sm_60" or self.arch.startswith("sm_7") or self.arch == "sm_80" else 128
        return 2.0 * lanes * self.multiprocessors * self.clock_hertz


@lru_cache(maxsize=1)
def describe_gpu() -> GpuDescription | str:
    """The first GPU, or why there is none; asked once, in a process of its own."""
    reason = missing_runtime()
    if reason:
        return reason
    try:
        asked = subprocess.run(
            [sys.executable, "-m", __name__],
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the driver does not answer within {ASK_TIMEOUT_SECONDS} s"
    with contextlib.suppress(ValueError, TypeError, IndexError):
        return GpuDescription(**json.loads(asked.stdout.splitlines()[-1]))
    lines = (asked.stderr or asked.stdout).strip().splitlines()
    return lines[-1] if lines else f"asking the driver ended with status {asked.returncode}"


def missing_runtime() -> str:
    """Why TVM's runtime for CUDA is not loaded; empty where it is. TVM itself says nothing."""
    load_tvm()
    libraries = importlib.import_module("tvm.base")._LOADED_LIBS
    if "tvm_runtime_cuda" in libraries:
        return ""
    missing = [f"{name} ({what})" for name, what in LIBRARIES.items() if not _loads(name)]
    if missing:
        return f"not found: {', '.join(missing)}"
    if not Path(libraries["tvm_runtime"]._name).with_name(RUNTIME_LIBRARY).exists():
        return f"the installed TVM has no {RUNTIME_LIBRARY}"
    return f"{RUNTIME_LIBRARY} cannot be loaded"


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def choose_compiler() -> str | None:
    """The compiler of CUDA kernels, chosen through `COMPILE_MODE` unless that is set already.

    Returns:
        `nvrtc`, `nvcc` or None where there is neither.
    """
    available = []
    # asking for a module below a package that is not there raises
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec("cuda.bindings.nvrtc") is not None:
            available.append("nvrtc")
    if shutil.which("nvcc"):
        available.append("nvcc")
    if COMPILE_MODE not in os.environ and available:
        os.environ[COMPILE_MODE] = available[0]
    mode = os.environ.get(COMPILE_MODE, "nvrtc").lower()
    return mode if mode in available else None


def why_not_here(target: dict[str, Any], tvm_target: Any) -> str:
    """Why programs of a complete `cuda` target cannot run on this machine, and whether they can be built; or empty."""
    compiler = choose_compiler()
    gpu = describe_gpu()
    problems = []
    if isinstance(gpu, str):
        problems.append(f"there is no GPU that TVM can use ({gpu})")
    elif not runs_on(str(target["arch"]), gpu.arch):
        problems.append(f"target.arch is {target['arch']}, this machine's {gpu.name} is {gpu.arch}")
    if compiler is None:
        problems.append("there is no compiler: install cuda-bindings (pip) or put nvcc on PATH")
    if not problems:
        return ""
    try:
        bytes_of_source = len(kernel_source(tvm_target))
        built = f"a kernel for {target['arch']} was generated ({bytes_of_source} bytes of CUDA)"
        if compiler is not None:
            built += f" and compiled by {compiler} ({len(compile_kernel(tvm_target, compiler))} bytes)"
    except Exception as error:  # whatever TVM, nvcc or NVRTC throw
        # compilers put the source first and what is wrong with it last
        built = f"building a kernel for {target['arch']} fails: {str(error).strip().splitlines()[-1]}"
    return (
        f"target.kind=cuda cannot be measured here: {'; '.join(problems)}. Building was checked: {built}. "
        "Run on a machine with an NVIDIA GPU"
    )


def runs_on(arch: str, gpu_arch: str) -> bool:
    """Whether machine code for `arch` runs on a GPU: the same major version, and no newer a minor one."""
    wanted, there = arch.removeprefix("sm_").rstrip("af"), gpu_arch.removeprefix("sm_").rstrip("af")
    if not (wanted.isdigit() and there.isdigit()):
        return False
    same_major = wanted[:-1] == there[:-1]
    # the suffix `a` ties code to one architecture
    return same_major and (wanted[-1] == there[-1] if arch.endswith("a") else wanted[-1] <= there[-1])


def kernel_source(tvm_target: Any) -> str:
    """CUDA source of a small kernel, generated for a target; needs neither a GPU nor a compiler."""
    tvm = load_tvm()
    placeholder = tvm.te.placeholder((1024,), name="x")
    doubled = tvm.te.compute((1024,), lambda index: placeholder[index] * 2.0, name="y")
    schedule = importlib.import_module("tvm.s_tir").Schedule(tvm.te.create_prim_func([placeholder, doubled]))
    blocks, threads = schedule.split(schedule.get_loops(schedule.get_sblock("y"))[0], [None, 128])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
    return cuda_source(schedule.mod, tvm_target)


def cuda_source(module: Any, tvm_target: Any) -> str:
    """CUDA source of a scheduled module. Without TVM's runtime for CUDA nothing compiles it."""
    compiled = load_tvm().compile(module, target=tvm_target).mod
    return str(compiled.imports[0].inspect_source("cuda"))


def compile_kernel(tvm_target: Any, compiler: str) -> bytes:
    """Machine code of the small kernel."""
    load_tvm()
    nvcc = importlib.import_module("tvm.support.nvcc")
    with tvm_target:
        return bytes(
            nvcc.compile_cuda(
                kernel_source(tvm_target), target_format="cubin", arch=str(tvm_target.attrs["arch"]), compiler=compiler
            )
        )


def _copy_bytes_per_second(tvm: Any, device: Any) -> float:
    source, destination = (tvm.runtime.empty((COPY_BYTES // 4,), "float32", device) for _ in range(2))
    best = float("inf")
    for _ in range(COPIES):
        device.sync()
        started = time.perf_counter()
        source.copyto(destination)
        device.sync()
        best = min(best, time.perf_counter() - started)
    return 2.0 * COPY_BYTES / best


def _main() -> None:
    tvm = load_tvm()
    device = tvm.cuda(0)
    if not device.exist:
        sys.exit("the driver finds no GPU")
    found = GpuDescription(
        name=str(device.device_name),
        arch="sm_" + str(device.compute_version).replace(".", ""),
        max_threads_per_block=int(device.max_threads_per_block),
        max_shared_memory_per_block=int(device.max_shared_memory_per_block),
        thread_warp_size=int(device.warp_size),
        multiprocessors=int(device.multi_processor_count),
        cache_bytes=int(device.l2_cache_size_bytes),
        memory_bytes=int(device.total_global_memory),
        clock_hertz=1e3 * float(device.max_clock_rate),
        bytes_per_second=_copy_bytes_per_second(tvm, device),
    )
    print(json.dumps(dataclasses.asdict(found)))


if __name__ == "__main__":
    _main()
