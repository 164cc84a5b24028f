"""Tuning replayed on the data set that ships: no program is built or run, so the comparison takes seconds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from tune_workloads import DATA_SET, heaviest

from kernelcast.graphs.dataset.builders import Processes
from kernelcast.graphs.dataset.building import built_store
from kernelcast.graphs.dataset.labels import Labelling
from kernelcast.graphs.dataset.selection import Choice, Folder
from kernelcast.graphs.dataset.store import Description, read_programs
from kernelcast.graphs.options import ViewOptions
from kernelcast.graphs.programs import Programs
from kernelcast.graphs.splits import NetworkSplit, make_split
from kernelcast.models.protocol import CostModel
from kernelcast.models.trained_on import TrainedOn
from kernelcast.records import Measurements, read_measurements
from kernelcast.stages.config import register_schemas
from kernelcast.stages.config_nodes import project_root
from kernelcast.stages.graphs import rows_of
from kernelcast.tuning.learning import Refit
from kernelcast.tuning.replay import ReplaySettings, replay_all
from kernelcast.tuning.replay_guides import (
    TVM_WARMUP,
    FromNothing,
    MakeGuide,
    Pretrained,
    RandomOrder,
    model_fit,
    xgb_fit,
)
from kernelcast.tuning.replay_space import MeasuredSpace, measured_spaces
from kernelcast.tuning.trained import TrainedModel

logger = logging.getLogger(__name__)

SEED = 0

VIEWS = ("features", "statements", "per_store")
"""What the models of a replay look at; `per_store` is TVM's own."""

LEARNED_FROM = 6
"""Programs of each other workload that the model of a quick run learns from: drawing their graphs takes the time."""

VALID_SHARE = 0.12
"""As in conf/splitter/network.yaml."""

TVM_TRIALS, TVM_ROUND = 256, 64
"""A tuning of TVM, whose proportions a replay keeps: the space is too small for its numbers."""

EXPLORATION = 0.05

LEARNED = "lightgbm"
"""The fastest of the models to train."""

OURS = f"{LEARNED}-online"


@dataclass(frozen=True)
class Scale:
    """A tuning of TVM shrunk to spaces of few programs.

    Attributes:
        search: trials of each workload and of a round.
        warmup: trials before TVM's models are trained for the first time.
    """

    search: ReplaySettings
    warmup: int

    @classmethod
    def of(cls, spaces: Sequence[MeasuredSpace]) -> Scale:
        """Half of the smallest space, so that there is something left to choose at the end."""
        trials = min(len(space) for space in spaces) // 2
        return cls(
            ReplaySettings(trials, max(1, trials * TVM_ROUND // TVM_TRIALS), EXPLORATION),
            max(2, round(trials * TVM_WARMUP / TVM_TRIALS)),
        )


@dataclass(frozen=True)
class Replayed:
    """What a replay found.

    Attributes:
        trials: of `TRIALS_SCHEMA`.
        ours: name of the method that the figures are about: a trained model, corrected on the way.
        model: that model.
        about: what was replayed, as figures.
    """

    trials: pa.Table
    ours: str
    model: TrainedModel
    about: dict[str, Any]


def replayed(directory: Path, networks: Sequence[str], per_network: int, seeds: Sequence[int], quick: bool) -> Replayed:
    """Replays the heaviest workloads of `networks` with models that have learned from the other ones.

    Args:
        directory: for graphs.
        networks: that are held out.
        per_network: workloads of each.
        seeds: of the searches.
        quick: learns from few programs and leaves TVM's MLPModel out, whose trainings would take most of the time.
    """
    whole = read_measurements(DATA_SET)
    chosen = heaviest(whole, networks, per_network)
    measurements = _part(whole, networks, [workload.key for workload in chosen], LEARNED_FROM if quick else None)
    # a second process needs longer to start than it saves where programs are few
    programs, description = _graphs(directory / "graphs", measurements, Processes(1 if quick else None))
    models = _models(measurements, programs, description, networks)
    learned = models[LEARNED]
    keys = {workload.key for workload in chosen}
    spaces = [space for space in measured_spaces(measurements, programs, description) if space.workload_key in keys]
    scale = Scale.of(spaces)
    guides: dict[str, MakeGuide] = {
        "random": RandomOrder,
        **{name: Pretrained.frozen(one.model) for name, one in models.items()},
        OURS: Pretrained.learning(learned.model, Refit(), learned.slope, learned.residual),
        "tvm_xgb": FromNothing.maker(xgb_fit(), scale.warmup),
    }
    if not quick:
        guides["tvm_mlp"] = FromNothing.maker(model_fit(lambda: _configured("tvm_mlp", "rank")), scale.warmup)
    trials = replay_all(spaces, guides, scale.search, seeds)
    logger.info("replayed %d trials of %d workloads", trials.num_rows, len(spaces))
    about = {
        "workloads": [space.workload_name for space in spaces],
        "programs_of_a_space": [min(map(len, spaces)), max(map(len, spaces))],
        "trials_per_round": scale.search.trials_per_round,
        "tvm_warmup": scale.warmup,
    }
    return Replayed(trials, OURS, learned, about)


def _part(whole: Measurements, networks: Sequence[str], keys: Sequence[str], learned_from: int | None) -> Measurements:
    """All rows of the workloads `keys`, and so many random ones of each that no held-out network runs."""
    random = np.random.default_rng(SEED)
    column = np.asarray(whole.table["workload_key"].to_pylist(), dtype=object)
    rows = []
    for key, workload in whole.workloads.items():
        own = np.flatnonzero(column == key)
        if key in keys:
            rows.append(own)
        elif not {*networks} & {*workload.networks}:
            rows.append(own if learned_from is None else random.permutation(own)[:learned_from])
    return Measurements(whole.campaign, whole.workloads, whole.table.take(np.sort(np.concatenate(rows))))


def _graphs(directory: Path, measurements: Measurements, builder: Processes) -> tuple[Programs, Description]:
    with built_store(
        directory,
        [Folder(measurements, "")],
        Choice(Labelling()),
        ViewOptions(views=VIEWS),
        builder,
        4096,
        lambda done, total: None,
    ) as (_, description):
        pass
    return read_programs(directory), description


def _models(
    measurements: Measurements, programs: Programs, description: Description, networks: Sequence[str]
) -> dict[str, TrainedModel]:
    """The analytical model and LightGBM, fitted to workloads that share no shape with those of `networks`."""
    rows = rows_of(programs, description, [Folder(measurements, "")])
    split = make_split(NetworkSplit(networks, VALID_SHARE, SEED), rows)
    train, valid = programs.select(split.train), programs.select(split.valid)
    models = {}
    for name in ("analytical", LEARNED):
        model = _configured(name, "log_mse")
        model.fit(train, valid, _Silent())
        # what is scored is for this machine with all its cores, whatever the data set was measured on
        models[name] = TrainedModel(model, TrainedOn.of(model, valid, description), any_target=True)
        logger.info("%s: fitted to %d programs of workloads that are not replayed", name, len(train))
    return models


def _configured(model: str, loss: str) -> CostModel:
    """The model of `conf/model/NAME.yaml`, not fitted."""
    register_schemas()
    with initialize_config_dir(str(Path(project_root()) / "conf"), version_base="1.3"):
        config = compose("train", [f"model={model}", f"loss={loss}"])
    made: CostModel = instantiate(
        config.model, loss=instantiate(config.loss), trainer=instantiate(config.trainer), seed=SEED
    )
    return made


class _Silent:
    """A `MetricLog` that keeps nothing."""

    def metrics(self, values: Mapping[str, float], step: int) -> None:
        """Keeps nothing."""
