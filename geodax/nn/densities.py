r"""Prior distributions of a network's arrays: normalised log densities and sampling.

====================================  ==========================================================================
distribution                          density of an entry or of the whole array
====================================  ==========================================================================
:class:`Gaussian`                     :math:`N(\mu, \sigma^2)`
:class:`Laplace`                      :math:`\exp(-|x| / \sigma) / 2\sigma`
:class:`StudentT`                     :math:`t_\nu(x / \sigma) / \sigma`
:class:`CorrelatedNormal`             :math:`N(0, \sigma^2 K)` over the pixels of each kernel :math:`h \times w`
:class:`Haar`                         1 with respect to the uniform probability measure
:class:`SingularValues`               that of the singular values of a Gaussian matrix
====================================  ==========================================================================

The horseshoe is in :mod:`geodax.nn.horseshoe`. A scale is a number, a function of the array's shape, or ``"fan_in"``:
:math:`\sqrt{2 / \text{fan-in}}` for weights and 1 for biases (He et al. 2015; Fortuin et al. 2022), where the fan-in of
a weight o x i is i and that of a kernel o x i x h x w is ihw. This is Equinox's order of axes. For a weight i x o, as
in Haiku, ``"fan_in"`` would use the fan-out; pass a function instead:
``Gaussian(lambda shape: (2 / shape[0]) ** 0.5)``.

For half-precision arrays densities are computed in single precision, where sums do not overflow, and samples are drawn
in single precision and rounded: variates generated in half precision have few digits in their tails, or no tails.

A distribution on its own sees only a shape, and treats vectors, and arrays of at least three axes whose axes but the
first have length 1, as biases. Under :class:`~geodax.nn.priors.Priors` the names ``bias`` and ``weight`` take
precedence, and a ``kernel`` is i x o or h x w x i x o, as in Flax.

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

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.linalg import qr_positive
from geodax.geometry.transforms.ordered import ordered_scales

Scale = float | str | Callable[[tuple[int, ...]], float]


def python_number(value: Any) -> Any:
    """Convert NumPy or JAX scalars to Python numbers, which do not promote dtypes; other values are unchanged."""
    is_number = (
        isinstance(value, np.number | np.ndarray | jax.Array) and value.shape == () and value.dtype.kind in "iuf"
    )
    return float(value) if is_number else value


class AbstractPrior(eqx.Module):
    """The prior distribution of one array."""

    @abc.abstractmethod
    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        """Compute the log density of the array, normalised with respect to the uniform measure of its space."""

    @abc.abstractmethod
    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        """Draw an array with the shape and dtype of ``like``."""


class AbstractStructuredPrior(AbstractPrior):
    """The prior of an array to which rules for free arrays do not apply: on a manifold, or in special coordinates."""


class Gaussian(AbstractPrior):
    """Independent normal entries.

    Args:
        scale: Standard deviation: a number, ``"fan_in"``, or a function of the shape.
        mean: Mean of the entries.
    """

    scale: Scale = eqx.field(static=True, default="fan_in")
    mean: float = eqx.field(static=True, default=0.0, converter=python_number)

    def __check_init__(self):
        check_scale(self.scale, "Gaussian")
        _checks.number("Gaussian", "mean", self.mean)

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        x, scale = _tree.widened(x), resolve_scale(self.scale, x.shape, "Gaussian")
        z = (x - self.mean) / scale
        return -0.5 * jnp.sum(z * z) - x.size * (math.log(scale) + 0.5 * math.log(2.0 * math.pi))

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
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
        x, scale = _tree.widened(x), resolve_scale(self.scale, x.shape, "Laplace")
        return -jnp.sum(jnp.abs(x)) / scale - x.size * math.log(2.0 * scale)

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        scale = resolve_scale(self.scale, like.shape, "Laplace")
        return rounded(scale * jax.random.laplace(key, like.shape, drawn_in(like)), like)


class StudentT(AbstractPrior):
    """Independent entries with Student's t distribution.

    Args:
        degrees_of_freedom: Positive; the variance is finite above 2.
        scale: Factor of the standard distribution: a number, ``"fan_in"``, or a function of the shape.
    """

    degrees_of_freedom: float = eqx.field(static=True, default=3.0, converter=python_number)
    scale: Scale = eqx.field(static=True, default="fan_in")

    def __check_init__(self):
        check_scale(self.scale, "StudentT")
        _checks.number("StudentT", "degrees_of_freedom", self.degrees_of_freedom, above=0.0)

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        x, scale, nu = _tree.widened(x), resolve_scale(self.scale, x.shape, "StudentT"), self.degrees_of_freedom
        z = x / scale
        constant = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi)
        return -0.5 * (nu + 1) * jnp.sum(jnp.log1p(z * z / nu)) + x.size * (constant - math.log(scale))

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        scale = resolve_scale(self.scale, like.shape, "StudentT")
        return rounded(scale * jax.random.t(key, self.degrees_of_freedom, like.shape, drawn_in(like)), like)


_COVARIANCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "matern12": lambda d: np.exp(-d),
    "matern32": lambda d: (1 + math.sqrt(3) * d) * np.exp(-math.sqrt(3) * d),
    "matern52": lambda d: (1 + math.sqrt(5) * d + 5 * d**2 / 3) * np.exp(-math.sqrt(5) * d),
    "rbf": lambda d: np.exp(-0.5 * d**2),
}


class CorrelatedNormal(AbstractPrior):
    r"""Convolution kernels with correlated neighbouring pixels (Fortuin et al. 2022, section 4).

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
        _checks.number("CorrelatedNormal", "length", self.length, above=0.0)
        _checks.chosen("CorrelatedNormal", "covariance", self.covariance, tuple(_COVARIANCES))

    def log_density(self, x: Float[Array, "..."]) -> Scalar:
        x, factor = _tree.widened(x), self._factor(x.shape)
        inverse = jnp.asarray(np.linalg.inv(factor), x.dtype)
        z = x.reshape(-1, len(factor)) @ inverse.T
        log_determinant = float(np.log(np.diag(factor)).sum())
        return -0.5 * jnp.sum(z * z) - z.shape[0] * log_determinant - 0.5 * x.size * math.log(2.0 * math.pi)

    def sample(self, key: PRNGKey, like: Float[Array, "..."]) -> Float[Array, "..."]:
        factor = jnp.asarray(self._factor(like.shape), drawn_in(like))
        z = jax.random.normal(key, (like.shape[0] * like.shape[1], len(factor)), factor.dtype)
        return rounded((z @ factor.T).reshape(like.shape), like)

    def _factor(self, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) != 4:
            raise ValueError(
                f"CorrelatedNormal: expected a convolution kernel o x i x h x w, found an array of shape {shape}; use "
                "a rule that matches kernels only, for instance lambda path, shape: len(shape) == 4."
            )
        pixels = np.stack(np.meshgrid(*map(np.arange, shape[2:]), indexing="ij"), axis=-1).reshape(-1, 2)
        distances = np.linalg.norm(pixels[:, None] - pixels[None], axis=-1)
        covariance = _COVARIANCES[self.covariance](distances / self.length)
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise ValueError(
                f"CorrelatedNormal: with covariance={self.covariance!r} and length={self.length:g} the pixels of a "
                f"kernel {shape[2]} x {shape[3]} are so strongly correlated that their covariance is singular in "
                "double precision; use a shorter length, or a rougher covariance such as 'matern12'."
            ) from None
        return resolve_scale(self.scale, shape, "CorrelatedNormal") * factor


