r"""The interface of a parameter space for samplers, and Euclidean space.

A *momentum* ``r`` at ``x`` is the ambient representative of a covector under the trace inner product, so a kick
adds the projected gradient, whatever the metric is; schemes with another kick override ``gradient``. Free motion over a
time ``t`` is ``flow``. ``t`` may differ between leaves, and between the components of one: a tree like the position
whose leaves are scalars or arrays in the form of ``scales``. In this way a preconditioner enters: momenta are in units
of scales ``s``, kicks are ``scaled`` by ``s``, and the flow runs for ``s * step_size``.

Densities are with respect to the volume of the metric: on submanifolds with the metric of their space the uniform
(Hausdorff) measure.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _parameters, _tree
from geodax._random import standard_normal
from geodax._types import Array, Momentum, Position, PRNGKey, PyTree, Scalar


class FlowProperties(NamedTuple):
    """What a leapfrog step of a manifold's kick and flow, as implemented, preserves; the order is that of the flow."""

    is_reversible: bool
    is_volume_preserving: bool
    is_symplectic: bool
    order: float


EXACT = FlowProperties(is_reversible=True, is_volume_preserving=True, is_symplectic=True, order=float("inf"))


class Noise(NamedTuple):
    """Arguments of :meth:`AbstractManifold.noise`: standard normal noise, wanted variance, deducted variance."""

    z: PyTree
    variance: Scalar
    deducted: Scalar


