"""Initial positions for a factorisation, near the penalised least-squares solution."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax._types import Position, PRNGKey
from geodax.models.factorization.density import FactorizationForm
from geodax.models.factorization.least_squares import Places, Ratings, fitted

_JITTER = 0.1
_NOISE = 0.6  # standard deviation assumed by the ridge regressions


class SpectralStart:
    """Map a key to an initial position: a penalised least-squares fit of standardised ratings, perturbed.

    Offsets are shrunken means. Alternating ridge regressions fit two ordinary factors to the residuals; penalties leave
    the singular values of components that the ratings do not need small. The perturbation separates the chains.
    """

    def __init__(self, users: Places, items: Places, ratings: Ratings, form: FactorizationForm):
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


def _near(key: PRNGKey, frame: Float[np.ndarray, "n r"]) -> Float[np.ndarray, "n r"]:
    noise = np.asarray(jax.random.normal(key, frame.shape)) / np.sqrt(len(frame))
    left, _, right = np.linalg.svd(frame + _JITTER * noise, full_matrices=False)
    return left @ right