class Haar(AbstractStructuredPrior):
    """The uniform distribution of orthonormal matrices along the last two axes."""

    def log_density(self, x: Float[Array, "*batch n p"]) -> Scalar:
        """Zero, because the reference measure is this distribution."""
        return jnp.zeros((), drawn_in(x))

    def sample(self, key: PRNGKey, like: Float[Array, "*batch n p"]) -> Float[Array, "*batch n p"]:
        """Orthonormal QR factors of Gaussian matrices."""
        return rounded(qr_positive(jax.random.normal(key, like.shape, drawn_in(like))), like)


def _size(value: Any) -> int:
    return _checks.whole("SingularValues", "a size", value)


class SingularValues(AbstractStructuredPrior):
    r"""Singular values of a Gaussian m x n matrix of rank r, in the coordinates ``log_gaps``.

    The density :math:`\exp(-|W|^2 / 2\sigma^2)` with respect to the volume of the manifold of matrices of rank r makes
    U and V uniform and independent of the ordered singular values, whose density is proportional to

    .. math::
        \prod_i s_i^{m + n - 2r} e^{-s_i^2 / 2\sigma^2} \prod_{i < j} (s_i^2 - s_j^2):

    the density of the singular values of an ordinary Gaussian matrix r x (m + n - r). With r = min(m, n) all entries of
    W are independent normal. The coordinates are the logarithms of :math:`s_1 - s_2, \dots, s_{r-1} - s_r, s_r`.

    Args:
        num_rows: m.
        num_columns: n, the fan-in.
        scale: :math:`\sigma`, or ``"fan_in"``: then :math:`E|W|^2 = 2m` as for full matrices.
    """

    num_rows: int = eqx.field(static=True, converter=_size)
    num_columns: int = eqx.field(static=True, converter=_size)
    scale: float | str = eqx.field(static=True, default="fan_in", converter=python_number)

    def __check_init__(self):
        check_scale(self.scale, "SingularValues")

    def log_density(self, x: Float[Array, " r"]) -> Scalar:
        r = x.shape[0]
        wide, sigma = self.num_rows + self.num_columns - r, self._sigma(r)
        x = _tree.widened(x)
        gaps = jnp.exp(x)
        s = ordered_scales(x)
        upper = jnp.arange(r)[:, None] < jnp.arange(r)[None]
        # a sum is at least its first gap, even after rounding
        differences = jnp.maximum(s[:, None] - s[None], gaps[:, None])
        products = jnp.where(upper, differences * (s[:, None] + s[None]), 1.0)
        log_constant = (
            0.5 * r * r * math.log(math.pi)
            - 0.5 * r * wide * math.log(2.0)
            - _log_multigamma(0.5 * wide, r)
            - _log_multigamma(0.5 * r, r)
            + r * math.log(2.0)
            - r * wide * math.log(sigma)
        )
        energy = 0.5 * jnp.sum(s * s) / sigma**2
        return log_constant - energy + (wide - r) * jnp.sum(jnp.log(s)) + jnp.sum(jnp.log(products)) + jnp.sum(x)

    def sample(self, key: PRNGKey, like: Float[Array, " r"]) -> Float[Array, " r"]:
        r = like.shape[0]
        wide = self.num_rows + self.num_columns - r
        s = self._sigma(r) * jnp.linalg.svd(jax.random.normal(key, (r, wide), drawn_in(like)), compute_uv=False)
        return rounded(jnp.log(s - jnp.append(s[1:], jnp.zeros(1, s.dtype))), like)

    def _sigma(self, r: int) -> float:
        if not 1 <= r <= min(self.num_rows, self.num_columns):
            raise ValueError(
                f"SingularValues: a {self.num_rows} x {self.num_columns} matrix has between 1 and "
                f"{min(self.num_rows, self.num_columns)} singular values, found {r}."
            )
        if isinstance(self.scale, str):
            return math.sqrt(2.0 * self.num_rows / (r * (self.num_rows + self.num_columns - r)))
        return self.scale


