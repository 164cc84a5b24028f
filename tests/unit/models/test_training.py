import dataclasses
import os
import signal
import threading

import numpy as np
import pytest
import torch

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.models.torch_runtime import prediction_device, torch_settings
from kernelcast.models.validation import mean_kendall_tau


class LoggedAt:
    """A metric log that does something at one epoch."""

    def __init__(self, epoch, action):
        self.epoch, self.action = epoch, action

    def metrics(self, values, step):
        if step == self.epoch:
            self.action()


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_best_epoch_of_validation_is_kept(model_of, split, metric_log):
    train, valid = split
    # a rate that makes later epochs worse than some earlier one
    model = model_of("gcn", max_epochs=12, learning_rate=1.0, average_decay=0.0)
    model.fit(train, valid, metric_log)
    logged = [values["valid/kendall_tau"] for _, values in metric_log.rows]
    kept = mean_kendall_tau(model.predict(valid), valid.log_seconds, valid.workload)
    assert kept == pytest.approx(max(logged), abs=1e-6)
    assert kept > logged[-1]


def test_squared_error_keeps_the_epoch_of_least_validation_loss(model_of, split, metric_log):
    train, valid = split
    model = model_of("gcn", "log_mse", max_epochs=12, learning_rate=0.5, average_decay=0.0)
    model.fit(train, valid, metric_log)
    logged = [values["valid/loss"] for _, values in metric_log.rows]
    assert np.mean((model.predict(valid) - valid.log_seconds) ** 2) == pytest.approx(min(logged), rel=1e-4)
    assert min(logged) < logged[-1]


def test_training_stops_after_patience_epochs_without_a_better_one(model_of, split, metric_log):
    train, valid = split
    model_of("gcn", max_epochs=60, patience=3, learning_rate=0.3).fit(train, valid, metric_log)
    logged = [values["valid/kendall_tau"] for _, values in metric_log.rows]
    assert len(logged) == int(np.argmax(logged)) + 1 + 3 < 60


