r"""Scores of predictions on examples with known truth.

Sources:
    Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation. JASA 102. (Brier score, log
    score: proper; calibration error is not.)
    Naeini, Cooper and Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian binning. AAAI.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Real

from geodax import _checks

_MOST_BINS = 1_000_000
_SUM_TOLERANCE = 1e-4
_HALF_UNITS = 4  # allowed deviation from 1 of a half-precision sum, in units of roundoff


class Reliability(NamedTuple):
    """Confidence and accuracy in bins of confidence; empty bins are NaN.

    Attributes:
        edges: Bin edges; a bin is open on the left and closed on the right.
        counts: Number of examples in each bin; effective number (Kish 1965) if they have weights.
        confidence: Mean probability of the predicted class.
        accuracy: Fraction of examples whose predicted class is right.
        shares: Fraction of the examples in each bin, by weight.
    """

    edges: Float[np.ndarray, " edges"]
    counts: Real[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    shares: Float[np.ndarray, " bins"]


def accuracy(probabilities: Any, labels: Any) -> float:
    """Compute the fraction of examples whose most probable class is the true one.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.

    Returns:
        A number between 0 and 1.
    """
    p, y = checked_probabilities(probabilities, labels)
    return float((p.argmax(axis=1) == y).mean())


def log_probability(probabilities: Any, labels: Any) -> float:
    """Compute the mean log probability of the true classes (log score); for an ensemble pass its mean probabilities.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.

    Returns:
        A number of at most 0, in nats.
    """
    p, y = checked_probabilities(probabilities, labels)
    with np.errstate(divide="ignore"):
        return float(np.log(p[np.arange(len(y)), y]).mean())


def brier(probabilities: Any, labels: Any) -> float:
    """Compute the Brier score: squared distance to the indicator of the true class, summed over classes, averaged.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.

    Returns:
        A number between 0 and 2.
    """
    p, y = checked_probabilities(probabilities, labels)
    return float((p**2).sum(axis=1).mean() - 2 * p[np.arange(len(y)), y].mean() + 1)


def mean_confidence(probabilities: Any) -> float:
    """Compute the mean probability of the most probable class.

    Args:
        probabilities: Example x class.

    Returns:
        A number between 0 and 1.
    """
    p = _checks.numbers("mean_confidence", "probabilities", probabilities)
    if p.ndim != 2 or not p.size:
        raise ValueError(f"mean_confidence: expected probabilities (examples, classes), found shape {p.shape}.")
    return float(p.max(axis=1).mean())


def reliability(probabilities: Any, labels: Any, *, num_bins: int = 15, weights: Any = None) -> Reliability:
    """Compute confidence and accuracy in bins of equal width.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.
        num_bins: Number of bins.
        weights: Weight of each example; None weights all equally.

    Returns:
        The data of a reliability diagram.
    """
    p, y = checked_probabilities(probabilities, labels)
    num_bins = _checks.whole("reliability", "num_bins", num_bins, most=_MOST_BINS)
    confidence, is_right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.arange(num_bins + 1) / num_bins
    bins = np.minimum(np.searchsorted(edges[1:], confidence, side="left"), num_bins - 1)
    w = relative_weights("reliability", weights, len(y))
    total, squares, *sums = (np.bincount(bins, w * x, minlength=num_bins) for x in (1.0, w, confidence, is_right))
    divisor = np.where(total > 0, total, np.nan)
    counts = np.bincount(bins, minlength=num_bins)
    if weights is not None:
        counts = np.divide(total**2, squares, where=squares > 0, out=np.zeros(num_bins))
    return Reliability(edges, counts, sums[0] / divisor, sums[1] / divisor, total / len(y))


def ece(probabilities: Any, labels: Any, *, num_bins: int = 15) -> float:
    r"""Compute the calibration error :math:`\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|` (Naeini et al.).

    Args:
        probabilities: Example x class.
        labels: Classes from 0.
        num_bins: Number of bins of equal width. The error depends on it: report it with the value.

    Returns:
        A number between 0 and 1.
    """
    bins = reliability(probabilities, labels, num_bins=num_bins)
    gaps = np.nan_to_num(np.abs(bins.accuracy - bins.confidence))
    return float((bins.shares * gaps).sum())


def rmse(means: Any, targets: Any) -> float:
    """Compute the root mean squared error.

    Args:
        means: Predicted numbers.
        targets: True values, of the same shape.

    Returns:
        A number in the targets' units.
    """
    found, true = _checks.numbers("rmse", "means", means), _checks.numbers("rmse", "targets", targets)
    if found.shape != true.shape:
        raise ValueError(f"rmse: predictions have shape {found.shape}, but the targets {true.shape}.")
    if not found.size:
        raise ValueError("rmse: there are no predictions.")
    return float(np.sqrt(((found - true) ** 2).mean()))


def mnll(log_density: Any) -> float:
    """Compute the mean negative log predictive density (test MNLL).

    Args:
        log_density: One number per example, :attr:`geodax.predict.numbers.NumberPredictions.log_density`. For
            targets that were divided by their standard deviation s, add log(s) to convert to the units of the data.

    Returns:
        The negated mean.
    """
    values = _checks.numbers("mnll", "log_density", log_density)
    if not values.size:
        raise ValueError("mnll: there are no examples.")
    return -float(values.mean())


def relative_weights(owner: str, weights: Any, number: int) -> Float[np.ndarray, " rows"]:
    """Return weights of rows, scaled to a mean of 1; ones for None."""
    if weights is None:
        return np.ones(number)
    found = np.asarray(_checks.numbers(owner, "weights", weights), np.float64)
    if found.shape != (number,) or not (found >= 0).all() or not found.any():
        raise ValueError(
            f"{owner}: expected a weight of at least 0 for each of {number} rows, some of them positive, found "
            f"{_checks.described(weights)}."
        )
    return found / found.mean()


def checked_probabilities(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities and labels as arrays; raises ValueError if they are invalid."""
    p, y = _checks.numbers("scores", "probabilities", probabilities), _checks.plain("scores", "labels", labels)
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(y):
        raise ValueError(
            f"Expected probabilities (examples, classes) and a label per example, found shapes {p.shape} and {y.shape}."
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(
            f"Expected integer labels from 0 to {p.shape[1] - 1}, found {y.dtype} from {y.min()} to {y.max()}."
        )
    rows = normalized_rows(p, getattr(probabilities, "dtype", None))
    if rows is None:
        raise ValueError("Expected probabilities that sum to 1 for each example; for logits apply a softmax first.")
    return rows, y


def normalized_rows(p: np.ndarray, given: Any) -> np.ndarray | None:
    """Return probabilities, example x class, divided by their sums if their original dtype is half precision.

    Returns None if they are invalid: a negative number, or a sum that differs from 1 by more than that dtype's
    rounding.
    """
    is_half = given is not None and given in (np.float16, jnp.bfloat16)
    tolerance = _HALF_UNITS * float(jnp.finfo(given).eps) if is_half else _SUM_TOLERANCE
    sums = p.sum(axis=1)
    if not (np.isfinite(p).all() and (p >= 0).all() and np.allclose(sums, 1.0, atol=tolerance)):
        return None
    return p / sums[:, None] if is_half else p
