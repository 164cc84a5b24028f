"""The methods of a tuning: which cost model chooses what is measured, and how it learns; Hydra `_target_`s."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.tuning.choices import Strategy
from kernelcast.tuning.learning import Frozen, Learning
from kernelcast.tuning.scores import require_breadth
from kernelcast.tvm_compat import available_cores

if TYPE_CHECKING:
    from kernelcast.tuning.inspection import Inspector


class Method(Protocol):
    """What a configuration's `method` instantiates."""

    strategy: ClassVar[Strategy]
    """What proposes programs."""

    @property
    def label(self) -> str:
        """Its name in tables and folders."""

    def identity(self, root: Path) -> dict[str, Any]:
        """What a tuning that is gone on with must agree in, by the key under which a user sets it.

        Args:
            root: relative folders begin here.
        """

    def inspector(self, root: Path) -> Inspector | None:
        """What chooses, for one tuning, among programs that were built; None: what the search proposes is timed.

        Args:
            root: relative folders begin here.
        """

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """A new MetaSchedule cost model; None for a strategy that asks none.

        Args:
            root: relative folders begin here.
            target: complete.
            seed: of what it draws at random.
        """


class Untrained:
    """Methods without a trained model: they time what the search proposes, and their name says all of them."""

    def identity(self, root: Path) -> dict[str, Any]:
        """Nothing: see `Method`."""
        return {}

    def inspector(self, root: Path) -> Inspector | None:
        """None: see `Method`."""
        return None


def described(key: str, value: Any) -> dict[str, Any]:
    """A setting by the key under which a user sets it, and those within it."""
    if not is_dataclass(value):
        return {key: value}
    inside = [described(f"{key}.{field.name}", getattr(value, field.name)) for field in fields(value)]
    return {f"{key}._target_": type(value).__name__} | {name: one for found in inside for name, one in found.items()}


@dataclass(frozen=True)
class Inspect:
    """A second model looks at programs that were built, and chooses which of them are timed.

    Attributes:
        model: folder of a trained model that looks at machine code.
        learning: how it goes on learning from trials.
        factor: programs that are built for each that is timed, at least 2.
        breadth: how far the leading model is doubted where it chooses what is built, in standard deviations of its
            error, see `cost_model.Scorer`; 0: what it puts first.
        build_seconds: a program that takes longer to build is not waited for.
    """

    model: str
    learning: Learning
    factor: int = 8
    breadth: float = 0.5
    build_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("method.inspect.model is empty; name the folder of a model that looks at machine code")
        require_breadth("method.inspect.breadth", self.breadth)


@dataclass(frozen=True)
class Trained:
    """A trained model, used from the first trial on.

    Attributes:
        model: its folder, as `train` wrote it.
        learning: how it goes on learning from trials.
        draft: folder of a cheaper model, which chooses what this one looks at; None: it looks at all.
        verify_share: share of the candidates that it looks at then, 0 to 1.
        any_target: whether it may be used for targets that it was not trained for.
        name: in tables; None: the folder's name, that of the draft, whether programs are inspected, and whether it
            learns.
        inspect: has more programs built than are timed; None: what the search proposes is timed.
    """

    model: str
    learning: Learning
    draft: str | None = None
    verify_share: float = 0.25
    any_target: bool = False
    name: str | None = None
    inspect: Inspect | None = None
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
        inspected = "" if self.inspect is None else "-inspected"
        return f"{Path(self.model).name}{drafted}{inspected}{'' if isinstance(self.learning, Frozen) else '-online'}"

    def identity(self, root: Path) -> dict[str, Any]:
        """See `Method`; of the models what is in their folders, wherever these are."""
        from kernelcast.models.saved import saved_identity
        from kernelcast.tuning.trained import MODEL_FOLDER

        folders = {
            "method.model": self.model,
            "method.draft": self.draft,
            "method.inspect.model": None if self.inspect is None else self.inspect.model,
        }
        models = {
            f"the model of {key}": saved_identity(root / folder / MODEL_FOLDER)
            for key, folder in folders.items()
            if folder is not None
        }
        settings = described("method", self)
        # a tuning has its name already, and for which targets a model may be used changes none
        return models | {
            key: value for key, value in settings.items() if key not in (*folders, "method.name", "method.any_target")
        }

    def inspector(self, root: Path) -> Inspector | None:
        """See `Method`."""
        if self.inspect is None:
            return None
        from kernelcast.tuning.inspection import Inspector
        from kernelcast.tuning.trained import TrainedModel

        try:
            model = TrainedModel.load(root / self.inspect.model, self.any_target)
        except MissingInputError as error:
            # no stage of the pipeline makes it
            raise MissingInputError(
                f"method.inspect.model: there is no saved model in {root / self.inspect.model}; make it with `python "
                "scripts/graphs.py features=machine_code paths.graphs=data/machine_code` and `python scripts/train.py "
                f"model=ensemble_machine_code paths.graphs=data/machine_code output={self.inspect.model}`"
            ) from error
        return Inspector(model, self.inspect.learning, self.inspect.factor, self.inspect.build_seconds)

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """See `Method`."""
        from kernelcast.tuning.cost_model import load_cost_model

        return load_cost_model(
            root / self.model,
            self.learning,
            None if self.draft is None else root / self.draft,
            self.verify_share,
            self.any_target,
            0.0 if self.inspect is None else self.inspect.breadth,
            seed,
        )


@dataclass(frozen=True)
class TvmXgb(Untrained):
    """TVM's XGBModel, trained on the trials alone."""

    strategy: ClassVar[Strategy] = Strategy.evolutionary
    label: ClassVar[str] = "tvm_xgb"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """See `Method`."""
        from kernelcast.tuning.peers import tvm_xgb_model

        return tvm_xgb_model(seed, available_cores())


@dataclass(frozen=True)
class TvmMlp(Untrained):
    """TVM's MLPModel, trained on the trials alone."""

    strategy: ClassVar[Strategy] = Strategy.evolutionary
    label: ClassVar[str] = "tvm_mlp"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """See `Method`."""
        from kernelcast.tuning.peers import tvm_mlp_model

        return tvm_mlp_model(seed, available_cores())


@dataclass(frozen=True)
class Random(Untrained):
    """Random schedules."""

    strategy: ClassVar[Strategy] = Strategy.replay_trace
    label: ClassVar[str] = "random"

    def cost_model(self, root: Path, target: dict[str, Any], seed: int) -> Any:
        """None: nothing is asked."""
        return None
