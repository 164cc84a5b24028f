"""From a tuned network to a folder that anyone can load and run with TVM alone."""

from __future__ import annotations

import dataclasses
import json
import logging
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError, MeasurementError
from kernelcast.files import atomic_directory, read_json
from kernelcast.networks.own_process import run_apart
from kernelcast.networks.saved import SavedNetwork, Tensor, tensors
from kernelcast.tuning.compiling import DEPLOYMENT_FILE, DEPLOYMENT_VERSION, ERROR_FILE
from kernelcast.tuning.output_check import OutputCheck
from kernelcast.tuning.schedules import ChosenSchedule
from kernelcast.tvm_compat import check_runs_here

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deployment:
    """A compiled network on disk.

    The folder holds the library (`network.so`), the schedules that it was made with as a MetaSchedule database, the
    example with torch's outputs (`example.npz`) and this description (`deployment.json`), which says how to load it.

    Attributes:
        folder: where it is.
        network: its name.
        target: what it is compiled for.
        inputs: what it takes, in order.
        outputs: what it gives, in order.
        kernels: key of each kernel by its name; none where TVM's own pipeline compiled the network.
        tuned: names of the kernels with a schedule of the tuning; the others have TVM's default.
        apart: keys of fused kernels whose operators stayed kernels of their own.
        checks: its outputs beside torch's.
    """

    folder: Path
    network: str
    target: dict[str, Any]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    kernels: dict[str, str]
    tuned: tuple[str, ...]
    apart: tuple[str, ...]
    checks: tuple[OutputCheck, ...]

    @property
    def not_tuned(self) -> tuple[str, ...]:
        """Names of the kernels with TVM's default schedule."""
        return tuple(sorted(set(self.kernels) - set(self.tuned)))


def deploy(
    saved: SavedNetwork,
    schedules: Mapping[str, ChosenSchedule],
    target: dict[str, Any],
    folder: Path,
    apart: Collection[str] = (),
    timeout_seconds: float | None = None,
) -> Deployment:
    """Compiles a network with the given schedules, checks its outputs against torch's and exports it.

    All in a process of its own. The folder is written whole or not at all.

    Args:
        saved: the network.
        schedules: by key of the workload, see `schedules.best_schedules`; kernels without one get TVM's default.
        target: complete.
        folder: an earlier deployment there is replaced.
        apart: keys of fused kernels whose operators are to stay kernels of their own.
        timeout_seconds: limit of compiling and checking.

    Raises:
        ConfigError: programs of the target do not run on this machine.
        MeasurementError: the outputs differ from torch's, or the process crashed or took too long; names the network.
        MalformedDataError: a trace does not apply to its workload.
        StorageError: something else is in the folder.
    """
    job = {
        "stock": False,
        "apart": sorted(apart),
        "schedules": [dataclasses.asdict(schedules[key]) for key in sorted(schedules)],
    }
    deployment = _compile(saved, target, folder, job, timeout_seconds)
    if schedules and deployment.not_tuned:
        logger.warning(
            "%s: %d of %d kernels have no tuned schedule and run with TVM's default: %s",
            saved.name,
            len(deployment.not_tuned),
            len(deployment.kernels),
            ", ".join(deployment.not_tuned),
        )
    return deployment


def deploy_stock(
    saved: SavedNetwork, target: dict[str, Any], folder: Path, timeout_seconds: float | None = None
) -> Deployment:
    """The network as `tvm.compile` makes it when it is not asked for more; everything else as `deploy`."""
    job: dict[str, Any] = {"stock": True, "apart": [], "schedules": []}
    return _compile(saved, target, folder, job, timeout_seconds)


def read_deployment(folder: Path) -> Deployment:
    """Reads what `deploy` wrote.

    Raises:
        MissingInputError: there is none.
        MalformedDataError: it is torn, or of another version.
    """
    stored = read_json(folder / DEPLOYMENT_FILE, "tune")
    try:
        if stored["version"] != DEPLOYMENT_VERSION:
            raise ValueError(f"version {stored['version']}, this kernelcast reads {DEPLOYMENT_VERSION}")
        return Deployment(
            folder,
            str(stored["network"]),
            dict(stored["target"]),
            tensors(stored["inputs"]),
            tensors(stored["outputs"]),
            dict(stored["kernels"]),
            tuple(stored["tuned"]),
            tuple(stored["apart"]),
            tuple(OutputCheck.from_json(check) for check in stored["checks"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedDataError(
            f"{folder / DEPLOYMENT_FILE} is no deployed network ({error}); remove {folder} and tune again"
        ) from error


def _compile(
    saved: SavedNetwork, target: dict[str, Any], folder: Path, job: dict[str, Any], timeout_seconds: float | None
) -> Deployment:
    check_runs_here(target)
    logger.info("compiling %s with %d schedules", saved.name, len(job["schedules"]))
    with (
        atomic_directory(folder, marker=DEPLOYMENT_FILE) as temporary,
        tempfile.TemporaryDirectory(prefix="kernelcast-") as work,
    ):
        asked = Path(work, "job.json")
        asked.write_text(json.dumps({**job, "network": str(saved.folder), "target": target, "folder": str(temporary)}))
        run_apart(
            "kernelcast.tuning.compiling",
            [str(asked)],
            f"compiles and runs the network {saved.name}",
            "leave out the schedules of single kernels to find which one is at fault.",
            timeout_seconds,
            thread_environment(target),
        )
        if (temporary / ERROR_FILE).exists():
            raise MeasurementError(f"network {saved.name}: {(temporary / ERROR_FILE).read_text()}")
        wrong = [str(check) for check in read_deployment(temporary).checks if not check.equal]
        if wrong:
            raise MeasurementError(
                f"network {saved.name}: the compiled network does not compute what torch does, so it is not written: "
                f"{'; '.join(wrong)}; leave out the schedules of single kernels to find which one is at fault"
            )
    return read_deployment(folder)


def thread_environment(target: dict[str, Any]) -> dict[str, str]:
    """Variables that give a process the threads of a target, whatever computes in it."""
    threads = str(target.get("num-cores", 1))
    # TVM pins its threads to cores counted from 0, whatever this process may use
    names = ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**dict.fromkeys(names, threads), "TVM_BIND_THREADS": "0"}
