r"""A mixture of matrix normal distributions in QR coordinates, the toy of Yanush and Kropotov (2019), sections 3.1 and 3.2.

:math:`X = QR` with density :math:`\sum_i \pi_i N(X \mid M_i, \sigma^2 I)`, where the modes are all the matrices whose
entries are 1 or 2, with equal weights. Such a mixture is a product over the entries, each a mixture of two normals.

In coordinates the volume element :math:`\prod_i R_{ii}^{n-i}` belongs to the density (the paper leaves it out). QR is
unique with :math:`R_{ii} > 0`, so the logarithms of those entries are sampled. For square matrices the last one is
free, and :math:`(Q, R)` and :math:`(QD, DR)` with :math:`D = \mathrm{diag}(1, \dots, 1, -1)` are the same matrix:
draws are reported with :math:`\det Q = 1`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class MatrixMixture(NamedTuple):
    """Sizes of the matrix, standard deviation of a mode, and the values that an entry of a mode takes."""

    n: int
    p: int
    sigma: float
    values: tuple[float, ...]

    @property
    def num_positive(self) -> int:
        """Diagonal entries of R whose logarithms are sampled."""
        return self.p - 1 if self.n == self.p else self.p


def coordinate_names(mixture: MatrixMixture) -> list[str]:
    """Entries of Q row by row, then those of the upper triangle of R."""
    entries = [f"q{i + 1}{j + 1}" for i in range(mixture.n) for j in range(mixture.p)]
    return entries + [f"r{i + 1}{j + 1}" for i in range(mixture.p) for j in range(i, mixture.p)]


def triangle(mixture: MatrixMixture, position: dict) -> jax.Array:
    """The matrix R of a position."""
    p, dtype = mixture.p, position["q"].dtype
    diagonal = jnp.exp(position["log_diagonal"])
    if "last" in position:
        diagonal = jnp.concatenate([diagonal, position["last"]])
    above = np.triu_indices(p, 1)
    return jnp.zeros((p, p), dtype).at[np.diag_indices(p)].set(diagonal).at[above].set(position["above"])


def log_density(mixture: MatrixMixture, has_volume: bool = True) -> Callable[[dict], jax.Array]:
    """Log density of a position with respect to Haar times Lebesgue measure, up to a constant.

    Args:
        mixture: The mixture.
        has_volume: Whether the volume element of the coordinates is part of it, which the paper leaves out.

    Returns:
        The log density.
    """
    # the exponents of R_ii, with one more from the logarithm
    powers = np.array([mixture.n - i if has_volume else 1 for i in range(mixture.num_positive)], float)

    def evaluate(position: dict) -> jax.Array:
        x = position["q"] @ triangle(mixture, position)
        modes = [-0.5 * ((x - value) / mixture.sigma) ** 2 for value in mixture.values]
        of_entries = modes[0]
        for mode in modes[1:]:
            of_entries = jnp.logaddexp(of_entries, mode)
        volume = jnp.dot(jnp.asarray(powers, x.dtype), position["log_diagonal"])
        return jnp.sum(of_entries) + volume

    return evaluate


def coordinates(mixture: MatrixMixture) -> Callable[[dict], jax.Array]:
    """From a position to the vector that :func:`coordinate_names` names."""
    above = np.triu_indices(mixture.p)

    def evaluate(position: dict) -> jax.Array:
        q, r = position["q"], triangle(mixture, position)
        if mixture.n == mixture.p:
            sign = jnp.ones(mixture.p, q.dtype).at[-1].set(jnp.sign(jnp.linalg.det(q)))
            q, r = q * sign[None, :], r * sign[:, None]
        return jnp.concatenate([q.ravel(), r[above]])

    return evaluate


def position_of(mixture: MatrixMixture, x: np.ndarray) -> dict:
    """The position of a matrix."""
    q, r = _qr(mixture, x)
    position = {"q": q, "log_diagonal": np.log(np.diagonal(r)[: mixture.num_positive])}
    position["above"] = r[np.triu_indices(mixture.p, 1)]
    if mixture.n == mixture.p:
        position["last"] = np.diagonal(r)[-1:]
    return jax.tree.map(jnp.asarray, position)


def first_mode(mixture: MatrixMixture) -> dict:
    """The paper's start, a little off the first mode, whose columns are equal."""
    x = np.full((mixture.n, mixture.p), mixture.values[0])
    return position_of(mixture, x + 0.05 * np.eye(mixture.n, mixture.p))


def exact_coordinates(mixture: MatrixMixture, rng: np.random.Generator, num: int) -> np.ndarray:
    """Independent draws of the matrix, in coordinates (draw, coordinate)."""
    shape = (num, mixture.n, mixture.p)
    x = rng.choice(np.asarray(mixture.values), shape) + mixture.sigma * rng.normal(size=shape)
    q, r = _qr(mixture, x)
    above = np.triu_indices(mixture.p)
    return np.concatenate([q.reshape(num, -1), r[:, above[0], above[1]]], axis=1)


def _qr(mixture: MatrixMixture, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """QR with R_ii > 0; for square matrices det Q = 1 instead of R_nn > 0."""
    q, r = np.linalg.qr(x)
    sign = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
    if mixture.n == mixture.p:
        sign[..., -1] *= np.linalg.det(q) * np.prod(sign, axis=-1)
        sign = np.sign(sign)
    return q * sign[..., None, :], r * sign[..., :, None]
