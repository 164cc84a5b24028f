"""The stage `register`: the best model of a split in the MLflow Model Registry, the better one as `champion`."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from kernelcast.errors import ConfigError, MissingInputError
from kernelcast.files import read_json

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

    from kernelcast.evaluation.results import ModelResult, Results
    from kernelcast.stages.tracking import TrackedRun

logger = logging.getLogger(__name__)

CHAMPION = "champion"
NAME, MAIN_SPLIT = "kernelcast", "workload"
"""The registered model of this split has the plain name; of another one the split's is added."""

MODEL_ARTIFACT = "model"
TRAINING_ARTIFACT = "training"
"""Names of what a registered model brings along."""


@dataclass(frozen=True)
class Candidate:
    """A trained model that is to be registered.

    Attributes:
        folder: has the model and `training.json`.
        result: its figures.
        training: how it was trained.
    """

    folder: Path
    result: ModelResult
    training: Mapping[str, Any]


def register(config: DictConfig) -> None:
    """Registers a model of `config` (schema `RegisterConfig`) as a new version, unless it is there already.

    It becomes the champion if there is none, or if it is better than the champion on the same test programs.

    Raises:
        ConfigError: there is no such split, model or metric.
        MissingInputError: `evaluate` has not run, or the model is gone.
    """
    from kernelcast.evaluation.results import read_results
    from kernelcast.stages.tracking import tracked_run

    results = read_results(Path(config.paths.evaluation))
    candidate = best_candidate(results, config)
    name = config.name or registered_name(config.split)
    with tracked_run(config, f"register {name}", "register") as run:
        run.require_store("the registry is there")
        run.dataset("graphs", candidate.training["data_hash"], Path(config.paths.graphs))
        known = version_of(run.client, name, candidate)
        version = known or new_version(run, name, candidate, config)
        logger.info(
            "%s on %s is version %s of %s%s",
            candidate.folder.name, config.split, version.version, name, ", as before" if known else "",
        )  # fmt: skip
        decide_champion(run.client, name, version, config)


def registered_name(split: str) -> str:
    """The name of the registered model whose champion the test programs of `split` decide."""
    return NAME if split == MAIN_SPLIT else f"{NAME}-{split}"


def best_candidate(results: Results, config: DictConfig) -> Candidate:
    """The model that is asked for, or the best learned one, of its seeds that with the best validation metric.

    Raises:
        ConfigError: there is no such split, model or metric.
        MissingInputError: its folder is gone.
    """
    from kernelcast.evaluation.experiment_record import best_of
    from kernelcast.evaluation.results import Role
    from kernelcast.evaluation.summary import METRIC_BY_NAME

    if config.metric not in METRIC_BY_NAME:
        raise ConfigError(f"metric={config.metric} is not known; choose from {', '.join(METRIC_BY_NAME)}")
    splits = {split.split: split for split in results.splits}
    if config.split not in splits:
        raise ConfigError(f"split={config.split} was not evaluated; choose from {', '.join(splits)}")
    models = [model for model in splits[config.split].models if model.role != Role.CEILING]
    if config.model_name is None:
        models = [model for model in models if model.role == Role.LEARNED]
    else:
        known = ", ".join(model.model for model in models)
        models = [model for model in models if model.model == config.model_name]
        if not models:
            raise ConfigError(f"model={config.model_name} was not evaluated on {config.split}; choose from {known}")
    best = best_of(models, config.metric)
    if best is None:
        raise ConfigError(f"no model of the split {config.split} has a value of metric={config.metric}")
    folders = [Path(config.paths.models, config.split, name) for name in best.folders or (best.model,)]
    sign = 1 if METRIC_BY_NAME[config.metric].higher_is_better else -1
    found = [Candidate(folder, best, read_json(folder / "training.json", "train")) for folder in folders]
    if any("feature_version" not in each.training for each in found):
        raise MissingInputError(f"{folders[0]} was trained by an older kernelcast; run `dvc repro -f train`")
    # the test programs chose the model, they must not choose the seed as well
    return max(found, key=lambda each: sign * each.training["metrics"].get(f"valid/{config.metric}", -sign * 1e9))


def version_of(client: MlflowClient, name: str, candidate: Candidate) -> ModelVersion | None:
    """The version that this very training has already."""
    from mlflow.exceptions import MlflowException

    try:
        client.get_registered_model(name)
    except MlflowException:
        return None
    versions = client.search_model_versions(f"name = '{name}'")
    return next((each for each in versions if each.tags["training_run"] == candidate.training["mlflow_run_id"]), None)


