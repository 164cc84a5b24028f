"""`Programs`: a set of measured programs, the one thing every cost model takes.

What a model looks at is a *view*; where the arrays of a view are, in memory or in shards on disk, is the business of
its source. So a subset is a list of row numbers, and only the programs of a batch are ever read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float64, Int16, Int32, Int64

from kernelcast.errors import ConfigError
from kernelcast.graphs.ragged import View
from kernelcast.graphs.views import AstGraphs, FlatFeatures
from kernelcast.machine import Calibration


@dataclass(frozen=True)
class Machine:
    """What a model without learning knows of the machine that measured.

    Attributes:
        cores: cores the target uses.
        vector_lanes: float32 lanes of one vector register.
        peak_flops_per_second: of these cores together.
        bytes_per_second: main memory, read plus written.
        cache_bytes: size of the last cache level that one core has for itself.
        calibration: more about its speeds; None where nobody measured them.
    """

    cores: int
    vector_lanes: int
    peak_flops_per_second: float
    bytes_per_second: float
    cache_bytes: int
    calibration: Calibration | None = None


class Source(Protocol):
    """Where the arrays of one view are; a `View` is one itself."""

    def __len__(self) -> int:
        """Programs."""

    def select(self, rows: Int64[np.ndarray, " rows"]) -> View:
        """The programs of `rows`, in that order, in memory; reads nothing of the others."""

    def counts(self, axis: str) -> Int64[np.ndarray, " programs"]:
        """Rows along `axis` of each program."""

    def columns(self) -> dict[str, tuple[str, ...]]:
        """The column names by field."""


@dataclass(frozen=True)
class Programs:
    """Measured programs with everything a cost model may look at.

    Attributes:
        sources: where the arrays of each view are, by the name of the view.
        rows: which rows of the sources these programs are.
        log_seconds: natural logarithm of the run time in seconds, the label.
        workload: which workload each belongs to, an index into `workload_names`; one workload measured on two targets
            counts as two, since only times of one target can be compared.
        workload_names: names of all workloads of the data set, also of those without a row here.
        target: what each was measured on, an index into `targets` and `machines`.
        targets: the targets as JSON.
        machines: what measured each target; None where nobody knows.
        program_key: structural hash of each scheduled module; of its trace where there is no module.
        feature_version: version of the views; a model refuses programs of another version.
    """

    sources: Mapping[str, Source]
    rows: Int64[np.ndarray, " programs"]
    log_seconds: Float64[np.ndarray, " programs"]
    workload: Int32[np.ndarray, " programs"]
    workload_names: tuple[str, ...]
    target: Int16[np.ndarray, " programs"]
    targets: tuple[str, ...]
    machines: tuple[Machine | None, ...]
    program_key: np.ndarray
    feature_version: str

    @classmethod
    def in_memory(cls, views: Mapping[str, View], **columns: Any) -> Programs:
        """Programs whose views are whole arrays, in the order of the other arguments; one target unless told."""
        count = len(columns["log_seconds"])
        columns.setdefault("target", np.zeros(count, dtype=np.int16))
        columns.setdefault("targets", ("{}",))
        columns.setdefault("machines", (None,) * len(columns["targets"]))
        return cls(sources=views, rows=np.arange(count, dtype=np.int64), **columns)

    def __len__(self) -> int:
        return len(self.log_seconds)

    def select(self, rows: Int64[np.ndarray, " rows"]) -> Programs:
        """The programs of `rows`, in that order; reads no view."""
        rows = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            rows=self.rows[rows],
            log_seconds=self.log_seconds[rows],
            workload=self.workload[rows],
            target=self.target[rows],
            program_key=self.program_key[rows],
        )

    def view(self, name: str, rows: Int64[np.ndarray, " rows"] | None = None) -> Any:
        """The view `name` of the programs `rows`, of all of them by default, in memory.

        Raises:
            ConfigError: these programs have no such view.
        """
        source = self._source(name)
        if rows is not None:
            return source.select(self.rows[np.asarray(rows, dtype=np.int64)])
        if isinstance(source, View) and np.array_equal(self.rows, np.arange(len(source))):
            return source
        return source.select(self.rows)

    def counts(self, name: str, axis: str) -> Int64[np.ndarray, " programs"]:
        """Rows along `axis` of each program in the view `name`, without reading it."""
        return self._source(name).counts(axis)[self.rows]

    def columns(self, name: str) -> dict[str, tuple[str, ...]]:
        """The column names of the view `name`, by field."""
        return self._source(name).columns()

    @property
    def ast(self) -> AstGraphs:
        """The syntax trees of all programs, in memory; for many programs read `view("ast", rows)` in pieces."""
        view: AstGraphs = self.view("ast")
        return view

    @cached_property
    def features(self) -> FlatFeatures:
        """The flat features of all programs, in memory."""
        view: FlatFeatures = self.view("features")
        return view

    def _source(self, name: str) -> Source:
        if name not in self.sources:
            raise ConfigError(
                f"these programs have no view `{name}`, only {', '.join(self.sources)}; add it to features.views and "
                "run `dvc repro graphs`, or choose a model that looks at another view (programs of a TVM that this one "
                "cannot read have the trace view only)"
            )
        return self.sources[name]
