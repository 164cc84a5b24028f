"""A cost model whose time is counted, and whose last scores are remembered, whatever model it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from kernelcast.tvm_compat import load_tvm


class TimedModel:
    """Wraps a MetaSchedule cost model.

    Args:
        wrapped: TVM's, or one derived from TVM's `PyCostModel`.

    Attributes:
        cost_model: what TVM's search gets: the same with a clock.
        seconds: spent in predicting and learning so far.
        raised: what the model raised when it was last asked, before TVM made something else of it.
    """

    def __init__(self, wrapped: Any) -> None:
        # what is written in Python is asked directly: on a way through C++ its errors become RuntimeErrors
        self._wrapped = getattr(wrapped, "_inst", wrapped)
        self._scores: dict[int, float] = {}
        self.seconds = 0.0
        self.raised: BaseException | None = None
        self.cost_model = _derived(self)

    def predict(self, context: Any, candidates: Sequence[Any]) -> Any:
        """The wrapped model's scores, as they are."""
        with self._counted():
            scores = np.asarray(self._wrapped.predict(context, candidates), dtype=np.float64)
        for candidate, score in zip(candidates, scores.tolist(), strict=True):
            self._scores[hash(candidate.sch)] = score
        return scores

    def update(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        """Lets the wrapped model learn."""
        with self._counted():
            self._wrapped.update(context, candidates, results)

    def score_of(self, candidate: Any) -> float | None:
        """What the model said of a candidate that the search has just proposed; None where it said no number.

        A model that has a `score_of` itself is asked: it may give the search numbers that compare within one call only.
        """
        own = getattr(self._wrapped, "score_of", None)
        score = self._scores.get(hash(candidate.sch)) if own is None else own(candidate)
        return float(score) if score is not None and math.isfinite(score) else None

    def forget_scores(self) -> None:
        """Forgets all scores: schedules are known by where they lie in memory, which is used again."""
        self._scores.clear()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        except BaseException as error:
            self.raised = error
            raise
        finally:
            self.seconds += perf_counter() - started


def _derived(model: TimedModel) -> Any:
    load_tvm()
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.cost_model import PyCostModel

    @derived_object
    class Timed(PyCostModel):  # type: ignore[misc]
        """TVM's side of a `TimedModel`."""

        def predict(self, context: Any, candidates: Any) -> Any:
            return model.predict(context, candidates)

        def update(self, context: Any, candidates: Any, results: Any) -> None:
            model.update(context, candidates, results)

    return Timed()
