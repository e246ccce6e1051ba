"""Orthonormal matrices as a support of NumPyro's distributions, and the charts that map real vectors to them.

NumPyro calls ``biject_to(support)`` for a transform from unconstrained numbers. For ``stiefel(n, p)`` it is one of the
injective transforms of :mod:`geodax.geometry.transforms`, with its ``log_volume`` as NumPyro's log determinant of the
Jacobian. So densities of sites are densities with respect to the uniform (Haar) probability measure. The redundant
transforms cannot be used there, since they have more unconstrained numbers than the site has dimensions: they are
reparametrisers, see :mod:`geodax.interop.numpyro.reparam`.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform

from geodax._types import Array, Bool, Float
from geodax.geometry.transforms import AbstractTransform, Givens


class _Stiefel(constraints.ParameterFreeConstraint):
    """Matrices with orthonormal columns; see :func:`stiefel`.

    No parameter of a distribution changes the set, so distributions with it can be components of a mixture.
    """

    event_dim = 2

    def __init__(self, chart: AbstractTransform, is_chosen: bool):
        self.chart = chart
        self.is_chosen = is_chosen

    def __call__(self, x: Any) -> Bool[Array, "*batch"]:
        """Whether the columns are orthonormal: ``x^T x`` differs from the identity by less than ``sqrt(eps)``.

        NumPyro gives values that fail zero density, so the tolerance allows for rounding at the ends of a chart.
        """
        n, p = self.chart.shape
        x = as_inexact(x)
        if x.shape[-2:] != (n, p):
            raise ValueError(f"{self!r}: expected matrices of shape (..., {n}, {p}), found shape {x.shape}.")
        gram = jnp.swapaxes(x, -1, -2) @ x
        identity = jnp.broadcast_to(jnp.eye(p, dtype=x.dtype), gram.shape)
        tolerance = float(jnp.finfo(x.dtype).eps) ** 0.5
        return jnp.max(jnp.abs(gram - identity), axis=(-2, -1)) < tolerance

    def __repr__(self) -> str:
        return f"stiefel({self.chart.n}, {self.chart.p})"

    def feasible_like(self, prototype: Any) -> Array:
        """Return the middle of the chart."""
        middle = self.chart.forward(jnp.zeros(self.chart.num_unconstrained, jnp.result_type(prototype)))
        return jnp.broadcast_to(middle, jnp.shape(prototype))

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _Stiefel) and bool(eqx.tree_equal(self.chart, other.chart))

    def tree_flatten(self) -> Any:
        return (self.chart,), (("chart",), {"is_chosen": self.is_chosen})


def stiefel(n: int, p: int, *, chart: Any = None) -> _Stiefel:
    """Return the constraint of n x p matrices with orthonormal columns; unit vectors are ``stiefel(n, 1)``.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.
        chart: Coordinates of NumPyro's samplers and guides: ``Givens(n, p)`` (the default), one with
            options (``shift``, ``center``, ``half``), or ``CayleyChart(n, p, center=...)``. For square matrices a chart
            contains those of one determinant only.

    Returns:
        A constraint with ``event_dim`` 2 for which ``numpyro.distributions.biject_to`` is registered.

    Raises:
        ValueError: Unless ``n >= p >= 1``, for a chart of another size, and for a transform that is not injective.
        TypeError: If the chart is not a transform.
    """
    if chart is None:
        return _Stiefel(Givens(n, p), is_chosen=False)
    check_chart(n, p, chart)
    return _Stiefel(chart, is_chosen=True)


def event_support(distribution: Any) -> Any:
    """The support of single events."""
    support = distribution.support
    is_independent = isinstance(support, type(constraints.independent(constraints.real, 1)))
    return support.base_constraint if is_independent else support


def as_inexact(x: Any) -> Array:
    """An array of floating-point or complex numbers; integers are converted."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def check_chart(n: int, p: int, chart: Any) -> None:
    """Raise unless ``chart`` is an injective transform to n x p matrices."""
    if not isinstance(chart, AbstractTransform):
        raise TypeError(
            f"stiefel({n}, {p}): chart must be a transform such as gx.transforms.Givens({n}, {p}), found a "
            f"{type(chart).__name__}."
        )
    if chart.shape != (n, p):
        raise ValueError(f"stiefel({n}, {p}): expected a chart of matrices of shape {(n, p)}, found {chart.shape}.")
    if not chart.is_injective:
        raise ValueError(
            f"stiefel({n}, {p}): {type(chart).__name__} is redundant, it has {chart.num_unconstrained} unconstrained "
            f"numbers for {n * p - p * (p + 1) // 2} dimensions, and cannot be a bijection. Use it as a "
            "reparametriser (geodax.interop.numpyro.PolarReparam, HouseholderReparam, CircleReparam), or use Givens "
            "or CayleyChart."
        )


