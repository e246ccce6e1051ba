"""Penalised least squares of a low-rank matrix with partly observed entries, by alternating ridge regressions.

Sources:
    Koren, Bell and Volinsky (2009), Matrix factorization techniques for recommender systems. Computer 42.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_matrix

from geodax.models.factorization.density import FactorizationForm

Places = Int[np.ndarray, " N"]
Ratings = Float[np.ndarray, " N"]
PENALTIES = tuple(2.0 ** (k / 2) for k in range(-4, 13))
"""The penalties that are compared, for standardised ratings."""

_NUM_SHORT_SWEEPS = 10  # to compare penalties
_NUM_FOLDS = 10
_MANY = 10_000  # ratings, with which one fold is enough


class LeastSquares(NamedTuple):
    """A penalised least-squares fit of standardised ratings.

    Attributes:
        offsets: Offsets of the users and of the items, zero if the model has none.
        error: Root mean squared error in cross-validation.
    """

    mean: float
    offsets: tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]
    left: Float[np.ndarray, "m r"]
    right: Float[np.ndarray, "n r"]
    penalty: float = 0.0
    error: float = 0.0

    def predict(self, users: Places, items: Places) -> Ratings:
        """Compute the standardised ratings of pairs; unknown users and items, at -1, contribute nothing."""
        sides = zip((users, items), self.offsets, (self.left, self.right), strict=True)
        (a, rows), (b, columns) = (
            (np.append(each, 0.0)[place], np.append(factor, 0.0 * factor[:1], axis=0)[place])
            for place, each, factor in sides
        )
        return self.mean + a + b + np.sum(rows * columns, axis=1)


def cross_validated(users: Places, items: Places, ratings: Ratings, form: FactorizationForm) -> LeastSquares:
    """Fit all standardised ratings with the penalty that predicts best in ten-fold cross-validation.

    Of 10,000 ratings or more, only one of the ten parts is predicted.
    """
    fold = np.random.default_rng(0).permutation(len(ratings)) % _NUM_FOLDS
    errors = np.zeros(len(PENALTIES))
    num_folds = 1 if len(ratings) >= _MANY else _NUM_FOLDS
    for k in range(num_folds):
        known, other = fold != k, fold == k
        for i, penalty in enumerate(PENALTIES):
            fit = fitted(users[known], items[known], ratings[known], form, penalty, num_sweeps=_NUM_SHORT_SWEEPS)
            errors[i] += np.sum((fit.predict(users[other], items[other]) - ratings[other]) ** 2)
    best = int(errors.argmin())
    error = float(np.sqrt(errors[best] / (fold < num_folds).sum()))
    fit = fitted(users, items, ratings, form, PENALTIES[best])
    return fit._replace(error=error)


def fitted(
    users: Places, items: Places, ratings: Ratings, form: FactorizationForm, penalty: float, *, num_sweeps: int = 30
) -> LeastSquares:
    """Fit the mean, shrunken offsets, and two ordinary factors with a ridge penalty to what is left."""
    m, n, r = form.num_users, form.num_items, form.rank
    mean = float(ratings.mean())
    rest, offsets = ratings - mean, [np.zeros(m), np.zeros(n)]
    if form.has_offsets:
        for side, index in ((1, items), (0, users)):
            number = len(offsets[side])
            sums = np.bincount(index, weights=rest, minlength=number)
            offsets[side] = sums / (np.bincount(index, minlength=number) + 1.0 / form.offset_scale**2)
            rest = rest - offsets[side][index]
    observed, known = (coo_matrix((x, (users, items)), shape=(m, n)).tocsr() for x in (rest, np.ones_like(rest)))
    left = np.zeros((m, r))
    right = np.random.default_rng(0).standard_normal((n, r)) * form.entry_variance**0.5

    def regressed(values: Any, indicator: Any, other: np.ndarray) -> np.ndarray:
        squares = (indicator @ (other[:, :, None] * other[:, None]).reshape(len(other), r * r)).reshape(-1, r, r)
        return np.linalg.solve(squares + penalty * np.eye(r), (values @ other)[..., None])[..., 0]

    for _ in range(num_sweeps):
        left = regressed(observed, known, right)
        right = regressed(observed.T, known.T, left)
    return LeastSquares(mean, (offsets[0], offsets[1]), left, right, penalty)
