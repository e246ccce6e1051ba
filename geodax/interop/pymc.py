"""Orthonormal matrices in PyMC models.

:func:`orthonormal` creates a variable from any transform of :mod:`geodax.geometry.transforms`; its ``logp`` can be any
density with respect to the uniform (Haar) probability measure. :func:`stiefel_uniform` and :func:`matrix_langevin` are
variables with exact sampling for prior predictive checks. The transforms enter PyTensor as operations by
``pytensor.wrap_jax``.

PyTensor computes in double precision, so JAX must too: set ``jax.config.update("jax_enable_x64", True)`` before the
first array is created.
"""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax.geometry import distributions
from geodax.geometry.transforms import AbstractTransform, Givens


def orthonormal(
    name: str, transform: AbstractTransform, logp: Callable[[Any], Any] | None = None, *, dims: Any = None
) -> Any:
    """Create a variable of a PyMC model: an n x p matrix with orthonormal columns.

    The model gets a free variable ``{name}_z``, the unconstrained vector, the deterministic ``{name}``, and a potential
    ``{name}_volume``, so that ``{name}`` has the given density.

    Example::

        with pm.Model():
            W = orthonormal("W", gx.transforms.Polar(10, 3))
            pm.Normal("y", X @ W, 0.5, observed=y)

    Args:
        name: Name of the matrix.
        transform: Injective or redundant. ``Polar`` suits most models, ``CayleyChart`` with a center suits concentrated
            posteriors.
        logp: Function from the matrix (a PyTensor variable) to its log density with respect to the uniform
            distribution, up to a constant; None is the uniform distribution.
        dims: Names of the two axes of the matrix.

    Returns:
        The matrix, a PyTensor variable.

    Raises:
        ModuleNotFoundError: Without PyMC.
        RuntimeError: If JAX computes in single precision.
    """
    pm, wrap_jax = _pymc()

    def random(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"orthonormal: {name} has no draws from its prior. Use stiefel_uniform or matrix_langevin, or sample the "
            "model without data."
        )

    # not Flat with an initval: pm.do, pm.compute_log_likelihood and others refuse models with one
    z = pm.CustomDist(
        f"{name}_z",
        _start(transform),
        logp=lambda z, start: 0.0 * z.sum(axis=-1),
        random=random,
        support_point=lambda rv, size, start: start,
        signature="(k)->(k)",
    )
    matrix, log_volume = wrap_jax(transform.forward_and_log_volume)(z)
    matrix = pm.Deterministic(name, _shaped(matrix, transform.shape), dims=dims)
    pm.Potential(f"{name}_volume", log_volume if logp is None else log_volume + logp(matrix))
    return matrix


def stiefel_uniform(name: str, n: int, p: int, *, chart: AbstractTransform | None = None, **options: Any) -> Any:
    """Create a uniformly (Haar) distributed n x p matrix with orthonormal columns as a random variable of a PyMC model.

    Args:
        name: Name of the variable.
        n: Number of rows.
        p: Number of columns.
        chart: Coordinates of the samplers: an injective transform, ``Givens(n, p)`` if left out.
        **options: Further arguments of ``pymc.CustomDist``, such as ``observed``, ``dims`` or ``shape=(4, n, p)`` for
            four matrices.

    Returns:
        The variable.

    Raises:
        ValueError: Unless ``n >= p >= 1`` and the chart is injective and of this size.
        ModuleNotFoundError: Without PyMC.
        RuntimeError: If JAX computes in single precision.
    """
    pm, _ = _pymc()
    distribution = distributions.StiefelUniform(n, p)

    def logp(value: Any, like: Any) -> Any:
        return 0.0 * value.sum(axis=(-2, -1))

    def random(like: Any, rng: Any = None, size: Any = None) -> np.ndarray:
        return np.asarray(distribution.sample(_key(rng), _ints(size)))

    return _variable(pm, name, np.zeros((n, p)), logp, random, chart, options)


def matrix_langevin(name: str, f: Any, *, chart: AbstractTransform | None = None, **options: Any) -> Any:
    """Create a matrix Langevin (von Mises-Fisher) distributed matrix as a random variable of a PyMC model.

    Args:
        name: Name of the variable.
        f: Real n x p matrix; it must be constant, since its normalising constant is left out.
        chart: Coordinates of the samplers: an injective transform, ``Givens(n, p)`` if left out.
        **options: Further arguments of ``pymc.CustomDist``, such as ``observed``, ``dims`` or ``shape=(4, n, p)`` for
            four matrices.

    Returns:
        The variable.

    Raises:
        TypeError: If ``f`` is a variable of PyTensor.
        ValueError: See `geodax.distributions.MatrixLangevin`; also unless the chart is injective and of this size.
        ModuleNotFoundError: Without PyMC.
        RuntimeError: If JAX computes in single precision.
    """
    pm, _ = _pymc()
    if hasattr(f, "owner"):
        raise TypeError(
            f"matrix_langevin: {name} needs numbers for f, found a variable of the model. The normalising constant "
            "depends on f and is left out."
        )
    f = np.asarray(f, float)
    distribution = distributions.MatrixLangevin(f)

    def logp(value: Any, f: Any) -> Any:
        return (f * value).sum(axis=(-2, -1))

    def random(f: Any, rng: Any = None, size: Any = None) -> np.ndarray:
        return np.asarray(distribution.sample(_key(rng), _ints(size)))

    return _variable(pm, name, f, logp, random, chart, options)


