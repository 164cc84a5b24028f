"""How good the predictions for the programs of one workload are. Pure NumPy, the same for every model.

Truth is the natural logarithm of the run time in seconds. Predictions are either the same, or a rank score; in both,
lower is faster. Every function takes the programs of *one* workload: run times of different workloads differ by their
amount of work, so an order across workloads would mostly measure who knows the sizes.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64, Int64

LARGEST_EXPONENT = 500.0
"""A prediction further off than e**500 counts as this far off, so that every metric is a finite number."""


def kendall_tau(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""Kendall's rank correlation, the tau-b that allows for ties; in [-1, 1], 0 by chance.

    $$\tau_b = \frac{C - D}{\sqrt{(C + D + T_y)(C + D + T_x)}}$$

    with C concordant and D discordant pairs, T_x pairs tied only in the truth and T_y only in the prediction. Where
    all predictions (or all truths) are equal, nothing is ordered and the value is 0 rather than undefined.

    Source: Kendall, The treatment of ties in ranking problems, Biometrika 33 (1945); for cost models, Kaufman et al.
    2021 (arXiv 2008.01040), section 5.
    """
    true_sign, predicted_sign = pair_signs(truth), pair_signs(predicted)
    scale = math.sqrt(np.abs(true_sign).sum() * np.abs(predicted_sign).sum())
    return float((true_sign * predicted_sign).sum() / scale) if scale > 0 else 0.0


