r"""What a sampler needs to know of a parameter space, and the simplest space.

A *momentum* ``r`` at ``x`` is the ambient representative of a covector under the trace inner product, so a kick
adds the projected gradient whatever the metric is; ``gradient`` says so, and leaves room for schemes whose kick is
another one. Free motion over a time ``t`` is ``flow``. ``t`` may differ
from leaf to leaf: a tree like the position whose leaves are scalars or, on Euclidean leaves, arrays. That is how
a diagonal preconditioner enters: with scales ``s``, kicks are multiplied by ``s`` and the flow runs for ``s *
step_size``.

Densities are with respect to the uniform (Hausdorff) measure of the manifold.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks as _arguments
from geodax import _tree
from geodax._random import standard_normal
from geodax._types import Array, Momentum, Position, PRNGKey, PyTree, Scalar


class FlowProperties(NamedTuple):
    """What a leapfrog step made of a manifold's kick and flow, as implemented, keeps; the order is the flow's own."""

    is_reversible: bool
    is_volume_preserving: bool
    is_symplectic: bool
    order: float


EXACT = FlowProperties(is_reversible=True, is_volume_preserving=True, is_symplectic=True, order=float("inf"))


class Noise(NamedTuple):
    """Arguments of :meth:`AbstractManifold.noise`: standard normal noise, the wanted variance, what is deducted."""

    z: PyTree
    variance: Scalar
    deducted: Scalar


class AbstractManifold(eqx.Module):
    """A space on which Hamiltonian dynamics can be simulated; every method is pure and works under ``jit``."""

    @abc.abstractmethod
    def project(self, x: Position, u: PyTree) -> Momentum:
        """Orthogonal projection of an ambient array on the tangent space at ``x``."""

    @abc.abstractmethod
    def gradient(self, x: Position, g: PyTree) -> Momentum:
        """What a kick adds: the tangent gradient of the manifold's scheme, from the ambient gradient ``g`` at ``x``."""

    @abc.abstractmethod
    def momentum(self, x: Position, z: PyTree) -> Momentum:
        """Turn standard normal noise shaped like ``x`` into a draw of the momentum."""

    def sample_momentum(self, key: PRNGKey, x: Position) -> Momentum:
        """Draw a momentum from the Gaussian law with density ``exp(-kinetic_energy)`` at ``x``."""
        self.validate(x, f"{type(self).__name__}.sample_momentum: x")
        key = _arguments.random_key(f"{type(self).__name__}.sample_momentum", key)
        return self.momentum(x, standard_normal(key, x))

    @abc.abstractmethod
    def noise(self, x: Position, z: PyTree, variance: Scalar, deducted: Scalar) -> Momentum:
        """Momentum noise that makes room for the noise of a gradient.

        Args:
            x: Point of the manifold.
            z: Standard normal noise shaped like ``x``.
            variance: Wanted variance, in units of that of :meth:`momentum`.
            deducted: Variance of the entries of isotropic ambient noise that has entered through :meth:`gradient`.

        Returns:
            Noise whose covariance is ``variance`` times that of ``momentum(x, z)`` less ``deducted`` times that of
            ``gradient(x, z)``; NaN where that is no covariance, see :meth:`noise_capacity`.
        """

    @abc.abstractmethod
    def noise_capacity(self, x: Position) -> float:
        """Largest ``deducted / variance`` for which :meth:`noise` exists at a position shaped like ``x``."""

    def kick(
        self, x: Position, r: Momentum, *, kept: float = 1.0, g: PyTree = None, noise: Noise | None = None
    ) -> Momentum:
        """What becomes of a momentum that a flow has brought to ``x``: friction, gradient and noise in one move.

        Args:
            x: Point of the manifold.
            r: Momentum, as :meth:`flow` returns it.
            kept: The share of it that is kept.
            g: Ambient gradient, times the step size; None for no gradient.
            noise: What :meth:`noise` takes; None for no noise.

        Returns:
            ``kept * r + gradient(x, g) + noise(x, *noise)``, tangent at ``x``.
        """
        moved = jax.tree.map(lambda leaf: kept * leaf, r)
        if g is not None:
            moved = _tree.add(moved, self.gradient(x, g))
        return moved if noise is None else _tree.add(moved, self.noise(x, *noise))

    @abc.abstractmethod
    def is_flat(self, x: Position) -> PyTree:
        """For each leaf of ``x``, as a bool, whether it is unconstrained: there a metric of one's own may act."""

    @abc.abstractmethod
    def kinetic_energy(self, x: Position, r: Momentum) -> Scalar:
        """Kinetic energy of the momentum."""

    @abc.abstractmethod
    def velocity(self, x: Position, r: Momentum) -> PyTree:
        """Ambient velocity of free motion at ``x`` with momentum ``r``."""

    @abc.abstractmethod
    def flow(self, x: Position, r: Momentum, t: PyTree) -> tuple[Position, Momentum]:
        """Free motion over the time ``t`` (a scalar, or scalars and arrays leaf by leaf).

        Of some flows that are not reversible the momentum comes back with a normal part, which :meth:`kick` removes.
        """

    @abc.abstractmethod
    def random_point(self, key: PRNGKey, like: Position) -> Position:
        """Draw from the uniform distribution (standard normal on Euclidean leaves), shaped like ``like``."""

    @abc.abstractmethod
    def nearest(self, x: Position) -> Position:
        """The point of the manifold nearest to an ambient array."""

    @abc.abstractmethod
    def renormalize(self, x: Position) -> Position:
        """Remove the rounding error of a point that is already very nearly on the manifold."""

    @abc.abstractmethod
    def residual(self, x: Position) -> Scalar:
        """Distance from the manifold: the largest violation of a defining equation."""

    @abc.abstractmethod
    def dim(self, x: Position) -> int:
        """Number of degrees of freedom of a position shaped like ``x``."""

    @abc.abstractmethod
    def validate(self, x: Position, name: str) -> None:
        """Raise ValueError or TypeError, naming the leaf, if ``x`` cannot be a position by its shape or dtype."""

    @abc.abstractmethod
    def is_connected(self, x: Position) -> bool:
        """Whether continuous motion from a position shaped like ``x`` can reach the whole manifold."""

    @abc.abstractmethod
    def reflect(self, key: PRNGKey, x: Position) -> Position:
        """A random symmetric, volume preserving jump to the other component, where there is one."""

    @abc.abstractmethod
    def initial_scale(self, x: Position) -> PyTree:
        """Unit scales: a tree like ``x`` with a scalar or an array for each leaf."""

    @abc.abstractmethod
    def scale_from_variance(self, x: Position, variance: PyTree) -> PyTree:
        """Scales from the variances ``E|x - Ex|^2`` of the entries of a position shaped like ``x``.

        The root of the variance per degree of freedom, in the form of :meth:`initial_scale`; ones for a momentum.
        """

    @abc.abstractmethod
    def max_time(self, x: Position, scale: PyTree) -> float | Scalar:
        """Largest sensible step size: a typical momentum turns by a quarter of a circle; infinite without curvature."""

    @property
    @abc.abstractmethod
    def properties(self) -> FlowProperties:
        """What a kick by :meth:`gradient` and :meth:`flow` keep together."""


