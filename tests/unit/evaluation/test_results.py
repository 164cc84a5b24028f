import dataclasses
from pathlib import Path

import pytest

from kernelcast.errors import MalformedDataError, MissingInputError
from kernelcast.evaluation.results import RESULTS_FILE, Results, read_results, write_results
from kernelcast.files import read_json, write_json


def test_what_is_written_is_read_again(tmp_path: Path, results: Results) -> None:
    write_results(tmp_path, results)
    assert read_results(tmp_path) == results


def test_a_campaign_without_noise_figures_is_written_too(tmp_path: Path, results: Results) -> None:
    write_results(tmp_path, dataclasses.replace(results, noise=None))
    assert read_results(tmp_path).noise is None


def test_no_results_names_the_stage(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"results\.json.*dvc repro evaluate"):
        read_results(tmp_path)


@pytest.mark.parametrize("change", [{"version": 0}, {"surplus": 1}, {"splits": [{"split": "random"}]}, {"noise": {}}])
def test_results_of_another_form_are_refused(tmp_path: Path, results: Results, change: dict) -> None:
    write_results(tmp_path, results)
    raw = read_json(tmp_path / RESULTS_FILE, "evaluate") | change
    if "surplus" in change:
        raw["splits"][0]["models"][0]["surplus"] = 1
    write_json(tmp_path / RESULTS_FILE, raw)
    with pytest.raises(MalformedDataError, match=r"results\.json.*evaluate"):
        read_results(tmp_path)
