r"""Split-conformal prediction: sets and intervals with guaranteed coverage.

Each of n calibration examples, not used in training, gets a score that is larger the worse it is predicted. Let q be
the :math:`\lceil (n + 1) c \rceil`-th smallest score. A new example exchangeable with them has a score of at most q
with probability at least c, and at most :math:`c + 1 / (n + 1)` where ties have probability zero: on average over
calibration sets, for any model. The prediction is the set of labels, or the interval, with scores up to q.

Sources:
    Vovk, Gammerman and Shafer (2005), Algorithmic learning in a random world. Springer.
    Sadinle, Lei and Wasserman (2019), Least ambiguous set-valued classifiers with bounded error levels. JASA 114. (LAC)
    Romano, Sesia and Candès (2020), Classification with valid and adaptive coverage. NeurIPS. (APS)
    Lei, G'Sell, Rinaldo, Tibshirani and Wasserman (2018), Distribution-free predictive inference for regression. JASA
    113. (Residuals, and residuals divided by a scale.)
"""

import hashlib
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from geodax import _checks
from geodax.predict.scores import checked_probabilities, normalized_rows

_UNKNOWN = -1
_SHARE_BITS = 53  # precision of float64
_KEPT_BITS = 24  # of a probability: its last bits depend on the number of rows computed together
_ROUNDING = 1e-12  # relative slack of the threshold, for the same reason


class PredictionSets(NamedTuple):
    """Sets of classes.

    Attributes:
        members: Whether each class is in the set, example x class.
        threshold: The largest score of a member; infinite where there are too few calibration examples.
    """

    members: Bool[np.ndarray, "examples classes"]
    threshold: float


class PredictionIntervals(NamedTuple):
    """Prediction intervals.

    Attributes:
        lower: Lower ends.
        upper: Upper ends.
        threshold: The largest score inside; infinite where there are too few calibration examples.
    """

    lower: Float[np.ndarray, " examples"]
    upper: Float[np.ndarray, " examples"]
    threshold: float


def conformal_quantile(scores: Any, coverage: float) -> float:
    """Compute the score threshold below which a new example is accepted.

    Args:
        scores: Scores of calibration examples; infinity for one that no prediction contains.
        coverage: Target probability, between 0 and 1.

    Returns:
        The ``ceil((n + 1) coverage)``-th smallest score; infinite if that is more than n.

    Raises:
        ValueError: If there are no scores, some are NaN or minus infinity, or the coverage is out of range.
    """
    values = np.sort(_checks.numbers("conformal_quantile", "scores", scores).ravel())
    if not 0 < (coverage := _checks.number("conformal_quantile", "coverage", coverage)) < 1:
        raise ValueError(f"conformal_quantile: coverage must lie between 0 and 1, found {coverage:g}.")
    is_score = values > -math.inf  # False for NaN
    if not len(values) or not is_score.all():
        raise ValueError(
            f"conformal_quantile: expected finite or plus-infinite scores, found {len(values)} of which "
            f"{int((~is_score).sum())} are NaN or minus infinity."
        )
    # (n + 1) c is often an integer; rounding error must not push it to the next one
    rank = max(math.ceil((len(values) + 1) * coverage - 1e-9), 1)
    return float(values[rank - 1]) if rank <= len(values) else math.inf


def prediction_sets(
    calibration: Any,
    labels: Any,
    probabilities: Any,
    *,
    coverage: float = 0.9,
    score: str = "aps",
    random_state: int | None = 0,
) -> PredictionSets:
    """Compute sets of classes that contain the true class with a given probability.

    Args:
        calibration: Predicted probabilities of calibration examples, example x class.
        labels: Their classes, from 0; -1 for a class that the model does not predict: its score is infinite.
        probabilities: Predicted probabilities of new examples.
        coverage: Target probability.
        score: ``"aps"``: the probability of all classes that are at least as probable, the class itself counted by a
            random fraction. These sets grow where the model is unsure. ``"lac"``: one minus the probability of the
            class. These sets are the smallest on average; some are empty.
        random_state: Seed of the random fractions; None counts the class itself in full, which over-covers. The
            fraction of an example is a hash of the seed and of its probabilities in single precision, so its set does
            not depend on the other examples. Examples with equal probabilities have the same fraction; if there are
            many of them, sets can cover more often than requested.

    Returns:
        The sets.

    Raises:
        ValueError: If the score is unknown, shapes do not match, or rows are not probabilities.
    """
    found = _checks.plain("prediction_sets", "labels", labels)
    is_unknown = found == _UNKNOWN
    p, y = checked_probabilities(calibration, np.where(is_unknown, np.zeros((), found.dtype), found))
    new = _checks.numbers("prediction_sets", "probabilities", probabilities)
    if new.ndim != 2 or new.shape[1] != p.shape[1]:
        raise ValueError(f"prediction_sets: expected probabilities of {p.shape[1]} classes, found shape {new.shape}.")
    rows = normalized_rows(new, getattr(probabilities, "dtype", None))
    if rows is None:
        raise ValueError(
            "prediction_sets: expected non-negative probabilities of new examples that sum to 1 for each example; "
            "for logits apply a softmax first."
        )
    if _checks.chosen("prediction_sets", "score", score, ("aps", "lac")) == "lac":
        scores, new_scores = 1.0 - p, 1.0 - rows
    else:
        seed = None
        if random_state is not None:
            seed = _checks.whole("prediction_sets", "random_state", random_state, least=0)
        scores, new_scores = _adaptive_scores(p, seed), _adaptive_scores(rows, seed)
    threshold = conformal_quantile(np.where(is_unknown, math.inf, scores[np.arange(len(y)), y]), coverage)
    return PredictionSets(new_scores <= threshold + _ROUNDING, threshold)


