"""Every experiment of the page composes: its graphs and splits, and every model with its loss."""

from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from kernelcast.errors import ConfigError
from kernelcast.stages.config import register_schemas
from kernelcast.stages.experiment import check_training
from kernelcast.stages.experiment_plan import graphs_config, read_plan
from kernelcast.stages.instantiation import made

CONF = Path(__file__).resolve().parents[2] / "conf"
LABELS = [label for label in yaml.safe_load((CONF / "experiment/a100.yaml").read_text())["runs"] if label != "random"]
FILES = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))


def experiment(name: str, *overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("experiment", overrides=[f"experiment={name}", *overrides])
    OmegaConf.resolve(config)
    return config


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_names_what_there_is(name: str) -> None:
    config = experiment(name, "seeds=[0]")
    plan = read_plan(config)
    assert plan.name == name
    assert config.measurements or config.database
    distinct = {training.overrides[:-2]: training for training in plan.trainings}
    for training in distinct.values():
        check_training(training, config)
    for variant in plan.variants.values():
        asked = graphs_config(variant, plan.splits, config)
        assert set(asked.split) == set(plan.splits)
        for split in asked.split:
            assert callable(made(f"split.{split}", asked.split[split]).split)
        assert any(training.variant == variant for training in plan.trainings)


@pytest.mark.parametrize("name", FILES)
def test_five_seeds_are_the_default(name: str) -> None:
    plan = read_plan(experiment(name))
    assert {training.seed for training in plan.trainings} == {*range(5)}
    assert len(plan.trainings) == 5 * len(plan.splits) * len(plan.labels)
    # a table that was stopped early has whole seeds
    assert len({training.seed for training in plan.trainings[: len(plan.trainings) // 5]}) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seeds=[]", "seeds"),
        ("seeds=[1,1]", "none twice"),
        ("seeds=[-1]", "from 0"),
        ("metrics=[accuracy]", "there is no accuracy; choose from kendall_tau"),
        ("+runs.more={model: gcn, graphs: other}", "runs.more: there are no graphs other; choose from default"),
        ("name=a/b", "becomes a folder"),
        ("+splits.more={seed: 3}", "splits.more: expected `splitter`"),
        ("+splits.more={splitter: unknown}", "unknown"),
        ("graphs.default=['features.direction=up']", "direction"),
        ("+runs.more={model: unknown}", "runs.more: .*unknown"),
        ("+runs.more={model: random, overrides: ['trainer.speed=3']}", "runs.more: .*speed"),
        ("+runs.more={model: random, loss: unknown}", "runs.more: .*unknown"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config = experiment("a100", *(f"~runs.{label}" for label in LABELS), override)
        plan = read_plan(config)
        for training in plan.trainings:
            check_training(training, config)
        for variant in plan.variants.values():
            asked = graphs_config(variant, plan.splits, config)
            made("features", asked.features)
