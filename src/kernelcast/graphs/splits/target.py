"""Targets held out, with a few of their programs to learn from or none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.order import places, program_units, shapes_for
from kernelcast.graphs.splits.protocol import EACH_PART, LEARNED_OR_TESTED, Rule, Split, check_share, split_of
from kernelcast.graphs.splits.rows import Rows, numbers_in

SEEN_WORKLOAD = "on the held-out target, of a workload that is learned from"
HELD_OUT_WORKLOAD = "on a target that is learned from, of a held-out workload"


@dataclass(frozen=True)
class TargetSplit:
    """Learns on some targets and is tested on others: how well a model carries over to a machine it has hardly seen.

    The same program may be learned from on one target and tested on another: what it does there is the question.
    All `shots` are learned from and none of them validates, so k shots are k measurements on the new machine and no
    more; validation programs come from the other targets, and are never among the shots. A larger k keeps the shots of
    a smaller one. More programs move a validation program or a shot of their own workload only.

    Attributes:
        hold_out: entries that a target must have to be tested on, such as `{kind: cuda}`.
        shots: programs of each workload of each held-out target that are learned from; 0 is zero-shot.
        workload_share: share of the workloads that are tested on and not learned from on any target, 0 to 1; with 0 all
            workloads are both. Programs of the held-out target of other workloads are then in no part, but for shots.
        valid_share: share of the programs of each workload on the other targets that decides when to stop, 0 to 1.
        seed: of all choices.
    """

    hold_out: Mapping[str, Any] | None
    shots: int
    workload_share: float
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        if self.hold_out is not None and not isinstance(self.hold_out, Mapping):
            raise ConfigError(
                f"split: hold_out must be entries of a target such as {{kind: cuda}}, got {self.hold_out!r}"
            )
        if isinstance(self.shots, bool) or not isinstance(self.shots, int) or self.shots < 0:
            raise ConfigError(f"split: shots must be a number of programs, 0 or more, got {self.shots!r}")
        check_share("workload_share", self.workload_share, zero=True)
        check_share("valid_share", self.valid_share)

    def split(self, rows: Rows) -> Split:
        """Holds the targets out.

        Raises:
            ConfigError: no target has these entries, or every one has them, or too little is left.
        """
        tested = np.isin(rows.target, self._held_targets(rows))
        kept_away = np.zeros(len(rows), dtype=bool)
        if self.workload_share:
            kept_away = np.isin(rows.shape, shapes_for(rows, tested, self.workload_share, self.seed))
        shot = self._shots(rows, tested & ~kept_away)
        learned = ~tested & ~kept_away
        test = tested & ~shot
        left_out = {}
        rules: tuple[Rule, ...] = (
            Rule("target", LEARNED_OR_TESTED, shots=self.shots),
            Rule("program", EACH_PART[:2]),
        )
        if self.workload_share:
            left_out = {SEEN_WORKLOAD: test & ~kept_away, HELD_OUT_WORKLOAD: ~tested & kept_away}
            test &= kept_away
            rules += (Rule("shape", LEARNED_OR_TESTED),)
        return split_of(test, self._valid(rows, learned, shot), rules, left_out)

    def _held_targets(self, rows: Rows) -> list[int]:
        present = numbers_in(rows.target).tolist()
        wanted = json.loads(json.dumps(self.hold_out or {}, default=_plain))
        held = [number for number in present if wanted and _has(rows.targets[number], wanted)]
        if not held or len(held) == len(present):
            asked = f"no target of the measurements has {json.dumps(wanted)}" if wanted else "hold_out names no target"
            if held:
                asked = f"every target of the measurements has {json.dumps(wanted)}, so none is left to learn from"
            raise ConfigError(f"split: {asked}; set hold_out to entries that tell these apart: {rows.shown_targets()}")
        return held

    def _shots(self, rows: Rows, among: np.ndarray) -> np.ndarray:
        """Whether each row is a shot: the first programs of each workload and target in a random order."""
        chosen = np.zeros(len(rows), dtype=bool)
        numbers = np.flatnonzero(among)
        place, _ = places(rows.stratum[numbers], rows.program_key[numbers], self.seed)
        chosen[numbers[place < self.shots]] = True
        return chosen

    def _valid(self, rows: Rows, learned: np.ndarray, shot: np.ndarray) -> np.ndarray:
        """Whether each row validates: a share of the programs of each stratum, out of those that are no shots."""
        unit, stratum, keys = program_units(rows, learned)
        _, which, sizes = np.unique(stratum, return_inverse=True, return_counts=True)
        wanted = np.minimum(np.maximum(1, np.round(self.valid_share * sizes)), sizes - 1)[which]
        free = np.flatnonzero(~np.isin(keys, rows.program_key[shot]))
        # another order than that of the shots
        place, _ = places(stratum[free], keys[free], self.seed + 1)
        drawn = np.zeros(len(keys), dtype=bool)
        drawn[free] = place < wanted[free]
        valid = np.zeros(len(rows), dtype=bool)
        valid[np.flatnonzero(learned)] = drawn[unit]
        return valid


def _has(target: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in target and target[name] == value for name, value in wanted.items())


def _plain(container: Any) -> Any:
    # mappings and lists of OmegaConf, which this layer does not know
    return dict(container) if hasattr(container, "keys") else list(container)
