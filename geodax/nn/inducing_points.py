r"""Sparse Gaussian processes by inducing points, whitened, as a variational module beside random features.

With inducing inputs Z, :math:`K_{ZZ} = L L^T` and inducing values :math:`u = L v`, the prior of v is N(0, I), its
posterior normal, and

.. math::
    f(x) \mid v \sim N(a(x)^T v,\; k(x, x) - |a(x)|^2), \qquad a(x) = L^{-1} k(Z, x) .

Sources:
    Titsias (2009), Variational learning of inducing variables in sparse Gaussian processes. AISTATS.
    Hensman, Matthews and Ghahramani (2015), Scalable variational Gaussian process classification. AISTATS.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.linalg import cholesky, solve_lower
from geodax.nn.layers import check_sizes
from geodax.vi.families import AbstractFamily, gaussian
from geodax.vi.modules import AbstractVariational

_JITTER = 1e-6


class InducingPointGP(AbstractVariational):
    r"""One Gaussian process with the kernel :math:`a^2 \exp(-|x - x'|^2 / 2)` of scaled inputs.

    Called with a key, it draws the value at one input from its marginal posterior. Take double precision: matrices of
    smooth kernels are nearly singular.

    Args:
        inducing: First inducing inputs, M x in; they are optimised.
        covariance: Of v: ``"diagonal"`` or ``"full"``.
        lengthscale: First length scale of every input.
        amplitude: First amplitude a.

    Attributes:
        v: The law of v.
        inducing: M x in.
        log_lengthscales: One an input.
        log_amplitude: A scalar.
    """

    v: AbstractFamily
    inducing: Float[Array, "M in"]
    log_lengthscales: Float[Array, " in"]
    log_amplitude: Scalar

    def __init__(
        self,
        inducing: Float[Array, "M in"],
        *,
        covariance: str = "diagonal",
        lengthscale: float = 1.0,
        amplitude: float = 1.0,
    ):
        number, in_features = inducing.shape
        check_sizes("InducingPointGP", in_features=in_features, num_inducing=number)
        self.v = gaussian(covariance, jnp.zeros(number, inducing.dtype), 1.0)
        self.inducing = inducing
        self.log_lengthscales = jnp.full(in_features, math.log(lengthscale), inducing.dtype)
        self.log_amplitude = jnp.asarray(math.log(amplitude), inducing.dtype)

    def __call__(self, x: Float[Array, " in"], *, key: PRNGKey | None = None) -> Scalar:
        """The value at one input, drawn from its marginal law, or the mean."""
        scale = jnp.exp(-self.log_lengthscales)
        z, square = self.inducing * scale[None], jnp.exp(2.0 * self.log_amplitude)
        identity = jnp.eye(len(z), dtype=z.dtype)
        root = cholesky(square * (_kernel(z[:, None], z[None]) + _JITTER * identity))
        cross = square * _kernel(z, (x * scale)[None])
        a = solve_lower(root, cross[:, None])[:, 0]
        if key is None:
            return a @ self.v.location
        key_v, key_f = jax.random.split(key)
        rest = jnp.maximum(square - a @ a, 0.0) + jnp.finfo(z.dtype).tiny
        return a @ self.v.sample(key_v) + jnp.sqrt(rest) * jax.random.normal(key_f, (), z.dtype)

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Divergence of v from N(0, I), exact."""
        return self.v.kl(1.0, key=key)


def _kernel(x: Any, y: Any) -> Array:
    return jnp.exp(-0.5 * jnp.sum((x - y) ** 2, axis=-1))
