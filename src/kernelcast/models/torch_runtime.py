"""Where torch computes and with how many threads, for as long as one model needs it."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kernelcast.errors import ConfigError
from kernelcast.models.trainer import TrainerSettings


def training_device(settings: TrainerSettings) -> torch.device:
    """Where the settings want a network to train.

    Raises:
        ConfigError: GPUs are asked for that are not there, or a precision that the processor does not have.
    """
    device = prediction_device(settings)
    if settings.accelerator == "gpu" and device.type == "cpu":
        raise ConfigError(
            "trainer.accelerator=gpu, but torch finds no GPU here: use trainer.accelerator=cpu, "
            "or install the CUDA build of torch (docs/how-to/gpu.md)"
        )
    if device.type == "cuda" and settings.devices > torch.cuda.device_count():
        raise ConfigError(
            f"trainer.devices={settings.devices}, but torch finds {torch.cuda.device_count()} GPUs here: lower it"
        )
    if device.type == "cpu" and settings.precision == "16-mixed":
        raise ConfigError("trainer.precision=16-mixed needs a GPU: use 32-true or bf16-mixed on a processor")
    return device


def prediction_device(settings: TrainerSettings) -> torch.device:
    """Where a network predicts: a model trained on a GPU also works on a machine without one."""
    return torch.device("cuda" if settings.accelerator != "cpu" and torch.cuda.is_available() else "cpu")


@contextmanager
def torch_settings(settings: TrainerSettings, seed: int) -> Iterator[None]:
    """Seed, threads and determinism for the body alone; the caller's are back afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.set_num_threads(settings.threads)
        if prediction_device(settings).type == "cuda":
            # a few sums have no deterministic form there: torch names them in a warning and goes on
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hides what Lightning says of hardware it found and of logging that the caller does itself."""
    talkers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning", "lightning_fabric")]
    levels = [talker.level for talker in talkers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        # no validation programs: training goes by its own loss
        warnings.filterwarnings("ignore", message=".*have no `val_dataloader`.*")
        try:
            for talker in talkers:
                talker.setLevel(logging.WARNING)
            yield
        finally:
            for talker, level in zip(talkers, levels, strict=True):
                talker.setLevel(level)


@contextmanager
def interrupts_reach_the_caller() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt; Lightning would make a SystemExit of it and ignore the signal from then on."""
    try:
        handler = signal.getsignal(signal.SIGINT)
        yield
    except SystemExit as exit_request:
        if not isinstance(exit_request.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from exit_request
