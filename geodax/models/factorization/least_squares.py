"""Penalised least squares of a low-rank matrix with partly observed entries, by alternating ridge regressions.

The initial positions of a fit are near the solution.

Sources:
    Koren, Bell and Volinsky (2009), Matrix factorization techniques for recommender systems. Computer 42.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_matrix

from geodax._types import Position, PRNGKey
from geodax.models.factorization.density import FactorizationForm, coordinates

Places = Int[np.ndarray, " N"]
Ratings = Float[np.ndarray, " N"]
PENALTIES = tuple(2.0 ** (k / 2) for k in range(-4, 13))
"""The penalties that are compared, for standardised ratings."""

_NUM_SHORT_SWEEPS = 10  # to compare penalties
_NUM_FOLDS = 10
_MANY = 10_000  # ratings, with which one fold is enough
_JITTER = 0.1  # of initial positions
_NOISE = 0.6  # standard deviation that they assume


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


class SpectralStart:
    """Map a key to an initial position: a penalised least-squares fit of standardised ratings, perturbed.

    Offsets are shrunken means. Alternating ridge regressions fit two ordinary factors to the residuals; penalties leave
    the singular values of components that the ratings do not need small. The perturbation separates the chains.
    """

    def __init__(self, users: Places, items: Places, ratings: Ratings, form: FactorizationForm):
        self.dtype = ratings.dtype
        fit = fitted(users, items, ratings, form, _NOISE**2 / form.entry_variance)
        names = ("user_offset", "item_offset")
        self.offsets = dict(zip(names, fit.offsets, strict=True)) if form.has_offsets else {}
        rest = ratings - fit.mean - fit.offsets[0][users] - fit.offsets[1][items]
        self.mean, self.noise, self.form = fit.mean, float(max(rest.std(), 0.05)), form
        (q_left, upper_left), (q_right, upper_right) = np.linalg.qr(fit.left), np.linalg.qr(fit.right)
        inner, scales, outer = np.linalg.svd(upper_left @ upper_right.T)
        least = 1e-3 * form.interaction_scale * (form.num_users * form.num_items / form.rank) ** 0.5
        gaps = np.maximum(scales - np.append(scales[1:], 0.0), least)
        self.left, self.scales, self.right = q_left @ inner, np.cumsum(gaps[::-1])[::-1], q_right @ outer.T

    def __call__(self, key: PRNGKey) -> Position:
        """Return an initial position in the coordinates, with the precision of the ratings."""
        form = self.form
        keys = jax.random.split(key, 4)
        scales = self.scales
        left, right = (_near(k, frame) for k, frame in zip(keys, (self.left, self.right), strict=False))
        if form.factorization == "svd":
            shape = {"left": left, "right": right, "scales": scales}
        else:
            shape = {"left": left * np.sqrt(scales), "right": right * np.sqrt(scales)}
        found = {"intercept": self.mean, "log_noise": np.log(self.noise), **self.offsets, **shape}
        return {name: jnp.asarray(x, self.dtype) for name, x in coordinates(found, form).items()}


def _near(key: PRNGKey, frame: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "n r"]:
    noise = np.asarray(jax.random.normal(key, frame.shape)) / np.sqrt(len(frame))
    left, _, right = np.linalg.svd(frame + _JITTER * noise, full_matrices=False)
    return left @ right
