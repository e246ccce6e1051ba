r"""Leapfrog steps for Hamiltonian dynamics on any manifold.

With scales :math:`s` (one for each Euclidean entry, and those of the manifold's ``scaled`` elsewhere), momenta measured
in units of them, and the manifold's ``gradient`` :math:`\hat\nabla` (the projected one, unless its scheme uses
another),

.. math::
    r \leftarrow r + \tfrac{\varepsilon}{2} s\, \hat\nabla \log\pi(x), \qquad
    (x, r) \leftarrow \mathrm{flow}(x, r, s\,\varepsilon), \qquad
    r \leftarrow r + \tfrac{\varepsilon}{2} s\, \hat\nabla \log\pi(x).

On Euclidean leaves this is leapfrog with inverse mass matrix :math:`\mathrm{diag}(s^2)`, or with correlations
(:mod:`geodax.mcmc.mass_matrix`). The map is reversible and preserves phase-space volume whenever the manifold's flow
does.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, LogDensity, Momentum, Position, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.mass_matrix import MassMatrix, correlated, euclidean_leaves, where_euclidean


class IntegratorState(NamedTuple):
    """A point of phase space with the quantities that the next step needs.

    Attributes:
        momentum: Momentum, in units of the scales.
        logdensity_grad: Tangent gradient of the log density, from the manifold's ``gradient``.
    """

    position: Position
    momentum: Momentum
    logdensity: Scalar
    logdensity_grad: PyTree


class Point(NamedTuple):
    """Position of a chain with its log density and tangent gradient."""

    position: Position
    logdensity: Scalar
    logdensity_grad: PyTree


def point_of(state) -> Point:
    """The point of a sampler's state."""
    return Point(state.position, state.logdensity, state.logdensity_grad)


def logdensity_and_gradient(
    logdensity_fn: LogDensity, manifold: AbstractManifold
) -> Callable[[Position], tuple[Scalar, PyTree]]:
    """Pair a log density with its tangent gradient (the conjugate of JAX's for a complex leaf)."""
    value_and_grad = jax.value_and_grad(logdensity_fn)

    def evaluate(position: Position) -> tuple[Scalar, PyTree]:
        value, gradient = value_and_grad(position)
        value = value if isinstance(value, Array) else jnp.asarray(value, float)  # a constant, such as 0.0
        gradient = jax.tree.map(lambda g: jnp.conj(g) if jnp.iscomplexobj(g) else g, gradient)
        return value, manifold.gradient(position, gradient)

    return evaluate


def leapfrog(
    evaluate: Callable[[Position], tuple[Scalar, PyTree]], manifold: AbstractManifold
) -> Callable[[IntegratorState, Scalar, MassMatrix], IntegratorState]:
    """Build the leapfrog step (velocity Verlet) ``(state, step_size, mass) -> state``.

    A negative step size integrates backwards in time. A flow that fails returns NaN, which the trajectories turn into a
    rejection.
    """

    def step(state: IntegratorState, step_size: Scalar, mass: MassMatrix) -> IntegratorState:
        flat = euclidean_leaves(manifold, state.position, mass.scale)
        time = jax.tree.map(lambda s: s * step_size.astype(s.dtype), mass.scale)
        half = _tree.scale(0.5, time)

        def kicked(position: Position, momentum: Momentum, gradient: PyTree) -> Momentum:
            return _tree.add(momentum, correlated(mass, manifold.scaled(position, gradient, half), flat))

        momentum = kicked(state.position, state.momentum, state.logdensity_grad)
        position, moved = manifold.flow(state.position, correlated(mass, momentum, flat), time)
        logdensity, gradient = evaluate(position)
        momentum = kicked(position, where_euclidean(mass, momentum, moved, flat), gradient)
        return IntegratorState(position, momentum, logdensity, gradient)

    return step


def energy(state: IntegratorState, manifold: AbstractManifold) -> Scalar:
    """Hamiltonian: potential plus kinetic energy, in the dtype of the log density."""
    kinetic = manifold.kinetic_energy(state.position, state.momentum)
    return kinetic.astype(state.logdensity.dtype) - state.logdensity


def energy_error(initial_energy: Array, new_energy: Array) -> Array:
    """Change of energy, infinite if it is undefined, so that a failed step is never accepted."""
    change = new_energy - initial_energy
    return jnp.where(jnp.isnan(change), jnp.inf, change)
