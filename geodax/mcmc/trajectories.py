r"""Trajectories of Hamiltonian dynamics: a fixed number of leapfrog steps, or a doubling tree.

A trajectory takes an :class:`~geodax.mcmc.integrators.IntegratorState` with a new momentum and returns the next
draw together with the statistics that the samplers report.

The dynamic trajectory is multinomial NUTS (Hoffman and Gelman 2014; Betancourt 2017, appendix A) in its iterative
form (Phan, Pradhan and Jankowiak 2019). Its turning criterion on a manifold: let :math:`\rho = \sum_k v_k` be the
sum of the ambient velocities of a piece of the trajectory (less half of each end), which equals the chord from one
end to the other up to the step size. The piece has turned when the velocity at either end has no component along
it,

.. math::
    \langle v_-, \rho \rangle \le 0 \quad \text{or} \quad \langle v_+, \rho \rangle \le 0,

in units of the scales. On Euclidean leaves this is Stan's generalised criterion; on a sphere a free trajectory
turns at the antipode. The criterion depends only on the set of points of the piece and is symmetric in its ends,
which is sufficient for the sampler to be exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState, energy, energy_error
from geodax.mcmc.mass_matrix import MassMatrix
from geodax.mcmc.randomness import Words, key_words, uniform

DIVERGENCE_THRESHOLD = 1000.0
# streams of random numbers within an iteration
_POINTS, _HALVES = 0, 1

Integrator = Callable[[IntegratorState, Scalar, MassMatrix], IntegratorState]


class TrajectoryResult(NamedTuple):
    """The result of one iteration's trajectory.

    Attributes:
        position: The next draw.
        logdensity: Its log density.
        logdensity_grad: Its tangent gradient.
        acceptance_rate: Mean Metropolis acceptance probability along the trajectory.
        is_divergent: Whether the energy error passed 1,000 or became undefined.
        energy: Hamiltonian of the next draw.
        num_integration_steps: Number of leapfrog steps.
        length: State of the sampler's trajectory length, if any.
    """

    position: Position
    logdensity: Scalar
    logdensity_grad: PyTree
    acceptance_rate: Scalar
    is_divergent: Array
    energy: Scalar
    num_integration_steps: Array
    length: PyTree = ()


def fixed_trajectory(integrator: Integrator, manifold: AbstractManifold):
    """Metropolis-corrected trajectory of a given number of steps.

    Args:
        integrator: A reversible, volume preserving step.
        manifold: Geometry of the position.

    Returns:
        ``(rng_key, state, step_size, mass, num_integration_steps) -> TrajectoryResult``.
    """

    def run(
        key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix, num_steps: Array
    ) -> TrajectoryResult:
        end = jax.lax.fori_loop(0, num_steps, lambda _, s: integrator(s, step_size, mass), start)
        return metropolis(key, start, end, num_steps, manifold)

    return run


def metropolis(
    key: PRNGKey, start: IntegratorState, end: IntegratorState, num_steps: Array, manifold: AbstractManifold
) -> TrajectoryResult:
    """Accept the end of a trajectory, or stay at its start.

    Args:
        key: PRNG key.
        start: Start of the trajectory.
        end: End of the trajectory.
        num_steps: Number of leapfrog steps between the two.
        manifold: Geometry of the position.

    Returns:
        The result.
    """
    initial_energy, new_energy = energy(start, manifold), energy(end, manifold)
    change = energy_error(initial_energy, new_energy)
    acceptance_rate = jnp.exp(jnp.minimum(-change, 0.0))
    is_accepted = jax.random.uniform(key, (), acceptance_rate.dtype) < acceptance_rate
    return TrajectoryResult(
        position=_tree.where(is_accepted, end.position, start.position),
        logdensity=jnp.where(is_accepted, end.logdensity, start.logdensity),
        logdensity_grad=_tree.where(is_accepted, end.logdensity_grad, start.logdensity_grad),
        acceptance_rate=acceptance_rate,
        is_divergent=change > DIVERGENCE_THRESHOLD,
        energy=jnp.where(is_accepted, new_energy, initial_energy),
        num_integration_steps=jnp.asarray(num_steps, jnp.int32),
    )


Velocity = Float[Array, " dim"]


class _OpenPieces(NamedTuple):
    """First points of the balanced pieces of a subtree that are still growing, one row each.

    Attributes:
        velocity: Velocity at the first point.
        offset: Sum of the velocities up to it less half its own; the chord to a later point is the difference of
            this quantity between the two points.
        along: Inner product of the two.
    """

    velocity: Float[Array, "piece dim"]
    offset: Float[Array, "piece dim"]
    along: Float[Array, " piece"]


class _Draw(NamedTuple):
    """A candidate for the next draw."""

    position: Position
    logdensity: Scalar
    logdensity_grad: PyTree
    energy: Scalar


class _Tree(NamedTuple):
    """A trajectory under construction: its two ends, a draw from it, and sums over its points."""

    left: IntegratorState
    right: IntegratorState
    draw: _Draw
    velocity_sum: Velocity
    log_weight: Scalar
    acceptance_sum: Scalar
    num_steps: Array
    is_turning: Array
    is_diverging: Array


class _Subtree(NamedTuple):
    """The new half of a doubling, grown point by point from ``end``."""

    end: IntegratorState
    draw: _Draw
    velocity_sum: Velocity
    log_weight: Scalar
    acceptance_sum: Scalar
    num_steps: Array
    is_turning: Array
    is_diverging: Array
    open_pieces: _OpenPieces


def dynamic_trajectory(integrator: Integrator, manifold: AbstractManifold, max_num_doublings: int):
    """No-U-turn trajectory with multinomial sampling.

    Args:
        integrator: A reversible, volume preserving step.
        manifold: Geometry of the position.
        max_num_doublings: The trajectory has at most ``2**max_num_doublings - 1`` steps.

    Returns:
        ``(rng_key, state, step_size, mass) -> TrajectoryResult``.
    """

    def velocity_at(state: IntegratorState) -> Velocity:
        velocity = manifold.velocity(state.position, state.momentum)
        return _tree.flatten(velocity, state.logdensity.dtype)

    def grow(
        words: Words, tree: _Tree, depth: Array, direction: Array, step_size: Scalar, mass: MassMatrix, initial_energy
    ):
        """Double the tree's length on one side, stopping early if the new half turns."""
        start = _tree.where(direction > 0, tree.right, tree.left)
        signed_step = direction.astype(step_size.dtype) * step_size
        rows = jnp.zeros((max_num_doublings, tree.velocity_sum.size), tree.velocity_sum.dtype)
        subtree = _Subtree(
            end=start,
            draw=tree.draw,
            velocity_sum=jnp.zeros_like(tree.velocity_sum),
            log_weight=jnp.full_like(tree.log_weight, -jnp.inf),
            acceptance_sum=jnp.zeros_like(tree.acceptance_sum),
            num_steps=jnp.zeros_like(tree.num_steps),
            is_turning=jnp.zeros_like(tree.is_turning),
            is_diverging=jnp.zeros_like(tree.is_diverging),
            open_pieces=_OpenPieces(rows, rows, rows[:, 0]),
        )

        def is_unfinished(subtree: _Subtree) -> Array:
            return (subtree.num_steps < 2**depth) & ~subtree.is_turning & ~subtree.is_diverging

        def extend(subtree: _Subtree) -> _Subtree:
            end = integrator(subtree.end, signed_step, mass)
            new_energy = energy(end, manifold)
            change = energy_error(initial_energy, new_energy)
            log_weight = jnp.logaddexp(subtree.log_weight, -change)
            u = uniform(words, tree.num_steps + subtree.num_steps, _POINTS, change.dtype)
            # progressive sampling: the new point replaces the draw with probability weight / total weight
            is_taken = jnp.log(u) < -change - log_weight
            velocity = velocity_at(end)
            velocity_sum = subtree.velocity_sum + velocity
            index = subtree.num_steps
            is_first = index % 2 == 0  # of a piece; odd points end at least one
            open_pieces = _open(subtree.open_pieces, is_first, index, velocity, velocity_sum)
            is_turning = ~is_first & _turns_within(open_pieces, velocity, velocity_sum, index)
            candidate = _Draw(end.position, end.logdensity, end.logdensity_grad, new_energy)
            return _Subtree(
                end=end,
                draw=_tree.where(is_taken, candidate, subtree.draw),
                velocity_sum=velocity_sum,
                log_weight=log_weight,
                acceptance_sum=subtree.acceptance_sum + jnp.exp(jnp.minimum(-change, 0.0)),
                num_steps=index + 1,
                is_turning=is_turning,
                is_diverging=change > DIVERGENCE_THRESHOLD,
                open_pieces=open_pieces,
            )

        return jax.lax.while_loop(is_unfinished, extend, subtree)

    def run(key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix) -> TrajectoryResult:
        words, directions = key_words(key)
        initial_energy = energy(start, manifold)
        tree = _Tree(
            left=start,
            right=start,
            draw=_Draw(start.position, start.logdensity, start.logdensity_grad, initial_energy),
            velocity_sum=velocity_at(start),
            log_weight=jnp.zeros_like(initial_energy),
            acceptance_sum=jnp.zeros_like(initial_energy),
            num_steps=jnp.zeros((), jnp.int32),
            is_turning=jnp.zeros((), bool),
            is_diverging=jnp.zeros((), bool),
        )

        def is_unfinished(carry: tuple[Array, _Tree]) -> Array:
            depth, tree = carry
            return (depth < max_num_doublings) & ~tree.is_turning & ~tree.is_diverging

        def double(carry: tuple[Array, _Tree]) -> tuple[Array, _Tree]:
            depth, tree = carry
            is_right = (directions >> depth.astype(jnp.uint32)) % 2 == 1
            direction = jnp.where(is_right, 1, -1).astype(jnp.int32)
            new = grow(words, tree, depth, direction, step_size, mass, initial_energy)
            is_complete = ~new.is_turning & ~new.is_diverging
            # biased progressive sampling between the old half and the new one
            u = uniform(words, depth, _HALVES, new.log_weight.dtype)
            is_taken = is_complete & (jnp.log(u) < new.log_weight - tree.log_weight)
            left = _tree.where(direction > 0, tree.left, new.end)
            right = _tree.where(direction > 0, new.end, tree.right)
            velocity_sum = tree.velocity_sum + new.velocity_sum
            is_turning = new.is_turning | _has_turned(velocity_at(left), velocity_at(right), velocity_sum)
            return depth + 1, _Tree(
                left=left,
                right=right,
                draw=_tree.where(is_taken, new.draw, tree.draw),
                velocity_sum=velocity_sum,
                log_weight=jnp.logaddexp(tree.log_weight, new.log_weight),
                acceptance_sum=tree.acceptance_sum + new.acceptance_sum,
                num_steps=tree.num_steps + new.num_steps,
                is_turning=is_turning,
                is_diverging=new.is_diverging,
            )

        _, tree = jax.lax.while_loop(is_unfinished, double, (jnp.zeros((), jnp.int32), tree))
        num_steps = jnp.maximum(tree.num_steps, 1).astype(tree.acceptance_sum.dtype)
        return TrajectoryResult(
            position=tree.draw.position,
            logdensity=tree.draw.logdensity,
            logdensity_grad=tree.draw.logdensity_grad,
            acceptance_rate=tree.acceptance_sum / num_steps,
            is_divergent=tree.is_diverging,
            energy=tree.draw.energy,
            num_integration_steps=tree.num_steps,
        )

    return run


