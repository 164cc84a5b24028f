"""A weighted sum of losses on one output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Integer
from torch import Tensor

from kernelcast.errors import ConfigError
from kernelcast.models.batching import Labels
from kernelcast.models.losses.groups import places
from kernelcast.models.losses.protocol import Aim, Loss, Scale, require_positive
from kernelcast.models.protocol import PredictionKind


@dataclass(frozen=True)
class Combined:
    """The sum of several losses of the same prediction, each times its weight.

    A loss of log seconds makes the sum predict log seconds, and losses that only rank then pull on the differences
    of these; without one the model ranks.

    Attributes:
        losses: the terms by name.
        weights: what each counts, by the same names.

    Raises:
        ConfigError: no terms, names that differ, a weight that is not above 0, or terms that want different numbers.
    """

    losses: Mapping[str, Loss]
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        # Hydra hands its own kind of mapping, which no saved model can keep
        object.__setattr__(self, "losses", dict(self.losses))
        object.__setattr__(self, "weights", dict(self.weights))
        if not self.losses:
            raise ConfigError("loss.losses is empty: name at least one loss")
        if set(self.losses) != set(self.weights):
            raise ConfigError(
                f"loss.losses names {', '.join(self.losses)}, loss.weights names {', '.join(self.weights)}: every loss "
                "needs one weight"
            )
        for name, weight in self.weights.items():
            require_positive(f"loss.weights.{name}", weight)
        wanted = {name: loss.scale for name, loss in self.losses.items() if loss.scale is not None}
        if len(set(wanted.values())) > 1:
            told = ", ".join(f"{name} wants {scale}" for name, scale in wanted.items())
            raise ConfigError(
                f"loss.losses: one prediction cannot be {' and '.join(sorted(set(wanted.values())))} at once ({told}); "
                "leave one out, or put a loss that only ranks in its place"
            )

    @property
    def scale(self) -> Scale | None:
        """That of the terms that want one."""
        return next((loss.scale for loss in self.losses.values() if loss.scale is not None), None)

    @property
    def predicts(self) -> PredictionKind:
        """Log seconds if a term wants these."""
        return PredictionKind.LOG_SECONDS if self.scale is Scale.LOG_SECONDS else PredictionKind.RANK

    @property
    def aim(self) -> Aim | None:
        """Boosted trees minimise one thing: there is an aim only if all terms have the same on the same labels."""
        aims = {(loss.aim, loss.scale) for loss in self.losses.values()}
        return next(iter(aims))[0] if len(aims) == 1 else None

    @property
    def monitor(self) -> str:
        """The loss itself where the numbers count, else the order."""
        return "valid/kendall_tau" if self.scale is None else "valid/loss"

    @property
    def maximize(self) -> bool:
        """Whether a larger `monitor` is better."""
        return self.scale is None

    def __call__(self, prediction: Float[Tensor, "programs"], labels: Labels) -> Float[Tensor, ""]:
        """The weighted sum."""
        terms = [self.weights[name] * loss(prediction, labels) for name, loss in self.losses.items()]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def output_range(self, log_seconds: Float64[np.ndarray, "programs"]) -> tuple[float, float]:
        """That of the terms that want certain numbers."""
        wanted = [loss for loss in self.losses.values() if loss.scale is not None]
        return wanted[0].output_range(log_seconds) if wanted else (0.0, 1.0)

    def boosting_labels(
        self, log_seconds: Float64[np.ndarray, "programs"], workload: Integer[np.ndarray, "programs"]
    ) -> Float32[np.ndarray, "programs"]:
        """Those of the terms that want certain numbers, else the places."""
        wanted = [loss for loss in self.losses.values() if loss.scale is not None]
        return wanted[0].boosting_labels(log_seconds, workload) if wanted else places(log_seconds, workload)