def prediction_intervals(
    calibration: Any,
    targets: Any,
    means: Any,
    *,
    coverage: float = 0.9,
    calibration_scale: Any = None,
    scale: Any = None,
) -> PredictionIntervals:
    """Compute intervals that contain the true number with a given probability.

    Args:
        calibration: Predicted means of calibration examples.
        targets: Their true values.
        means: Predicted means of new examples.
        coverage: Target probability.
        calibration_scale: Predicted standard deviations of the calibration examples, which divide the residuals; None
            for intervals of constant width.
        scale: Predicted standard deviations of the new examples.

    Returns:
        The intervals.

    Raises:
        ValueError: If shapes do not match, an example has several numbers, or only one of the two scales is given.
    """
    if (calibration_scale is None) != (scale is None):
        raise ValueError("prediction_intervals: give calibration_scale and scale, or neither.")
    owner = "prediction_intervals"
    known, true = (_checks.numbers(owner, n, a) for n, a in (("calibration", calibration), ("targets", targets)))
    new = _checks.numbers(owner, "means", means)
    known_scale, new_scale = np.ones(()), np.ones(())
    if scale is not None:
        known_scale = _checks.numbers(owner, "calibration_scale", calibration_scale)
        new_scale = _checks.numbers(owner, "scale", scale)
    is_fit = known.shape == true.shape and known_scale.shape in ((), known.shape) and new_scale.shape in ((), new.shape)
    if not is_fit or not ((known_scale > 0).all() and (new_scale > 0).all()):
        raise ValueError(
            f"prediction_intervals: expected targets of shape {known.shape} and positive scales shaped like the "
            f"means, found {true.shape}, {known_scale.shape} and {new_scale.shape}."
        )
    if any(values.ndim > 1 and values.size != len(values) for values in (known, new)):
        # residuals of one example are dependent and do not count as separate examples
        raise ValueError(
            f"prediction_intervals: expected one number for each example, found means of shapes {known.shape} and "
            f"{new.shape}; compute intervals for one output at a time."
        )
    if not all(np.isfinite(values).all() for values in (known, true, new, known_scale, new_scale)):
        raise ValueError("prediction_intervals: expected finite means, targets and scales, found non-finite values.")
    threshold = conformal_quantile(np.abs(true - known) / known_scale, coverage)
    return PredictionIntervals(new - threshold * new_scale, new + threshold * new_scale, threshold)


def _shares(p: np.ndarray, seed: int) -> np.ndarray:
    """Return a number in [0, 1) per example, a hash of the seed and of its probabilities, shape (examples, 1)."""
    mantissa, exponent = np.frexp(p + 0.0)  # turns -0.0 into 0.0
    rows = np.ldexp(np.round(np.ldexp(mantissa, _KEPT_BITS)), exponent - _KEPT_BITS).astype("<f8")
    key = seed.to_bytes(8, "little")
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in rows]
    numbers = np.array([int.from_bytes(digest, "little") >> (64 - _SHARE_BITS) for digest in digests], np.float64)
    return np.ldexp(numbers, -_SHARE_BITS)[:, None]


def _adaptive_scores(p: np.ndarray, seed: int | None) -> np.ndarray:
    order = np.argsort(-p, axis=1, kind="stable")
    ordered = np.take_along_axis(p, order, axis=1)
    share = np.ones((len(p), 1)) if seed is None else _shares(p, seed)
    ordered_scores = np.cumsum(ordered, axis=1) - (1.0 - share) * ordered
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, ordered_scores, axis=1)
    return scores
