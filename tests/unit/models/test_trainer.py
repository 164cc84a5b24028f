import pytest

from kernelcast.errors import ConfigError
from kernelcast.models.trainer import TrainerSettings

GOOD = {
    "max_epochs": 10,
    "patience": 3,
    "learning_rate": 0.1,
    "warmup_epochs": 2,
    "weight_decay": 0.0,
    "batch_programs": 10,
    "batch_elements": 100,
    "chunk_programs": 2,
    "gradient_clip": 0,
    "average_decay": 0.5,
    "threads": 1,
    "accelerator": "cpu",
}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_epochs", 0),
        ("max_epochs", 2.5),
        ("max_epochs", True),
        ("patience", 0),
        ("learning_rate", -0.1),
        ("learning_rate", 0),
        ("learning_rate", float("nan")),
        ("learning_rate", "fast"),
        ("warmup_epochs", -1),
        ("weight_decay", -1e-3),
        ("weight_decay", float("inf")),
        ("batch_programs", 0),
        ("batch_elements", 0),
        ("chunk_programs", 1),
        ("gradient_clip", -1),
        ("average_decay", 1.0),
        ("average_decay", -0.1),
        ("threads", 0),
        ("accelerator", "tpu"),
        ("precision", "16"),
        ("devices", 0),
        ("devices", "2"),
        ("strategy", "fsdp"),
    ],
)
def test_a_value_that_cannot_work_names_its_key(key, value):
    with pytest.raises(ConfigError, match=f"trainer.{key}={value}"):
        TrainerSettings(**{**GOOD, key: value})


def test_schedule_warms_up_then_falls_to_a_hundredth():
    settings = TrainerSettings(**GOOD)
    factors = [settings.learning_rate_factor(epoch) for epoch in range(11)]
    assert factors[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert factors[2:] == sorted(factors[2:], reverse=True)
    assert factors[6] == pytest.approx(0.01 + 0.99 / 2)
    assert factors[10] == pytest.approx(0.01)


def test_warm_up_longer_than_the_training_is_no_error():
    settings = TrainerSettings(**{**GOOD, "warmup_epochs": 20})
    assert settings.learning_rate_factor(9) == pytest.approx(10 / 21)
