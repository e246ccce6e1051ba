r"""The Cayley transform of a skew-symmetric matrix, as a chart of the Stiefel manifold.

.. math:: Q = (I + W)(I - W)^{-1} I_{n,p}, \qquad W = \begin{pmatrix} A & -B^T \\ B & 0 \end{pmatrix}, \quad A = -A^T

With :math:`M = I - A + B^T B`, of size :math:`p`, this is :math:`Q_1 = 2 M^{-1} - I` on top of
:math:`Q_2 = 2 B M^{-1}` (Jauch, Hoff and Dunson 2020, Bernoulli 26, 1560, compute the volume of the chart by a Gram
determinant of the size of the manifold). The volume has a closed form. Let :math:`K = (I + W)(I - W)^{-1}`. Then the
first columns of :math:`K^T dK = 2 (I - W)^{-T} dW (I - W)^{-1}` are, with
:math:`E = dA - dB^T B + B^T dB`,

.. math:: 2 M^{-T} E M^{-1} \quad\text{above}\quad 2 (dB - B M^{-T} E) M^{-1},

and the map from :math:`(dA, dB)` to them has the determinant :math:`2^d \det(M)^{-(p-1) - (n-p)}`. Hence

.. math:: \ell = d \log 2 - (n - 1) \log\det M - \log\mathrm{Vol}, \qquad
    \mathrm{Vol} = \prod_{m=n-p+1}^{n} \frac{2\pi^{m/2}}{\Gamma(m/2)}, \quad d = np - p(p+1)/2 .

For :math:`p = 1` it is the stereographic projection.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from geodax._precision import with_full_precision
from geodax._types import Array, Float, Scalar
from geodax.geometry.linalg import solve_accretive_and_log_det
from geodax.geometry.transforms.base import AbstractTransform, check_matrix, check_size, check_vector, log_spheres
from geodax.geometry.transforms.completion import Completion, check_center, complete, middle


@with_full_precision
class CayleyChart(AbstractTransform):
    """Cayley transform; injective, without cuts.

    The vector holds the entries of A below the diagonal, then those of B, both row by row. The chart contains every
    matrix Q for which ``I + Q_1`` is invertible, where ``Q_1`` has the first p rows; with a center C, ``Q_1`` has those
    of ``G^T Q``, with G orthogonal and C its first columns. The other matrices (of the unit sphere: the point opposite
    to C) have measure zero and are infinitely far away, so the pull-back has heavy tails unless the density vanishes
    there: a Cauchy distribution for the uniform distribution on the circle. Use it for concentrated densities, with
    the center near their mass, see :meth:`centered_on`. Of square matrices it covers those with the determinant of the
    center.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.
        center: Orthonormal matrix that is the image of zero; the first columns of the identity if left out.

    Raises:
        ValueError: Unless ``n >= p >= 1`` and the center is an orthonormal matrix of this shape.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)
    completion: Completion | None

    def __init__(self, n: int, p: int, *, center: Any = None):
        n, p = check_size("CayleyChart", n, p)
        self.n, self.p = n, p
        self.completion = None if center is None else complete(check_center("CayleyChart", center, (n, p)))

    @property
    def num_unconstrained(self) -> int:
        return self.n * self.p - self.p * (self.p + 1) // 2

    @property
    def is_injective(self) -> bool:
        return True

    def forward_and_log_volume(self, z: Float[Array, " k"]) -> tuple[Float[Array, "n p"], Scalar]:
        z = check_vector(self, z)
        below, inverse, log_determinant = self._inverse(z)
        q = jnp.concatenate([2 * inverse - jnp.eye(self.p, dtype=z.dtype), 2 * (below @ inverse)])
        return q if self.completion is None else self.completion.apply(q), self._log_volume(log_determinant)

    def forward(self, z: Float[Array, " k"]) -> Float[Array, "n p"]:
        return self.forward_and_log_volume(z)[0]

    def log_volume(self, z: Float[Array, " k"]) -> Scalar:
        return self._log_volume(self._inverse(z)[2])

    def inverse(self, q: Float[Array, "n p"]) -> Float[Array, " k"]:
        """Compute the entries of A and B; non-finite for a matrix outside the chart."""
        q = check_matrix(self, q)
        q = q if self.completion is None else self.completion.apply_transpose(q)
        half_inverse = jnp.linalg.inv(jnp.eye(self.p, dtype=q.dtype) + q[: self.p])
        rows, columns = np.tril_indices(self.p, -1)
        skew = half_inverse.T - half_inverse
        return jnp.concatenate([skew[rows, columns], (q[self.p :] @ half_inverse).ravel()])

    def centered_on(self, frames: Float[Array, "*batch n p"]) -> "CayleyChart":
        """Return the chart whose center is the orthonormal matrix nearest to the mean of some frames."""
        return CayleyChart(self.n, self.p, center=middle(frames))

    def _inverse(self, z: Array) -> tuple[Array, Array, Scalar]:
        """B, the inverse of ``I - A + B^T B``, and the log determinant of that matrix."""
        z = check_vector(self, z)
        count = self.p * (self.p - 1) // 2
        lower = jnp.zeros((self.p, self.p), z.dtype).at[np.tril_indices(self.p, -1)].set(z[:count])
        below = z[count:].reshape(self.n - self.p, self.p)
        m = jnp.eye(self.p, dtype=z.dtype) - lower + lower.T + below.T @ below
        return below, *solve_accretive_and_log_det(m, jnp.eye(self.p, dtype=z.dtype))

    def _log_volume(self, log_determinant: Scalar) -> Scalar:
        return _log_constant(self.n, self.p) - (self.n - 1) * log_determinant


def _log_constant(n: int, p: int) -> float:
    """Log volume at zero."""
    return (n * p - p * (p + 1) / 2) * math.log(2) - log_spheres(n, p)
