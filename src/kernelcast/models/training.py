"""One training of a network in Lightning: schedule, validation, early stop, best weights kept, resumed after a kill."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.graphs.programs import Programs
from kernelcast.models.batching import Batch, SequentialBatches, ShuffledBatches
from kernelcast.models.best_epoch import BestEpoch
from kernelcast.models.epoch_report import EpochReport
from kernelcast.models.losses import Loss
from kernelcast.models.networks.network import Network
from kernelcast.models.processes import OwnProcesses, companions
from kernelcast.models.protocol import MetricLog
from kernelcast.models.resuming import STATE, AtomicCheckpoints, ResumePoint, SaveEveryEpoch, find_resume_point
from kernelcast.models.torch_runtime import (
    interrupts_reach_the_caller,
    quiet_lightning,
    torch_settings,
    training_device,
)
from kernelcast.models.trainer import TrainerSettings
from kernelcast.models.validation import mean_kendall_tau

logger = logging.getLogger(__name__)

NAMED_WORKLOADS = 3
"""Workloads of a batch that an error names; the others are counted."""


@dataclass(frozen=True)
class TrainingJob:
    """All that decides how a training goes.

    Attributes:
        network: what learns.
        loss: what it minimises.
        settings: schedule and early stop.
        seed: of the orders of batches and of dropout.
        train: programs to learn from.
        valid: programs that decide when to stop; may be none.
        identity: a hash over all of these; what a killed training left counts only for an equal one.
    """

    network: Network
    loss: Loss
    settings: TrainerSettings
    seed: int
    train: Programs
    valid: Programs
    identity: str = ""


class EpochBatches:
    """The batches of each epoch that one of several processes takes; all take equally many.

    Args:
        batches: of all processes.
        rank: number of this process.
        processes: how many there are.
        first_epoch: the epoch that training begins with; Lightning asks for its batches before it says so.
    """

    def __init__(self, batches: ShuffledBatches, rank: int, processes: int, first_epoch: int) -> None:
        self._batches = batches
        self._rank = rank
        self._processes = processes
        self.epoch = first_epoch
        self.count = 0

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The rows of the batches of this process in `epoch`.

        Raises:
            ConfigError: there are fewer batches than processes.
        """
        plan = self._batches.plan(epoch)
        shared = len(plan) // self._processes * self._processes
        if not shared:
            raise ConfigError(
                f"trainer.devices={self._processes}, but an epoch has {len(plan)} batches: lower trainer.devices or "
                "trainer.batch_programs"
            )
        return plan[self._rank : shared : self._processes]

    def __iter__(self) -> Iterator[Batch]:
        plan = self.plan(self.epoch)
        self.count = len(plan)
        return (self._batches.read(rows) for rows in plan)


