r"""The interface of a transform from unconstrained vectors to orthonormal matrices.

With :math:`Q(z)` the map and :math:`\ell(z)` its ``log_volume``, a density :math:`\pi` of orthonormal matrices with
respect to the uniform (Haar) probability measure becomes the density

.. math:: \exp(\log\pi(Q(z)) + \ell(z))

of :math:`z \in R^k` with respect to Lebesgue measure, and :math:`Q(z)` then has the distribution :math:`\pi`.

*Injective* transforms are charts: :math:`k` is the dimension of the manifold and :math:`\ell` the logarithm of the
volume of the image per unit volume of :math:`z`. *Redundant* transforms have more unconstrained numbers than the
manifold has dimensions. The part of :math:`z` that does not affect :math:`Q` (the positive definite factor of a polar
decomposition, the lengths of vectors) is given a distribution, which is part of :math:`\ell`, so that the pull-back is
a proper density. Constants are included: :math:`\exp\ell` integrates to the fraction of the Haar probability that the
map covers, 1 for most, 1/2 for a chart of the rotations among the square orthogonal matrices.
"""

import abc
import functools
import math
from typing import Any

import equinox as eqx

from geodax import _checks
from geodax._types import Array, Float, Scalar


class AbstractTransform(eqx.Module):
    """A map from vectors of ``num_unconstrained`` numbers to orthonormal ``n x p`` matrices.

    All methods are pure, act on one point, and keep the dtype; use ``jax.vmap`` for many points.
    """

    n: eqx.AbstractVar[int]
    p: eqx.AbstractVar[int]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrices, ``(n, p)``."""
        return self.n, self.p

    @property
    @abc.abstractmethod
    def num_unconstrained(self) -> int:
        """Length of the unconstrained vector."""

    @property
    @abc.abstractmethod
    def is_injective(self) -> bool:
        """Whether different vectors give different matrices."""

    def forward_and_log_volume(self, z: Float[Array, " k"]) -> tuple[Float[Array, "n p"], Scalar]:
        """Compute both; many transforms share the computation."""
        return self.forward(z), self.log_volume(z)

    @abc.abstractmethod
    def forward(self, z: Float[Array, " k"]) -> Float[Array, "n p"]:
        """Map a vector to an orthonormal matrix."""

    @abc.abstractmethod
    def log_volume(self, z: Float[Array, " k"]) -> Scalar:
        """Compute the term that converts the log density of the matrix to one of the vector."""

    @abc.abstractmethod
    def inverse(self, q: Float[Array, "n p"]) -> Float[Array, " k"]:
        """Return a vector that :meth:`forward` maps to ``q``; the only one if the transform is injective."""


def check_size(name: str, n: Any, p: Any) -> tuple[int, int]:
    """Rows and columns, ``n >= p >= 1``, as Python integers."""
    n, p = (_checks.whole(name, which, size) for which, size in (("n", n), ("p", p)))
    if n < p:
        raise ValueError(f"{name}: expected n >= p >= 1, found n = {n}, p = {p}.")
    if n * p > _checks.LARGEST:
        raise ValueError(f"{name}: a matrix of {n} x {p} has more entries than an array can hold.")
    return n, p


def check_vector(transform: AbstractTransform, z: Array) -> Array:
    """Check one unconstrained vector; ValueError for another shape, TypeError if it is not an array of numbers."""
    z = _checks.array(describe(transform), "z", z, half=False)
    if z.shape != (transform.num_unconstrained,):
        raise ValueError(
            f"{describe(transform)}: expected a vector of {transform.num_unconstrained} unconstrained numbers, found "
            f"shape {z.shape}; use jax.vmap for many of them."
        )
    return z


def check_matrix(transform: AbstractTransform, q: Array) -> Array:
    """Check one matrix; ValueError for another shape, TypeError if it is not an array of numbers."""
    q = _checks.array(describe(transform), "q", q, half=False)
    if q.shape != transform.shape:
        raise ValueError(
            f"{describe(transform)}: expected a matrix of shape {transform.shape}, found shape {q.shape}; use "
            "jax.vmap for many of them."
        )
    return q


def describe(transform: AbstractTransform) -> str:
    """Name and size, for messages."""
    return f"{type(transform).__name__}({transform.n}, {transform.p})"


@functools.cache
def log_spheres(n: int, p: int) -> float:
    """Return the sum of the log areas of the unit spheres in n, n - 1, ..., n - p + 1 dimensions."""
    return sum(math.log(2) + m / 2 * math.log(math.pi) - math.lgamma(m / 2) for m in range(n - p + 1, n + 1))
