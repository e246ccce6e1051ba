"""Parts of matrices: conjugate transposes, symmetric and skew parts."""

import jax.numpy as jnp
from jaxtyping import Inexact

from geodax._types import Array, Scalar


def adjoint(x: Inexact[Array, "*batch n p"]) -> Inexact[Array, "*batch p n"]:
    """Conjugate transpose of the last two axes."""
    return jnp.conj(jnp.swapaxes(x, -1, -2)) if jnp.iscomplexobj(x) else jnp.swapaxes(x, -1, -2)


def sym(m: Inexact[Array, "*batch p p"]) -> Inexact[Array, "*batch p p"]:
    """Symmetric (Hermitian) part."""
    return 0.5 * (m + adjoint(m))


def skew(m: Inexact[Array, "*batch p p"]) -> Inexact[Array, "*batch p p"]:
    """Skew-symmetric (skew-Hermitian) part."""
    return 0.5 * (m - adjoint(m))


def eye_like(m: Inexact[Array, "*batch n p"]) -> Inexact[Array, "p p"]:
    """Identity of the size of the last axis, with the dtype of ``m``."""
    return jnp.eye(m.shape[-1], dtype=m.dtype)


def longest_row(m: Inexact[Array, "*batch n p"]) -> Scalar:
    """The largest Euclidean length of a row."""
    return jnp.max(jnp.linalg.norm(m, axis=-1), initial=0.0)
