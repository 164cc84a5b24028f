"""Programs as TVM's own cost models take them: the rows of every store, and times workload by workload."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float32

from kernelcast.errors import MalformedDataError
from kernelcast.graphs.programs import Programs
from kernelcast.models.checks import require_learnable
from kernelcast.models.losses import PairwiseRank
from kernelcast.tvm_compat import StoreGroup

VIEW = "per_store"


def require_stores(train: Programs) -> None:
    """Makes sure that TVM's models, which only rank, have something to learn.

    Raises:
        KernelcastError: there is nothing to rank.
        MalformedDataError: a label is not finite, or no program stores anything.
        ConfigError: the programs have no such view.
    """
    require_learnable(train, PairwiseRank())
    if not train.counts(VIEW, "row").any():
        raise MalformedDataError("no training program has a row in the view per_store; run `dvc repro graphs`")


def by_workload(programs: Programs) -> Programs:
    """The same programs, those of a workload together."""
    return programs.select(np.argsort(programs.workload, kind="stable"))


def rows_of_stores(programs: Programs) -> list[Float32[np.ndarray, "stores features"]]:
    """TVM's features of every store, one array a program."""
    if not len(programs):
        return []
    view = programs.view(VIEW)
    return np.split(view.values, view.row_offset[1:-1])


def store_groups(programs: Programs) -> list[StoreGroup]:
    """One group a workload, in the order of the programs, of which those of a workload must stand together."""
    if not len(programs):
        return []
    rows, seconds = rows_of_stores(programs), np.exp(programs.log_seconds).astype(np.float32)
    places = np.split(np.arange(len(programs)), np.flatnonzero(np.diff(programs.workload)) + 1)
    return [StoreGroup([rows[one] for one in part], seconds[part]) for part in places]
