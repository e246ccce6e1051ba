"""Distributions of orthonormal matrices as NumPyro distributions: those of :mod:`geodax.distributions` with batches.

Densities are with respect to the uniform (Haar) probability measure, normalised if the distributions of geodax are, as
``is_normalized`` reports. Otherwise the constant that is left out must not depend on latent variables, see
:mod:`geodax.interop.numpyro.constants`.

NumPyro uses ``mean`` as a point of the support for initialisation. The mean of orthonormal matrices is not in the
support, so it is not defined here, and ``init_to_mean`` falls back to the median of the coordinates.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from geodax import _checks
from geodax._types import Array, Float, PRNGKey
from geodax.geometry import distributions
from geodax.interop.numpyro.constants import noticed, without_derivative
from geodax.interop.numpyro.constraints import as_inexact, check_chart, stiefel


class _OnStiefel(Distribution):
    """The shared parts: the support, and a geodax distribution for each element of the batch."""

    pytree_data_fields = ("chart",)
    pytree_aux_fields = ("num_sweeps",)
    arg_constraints = {}  # noqa: RUF012 - NumPyro's protocol
    chart: Any
    num_sweeps: int | None

    def __init__(self, shape: tuple[int, ...], chart: Any, num_sweeps: int | None = None, validate_args: Any = None):
        if chart is not None:
            check_chart(shape[-2], shape[-1], chart)
        if num_sweeps is not None:
            num_sweeps = _checks.whole(type(self).__name__, "num_sweeps", num_sweeps)
        self.chart, self.num_sweeps = chart, num_sweeps
        super().__init__(shape[:-2], shape[-2:], validate_args=validate_args)

    @property
    def support(self) -> Any:
        return stiefel(*self.event_shape, chart=self.chart)

    def _parameters(self) -> tuple[Array, ...]:
        return tuple(getattr(self, name) for name in self.arg_constraints)

    def _vectorized(self, function: Any, argument: str, result: str) -> Any:
        """A function of an argument and the parameters of one distribution, over all of the batch."""
        shapes = {"f": "(n,p)", "a": "(n,n)", "b": "(p)"}
        arguments = ",".join([argument, *(shapes[name] for name in self.arg_constraints)])
        return jnp.vectorize(function, signature=f"{arguments}->{result}")

    def _distribution(self, *parameters: Any) -> Any:
        raise NotImplementedError

    @property
    def is_normalized(self) -> bool:
        """Whether ``log_prob`` contains the normalising constant."""
        if not self.batch_shape:
            return self._distribution(*self._parameters()).is_normalized
        ranks = [1 if name == "b" else 2 for name in self.arg_constraints]
        single = [p[(0,) * (p.ndim - rank)] for p, rank in zip(self._parameters(), ranks, strict=True)]
        return self._distribution(*single).is_normalized

    def invariants(self) -> tuple[Array, ...]:
        """The parameters up to rotations of the matrices, on which the normalising constant depends."""
        return ()

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        """Log density with respect to the uniform probability measure."""
        value = as_inexact(value)
        if value.shape[-2:] != self.event_shape:
            n, p = self.event_shape
            raise ValueError(
                f"{type(self).__name__}: log_prob expects values of shape (..., {n}, {p}), found {value.shape}."
            )
        parameters = self._parameters()
        if not self.is_normalized:
            parameters = tuple(noticed(type(self).__name__, x) for x in parameters)
        if not self.batch_shape:
            return self._distribution(*parameters).log_prob(value)
        function = self._vectorized(lambda x, *of: self._distribution(*of).log_prob(x), "(n,p)", "()")
        return function(value, *parameters)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Sample independently: exactly by rejection, or with ``num_sweeps`` approximately by Gibbs chains.

        The draws have no derivative in the parameters: a guide that draws them needs ``TraceGraph_ELBO``.

        Raises:
            TypeError: If they are differentiated.
            ValueError: If rejection would accept too few proposals; then set ``num_sweeps``.
            RuntimeError: The same under ``jit`` or ``vmap``, or for an element of a batch.
        """
        parameters = self._parameters()
        draws = self._draws(key, sample_shape, jax.tree.map(jax.lax.stop_gradient, parameters))
        return without_derivative(type(self).__name__, draws, parameters)

    def _draws(self, key: Any, sample_shape: tuple[int, ...], parameters: tuple[Array, ...]) -> Array:
        if not self.batch_shape:
            return self._draw(self._distribution(*parameters), key, sample_shape)
        shape = (*sample_shape, *self.batch_shape)
        keys = jax.random.split(_typed(key), math.prod(shape)).reshape(shape)
        function = self._vectorized(lambda key, *of: self._draw(self._distribution(*of), key, ()), "()", "(n,p)")
        return function(keys, *parameters)

    def _draw(self, distribution: Any, key: Any, shape: tuple[int, ...]) -> Array:
        if self.num_sweeps is None:
            return distribution.sample(_typed(key), shape)
        return distribution.gibbs_sample(_typed(key), shape, num_sweeps=self.num_sweeps)


