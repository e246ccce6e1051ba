r"""Prior laws of one array of a network: densities that are normalised, and draws.

====================================  ==========================================================================
law                                   density of an entry or of the whole array
====================================  ==========================================================================
:class:`Gaussian`                     :math:`N(\mu, \sigma^2)`
:class:`Laplace`                      :math:`\exp(-|x| / \sigma) / 2\sigma`
:class:`StudentT`                     :math:`t_\nu(x / \sigma) / \sigma`
:class:`CorrelatedNormal`             :math:`N(0, \sigma^2 K)` over the pixels of each kernel :math:`h \times w`
:class:`Haar`                         1 with respect to the uniform probability measure
====================================  ==========================================================================

The horseshoe is in :mod:`geodax.nn.horseshoe`, the law of singular values in :mod:`geodax.nn.singular_values`. A scale
is a number, a function of the array's shape, or ``"fan_in"``: :math:`\sqrt{2 / \text{fan-in}}` for weights and 1 for
biases (He et al. 2015; Fortuin et al. 2022), where the fan-in of a weight o x i is i and that of a kernel o x i x h x w
is ihw. That is the order of axes of Equinox; of a weight i x o, as Flax and Haiku have them, ``"fan_in"`` would read
the fan-out, and the scale should be a function: ``Gaussian(lambda shape: (2 / shape[0]) ** 0.5)``.

Of arrays in half precision densities are computed in single precision, where sums have room, and draws are rounded from
it: variates that are made in half precision have its few digits in their tails, or no tails.

A law by itself sees a shape only: vectors, and arrays of three axes and more whose axes but the first have length 1,
are biases to it. Under :class:`~geodax.nn.priors.Priors` the names ``bias`` and ``weight`` count first.

Sources:
    Fortuin, Garriga-Alonso, Ober, Wenzel, Rätsch, Turner, van der Wilk and Aitchison (2022), Bayesian neural network
    priors revisited. ICLR.
    He, Zhang, Ren and Sun (2015), Delving deep into rectifiers. ICCV.
"""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks as _arguments
from geodax import _tree
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.linalg import qr_positive

Scale = float | str | Callable[[tuple[int, ...]], float]


def python_number(value: Any) -> Any:
    """A number of NumPy's or of JAX's as one of Python's, which leaves the type of arrays as it is; else the value."""
    is_number = (
        isinstance(value, np.number | np.ndarray | jax.Array) and value.shape == () and value.dtype.kind in "iuf"
    )
    return float(value) if is_number else value


