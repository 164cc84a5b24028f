"""A folder that the stage `graphs` wrote, predicted as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kernelcast.graphs.dataset.store import read_description, read_programs
from kernelcast.prediction.answer import Answer
from kernelcast.prediction.subjects import Origin, Subject
from kernelcast.records import Workload
from kernelcast.tuning.trained import TrainedModel


def answer_of_graphs(trained: TrainedModel, folder: Path) -> Answer:
    """Predicts every program of a folder of graphs, beside its label.

    Raises:
        ConfigError: they are of a target that the model does not know, or lack a view that it looks at.
        MalformedDataError: a file is torn, or its features are of another version than the model's.
    """
    programs, description = read_programs(folder), read_description(folder)
    for stored in description.targets:
        trained.stored_target(stored.target)
    workloads = [
        Workload(one.key, name, one.kind, one.arguments, "", one.networks)
        for one, name in zip(description.workloads, programs.workload_names, strict=True)
    ]
    targets = [stored.target for stored in description.targets]
    subjects = tuple(
        Subject(
            workloads[workload],
            program_key=str(key),
            measured_seconds=float(np.exp(log_seconds)),
            origin=Origin.RECORDED,
            target=targets[target],
        )
        for workload, key, log_seconds, target in zip(
            programs.workload, programs.program_key, programs.log_seconds, programs.target, strict=True
        )
    )
    predicted = np.asarray(trained.model.predict(programs), dtype=np.float64)
    kind, slope = trained.model.kind, trained.trained_on.slope
    return Answer(subjects, predicted, ("",) * len(subjects), kind, slope, targets[0])