class AbstractManifold(eqx.Module):
    """A space on which Hamiltonian dynamics can be simulated; every method is pure and works under ``jit``.

    :func:`geodax.check_manifold` checks a subclass.
    """

    @abc.abstractmethod
    def project(self, x: Position, u: PyTree) -> Momentum:
        """Project an ambient array orthogonally on the tangent space at ``x``."""

    @abc.abstractmethod
    def gradient(self, x: Position, g: PyTree) -> Momentum:
        """Compute the tangent gradient that a kick adds, from the ambient gradient ``g`` at ``x``."""

    @abc.abstractmethod
    def momentum(self, x: Position, z: PyTree) -> Momentum:
        """Transform standard normal noise shaped like ``x`` to a draw of the momentum."""

    def sample_momentum(self, key: PRNGKey, x: Position) -> Momentum:
        """Draw a momentum from the Gaussian distribution with density ``exp(-kinetic_energy)`` at ``x``."""
        self.validate(x, f"{type(self).__name__}.sample_momentum: x")
        key = _checks.random_key(f"{type(self).__name__}.sample_momentum", key)
        return self.momentum(x, standard_normal(key, x))

    @abc.abstractmethod
    def noise(self, x: Position, z: PyTree, variance: Scalar, deducted: Scalar) -> Momentum:
        """Compute momentum noise reduced by the noise of a gradient.

        Args:
            x: Point of the manifold.
            z: Standard normal noise shaped like ``x``.
            variance: Wanted variance, in units of that of :meth:`momentum`.
            deducted: Variance of the entries of the isotropic ambient noise that entered through :meth:`gradient`.

        Returns:
            Noise with covariance ``variance`` times that of ``momentum(x, z)`` minus ``deducted`` times that of
            ``gradient(x, z)``; NaN if this is not a covariance, see :meth:`noise_capacity`.
        """

    @abc.abstractmethod
    def noise_capacity(self, x: Position) -> float:
        """The largest ``deducted / variance`` for which :meth:`noise` exists at a position shaped like ``x``."""

    def kick(
        self, x: Position, r: Momentum, *, kept: Scalar | float = 1.0, g: PyTree = None, noise: Noise | None = None
    ) -> Momentum:
        """Apply friction, gradient and noise to a momentum after a flow to ``x``.

        Args:
            x: Point of the manifold.
            r: Momentum, as returned by :meth:`flow`.
            kept: Fraction of it that is kept.
            g: Ambient gradient, times the step size; None for no gradient.
            noise: Arguments of :meth:`noise`; None for no noise.

        Returns:
            ``kept * r + gradient(x, g) + noise(x, *noise)``, tangent at ``x``.
        """
        moved = jax.tree.map(lambda leaf: kept * leaf, r)
        if g is not None:
            moved = _tree.add(moved, self.gradient(x, g))
        return moved if noise is None else _tree.add(moved, self.noise(x, *noise))

    @abc.abstractmethod
    def is_flat(self, x: Position) -> PyTree:
        """For each leaf of ``x``, as a bool, whether it is unconstrained, so that a user's metric can act on it."""

    def corrects_itself(self, x: Position) -> PyTree:
        """For each leaf of ``x``, as a bool, whether flow and kick keep rounding errors from adding up."""
        return self.is_flat(x)

    @abc.abstractmethod
    def kinetic_energy(self, x: Position, r: Momentum) -> Scalar:
        """Compute the kinetic energy of the momentum."""

    @abc.abstractmethod
    def velocity(self, x: Position, r: Momentum) -> PyTree:
        """Compute the ambient velocity of free motion at ``x`` with momentum ``r``."""

    @abc.abstractmethod
    def flow(self, x: Position, r: Momentum, t: PyTree) -> tuple[Position, Momentum]:
        """Move freely over the time ``t`` (a scalar, or a tree of scalars and arrays).

        Some flows that are not reversible return a momentum with a normal part, which :meth:`kick` removes.
        """

    @abc.abstractmethod
    def random_point(self, key: PRNGKey, like: Position) -> Position:
        """Draw from the uniform distribution (standard normal on Euclidean leaves), shaped like ``like``."""

    @abc.abstractmethod
    def nearest(self, x: Position) -> Position:
        """Return the point of the manifold nearest to an ambient array."""

    @abc.abstractmethod
    def renormalize(self, x: Position) -> Position:
        """Remove the rounding error of a point that is close to the manifold."""

    @abc.abstractmethod
    def residual(self, x: Position) -> Scalar:
        """Distance from the manifold: the largest violation of a defining equation."""

    @abc.abstractmethod
    def dim(self, x: Position) -> int:
        """Number of degrees of freedom of a position shaped like ``x``."""

    @abc.abstractmethod
    def validate(self, x: Position, name: str) -> None:
        """Raise ValueError or TypeError, naming the leaf, if the shape or dtype of ``x`` is not that of a position."""

    @abc.abstractmethod
    def is_connected(self, x: Position) -> bool:
        """Whether continuous motion from a position shaped like ``x`` can reach the whole manifold."""

    @abc.abstractmethod
    def reflect(self, key: PRNGKey, x: Position) -> Position:
        """Propose a random symmetric, volume preserving jump to the other component, if there is one."""

    def degrees_of_freedom(self, x: Position) -> PyTree:
        """Numbers of degrees of freedom that share a scale: a tree like ``x`` of arrays that add up to :meth:`dim`.

        The form of the scales: one for each leaf, unless a manifold has more.
        """
        size = sum(leaf.size for leaf in jax.tree.leaves(x)) or 1
        return jax.tree.map(lambda leaf: jnp.asarray(self.dim(x) * leaf.size / size, leaf.real.dtype), x)

    def initial_scale(self, x: Position) -> PyTree:
        """Ones in the form of the scales."""
        return jax.tree.map(jnp.ones_like, self.degrees_of_freedom(x))

    def squares(self, x: Position, u: PyTree) -> PyTree:
        """Sums of squares of the components of an ambient array at ``x``, in the form of the scales."""
        return jax.tree.map(lambda leaf: jnp.sum(_tree.squared(leaf)), u)

    def scaled(self, x: Position, u: PyTree, scale: PyTree) -> PyTree:
        """Multiply the components of an ambient array at ``x`` by scales."""
        return jax.tree.map(lambda leaf, s: s.astype(leaf.dtype) * leaf, u, scale)

    @abc.abstractmethod
    def max_time(self, x: Position, scale: PyTree) -> float | Scalar:
        """The step size at which a typical momentum turns by a quarter of a circle; infinite without curvature."""

    @property
    @abc.abstractmethod
    def properties(self) -> FlowProperties:
        """What a kick by :meth:`gradient` and :meth:`flow` preserve together."""


