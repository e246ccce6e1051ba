"""Initial positions for a factorisation, near the penalised least-squares solution."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_matrix

from geodax._types import Position, PRNGKey
from geodax.models.factorization.density import FactorizationForm

_JITTER = 0.1
_NUM_SWEEPS = 30
_NOISE = 0.6  # standard deviation assumed by the ridge regressions


class SpectralStart:
    """Map a key to an initial position: a penalised least-squares fit, perturbed independently for each chain.

    Offsets are shrunken means. Alternating ridge regressions fit two ordinary factors to the residuals; penalties leave
    the singular values of components that the ratings do not need small.

    Args:
        users: Users from 0.
        items: Items from 0.
        ratings: Standardised ratings.
        form: The model.
    """

    def __init__(
        self,
        users: Int[np.ndarray, " N"],
        items: Int[np.ndarray, " N"],
        ratings: Float[np.ndarray, " N"],
        form: FactorizationForm,
    ):
        m, n = form.num_users, form.num_items
        rest = ratings - ratings.mean()
        self.offsets = {}
        if form.has_offsets:
            shrinkage = 1.0 / form.offset_scale**2
            for name, index, number in (("item_offset", items, n), ("user_offset", users, m)):
                sums = np.bincount(index, weights=rest, minlength=number)
                self.offsets[name] = sums / (np.bincount(index, minlength=number) + shrinkage)
                rest = rest - self.offsets[name][index]
        self.left, self.scales, self.right = _least_squares(users, items, rest, form)
        self.mean, self.noise, self.form = float(ratings.mean()), float(max(rest.std(), 0.05)), form

    def __call__(self, key: PRNGKey) -> Position:
        """Return an initial position in the coordinates, in single precision."""
        form = self.form
        keys = jax.random.split(key, 4)
        scales = self.scales
        left, right = (_near(k, frame) for k, frame in zip(keys, (self.left, self.right), strict=False))
        natural = {"intercept": self.mean, "log_noise": np.log(self.noise), **self.offsets}
        if form.factorization == "svd":
            natural["log_gaps"] = np.log(scales - np.append(scales[1:], 0.0))
        else:
            left, right = left * np.sqrt(scales), right * np.sqrt(scales)
        position = {name: np.asarray(value) / form.factors[name] for name, value in natural.items()}
        return {
            name: jnp.asarray(value, jnp.float32) for name, value in (position | {"left": left, "right": right}).items()
        }


def _least_squares(
    users: Int[np.ndarray, " N"], items: Int[np.ndarray, " N"], rest: Float[np.ndarray, " N"], form: FactorizationForm
) -> tuple[Float[np.ndarray, "m r"], Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """Fit two ordinary factors by alternating ridge regressions; return the SVD of their product."""
    m, n, r = form.num_users, form.num_items, form.rank
    observed, known = (coo_matrix((x, (users, items)), shape=(m, n)).tocsr() for x in (rest, np.ones_like(rest)))
    penalty = _NOISE**2 / form.entry_variance * np.eye(r)
    right = np.random.default_rng(0).standard_normal((n, r)) * form.entry_variance**0.5

    def regressed(values: Any, indicator: Any, other: np.ndarray) -> np.ndarray:
        squares = (indicator @ (other[:, :, None] * other[:, None]).reshape(len(other), r * r)).reshape(-1, r, r)
        return np.linalg.solve(squares + penalty, (values @ other)[..., None])[..., 0]

    for _ in range(_NUM_SWEEPS):
        left = regressed(observed, known, right)
        right = regressed(observed.T, known.T, left)
    (q_left, upper_left), (q_right, upper_right) = np.linalg.qr(left), np.linalg.qr(right)
    inner, scales, outer = np.linalg.svd(upper_left @ upper_right.T)
    least = 1e-3 * form.interaction_scale * (m * n / r) ** 0.5
    gaps = np.maximum(scales - np.append(scales[1:], 0.0), least)
    return q_left @ inner, np.cumsum(gaps[::-1])[::-1], q_right @ outer.T


def _near(key: PRNGKey, frame: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "n r"]:
    """Perturb an orthonormal frame and return the nearest orthonormal frame."""
    noise = np.asarray(jax.random.normal(key, frame.shape)) / np.sqrt(len(frame))
    left, _, right = np.linalg.svd(frame + _JITTER * noise, full_matrices=False)
    return left @ right
