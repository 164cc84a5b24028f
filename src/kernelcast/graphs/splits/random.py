"""Programs of every workload in every part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcast.graphs.splits.order import part_sizes, places, program_units
from kernelcast.graphs.splits.protocol import Rule, Shares, Split, split_of
from kernelcast.graphs.splits.rows import Rows


@dataclass(frozen=True)
class RandomSplit(Shares):
    """Programs of every workload in every part: how well a model knows workloads that it has seen.

    A program that several targets measured is in one part with all its rows. One program more in a workload moves at
    most three others of that workload, and none of other workloads.

    The shares are of the programs of each workload and target.
    """

    def split(self, rows: Rows) -> Split:
        """Shuffles the programs of each workload; of three or more each part gets one at least.

        Raises:
            ConfigError: no workload has three programs.
        """
        unit, stratum, keys = program_units(rows, np.ones(len(rows), dtype=bool))
        place, size = places(stratum, keys, self.seed)
        distinct, which = np.unique(size, return_inverse=True)
        sizes = np.array(
            [part_sizes(int(count), self.test_share, self.valid_share) for count in distinct], dtype=np.int64
        ).reshape(-1, 2)[which]
        test = place < sizes[:, 0]
        valid = ~test & (place < sizes.sum(axis=1))
        return split_of(test[unit], valid[unit], (Rule("program"),))
