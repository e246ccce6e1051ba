r"""Sparse Gaussian processes with whitened inducing points, as a variational module.

With inducing inputs Z, :math:`K_{ZZ} = L L^T` and inducing values :math:`u = L v`, the prior of v is N(0, I), its
posterior is normal, and

.. math::
    f(x) \mid v \sim N(a(x)^T v,\; k(x, x) - |a(x)|^2), \qquad a(x) = L^{-1} k(Z, x) .

Sources:
    Titsias (2009), Variational learning of inducing variables in sparse Gaussian processes. AISTATS.
    Hensman, Matthews and Ghahramani (2015), Scalable variational Gaussian process classification. AISTATS.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree, Scalar
from geodax.geometry.linalg import cholesky, solve_lower
from geodax.nn.layers import check_sizes
from geodax.vi.families import AbstractFamily, gaussian
from geodax.vi.modules import AbstractLocal

_JITTER = 1e-6


class InducingPointGP(AbstractLocal):
    r"""A Gaussian process with the kernel :math:`a^2 \exp(-|x - x'|^2 / 2)` of scaled inputs.

    Called with a key, it draws the value at one input from its marginal posterior, so one example must pass through it
    only once. :func:`geodax.vi.sample_functions` draws the values at all rows jointly. Use double precision: kernel
    matrices of smooth kernels are nearly singular.

    Args:
        inducing: Initial inducing inputs, M x in, which are optimised. Integers are converted to floats.
        covariance: Covariance of v: ``"diagonal"`` or ``"full"``.
        lengthscale: Initial length scale of every input, a positive number.
        amplitude: Initial amplitude a, a positive number.

    Attributes:
        v: Distribution of v.
        inducing: M x in.
        log_lengthscales: One per input.
        log_amplitude: A scalar.
    """

    v: AbstractFamily
    inducing: Float[Array, "M in"]
    log_lengthscales: Float[Array, " in"]
    log_amplitude: Scalar

    def __init__(
        self, inducing: Any, *, covariance: str = "diagonal", lengthscale: float = 1.0, amplitude: float = 1.0
    ):
        """See the class.

        Raises:
            TypeError: If the inducing inputs are not real numbers in single or double precision, or an option is not a
                number.
            ValueError: If the inducing inputs are not a matrix, a number is not positive, or the covariance is unknown.
        """
        inducing = _checks.array("InducingPointGP", "inducing", inducing, half=False)
        if inducing.ndim != 2:
            raise ValueError(
                f"InducingPointGP: inducing must be M x in, one inducing input per row, found shape {inducing.shape}."
            )
        lengthscale = _checks.number("InducingPointGP", "lengthscale", lengthscale, above=0.0)
        amplitude = _checks.number("InducingPointGP", "amplitude", amplitude, above=0.0)
        number, in_features = inducing.shape
        check_sizes("InducingPointGP", in_features=in_features, num_inducing=number)
        self.v = gaussian(covariance, jnp.zeros(number, inducing.dtype), 1.0)
        self.inducing = inducing
        self.log_lengthscales = jnp.full(in_features, math.log(lengthscale), inducing.dtype)
        self.log_amplitude = jnp.asarray(math.log(amplitude), inducing.dtype)

    def __call__(self, x: Float[Array, " in"], *, key: PRNGKey | None = None) -> Scalar:
        """Draw the value at one input from its marginal distribution, or return the mean."""
        x = _checks.vector("InducingPointGP", x, self.inducing.shape[1])
        scale, z, square, root = self._parts()
        cross = square * _kernel(z, (x * scale)[None])
        a = solve_lower(root, cross[:, None])[:, 0]
        if key is None:
            return a @ self.v.location
        key_v, key_f = jax.random.split(key)
        rest = jnp.maximum(square - a @ a, 0.0) + jnp.finfo(z.dtype).tiny
        return a @ self.v.sample(key_v) + jnp.sqrt(rest) * jax.random.normal(key_f, (), z.dtype)

    @property
    def is_joint(self) -> bool:
        """True: values given v are dependent and have to be drawn jointly."""
        return True

    def fixed(self, key: PRNGKey) -> "DrawnProcess":
        return DrawnProcess(self, key)

    def values(self, x: Float[Array, "n in"], key: PRNGKey) -> Float[Array, " n"]:
        """Draw the values at several inputs, one per row, from their joint distribution, in O(n^3)."""
        scale, z, square, root = self._parts()
        key_v, key_f = jax.random.split(key)
        inputs = x * scale[None]
        a = solve_lower(root, square * _kernel(z[:, None], inputs[None]))
        covariance = square * _kernel(inputs[:, None], inputs[None]) - a.T @ a
        # (nearly) coinciding inputs make it singular
        variances, directions = jnp.linalg.eigh(covariance)
        noise = jnp.sqrt(jnp.maximum(variances, 0.0)) * jax.random.normal(key_f, (len(x),), x.dtype)
        return self.v.sample(key_v) @ a + directions @ noise

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        """Return inverse length scales, scaled inducing inputs, the squared amplitude, and L."""
        scale = jnp.exp(-self.log_lengthscales)
        z, square = self.inducing * scale[None], jnp.exp(2.0 * self.log_amplitude)
        identity = jnp.eye(len(z), dtype=z.dtype)
        return scale, z, square, cholesky(square * (_kernel(z[:, None], z[None]) + _JITTER * identity))

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        return self.v.kl(1.0, key=key)


def _kernel(x: Any, y: Any) -> Array:
    return jnp.exp(-0.5 * jnp.sum((x - y) ** 2, axis=-1))


class DrawnProcess(eqx.Module):
    """A process with a key for its values, for one call."""

    process: InducingPointGP
    key: PRNGKey

    def __call__(self, x: Float[Array, " in"], *, key: PRNGKey | None = None) -> Scalar:
        """Return the value at one input; under ``jax.vmap`` the values at all inputs are drawn jointly."""
        x = _checks.vector("InducingPointGP", x, self.process.inducing.shape[1])
        process, x = _without_derivatives((self.process, x))
        return _values(process, self.key, x)


def _without_derivatives(a: PyTree) -> PyTree:
    arrays, rest = eqx.partition(a, eqx.is_inexact_array)
    return eqx.combine(_fixed(arrays), rest)


@jax.custom_jvp
def _fixed(arrays: PyTree) -> PyTree:
    return arrays


@_fixed.defjvp
def _refuse(primals: Any, tangents: Any) -> Any:
    raise ValueError(
        "vi: jointly drawn values of an InducingPointGP have no derivatives; use gx.nn.RandomFeatureGP, or the values "
        "at single inputs drawn by vi.predict."
    )


def _joint_values(process: InducingPointGP, key: PRNGKey, x: Array) -> Array:
    """Draw values at inputs with any leading axes, all jointly."""
    return process.values(x.reshape(-1, x.shape[-1]), key).reshape(x.shape[:-1])


_values = custom_vmap(_joint_values)


@_values.def_vmap
def _more_values(axis_size: int, is_batched: Any, process: InducingPointGP, key: PRNGKey, x: Array) -> Any:
    if not any(jax.tree.leaves(is_batched[:2])):
        return _values(process, key, x), True
    axes = jax.tree.map(lambda batched: 0 if batched else None, is_batched)
    return jax.vmap(_joint_values, in_axes=tuple(axes), axis_size=axis_size)(process, key, x), True
