"""The methods of a tuning: which cost model chooses what is measured, and how it learns; Hydra `_target_`s."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from kernelcast.errors import ConfigError
from kernelcast.tuning.choices import Strategy
from kernelcast.tuning.learning import Frozen, Learning
from kernelcast.tvm_compat import available_cores


class Method(Protocol):
    """What a configuration's `method` instantiates."""

    strategy: ClassVar[Strategy]
    """What proposes programs."""

    @property
    def label(self) -> str:
        """Its name in tables and folders."""

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """A new MetaSchedule cost model; None for a strategy that asks none.

        Args:
            root: relative folders begin here.
            target: complete.
            seed: of what it draws at random.
        """


@dataclass(frozen=True)
class Trained:
    """A trained model, used from the first trial on.

    Attributes:
        model: its folder, as `train` wrote it.
        learning: how it goes on learning from trials.
        draft: folder of a cheaper model, which chooses what this one looks at; None: it looks at all.
        verify_share: share of the candidates that it looks at then, 0 to 1.
        any_target: whether it may be used for targets that it was not trained for.
        name: in tables; None: the folder's name, that of the draft, and whether it learns.
    """

    model: str
    learning: Learning
    draft: str | None = None
    verify_share: float = 0.25
    any_target: bool = False
    name: str | None = None
    strategy: ClassVar[Strategy] = Strategy.evolutionary

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("method.model is empty; name the folder of a trained model")

    @property
    def label(self) -> str:
        """See `Method`."""
        if self.name is not None:
            return self.name
        drafted = "" if self.draft is None else f"-drafted-by-{Path(self.draft).name}"
        return f"{Path(self.model).name}{drafted}{'' if isinstance(self.learning, Frozen) else '-online'}"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """See `Method`."""
        from kernelcast.tuning.cost_model import load_cost_model

        return load_cost_model(
            root / self.model,
            self.learning,
            None if self.draft is None else root / self.draft,
            self.verify_share,
            self.any_target,
        )


@dataclass(frozen=True)
class TvmXgb:
    """TVM's XGBModel, trained on the trials alone."""

    strategy: ClassVar[Strategy] = Strategy.evolutionary
    label: ClassVar[str] = "tvm_xgb"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """See `Method`."""
        from kernelcast.tuning.peers import tvm_xgb_model

        return tvm_xgb_model(seed, available_cores())


@dataclass(frozen=True)
class TvmMlp:
    """TVM's MLPModel, trained on the trials alone."""

    strategy: ClassVar[Strategy] = Strategy.evolutionary
    label: ClassVar[str] = "tvm_mlp"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """See `Method`."""
        from kernelcast.tuning.peers import tvm_mlp_model

        return tvm_mlp_model(seed, available_cores())


@dataclass(frozen=True)
class Random:
    """Random schedules."""

    strategy: ClassVar[Strategy] = Strategy.replay_trace
    label: ClassVar[str] = "random"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """None: nothing is asked."""
        return None