class Euclidean(AbstractManifold):
    """Unconstrained arrays, or a whole pytree of them, with the standard inner product."""

    def project(self, x: Position, u: PyTree) -> Momentum:
        """Return ``u`` itself."""
        require_alike(x, u, "Euclidean.project")
        return u

    def gradient(self, x: Position, g: PyTree) -> Momentum:
        """The ambient gradient itself."""
        return g

    def momentum(self, x: Position, z: PyTree) -> Momentum:
        """The noise itself."""
        return z

    def noise(self, x: Position, z: PyTree, variance: Scalar, deducted: Scalar) -> Momentum:
        """The difference of the variances, everywhere."""
        return jax.tree.map(lambda leaf: _root(variance - deducted, leaf) * leaf, z)

    def noise_capacity(self, x: Position) -> float:
        """One."""
        return 1.0

    def is_flat(self, x: Position) -> PyTree:
        """Every leaf is."""
        return jax.tree.map(lambda _: True, x)

    def kinetic_energy(self, x: Position, r: Momentum) -> Scalar:
        """Half the squared norm."""
        return 0.5 * _tree.dot(r, r)

    def velocity(self, x: Position, r: Momentum) -> PyTree:
        """The momentum itself."""
        return r

    def flow(self, x: Position, r: Momentum, t: PyTree) -> tuple[Position, Momentum]:
        """Straight lines."""
        time = jax.tree.map(lambda t, leaf: jnp.asarray(t).astype(leaf.dtype), spread(t, x), x)
        return _tree.add_scaled(x, time, r), r

    def random_point(self, key: PRNGKey, like: Position) -> Position:
        """Standard normal entries."""
        self.validate(like, "Euclidean.random_point: like")
        return standard_normal(_arguments.random_key("Euclidean.random_point", key), like)

    def nearest(self, x: Position) -> Position:
        """``x`` itself."""
        self.validate(x, "Euclidean.nearest: x")
        return x

    def renormalize(self, x: Position) -> Position:
        """``x`` itself."""
        return x

    def residual(self, x: Position) -> Scalar:
        """Zero."""
        self.validate(x, "Euclidean.residual: x")
        return jnp.zeros((), _tree.real_dtype(x))

    def dim(self, x: Position) -> int:
        """Number of real entries."""
        self.validate(x, "Euclidean.dim: x")
        return sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(x))

    def validate(self, x: Position, name: str) -> None:
        """Every leaf must be a floating-point array, and there must be one."""
        if not _arguments.tree("Euclidean()", name, x):
            raise ValueError(f"{name}: Euclidean() expects at least one array, and found none.")
        for part, leaf in zip(_tree.leaf_names(x, ""), jax.tree.leaves(x), strict=True):
            require_inexact(leaf, f"{name}.{part}" if part else name)

    def is_connected(self, x: Position) -> bool:
        """True."""
        return True

    def reflect(self, key: PRNGKey, x: Position) -> Position:
        """``x`` itself."""
        return x

    def initial_scale(self, x: Position) -> PyTree:
        """Ones, entry by entry."""
        return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, jnp.finfo(leaf.dtype).dtype), x)

    def scale_from_variance(self, x: Position, variance: PyTree) -> PyTree:
        """Standard deviations, entry by entry; of one part for complex entries."""
        return jax.tree.map(lambda leaf, v: jnp.sqrt(0.5 * v if jnp.iscomplexobj(leaf) else v), x, variance)

    def max_time(self, x: Position, scale: PyTree) -> float | Scalar:
        """No bound."""
        return float("inf")

    @property
    def properties(self) -> FlowProperties:
        """Exact."""
        return EXACT