class AbstractPrior(eqx.Module):
    """The law of one array."""

    @abc.abstractmethod
    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """The log density of the array, normalised with respect to the uniform measure of its space."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        """Draw an array with the shape and dtype of ``like``."""


class AbstractStructuredPrior(AbstractPrior):
    """The law of an array that no rule for free arrays may touch: one on a manifold, or in coordinates of its own."""


class Gaussian(AbstractPrior):
    """Independent normal entries.

    Args:
        scale: Standard deviation: a number, ``"fan_in"``, or a function of the shape.
        mean: Their mean.
    """

    scale: Scale = eqx.field(static=True, default="fan_in")
    mean: float = eqx.field(static=True, default=0.0, converter=python_number)

    def __check_init__(self):
        check_scale(self.scale, "Gaussian")
        _arguments.number("Gaussian", "mean", self.mean)

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """Sum over the entries."""
        x, scale = _tree.widened(x), resolve_scale(self.scale, x.shape, "Gaussian")
        z = (x - self.mean) / scale
        return -0.5 * jnp.sum(z * z) - x.size * (math.log(scale) + 0.5 * math.log(2.0 * math.pi))

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        """Independent entries."""
        scale = resolve_scale(self.scale, like.shape, "Gaussian")
        return rounded(self.mean + scale * jax.random.normal(key, like.shape, drawn_in(like)), like)


class Laplace(AbstractPrior):
    """Independent entries with two-sided exponential tails; their variance is twice ``scale`` squared.

    Args:
        scale: Mean distance from zero: a number, ``"fan_in"``, or a function of the shape.
    """

    scale: Scale = eqx.field(static=True, default="fan_in")

    def __check_init__(self):
        check_scale(self.scale, "Laplace")

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """Sum over the entries."""
        x, scale = _tree.widened(x), resolve_scale(self.scale, x.shape, "Laplace")
        return -jnp.sum(jnp.abs(x)) / scale - x.size * math.log(2.0 * scale)

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        """Independent entries."""
        scale = resolve_scale(self.scale, like.shape, "Laplace")
        return rounded(scale * jax.random.laplace(key, like.shape, drawn_in(like)), like)


class StudentT(AbstractPrior):
    """Independent entries of Student's law.

    Args:
        degrees_of_freedom: Positive; the variance is finite above 2.
        scale: What the standard law is multiplied by: a number, ``"fan_in"``, or a function of the shape.
    """

    degrees_of_freedom: float = eqx.field(static=True, default=3.0, converter=python_number)
    scale: Scale = eqx.field(static=True, default="fan_in")

    def __check_init__(self):
        check_scale(self.scale, "StudentT")
        _arguments.number("StudentT", "degrees_of_freedom", self.degrees_of_freedom, above=0.0)

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """Sum over the entries."""
        x, scale, nu = _tree.widened(x), resolve_scale(self.scale, x.shape, "StudentT"), self.degrees_of_freedom
        z = x / scale
        constant = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi)
        return -0.5 * (nu + 1) * jnp.sum(jnp.log1p(z * z / nu)) + x.size * (constant - math.log(scale))

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        """Independent entries."""
        scale = resolve_scale(self.scale, like.shape, "StudentT")
        return rounded(scale * jax.random.t(key, self.degrees_of_freedom, like.shape, drawn_in(like)), like)


_COVARIANCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "matern12": lambda d: np.exp(-d),
    "matern32": lambda d: (1 + math.sqrt(3) * d) * np.exp(-math.sqrt(3) * d),
    "matern52": lambda d: (1 + math.sqrt(5) * d + 5 * d**2 / 3) * np.exp(-math.sqrt(5) * d),
    "rbf": lambda d: np.exp(-0.5 * d**2),
}


class CorrelatedNormal(AbstractPrior):
    r"""Convolution kernels whose neighbouring pixels are alike (Fortuin et al. 2022, section 4).

    Each of the o x i filters of a kernel o x i x h x w is independent, its pixels normal with covariance
    :math:`\sigma^2 k(|p - q| / \ell)`.

    Args:
        scale: Standard deviation of a pixel: a number, ``"fan_in"``, or a function of the shape.
        length: The length scale in pixels.
        covariance: ``"matern12"`` (the exponential of the distance, as in the paper), ``"matern32"``, ``"matern52"`` or
            ``"rbf"``.
    """

    scale: Scale = eqx.field(static=True, default="fan_in")
    length: float = eqx.field(static=True, default=1.0)
    covariance: str = eqx.field(static=True, default="matern12")

    def __check_init__(self):
        check_scale(self.scale, "CorrelatedNormal")
        _arguments.number("CorrelatedNormal", "length", self.length, above=0.0)
        _arguments.chosen("CorrelatedNormal", "covariance", self.covariance, tuple(_COVARIANCES))

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """Sum over the filters."""
        x, factor = _tree.widened(x), self._factor(x.shape)
        inverse = jnp.asarray(np.linalg.inv(factor), x.dtype)
        z = x.reshape(-1, len(factor)) @ inverse.T
        log_determinant = float(np.log(np.diag(factor)).sum())
        return -0.5 * jnp.sum(z * z) - z.shape[0] * log_determinant - 0.5 * x.size * math.log(2.0 * math.pi)

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        """Independent filters."""
        factor = jnp.asarray(self._factor(like.shape), drawn_in(like))
        z = jax.random.normal(key, (like.shape[0] * like.shape[1], len(factor)), factor.dtype)
        return rounded((z @ factor.T).reshape(like.shape), like)

    def _factor(self, shape: tuple[int, ...]) -> np.ndarray:
        """Cholesky factor of the covariance of the pixels."""
        if len(shape) != 4:
            raise ValueError(
                f"CorrelatedNormal: expected a convolution kernel o x i x h x w, found an array of shape {shape}; give "
                "the rule a pattern that meets kernels only, for instance lambda path, shape: len(shape) == 4."
            )
        pixels = np.stack(np.meshgrid(*map(np.arange, shape[2:]), indexing="ij"), axis=-1).reshape(-1, 2)
        distances = np.linalg.norm(pixels[:, None] - pixels[None], axis=-1)
        covariance = _COVARIANCES[self.covariance](distances / self.length)
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"CorrelatedNormal: with covariance={self.covariance!r} and length={self.length:g} the pixels of a "
                f"kernel {shape[2]} x {shape[3]} are so much alike that their covariance is singular in double "
                "precision; take a shorter length, or a rougher covariance such as 'matern12'."
            ) from None
        return resolve_scale(self.scale, shape, "CorrelatedNormal") * factor


class Haar(AbstractStructuredPrior):
    """The uniform law of orthonormal matrices along the last two axes."""

    def log_density(self, x: Float[Array, "*batch n p"]) -> Scalar:
        """Zero: the reference measure is this law."""
        return jnp.zeros((), drawn_in(x))

    def sample(self, key: PRNGKey, like: Float[Array, "*batch n p"]) -> Float[Array, "*batch n p"]:
        """Orthonormal QR factors of Gaussian matrices."""
        return rounded(qr_positive(jax.random.normal(key, like.shape, drawn_in(like))), like)


def drawn_in(like: Array) -> Any:
    """The type in which variates for an array are made: its own, or single precision in the place of less."""
    return jnp.dtype(jnp.float32) if _tree.is_half(like) else like.dtype


def rounded(drawn: Float[Array, "..."], like: Array) -> Float[Array, "..."]:
    """Variates in the type of the array that they are for; what is beyond its range, at its end."""
    if not _tree.is_half(like):
        return drawn
    most = float(jnp.finfo(like.dtype).max)
    return jnp.clip(drawn, -most, most).astype(like.dtype)


def resolve_scale(scale: Scale, shape: tuple[int, ...], owner: str) -> float:
    """The number that a scale stands for, at an array of the given shape.

    Args:
        scale: A number, ``"fan_in"``, or a function of the shape.
        shape: The array's shape.
        owner: Whose scale it is, for messages.

    Returns:
        A positive number.

    Raises:
        ValueError: If it is not positive.
    """
    if callable(scale):
        value = float(scale(shape))
        if not value > 0:
            raise ValueError(f"{owner}: the scale must be positive, but its function gave {value!r} for {shape}.")
        return value
    if not isinstance(scale, str):
        return float(scale)
    is_bias = len(shape) < 2 or (len(shape) > 2 and set(shape[1:]) == {1})
    return 1.0 if is_bias else fan_in_scale(shape)


def fan_in_scale(shape: tuple[int, ...]) -> float:
    """What ``"fan_in"`` is at a weight o x i x ...; an array without entries counts as one with fan-in 1."""
    return math.sqrt(2.0 / max(1, math.prod(shape[1:])))


def check_scale(scale: Scale, owner: str) -> None:
    """Raise ValueError for a scale that is neither positive, nor ``"fan_in"``, nor a function."""
    if callable(scale) or (isinstance(scale, str) and scale == "fan_in"):
        return
    if isinstance(scale, str):
        raise ValueError(
            f"{owner}: scale must be a positive number, 'fan_in', or a function of the shape, found "
            f"{_arguments.described(scale)}."
        )
    _arguments.number(owner, "scale", scale, above=0.0)
