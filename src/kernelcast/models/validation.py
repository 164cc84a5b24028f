"""The one metric that training itself looks at; `kernelcast.evaluation` has all of them."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Integer

_PAIR_BLOCK = 4_000_000


def mean_kendall_tau(
    prediction: Float64[np.ndarray, "programs"],
    log_seconds: Float64[np.ndarray, "programs"],
    workload: Integer[np.ndarray, "programs"],
) -> float:
    """Mean over the workloads of Kendall's tau-b between predicted and true order; NaN where there is nothing to order.

    `(concordant - discordant) / sqrt(pairs untied in prediction * pairs untied in truth)` (Kendall 1945). A workload
    whose predictions are all equal counts as 0, one with fewer than two different times is left out.
    """
    taus = []
    for index in np.unique(workload):
        rows = workload == index
        tau = _kendall_tau(prediction[rows], log_seconds[rows])
        if not math.isnan(tau):
            taus.append(tau)
    return float(np.mean(taus)) if taus else math.nan


def _kendall_tau(prediction: np.ndarray, truth: np.ndarray) -> float:
    agreement = untied_prediction = untied_truth = 0
    # rows in blocks, so that memory stays bounded
    step = max(1, _PAIR_BLOCK // max(len(truth), 1))
    for start in range(0, len(truth), step):
        rows = slice(start, start + step)
        of_prediction = np.sign(prediction[rows, None] - prediction[None, :]).astype(np.int8)
        of_truth = np.sign(truth[rows, None] - truth[None, :]).astype(np.int8)
        agreement += int(np.sum(of_prediction * of_truth, dtype=np.int64))
        untied_prediction += int(np.count_nonzero(of_prediction))
        untied_truth += int(np.count_nonzero(of_truth))
    if untied_truth == 0:
        return math.nan
    return agreement / math.sqrt(untied_prediction * untied_truth) if untied_prediction else 0.0