def drawn_in(like: Array) -> Any:
    """The dtype in which variates for an array are drawn: its own, but at least single precision."""
    return jnp.dtype(jnp.float32) if _tree.is_half(like) else like.dtype


def rounded(drawn: Float[Array, "..."], like: Array) -> Float[Array, "..."]:
    """Cast variates to the dtype of their array, clipped to its range."""
    if not _tree.is_half(like):
        return drawn
    most = float(jnp.finfo(like.dtype).max)
    return jnp.clip(drawn, -most, most).astype(like.dtype)


def resolve_scale(scale: Scale, shape: tuple[int, ...], owner: str) -> float:
    """Evaluate a scale for an array of the given shape; raises ValueError if a function returns no positive number."""
    if callable(scale):
        value = float(scale(shape))
        if not value > 0:
            raise ValueError(f"{owner}: scale must be positive, but the function returned {value!r} for {shape}.")
        return value
    if not isinstance(scale, str):
        return float(scale)
    is_bias = len(shape) < 2 or (len(shape) > 2 and set(shape[1:]) == {1})
    return 1.0 if is_bias else fan_in_scale(shape)


def fan_in_scale(shape: tuple[int, ...]) -> float:
    """Value of ``"fan_in"`` for a weight o x i x ...; an empty array has fan-in 1."""
    return math.sqrt(2.0 / max(1, math.prod(shape[1:])))


def check_scale(scale: Scale, owner: str) -> None:
    """Raise ValueError unless the scale is positive, ``"fan_in"``, or a function."""
    if callable(scale) or (isinstance(scale, str) and scale == "fan_in"):
        return
    if isinstance(scale, str):
        raise ValueError(
            f"{owner}: scale must be a positive number, 'fan_in', or a function of the shape, found "
            f"{_checks.described(scale)}."
        )
    _checks.number(owner, "scale", scale, above=0.0)


def _log_multigamma(a: float, r: int) -> float:
    return 0.25 * r * (r - 1) * math.log(math.pi) + sum(math.lgamma(a - 0.5 * j) for j in range(r))
