import io

import pytest
from rich.console import Console
from torch import nn

from kernelcast.models import epoch_report
from kernelcast.models.best_epoch import BestEpoch
from kernelcast.models.epoch_report import EpochReport


@pytest.fixture
def best():
    return BestEpoch(nn.Linear(1, 1), patience=2)


def test_a_terminal_shows_batches_and_epochs_in_one_bar(best, caplog, monkeypatch):
    monkeypatch.setattr(epoch_report, "REFRESH_SECONDS", 0.0)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=200)
    with caplog.at_level("INFO"), EpochReport(3, 0, 2, console=console) as report:
        report.batch_ended(0, 1, 4)
        best.take(0, 0.5, True, nn.Linear(1, 1))
        report.epoch_ended(0, {"valid/kendall_tau": 0.5}, best)
        report.batch_ended(1, 0, 4)
    text = shown.getvalue()
    assert "epoch 1 of 3, batch 2 of 4" in text
    assert "epoch 1 of at most 3: valid/kendall_tau 0.5 (the best)" in text
    assert "epoch 2 of 3, batch 1 of 4, valid/kendall_tau 0.5 (the best)" in text
    assert not caplog.records


def test_elsewhere_an_epoch_is_a_line_and_a_quiet_report_none(best, caplog):
    best.take(0, 0.5, True, nn.Linear(1, 1))
    best.take(1, 0.4, True, nn.Linear(1, 1))
    console = Console(file=io.StringIO())
    with caplog.at_level("INFO"):
        for quiet in (False, True):
            with EpochReport(3, 0, 2, quiet, console) as report:
                report.batch_ended(1, 0, 4)
                report.epoch_ended(1, {"train/loss": 2.0}, best)
    assert [record.message for record in caplog.records] == [
        "epoch 2 of at most 3: train/loss 2 (1 of 2 after the best, epoch 1)"
    ]


@pytest.mark.parametrize(("maximize", "kept"), [(True, 1), (False, 2)])
def test_the_best_epoch_keeps_its_weights(maximize, kept):
    networks = [nn.Linear(1, 1) for _ in range(4)]
    best = BestEpoch(networks[0], patience=2)
    for epoch, metric in enumerate((0.5, 0.9, 0.1, 0.5)):
        best.take(epoch, metric, maximize, networks[epoch])
    assert best.epoch == kept
    assert best.weights["weight"].item() == networks[kept].weight.item()
    assert best.exhausted is (kept == 1)
    again = BestEpoch(networks[0], patience=2)
    again.restore(best.state())
    assert (again.epoch, again.metric, again.waited) == (best.epoch, best.metric, best.waited)
