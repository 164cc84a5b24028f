import json
from collections import OrderedDict
from functools import partial

import pytest

from kernelcast.errors import ConfigError, MalformedDataError
from kernelcast.models.description import describe, describe_factory, plain, resolve_class, revive, revive_factory
from kernelcast.models.losses import Combined, LogMSE, PairwiseRank
from kernelcast.models.networks.gcn import GCN


def test_a_settings_dataclass_comes_back_equal():
    loss = PairwiseRank(surrogate="logistic", margin=0.5)
    assert revive(describe(loss)) == loss


def test_settings_within_settings_come_back_equal_through_json():
    loss = Combined({"time": LogMSE(), "order": PairwiseRank(margin=0.5)}, {"time": 1.0, "order": 0.2})
    assert revive(json.loads(json.dumps(describe(loss)))) == loss


def test_a_factory_comes_back_with_its_arguments():
    factory = revive_factory(describe_factory(partial(GCN, width=3, readout=("mean",))))
    assert factory.func is GCN
    assert factory.keywords == {"width": 3, "readout": ["mean"]}


@pytest.mark.parametrize(
    "path", ["builtins.eval", "kernelcast.modelsx.Model", "kernelcast.models.neural.np", 3, None, ""]
)
def test_only_classes_of_the_models_are_resolved(path):
    with pytest.raises(MalformedDataError):
        resolve_class(path)


def test_arguments_that_do_not_fit_are_malformed():
    for arguments in ({"unknown": 1}, {"surrogate": "square"}):
        with pytest.raises(MalformedDataError, match="train it again"):
            revive({"class": "kernelcast.models.losses.pairwise.PairwiseRank", "arguments": arguments})
    with pytest.raises(MalformedDataError, match="train it again"):
        revive({"class": "kernelcast.models.losses.pairwise.PairwiseRank"})


def test_a_factory_must_be_a_class_with_named_arguments():
    for factory in (partial(GCN, 3), lambda **widths: None, partial(OrderedDict)):
        with pytest.raises(ConfigError):
            describe_factory(factory)


def test_plain_makes_lists_and_dictionaries_pythons_own():
    assert plain(OrderedDict(a=(1, [2]), b="text")) == {"a": [1, [2]], "b": "text"}
    assert type(plain(OrderedDict())) is dict
