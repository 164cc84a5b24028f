"""What a network or a user's program is asked for with, and what is refused before any work."""

from typing import Any

import pytest

from kernelcast.errors import ConfigError
from kernelcast.networks import catalogue, own


def test_the_unfused_network_has_a_name_of_its_own() -> None:
    assert catalogue.resnet18("entry").label == "entry"
    assert catalogue.resnet18("entry", fused=False, network="resnet18").label == "resnet18/unfused"


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (catalogue.resnet18, {"batch": 0}, r"workload\.net\.batch must be a positive integer, got 0"),
        (catalogue.dqn, {"actions": True}, r"workload\.net\.actions must be a positive integer, got True"),
        (catalogue.lstm, {"fused": "no"}, r"workload\.net\.fused must be true or false, got 'no'"),
        (catalogue.dcgan, {"network": "a/unfused"}, r"workload\.net\.network must be a name"),
        (catalogue.bert, {"hidden": 100, "heads": 3}, r"hidden \(100\) must be a multiple of heads \(3\)"),
        (catalogue.bert, {"heads": 0}, r"workload\.net\.heads must be a positive integer"),
        (catalogue.vit, {"image": 100}, r"image \(100\) must be a multiple of patch \(16\)"),
        (own.own_function, {"file": "", "function": "f"}, r"workload\.net\.file must be a name"),
        (own.own_function, {"file": "f.py", "function": 3}, r"workload\.net\.function must be a name, got 3"),
        (own.own_function, {"file": "f.py", "function": "f", "arguments": [1]}, "must be a mapping"),
        (own.own_function, {"file": "f.py", "function": "f", "arguments": {"a": object()}}, "only numbers, texts"),
        (own.own_network, {"file": "f.py", "module": "m", "example": None}, r"workload\.net\.example must be a name"),
    ],
)
def test_settings_that_cannot_work_are_refused(make: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("net", **arguments)
