import dataclasses
import io
import re

import pytest
from rich.console import Console

from kernelcast.evaluation.results import ModelResult, Results, Role
from kernelcast.evaluation.terminal import comparison_sentence, ranked, terminal_tables


def printed(results: Results, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO())
    for table in terminal_tables(results, width):
        console.print(table)
    return console.file.getvalue()


def test_the_terminal_shows_every_model_with_its_interval_and_what_is_missing(results: Results) -> None:
    text = printed(results)
    for expected in (
        "random split: workloads seen in training",
        "workload split: workloads never seen in training",
        "0.500 [0.300, 0.600]",
        "measured again",
        "40.0%",
        "13 test programs of 3 workloads",
        "bootstrap intervals over programs",
        "lonely",
        "not evaluated",
        "model.json does not exist",
    ):
        assert expected in " ".join(text.split()), expected


def test_what_looks_like_markup_is_shown_as_it_is(results: Results) -> None:
    missing = [dataclasses.replace(results.missing[0], reason="features.views=[trace] has [/] no ast")]
    assert "features.views=[trace] has [/] no ast" in printed(dataclasses.replace(results, missing=missing), 200)


def test_a_model_of_ranks_shows_a_dash_for_errors_of_time(results: Results) -> None:
    line = next(line for line in printed(results).splitlines() if "gcn" in line)
    assert line.split() == [
        "1", "gcn", "0.500", "[0.300,", "0.600]", "0.040", "53%", "-", "-", "-", "-", "1.5", "s", "4.2", "µs",
    ]  # fmt: skip


def test_seeds_have_a_column_only_where_there_are_several(results: Results) -> None:
    assert "± seeds" in printed(results)
    models = tuple(dataclasses.replace(model, seeds=model.seeds[:1]) for model in results.splits[0].models)
    single = dataclasses.replace(results, splits=(dataclasses.replace(results.splits[0], models=models),))
    assert "± seeds" not in printed(single)


def many_models(results: Results) -> Results:
    """Twenty models with long names and everything defined on four splits."""
    xgboost = next(model for model in results.splits[0].models if model.model == "xgboost")
    metrics = dict.fromkeys(("top_1", "top_5", "tile_size_ape"), xgboost.metrics["mape"]) | xgboost.metrics
    models: tuple[ModelResult, ...] = tuple(
        dataclasses.replace(
            xgboost, model=f"dataflow_mlp-log_mse-{number:02}", metrics=metrics, seeds=(0, 1, 2), train_seconds=123.4
        )
        for number in range(20)
    )
    splits = tuple(dataclasses.replace(results.splits[0], split=f"split{number}", models=models) for number in range(4))
    return dataclasses.replace(results, splits=splits)


def test_twenty_models_stay_within_the_width(results: Results) -> None:
    lines = printed(many_models(results)).splitlines()
    assert max(map(len, lines)) <= 120
    of_models = [line for line in lines if "dataflow_mlp" in line]
    assert len(of_models) == 4 * 20
    # nothing is cut off or folded
    assert all(line.split()[1].startswith("dataflow_mlp-log_mse-") for line in of_models)
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_has_fewer_columns_and_every_model_by_name(results: Results, width: int) -> None:
    text = printed(many_models(results), width)
    of_models = [line for line in text.splitlines() if "dataflow_mlp" in line]
    assert len(of_models) == 4 * 20
    assert all(line.split()[1].startswith("dataflow_mlp-log_mse-") for line in of_models)
    assert "…" not in text
    assert " tau [95% interval]" in text
    assert re.search(r"The terminal is too narrow for .*train, predict; the files have all", " ".join(text.split()))
    assert "too narrow" not in printed(results)


def test_places_skip_the_ceiling(results: Results) -> None:
    assert [(place, model.model) for place, model in ranked(results.splits[0])] == [
        ("", "measured again"), ("1", "gcn"), ("2", "xgboost"), ("3", "random"),
    ]  # fmt: skip


def test_better_is_said_only_where_interval_and_p_both_show_it(results: Results) -> None:
    sentence = comparison_sentence(results.splits[0], 0.95)
    assert "gcn has the highest tau. Shown to be better than xgboost." in sentence
    # its p is small, its interval holds zero
    assert "Not shown to be better than random (+0.550 [-0.100, 0.900], p 3e-04)" in sentence
    assert "over 12 workloads" in sentence
    assert "So few workloads" not in sentence


def test_few_workloads_are_said_to_be_too_few(results: Results) -> None:
    few = tuple(dataclasses.replace(entry, workloads=4) for entry in results.splits[0].comparisons)
    assert "So few workloads allow no such p" in comparison_sentence(
        dataclasses.replace(results.splits[0], comparisons=few), 0.95
    )


def test_a_split_of_one_model_has_nothing_to_compare(results: Results) -> None:
    alone = [model for model in results.splits[0].models if model.role != Role.BASELINE][:2]
    split = dataclasses.replace(results.splits[0], models=tuple(alone), comparisons=())
    assert comparison_sentence(split, 0.95) == "On the random split there are no two models to compare."
