"""The compiling process: `python -m kernelcast.tuning.compiling JOB`, a JSON file; see `deployment`.

It compiles one network into an existing folder, loads what it wrote, runs it on the example and says in
`deployment.json` what came of it. What TVM compiled may crash; then nothing but this process is lost.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelcast.errors import KernelcastError, MeasurementError
from kernelcast.files import write_json
from kernelcast.networks.fusing import calls_of, fused_module, kernel_key
from kernelcast.networks.kernels import first_line, legalised
from kernelcast.networks.own_process import end_with_parent
from kernelcast.networks.saved import EXAMPLE_FILE, SavedNetwork, read_network
from kernelcast.records import Workload
from kernelcast.tuning.database import TuningDatabase
from kernelcast.tuning.output_check import check_outputs
from kernelcast.tuning.schedules import ChosenSchedule
from kernelcast.tvm_compat import device_of, load_tvm, make_target, prepare_for, tvm_versions

DEPLOYMENT_VERSION = 1
"""Version of the folder; a change that another kernelcast cannot read raises it."""

DEPLOYMENT_FILE = "deployment.json"
LIBRARY_FILE = "network.so"
ERROR_FILE = "error.txt"
"""Why a job could not be done, where the user can do something about it."""

SCHEDULED = "tirx.is_scheduled"
"""TVM's mark of a function that the database had a schedule for."""

READ_ME = (
    "with TVM alone: vm = tvm.relax.VirtualMachine(tvm.runtime.load_module('network.so'), tvm.cpu()); "
    "outputs = vm['main'](tvm.runtime.tensor(array), ...); inputs and outputs in the order of those here"
)


@dataclass(frozen=True)
class Compiled:
    """A compiled network.

    Attributes:
        executable: TVM's.
        kernels: key of each kernel it runs by the kernel's name.
        tuned: names of those that have a schedule of the database.
    """

    executable: Any
    kernels: dict[str, str]
    tuned: tuple[str, ...]


def compile_network(
    saved: SavedNetwork,
    target: dict[str, Any],
    chosen: Mapping[str, ChosenSchedule],
    folder: Path,
    apart: Collection[str] = (),
) -> Compiled:
    """Compiles a network with the schedules that there are for its kernels; the others get TVM's default: none.

    Args:
        saved: the network, its operators fused where its request says so.
        target: complete.
        chosen: schedules by key of the workload.
        folder: an existing folder, where those that are used are written as a database.
        apart: keys of fused kernels whose operators are to stay kernels of their own.

    Raises:
        MalformedDataError: a trace does not apply to its workload.
    """
    tvm = load_tvm()
    transform = tvm.relax.transform
    module = legalised(saved.request.name, saved.module())
    if saved.request.fused:
        module = fused_module(module, apart)
    # first, so that what only changes a shape becomes a view: with a schedule TVM would not know it and copy
    module = tvm.transform.Sequential([transform.RewriteDataflowReshape(), transform.DeadCodeElimination()])(module)
    kernels = {variable.name_hint: kernel_key(module[variable]) for variable in calls_of(module["main"])}
    used = [chosen[key] for key in dict.fromkeys(kernels.values()) if key in chosen]
    database = TuningDatabase(folder, [one.workload for one in used], target)
    for one in used:
        database.add(one.workload, one.trace, one.run_seconds)
    complete = make_target(target)
    with complete, database.tvm_database, tvm.transform.PassContext(opt_level=3):
        module = transform.MetaScheduleApplyDatabase()(module)
        tuned = tuple(sorted(name for name in kernels if SCHEDULED in (module[name].attrs or {})))
        executable = tvm.compile(module, target=complete)
    return Compiled(executable, kernels, tuned)


def compile_stock(saved: SavedNetwork, target: dict[str, Any]) -> Compiled:
    """What `tvm.compile` alone makes of the imported network: no operator is fused, none is scheduled."""
    tvm = load_tvm()
    return Compiled(tvm.compile(saved.module(), target=make_target(target)), {}, ())


def run_library(library: Path, target: dict[str, Any], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of an exported network."""
    tvm = load_tvm()
    device = device_of(target)
    machine = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(library)), device)
    return network_outputs(machine["main"](*[tvm.runtime.tensor(array, device=device) for array in inputs]))


def network_outputs(made: Any) -> list[np.ndarray]:
    """Tensors of the host from whatever a network's `main` returns: one tensor, or a tuple of some."""
    return [made.numpy()] if hasattr(made, "numpy") else [output for part in made for output in network_outputs(part)]


def main() -> None:
    """Entry point."""
    end_with_parent()
    job = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(job["folder"])
    try:
        _work(job, folder)
    except KernelcastError as error:
        (folder / ERROR_FILE).write_text(str(error))


def _work(job: dict[str, Any], folder: Path) -> None:
    saved, target = read_network(Path(job["network"])), job["target"]
    prepare_for(target)
    if job["stock"]:
        compiled = compile_stock(saved, target)
    else:
        chosen = [
            ChosenSchedule(Workload(**entry["workload"]), entry["trace"], entry["run_seconds"])
            for entry in job["schedules"]
        ]
        compiled = compile_network(saved, target, {one.workload.key: one for one in chosen}, folder, job["apart"])
    try:
        compiled.executable.export_library(str(folder / LIBRARY_FILE))
    except Exception as error:
        raise MeasurementError(
            f"the library cannot be linked: {first_line(error)}; a C++ compiler is needed: install "
            "g++ or clang++, or name one by the environment variable CXX"
        ) from error
    shutil.copyfile(saved.folder / EXAMPLE_FILE, folder / EXAMPLE_FILE)
    inputs, expected = saved.example()
    checks = check_outputs(run_library(folder / LIBRARY_FILE, target, inputs), expected)
    description = {
        "version": DEPLOYMENT_VERSION,
        "network": saved.name,
        "read_me": READ_ME,
        "target": target,
        "tvm": tvm_versions(),
        "inputs": [dataclasses.asdict(tensor) for tensor in saved.inputs],
        "outputs": [dataclasses.asdict(tensor) for tensor in saved.outputs],
        "kernels": compiled.kernels,
        "tuned": list(compiled.tuned),
        "not_tuned": sorted(set(compiled.kernels) - set(compiled.tuned)),
        "apart": sorted(job["apart"]),
        "checks": [check.as_json() for check in checks],
    }
    write_json(folder / DEPLOYMENT_FILE, description)


if __name__ == "__main__":
    main()
