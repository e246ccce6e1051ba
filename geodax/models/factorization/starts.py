"""Initial positions for a factorisation, near the leading singular vectors of the known entries."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import svds

from geodax._types import Position, PRNGKey
from geodax.models.factorization.density import FactorizationForm

_JITTER = 0.5


class SpectralStart:
    """Map a key to an initial position: singular vectors of the residuals, perturbed independently for each chain.

    Offsets are shrunken means. Unknown entries count as zero, which makes the singular values too small; they are
    initialised to half of their prior scale instead.

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
        m, n, r = form.num_users, form.num_items, form.rank
        rest = ratings - ratings.mean()
        self.offsets = {}
        if form.has_offsets:
            shrinkage = 1.0 / form.offset_scale**2
            for name, index, number in (("item_offset", items, n), ("user_offset", users, m)):
                sums = np.bincount(index, weights=rest, minlength=number)
                self.offsets[name] = sums / (np.bincount(index, minlength=number) + shrinkage)
                rest = rest - self.offsets[name][index]
        matrix = coo_matrix((rest, (users, items)), shape=(m, n)).tocsr()
        if r < min(m, n):
            found: Any = svds(matrix, k=r, v0=np.ones(min(m, n)))
            left, _, right = found
            self.left, self.right = left[:, ::-1], right[::-1].T
        else:
            left, _, right = np.linalg.svd(matrix.toarray(), full_matrices=False)
            self.left, self.right = left[:, :r], right[:r].T
        self.mean, self.noise, self.form = float(ratings.mean()), float(max(rest.std(), 0.05)), form

    def __call__(self, key: PRNGKey) -> Position:
        """Return an initial position in the coordinates, in single precision."""
        form = self.form
        keys = jax.random.split(key, 4)
        size = 0.5 * form.interaction_scale * (form.num_users * form.num_items / form.rank) ** 0.5
        scales = size * np.linspace(1.3, 0.7, form.rank)
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
    """Perturb an orthonormal frame and return the nearest orthonormal frame."""
    noise = np.asarray(jax.random.normal(key, frame.shape)) / np.sqrt(len(frame))
    left, _, right = np.linalg.svd(frame + _JITTER * noise, full_matrices=False)
    return left @ right
