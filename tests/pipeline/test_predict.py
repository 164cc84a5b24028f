"""From a registered model to predictions on the command line, equal to those of `evaluate`."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kernelcast.evaluation.predictions import read_predictions
from kernelcast.stages.loading import load_predictor
from tests.pipeline.conftest import Project

# the fixture runs the small project once, which takes long on a busy machine
pytestmark = pytest.mark.timeout(1800)


def evaluated(project: Project, model: str) -> dict[str, float]:
    """What `evaluate` wrote of the test programs."""
    table = read_predictions(project.root / "data/evaluation")
    rows = table.filter(pc.equal(table["model"], model))
    return dict(zip(rows["program_key"].to_pylist(), rows["prediction"].to_pylist(), strict=True))


@pytest.mark.parametrize("model", ["gcn", "xgboost"])
def test_predictions_are_those_of_evaluate(project: Project, model: str) -> None:
    table = load_predictor(project.root / "data/models/random" / model).predict(project.root / "data/measurements")
    found = dict(zip(table["program_key"], table["prediction"], strict=True))
    expected = evaluated(project, model)
    assert expected
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_registered_champion_predicts_by_the_script(project: Project, tmp_path: Path) -> None:
    # a registration is a run that other tests would count
    copy = Project(shutil.copytree(project.root, tmp_path / "copy"))
    (registered, _), (predicted, said), (refused, wrong) = copy.run_together(
        [
            ("scripts/register.py", "split=random", "model=xgboost"),
            ("scripts/predict.py", "model=champion", "input=data/measurements", "output=all.parquet"),
            ("scripts/predict.py", "input=nowhere.json"),
        ]
    )
    assert (registered, predicted, refused) == (0, 0, 3), said
    assert "models:/kernelcast-random/1 (xgboost, kendall_tau" in said
    table = pq.read_table(copy.root / "all.parquet")
    found = dict(zip(table["program_key"].to_pylist(), table["prediction"].to_pylist(), strict=True))
    expected = evaluated(copy, "xgboost")
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), rtol=0, atol=1e-5)
    assert "input=nowhere.json: there is no such file" in wrong
    assert "Traceback" not in wrong