class Euclidean(AbstractManifold):
    """Unconstrained arrays, or a whole pytree of them, with the standard inner product."""

    def project(self, x: Position, u: PyTree) -> Momentum:
        require_alike(x, u, "Euclidean.project")
        return u

    def gradient(self, x: Position, g: PyTree) -> Momentum:
        return g

    def momentum(self, x: Position, z: PyTree) -> Momentum:
        return z

    def noise(self, x: Position, z: PyTree, variance: Scalar, deducted: Scalar) -> Momentum:
        return jax.tree.map(lambda leaf: _root(variance - deducted, leaf) * leaf, z)

    def noise_capacity(self, x: Position) -> float:
        return 1.0

    def is_flat(self, x: Position) -> PyTree:
        return jax.tree.map(lambda _: True, x)

    def kinetic_energy(self, x: Position, r: Momentum) -> Scalar:
        return 0.5 * _tree.dot(r, r)

    def velocity(self, x: Position, r: Momentum) -> PyTree:
        return r

    def flow(self, x: Position, r: Momentum, t: PyTree) -> tuple[Position, Momentum]:
        time = jax.tree.map(lambda t, leaf: jnp.asarray(t).astype(leaf.dtype), spread(t, x), x)
        return _tree.add_scaled(x, time, r), r

    def random_point(self, key: PRNGKey, like: Position) -> Position:
        self.validate(like, "Euclidean.random_point: like")
        return standard_normal(_checks.random_key("Euclidean.random_point", key), like)

    def nearest(self, x: Position) -> Position:
        self.validate(x, "Euclidean.nearest: x")
        return x

    def renormalize(self, x: Position) -> Position:
        return x

    def residual(self, x: Position) -> Scalar:
        self.validate(x, "Euclidean.residual: x")
        return jnp.zeros((), _tree.real_dtype(x))

    def dim(self, x: Position) -> int:
        self.validate(x, "Euclidean.dim: x")
        return sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(x))

    def validate(self, x: Position, name: str) -> None:
        if not _parameters.leaves("Euclidean()", name, x):
            raise ValueError(f"{name}: Euclidean() expects at least one array, found none.")
        for part, leaf in _tree.named_leaves(x, ""):
            require_inexact(leaf, f"{name}.{part}" if part else name)

    def is_connected(self, x: Position) -> bool:
        return True

    def reflect(self, key: PRNGKey, x: Position) -> Position:
        return x

    def degrees_of_freedom(self, x: Position) -> PyTree:
        """A scale for each entry: of a complex one, for both parts."""
        return jax.tree.map(lambda leaf: jnp.full(leaf.shape, 1 + jnp.iscomplexobj(leaf), leaf.real.dtype), x)

    def squares(self, x: Position, u: PyTree) -> PyTree:
        return jax.tree.map(_tree.squared, u)

    def max_time(self, x: Position, scale: PyTree) -> float | Scalar:
        return float("inf")

    @property
    def properties(self) -> FlowProperties:
        return EXACT


def as_manifold(owner: str, manifold: Any) -> AbstractManifold:
    """Return the manifold, Euclidean space for None; raise TypeError for anything else."""
    if manifold is None:
        return Euclidean()
    if not isinstance(manifold, AbstractManifold):
        raise TypeError(
            f"{owner}: manifold must be a manifold such as Stiefel() or Product({{...}}), found "
            f"{_checks.described(manifold)}; wrap a dict of manifolds in Product."
        )
    return manifold


def spread(t: PyTree, x: Position) -> PyTree:
    """Expand a scalar time to every leaf, unless the times already are a tree like the position."""
    if jax.tree.structure(t) == jax.tree.structure(x):
        return t
    return jax.tree.map(lambda leaf: jnp.asarray(t, jnp.finfo(leaf.dtype).dtype), x)


def _root(variance: Scalar, like: Array) -> Array:
    return jnp.sqrt(variance).astype(like.dtype)


def require_array(x: Any, name: str, manifold: str) -> None:
    """Raise TypeError if ``x`` is a container, or not an array at all; ValueError for a masked one."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        instead = "; make it one by jnp.asarray, or of a shape by jnp.zeros" if isinstance(x, list | tuple) else ""
        found = type(x).__name__
        raise TypeError(f"{name}: {manifold} governs one array, but the position there is a {found}{instead}.")
    _require_plain(x, name)


def require_alike(x: PyTree, u: PyTree, owner: str) -> None:
    """Raise unless an ambient array has the form of its position."""
    _checks.tree(owner, "x", x)
    _checks.tree(owner, "u", u)
    if jax.tree.structure(x) != jax.tree.structure(u):
        raise ValueError(f"{owner}: expected u to be a tree like x, {jax.tree.structure(x)}, found another structure.")
    for here, there in zip(jax.tree.leaves(x), jax.tree.leaves(u), strict=True):
        require_inexact(there, f"{owner}: u")
        if here.shape != there.shape:
            raise ValueError(f"{owner}: expected u of the shape of x, {here.shape}, found {there.shape}.")


def require_inexact(leaf: Any, name: str) -> None:
    """Raise TypeError unless ``leaf`` is an array of real or complex numbers."""
    if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        found = getattr(leaf, "dtype", type(leaf).__name__)
        raise TypeError(
            f"{name}: expected a floating-point array, found {found}. Leave out of the position what is not sampled, "
            "by equinox.filter(position, equinox.is_inexact_array); convert an integer parameter by "
            f"jnp.asarray(..., float). Counters are states of Flax and Haiku networks. {_parameters.PARAMETERS_ONLY}"
        )
    _require_plain(leaf, name)


def _require_plain(x: Any, name: str) -> None:
    if isinstance(x, np.ndarray | np.generic) and not x.dtype.isnative:
        raise TypeError(f"{name}: expected native byte order, found {x.dtype}; convert by jnp.asarray.")
    if np.ma.isMaskedArray(x):
        raise ValueError(f"{name}: masked arrays are not supported; fill the masked entries by x.filled(...).")
