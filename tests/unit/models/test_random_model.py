import numpy as np

from kernelcast.models.protocol import PredictionKind
from kernelcast.models.random_model import RandomModel


def test_numbers_follow_the_program_and_the_seed(programs, metric_log):
    models = [RandomModel(None, None, seed) for seed in (0, 1)]
    for model in models:
        model.fit(programs, programs, metric_log)
    first, other = (model.predict(programs) for model in models)
    assert not np.array_equal(first, other)
    shuffled = np.random.default_rng(0).permutation(len(programs))
    np.testing.assert_array_equal(models[0].predict(programs.select(shuffled)), first[shuffled])
    assert models[0].kind is PredictionKind.RANK
    assert metric_log.rows == []


def test_numbers_are_spread_evenly(programs_of, metric_log):
    programs = programs_of(workloads=10, per_workload=100, nodes=(1, 1))
    model = RandomModel(None, None, 0)
    model.fit(programs, programs, metric_log)
    counts, _ = np.histogram(model.predict(programs), bins=5, range=(0, 1))
    assert counts.sum() == 1000
    assert counts.min() > 150