class ChartTransform(Transform):
    """What transforms from coordinates of a chart to matrices share."""

    def __init__(self, chart: Any):
        self.chart = chart

    @property
    def domain(self) -> constraints.Constraint:
        return constraints.real_vector

    @property
    def codomain(self) -> constraints.Constraint:
        return stiefel(self.chart.n, self.chart.p, chart=self.chart)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*self._leading("forward_shape", shape, (self.chart.num_unconstrained,)), *self.chart.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*self._leading("inverse_shape", shape, self.chart.shape), self.chart.num_unconstrained)

    def _leading(self, name: str, shape: tuple[int, ...], event_shape: tuple[int, ...]) -> tuple[int, ...]:
        count = len(shape) - len(event_shape)
        if count < 0 or tuple(shape[count:]) != event_shape:
            raise ValueError(
                f"{type(self).__name__}.{name}: expected a shape that ends in {event_shape}, found {shape}."
            )
        return tuple(shape[:count])

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, type(self)) and bool(eqx.tree_equal(self.chart, other.chart))

    def tree_flatten(self) -> Any:
        return (self.chart,), (("chart",), {})


class StiefelTransform(ChartTransform):
    """A transform of :mod:`geodax.geometry.transforms` as a NumPyro transform, over any leading axes.

    Args:
        chart: An injective transform.
    """

    def __init__(self, chart: AbstractTransform):
        check_chart(chart.n, chart.p, chart)
        super().__init__(chart)

    def __call__(self, x: Float[Array, "*batch k"]) -> Float[Array, "*batch n p"]:
        return over_leading_axes(self.chart.forward, 1)(x)

    def _inverse(self, y: Float[Array, "*batch n p"]) -> Float[Array, "*batch k"]:
        return over_leading_axes(self.chart.inverse, 2)(y)

    def log_abs_det_jacobian(self, x: Float[Array, "*batch k"], y: Any, intermediates: Any = None) -> Any:
        """The log volume: the Jacobian with respect to the uniform probability measure."""
        return over_leading_axes(self.chart.log_volume, 1)(x) if intermediates is None else intermediates

    def call_with_intermediates(self, x: Float[Array, "*batch k"]) -> Any:
        return over_leading_axes(self.chart.forward_and_log_volume, 1)(x)


@biject_to.register(_Stiefel)
def _biject_to_stiefel(constraint: _Stiefel) -> StiefelTransform:
    n, p = constraint.chart.shape
    if n == p and not constraint.is_chosen:
        warnings.warn(
            f"stiefel({n}, {n}): square orthonormal matrices have determinant 1 or -1, and a chart covers one of the "
            "two; here it is 1. Make this explicit with stiefel(n, n, chart=Givens(n, n)), or cover both with "
            "PolarReparam, HouseholderReparam or geodax.interop.numpyro.sample.",
            stacklevel=2,
        )
    return StiefelTransform(constraint.chart)


def over_leading_axes(function: Callable, event_dim: int) -> Callable:
    """Map a function of one array over all but its last ``event_dim`` axes."""

    @functools.wraps(function)
    def mapped(x: Any) -> Any:
        x = jnp.asarray(x)
        mapped_function = function
        for _ in range(x.ndim - event_dim):
            mapped_function = jax.vmap(mapped_function)
        return mapped_function(x)

    return mapped