class StiefelUniform(_OnStiefel):
    """The uniform (Haar) distribution of n x p matrices with orthonormal columns.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.
        chart: See :func:`stiefel`.
        validate_args: NumPyro's switch for checks of values.

    Raises:
        ValueError: Unless ``n >= p >= 1``.
    """

    pytree_aux_fields = ("n", "p")

    def __init__(self, n: int, p: int, *, chart: Any = None, validate_args: bool | None = None):
        distributions.StiefelUniform(n, p)
        self.n, self.p = n, p
        super().__init__((n, p), chart, validate_args=validate_args)

    def _distribution(self) -> Any:
        return distributions.StiefelUniform(self.n, self.p)


class MatrixLangevin(_OnStiefel):
    """The matrix Langevin (von Mises-Fisher) distribution, see :class:`geodax.distributions.MatrixLangevin`.

    With three or more columns ``log_prob`` leaves its constant out, which is correct only if the singular values of
    ``f`` do not depend on latent variables: a latent concentration would get a wrong posterior. With one or two columns
    any ``f`` is correct. If the constant changes, :func:`sample` raises ValueError, and NumPyro's own inference warns.
    Draws have no derivative in ``f``: a guide that draws them needs ``TraceGraph_ELBO``.

    Args:
        f: Matrices of shape (..., n, p); leading axes are the batch.
        chart: See :func:`stiefel`; ``CayleyChart(n, p, center=mode)`` suits a concentrated distribution.
        num_sweeps: None for exact draws; otherwise the number of sweeps of the Gibbs chain for each draw.
        validate_args: NumPyro's switch for checks of values.

    Raises:
        ValueError: For another shape, or non-finite entries.
    """

    arg_constraints = {"f": constraints.real_matrix}  # noqa: RUF012

    def __init__(self, f: Any, *, chart: Any = None, num_sweeps: int | None = None, validate_args: bool | None = None):
        self.f = _array("MatrixLangevin: f", f, 2)
        distributions.MatrixLangevin(self.f[(0,) * (self.f.ndim - 2)])  # checks the shape of one of a batch
        super().__init__(self.f.shape, chart, num_sweeps, validate_args)

    def invariants(self) -> tuple[Array, ...]:
        return (jnp.linalg.svd(self.f, compute_uv=False),)

    def _distribution(self, f: Any) -> Any:
        return distributions.MatrixLangevin(f)


