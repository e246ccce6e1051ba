r"""Scores of predictions on held-out rows, with standard errors.

A score :math:`T` of :math:`n` rows is kept with the influence :math:`\psi_i` of each row, the derivative of :math:`T`
with respect to the row's weight. Its standard error is :math:`\sqrt{\sum_i \psi_i^2 / (n (n - 1))}`. The influences of
a difference of two scores on the same rows are the differences of theirs, so differences are compared in pairs.

Sources:
    Hampel (1974), The influence curve and its role in robust estimation. JASA 69.
    DeLong, DeLong and Clarke-Pearson (1988), Comparing the areas under two or more correlated receiver operating
    characteristic curves. Biometrics 44. (AUC.)
    Agresti and Coull (1998), Approximate is better than "exact" for interval estimation of binomial proportions. The
    American Statistician 52.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax.predict.scores import checked_probabilities


class Score(NamedTuple):
    """A score on some rows.

    Attributes:
        value: The score.
        influence: The influence of each row on it; the sum is zero.
        least_error: A lower bound of the standard error, for proportions of 0 or 1.
    """

    value: float
    influence: Float[np.ndarray, " rows"]
    least_error: float = 0.0

    @property
    def error(self) -> float:
        """The standard error; NaN for a single row."""
        n = len(self.influence)
        if n < 2:
            return float("nan")
        return max(float(np.sqrt((self.influence**2).sum() / (n * (n - 1)))), self.least_error)

    def minus(self, other: "Score") -> "Score":
        """Subtract the score of other predictions of the same rows.

        Args:
            other: The other score.

        Returns:
            The difference, whose standard error takes into account that the rows are the same.
        """
        return Score(self.value - other.value, self.influence - other.influence)


def mean(values: Any) -> Score:
    """Compute a mean over rows, such as the mean absolute error or the mean log loss.

    Args:
        values: One number per row.

    Returns:
        The mean.
    """
    each = _numbers("mean", "values", values)
    with np.errstate(invalid="ignore"):
        return Score(float(each.mean()), each - each.mean())


def proportion(is_hit: Any) -> Score:
    """Compute the fraction of rows with a property, such as a correct class or a covered target.

    Args:
        is_hit: One truth value per row.

    Returns:
        The fraction. Its standard error is at least that of the fraction with two more hits and two more misses.
    """
    each = _numbers("proportion", "is_hit", np.asarray(is_hit, np.float64))
    share = (each.sum() + 2) / (len(each) + 4)
    is_still = each.min() == each.max()
    least = float(np.sqrt(share * (1 - share) / (len(each) + 4))) if is_still else 0.0
    return Score(float(each.mean()), each - each.mean(), least)


def root_mean_squared_error(means: Any, targets: Any) -> Score:
    """Compute the root mean squared error.

    Args:
        means: Predicted numbers, one per row.
        targets: True values.

    Returns:
        The score, in the targets' units.
    """
    predicted, true = _pair("root_mean_squared_error", means, targets)
    squares = (predicted - true) ** 2
    value = float(np.sqrt(squares.mean()))
    return Score(value, (squares - squares.mean()) / (2 * value) if value > 0 else np.zeros(len(true)))


def mean_absolute_error(means: Any, targets: Any) -> Score:
    """Compute the mean absolute error.

    Args:
        means: Predicted numbers, one per row.
        targets: True values.

    Returns:
        The score, in the targets' units.
    """
    predicted, true = _pair("mean_absolute_error", means, targets)
    return mean(np.abs(predicted - true))


def r_squared(means: Any, targets: Any) -> Score:
    """Compute the coefficient of determination: 1 minus the squared error relative to that of the rows' own mean.

    Args:
        means: Predicted numbers, one per row.
        targets: True values.

    Returns:
        The score, at most 1; NaN if all targets are equal.
    """
    predicted, true = _pair("r_squared", means, targets)
    squares, around = (predicted - true) ** 2, (true - true.mean()) ** 2
    total = around.mean()
    if not total > 0:
        return Score(float("nan"), np.full(len(true), np.nan))
    ratio = squares.mean() / total
    return Score(float(1 - ratio), (ratio * around - squares) / total)


def log_loss(probabilities: Any, labels: Any) -> Score:
    """Compute the mean negative log probability of the true classes.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.

    Returns:
        The score in nats; infinite if a true class has probability zero.
    """
    p, y = checked_probabilities(probabilities, labels)
    with np.errstate(divide="ignore"):
        return mean(-np.log(p[np.arange(len(y)), y]))


def accuracy(probabilities: Any, labels: Any) -> Score:
    """Compute the fraction of rows whose most probable class is the true one.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.

    Returns:
        The score.
    """
    p, y = checked_probabilities(probabilities, labels)
    return proportion(p.argmax(axis=1) == y)


def auc(probabilities: Any, labels: Any) -> Score:
    """Compute the area under the ROC curve, for more than two classes the mean over classes of one against the rest.

    It is the probability that a row of the class gets a higher probability of it than a row of another class.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.

    Returns:
        The score. Classes that all rows or no rows have are left out; NaN if none is left.
    """
    p, y = checked_probabilities(probabilities, labels)
    classes = range(1, 2) if p.shape[1] == 2 else range(p.shape[1])
    areas = [roc_area(p[:, k], y == k) for k in classes if 0 < np.sum(y == k) < len(y)]
    if not areas:
        return Score(float("nan"), np.full(len(y), np.nan))
    return Score(float(np.mean([a.value for a in areas])), np.mean([a.influence for a in areas], axis=0))


def roc_area(values: Any, is_in: Any) -> Score:
    """Compute the area under the ROC curve of any score of rows, with the placements of DeLong et al. as influences.

    Args:
        values: One number per row, larger for rows that are likelier in the class.
        is_in: Which rows are in the class; some are, and some are not.

    Returns:
        The probability that a row of the class has a larger number than another row.
    """
    values, is_in = _numbers("roc_area", "values", values), np.asarray(is_in, bool)
    inside, outside = values[is_in], values[~is_in]
    placements = np.empty(len(values))
    placements[is_in] = _fraction_below(inside, np.sort(outside))
    placements[~is_in] = 1 - _fraction_below(outside, np.sort(inside))
    value = placements[is_in].mean()
    sizes = np.where(is_in, len(inside), len(outside))
    return Score(float(value), (placements - value) * len(values) / sizes)


def _fraction_below(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The fraction of sorted numbers below each value; equal ones count half."""
    sides = (np.searchsorted(others, values, side="left"), np.searchsorted(others, values, side="right"))
    return (sides[0] + sides[1]) / (2 * len(others))


def _pair(owner: str, means: Any, targets: Any) -> tuple[np.ndarray, np.ndarray]:
    predicted, true = _numbers(owner, "means", means), _numbers(owner, "targets", targets)
    if predicted.shape != true.shape:
        raise ValueError(f"{owner}: predictions have shape {predicted.shape}, but the targets {true.shape}.")
    return predicted, true


def _numbers(owner: str, name: str, values: Any) -> np.ndarray:
    found = np.asarray(_checks.numbers(owner, name, values), np.float64)
    if found.ndim != 1 or not found.size:
        raise ValueError(f"{owner}: expected one number per row as {name}, found an array of shape {found.shape}.")
    return found
