"""Another split with few programs to learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.order import places
from kernelcast.graphs.splits.protocol import Split, Splitter, split_of
from kernelcast.graphs.splits.rows import Rows

BEYOND_LIMIT = "beyond the limit of programs"


@dataclass(frozen=True)
class LimitedSplit:
    """The test part of another split, and a few programs of each workload to learn from: what more measurements bring.

    A larger limit keeps the programs of a smaller one, and every limit has the same test programs.

    Attributes:
        of: the split that is limited.
        programs: programs of each workload and target in the parts that are learned from and validated on, together.
        seed: of the choice.
    """

    of: Splitter
    programs: int
    seed: int

    def __post_init__(self) -> None:
        if isinstance(self.programs, bool) or not isinstance(self.programs, int) or self.programs < 2:
            raise ConfigError(f"split: programs ({self.programs}) must be a whole number, at least 2")

    def split(self, rows: Rows) -> Split:
        """Splits, then leaves out what is beyond the limit.

        Raises:
            ConfigError: the programs cannot be split so.
        """
        whole = self.of.split(rows)
        learned = np.zeros(len(rows), dtype=bool)
        valid = np.zeros(len(rows), dtype=bool)
        test = np.zeros(len(rows), dtype=bool)
        learned[np.concatenate([whole.train, whole.valid])] = True
        valid[whole.valid] = True
        test[whole.test] = True
        numbers = np.flatnonzero(learned)
        place, _ = places(rows.stratum[numbers], rows.program_key[numbers], self.seed)
        beyond = np.zeros(len(rows), dtype=bool)
        beyond[numbers[place >= self.programs]] = True
        left_out = {}
        for reason, left in whole.left_out.items():
            left_out[reason] = np.zeros(len(rows), dtype=bool)
            left_out[reason][left] = True
        return split_of(test, valid & ~beyond, whole.rules, {**left_out, BEYOND_LIMIT: beyond})