class VonMisesFisher(Distribution):
    """The von Mises-Fisher distribution of unit vectors, see :class:`geodax.distributions.VonMisesFisher`.

    ``log_prob`` is normalised, with respect to the uniform probability measure of the sphere as all distributions here;
    that of NumPyro's ``ProjectedNormal`` is with respect to the area. Under :func:`sample` a latent site moves on the
    sphere; NumPyro itself has no coordinates for its support. Draws have no derivative in the parameters.

    Args:
        loc: Mean directions, unit vectors of shape (..., p) with p at least 2.
        concentration: Non-negative numbers of shape (...); 0 gives the uniform distribution.
        validate_args: NumPyro's switch for checks of values.

    Raises:
        ValueError: For other shapes, and fixed values that are no unit vector or no concentration.
    """

    arg_constraints = {"loc": constraints.sphere, "concentration": constraints.nonnegative}  # noqa: RUF012

    def __init__(self, loc: Any, concentration: Any, *, validate_args: bool | None = None):
        loc = _array("VonMisesFisher: loc", loc, 1)
        concentration = jnp.asarray(concentration, loc.dtype)
        batch = np.broadcast_shapes(loc.shape[:-1], concentration.shape)
        # axes of length one, not copies: a common concentration has one normalising constant
        self.loc, self.concentration = _padded(loc, batch, 1), _padded(concentration, batch, 0)
        first = (0,) * len(batch)
        distributions.VonMisesFisher(self.loc[first], self.concentration[first])
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)

    @property
    def support(self) -> Any:
        return constraints.sphere

    @validate_sample
    def log_prob(self, value: Any, intermediates: Any = None) -> Any:
        """Log density with respect to the uniform probability measure of the sphere."""
        function = jnp.vectorize(
            lambda x, loc, kappa: distributions.VonMisesFisher(loc, kappa).log_prob(x), signature="(p),(p),()->()"
        )
        return function(as_inexact(value), self.loc, self.concentration)

    @property
    def mean(self) -> Float[Array, "*batch p"]:
        """The mean, inside the sphere."""
        function = jnp.vectorize(
            lambda loc, kappa: distributions.VonMisesFisher(loc, kappa).mean, signature="(p),()->(p)"
        )
        return function(self.loc, self.concentration)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
        """Sample independently and exactly."""
        shape = (*sample_shape, *self.batch_shape)
        keys = jax.random.split(_typed(key), math.prod(shape)).reshape(shape)
        function = jnp.vectorize(
            lambda key, loc, kappa: distributions.VonMisesFisher(loc, kappa).sample(key), signature="(),(p),()->(p)"
        )
        parameters = (self.loc, self.concentration)
        return without_derivative(
            "VonMisesFisher", function(keys, *jax.tree.map(jax.lax.stop_gradient, parameters)), parameters
        )


class MatrixBingham(_OnStiefel):
    """The matrix Bingham distribution, see :class:`geodax.distributions.MatrixBingham`.

    With two or more columns ``log_prob`` leaves its constant out, which is correct only if the eigenvalues of ``a``
    and the weights ``b`` do not depend on latent variables; see :class:`MatrixLangevin` for this and for guides.

    Args:
        a: Symmetric matrices of shape (..., n, n).
        b: Weights of the columns, of shape (..., p); a single 1 if left out.
        chart: See :func:`stiefel`.
        num_sweeps: None for exact draws; otherwise the number of sweeps of the Gibbs chain for each draw.
        validate_args: NumPyro's switch for checks of values.

    Raises:
        ValueError: For other shapes, an ``a`` that is not symmetric, or non-finite entries.
    """

    arg_constraints = {"a": constraints.real_matrix, "b": constraints.real_vector}  # noqa: RUF012

    def __init__(
        self,
        a: Any,
        b: Any = None,
        *,
        chart: Any = None,
        num_sweeps: int | None = None,
        validate_args: bool | None = None,
    ):
        a = _array("MatrixBingham: a", a, 2)
        b = _array("MatrixBingham: b", jnp.ones(1, a.dtype) if b is None else b, 1)
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-1])
        self.a, self.b = _broadcast(a, batch, 2), _broadcast(b, batch, 1)
        if not batch:
            distributions.MatrixBingham(self.a, self.b)
        super().__init__((*batch, a.shape[-1], b.shape[-1]), chart, num_sweeps, validate_args)

    def invariants(self) -> tuple[Array, ...]:
        return jnp.linalg.eigvalsh(self.a), self.b

    def _distribution(self, a: Any, b: Any) -> Any:
        return distributions.MatrixBingham(a, b)