def _has_turned(velocity_a: Velocity, velocity_b: Velocity, velocity_sum: Velocity) -> Array:
    """Whether the velocity at either end of a piece points against the chord between its ends."""
    chord = velocity_sum - 0.5 * (velocity_a + velocity_b)
    return (jnp.dot(velocity_a, chord) <= 0) | (jnp.dot(velocity_b, chord) <= 0)


def _newest_slot(index: Array) -> Array:
    """Row of the newest open piece at a point: the number of ones in the binary form of ``index / 2``."""
    return jax.lax.population_count(index >> 1)


def _open(
    pieces: _OpenPieces, is_first: Array, index: Array, velocity: Velocity, velocity_sum: Velocity
) -> _OpenPieces:
    """Start a piece at an even point; do nothing at an odd one."""
    slots = jnp.arange(pieces.along.shape[0], dtype=index.dtype)
    is_new = is_first & (slots == _newest_slot(index))
    offset = velocity_sum - 0.5 * velocity
    return _OpenPieces(
        jnp.where(is_new[:, None], velocity[None, :], pieces.velocity),
        jnp.where(is_new[:, None], offset[None, :], pieces.offset),
        jnp.where(is_new, jnp.dot(velocity, offset), pieces.along),
    )


def _turns_within(pieces: _OpenPieces, velocity: Velocity, velocity_sum: Velocity, index: Array) -> Array:
    """Check every balanced piece that ends at the odd point ``index``."""
    newest = _newest_slot(index)
    num_ending = jax.lax.population_count(index & ~(index + 1))  # trailing ones of the index
    slots = jnp.arange(pieces.along.shape[0], dtype=index.dtype)
    is_ending = (slots <= newest) & (slots > newest - num_ending)
    # chord of a piece: the sum of its velocities less half of both ends
    end = velocity_sum - 0.5 * velocity
    along_first = pieces.velocity @ end - pieces.along
    along_last = jnp.dot(velocity, end) - pieces.offset @ velocity
    return jnp.any(is_ending & ((along_first <= 0) | (along_last <= 0)))