def test_the_logged_rate_follows_the_schedule(model_of, split, metric_log):
    model_of("gcn", max_epochs=5, learning_rate=0.01, warmup_epochs=1).fit(*split, metric_log)
    rates = [values["lr"] for _, values in metric_log.rows]
    assert rates[0] == pytest.approx(0.005)
    assert rates[1] == pytest.approx(0.01)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_the_optimizer_uses_the_logged_rate(model_of, split, metric_log, monkeypatch):
    used = []
    step = torch.optim.AdamW.step

    def seen(self, *arguments, **named):
        used.append(self.param_groups[0]["lr"])
        return step(self, *arguments, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", seen)
    # all programs are one batch: one step an epoch
    model_of("gcn", max_epochs=5, batch_programs=10**6, batch_elements=10**6).fit(*split, metric_log)
    assert used == pytest.approx([values["lr"] for _, values in metric_log.rows])


def test_without_validation_the_training_loss_decides(model_of, split, metric_log):
    train, valid = split
    model_of("gcn", max_epochs=3).fit(train, valid.select(np.zeros(0, dtype=np.int64)), metric_log)
    assert [set(values) for _, values in metric_log.rows] == [{"train/loss", "lr"}] * 3


def test_a_loss_that_is_no_number_says_where_and_what_to_change(model_of, split, metric_log):
    train, valid = split
    trees = train.ast
    trees.node_features[3] = np.nan
    broken = dataclasses.replace(train, sources={"ast": trees}, rows=np.arange(len(train)))
    with pytest.raises(KernelcastError, match=r"epoch 0, batch \d+ \(programs of workload_.*; lower trainer"):
        model_of("gcn").fit(broken, valid, metric_log)


def test_interrupt_reaches_the_caller_and_the_next_one_still_works(model_of, split):
    # a shell's background job ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            model_of("gcn", max_epochs=500, patience=500).fit(*split, LoggedAt(1, interrupt))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_the_log_ends_training_as_itself(model_of, split):
    class PrunedError(Exception):
        pass

    def prune():
        raise PrunedError

    with pytest.raises(PrunedError):
        model_of("gcn").fit(*split, LoggedAt(1, prune))


def test_training_works_outside_the_main_thread(model_of, split, metric_log):
    model = model_of("gcn", max_epochs=2)
    worker = threading.Thread(target=model.fit, args=(*split, metric_log))
    worker.start()
    worker.join()
    assert len(metric_log.rows) == 2
    assert np.isfinite(model.predict(split[1])).all()


def test_training_writes_no_file_where_it_runs(model_of, split, metric_log, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model_of("graphsage", max_epochs=2).fit(*split, metric_log)
    assert list(tmp_path.iterdir()) == []


def test_torch_settings_come_back_after_an_error(conf_of):
    from hydra.utils import instantiate

    settings = instantiate(conf_of("trainer", "default", threads=3))
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()

    def body():
        with torch_settings(settings, 5):
            assert torch.get_num_threads() == 3
            torch.rand(4)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        body()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_gpu_that_is_not_there_is_named_in_training_and_not_needed_to_predict(
    model_of, split, metric_log, conf_of, monkeypatch
):
    from hydra.utils import instantiate

    # also where this test runs on a machine with one
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"trainer.accelerator=gpu.*trainer.accelerator=cpu"):
        model_of("gcn", accelerator="gpu").fit(*split, metric_log)
    assert prediction_device(instantiate(conf_of("trainer", "default", accelerator="gpu"))).type == "cpu"
    model_of("gcn", accelerator="auto", max_epochs=1).fit(*split, metric_log)


def test_a_wrong_argument_of_the_network_is_found_before_any_data(model_of, conf_of):
    from functools import partial

    from hydra.utils import instantiate

    from kernelcast.models.networks.gcn import GCN
    from kernelcast.models.neural import NeuralModel

    loss, trainer = instantiate(conf_of("loss", "rank")), instantiate(conf_of("trainer", "default"))
    good = {"view": "ast", "width": 4, "kind_width": 2, "layers": 1, "readout": ["mean"], "dropout": 0.0}
    NeuralModel(partial(GCN, **good), loss, trainer, 0)
    with pytest.raises(ConfigError, match="widht"):
        NeuralModel(partial(GCN, **good, widht=4), loss, trainer, 0)
    with pytest.raises(ConfigError, match="layers"):
        NeuralModel(partial(GCN, **{key: value for key, value in good.items() if key != "layers"}), loss, trainer, 0)
    with pytest.raises(ConfigError, match=r"not in kernelcast\.models"):
        NeuralModel(partial(torch.nn.Linear, out_features=3), loss, trainer, 0)


def test_mixed_precision_keeps_what_validation_saw(model_of, split, metric_log):
    train, valid = split
    model = model_of("gcn", "log_mse", max_epochs=8, precision="bf16-mixed")
    model.fit(train, valid, metric_log)
    logged = [values["valid/loss"] for _, values in metric_log.rows]
    # predictions are in 32 bits; a shift of -9 in 16 bits would be off by 0.03
    assert np.mean((model.predict(valid) - valid.log_seconds) ** 2) == pytest.approx(min(logged), rel=0.1)
    assert min(logged) < logged[0]


def test_a_precision_that_a_processor_lacks_is_refused(model_of, split, metric_log):
    with pytest.raises(ConfigError, match=r"trainer.precision=16-mixed needs a GPU"):
        model_of("gcn", precision="16-mixed").fit(*split, metric_log)


def test_every_epoch_is_one_line_with_the_best_and_the_patience(model_of, split, metric_log, caplog):
    with caplog.at_level("INFO"):
        model_of("gcn", max_epochs=60, patience=3, learning_rate=0.3).fit(*split, metric_log)
    lines = [record.message for record in caplog.records if "of at most 60" in record.message]
    assert len(lines) == len(metric_log.rows)
    best = int(np.argmax([values["valid/kendall_tau"] for _, values in metric_log.rows]))
    assert lines[best].startswith(f"epoch {best + 1} of at most 60: train/loss ")
    assert lines[best].endswith("(the best)")
    assert lines[-1].endswith(f"(3 of 3 after the best, epoch {best + 1})")
