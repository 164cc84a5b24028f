import csv
import dataclasses
import json
import logging
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pytest
from omegaconf import OmegaConf

from kernelcast.errors import ConfigError, KernelcastError, MalformedDataError, MissingInputError
from kernelcast.evaluation.predictions import predictions_of, read_predictions
from kernelcast.evaluation.recorded_predictions import RECORDED_FILE, Recorded, write_recorded
from kernelcast.evaluation.results import read_results
from kernelcast.evaluation.summary import summarise
from kernelcast.files import json_hash, read_json, write_json
from kernelcast.graphs.dataset.selection import measurements_hash
from kernelcast.graphs.dataset.store import read_data_hash, read_description, read_programs
from kernelcast.graphs.splits import (
    RandomSplit,
    Rows,
    Split,
    SplitWorkload,
    make_split,
    read_split,
    read_split_hash,
    write_split,
)
from kernelcast.models.saved import load_model
from kernelcast.records import measurement_table, read_measurements, write_measurements
from kernelcast.stages.evaluate import bootstrap_settings, evaluate, named_as_in_graphs

CONF = Path(__file__).resolve().parents[3] / "conf"


@pytest.fixture(scope="module")
def evaluated(trained_folder, tmp_path_factory: pytest.TempPathFactory):
    folder = trained_folder.copy(tmp_path_factory.mktemp("evaluated"))
    evaluate(folder.config)
    return folder


@pytest.fixture
def folder(evaluated, tmp_path: Path):
    """A copy with results and a tracking database, to break."""
    return evaluated.copy(tmp_path)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_model_and_the_noise_ceiling_are_scored_on_every_split(evaluated) -> None:
    results = read_results(evaluated.root / "data/evaluation")
    assert {split.split: [model.model for model in split.models] for split in results.splits} == {
        "random": ["measured again", "xgboost", "random"],
        "workload": ["measured again", "xgboost", "random"],
    }
    assert results.missing == ()
    assert [split.known_workloads for split in results.splits] == [True, False]
    assert [split.resampling for split in results.splits] == ["programs", "workloads and programs"]
    assert results.noise is not None
    assert (results.noise.source, results.noise.programs, results.noise.unpaired) == ("visits", 32, 128)
    assert 1 < results.noise.ratio_median.value < 1.02
    # four workloads of eight programs each
    assert 0.9 * 4 * 28 < results.noise.comparisons <= 4 * 28
    again = {split.split: split.models[0] for split in results.splits}
    assert again["random"].programs == 32
    assert again["workload"].programs == 8 * len(results.splits[1].test_workloads)
    assert (results.label, results.reference_correction, results.spread_limit) == ("minimum", "none", None)


def recorded_instead(folder, split: str, name: str, programs: int | None = None) -> None:
    """Takes the model away, and leaves what it predicted, for the first `programs` alone."""
    directory = folder.root / "data/models" / split / name
    table = predictions_of(read_predictions(folder.root / "data/evaluation"), split, name)
    kind = str(load_model(directory / "model").kind)
    shutil.rmtree(directory / "model")
    values = table["prediction"].to_numpy()[:programs]
    training = read_json(directory / "training.json", "train")
    write_recorded(directory / RECORDED_FILE, [Recorded(name, training, kind, 7.0, values)])


def test_what_a_model_predicted_once_stands_for_it(folder) -> None:
    before = read_results(folder.root / "data/evaluation")
    recorded_instead(folder, "random", "xgboost")
    evaluate(folder.config)
    after = read_results(folder.root / "data/evaluation")
    assert after.missing == ()
    was, now = (
        next(model for model in results.splits[0].models if model.model == "xgboost") for results in (before, after)
    )
    assert now.predict_microseconds == 7.0
    assert dataclasses.replace(now, predict_microseconds=was.predict_microseconds) == was


def test_predictions_for_other_programs_are_not_taken(folder) -> None:
    recorded_instead(folder, "random", "xgboost", programs=5)
    evaluate(folder.config)
    (missing,) = read_results(folder.root / "data/evaluation").missing
    assert missing.reason.startswith("the model xgboost predicts an array of shape (5,) for 64 programs")


def first_visits_only(folder) -> None:
    """Takes the second visits from the measurements, as in a folder of the first release."""
    directory = folder.root / "data/measurements"
    lists = ("run_seconds", "visit", "round_index", "calls", "reference_seconds", "ended_at")
    rows = read_measurements(directory).table.to_pylist()
    write_measurements(directory, measurement_table(row | {name: row[name][:4] for name in lists} for row in rows))


