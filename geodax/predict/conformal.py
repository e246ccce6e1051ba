r"""Split-conformal prediction: sets and intervals that hold the truth as often as they say.

From n examples that were not used in training, a score of how badly each is predicted, and the
:math:`\lceil (n + 1) c \rceil`-th smallest score q. A new example that can be exchanged with them has a score of at
most q with a probability of at least c, and at most :math:`c + 1 / (n + 1)` where ties have probability zero: averaged
over calibration sets, whatever the model. The set of labels, or the interval, with scores up to q is the prediction.

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

from geodax import _checks as _arguments
from geodax.predict.scores import checked_probabilities, normalized_rows

_UNKNOWN = -1
_SHARE_BITS = 53  # all that a number in double precision has
_KEPT_BITS = 24  # of a probability: its last bits depend on how many rows were computed together
_ROUNDING = 1e-12  # of a score, for the same reason: an example like the one at the threshold is not beyond it


class PredictionSets(NamedTuple):
    """Sets of classes.

    Attributes:
        members: Whether each class belongs to the set, example x class.
        threshold: The largest score of a member; infinite where there are too few calibration examples.
    """

    members: Bool[np.ndarray, "examples classes"]
    threshold: float


class PredictionIntervals(NamedTuple):
    """Intervals of numbers.

    Attributes:
        lower: Their lower ends.
        upper: Their upper ends.
        threshold: The largest score inside; infinite where there are too few calibration examples.
    """

    lower: Float[np.ndarray, " examples"]
    upper: Float[np.ndarray, " examples"]
    threshold: float


def conformal_quantile(scores: Any, coverage: float) -> float:
    """The score up to which a new example has to be accepted.

    Args:
        scores: Scores of calibration examples; infinity for one that no prediction can hold.
        coverage: Wanted probability, between 0 and 1.

    Returns:
        The ``ceil((n + 1) coverage)``-th smallest score; infinite if that is more than n.

    Raises:
        ValueError: For no scores at all, or some that are NaN or minus infinity, or a coverage out of its range.
    """
    values = np.sort(_arguments.numbers("conformal_quantile", "scores", scores).ravel())
    if not 0 < (coverage := _arguments.number("conformal_quantile", "coverage", coverage)) < 1:
        raise ValueError(f"conformal_quantile: coverage must lie between 0 and 1, found {coverage:g}.")
    is_score = values > -math.inf  # and no NaN
    if not len(values) or not is_score.all():
        raise ValueError(
            f"conformal_quantile: expected scores that are finite or infinity, found {len(values)} of which "
            f"{int((~is_score).sum())} are NaN or minus infinity."
        )
    # (n + 1) c is a whole number as often as not; its rounding error must not make it the next one
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
    """Sets of classes that hold the true one with a given probability.

    Args:
        calibration: Predicted probabilities of calibration examples, example x class.
        labels: Their classes, from 0; -1 for one that is none of those predicted, and so in no set: its score is
            infinite.
        probabilities: Predicted probabilities of new examples.
        coverage: Wanted probability.
        score: ``"aps"``, the probability of all classes that are as probable or more, of which the class itself counts
            for a random share: sets that are larger where the model is unsure. ``"lac"``, one minus the probability of
            the class: the smallest sets on average, some of them empty.
        random_state: Seed of the random shares; None counts the class itself whole, which covers too often. The share
            of an example is a hash of the seed and of its own probabilities in single precision: its set is the same
            alone as beside others. Examples with the same probabilities have the same share, and where many have,
            sets can cover more often than was asked for.

    Returns:
        The sets.

    Raises:
        ValueError: For an unknown score, arrays that do not fit, or numbers that are no probabilities.
    """
    found = _arguments.plain("prediction_sets", "labels", labels)
    is_unknown = found == _UNKNOWN
    p, y = checked_probabilities(calibration, np.where(is_unknown, np.zeros((), found.dtype), found))
    new = _arguments.numbers("prediction_sets", "probabilities", probabilities)
    if new.ndim != 2 or new.shape[1] != p.shape[1]:
        raise ValueError(f"prediction_sets: expected probabilities of {p.shape[1]} classes, found shape {new.shape}.")
    rows = normalized_rows(new, getattr(probabilities, "dtype", None))
    if rows is None:
        raise ValueError(
            "prediction_sets: expected probabilities of new examples that are not negative and sum to 1 for each of "
            "them; logits need a softmax first."
        )
    if not isinstance(score, str) or score not in ("aps", "lac"):
        raise ValueError(f"prediction_sets: score must be 'aps' or 'lac', found {_arguments.described(score)}.")
    if score == "lac":
        scores, new_scores = 1.0 - p, 1.0 - rows
    else:
        seed = None
        if random_state is not None:
            seed = _arguments.whole("prediction_sets", "random_state", random_state, least=0)
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
    """Intervals that hold the true number with a given probability.

    Args:
        calibration: Predicted means of calibration examples.
        targets: Their true values.
        means: Predicted means of new examples.
        coverage: Wanted probability.
        calibration_scale: Predicted standard deviations of the calibration examples, by which residuals are divided;
            None for intervals of one width.
        scale: Those of the new examples.

    Returns:
        The intervals.

    Raises:
        ValueError: For arrays that do not fit, several numbers an example, or only one of the two scales.
    """
    if (calibration_scale is None) != (scale is None):
        raise ValueError("prediction_intervals: give calibration_scale and scale, or neither.")
    owner = "prediction_intervals"
    known, true = (_arguments.numbers(owner, n, a) for n, a in (("calibration", calibration), ("targets", targets)))
    new = _arguments.numbers(owner, "means", means)
    known_scale, new_scale = np.ones(()), np.ones(())
    if scale is not None:
        known_scale = _arguments.numbers(owner, "calibration_scale", calibration_scale)
        new_scale = _arguments.numbers(owner, "scale", scale)
    is_fit = known.shape == true.shape and known_scale.shape in ((), known.shape) and new_scale.shape in ((), new.shape)
    if not is_fit or not ((known_scale > 0).all() and (new_scale > 0).all()):
        raise ValueError(
            f"prediction_intervals: expected targets of shape {known.shape} and positive scales of the shapes of the "
            f"means, found {true.shape}, {known_scale.shape} and {new_scale.shape}."
        )
    if any(values.ndim > 1 and values.size != len(values) for values in (known, new)):
        # the residuals of one example depend on each other: they do not count as so many examples
        raise ValueError(
            f"prediction_intervals: expected one number for each example, found means of shapes {known.shape} and "
            f"{new.shape}; make intervals of one output at a time."
        )
    if not all(np.isfinite(values).all() for values in (known, true, new, known_scale, new_scale)):
        raise ValueError("prediction_intervals: expected finite means, targets and scales, found some that are not.")
    threshold = conformal_quantile(np.abs(true - known) / known_scale, coverage)
    return PredictionIntervals(new - threshold * new_scale, new + threshold * new_scale, threshold)


def _shares(p: np.ndarray, seed: int) -> np.ndarray:
    """A number from 0 to below 1 for each example, a hash of the seed and of its own probabilities, example x 1."""
    mantissa, exponent = np.frexp(p + 0.0)  # no negative zeros
    rows = np.ldexp(np.round(np.ldexp(mantissa, _KEPT_BITS)), exponent - _KEPT_BITS).astype("<f8")
    key = seed.to_bytes(8, "little")
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in rows]
    numbers = np.array([int.from_bytes(digest, "little") >> (64 - _SHARE_BITS) for digest in digests], np.float64)
    return np.ldexp(numbers, -_SHARE_BITS)[:, None]


def _adaptive_scores(p: np.ndarray, seed: int | None) -> np.ndarray:
    """Probability of the classes before each one in descending order, and a share of its own, example x class."""
    order = np.argsort(-p, axis=1, kind="stable")
    ordered = np.take_along_axis(p, order, axis=1)
    share = np.ones((len(p), 1)) if seed is None else _shares(p, seed)
    ordered_scores = np.cumsum(ordered, axis=1) - (1.0 - share) * ordered
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, ordered_scores, axis=1)
    return scores