class BinghamVonMisesFisher(_OnStiefel):
    """Product of the last two, see :class:`geodax.distributions.BinghamVonMisesFisher`; without its constant.

    This is correct only if ``f``, ``a`` and ``b`` do not depend on latent variables, except for a rotation of the rows
    of both ``f`` and ``a``; see :class:`MatrixLangevin` for this and for guides.

    Args:
        f: Matrices of shape (..., n, p).
        a: Symmetric matrices of shape (..., n, n).
        b: Weights of the columns, of shape (..., p); ones if left out.
        chart: See :func:`stiefel`.
        num_sweeps: None for exact draws; otherwise the number of sweeps of the Gibbs chain for each draw.
        validate_args: NumPyro's switch for checks of values.

    Raises:
        ValueError: For other shapes, an ``a`` that is not symmetric, or non-finite entries.
    """

    arg_constraints = {  # noqa: RUF012
        "f": constraints.real_matrix,
        "a": constraints.real_matrix,
        "b": constraints.real_vector,
    }

    def __init__(
        self,
        f: Any,
        a: Any,
        b: Any = None,
        *,
        chart: Any = None,
        num_sweeps: int | None = None,
        validate_args: bool | None = None,
    ):
        f = _array("BinghamVonMisesFisher: f", f, 2)
        a = _array("BinghamVonMisesFisher: a", a, 2)
        b = _array("BinghamVonMisesFisher: b", jnp.ones(f.shape[-1], f.dtype) if b is None else b, 1)
        batch = np.broadcast_shapes(f.shape[:-2], a.shape[:-2], b.shape[:-1])
        self.f, self.a, self.b = _broadcast(f, batch, 2), _broadcast(a, batch, 2), _broadcast(b, batch, 1)
        if not batch:
            distributions.BinghamVonMisesFisher(self.f, self.a, self.b)
        super().__init__((*batch, *f.shape[-2:]), chart, num_sweeps, validate_args)

    def invariants(self) -> tuple[Array, ...]:
        """The eigenvalues of ``a``, the weights, and the products ``f^T a^k f`` with ``a`` scaled to norm 1."""
        values = jnp.linalg.eigvalsh(self.a)
        largest = jnp.max(jnp.abs(values), axis=-1)[..., None, None]
        scaled = self.a / jnp.where(largest > 0, largest, 1.0)
        products, turned = [], self.f
        for _ in range(self.f.shape[-2]):
            products.append(jnp.swapaxes(self.f, -1, -2) @ turned)
            turned = scaled @ turned
        return values, self.b, jnp.stack(products, axis=-1)

    def _distribution(self, f: Any, a: Any, b: Any) -> Any:
        return distributions.BinghamVonMisesFisher(f, a, b)


def _array(name: str, value: Any, rank: int) -> Array:
    x = jnp.asarray(value)
    if x.ndim < rank:
        raise ValueError(f"{name}: expected at least {rank} axes, found shape {x.shape}.")
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def _broadcast(x: Array, batch: tuple[int, ...], rank: int) -> Array:
    return jnp.broadcast_to(x, (*batch, *x.shape[x.ndim - rank :]))


def _padded(x: Array, batch: tuple[int, ...], rank: int) -> Array:
    """Add leading axes of length one, so that ``x`` broadcasts to the batch."""
    return x.reshape((1,) * (len(batch) + rank - x.ndim) + x.shape)


def _typed(key: Any) -> Array:
    """Convert NumPyro's legacy keys, arrays of unsigned integers."""
    key = jnp.asarray(key)
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def as_key(owner: str, value: Any) -> PRNGKey:
    """Convert a PRNG key or a seed to a key."""
    if jnp.issubdtype(getattr(value, "dtype", type(value)), jnp.integer) and np.ndim(value) == 0:
        return jax.random.key(int(value))
    return _typed(_checks.random_key(owner, value))
