"""Checks of the parameters of a distribution and of the points of a density."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from geodax import _checks
from geodax._types import Array


def real_array(name: str, value: Any, ndim: int, dtype: Any = None) -> Array:
    """Convert an argument to a finite real array; ``name`` is ``"Owner: argument"``."""
    owner, argument = name.split(": ")
    x = _checks.array(owner, argument, value, kinds="floating-point or complex", half=False)
    if jnp.iscomplexobj(x):
        raise ValueError(f"{name}: expected real entries, found {x.dtype}; only StiefelUniform is complex.")
    if x.ndim != ndim:
        kind = ("a number", "a vector", "a matrix")[ndim]
        raise ValueError(f"{name}: expected {kind}, found shape {x.shape}; use jax.vmap for a stack of distributions.")
    if dtype is not None or not jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(jax.dtypes.canonicalize_dtype(float) if dtype is None else dtype)
    concrete = known_value(x)
    if concrete is not None and not np.all(np.isfinite(concrete)):
        raise ValueError(f"{name}: expected finite entries, found {int(np.sum(~np.isfinite(concrete)))} that are not.")
    return x


def tall_matrix(name: str, value: Any) -> Array:
    """Convert an argument to a real matrix with at least as many rows as columns."""
    f = real_array(name, value, 2)
    if not f.shape[0] >= f.shape[1] >= 1:
        raise ValueError(f"{name}: expected an n x p matrix with n >= p >= 1, found shape {f.shape}.")
    return f


def quadratic_parameters(name: str, a: Any, b: Any, dtype: Any = None) -> tuple[Array, Array]:
    """Convert ``a`` to a symmetric matrix and ``b`` to the weights of at most as many columns."""
    a = real_array(f"{name}: a", a, 2, dtype)
    b = real_array(f"{name}: b", b, 1, a.dtype)
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"{name}: a: expected a square symmetric matrix, found shape {a.shape}.")
    if not a.shape[0] >= b.shape[0] >= 1:
        raise ValueError(f"{name}: b: expected between 1 and {a.shape[0]} weights, found {b.shape[0]}.")
    concrete = known_value(a)
    if concrete is not None:
        defect = np.max(np.abs(concrete - concrete.T))
        if defect > 1e3 * jnp.finfo(a.dtype).eps * np.max(np.abs(concrete)):
            raise ValueError(f"{name}: a: expected a symmetric matrix, but a - a^T has an entry of size {defect:.3g}.")
    return 0.5 * (a + a.T), b


def points(name: str, x: Any, shape: tuple[int, ...]) -> Array:
    """Check that points end in the shape of an event."""
    x = _checks.array(f"{name}.log_prob", "x", x, kinds="floating-point or complex")
    if x.shape[-len(shape) :] != tuple(shape):
        raise ValueError(
            f"{name}: log_prob expects points of shape (..., {', '.join(map(str, shape))}), found {x.shape}."
        )
    return x


def known_value(x: Array) -> Any:
    """Return the value of an array, or None while it is traced."""
    return None if isinstance(x, Tracer) else np.asarray(x)
