"""Our builder as MetaSchedule's: it hands programs on, since they are built in the process that runs them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelcast.measurement.sampling import Candidate
from kernelcast.records import Origin, Workload
from kernelcast.tvm_compat import load_tvm, module_json, structural_key

MODULE_FILE = "module.json"

AS_IT_IS = "[[],[]]"
"""The trace that schedules nothing."""


def handing_builder(folder: Path) -> Any:
    """A MetaSchedule builder whose artifacts are the scheduled modules, each in a folder of its own within `folder`.

    Nothing is exported or linked: `running.timing_runner` builds and runs a program in one process. What goes wrong in
    the build is therefore told by the runner, by its name.
    """
    load_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.builder import BuilderResult, PyBuilder

    numbers = itertools.count()

    @derived_object
    class HandingBuilder(PyBuilder):  # type: ignore[misc]
        """TVM's side of the builder."""

        def build(self, build_inputs: Sequence[Any]) -> list[Any]:
            return [BuilderResult(_written(folder / str(next(numbers)), one.mod), None) for one in build_inputs]

    return HandingBuilder()


def handed_program(artifact: str) -> tuple[Workload, Candidate]:
    """The program that the builder handed on, as a workload that is built as it is."""
    path = Path(artifact)
    key = path.parent.name.partition("-")[2]
    workload = Workload(key, f"program_{key[:8]}", "scheduled", {}, path.read_text())
    return workload, Candidate(key, key, AS_IT_IS, Origin.EVOLVED)


def _written(folder: Path, module: Any) -> str:
    # TVM's callback removes the folder of an artifact
    folder = folder.with_name(f"{folder.name}-{structural_key(module)}")
    folder.mkdir()
    path = folder / MODULE_FILE
    path.write_text(module_json(module))
    return str(path)
