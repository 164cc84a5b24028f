from pathlib import Path

import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.evaluation.trained import check_new_seed, check_same_model, grouped, read_training
from kernelcast.files import write_json

WRITTEN = {
    "model": "gcn",
    "split": "random",
    "split_hash": "abc",
    "loss": "rank",
    "seconds": 2.5,
    "learned": True,
    "seed": 3,
}


def written(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True)
    write_json(folder / "training.json", WRITTEN | changes)
    return folder


def test_folders_are_grouped_by_name_and_seeds_are_in_order_of_their_number() -> None:
    folders = ["gcn@10", "xgboost", "gcn@2", "gcn-rank@0", "gcn", "gcn@2"]
    assert grouped(folders) == {"gcn": ["gcn", "gcn@2", "gcn@10"], "gcn-rank": ["gcn-rank@0"], "xgboost": ["xgboost"]}


def test_a_training_is_read(tmp_path: Path) -> None:
    training = read_training(written(tmp_path / "gcn@3"), "random", "abc")
    assert (training.model, training.loss, training.learned, training.seed, training.seconds) == (
        "gcn", "rank", True, 3, 2.5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "changes", "reason"),
    [
        ("gcn@4", {}, r"has seed 3, its folder says 4"),
        ("gcn@", {}, r"has seed 3, its folder says nothing"),
        ("gcn", {"split": "network"}, r"of the split network"),
        ("gcn", {"split_hash": "other"}, r"of other graphs or of a split made otherwise"),
    ],
)
def test_a_training_that_is_another_one_is_refused(tmp_path: Path, folder: str, changes: dict, reason: str) -> None:
    with pytest.raises(MalformedDataError, match=reason):
        read_training(written(tmp_path / folder, **changes), "random", "abc")


def test_a_training_that_did_not_finish_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="train"):
        read_training(tmp_path / "gcn", "random", "abc")


def test_seeds_of_one_name_differ_in_nothing_but_the_seed(tmp_path: Path) -> None:
    first = read_training(written(tmp_path / "gcn@3"), "random", "abc")
    same = read_training(written(tmp_path / "gcn@4", seed=4), "random", "abc")
    other = read_training(written(tmp_path / "gcn@5", seed=5, loss="log_mse"), "random", "abc")
    check_same_model(same, "rank", first, "rank", "gcn@4")
    with pytest.raises(MalformedDataError, match=r"gcn@5 has the loss log_mse, the other seeds .* have rank"):
        check_same_model(other, "rank", first, "rank", "gcn@5")
    with pytest.raises(MalformedDataError, match="kind of prediction log_seconds"):
        check_same_model(same, "log_seconds", first, "rank", "gcn@4")
    check_new_seed(same, [3], "gcn@4")
    with pytest.raises(MalformedDataError, match="gcn has the seed 3, as another folder"):
        check_new_seed(first, [3], "gcn")
