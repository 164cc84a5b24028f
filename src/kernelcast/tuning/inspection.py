"""Programs are built before they are timed, more of them than are timed: a model that reads their code chooses.

To build a program costs about as much as to time it, and says much more about its time than the schedule does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Float64

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.graphs.machine_code.rows import machine_code_row
from kernelcast.graphs.views import MACHINE_CODE
from kernelcast.measurement.messages import Failed
from kernelcast.measurement.progress import duration
from kernelcast.measurement.sampling import Candidate, candidate_of
from kernelcast.measurement.settings import require_seconds
from kernelcast.records import Origin, Workload
from kernelcast.tuning.cost_model import Scorer
from kernelcast.tuning.learning import Learning
from kernelcast.tuning.measuring import Bench
from kernelcast.tuning.search import Proposal
from kernelcast.tuning.tasks import Task
from kernelcast.tuning.trained import TrainedModel
from kernelcast.tvm_compat import require_x86

logger = logging.getLogger(__name__)


class Inspector:
    """Chooses what is timed among programs that it has built. It is of one tuning.

    What it did not choose waits: in a later round, when the model has learned from more trials, it is looked at again.

    Args:
        model: looks at the view `machine_code`.
        learning: how it goes on learning from trials.
        factor: programs that are built for each that is timed.
        build_seconds: a program that takes longer to build is not waited for: there are others.

    Raises:
        ConfigError: the model does not look at machine code, or a number that cannot work.
    """

    def __init__(self, model: TrainedModel, learning: Learning, factor: int, build_seconds: float) -> None:
        if isinstance(factor, bool) or not isinstance(factor, int) or factor < 2:
            raise ConfigError(
                f"method.inspect.factor={factor}: a whole number of at least 2, or there is nothing to choose from; "
                "method.inspect=null times all that is built"
            )
        require_seconds("method.inspect.build_seconds", build_seconds)
        if MACHINE_CODE not in model.trained_on.views:
            raise ConfigError(
                "method.inspect.model: this model does not look at machine code, so nothing is gained by building "
                "programs for it; train one that does, for example with model=ensemble_machine_code "
                "features=machine_code"
            )
        self.factor = factor
        self._build_seconds = build_seconds
        self._model = model
        self._codes: dict[str, Float64[np.ndarray, " columns"]] = {}
        self._scorer = Scorer(replace(model, codes=self._codes), learning)
        self._waiting: dict[str, list[Proposal]] = {}

    @property
    def seconds(self) -> float:
        """Spent in the model so far, building excluded."""
        return self._scorer.seconds

    def require_target(self, target: Mapping[str, Any]) -> None:
        """Makes sure that code for a complete target can be read.

        Raises:
            ConfigError: it cannot, or the model was trained for another one.
        """
        require_x86(target)
        self._model.stored_target(target)

    def choose(
        self, task: Task, context: Any, proposals: Sequence[Proposal], count: int, bench: Bench
    ) -> list[Proposal]:
        """The most promising programs among new ones and those that wait.

        Those that cannot be built come last, and are timed only where there is nothing else, which says why they fail.

        Args:
            task: of all of them.
            context: TVM's, of the task.
            proposals: new ones, in the order of the search.
            count: of those that are wanted; fewer where there are not as many.
            bench: builds.
        """
        started = perf_counter()
        self._read([(task.workload, one.candidate) for one in proposals], bench)
        found = [*self._waiting.pop(task.workload.key, ()), *proposals]
        readable = [one for one in found if one.candidate.program_key in self._codes]
        others = [one for one in found if one.candidate.program_key not in self._codes]
        if readable:
            scores = self._scorer.predict(context, [one.measure_candidate for one in readable])
            # stable, so that equals stay in the order of the search
            order = np.argsort(-scores, kind="stable")
            readable = [replace(readable[row], score=float(scores[row])) for row in order]
        self._waiting[task.workload.key] = readable[count : count * (1 + self.factor)]
        chosen = [*readable, *others][:count]
        logger.info(
            "%s: %d programs built in %s, %d of %d are timed",
            task.workload.name,
            len(proposals),
            duration(perf_counter() - started),
            len(chosen),
            len(found),
        )
        return chosen

    def update(self, task: Task, context: Any, candidates: Sequence[Any], results: Sequence[Any], bench: Bench) -> None:
        """Learns from the trials of a round; those of an earlier call are built again."""
        found = [candidate_of(task.workload, one.sch, Origin.EVOLVED) for one in candidates]
        self._read([(task.workload, one) for one in found], bench)
        pairs = [
            (candidate, result)
            for one, candidate, result in zip(found, candidates, results, strict=True)
            if one.program_key in self._codes
        ]
        if pairs:
            self._scorer.update(context, [candidate for candidate, _ in pairs], [result for _, result in pairs])

    def _read(self, programs: Sequence[tuple[Workload, Candidate]], bench: Bench) -> None:
        """Builds those whose code is not known."""
        new = [program for program in programs if program[1].program_key not in self._codes]
        # read while the others are being built
        for (workload, candidate), listing in zip(new, bench.read_codes(new, self._build_seconds), strict=True):
            if isinstance(listing, Failed):
                logger.debug("%s, %s: %s", workload.name, candidate.program_key, listing.message)
                continue
            try:
                self._codes[candidate.program_key] = machine_code_row(listing)
            except MalformedDataError as error:
                logger.warning("%s, %s: its code cannot be read: %s", workload.name, candidate.program_key, error)
