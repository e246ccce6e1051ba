r"""Gaussian families of variational posteriors over vectors.

====================================  ===========================================  ==============================
family                                covariance of one vector of D numbers        parameters
====================================  ===========================================  ==============================
:class:`DiagonalGaussian`             :math:`\mathrm{diag}(s^2)`                   2 D
:class:`LowRankGaussian`              :math:`\mathrm{diag}(s^2) + F F^T`           (2 + r) D
:class:`FullGaussian`                 :math:`L L^T`, L lower triangular            D + D (D + 1) / 2
====================================  ===========================================  ==============================

The Kullback-Leibler divergence from :math:`N(0, \lambda I)`, where :math:`\lambda` is a variance, is exact:

.. math::
    \mathrm{KL} = \tfrac12 \left[ \tfrac1\lambda (\mathrm{tr}\,\Sigma + |\mu|^2) - D + D \log\lambda
    - \log\det\Sigma \right].

Leading axes of the parameters index independent vectors. Flows based on these families are in :mod:`geodax.vi.flows`.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._random import fast_normal
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.linalg import cholesky, solve_lower

_LOG_2PI = math.log(2.0 * math.pi)
FAST_FROM = 256  # size from which the vectorised generator is faster


class AbstractFamily(eqx.Module):
    """A distribution of vectors whose samples are differentiable with respect to its parameters."""

    @property
    @abc.abstractmethod
    def location(self) -> Float[Array, "*batch D"]:
        """The vector used when nothing is drawn: the mean of a Gaussian."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey) -> Float[Array, "*batch D"]:
        """Draw one vector as a differentiable function of the parameters and of parameter-free noise."""

    @abc.abstractmethod
    def log_prob(self, z: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        """Compute the log density at a vector."""

    @abc.abstractmethod
    def kl(self, prior_variance: Any = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        r"""Compute the Kullback-Leibler divergence from :math:`N(0, \lambda I)`, summed over the leading axes.

        Args:
            prior_variance: The variance :math:`\lambda` of the prior; for :class:`DiagonalGaussian` also one for
                each entry.
            key: A PRNG key, for families whose divergence has no closed form.

        Returns:
            The divergence in nats, or an unbiased estimate of it.
        """


class AbstractGaussian(AbstractFamily):
    """A multivariate normal distribution."""

    mean: eqx.AbstractVar[Float[Array, "*batch D"]]

    @property
    def location(self) -> Float[Array, "*batch D"]:
        return self.mean

    @abc.abstractmethod
    def covariance(self) -> Float[Array, "*batch D D"]:
        """Return the covariance matrix."""

    @abc.abstractmethod
    def root(self) -> Float[Array, "*batch D k"]:
        """Return a matrix R with R R^T equal to the covariance."""


class DiagonalGaussian(AbstractGaussian):
    """Independent normal entries.

    Args:
        mean: Means.
        log_scale: Logarithms of the standard deviations.
    """

    mean: Float[Array, "*batch D"]
    log_scale: Float[Array, "*batch D"]

    def sample(self, key: PRNGKey) -> Float[Array, "*batch D"]:
        return self.mean + jnp.exp(self.log_scale) * normal(key, self.mean.shape, self.mean.dtype)

    def log_prob(self, z: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        wide, z = _tree.widened((self, z))
        whitened = (z - wide.mean) * jnp.exp(-wide.log_scale)
        return jnp.sum(-0.5 * whitened**2 - wide.log_scale - 0.5 * _LOG_2PI, axis=-1)

    def kl(self, prior_variance: Any = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        wide = _tree.widened(self)
        square = wide.mean**2 + jnp.exp(2.0 * wide.log_scale)
        variance = jnp.asarray(prior_variance, wide.mean.dtype)
        return 0.5 * jnp.sum(square / variance - 1.0 - 2.0 * wide.log_scale + jnp.log(variance))

    def covariance(self) -> Float[Array, "*batch D D"]:
        return _diagonal(jnp.exp(2.0 * self.log_scale))

    def root(self) -> Float[Array, "*batch D k"]:
        return _diagonal(jnp.exp(self.log_scale))


class FullGaussian(AbstractGaussian):
    """A normal distribution with an arbitrary covariance, given by its Cholesky factor.

    Args:
        mean: Means.
        log_diagonal: Logarithms of the diagonal of L.
        lower: A matrix whose part below the diagonal is that of L; other entries are ignored.
    """

    mean: Float[Array, "*batch D"]
    log_diagonal: Float[Array, "*batch D"]
    lower: Float[Array, "*batch D D"]

    def sample(self, key: PRNGKey) -> Float[Array, "*batch D"]:
        noise = normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + (self.root() @ noise[..., None])[..., 0]

    def log_prob(self, z: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        wide, z = _tree.widened((self, z))
        whitened = solve_lower(wide.root(), (z - wide.mean)[..., None])[..., 0]
        return jnp.sum(-0.5 * whitened**2 - wide.log_diagonal - 0.5 * _LOG_2PI, axis=-1)

    def kl(self, prior_variance: float = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        wide = _tree.widened(self)
        return _kl(jnp.sum(wide.root() ** 2), wide.mean, 2.0 * jnp.sum(wide.log_diagonal), prior_variance)

    def covariance(self) -> Float[Array, "*batch D D"]:
        root = self.root()
        return root @ jnp.swapaxes(root, -1, -2)

    def root(self) -> Float[Array, "*batch D k"]:
        return jnp.tril(self.lower, -1) + _diagonal(jnp.exp(self.log_diagonal))


class LowRankGaussian(AbstractGaussian):
    """A normal distribution with independent noise plus a covariance of rank r.

    Args:
        mean: Means.
        log_scale: Logarithms of the standard deviations of the independent noise.
        factor: F, one column per direction.
    """

    mean: Float[Array, "*batch D"]
    log_scale: Float[Array, "*batch D"]
    factor: Float[Array, "*batch D r"]

    def sample(self, key: PRNGKey) -> Float[Array, "*batch D"]:
        key_own, key_shared = jax.random.split(key)
        shape, dtype = self.mean.shape, self.mean.dtype
        shared = normal(key_shared, (*shape[:-1], self.factor.shape[-1]), dtype)
        own = jnp.exp(self.log_scale) * normal(key_own, shape, dtype)
        return self.mean + own + (self.factor @ shared[..., None])[..., 0]

    def log_prob(self, z: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        wide, z = _tree.widened((self, z))
        whitened = (z - wide.mean) * jnp.exp(-wide.log_scale)
        scaled, capacitance = wide._capacitance()
        root = cholesky(capacitance)
        along = jnp.swapaxes(scaled, -1, -2) @ whitened[..., None]
        along = solve_lower(root, along)[..., 0]
        square = jnp.sum(whitened**2, axis=-1) - jnp.sum(along**2, axis=-1)
        return -0.5 * (square + wide._log_determinant(root) + self.mean.shape[-1] * _LOG_2PI)

    def kl(self, prior_variance: float = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        wide = _tree.widened(self)
        trace = jnp.sum(jnp.exp(2.0 * wide.log_scale)) + jnp.sum(wide.factor**2)
        root = cholesky(wide._capacitance()[1])
        return _kl(trace, wide.mean, jnp.sum(wide._log_determinant(root)), prior_variance)

    def covariance(self) -> Float[Array, "*batch D D"]:
        return _diagonal(jnp.exp(2.0 * self.log_scale)) + self.factor @ jnp.swapaxes(self.factor, -1, -2)

    def root(self) -> Float[Array, "*batch D k"]:
        """Return the two roots side by side, D x (D + r)."""
        return jnp.concatenate([_diagonal(jnp.exp(self.log_scale)), self.factor], axis=-1)

    def _capacitance(self) -> tuple[Array, Array]:
        scaled = jnp.exp(-self.log_scale)[..., None] * self.factor
        one = _diagonal(jnp.ones((*scaled.shape[:-2], scaled.shape[-1]), scaled.dtype))
        return scaled, one + jnp.swapaxes(scaled, -1, -2) @ scaled

    def _log_determinant(self, root: Array) -> Array:
        diagonal = jnp.diagonal(root, axis1=-2, axis2=-1)
        return 2.0 * jnp.sum(self.log_scale, axis=-1) + 2.0 * jnp.sum(jnp.log(diagonal), axis=-1)


class Point(AbstractFamily):
    """A point mass: parameters that are optimised or sampled, without a variational distribution.

    The divergence is minus the log density of the prior; the infinite constant is dropped.

    Args:
        value: The vector.
    """

    value: Float[Array, "*batch D"]

    @property
    def location(self) -> Float[Array, "*batch D"]:
        return self.value

    def sample(self, key: PRNGKey) -> Float[Array, "*batch D"]:
        return self.value

    def log_prob(self, z: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        """Infinite at the vector, minus infinity elsewhere."""
        return jnp.where(jnp.all(z == self.value, axis=-1), jnp.inf, -jnp.inf).astype(z.dtype)

    def kl(self, prior_variance: float = 1.0, *, key: PRNGKey | None = None) -> Scalar:
        """Return minus the log density of the prior."""
        return 0.5 * jnp.sum(_tree.widened(self.value) ** 2 / prior_variance + _LOG_2PI + math.log(prior_variance))


def gaussian(
    covariance: str, mean: Float[Array, "*batch D"], scale: float, *, rank: int | None = None, owner: str = "gaussian"
) -> AbstractGaussian:
    """Create a Gaussian family by name, initially with independent entries of equal standard deviation.

    Args:
        covariance: ``"diagonal"``, ``"full"`` or ``"low-rank"``.
        mean: The means.
        scale: Initial standard deviation.
        rank: Number of directions of ``"low-rank"``; they are initialised to a tenth of the scale, along the coordinate
            axes in turn. None selects 4, or the dimension if that is smaller.
        owner: Name used in error messages.

    Returns:
        The family.

    Raises:
        ValueError: If the name is unknown, or a number is out of range.
    """
    scale = _checks.number(owner, "scale", scale, above=0.0)
    _checks.chosen(owner, "covariance", covariance, ("diagonal", "full", "low-rank"))
    mean = _checks.array(owner, "mean", mean)
    if not mean.ndim or not mean.size:
        raise ValueError(f"{owner}: mean must be a vector with entries, or a stack of them, found shape {mean.shape}.")
    log_scale = jnp.full(mean.shape, math.log(scale), mean.dtype)
    if covariance == "diagonal":
        return DiagonalGaussian(mean, log_scale)
    if covariance == "full":
        return FullGaussian(mean, log_scale, jnp.zeros((*mean.shape, mean.shape[-1]), mean.dtype))
    size = mean.shape[-1]
    rank = min(4, size) if rank is None else _checks.whole(owner, "rank", rank, most=size)
    # an all-zero factor would have zero gradient
    stripes = (jnp.arange(size)[:, None] % rank == jnp.arange(rank)[None]).astype(mean.dtype)
    return LowRankGaussian(mean, log_scale, jnp.broadcast_to(0.1 * scale * stripes, (*mean.shape, rank)))


def normal(key: PRNGKey, shape: tuple[int, ...], dtype: Any) -> Array:
    """Standard normal variates; half and single precision are generated in single precision by the library."""
    key = _checks.random_key("a draw", key)
    size, kind = math.prod(shape), jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else dtype
    if kind == jnp.float32 and size >= FAST_FROM:
        return fast_normal(key, shape).astype(dtype)
    return jax.random.normal(key, shape, kind).astype(dtype)


def _kl(trace: Array, mean: Array, log_determinant: Array, prior_variance: float) -> Scalar:
    square = (trace + jnp.sum(mean**2)) / prior_variance
    return 0.5 * (square + mean.size * (math.log(prior_variance) - 1.0) - log_determinant)


def _diagonal(values: Array) -> Array:
    return jnp.vectorize(jnp.diag, signature="(d)->(d,d)")(values)
