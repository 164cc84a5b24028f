"""The folders of trained models: NAME of one training, NAME@SEED of one of several that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.files import read_json

SEED_MARK = "@"
"""Stands between the name of a model and a seed."""

TRAINING_FIELDS = ("split", "split_hash", "loss", "seconds", "learned", "seed")


@dataclass(frozen=True)
class Training:
    """How a model was trained, from its `training.json`.

    Attributes:
        model: which one it is, as in `conf/model`; empty where an older file does not say so.
        loss: what it minimised.
        learned: whether it learned from the programs.
        seed: of the training.
        seconds: how long it took.
    """

    model: str
    loss: str
    learned: bool
    seed: int
    seconds: float


def grouped(folders: Sequence[str]) -> dict[str, list[str]]:
    """Folders of every model by its name, in alphabetical order, seeds in order of their number."""
    names: dict[str, list[str]] = {}
    for folder in sorted(set(folders), key=_seed_key):
        names.setdefault(folder.partition(SEED_MARK)[0], []).append(folder)
    return dict(sorted(names.items()))


def _seed_key(folder: str) -> tuple[str, int, str]:
    name, _, seed = folder.partition(SEED_MARK)
    return name, int(seed) if seed.isdecimal() else -1, seed


def read_training(directory: Path, split: str, split_hash: str) -> Training:
    """How the model in `directory` was trained.

    Raises:
        MissingInputError: it was not, or training failed or did not finish.
        MalformedDataError: a field is missing, the seed is not that of the folder's name, or it was trained on another
            split, on other graphs or on a split of this name that was made otherwise, so that it may have learned from
            the programs that it would be tested on.
    """
    path, failed = directory / "training.json", directory / "failed.json"
    if failed.is_file() and not path.exists():
        raise MissingInputError(f"its training failed ({read_json(failed, 'train')['error']}); run `dvc repro train`")
    training: Any = read_json(path, "train")
    for field in TRAINING_FIELDS:
        if not isinstance(training, dict) or field not in training:
            raise MalformedDataError(f"{path} has no field {field}; run `dvc repro -f train`")
    if training["split"] != split:
        raise MalformedDataError(f"{path} is of the split {training['split']}, not {split}; run `dvc repro -f train`")
    if training["split_hash"] != split_hash:
        raise MalformedDataError(
            f"{path} is of other graphs or of a split made otherwise ({training['split_hash']}, now {split_hash}), the "
            "model may have learned from what are test programs now; run `dvc repro train`"
        )
    _, mark, seed = directory.name.partition(SEED_MARK)
    if mark and str(training["seed"]) != seed:
        raise MalformedDataError(
            f"{path} has seed {training['seed']}, its folder says {seed or 'nothing'}; "
            "rename the folder, or train it with that seed"
        )
    return Training(
        str(training.get("model", "")),
        str(training["loss"]),
        bool(training["learned"]),
        int(training["seed"]),
        float(training["seconds"]),
    )


def check_same_model(training: Training, kind: str, first: Training, first_kind: str, folder: str) -> None:
    """Makes sure that a folder differs in its seed from the first of the same name, and in nothing else that shows.

    Raises:
        MalformedDataError: it is another model, or has another loss.
    """
    for what, own, others in (
        ("model", training.model, first.model),
        ("loss", training.loss if training.learned else "", first.loss if first.learned else ""),
        ("kind of prediction", kind, first_kind),
    ):
        if own != others:
            raise MalformedDataError(
                f"{folder} has the {what} {own}, the other seeds of this name have {others}; give it another name"
            )


def check_new_seed(training: Training, seeds: Sequence[int], folder: str) -> None:
    """Makes sure that no seed counts twice.

    Raises:
        MalformedDataError: another folder of this name has the same seed.
    """
    if training.seed in seeds:
        raise MalformedDataError(
            f"{folder} has the seed {training.seed}, as another folder of this model; remove one of them, or train it "
            "with another seed"
        )
