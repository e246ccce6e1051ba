r"""How good predictions are, on examples whose truth is known.

Sources:
    Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation. JASA 102. (Brier score, log
    score: proper; calibration error is not.)
    Naeini, Cooper and Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian binning. AAAI.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from geodax import _checks as _arguments

_MOST_BINS = 1_000_000
_SUM_TOLERANCE = 1e-4
_HALF_UNITS = 4  # by how many roundings a sum of probabilities in half precision may differ from 1


class Reliability(NamedTuple):
    """Confidence and accuracy in bins of confidence, empty bins NaN.

    Attributes:
        edges: Edges of the bins; a bin is open on the left and closed on the right.
        counts: Examples in each bin.
        confidence: Mean probability of the predicted class.
        accuracy: Share of examples whose predicted class is right.
    """

    edges: Float[np.ndarray, " edges"]
    counts: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]


def accuracy(probabilities: Any, labels: Any) -> float:
    """Share of examples whose most probable class is the true one.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.

    Returns:
        A number between 0 and 1.
    """
    p, y = checked_probabilities(probabilities, labels)
    return float((p.argmax(axis=1) == y).mean())


def log_probability(probabilities: Any, labels: Any) -> float:
    """Mean log probability of the true classes, the log score; for an ensemble give its mean probabilities.

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
    """Mean squared distance of the probabilities from the indicator of the true class, summed over the classes.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.

    Returns:
        A number between 0 and 2.
    """
    p, y = checked_probabilities(probabilities, labels)
    return float((p**2).sum(axis=1).mean() - 2 * p[np.arange(len(y)), y].mean() + 1)


def mean_confidence(probabilities: Any) -> float:
    """Mean probability of the most probable class.

    Args:
        probabilities: Example x class.

    Returns:
        A number between 0 and 1.
    """
    p = _arguments.numbers("mean_confidence", "probabilities", probabilities)
    if p.ndim != 2 or not p.size:
        raise ValueError(f"mean_confidence: expected probabilities (examples, classes), found shape {p.shape}.")
    return float(p.max(axis=1).mean())


def reliability(probabilities: Any, labels: Any, *, num_bins: int = 15) -> Reliability:
    """Confidence and accuracy in bins of equal width.

    Args:
        probabilities: Example x class.
        labels: Classes from 0.
        num_bins: Number of bins.

    Returns:
        What a reliability diagram shows.
    """
    p, y = checked_probabilities(probabilities, labels)
    num_bins = _arguments.whole("reliability", "num_bins", num_bins, most=_MOST_BINS)
    confidence, is_right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.arange(num_bins + 1) / num_bins
    bins = np.minimum(np.searchsorted(edges[1:], confidence, side="left"), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    divisor = np.where(counts > 0, counts, np.nan)
    sums = [np.bincount(bins, weights=w, minlength=num_bins) for w in (confidence, is_right.astype(np.float64))]
    return Reliability(edges, counts, sums[0] / divisor, sums[1] / divisor)


def ece(probabilities: Any, labels: Any, *, num_bins: int = 15) -> float:
    r"""Expected calibration error :math:`\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|` (Naeini et al. 2015).

    Args:
        probabilities: Example x class.
        labels: Classes from 0.
        num_bins: Bins of equal width of the confidence. The value depends on their number: name it with the value.

    Returns:
        A number between 0 and 1.
    """
    bins = reliability(probabilities, labels, num_bins=num_bins)
    gaps = np.nan_to_num(np.abs(bins.accuracy - bins.confidence))
    return float((bins.counts * gaps).sum() / bins.counts.sum())


def rmse(means: Any, targets: Any) -> float:
    """Root of the mean squared error.

    Args:
        means: Predicted numbers.
        targets: True ones, of the same shape.

    Returns:
        A number in the targets' units.
    """
    found, true = _arguments.numbers("rmse", "means", means), _arguments.numbers("rmse", "targets", targets)
    if found.shape != true.shape:
        raise ValueError(f"rmse: predictions have shape {found.shape}, but the targets {true.shape}.")
    if not found.size:
        raise ValueError("rmse: there are no predictions.")
    return float(np.sqrt(((found - true) ** 2).mean()))


def mnll(log_density: Any) -> float:
    """Mean negative log predictive density (test MNLL).

    Args:
        log_density: One number an example, :attr:`geodax.predict.predictive.NumberPredictions.log_density`. For targets
            that were divided by their standard deviation s, add log(s) to have it in the units of the data.

    Returns:
        The mean, with its sign changed.
    """
    values = _arguments.numbers("mnll", "log_density", log_density)
    if not values.size:
        raise ValueError("mnll: there are no examples.")
    return -float(values.mean())


def checked_probabilities(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and labels as arrays, or a ValueError that says why they are none."""
    p, y = _arguments.numbers("scores", "probabilities", probabilities), _arguments.plain("scores", "labels", labels)
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(y):
        raise ValueError(
            f"Expected probabilities (examples, classes) and as many labels, found shapes {p.shape} and {y.shape}."
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= p.shape[1]:
        raise ValueError(
            f"Expected whole labels from 0 to {p.shape[1] - 1}, found {y.dtype} from {y.min()} to {y.max()}."
        )
    rows = normalized_rows(p, getattr(probabilities, "dtype", None))
    if rows is None:
        raise ValueError("Expected probabilities that sum to 1 for each example; logits need a softmax first.")
    return rows, y


def normalized_rows(p: np.ndarray, given: Any) -> np.ndarray | None:
    """Probabilities as they are; those that were given in half precision divided by their sums.

    Args:
        p: Example x class, in double precision.
        given: The dtype they had.

    Returns:
        The probabilities, or None for what are none: a negative number, or a sum that differs from 1 by more than the
        rounding of their dtype.
    """
    is_half = given is not None and given in (np.float16, jnp.bfloat16)
    tolerance = _HALF_UNITS * float(jnp.finfo(given).eps) if is_half else _SUM_TOLERANCE
    sums = p.sum(axis=1)
    if not (np.isfinite(p).all() and (p >= 0).all() and np.allclose(sums, 1.0, atol=tolerance)):
        return None
    return p / sums[:, None] if is_half else p
