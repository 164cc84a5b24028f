"""One training of a network in Lightning: schedule, validation, early stop, best weights kept."""

from __future__ import annotations

import logging
import math
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.graphs.programs import Programs
from kernelcast.models.batching import Batch, SequentialBatches, ShuffledBatches
from kernelcast.models.losses import Loss
from kernelcast.models.networks.network import Network
from kernelcast.models.protocol import MetricLog
from kernelcast.models.trainer import TrainerSettings
from kernelcast.models.validation import mean_kendall_tau

logger = logging.getLogger(__name__)


class Training(lightning.LightningModule):
    """A network in training; keeps the weights of the best epoch.

    Args:
        network: what learns.
        loss: what it minimises.
        settings: schedule and early stop.
        log: gets every epoch's metrics.
    """

    def __init__(self, network: Network, loss: Loss, settings: TrainerSettings, log: MetricLog) -> None:
        super().__init__()
        self.network = network
        self.loss = loss
        self.settings = settings
        self.metric_log = log
        self.best_epoch = 0
        self.best_metric = math.nan
        self.best_weights = _copy_of_weights(network)
        average = get_ema_multi_avg_fn(settings.average_decay)  # type: ignore[no-untyped-call]
        self._averaged = AveragedModel(network, multi_avg_fn=average)
        self._train: list[tuple[float, int]] = []
        self._valid: list[tuple[float, int]] = []
        self._predicted: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def configure_optimizers(self) -> Any:
        """AdamW with the schedule of the settings, one step an epoch."""
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.settings.learning_rate_factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """A batch knows how to move; Lightning's own way refuses frozen dataclasses."""
        return batch.to(device)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """The loss of one batch."""
        loss = self.loss(self.network(batch), batch.labels)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise KernelcastError(
                f"the training loss became {value} in epoch {self.current_epoch}, batch {batch_index}; "
                f"lower trainer.learning_rate (now {self.settings.learning_rate:g}) or trainer.gradient_clip "
                f"(now {self.settings.gradient_clip:g}, 0 is off)"
            )
        self._train.append((value, len(batch)))
        return loss

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Collects loss and predictions of one batch of the validation programs."""
        prediction = self._averaged(batch)
        loss = self.loss(prediction, batch.labels)
        self._valid.append((float(loss), len(batch)))
        self._predicted.append(
            (prediction.cpu().numpy(), batch.labels.log_seconds.cpu().numpy(), batch.labels.workload.cpu().numpy())
        )

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        """Takes the weights of this step into their average."""
        self._averaged.update_parameters(self.network)

    def on_train_epoch_end(self) -> None:
        """Logs the epoch (validation has run by now), keeps the weights of the best, stops after `patience`."""
        metrics = self._epoch_metrics()
        self.metric_log.metrics(metrics, self.current_epoch)
        self._train, self._valid, self._predicted = [], [], []
        # without validation programs the training loss has to do
        monitored = self.loss.monitor in metrics
        metric = metrics[self.loss.monitor] if monitored else metrics.get("valid/loss", metrics["train/loss"])
        maximize = monitored and self.loss.maximize
        first = math.isnan(self.best_metric)
        if first or (metric > self.best_metric if maximize else metric < self.best_metric):
            self.best_metric, self.best_epoch = metric, self.current_epoch
            self.best_weights = _copy_of_weights(self._averaged.module)
        elif self.current_epoch - self.best_epoch >= self.settings.patience:
            self.trainer.should_stop = True
        if (self.current_epoch + 1) % 10 == 0:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            logger.info("epoch %d of at most %d: %s", self.current_epoch + 1, self.settings.max_epochs, shown)

    def _epoch_metrics(self) -> dict[str, float]:
        metrics = {"train/loss": _weighted_mean(self._train), "lr": self._current_rate()}
        if self._valid:
            metrics["valid/loss"] = _weighted_mean(self._valid)
            prediction, log_seconds, workload = (np.concatenate(part) for part in zip(*self._predicted, strict=True))
            tau = mean_kendall_tau(prediction.astype(np.float64), log_seconds.astype(np.float64), workload)
            if not math.isnan(tau):
                metrics["valid/kendall_tau"] = tau
        return metrics

    def _current_rate(self) -> float:
        return self.settings.learning_rate * self.settings.learning_rate_factor(self.current_epoch)


def train_network(
    network: Network,
    loss: Loss,
    settings: TrainerSettings,
    seed: int,
    train: Programs,
    valid: Programs,
    log: MetricLog,
) -> None:
    """Trains `network` in place and leaves it with the weights of its best epoch.

    Raises:
        KernelcastError: the loss is no longer a number.
        KeyboardInterrupt: the user stopped it.
    """
    training = Training(network, loss, settings, log)
    batches = ShuffledBatches(train, network.views, settings.batch_limits, settings.chunk_programs, seed)
    # programs of a workload side by side, so that the loss over pairs has pairs
    in_order = SequentialBatches(valid, network.views, settings.batch_limits, np.argsort(valid.workload, kind="stable"))
    with _quiet_lightning():
        trainer = lightning.Trainer(
            max_epochs=settings.max_epochs,
            accelerator="gpu" if training_device(settings).type == "cuda" else "cpu",
            devices=1,
            gradient_clip_val=settings.gradient_clip or None,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        with _interrupts_reach_the_caller():
            trainer.fit(training, batches, in_order if len(in_order) else None)
    network.load_state_dict(training.best_weights)
    network.cpu()
    logger.info(
        "trained %d epochs, kept epoch %d with %s %.4g",
        trainer.current_epoch,
        training.best_epoch + 1,
        loss.monitor if len(in_order) else "train/loss",
        training.best_metric,
    )


def training_device(settings: TrainerSettings) -> torch.device:
    """Where the settings want a network to train.

    Raises:
        ConfigError: a GPU is asked for and there is none.
    """
    device = prediction_device(settings)
    if settings.accelerator == "gpu" and device.type == "cpu":
        raise ConfigError(
            "trainer.accelerator=gpu, but torch finds no GPU here: use trainer.accelerator=cpu, "
            "or install the CUDA build of torch (README, CPU or CUDA)"
        )
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
def _quiet_lightning() -> Iterator[None]:
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
def _interrupts_reach_the_caller() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt; Lightning would make a SystemExit of it and ignore the signal from then on."""
    try:
        handler = signal.getsignal(signal.SIGINT)
        yield
    except SystemExit as exit_request:
        if not isinstance(exit_request.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from exit_request


def _weighted_mean(values: list[tuple[float, int]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else math.nan


def _copy_of_weights(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}
