"""Whole workloads in one part each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.order import part_sizes, shapes_in_turn
from kernelcast.graphs.splits.protocol import PARTS, Rule, Shares, Split, split_of
from kernelcast.graphs.splits.rows import Rows


@dataclass(frozen=True)
class WorkloadSplit(Shares):
    """Whole workloads in one part each: how well a model knows workloads that it has never seen.

    Workloads of one shape stay together, whatever they are called. More programs of the same workloads move none, and
    nor does another numbering; a new workload moves a few at the borders of the parts.

    The shares are of the workloads, counted by shape.
    """

    def split(self, rows: Rows) -> Split:
        """Draws test, then validation workloads, in turn over the operator kinds.

        Raises:
            ConfigError: fewer than three workloads of different shapes have rows.
        """
        order = shapes_in_turn(rows, rows.shape, self.seed)
        if len(order) < len(PARTS):
            raise ConfigError(
                f"a split by workload needs at least {len(PARTS)} workloads of different shapes with measured "
                f"programs, there {'is' if len(order) == 1 else 'are'} {len(order)}; measure more "
                "(conf/workload)"
            )
        test, valid = part_sizes(len(order), self.test_share, self.valid_share)
        return split_of(
            np.isin(rows.shape, order[:test]), np.isin(rows.shape, order[test : test + valid]), (Rule("shape"),)
        )
