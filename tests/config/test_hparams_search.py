"""Every learned model has a search space, every key of which is a setting of that model."""

from pathlib import Path

import hydra
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from optuna.distributions import CategoricalDistribution

from hydra_plugins.kernelcast_optuna._space import check_keys, space_of
from kernelcast.stages.config import register_schemas

CONF = Path(__file__).resolve().parents[2] / "conf"
SPACES = sorted(path.stem for path in (CONF / "hparams_search").glob("*.yaml"))


def composed(*overrides: str) -> DictConfig:
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", overrides=list(overrides), return_hydra_config=True)


def learned_models() -> list[str]:
    files = sorted((CONF / "model").glob("*.yaml"))
    return [file.stem for file in files if hydra.utils.get_class(yaml.safe_load(file.read_text())["_target_"]).learned]


def test_every_learned_model_has_a_space() -> None:
    assert learned_models() == SPACES


@pytest.mark.parametrize("name", SPACES)
def test_a_space_names_settings_of_its_model_and_its_ends_make_one(name: str) -> None:
    config = composed(f"hparams_search={name}")
    assert config.hydra.runtime.choices["model"] == name
    sweeper = config.hydra.sweeper
    assert sweeper.study == name
    space = space_of(None, OmegaConf.to_container(sweeper.space), [])
    check_keys(space, config)
    assert len(space.distributions) >= 3
    # what the model has now lies inside, so that a study can find it again
    for key, distribution in space.distributions.items():
        assert distribution._contains(distribution.to_internal_repr(OmegaConf.select(config, key))), key
    ends = [
        {
            key: distribution.choices[place] if isinstance(distribution, CategoricalDistribution)
            else (distribution.low, distribution.high)[place]
            for key, distribution in space.distributions.items()
        }
        for place in (0, -1)
    ]  # fmt: skip
    for params in ends:
        overrides = space.overrides(params)
        assert all(OverridesParser.create().parse_overrides(overrides))
        trial = composed(f"hparams_search={name}", *overrides)
        loss, trainer = hydra.utils.instantiate(trial.loss), hydra.utils.instantiate(trial.trainer)
        model = hydra.utils.instantiate(trial.model, loss=loss, trainer=trainer, seed=0)
        assert model.learned


@pytest.mark.parametrize("sampler", sorted(path.stem for path in (CONF / "hydra/sweeper/sampler").glob("*.yaml")))
def test_every_sampler_draws(sampler: str) -> None:
    import optuna

    config = composed("hparams_search=gcn", f"hydra/sweeper/sampler={sampler}")
    made = hydra.utils.instantiate(config.hydra.sweeper.sampler)(seed=3)
    study = optuna.create_study(sampler=made)
    assert 0 <= study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}).params["x"] <= 1


@pytest.mark.parametrize("pruner", sorted(path.stem for path in (CONF / "hydra/sweeper/pruner").glob("*.yaml")))
def test_every_pruner_ends_the_worst_and_not_the_best(pruner: str) -> None:
    import optuna

    config = composed("hparams_search=gcn", f"hydra/sweeper/pruner={pruner}")
    made = hydra.utils.instantiate(config.hydra.sweeper.pruner)
    study = optuna.create_study(direction="maximize", pruner=made)
    pruned = {}
    for value in (*(0.1 * number for number in range(12)), 2.0, -2.0):
        trial = study.ask()
        for step in range(100):
            trial.report(value, step)
            if trial.should_prune():
                pruned[value] = step
                break
        study.tell(trial, value if value not in pruned else None, state=None if value not in pruned else
                   optuna.trial.TrialState.PRUNED)  # fmt: skip
    assert 2.0 not in pruned
    assert (-2.0 in pruned) == (pruner != "none")
