r"""Scores of predictions on held-out rows, with standard errors.

A score :math:`T` of :math:`n` rows is kept with the influence :math:`\psi_i` of each row, the derivative of :math:`T`
with respect to the row's weight. Its standard error is :math:`\sqrt{\sum_i \psi_i^2 / (n (n - 1))}`. The influences of
a difference of two scores on the same rows are the differences of theirs, so differences are compared in pairs.

With weights, a score has the value that it would have if each row occurred as often as its weight says. Its standard
error is still that of independent rows: rows that occur several times tell no more than one of large weight.

Rows of one group, such as a patient, are not independent: the influence of a group is the sum of those of its rows, and
:meth:`Score.by_group` gives standard errors of independent groups (Liang and Zeger 1986).

Sources:
    Hampel (1974), The influence curve and its role in robust estimation. JASA 69.
    DeLong, DeLong and Clarke-Pearson (1988), Comparing the areas under two or more correlated receiver operating
    characteristic curves. Biometrics 44. (AUC.)
    Agresti and Coull (1998), Approximate is better than "exact" for interval estimation of binomial proportions. The
    American Statistician 52.
    Liang and Zeger (1986), Longitudinal data analysis using generalized linear models. Biometrika 73.
    Kish (1965), Survey sampling. (The effective number of weighted rows.)
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax.predict.scores import checked_probabilities, relative_weights


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

    def by_group(self, groups: Any) -> "Score":
        """Treat groups of rows as independent, not rows; the standard error is then that of clusters of rows.

        Args:
            groups: The group of each row.

        Returns:
            The same value, with one influence per group: n_groups / n_rows times the sum of those of its rows.
        """
        _, places = np.unique(np.asarray(groups), return_inverse=True)
        sums = np.bincount(places, self.influence)
        ratio = len(self.influence) / len(sums)
        least_error = max(self.least_error, _least_error(self.value, float(len(sums)))) if self.least_error else 0.0
        return Score(self.value, sums / ratio, least_error)

    def minus(self, other: "Score") -> "Score":
        """Subtract the score of other predictions of the same rows.

        Args:
            other: The other score.

        Returns:
            The difference, whose standard error takes into account that the rows are the same.
        """
        return Score(self.value - other.value, self.influence - other.influence)


def mean(values: Any, weights: Any = None) -> Score:
    """Compute a mean over rows, such as the mean absolute error or the mean log loss.

    Args:
        values: One number per row.
        weights: Weight of each row; None weights all equally.

    Returns:
        The mean.
    """
    each = _numbers("mean", "values", values)
    w = relative_weights("mean", weights, len(each))
    with np.errstate(invalid="ignore"):
        value = float(np.mean(w * each))
        return Score(value, w * (each - value))


def proportion(is_hit: Any, weights: Any = None) -> Score:
    """Compute the fraction of rows with a property, such as a correct class or a covered target.

    Args:
        is_hit: One truth value per row.
        weights: Weight of each row; None weights all equally.

    Returns:
        The fraction. Its standard error is at least that of the fraction with two more hits and two more misses, among
        the effective number of rows (Kish 1965).
    """
    each = _numbers("proportion", "is_hit", np.asarray(is_hit, np.float64))
    found, w = mean(each, weights), relative_weights("proportion", weights, len(each))
    is_still = each.min() == each.max()
    return found._replace(least_error=_least_error(found.value, float(len(each) / np.mean(w * w))) if is_still else 0.0)


def root_mean_squared_error(means: Any, targets: Any, weights: Any = None) -> Score:
    """Compute the root mean squared error.

    Args:
        means: Predicted numbers, one per row.
        targets: True values.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score, in the targets' units.
    """
    predicted, true = _pair("root_mean_squared_error", means, targets)
    square = mean((predicted - true) ** 2, weights)
    value = float(np.sqrt(square.value))
    return Score(value, square.influence / (2 * value) if value > 0 else np.zeros(len(true)))


def mean_absolute_error(means: Any, targets: Any, weights: Any = None) -> Score:
    """Compute the mean absolute error.

    Args:
        means: Predicted numbers, one per row.
        targets: True values.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score, in the targets' units.
    """
    predicted, true = _pair("mean_absolute_error", means, targets)
    return mean(np.abs(predicted - true), weights)


def r_squared(means: Any, targets: Any, weights: Any = None) -> Score:
    """Compute the coefficient of determination: 1 minus the squared error relative to that of the rows' own mean.

    Args:
        means: Predicted numbers, one per row.
        targets: True values.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score, at most 1; NaN if all targets are equal.
    """
    predicted, true = _pair("r_squared", means, targets)
    around = mean((true - mean(true, weights).value) ** 2, weights)
    if not around.value > 0:
        return Score(float("nan"), np.full(len(true), np.nan))
    squares = mean((predicted - true) ** 2, weights)
    ratio = squares.value / around.value
    return Score(1 - ratio, (ratio * around.influence - squares.influence) / around.value)


def log_loss(probabilities: Any, labels: Any, weights: Any = None) -> Score:
    """Compute the mean negative log probability of the true classes.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score in nats; infinite if a true class has probability zero.
    """
    p, y = checked_probabilities(probabilities, labels)
    with np.errstate(divide="ignore"):
        return mean(-np.log(p[np.arange(len(y)), y]), weights)


def brier(probabilities: Any, labels: Any, weights: Any = None) -> Score:
    """Compute the Brier score, see :func:`geodax.predict.scores.brier`.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score, between 0 and 2.
    """
    p, y = checked_probabilities(probabilities, labels)
    return mean((p**2).sum(axis=1) - 2 * p[np.arange(len(y)), y] + 1, weights)


def accuracy(probabilities: Any, labels: Any, weights: Any = None) -> Score:
    """Compute the fraction of rows whose most probable class is the true one.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score.
    """
    p, y = checked_probabilities(probabilities, labels)
    return proportion(p.argmax(axis=1) == y, weights)


def auc(probabilities: Any, labels: Any, weights: Any = None) -> Score:
    """Compute the area under the ROC curve, for more than two classes the mean over classes of one against the rest.

    It is the probability that a row of the class gets a higher probability of it than a row of another class.

    Args:
        probabilities: Row x class.
        labels: Classes from 0.
        weights: Weight of each row; None weights all equally.

    Returns:
        The score. Classes that all rows or no rows have are left out; NaN if none is left.
    """
    p, y = checked_probabilities(probabilities, labels)
    classes = range(1, 2) if p.shape[1] == 2 else range(p.shape[1])
    areas = [roc_area(p[:, k], y == k, weights) for k in classes if 0 < np.sum(y == k) < len(y)]
    if not areas:
        return Score(float("nan"), np.full(len(y), np.nan))
    return Score(float(np.mean([a.value for a in areas])), np.mean([a.influence for a in areas], axis=0))


def roc_area(values: Any, is_in: Any, weights: Any = None) -> Score:
    """Compute the area under the ROC curve of any score of rows, with the placements of DeLong et al. as influences.

    Args:
        values: One number per row, larger for rows that are likelier in the class.
        is_in: Which rows are in the class; some are, and some are not.
        weights: Weight of each row; None weights all equally.

    Returns:
        The probability that a row of the class has a larger number than another row.
    """
    values, is_in = _numbers("roc_area", "values", values), np.asarray(is_in, bool)
    w = relative_weights("roc_area", weights, len(values))
    placements = np.empty(len(values))
    placements[is_in] = _fraction_below(values[is_in], values[~is_in], w[~is_in])
    placements[~is_in] = 1 - _fraction_below(values[~is_in], values[is_in], w[is_in])
    value = np.average(placements[is_in], weights=w[is_in])
    sizes = np.where(is_in, w[is_in].sum(), w[~is_in].sum())
    return Score(float(value), w * (placements - value) * len(values) / sizes)


def _least_error(share: float, number: float) -> float:
    """Standard error of a share of so many rows, with two more hits and two more misses."""
    share = (number * share + 2) / (number + 4)
    return float(np.sqrt(share * (1 - share) / (number + 4)))


def _fraction_below(values: np.ndarray, others: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The fraction of the weight of other numbers below each value; equal ones count half."""
    order = np.argsort(others)
    below = np.append(0.0, np.cumsum(weights[order]))
    sides = (np.searchsorted(others[order], values, side=side) for side in ("left", "right"))
    return sum(below[side] for side in sides) / (2 * below[-1])


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
