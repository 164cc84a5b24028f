"""The workloads of whole networks held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelcast.errors import ConfigError
from kernelcast.graphs.splits.order import shapes_for
from kernelcast.graphs.splits.protocol import LEARNED_OR_TESTED, Rule, Split, check_names, check_share, split_of
from kernelcast.graphs.splits.rows import Rows

VARIANT = "/"
"""Separates the name of a network from that of a variant, as in `resnet18/unfused`."""


@dataclass(frozen=True)
class NetworkSplit:
    """Everything that a held-out network runs is tested on: how well a model knows a network that it has never seen.

    A shape that another network, or a single operator, shares with a held-out one is tested on and never learned from.
    Single operators of other shapes are learned from; validation workloads come from the other networks, if there are
    any. More programs of the same workloads move no workload from its part.

    Attributes:
        networks: names of the networks to hold out, each with its variants (`resnet18/unfused` of `resnet18`).
        valid_share: share of the remaining workloads of networks that decides when to stop, 0 to 1.
        seed: of the choice of validation workloads.
    """

    networks: Sequence[str]
    valid_share: float
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "networks", check_names("networks", self.networks))
        check_share("valid_share", self.valid_share)

    def split(self, rows: Rows) -> Split:
        """Holds the networks out.

        Raises:
            ConfigError: no program is of a network of that name, or too little is left to learn from.
        """
        held = held_networks(rows, self.networks)
        test_shapes = {
            int(rows.shape_of_workload[number])
            for number in rows.present
            if set(rows.workloads[number].networks) & {*held}
        }
        test = np.isin(rows.shape, sorted(test_shapes))
        others = rows.of_workloads([number for number in rows.present if rows.workloads[number].networks]) & ~test
        candidates = others if len(np.unique(rows.shape[others])) > 1 else ~test
        valid = np.isin(rows.shape, shapes_for(rows, candidates, self.valid_share, self.seed)) & ~test
        return split_of(test, valid, (Rule("shape"), Rule("network", LEARNED_OR_TESTED, held)))


def held_networks(rows: Rows, networks: Sequence[str]) -> tuple[str, ...]:
    """The networks of the measurements that go by the names `networks`, each with its variants.

    Raises:
        ConfigError: there is none of such a name.
    """
    known = rows.networks()
    held = tuple(label for label in known if any(_is_of(label, name) for name in networks))
    missing = [name for name in networks if not any(_is_of(label, name) for label in held)]
    if not known:
        raise ConfigError(
            f"split: cannot hold out {', '.join(networks)}: no measured workload is of a network; measure "
            "networks with `python scripts/measure.py workload=networks`, or take another file of conf/splitter"
        )
    if missing:
        raise ConfigError(
            f"split: there is no network {', '.join(missing)} in the measurements; choose from {', '.join(known)} "
            "(`networks` of the splitter), or measure it (conf/workload/networks.yaml)"
        )
    return held


def _is_of(label: str, network: str) -> bool:
    return label == network or label.startswith(network + VARIANT)