def spread(t: PyTree, x: Position) -> PyTree:
    """A scalar time for every leaf, unless the times already are a tree like the position."""
    if jax.tree.structure(t) == jax.tree.structure(x):
        return t
    return jax.tree.map(lambda leaf: jnp.asarray(t, jnp.finfo(leaf.dtype).dtype), x)


def _root(variance: Scalar, like: Array) -> Array:
    """The standard deviation, in the dtype of ``like``."""
    return jnp.sqrt(variance).astype(like.dtype)


def require_array(x: Any, name: str, manifold: str) -> None:
    """Raise TypeError if ``x`` is a container, or not an array at all; ValueError for a masked one."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"{name}: {manifold} governs one array, but the position there is a {type(x).__name__}.")
    _require_plain(x, name)


def require_alike(x: PyTree, u: PyTree, owner: str) -> None:
    """Raise unless an ambient array has the form of the position that it belongs to."""
    _arguments.tree(owner, "x", x)
    _arguments.tree(owner, "u", u)
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
            f"{name}: expected a floating-point array, found {found}. What is not sampled stays out of the position, "
            "equinox.filter(position, equinox.is_inexact_array); a parameter in whole numbers becomes one by "
            "jnp.asarray(..., float)."
        )
    _require_plain(leaf, name)


def _require_plain(x: Any, name: str) -> None:
    if isinstance(x, np.ndarray | np.generic) and not x.dtype.isnative:
        raise TypeError(f"{name}: the bytes of {x.dtype} are in another machine's order; convert by jnp.asarray.")
    if np.ma.isMaskedArray(x):
        raise ValueError(f"{name}: masked arrays are no positions; fill what is masked, by x.filled(...).")