def new_version(run: TrackedRun, name: str, candidate: Candidate, config: DictConfig) -> ModelVersion:
    """Stores the model with the run and registers it, with all that tells what it is as tags."""
    from mlflow.exceptions import MlflowException

    with tempfile.TemporaryDirectory() as scratch:
        packed = Path(scratch, "packed")
        pack(candidate, packed)
        run.artifact(packed, "registered")
    try:
        run.client.get_registered_model(name)
    except MlflowException:
        run.client.create_registered_model(name, description=f"Cost models, by their test on the split {config.split}.")
    training, estimate = candidate.training, candidate.result.metrics[config.metric]
    source = f"{run.client.get_run(run.run_id).info.artifact_uri}/registered"
    tags = {
        "model": candidate.result.model,
        "seed": str(training["seed"]),
        "split": str(config.split),
        "split_hash": str(training["split_hash"]),
        "data_hash": str(training["data_hash"]),
        "kind": str(training["kind"]),
        "unit": str(training["unit"]),
        "metric": str(config.metric),
        "value": repr(estimate.value),
        "interval": f"[{estimate.low:.4f}, {estimate.high:.4f}]",
        "training_run": str(training["mlflow_run_id"]),
    }
    return run.client.create_model_version(name, source, run.run_id, tags=tags)


def pack(candidate: Candidate, directory: Path) -> None:
    """Writes the model as MLflow loads it, with its signature; no pickle."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    from kernelcast.files import write_json

    with tempfile.TemporaryDirectory() as scratch:
        training = Path(scratch, "training.json")
        write_json(training, {**candidate.training, "trace_version": trace_version()})
        mlflow.pyfunc.save_model(
            directory,
            python_model=str(Path(__file__).with_name("registered_model.py")),
            artifacts={MODEL_ARTIFACT: str(candidate.folder / "model"), TRAINING_ARTIFACT: str(training)},
            signature=ModelSignature(
                inputs=Schema([ColSpec("string", name, required=False) for name in ("graphs", "trace", "workload")]),
                outputs=Schema(
                    [ColSpec("string", "workload"), ColSpec("string", "program"), ColSpec("double", "prediction")]
                ),
            ),
            metadata={"unit": candidate.training["unit"], "split_hash": candidate.training["split_hash"]},
            pip_requirements=requirements(candidate.folder),
        )


def requirements(folder: Path) -> list[str]:
    """The versions of the libraries that the model was saved by; kernelcast itself comes from its checkout."""
    libraries = read_json(folder / "model" / "model.json", "train")["libraries"]
    # the build of torch (+cpu) is the machine's business
    return [f"{name}=={version.partition('+')[0]}" for name, version in libraries.items() if name != "kernelcast"]


def trace_version() -> str:
    """A hash of how this kernelcast reads schedule traces."""
    from kernelcast.graphs.dataset.store import feature_version
    from kernelcast.graphs.options import ViewOptions
    from kernelcast.graphs.trace import trace_view

    return feature_version(ViewOptions(views=("trace",)), {"trace": trace_view([]).columns()})


def decide_champion(client: MlflowClient, name: str, version: ModelVersion, config: DictConfig) -> None:
    """Gives the alias `champion` to a version that may have it; a better champion keeps it, and the log says so."""
    from mlflow.exceptions import MlflowException

    try:
        champion = client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException:
        champion = None
    if champion is not None and champion.version == version.version:
        logger.info("it is the champion already")
        return
    if champion is not None and not config.replace:
        reason = reason_against(champion.tags, version.tags)
        if reason:
            logger.warning("version %s stays the champion of %s: %s", champion.version, name, reason)
            return
    client.set_registered_model_alias(name, CHAMPION, version.version)
    logger.info("it is the champion now: models:/%s@%s", name, CHAMPION)


def reason_against(champion: Mapping[str, str], challenger: Mapping[str, str]) -> str:
    """Why a version may not replace the champion; empty where it may."""
    from kernelcast.evaluation.summary import METRIC_BY_NAME

    if champion["split_hash"] != challenger["split_hash"]:
        return "it was tested on other programs, so the two cannot be compared; replace=true makes this one champion"
    metric = challenger["metric"]
    if champion["metric"] != metric:
        return f"it was chosen by {champion['metric']}, not by {metric}; replace=true makes this one champion"
    sign = 1 if METRIC_BY_NAME[metric].higher_is_better else -1
    if sign * float(challenger["value"]) > sign * float(champion["value"]):
        return ""
    return (
        f"its {metric} is {float(champion['value']):.4f}, this one's {float(challenger['value']):.4f}; replace=true "
        "makes this one champion all the same"
    )
