import re

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from hydra_plugins.kernelcast_optuna._space import Space, check_keys, distribution_of, override_of, space_of
from kernelcast.errors import ConfigError

PARSER = OverridesParser.create()


@pytest.mark.parametrize(
    ("sweep", "expected"),
    [
        ("choice(32,64)", CategoricalDistribution([32, 64])),
        ("choice(true,'a b',rank)", CategoricalDistribution([True, "a b", "rank"])),
        ("range(2,6)", IntDistribution(2, 5)),
        ("range(2,9,3)", IntDistribution(2, 8, step=3)),
        ("range(2,8,3)", IntDistribution(2, 5, step=3)),
        ("interval(0.0,0.5)", FloatDistribution(0.0, 0.5)),
        ("tag(log,interval(0.001,0.1))", FloatDistribution(0.001, 0.1, log=True)),
        ("int(interval(1,8))", IntDistribution(1, 8)),
    ],
)
def test_hydra_sweeps_become_distributions(sweep: str, expected: object) -> None:
    assert distribution_of(PARSER.parse_override(f"x={sweep}")) == expected


@pytest.mark.parametrize(
    "sweep", ["x=range(0.0,1.0,0.5)", "x=choice([1],[2])", "x=choice({a:1})", "x=tag(log,interval(0.0,1.0))"]
)
def test_a_sweep_that_cannot_be_sampled_is_named(sweep: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sweep)):
        distribution_of(PARSER.parse_override(sweep))


@pytest.mark.parametrize(
    "value", [None, True, False, 3, 0.25, 1e-05, "gcn", "a b", "it's", "true", "3", "a\\", "", "x=1"]
)
def test_a_value_typed_as_an_override_is_read_as_what_it_is(value: object) -> None:
    read = PARSER.parse_override(override_of("x", value)).value()
    assert getattr(read, "text", read) == value
    assert isinstance(getattr(read, "text", read), type(value))


def test_what_is_typed_wins_over_the_file() -> None:
    configured = {"a": "choice(1,2)", "b": "range(1,3)", "c": "interval(0.0,1.0)"}
    space = space_of(None, configured, ["b=7", "c=choice(0.1,0.2)", "seed=1"])
    assert space.fixed == ["b=7", "seed=1"]
    assert space.distributions == {
        "a": CategoricalDistribution([1, 2]),
        "c": CategoricalDistribution([0.1, 0.2]),
    }
    assert space.overrides({"a": 2, "c": 0.1}) == ["b=7", "seed=1", "a=2", "c=0.1"]


def test_a_study_that_chooses_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="has to choose something: name a file with hparams_search=NAME"):
        space_of(None, {}, ["seed=1"])


def test_a_key_that_is_not_there_is_named_before_any_trial() -> None:
    config = OmegaConf.create(
        {"model": {"settings": {"rounds": 3}}, "hydra": {"runtime": {"choices": {"loss": "rank"}}}}
    )
    for key in ("model.settings.rounds", "loss", "+model.settings.more"):
        check_keys(Space([], {key: IntDistribution(1, 2)}), config)
    for key in ("model.network.width", "model.settings.more", "losses"):
        with pytest.raises(ConfigError, match=f"would choose {key}"):
            check_keys(Space([], {key: IntDistribution(1, 2)}), config)
