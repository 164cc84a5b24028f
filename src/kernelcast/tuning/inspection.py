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
    The worst of these, and programs whose code could not be had, are left for when there is nothing else.

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
                "method=online times what the search proposes"
            )
        require_seconds("method.inspect.build_seconds", build_seconds)
        if MACHINE_CODE not in model.trained_on.views:
            raise ConfigError(
                "method.inspect.model: this model does not look at machine code, so nothing is gained by building "
                "programs for it; train one that does, for example with model=ensemble_machine_code "
                "features=machine_code"
            )
        if learning.needs_rows and "features" not in model.trained_on.columns:
            raise ConfigError(
                "method.inspect.learning: to learn from trials needs the view `features`, and the model of "
                "method.inspect.model was trained without it; add it to features.views and train again, or freeze the "
                "model"
            )
        self.factor = factor
        self._build_seconds = build_seconds
        self._model = model
        self._codes: dict[str, Float64[np.ndarray, " columns"]] = {}
        self._codeless: set[str] = set()
        self._scorer = Scorer(replace(model, codes=self._codes), learning)
        self._waiting: dict[str, list[Proposal]] = {}
        self._left: dict[str, list[Candidate]] = {}
        self._warned: set[str] = set()

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
        """The most promising programs among new ones and those that wait, as far as their code could be had.

        Args:
            task: of all of them.
            context: TVM's, of the task.
            proposals: new ones, in the order of the search.
            count: of those that are wanted; fewer where there are not as many.
            bench: builds.
        """
        key, started = task.workload.key, perf_counter()
        reason = self._read([(task.workload, one.candidate) for one in proposals], bench)
        seconds = perf_counter() - started
        built = [one for one in proposals if one.candidate.program_key in self._codes]
        if reason and not built:
            self._warn(task.workload, len(proposals), reason)
        found = [*self._waiting.pop(key, ()), *built]
        if found:
            scores = self._scorer.predict(context, [one.measure_candidate for one in found])
            # stable, so that equals stay in the order of the search
            order = np.argsort(-scores, kind="stable")
            found = [replace(found[row], score=float(scores[row])) for row in order]
        chosen, others = found[:count], found[count:]
        waiting = self.factor * count
        self._waiting[key] = others[:waiting]
        codeless = [one.candidate for one in proposals if one.candidate.program_key in self._codeless]
        self._left[key] = [*(one.candidate for one in others[waiting:]), *self._left.get(key, ()), *codeless]
        logger.info(
            "%s: %d of %d programs built in %s, %d of %d are timed",
            task.workload.name,
            len(built),
            len(proposals),
            duration(seconds),
            len(chosen),
            len(found),
        )
        return chosen

    def take_left(self, task: Task, count: int) -> list[Candidate]:
        """Up to `count` programs for when `choose` has no more: those that it had no room for, then those without code.

        To time a program that cannot be built says why it cannot.
        """
        left = self._left.get(task.workload.key, [])
        self._left[task.workload.key] = left[count:]
        return left[:count]

    def update(self, task: Task, context: Any, candidates: Sequence[Any], results: Sequence[Any], bench: Bench) -> None:
        """Learns from the trials of a round; those of an earlier call are built again."""
        found = [candidate_of(task.workload, one.sch, Origin.EVOLVED) for one in candidates]
        again = sum(self._is_new(one) for one in found)
        if again:
            logger.info("%s: %d programs are built again for their code", task.workload.name, again)
        self._read([(task.workload, one) for one in found], bench)
        pairs = [
            (candidate, result)
            for one, candidate, result in zip(found, candidates, results, strict=True)
            if one.program_key in self._codes
        ]
        if pairs:
            self._scorer.update(context, [candidate for candidate, _ in pairs], [result for _, result in pairs])

    def _is_new(self, candidate: Candidate) -> bool:
        return candidate.program_key not in self._codes and candidate.program_key not in self._codeless

    def _read(self, programs: Sequence[tuple[Workload, Candidate]], bench: Bench) -> str:
        """Builds those that were not built before; gives the first reason why one has no code, empty where all have."""
        new, reason = [program for program in programs if self._is_new(program[1])], ""
        # read while the others are being built
        for (workload, candidate), listing in zip(new, bench.read_codes(new, self._build_seconds), strict=True):
            try:
                if isinstance(listing, Failed):
                    raise MalformedDataError(listing.message)
                self._codes[candidate.program_key] = machine_code_row(listing)
            except MalformedDataError as error:
                logger.debug("%s, %s: %s", workload.name, candidate.program_key, error)
                self._codeless.add(candidate.program_key)
                reason = reason or str(error)
        return reason

    def _warn(self, workload: Workload, count: int, reason: str) -> None:
        """Says once that nothing can be chosen by machine code."""
        if workload.key not in self._warned:
            self._warned.add(workload.key)
            logger.warning(
                "%s: of none of %d programs the machine code could be had, so the search alone decides; the first: %s; "
                "if they build in more than %g s, raise method.inspect.build_seconds",
                workload.name,
                count,
                " ".join(reason.split()),
                self._build_seconds,
            )
