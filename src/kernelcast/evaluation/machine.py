"""The machine's state over a campaign, as its reference kernel saw it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from kernelcast.graphs.dataset.labels import known_reference
from kernelcast.graphs.dataset.repeats import Repeats
from kernelcast.records import Measurements

NEAR_BEST = 1.05
"""Up to this many times its best the reference kernel counts as undisturbed."""

SPEED_BINS = 50

STRETCHES = 48
"""Into so many stretches of equal length the campaign is cut to see the machine drift."""

MOST_OF_THE_REPEATS = 0.99
"""Share of the repeats that the bins of speeds divide among them; the last one also takes all slower ones."""


@dataclass(frozen=True)
class MachineState:
    """The reference kernel's time beside every repeat of one device.

    Attributes:
        device: its name.
        minutes: end of each repeat, since the first one of the campaign, ascending.
        slowdown: time of the reference kernel over its best one on this device.
        median: of `slowdown`.
        p90: of `slowdown`, the 90th percentile.
        near_best: share of the repeats whose `slowdown` is at most `NEAR_BEST`.
    """

    device: str
    minutes: Float64[np.ndarray, "repeats"]
    slowdown: Float64[np.ndarray, "repeats"]
    median: float
    p90: float
    near_best: float

    @property
    def stretch_minutes(self) -> float:
        """Length of a stretch of the campaign."""
        return float(self.minutes[-1]) / STRETCHES

    def stretches(self) -> tuple[Float64[np.ndarray, "stretches"], Float64[np.ndarray, "stretches"]]:
        """Middle, in minutes, and median slowdown of every stretch of the campaign with repeats in it."""
        length = self.stretch_minutes
        number = np.minimum((self.minutes / length).astype(np.int64) if length else 0, STRETCHES - 1)
        number = np.broadcast_to(number, self.minutes.shape)
        used = np.unique(number)
        medians = np.array([np.median(self.slowdown[number == stretch]) for stretch in used])
        return (used + 0.5) * length, medians

    def thinned(self, most: int) -> tuple[Float64[np.ndarray, "kept"], Float64[np.ndarray, "kept"]]:
        """At most `most` of the points, evenly chosen over the time."""
        count = len(self.minutes)
        kept: Int64[np.ndarray, "kept"] = np.arange(count)
        if count > most:
            kept = np.linspace(0, count - 1, most).round().astype(np.int64)
        return self.minutes[kept], self.slowdown[kept]


def machine_states(measurements: Measurements) -> list[MachineState]:
    """The state of each device that timed a reference kernel, by name; empty where none did."""
    table = measurements.table
    repeats = Repeats.of(table)
    usable = repeats.select(known_reference(repeats) & np.isfinite(repeats.ended_at))
    if not len(usable):
        return []
    names = np.asarray(table["device"].to_numpy(), dtype=object)[usable.row]
    start = usable.ended_at.min()
    states = []
    for device in sorted(set(names)):
        own = usable.select(names == device)
        order = np.argsort(own.ended_at, kind="stable")
        slowdown = own.reference_seconds[order] / own.reference_seconds.min()
        median, p90 = np.percentile(slowdown, [50, 90])
        states.append(
            MachineState(
                device=str(device),
                minutes=(own.ended_at[order] - start) / 60,
                slowdown=slowdown,
                median=float(median),
                p90=float(p90),
                near_best=float(np.mean(slowdown <= NEAR_BEST)),
            )
        )
    return states


def speeds(states: list[MachineState]) -> tuple[Float64[np.ndarray, "edges"], list[Float64[np.ndarray, "bins"]]]:
    """Edges of the bins of `slowdown` that all devices share, and each device's share of repeats in every bin.

    A few very slow repeats would leave no bin to the others, so the last bin takes all from its lower edge on.
    """
    everything = np.concatenate([state.slowdown for state in states])
    # the next repeat from there on, so that no bin is empty for being between two
    last = max(float(np.quantile(everything, MOST_OF_THE_REPEATS, method="higher")), NEAR_BEST)
    edges = np.linspace(1.0, last, SPEED_BINS + 1)
    shares = [np.histogram(np.minimum(state.slowdown, last), edges)[0] / len(state.slowdown) for state in states]
    return edges, shares


def state_sentence(states: list[MachineState]) -> str:
    """How undisturbed the machine was, in one sentence a device."""
    sentences = [
        f"{state.near_best:.0%} of the {len(state.slowdown):,} repeats were timed while the reference kernel was "
        f"within {NEAR_BEST - 1:.0%} of its best time (median {state.median:.2f}, 90th percentile {state.p90:.2f})."
        for state in states
    ]
    if len(states) > 1:
        sentences = [f"{state.device}: {sentence}" for state, sentence in zip(states, sentences, strict=True)]
    return " ".join(sentences)


def drift_sentence(states: list[MachineState]) -> str:
    """How the machine's speed changed over the campaign, in one sentence a device; empty where nobody knows."""
    sentences = []
    for state in states:
        minutes, medians = state.stretches()
        name = f"{state.device}: the" if len(states) > 1 else "Drift: the"
        if len(medians) < 2:
            sentences.append(f"{name} campaign is too short to drift.")
            continue
        slowest = int(np.argmax(medians))
        sentences.append(
            f"{name} median of the reference kernel went from {medians[0]:.3f} of its best in the first to "
            f"{medians[-1]:.3f} in the last of {len(medians)} stretches of {state.stretch_minutes:.3g} minutes; "
            f"the slowest was {medians[slowest]:.3f}, {minutes[slowest]:.0f} minutes in."
        )
    return " ".join(sentences)