def stiefel_transform(chart: AbstractTransform) -> Any:
    """Convert an injective transform to a PyMC transform, for the ``transform`` argument of a distribution of matrices.

    Args:
        chart: ``Givens`` or ``CayleyChart``.

    Returns:
        An instance of a subclass of ``pymc.logprob.transforms.Transform``.

    Raises:
        ValueError: For a redundant transform.
        ModuleNotFoundError: Without PyMC.
    """
    if not chart.is_injective:
        raise ValueError(
            f"stiefel_transform: {type(chart).__name__} is redundant and not a bijection; use orthonormal(name, "
            "transform)."
        )
    pm, wrap_jax = _pymc()
    size = (chart.num_unconstrained,)

    def mapped(function: Callable, signature: str) -> Any:
        return wrap_jax(jnp.vectorize(function, signature=signature))

    class StiefelTransform(pm.logprob.transforms.Transform):
        name = "stiefel"
        ndim_supp = 2

        def forward(self, value: Any, *inputs: Any) -> Any:
            # The batch axes must be known for ``backward``, and of named ones they are not.
            batch = [int(length.eval()) for length in value.shape[:-2]] if value.ndim > 2 else []
            return _shaped(mapped(chart.inverse, "(n,p)->(k)")(_shaped(value, chart.shape)), (*batch, *size))

        def backward(self, value: Any, *inputs: Any) -> Any:
            return _shaped(mapped(chart.forward, "(k)->(n,p)")(_shaped(value, size)), chart.shape)

        def log_jac_det(self, value: Any, *inputs: Any) -> Any:
            return mapped(chart.log_volume, "(k)->()")(_shaped(value, size))

    return StiefelTransform()


def _variable(pm: Any, name: str, f: np.ndarray, logp: Any, random: Any, chart: Any, options: dict[str, Any]) -> Any:
    n, p = f.shape
    if n == p and chart is None:
        warnings.warn(
            f"{name}: square orthonormal matrices have determinant 1 or -1, and a chart covers one of the two; here it "
            f"is 1. Make this explicit with chart=Givens({n}, {n}), or cover both with orthonormal(name, Polar({n}, "
            f"{n})).",
            stacklevel=3,
        )
    chart = Givens(n, p) if chart is None else chart
    if chart.shape != f.shape:
        raise ValueError(f"{name}: expected a chart of matrices of shape {f.shape}, found {chart.shape}.")
    start = np.asarray(chart.forward(jnp.asarray(_start(chart))))
    broadcast_to = importlib.import_module("pytensor.tensor").broadcast_to
    return pm.CustomDist(
        name,
        f,
        logp=logp,
        random=random,
        signature="(n,p)->(n,p)",
        # not an initval, from which sample_smc would start all particles
        support_point=lambda rv, *_: broadcast_to(start, rv.shape),
        default_transform=stiefel_transform(chart),  # not transform, which would change observed values too
        **options,
    )


def _start(transform: AbstractTransform) -> np.ndarray:
    """An unconstrained vector of a point away from cuts, poles and zero lengths."""
    if transform.is_injective:
        return 0.5 * np.cos(np.arange(transform.num_unconstrained))
    x = distributions.StiefelUniform(transform.n, transform.p).sample(jax.random.key(0))
    return np.asarray(transform.inverse(x))


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    leading = (None,) * (x.ndim - len(shape))
    return importlib.import_module("pytensor.tensor").specify_shape(x, (*leading, *shape))


def _ints(size: Any) -> tuple[int, ...]:
    return () if size is None else tuple(map(int, size))


def _key(rng: Any) -> jax.Array:
    return jax.random.key(int(rng.integers(2**32)))


def _pymc() -> tuple[Any, Any]:
    try:
        pymc, pytensor = importlib.import_module("pymc"), importlib.import_module("pytensor")
        wrap_jax = pytensor.wrap_jax
    except (ImportError, AttributeError) as error:
        raise ModuleNotFoundError(
            "geodax.interop.pymc needs PyMC 5.26 or later: pip install 'geodax[pymc]'.", name="pymc"
        ) from error
    if not jax.config.read("jax_enable_x64"):
        raise RuntimeError(
            "geodax.interop.pymc: PyTensor computes in double precision, JAX here in single precision. Call "
            'jax.config.update("jax_enable_x64", True) at the beginning of the program.'
        )
    return pymc, wrap_jax
