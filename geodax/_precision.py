"""Full precision for products of matrices.

JAX multiplies single-precision matrices in TF32 on recent GPUs and in bfloat16 on TPUs, with three digits: far too few
for orthonormality, energies and log densities. What geodax computes is therefore traced with ``highest`` as the
default, but for the likelihoods of batches, which compute as JAX is configured to: the noise of batches is larger than
their rounding.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import jax

_Class = TypeVar("_Class", bound=type)

_outside: ContextVar[tuple[Any] | None] = ContextVar("precision outside of full_precision", default=None)


def _configured() -> Any:
    return getattr(jax.config, "jax_default_matmul_precision", None)


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply matrices in their own precision while tracing."""
    token = _outside.set(_outside.get() or (_configured(),))
    try:
        with jax.default_matmul_precision("highest"):
            yield
    finally:
        _outside.reset(token)


@contextmanager
def configured_precision() -> Iterator[None]:
    """Multiply matrices as JAX is configured to outside of :func:`full_precision`."""
    outside = _outside.get()
    with jax.default_matmul_precision(outside[0] if outside else _configured()):
        yield


def with_full_precision(cls: _Class) -> _Class:
    """Class decorator: every method that a class defines computes in full precision."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("__") and not inspect.isgeneratorfunction(method):
            setattr(cls, name, in_full_precision(method))
    return cls


def in_full_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a function computes in full precision. It can be sent to other processes, by cloudpickle."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        with full_precision():
            return function(*args, **options)

    return call
