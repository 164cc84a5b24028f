"""How long, how fast and on what a neural model trains: plain settings, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Limits
from kernelcast.models.setting_checks import require_count

ACCELERATORS = ("cpu", "gpu", "auto")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of one training.

    Attributes:
        max_epochs: passes over the training programs at most.
        patience: epochs without a better validation metric before training stops.
        learning_rate: largest rate of the schedule (linear warm-up, then half a cosine down to a hundredth).
        warmup_epochs: epochs of the linear warm-up; 0 starts at the full rate.
        weight_decay: of AdamW.
        batch_programs: programs of one batch at most.
        batch_elements: graph nodes, statements or trace steps of one batch at most, whichever the network looks at; one
            larger program is a batch of its own.
        chunk_programs: programs of one workload that a batch takes together, so that they can be compared.
        gradient_clip: largest norm of the gradient; 0 turns clipping off.
        average_decay: what is kept are not the last step's weights but their moving average: each step adds a share of
            `1 - average_decay`; 0 turns averaging off. Validation looks at the average too.
        threads: torch threads; on graphs as small as these one is the fastest.
        accelerator: `cpu`, `gpu`, or `auto` (a GPU where there is one).
        precision: Lightning's name: `32-true`, `bf16-mixed` or `16-mixed`. Weights, losses and predictions of a trained
            model are in 32 bits with each.
        devices: GPUs, or processes on a processor, that train together; each takes its own batches of an epoch, and
            their gradients are averaged, so that a step sees as many times `batch_programs`.
        strategy: Lightning's name of how they work together: `auto` (alone, or else ddp), `ddp`, or
            `ddp_find_unused_parameters_true` for a network that leaves weights out in some batches.

    Raises:
        ConfigError: a value that cannot work.
    """

    max_epochs: int
    patience: int
    learning_rate: float
    warmup_epochs: int
    weight_decay: float
    batch_programs: int
    batch_elements: int
    chunk_programs: int
    gradient_clip: float
    average_decay: float
    threads: int
    accelerator: str
    precision: str = "32-true"
    devices: int = 1
    strategy: str = "auto"

    def __post_init__(self) -> None:
        for name in ("max_epochs", "patience", "batch_programs", "batch_elements", "threads", "devices"):
            require_count(f"trainer.{name}", getattr(self, name))
        require_count("trainer.chunk_programs", self.chunk_programs, 2)
        require_count("trainer.warmup_epochs", self.warmup_epochs, 0)
        _require_number("trainer.learning_rate", self.learning_rate, positive=True)
        _require_number("trainer.weight_decay", self.weight_decay)
        _require_number("trainer.gradient_clip", self.gradient_clip)
        _require_number("trainer.average_decay", self.average_decay)
        if self.average_decay >= 1:
            raise ConfigError(f"trainer.average_decay={self.average_decay}: it must be below 1")
        choices = {"accelerator": ACCELERATORS, "precision": PRECISIONS, "strategy": STRATEGIES}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"trainer.{name}={getattr(self, name)}: use one of {', '.join(known)}")

    @property
    def distributed(self) -> bool:
        """Whether training goes through a group of processes."""
        return self.devices > 1 or self.strategy != "auto"

    @property
    def batch_limits(self) -> Limits:
        """How large a batch may be."""
        return Limits(self.batch_programs, self.batch_elements)

    def learning_rate_factor(self, epoch: int) -> float:
        """Share of `learning_rate` used in `epoch` (from 0): linear warm-up, then half a cosine down to 0.01."""
        if epoch < self.warmup_epochs:
            return (epoch + 1) / (self.warmup_epochs + 1)
        progress = (epoch - self.warmup_epochs) / max(self.max_epochs - self.warmup_epochs, 1)
        return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def _require_number(key: str, value: object, *, positive: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (positive and value == 0):  # type: ignore[operator]
        raise ConfigError(f"{key}={value}: it must be a finite number {'above' if positive else 'of at least'} 0")
