"""The uniform distribution of orthonormal matrices."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Inexact

from geodax import _checks
from geodax._precision import with_full_precision
from geodax._random import standard_normal
from geodax._types import Array, PRNGKey
from geodax.geometry.distributions.arguments import points
from geodax.geometry.linalg import qr_positive


@with_full_precision
class StiefelUniform(eqx.Module):
    """The uniform (Haar) distribution of orthonormal n x p matrices, real or complex.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``. A real square matrix has determinant 1 or -1 with equal probability.
        dtype: Floating-point or complex type of the draws; JAX's default float if left out.

    Raises:
        ValueError: Unless ``n >= p >= 1`` and the type is floating-point or complex.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(self, n: int, p: int, dtype: Any = None):
        n, p = (_checks.whole("StiefelUniform", name, size) for name, size in (("n", n), ("p", p)))
        if not n >= p:
            raise ValueError(f"StiefelUniform: expected n >= p >= 1, found n = {n}, p = {p}.")
        try:
            dtype = jax.dtypes.canonicalize_dtype(float if dtype is None else dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(f"StiefelUniform: dtype is not a number type: {_checks.described(dtype)}.") from error
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise ValueError(f"StiefelUniform: expected a floating-point or complex dtype, found {dtype}.")
        self.n, self.p, self.dtype = n, p, dtype

    @property
    def is_normalized(self) -> bool:
        """True."""
        return True

    def log_prob(self, x: Inexact[Array, "*batch n p"]) -> Float[Array, "*batch"]:
        x = points("StiefelUniform", x, (self.n, self.p))
        return jnp.zeros(x.shape[:-2], jnp.finfo(x.dtype).dtype)

    def sample(self, key: PRNGKey, shape: int | tuple[int, ...] = ()) -> Inexact[Array, "*shape n p"]:
        """Sample independent orthonormal QR factors of Gaussian matrices (Mezzadri 2007)."""
        key = _checks.random_key("StiefelUniform.sample", key)
        shape = _checks.shape("StiefelUniform.sample", shape)
        return qr_positive(standard_normal(key, jax.ShapeDtypeStruct((*shape, self.n, self.p), self.dtype)))
