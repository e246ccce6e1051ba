r"""Orthonormal matrices as polar factors of unconstrained ones.

.. math:: Q = X (X^T X)^{-1/2}, \qquad X \in R^{n \times p}

The symmetric factor :math:`P = (X^T X)^{1/2}` is redundant. With independent standard normal entries of :math:`X`
the factor :math:`Q` is uniformly (Haar) distributed and independent of :math:`P` (Chikuse 2003, theorem 2.4.3), so
this is the reference distribution of :math:`X`: ``log_volume`` is its log density.

The derivative is that of the polar factor itself,

.. math:: dQ = Q\,\Omega + (I - Q Q^T)\, dX\, P^{-1}, \qquad P\,\Omega + \Omega P = Q^T dX - dX^T Q,

solved in the eigenbasis of :math:`P`. It divides by sums of singular values, while the derivative of an eigenvalue
decomposition divides by differences. So repeated singular values are allowed, at any order of differentiation.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax._precision import with_full_precision
from geodax._types import Array, Float, Scalar
from geodax.geometry.linalg import in_pieces
from geodax.geometry.transforms.base import AbstractTransform, check_matrix, check_size, check_vector


@with_full_precision
class Polar(AbstractTransform):
    """Polar factor of a matrix with standard normal entries; redundant.

    The vector holds the entries of the matrix row by row. Every full-rank matrix is allowed. Square matrices give all
    orthogonal ones, of either determinant, but the map jumps where the determinant changes its sign: a sampler that
    follows gradients crosses over with a lower acceptance rate, and one without a Metropolis step is
    biased there.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.

    Raises:
        ValueError: Unless ``n >= p >= 1``.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)

    def __init__(self, n: int, p: int):
        n, p = check_size("Polar", n, p)
        self.n, self.p = n, p

    @property
    def num_unconstrained(self) -> int:
        return self.n * self.p

    @property
    def is_injective(self) -> bool:
        """False: the symmetric factor is redundant."""
        return False

    def forward(self, z: Float[Array, " k"]) -> Float[Array, "n p"]:
        z = check_vector(self, z)
        return polar(z.reshape(self.shape))

    def log_volume(self, z: Float[Array, " k"]) -> Scalar:
        z = check_vector(self, z)
        return standard_normal_log_density(z)

    def inverse(self, q: Float[Array, "n p"]) -> Float[Array, " k"]:
        """Return the entries of ``sqrt(n) q``: the mean of the redundant ``X^T X`` is ``n`` times the identity."""
        q = check_matrix(self, q)
        return math.sqrt(self.n) * q.ravel()


def standard_normal_log_density(z: Float[Array, " k"]) -> Scalar:
    """Log density of independent standard normal variables."""
    return -0.5 * jnp.sum(z * z) - 0.5 * math.log(2.0 * math.pi) * z.size


def polar(x: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """Orthonormal polar factor of a full-rank matrix, with a derivative that is finite at every full-rank matrix."""
    if x.shape[1] == 1:
        return x / jnp.sqrt(jnp.sum(x * x))
    return _decompose(x)[0]


@jax.custom_jvp
def _decompose(x: Array) -> tuple[Array, Array, Array, Array]:
    """Orthonormal factor, inverse of the symmetric one, and eigenvectors and eigenvalues of the latter.

    Eigenvectors and eigenvalues are only a basis for solving, and count as constants.
    """
    n, p = x.shape
    if n < 2 * p:  # the Gram matrix of a nearly square Gaussian matrix is too ill-conditioned for single precision
        u, values, vectors_t = in_pieces(lambda m: tuple(jnp.linalg.svd(m, full_matrices=False)), x)
        vectors = vectors_t.T
        q = u @ vectors_t
        return q, (vectors / values[None, :]) @ vectors_t, vectors, values
    squares, vectors = in_pieces(lambda m: tuple(jnp.linalg.eigh(m)), x.T @ x)
    values = jnp.sqrt(squares)
    inverse = (vectors / values[None, :]) @ vectors.T
    return x @ inverse, inverse, vectors, values


@_decompose.defjvp
def _decompose_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    q, inverse, vectors, values = _decompose(x)
    overlap = q.T @ dx
    symmetric = _symmetrised(q.T @ x)
    rotation = _sylvester(symmetric, vectors, values, overlap - overlap.T)
    dq = q @ rotation + (dx - q @ overlap) @ inverse
    d_symmetric = _symmetrised(overlap - rotation @ symmetric)
    d_inverse = -inverse @ d_symmetric @ inverse
    return (q, inverse, vectors, values), (dq, d_inverse, jnp.zeros_like(vectors), jnp.zeros_like(values))


def _symmetrised(m: Array) -> Array:
    return 0.5 * (m + m.T)


def _sylvester(symmetric: Array, vectors: Array, values: Array, right: Array) -> Array:
    """Solve ``symmetric y + y symmetric = right`` with the eigenvectors and eigenvalues of ``symmetric``.

    As a custom linear solve it is differentiated through the equation, not through the eigenvectors.
    """

    def apply(y: Array) -> Array:
        return symmetric @ y + y @ symmetric

    def solve(_, right: Array) -> Array:
        inner = (vectors.T @ right @ vectors) / (values[:, None] + values[None, :])
        return vectors @ inner @ vectors.T

    return jax.lax.custom_linear_solve(apply, right, solve, symmetric=True)
