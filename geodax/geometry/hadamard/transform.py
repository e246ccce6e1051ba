"""The transform and the choice of its backend."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Float, Num

from geodax import _checks
from geodax._types import Array
from geodax.geometry.hadamard import gpu
from geodax.geometry.hadamard.matrices import factors, hadamard_matrix
from geodax.geometry.hadamard.native import is_native, native
from geodax.geometry.hadamard.products import dense, kronecker, multiply

BACKENDS = ("dense", "kronecker", "native", "gpu")
_LARGEST_DENSE = 2  # by measurement, benchmarks/hadamard.py
_LARGEST_DENSE_ELSEWHERE = 64
_NATIVE_DTYPES = ("float32", "float64")


def hadamard_size(size: int) -> int:
    """Return the smallest power of two that is at least ``size``: the size to which rows are padded."""
    size = _checks.whole("hadamard_size", "size", size, least=0)
    return 1 << max(0, size - 1).bit_length()


def fwht(x: Num[Array, "..."], axis: int = -1, *, backend: str | None = None) -> Float[Array, "..."]:
    r"""Fast Walsh-Hadamard transform, orthonormal: H x along an axis with :math:`H = H^T = H^{-1}`.

    H is Sylvester's matrix over :math:`\sqrt{D}` for :math:`D = 2^k` (natural order), and its Kronecker product with a
    symmetric Hadamard matrix of order 12, 20 or 28 for the sizes :math:`12, 20, 28 \cdot 2^k`. It works under ``jit``,
    ``vmap`` and derivatives of either mode and any order; rows on several devices are not moved.

    Args:
        x: Real numbers of shape ``(..., D, ...)``, in float16, bfloat16, float32 or float64.
        axis: The axis to transform.
        backend: None chooses by platform, size and dtype. ``"dense"``: one matrix product. ``"kronecker"``: several
            small products, O(D log D) in plain JAX. ``"native"``: the compiled CPU kernel (float32, float64).
            ``"gpu"``: the Pallas kernel.

    Returns:
        The transform, with the shape and dtype of x.

    Raises:
        ValueError: For a size without a Hadamard matrix, a dtype that is not real floating point, or an unknown or
            unavailable backend.

    Example:
        >>> fwht(jnp.array([1.0, 0.0, 0.0, 0.0]))
        Array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """
    x = x if isinstance(x, jax.Array) else jnp.asarray(_checks.plain("fwht", "x", x))
    axis = _checks.whole("fwht", "axis", axis, least=-_checks.LARGEST)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"fwht: expected real floating-point numbers, found {x.dtype}; convert them first.")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"fwht: expected an axis of an array of shape {x.shape}, found axis {axis}.")
    size = x.shape[axis]
    found = factors(size)
    if found is None:
        raise ValueError(
            f"fwht: expected a size 2^k, 12*2^k, 20*2^k or 28*2^k, found {size} on axis {axis}; pad with zeros to "
            f"{hadamard_size(size)} (geodax.geometry.hadamard.hadamard_size)."
        )
    _require(backend, x)
    rows = jnp.moveaxis(x, axis, -1)
    order, rest = found
    if order == 1:
        transformed = _powers_of_two(rows, backend)
    else:
        grid = _powers_of_two(rows.reshape(*rows.shape[:-1], order, rest), backend)
        transformed = multiply(jnp.asarray(hadamard_matrix(order), x.dtype), grid).reshape(rows.shape)
    return jnp.moveaxis(transformed, -1, axis)


@functools.partial(jax.jit, static_argnames="backend")
def _powers_of_two(rows: Array, backend: str | None) -> Array:
    size = rows.shape[-1]
    if size == 1 or rows.size == 0:
        return rows
    if backend is None:
        backend = "dense" if size <= _LARGEST_DENSE else "auto"
    if backend == "dense":
        return dense(rows)
    found = {"kronecker": kronecker, "native": native, "gpu": gpu.transform, "auto": _by_platform}
    apply: Callable[[Array], Array] = found[backend]
    # The solution of H x = b is x = H b. JAX derives derivatives, transposes and batching from this, although it cannot
    # differentiate the kernel.
    return jax.lax.custom_linear_solve(apply, rows, lambda _, b: apply(b), symmetric=True)


def _by_platform(rows: Array) -> Array:
    size = rows.shape[-1]
    elsewhere = dense if size <= _LARGEST_DENSE_ELSEWHERE else kronecker
    on_cpu = native if rows.dtype.name in _NATIVE_DTYPES and is_native() else _without_kernel
    on_gpu = gpu.transform if gpu.can_transform(rows) else elsewhere
    return jax.lax.platform_dependent(rows, cpu=on_cpu, cuda=on_gpu, default=elsewhere)


def _without_kernel(rows: Array) -> Array:
    """On a CPU without the kernel, or for a dtype it does not support: half precision is computed in single."""
    if rows.dtype.name not in _NATIVE_DTYPES:
        wide = rows.astype(jnp.float32)
        return (native(wide) if is_native() else _without_kernel(wide)).astype(rows.dtype)
    return kronecker(rows)


def _require(backend: str | None, x: Array) -> None:
    if backend is None:
        return
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise ValueError(
            f"fwht: backend must be None or one of {', '.join(BACKENDS)}, found {_checks.described(backend)}."
        )
    if backend == "native" and x.dtype.name not in _NATIVE_DTYPES:
        raise ValueError(f"fwht: the native kernel supports float32 and float64, found {x.dtype}.")
    if backend == "native" and _platform(x) != "cpu":
        raise ValueError(
            f"fwht: the native kernel is for processors, found an array on {_platform(x)}. Leave backend out."
        )
    if backend == "native" and not is_native():
        raise ValueError("fwht: the native kernel is not available; the log gives the reason. Leave backend out.")


def _platform(x: Array) -> str:
    return jax.default_backend() if isinstance(x, Tracer) else next(iter(x.devices())).platform