class Training(lightning.LightningModule):
    """A network in training; keeps the weights of the best epoch.

    Args:
        job: what trains on what.
        batches: of this process.
        valid_batches: batches of validation programs that count in this process.
        log: gets every epoch's metrics; None in all processes but the first.
        report: tells how far it is.
    """

    def __init__(
        self,
        job: TrainingJob,
        batches: EpochBatches,
        valid_batches: int,
        log: MetricLog | None,
        report: EpochReport,
    ) -> None:
        super().__init__()
        self.network = job.network
        self.job = job
        self.settings = job.settings
        self.batches = batches
        self.valid_batches = valid_batches
        self.metric_log = log
        self.report = report
        self.history: list[dict[str, float]] = []
        self.best = BestEpoch(job.network, job.settings.patience)
        average = get_ema_multi_avg_fn(job.settings.average_decay)  # type: ignore[no-untyped-call]
        self._averaged = AveragedModel(job.network, multi_avg_fn=average).requires_grad_(False)
        self._train: list[tuple[float, int]] = []
        self._valid: list[tuple[float, int]] = []
        self._predicted: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._failures: list[str] = []

    def configure_optimizers(self) -> Any:
        """AdamW with the schedule of the settings, one step an epoch."""
        optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
            # all weights in one call; in mixed precision Lightning refuses to clip gradients beside it
            fused=self.settings.precision == "32-true",
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.settings.learning_rate_factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """A batch knows how to move; Lightning's own way refuses frozen dataclasses."""
        return batch.to(device)

    def on_train_start(self) -> None:
        """A training that was killed after its last epoch has no more to do."""
        if self.history and self.best.exhausted:
            self.trainer.should_stop = True

    def on_train_epoch_start(self) -> None:
        """Dropout of an epoch depends on nothing before it: a resumed training goes on as an undisturbed one."""
        of_epoch = np.random.SeedSequence([self.job.seed, self.current_epoch, self.global_rank])
        torch.manual_seed(int(of_epoch.generate_state(1)[0]))
        self.batches.epoch = self.current_epoch

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """The loss of one batch."""
        loss: Tensor = self.job.loss(self.network(batch).float(), batch.labels)
        value = float(loss.detach())
        if not math.isfinite(value):
            self._failures.append(self._not_finite(value, batch, batch_index))
            # several processes stop together, after the epoch: the others would wait for this one
            if self.trainer.world_size == 1:
                raise KernelcastError(self._failures[0])
        self._train.append((value, len(batch)))
        return loss

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Collects loss and predictions of one batch of the validation programs."""
        if batch_index >= self.valid_batches:
            # only so that all processes take equally many steps
            return
        prediction = self._averaged(batch).float()
        loss = self.job.loss(prediction, batch.labels)
        self._valid.append((float(loss), len(batch)))
        self._predicted.append(
            (prediction.cpu().numpy(), batch.labels.log_seconds.cpu().numpy(), batch.labels.workload.cpu().numpy())
        )

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        """Takes the weights of this step into their average."""
        self._averaged.update_parameters(self.network)
        self.report.batch_ended(self.current_epoch, batch_index, self.batches.count)

    def on_train_epoch_end(self) -> None:
        """Logs the epoch (validation has run by now), keeps the weights of the best, stops after `patience`.

        Raises:
            KernelcastError: the loss was no number in one of several processes.
        """
        if failures := self._of_all_processes(self._failures):
            raise KernelcastError(failures[0])
        metrics = self._epoch_metrics()
        self._train, self._valid, self._predicted = [], [], []
        self.history.append(metrics)
        monitor = self.monitor(metrics)
        maximize = monitor == self.job.loss.monitor and self.job.loss.maximize
        self.best.take(self.current_epoch, metrics[monitor], maximize, self._averaged.module)
        if self.metric_log is not None:
            self.metric_log.metrics(metrics, self.current_epoch)
        self.report.epoch_ended(self.current_epoch, metrics, self.best)
        self.trainer.should_stop = self.trainer.should_stop or self.best.exhausted

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds what Lightning does not know of."""
        checkpoint[STATE] = {"identity": self.job.identity, "history": self.history, "best": self.best.state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes it back."""
        self.history = [dict(row) for row in checkpoint[STATE]["history"]]
        self.best.restore(checkpoint[STATE]["best"])

    def monitor(self, metrics: Mapping[str, float]) -> str:
        """The metric that decides; without validation programs, or two of a workload, another has to do."""
        return next(name for name in (self.job.loss.monitor, "valid/loss", "train/loss") if name in metrics)

    def _epoch_metrics(self) -> dict[str, float]:
        metrics = {"train/loss": _weighted_mean(self._of_all_processes(self._train)), "lr": self._current_rate()}
        if valid := self._of_all_processes(self._valid):
            metrics["valid/loss"] = _weighted_mean(valid)
            predicted = self._of_all_processes(self._predicted)
            prediction, log_seconds, workload = (np.concatenate(part) for part in zip(*predicted, strict=True))
            tau = mean_kendall_tau(prediction.astype(np.float64), log_seconds.astype(np.float64), workload)
            if not math.isnan(tau):
                metrics["valid/kendall_tau"] = tau
        return metrics

    def _of_all_processes(self, values: list[Any]) -> list[Any]:
        if self.trainer.world_size == 1:
            return values
        parts: list[list[Any]] = [[]] * self.trainer.world_size
        torch.distributed.all_gather_object(parts, values)
        return [value for part in parts for value in part]

    def _current_rate(self) -> float:
        return self.settings.learning_rate * self.settings.learning_rate_factor(self.current_epoch)

    def _not_finite(self, value: float, batch: Batch, batch_index: int) -> str:
        indices = torch.unique(batch.labels.workload).tolist()
        names = ", ".join(self.job.train.workload_names[index] for index in indices[:NAMED_WORKLOADS])
        others = f" and {len(indices) - NAMED_WORKLOADS} others" if len(indices) > NAMED_WORKLOADS else ""
        return (
            f"the training loss became {value} in epoch {self.current_epoch}, batch {batch_index} (programs of {names}"
            f"{others}); lower trainer.learning_rate (now {self.settings.learning_rate:g}) or trainer.gradient_clip "
            f"(now {self.settings.gradient_clip:g}, 0 is off)"
        )


def train_network(job: TrainingJob, log: MetricLog, workspace: Path | None = None) -> None:
    """Trains the network of the job in place and leaves it with the weights of its best epoch.

    Args:
        job: what trains on what.
        log: gets every epoch's metrics, also of those that a killed process has done.
        workspace: see `CostModel.fit`.

    Raises:
        KernelcastError: the loss is no longer a number, or a process on another device ended.
        ConfigError: a device or a precision that this machine does not have.
        KeyboardInterrupt: the user stopped it.
    """
    settings = job.settings
    training_device(settings)
    point = find_resume_point(workspace, job.identity) if workspace is not None else None
    for epoch, metrics in enumerate(point.history if point else []):
        log.metrics(metrics, epoch)
    group = (
        companions(settings.devices, settings.threads, _train_along, job, workspace, point)
        if settings.distributed
        else nullcontext()
    )
    with group as place:
        training = _train(job, place, workspace, point, log)
    job.network.load_state_dict(training.best.weights)
    job.network.cpu()
    logger.info(
        "epochs trained: %d; the weights of epoch %d, with %s %.4g, are kept, saved and tested",
        len(training.history),
        training.best.epoch + 1,
        training.monitor(training.history[-1]),
        training.best.metric,
    )


def _train_along(place: OwnProcesses, job: TrainingJob, workspace: Path | None, point: ResumePoint | None) -> None:
    """What every process but the first does."""
    with torch_settings(job.settings, job.seed):
        _train(job, place, workspace, point, log=None)


def _train(
    job: TrainingJob,
    place: OwnProcesses | None,
    workspace: Path | None,
    point: ResumePoint | None,
    log: MetricLog | None,
) -> Training:
    settings, views = job.settings, job.network.views
    rank = place.local_rank() if place else 0
    first_epoch = len(point.history) if point else 0
    shuffled = ShuffledBatches(job.train, views, settings.batch_limits, settings.chunk_programs, job.seed)
    batches = EpochBatches(shuffled, rank, settings.devices, first_epoch)
    # programs of a workload side by side, so that the loss over pairs has pairs
    valid = SequentialBatches(job.valid, views, settings.batch_limits, np.argsort(job.valid.workload, kind="stable"))
    own = valid.plan[rank :: settings.devices]
    valid.plan = own + valid.plan[: -(-len(valid.plan) // settings.devices) - len(own)]
    strategy = "ddp" if settings.distributed and settings.strategy == "auto" else settings.strategy
    with quiet_lightning(), EpochReport(settings.max_epochs, first_epoch, settings.patience, quiet=rank > 0) as report:
        training = Training(job, batches, len(own), log, report)
        trainer = lightning.Trainer(
            max_epochs=settings.max_epochs,
            accelerator="gpu" if training_device(settings).type == "cuda" else "cpu",
            devices=settings.devices,
            strategy=strategy,
            precision=settings.precision,  # type: ignore[arg-type]  # checked by the settings
            plugins=[AtomicCheckpoints(), *([place] if place else [])],
            callbacks=[SaveEveryEpoch(workspace)] if workspace else [],
            gradient_clip_val=settings.gradient_clip or None,
            use_distributed_sampler=False,
            logger=False,
            enable_checkpointing=workspace is not None,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        with interrupts_reach_the_caller():
            trainer.fit(
                training,
                batches,
                valid if len(valid) else None,
                ckpt_path=point.path if point else None,
                weights_only=True if point else None,
            )
    return training


def _weighted_mean(values: list[tuple[float, int]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else math.nan
