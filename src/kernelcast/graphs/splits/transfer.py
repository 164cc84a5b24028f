"""Few programs of some networks to learn from, with or without those of all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.network import held_networks
from kernelcast.graphs.splits.order import places, program_units
from kernelcast.graphs.splits.protocol import EACH_PART, Rule, Split, check_names, check_share, split_of
from kernelcast.graphs.splits.rows import Rows

NOT_TRANSFERRED = "of another network"


@dataclass(frozen=True)
class TransferSplit:
    """What the programs of other workloads are worth when there are a few of the workloads that matter.

    After Chen et al. 2018 (arXiv 1805.08166), section 5.3. `shots` programs of each workload of the networks are
    learned from or validated on, the others are tested on; equal seeds give equal test programs with and without the
    programs of other networks.

    Attributes:
        networks: names of the networks that matter, each with its variants.
        shots: programs of each of their workloads and targets to learn from and to validate on.
        others: whether the programs of all other workloads are learned from as well.
        valid_share: share of the shots that decides when to stop, 0 to 1.
        seed: of the choices.
    """

    networks: Sequence[str]
    shots: int
    others: bool
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "networks", check_names("networks", self.networks))
        check_share("valid_share", self.valid_share)
        if isinstance(self.shots, bool) or not isinstance(self.shots, int) or self.shots < 2:
            raise ConfigError(f"split: shots ({self.shots}) must be a whole number, at least 2")
        if not isinstance(self.others, bool):
            raise ConfigError(f"split: others ({self.others}) must be true or false")

    def split(self, rows: Rows) -> Split:
        """Draws the shots.

        Raises:
            ConfigError: no program is of a network of that name, or no workload has more programs than shots.
        """
        held = {*held_networks(rows, self.networks)}
        wanted = rows.of_workloads([number for number in rows.present if held & {*rows.workloads[number].networks}])
        # what another network shares with these is neither a shot nor new: it is in no part
        alike = np.isin(rows.shape, np.unique(rows.shape[wanted])) & ~wanted
        unit, stratum, keys = program_units(rows, wanted)
        place = places(stratum, keys, self.seed)[0][unit]
        numbers = np.flatnonzero(wanted)
        valid_shots = min(max(1, round(self.valid_share * self.shots)), self.shots - 1)
        test, valid = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
        test[numbers[place >= self.shots]] = True
        valid[numbers[place < valid_shots]] = True
        left_out = {NOT_TRANSFERRED: alike if self.others else ~wanted}
        return split_of(test, valid, (Rule("program", EACH_PART),), left_out)
