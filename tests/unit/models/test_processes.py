import multiprocessing
import operator
import os

import numpy as np
import pytest
import torch

from kernelcast.errors import ConfigError, KernelcastError
from kernelcast.models.batching import Limits, ShuffledBatches
from kernelcast.models.processes import VARIABLES, companions
from kernelcast.models.training import EpochBatches


def shared(programs, processes, chunk=4, limit=10):
    batches = ShuffledBatches(programs, ("ast",), Limits(limit, 10**6), chunk, seed=5)
    return batches, [EpochBatches(batches, rank, processes, 0) for rank in range(processes)]


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_take_equally_many_batches_and_none_twice(programs, processes):
    batches, shares = shared(programs, processes)
    for epoch in (0, 1):
        plans = [share.plan(epoch) for share in shares]
        assert len({len(plan) for plan in plans}) == 1
        rows = np.concatenate([np.concatenate(plan) for plan in plans])
        assert len(rows) == len(np.unique(rows))
        left_out = len(batches.plan(epoch)) - sum(len(plan) for plan in plans)
        assert 0 <= left_out < processes


def test_fewer_batches_than_processes_are_refused(programs):
    _, shares = shared(programs, 2, chunk=1000, limit=1000)
    with pytest.raises(ConfigError, match=r"trainer.devices=2, but an epoch has 1 batches"):
        shares[0].plan(0)


@pytest.mark.slow
def test_two_processes_train_one_model(model_of, split, metric_log):
    train, valid = split
    before = {name: os.environ.get(name) for name in VARIABLES}
    model = model_of("gcn", "log_mse", max_epochs=3, batch_programs=8, devices=2)
    model.fit(train, valid, metric_log)
    assert [step for step, _ in metric_log.rows] == [0, 1, 2]
    # over the validation programs of both, and of the weights that are kept
    logged = [values["valid/loss"] for _, values in metric_log.rows]
    assert np.mean((model.predict(valid) - valid.log_seconds) ** 2) == pytest.approx(min(logged), rel=1e-4)
    assert logged[-1] < logged[0]
    assert {name: os.environ.get(name) for name in VARIABLES} == before
    assert not torch.distributed.is_initialized()
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_process_that_ends_early_is_named():
    with (
        pytest.raises(KernelcastError, match=r"process 1 with status 1 ended"),
        companions(2, 1, operator.index),
    ):
        raise RuntimeError("connection closed by peer")
    assert not multiprocessing.active_children()