def pairwise_accuracy(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""Share of the pairs whose faster program is told; in [0, 1], 0.5 by chance.

    $$\frac{C + T_y / 2}{C + D + T_y}$$

    Pairs of equal truth are left out, a tie in the prediction counts half; without any pair the value is 0.5.

    One minus the 0/1 loss over pairs, for which a pairwise rank loss such as that of Chen et al. 2018 (arXiv
    1805.08166) stands in.
    """
    true_sign, predicted_sign = pair_signs(truth), pair_signs(predicted)
    pairs = np.abs(true_sign).sum()
    return float(0.5 + 0.5 * (true_sign * predicted_sign).sum() / pairs) if pairs > 0 else 0.5


def clear_pairwise_accuracy(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"], gap: float) -> float:
    r"""Pairwise accuracy over the pairs that are further apart than the noise; in [0, 1], 0.5 by chance.

    $$\frac{C_\delta + T_\delta / 2}{|P_\delta|}, \quad P_\delta = \{(i, j) : |\ln t_i - \ln t_j| > \delta\}$$

    with C and T the pairs of P in the right order and those tied in the prediction; without any pair the value is 0.5.
    Two programs that are closer than two measurements of one program have no order that anybody knows.

    Source: `pairwise_accuracy`, of the pairs that the noise leaves; gap = ln(r) with r the 90th percentile of the ratio
    between two measurements of a program (see `noise`).

    Args:
        truth: log seconds.
        predicted: predictions.
        gap: log seconds that two programs must be apart.
    """
    clear = clear_pairs(truth, gap)
    pairs = clear.sum()
    agreement = (clear * pair_signs(truth) * pair_signs(predicted)).sum()
    return float(0.5 + 0.5 * agreement / pairs) if pairs > 0 else 0.5


def spearman(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""Spearman's rank correlation; in [-1, 1], 0 by chance.

    $$\rho = \frac{\sum_i (r_i - \bar r)(\hat r_i - \bar r)}
                  {\sqrt{\sum_i (r_i - \bar r)^2 \sum_i (\hat r_i - \bar r)^2}}$$

    with r and its hat the ranks of the true and of the predicted times; equal values share the mean of their ranks.
    Where all predictions (or all truths) are equal, the value is 0 rather than undefined.

    Source: Spearman, The proof and measurement of association between two things, American Journal of Psychology 15
    (1904).
    """
    true_rank, predicted_rank = mean_ranks(truth), mean_ranks(predicted)
    true_rank -= true_rank.mean()
    predicted_rank -= predicted_rank.mean()
    scale = math.sqrt((true_rank**2).sum() * (predicted_rank**2).sum())
    return float(true_rank @ predicted_rank / scale) if scale > 0 else 0.0


def top_k_score(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"], k: int) -> float:
    r"""Best true time over the time of the best among the k programs ranked first; in (0, 1], 1 is best.

    $$\frac{\min_i t_i}{\min_{i \in \mathrm{top}_k(\hat t)} t_i}$$

    Where equal predictions compete for the last places, it is the expected value over all ways to choose among them: a
    constant prediction scores exactly as a random choice does.

    Source: Zheng et al., TenSet (NeurIPS Datasets and Benchmarks 2021), section 5, here for one workload; over several
    see `aggregation.Pooling.BEST_OVER_CHOSEN`.
    """
    chosen, chance = _fastest_of_the_first(truth, predicted, k)
    # the chances sum to 1 but for rounding
    return min(float(np.dot(chance, np.exp(truth.min() - chosen))), 1.0)


def tile_size_ape(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""How much slower the program ranked first is than the best one, as a share (0.03 is 3%); 0 is best.

    $$\frac{t_{\arg\min \hat t} - \min_i t_i}{\min_i t_i}$$

    Here for one kernel. Over the kernels k of an application numerators and denominators are summed apart
    (`aggregation.Pooling.OF_BEST`), so that a kernel counts by its time:

    $$\frac{\sum_k |t_k^{\arg\min \hat t_k} - \min_i t_{k,i}|}{\sum_k \min_i t_{k,i}}$$

    Nothing is asked of the predicted times, only of the choice. Equal predictions: the expected value over the choices.

    Source: Kaufman et al. 2021 (arXiv 2008.01040), section 5, Tile-Size APE.
    """
    chosen, chance = _fastest_of_the_first(truth, predicted, 1)
    return max(float(np.dot(chance, np.exp(chosen - truth.min()))) - 1.0, 0.0)


def mape(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""Mean absolute percentage error of the predicted seconds, as a share (0.1 is 10%).

    $$\frac{1}{n}\sum_i \left|\frac{\hat t_i - t_i}{t_i}\right|$$

    Only for predictions in log seconds.

    Source: Kaufman et al. 2021 (arXiv 2008.01040), section 5 (fusion task).
    """
    return float(np.mean(absolute_percentage_errors(truth, predicted)))


def median_ape(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""Median absolute percentage error of the predicted seconds, as a share.

    $$\mathrm{median}_i \left|\frac{\hat t_i - t_i}{t_i}\right|$$

    Only for predictions in log seconds. A few absurd predictions do not move it, unlike the mean.

    Source: Hyndman and Koehler, Another look at measures of forecast accuracy, International Journal of Forecasting 22
    (2006), MdAPE.
    """
    return float(np.median(absolute_percentage_errors(truth, predicted)))


def p90_ape(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""90th percentile of the absolute percentage error of the predicted seconds, as a share.

    $$Q_{0.9}\left(\left|\frac{\hat t_i - t_i}{t_i}\right|\right)$$

    linear between order statistics (definition 7 of Hyndman and Fan, Sample quantiles in statistical packages, The
    American Statistician 50, 1996). Only for predictions in log seconds.

    Source: the error of `mape`, Kaufman et al. 2021 (arXiv 2008.01040), section 5; its tail.
    """
    return float(np.percentile(absolute_percentage_errors(truth, predicted), 90))


def log_rmse(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> float:
    r"""Root mean squared error of the log seconds; 0.1 is about 10% off.

    $$\sqrt{\frac{1}{n}\sum_i (\ln \hat t_i - \ln t_i)^2}$$

    Only for predictions in log seconds.

    Source: the root of the loss of the fusion task of Kaufman et al. 2021 (arXiv 2008.01040), section 3.3.
    """
    return float(np.sqrt(np.mean(squared_log_errors(truth, predicted))))


def pair_signs(values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n n"]:
    """Sign of values[i] - values[j] for every ordered pair; 0 for ties."""
    return np.sign(np.subtract.outer(values, values))


def clear_pairs(truth: Float64[np.ndarray, "n"], gap: float) -> Float64[np.ndarray, "n n"]:
    """1 for every ordered pair that is further apart than `gap` log seconds, else 0."""
    return (np.abs(np.subtract.outer(truth, truth)) > gap).astype(np.float64)


def mean_ranks(values: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    """Ranks from 1, equal values with the mean of their ranks."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[group.reshape(-1)]


def dense_ranks(values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """0 for the lowest value, 1 for the next, equal values with equal rank."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def absolute_percentage_errors(
    truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]
) -> Float64[np.ndarray, "n"]:
    """Relative error of the predicted seconds, a share, of every program."""
    return np.abs(np.expm1(_log_errors(truth, predicted)))


def squared_log_errors(
    truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]
) -> Float64[np.ndarray, "n"]:
    """Squared error of the log seconds of every program."""
    return _log_errors(truth, predicted) ** 2


def _log_errors(truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"]) -> Float64[np.ndarray, "n"]:
    return np.clip(predicted - truth, -LARGEST_EXPONENT, LARGEST_EXPONENT)


def _fastest_of_the_first(
    truth: Float64[np.ndarray, "n"], predicted: Float64[np.ndarray, "n"], k: int
) -> tuple[Float64[np.ndarray, "cases"], Float64[np.ndarray, "cases"]]:
    """The fastest of the k programs ranked first: its possible log seconds and the chance of each.

    One case, unless equal predictions compete for the last places.
    """
    k = min(k, len(truth))
    last = np.partition(predicted, k - 1)[k - 1]
    surely = truth[predicted < last]
    tied = np.sort(truth[predicted == last])
    places = k - len(surely)
    # P(the j-th fastest of the tied is the fastest chosen) = C(g - 1 - j, places - 1) / C(g, places)
    chance = np.zeros(len(tied))
    chance[0] = places / len(tied)
    for j in range(1, len(tied) - places + 1):
        chance[j] = chance[j - 1] * (len(tied) - places - j + 1) / (len(tied) - j)
    return np.minimum(tied, surely.min(initial=np.inf)), chance