def test_without_second_visits_the_halves_of_the_first_stand_in_and_say_so(
    folder, capsys: pytest.CaptureFixture[str]
) -> None:
    first_visits_only(folder)
    evaluate(folder.config)
    results = read_results(folder.root / "data/evaluation")
    assert [split.models[0].model for split in results.splits] == ["odd rounds", "odd rounds"]
    assert (results.noise.source, results.noise.programs) == ("halves", 160)
    assert results.splits[0].models[0].programs == results.splits[0].test_programs
    printed = capsys.readouterr().out
    assert "no program was measured again" in " ".join(printed.split())
    assert (folder.root / "data/evaluation/metrics/random/odd_rounds.json").is_file()
    assert not (folder.root / "data/evaluation/metrics/random/measured_again.json").exists()


def test_one_round_leaves_no_ceiling_and_says_so(
    folder, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = folder.root / "data/measurements"
    lists = ("run_seconds", "visit", "round_index", "calls", "reference_seconds", "ended_at")
    rows = read_measurements(directory).table.to_pylist()
    write_measurements(directory, measurement_table(row | {name: row[name][:1] for name in lists} for row in rows))
    with caplog.at_level(logging.WARNING):
        evaluate(folder.config)
    assert "no noise ceiling on the random split" in caplog.text
    assert "No noise ceiling:" in capsys.readouterr().out
    results = read_results(folder.root / "data/evaluation")
    assert results.noise is None
    assert [model.model for model in results.splits[0].models] == ["xgboost", "random"]
    run = mlflow.MlflowClient(folder.config.tracking.uri).search_runs(["1"])[0]
    assert not [name for name in run.data.metrics if name.startswith("noise/")]


def test_a_model_that_learned_something_is_told_from_chance_and_a_random_one_is_not(evaluated) -> None:
    metrics = read_json(evaluated.root / "data/evaluation/metrics.json", "evaluate")
    for split in ("random", "workload"):
        assert metrics[split]["xgboost"]["kendall_tau_low"] > 0.3
        assert metrics[split]["random"]["kendall_tau_low"] < 0 < metrics[split]["random"]["kendall_tau_high"]
        assert metrics[split]["measured again"]["kendall_tau"] > 0.95
        assert "mape" not in metrics[split]["random"]
        assert 0 < metrics[split]["xgboost"]["mape"] < 2


def test_the_figures_are_those_of_the_saved_model_on_the_test_programs(evaluated) -> None:
    data = evaluated.root / "data"
    programs = read_programs(data / "graphs")
    test = programs.select(read_split(data / "graphs", "workload").test)
    model = load_model(data / "models/workload/xgboost/model")
    predicted = model.predict(test)
    noise = read_results(data / "evaluation").noise
    expected = summarise(test, predicted, model.kind, noise.ratio_p90.value).overall
    metrics = read_json(data / "evaluation/metrics.json", "evaluate")["workload"]["xgboost"]
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    table = read_predictions(data / "evaluation").to_pylist()
    stored = [row for row in table if (row["split"], row["model"]) == ("workload", "xgboost")]
    assert [row["program_key"] for row in stored] == test.program_key.tolist()
    np.testing.assert_allclose([row["prediction"] for row in stored], predicted)
    np.testing.assert_allclose([row["log_seconds"] for row in stored], test.log_seconds)


def test_unseen_workloads_are_the_default_and_every_usual_figure_is_there(evaluated) -> None:
    # TEN-05: relative errors, errors of order and what a tuner would lose, for all and for each workload; that nothing
    # is on two sides is asked in graphs/splits/test_leaks.py, the weights of networks below
    assert OmegaConf.load(CONF / "train.yaml").split == "workload"
    usual = {"log_rmse", "mape", "pairwise_accuracy", "kendall_tau", "spearman", "top_1", "top_5"}
    data = evaluated.root / "data"
    assert usual <= set(read_json(data / "evaluation/metrics.json", "evaluate")["workload"]["xgboost"])
    with (data / "evaluation/per_workload.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if (row["split"], row["model"]) == ("workload", "xgboost")]
    programs = read_programs(data / "graphs")
    test = programs.select(read_split(data / "graphs", "workload").test)
    assert {row["workload"] for row in rows} == {test.workload_names[number] for number in set(test.workload.tolist())}
    assert all(row[name] for row in rows for name in usual)


def test_all_files_are_there(evaluated) -> None:
    directory = evaluated.root / "data/evaluation"
    assert {row["name"] for row in rows_of(directory / "table.csv")} >= {"xgboost (random)", "random (workload)"}
    assert {row["metric"] for row in rows_of(directory / "leaderboard.csv")} >= {"kendall_tau", "top_1", "mape"}
    assert {row["workload"] for row in rows_of(directory / "per_workload.csv") if row["split"] == "random"} == {
        "matmul", "conv2d", "softmax", "layer_norm",
    }  # fmt: skip
    assert {row["model"] for row in rows_of(directory / "learning.csv")} == {"xgboost"}
    # no workload of this folder is of a network
    assert rows_of(directory / "per_network.csv") == []
    compared = rows_of(directory / "comparisons.csv")
    assert {(row["model"], row["other"], row["split"]) for row in compared} == {
        ("xgboost", "random", "random"), ("xgboost", "random", "workload"),
    }  # fmt: skip
    assert {row["metric"] for row in compared} >= {"kendall_tau", "top_1", "clear_pairwise_accuracy"}
    assert {path.name for path in (directory / "plots").iterdir()} == {
        "leaderboard.png", "machine_state.png", "random_xgboost.png", "random_random.png", "random_tau_by_workload.png",
        "workload_xgboost.png", "workload_random.png", "workload_tau_by_workload.png",
    }  # fmt: skip
    one = json.loads((directory / "metrics/random/measured_again.json").read_text())
    assert one == read_json(directory / "metrics.json", "evaluate")["random"]["measured again"]


def test_the_run_is_tracked(evaluated) -> None:
    client = mlflow.MlflowClient(evaluated.config.tracking.uri)
    (run,) = client.search_runs(["1"])
    assert run.info.status == "FINISHED"
    assert run.data.tags["kernelcast.stage"] == "evaluate"
    assert run.data.metrics["random/xgboost/kendall_tau"] > 0.3
    assert run.data.metrics["noise/visits/programs"] == 32
    assert 1 < run.data.metrics["noise/visits/ratio_median"] < run.data.metrics["noise/visits/ratio_p90"] < 1.03
    assert run.data.metrics["noise/visits/kendall_tau"] > 0.9
    # what came in is what the stages before put out
    graphs = evaluated.root / "data/graphs"
    assert {entry.dataset.name: entry.dataset.digest for entry in run.inputs.dataset_inputs} == {
        "measurements": measurements_hash(evaluated.root / "data/measurements"),
        "graphs": read_data_hash(graphs)[:16],
        **{f"split {name}": read_split_hash(graphs, name) for name in ("random", "workload")},
    }
    assert {item.path for item in client.list_artifacts(run.info.run_id)} >= {"plots", "table.csv", "results.json"}


def test_the_table_is_printed(folder, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(folder.config)
    printed = capsys.readouterr().out
    for expected in ("workloads seen in training", "never seen in training", "xgboost", "measured again", "Noise:"):
        assert expected in printed


def no_model_file(model: Path) -> None:
    (model / "model/trees.ubj").unlink()


def torn_model_file(model: Path) -> None:
    (model / "model/trees.ubj").write_bytes(b"torn")


def no_training_file(model: Path) -> None:
    (model / "training.json").unlink()


def of_another_split(model: Path) -> None:
    write_json(model / "training.json", read_json(model / "training.json", "train") | {"split": "network"})


def split_rows(graphs: Path) -> Rows:
    """What a splitter sees of a store."""
    programs, description = read_programs(graphs), read_description(graphs)
    return Rows(
        programs.workload.astype(np.int64),
        programs.target.astype(np.int64),
        programs.program_key,
        tuple(SplitWorkload(**dataclasses.asdict(workload)) for workload in description.workloads),
        tuple(target.target for target in description.targets),
    )


def of_a_split_made_otherwise(model: Path) -> None:
    # the same programs and the same name, other rows: the model has learned from some of what is tested on
    graphs = model.parents[2] / "graphs"
    rows = split_rows(graphs)
    write_split(graphs, "random", make_split(RandomSplit(0.4, 0.1, seed=1), rows), rows, read_data_hash(graphs), {})
    # the other model of this split is trained anew
    other = model.with_name("random") / "training.json"
    write_json(other, read_json(other, "train") | {"split_hash": read_split_hash(graphs, "random")})


def of_unknown_programs(model: Path) -> None:
    training = read_json(model / "training.json", "train")
    del training["split_hash"]
    write_json(model / "training.json", training)


def no_folder(model: Path) -> None:
    shutil.rmtree(model)


@pytest.mark.parametrize(
    "fault",
    [
        no_model_file,
        torn_model_file,
        no_training_file,
        of_another_split,
        of_a_split_made_otherwise,
        of_unknown_programs,
        no_folder,
    ],
    ids=lambda fault: fault.__name__,
)
def test_a_model_that_cannot_be_used_is_listed_and_the_others_are_scored(
    folder, fault, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    fault(folder.root / "data/models/random/xgboost")
    with caplog.at_level(logging.WARNING):
        evaluate(folder.config)
    results = read_results(folder.root / "data/evaluation")
    (missing,) = results.missing
    assert (missing.split, missing.model) == ("random", "xgboost")
    assert "train" in missing.reason
    assert "xgboost on the random split is left out" in caplog.text
    assert "not evaluated" in capsys.readouterr().out
    assert [model.model for model in results.splits[0].models] == ["measured again", "random"]
    assert [model.model for model in results.splits[1].models] == ["measured again", "xgboost", "random"]
    assert not (folder.root / "data/evaluation/plots/random_xgboost.png").exists()


def trained_again(folder, split: str, name: str, seed: int) -> Path:
    """Another seed of xgboost, which another seed leaves as it is, on one split."""
    source = folder.root / "data/models" / split / "xgboost"
    target = source.with_name(name)
    shutil.copytree(source, target)
    write_json(target / "training.json", read_json(source / "training.json", "train") | {"seed": seed, "seconds": 2.5})
    return target


def test_seeds_of_a_model_are_one_row_and_a_seed_that_cannot_be_used_is_listed(
    folder, caplog: pytest.LogCaptureFixture
) -> None:
    trained_again(folder, "random", "xgboost@1", 1)
    trained_again(folder, "random", "xgboost@2", 2)
    of_another_split(trained_again(folder, "random", "xgboost@3", 3))
    # as many as the folder without a seed in its name has
    trained_again(folder, "random", "xgboost@0", 0)
    # no other split has it
    trained_again(folder, "random", "other@5", 5)
    data = folder.root / "data"
    before = read_results(data / "evaluation")
    evaluate(folder.config)
    results = read_results(data / "evaluation")
    (found,) = (model for model in results.splits[0].models if model.model == "xgboost")
    assert (found.seeds, found.folders) == ((0, 1, 2), ("xgboost", "xgboost@1", "xgboost@2"))
    (single,) = (model for model in before.splits[0].models if model.model == "xgboost")
    for name, estimate in found.metrics.items():
        # three times the same predictions
        assert estimate.value == pytest.approx(single.metrics[name].value)
        assert (estimate.low, estimate.high) == pytest.approx((single.metrics[name].low, single.metrics[name].high))
        assert estimate.seed_deviation == pytest.approx(0.0, abs=1e-12)
    assert found.train_seconds == pytest.approx((1.5 + 2.5 + 2.5) / 3)
    assert found.train_seconds_deviation == pytest.approx(np.std([1.5, 2.5, 2.5], ddof=1))
    reasons = {(entry.split, entry.model): entry.reason for entry in results.missing}
    assert set(reasons) == {("random", "xgboost@3"), ("random", "xgboost@0"), ("workload", "other")}
    assert "of the split network" in reasons["random", "xgboost@3"]
    assert "has the seed 0" in reasons["random", "xgboost@0"]
    assert "xgboost@3 on the random split is left out" in caplog.text
    # the other split has one seed, as before
    assert [model.seeds for model in results.splits[1].models] == [(), (0,), (0,)]
    predictions = read_predictions(data / "evaluation").to_pylist()
    assert {row["seed"] for row in predictions if (row["split"], row["model"]) == ("random", "xgboost")} == {0, 1, 2}
    rows = [row for row in rows_of(data / "evaluation/leaderboard.csv") if row["split"] == "random"]
    assert {row["seeds"] for row in rows if row["model"] == "xgboost"} == {"3"}
    learning = {(row["split"], row["model"]) for row in rows_of(data / "evaluation/learning.csv")}
    assert ("random", "xgboost@2") in learning


def test_networks_are_scored_by_how_often_they_run_a_workload(folder) -> None:
    graphs = folder.root / "data/graphs"
    meta = read_json(graphs / "meta.json", "graphs")
    for workload, runs in zip(
        meta["description"]["workloads"], ({"a": 2}, {"a": 1, "b": 1}, {}, {"b": 3}), strict=True
    ):
        workload["networks"] = runs
    del meta["hash"]
    write_json(graphs / "meta.json", {**meta, "hash": json_hash(meta)})
    evaluate(folder.config)
    rows = rows_of(folder.root / "data/evaluation/per_network.csv")
    found = {(row["model"], row["network"], row["test_workloads"]) for row in rows if row["split"] == "random"}
    assert found == {(model, network, "2") for model in ("xgboost", "random") for network in ("a", "b")}
    assert all(float(row["top_1_low"]) <= float(row["top_1"]) <= float(row["top_1_high"]) for row in rows)
    board = rows_of(folder.root / "data/evaluation/leaderboard.csv")
    assert {row["aggregation"] for row in board if row["metric"] == "top_5" and row["split"] == "random"} == {
        "workloads", "task weight", "networks",
    }  # fmt: skip


def test_no_model_at_all_names_the_stage_that_makes_them(folder) -> None:
    shutil.rmtree(folder.root / "data/models")
    with pytest.raises(MissingInputError, match=r"no trained model in .*models; run `dvc repro train`"):
        evaluate(folder.config)


def test_no_usable_model_fails_with_the_reasons_and_leaves_the_old_results(folder) -> None:
    before = (folder.root / "data/evaluation/results.json").read_bytes()
    for path in (folder.root / "data/models").glob("*/*/training.json"):
        path.unlink()
    with pytest.raises(MissingInputError, match=r"none of the models .*xgboost on workload: .*training\.json"):
        evaluate(folder.config)
    assert (folder.root / "data/evaluation/results.json").read_bytes() == before


@pytest.mark.parametrize("stage", ["graphs", "measurements"])
def test_a_missing_input_names_the_stage_that_makes_it(folder, stage: str) -> None:
    shutil.rmtree(folder.root / "data" / stage)
    with pytest.raises(MissingInputError, match=r"dvc repro (graphs|measure)"):
        evaluate(folder.config)


@pytest.mark.parametrize("change", [{"confidence": 1.0}, {"confidence": 0.0}, {"bootstrap_samples": 0}], ids=str)
def test_a_setting_that_cannot_work_is_named_before_any_work(trained_folder, change: dict) -> None:
    config = trained_folder.config
    config.update(change)
    with pytest.raises(ConfigError, match=next(iter(change))):
        bootstrap_settings(config)


def test_interrupted_writing_leaves_no_results_that_look_whole(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    # a folder in the place of a file makes writing fail half-way
    plots = folder.root / "data/evaluation/per_workload.csv"
    plots.unlink()
    plots.mkdir()
    with pytest.raises((OSError, KernelcastError)):
        evaluate(folder.config)
    assert not (folder.root / "data/evaluation/results.json").exists()
    assert not (folder.root / "data/evaluation/metrics.json").exists()


def test_a_split_without_test_programs_is_explained(folder) -> None:
    graphs = folder.root / "data/graphs"
    rows = split_rows(graphs)
    nothing = np.zeros(0, dtype=np.int64)
    split = Split(np.arange(len(rows)), nothing, nothing)
    write_split(graphs, "random", split, rows, read_data_hash(graphs), {})
    with pytest.raises(MalformedDataError, match=r"split random .* no test programs"):
        evaluate(folder.config)


def test_changed_programs_are_not_evaluated(folder) -> None:
    path = next((folder.root / "data/graphs/shards").rglob("features.values.npy"))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(MalformedDataError, match=r"was changed since it was written; run `dvc repro graphs`"):
        evaluate(folder.config)


def test_measurements_are_found_by_what_the_graphs_call_a_workload(folder) -> None:
    # the graphs tell two shapes of one name, or two targets, apart
    graphs = folder.root / "data/graphs"
    programs, description = read_programs(graphs), read_description(graphs)
    renamed = [dataclasses.replace(each, name=f"{each.name} on 2 cores") for each in description.workloads]
    programs = dataclasses.replace(programs, workload_names=tuple(each.name for each in renamed))
    description = dataclasses.replace(description, workloads=tuple(renamed))
    measurements = read_measurements(folder.root / "data/measurements")
    named = named_as_in_graphs(measurements, programs, description)
    assert set(named["workload_name"].to_pylist()) == set(programs.workload_names)
    assert named.num_rows == measurements.measured.num_rows
    # another target's rows say nothing about these programs
    elsewhere = dataclasses.replace(programs, targets=('{"kind": "cuda"}',))
    assert named_as_in_graphs(measurements, elsewhere, description).num_rows == 0
