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
turns at the antipode. A piece that covers a whole period closes, and its ends look as if it had not turned. So it has
also turned when the velocity at either end has no component along the chord from there to the middle, between the two
halves:

.. math::
    \langle v_-, \rho_- - v_-/2 \rangle \le 0 \quad \text{or} \quad \langle v_+, \rho_+ - v_+/2 \rangle \le 0

with the sums :math:`\rho_\mp` over the halves. In harmonic motion the first criterion holds from half a period to a
whole one, and the second from there on. Stan compares each half with the first point of the other for the same purpose.

Both depend only on the set of points of the piece and are symmetric in its ends, and both are checked for every
balanced piece. So a trajectory is equally probable from each of its points, which is sufficient for the sampler to be
exact (Betancourt 2017, appendix A).
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
    """First points of the balanced pieces of a subtree that are still growing, one row each, and a row for waste.

    Attributes:
        velocity: Velocity at the first point.
        before: Sum of the velocities of the subtree before it.
    """

    velocity: Float[Array, "piece dim"]
    before: Float[Array, "piece dim"]


class _Draw(NamedTuple):
    """A candidate for the next draw."""

    position: Position
    logdensity: Scalar
    logdensity_grad: PyTree
    energy: Scalar


class _End(NamedTuple):
    """A point at an end of a piece."""

    state: IntegratorState
    velocity: Velocity


class _Tree(NamedTuple):
    """A trajectory under construction: its two ends, a draw from it, and sums over its points."""

    left: _End
    right: _End
    draw: _Draw
    velocity_sum: Velocity
    log_weight: Scalar
    acceptance_sum: Scalar
    num_steps: Array
    is_turning: Array
    is_diverging: Array
    open_pieces: _OpenPieces


class _Subtree(NamedTuple):
    """The new half of a doubling, grown point by point from ``end``."""

    end: _End
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
        end = _tree.where(direction > 0, tree.right, tree.left)
        signed_step = direction.astype(step_size.dtype) * step_size
        subtree = _Subtree(
            end=end,
            draw=tree.draw,
            velocity_sum=jnp.zeros_like(tree.velocity_sum),
            log_weight=jnp.full_like(tree.log_weight, -jnp.inf),
            acceptance_sum=jnp.zeros_like(tree.acceptance_sum),
            num_steps=jnp.zeros_like(tree.num_steps),
            is_turning=jnp.zeros_like(tree.is_turning),
            is_diverging=jnp.zeros_like(tree.is_diverging),
            open_pieces=tree.open_pieces,
        )

        def is_unfinished(subtree: _Subtree) -> Array:
            return (subtree.num_steps < 2**depth) & ~subtree.is_turning & ~subtree.is_diverging

        def extend(subtree: _Subtree) -> _Subtree:
            end = integrator(subtree.end.state, signed_step, mass)
            new_energy = energy(end, manifold)
            change = energy_error(initial_energy, new_energy)
            log_weight = jnp.logaddexp(subtree.log_weight, -change)
            u = uniform(words, tree.num_steps + subtree.num_steps, _POINTS, change.dtype)
            # progressive sampling: the new point replaces the draw with probability weight / total weight
            is_taken = jnp.log(u) < -change - log_weight
            index = subtree.num_steps
            velocity = velocity_at(end)
            velocity_sum = subtree.velocity_sum + velocity
            pieces = _open(subtree.open_pieces, index, velocity, subtree.velocity_sum)
            candidate = _Draw(end.position, end.logdensity, end.logdensity_grad, new_energy)
            return _Subtree(
                end=_End(end, velocity),
                draw=_tree.where(is_taken, candidate, subtree.draw),
                velocity_sum=velocity_sum,
                log_weight=log_weight,
                acceptance_sum=subtree.acceptance_sum + jnp.exp(jnp.minimum(-change, 0.0)),
                num_steps=index + 1,
                is_turning=_turns_within(pieces, velocity, velocity_sum, index),
                is_diverging=change > DIVERGENCE_THRESHOLD,
                open_pieces=pieces,
            )

        return jax.lax.while_loop(is_unfinished, extend, subtree)

    def run(key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix) -> TrajectoryResult:
        words, directions = key_words(key)
        initial_energy = energy(start, manifold)
        end = _End(start, velocity_at(start))
        tree = _Tree(
            left=end,
            right=end,
            draw=_Draw(start.position, start.logdensity, start.logdensity_grad, initial_energy),
            velocity_sum=end.velocity,
            log_weight=jnp.zeros_like(initial_energy),
            acceptance_sum=jnp.zeros_like(initial_energy),
            num_steps=jnp.zeros((), jnp.int32),
            is_turning=jnp.zeros((), bool),
            is_diverging=jnp.zeros((), bool),
            open_pieces=_no_pieces(max_num_doublings, end.velocity),
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
            left = _tree.where(is_right, tree.left, new.end)
            right = _tree.where(is_right, new.end, tree.right)
            velocity_sum = tree.velocity_sum + new.velocity_sum
            is_turning = new.is_turning | _has_turned(left.velocity, right.velocity, velocity_sum)
            far = jnp.where(is_right, left.velocity, right.velocity)
            is_turning |= _has_turned_halfway(far, new.end.velocity, tree.velocity_sum, new.velocity_sum)
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
                open_pieces=new.open_pieces,
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


def _has_turned_halfway(velocity_a: Velocity, velocity_b: Velocity, sum_a: Velocity, sum_b: Velocity) -> Array:
    """Whether the velocity at either end of a piece points against the chord from that end to the middle."""
    along_a = jnp.dot(velocity_a, sum_a - 0.5 * velocity_a)
    return (along_a <= 0) | (jnp.dot(velocity_b, sum_b - 0.5 * velocity_b) <= 0)


def _newest_slot(index: Array) -> Array:
    """Row of the newest open piece at a point: the number of ones in the binary form of ``index / 2``."""
    return jax.lax.population_count(index >> 1)


def _no_pieces(rows: int, velocity: Velocity) -> _OpenPieces:
    """Room for the open pieces of a subtree of ``2**(rows - 1)`` points."""
    empty = jnp.zeros((rows, velocity.size), velocity.dtype)
    return _OpenPieces(empty, empty)


def _open(pieces: _OpenPieces, index: Array, velocity: Velocity, before: Velocity) -> _OpenPieces:
    """Start a piece at an even point; at an odd one write to the last row, which is never read."""
    slot = jnp.where(index % 2 == 0, _newest_slot(index), pieces.velocity.shape[0] - 1)
    update = jax.lax.dynamic_update_index_in_dim
    return _OpenPieces(update(pieces.velocity, velocity, slot, 0), update(pieces.before, before, slot, 0))


def _turns_within(pieces: _OpenPieces, velocity: Velocity, velocity_sum: Velocity, index: Array) -> Array:
    """Check every balanced piece that ends at a point, from the longest to the pair; none does at an even point."""
    newest = _newest_slot(index)
    oldest = newest + 1 - jax.lax.population_count(index & ~(index + 1))  # less the trailing ones of the index

    def row(rows: Float[Array, "piece dim"], slot: Array) -> Velocity:
        return jax.lax.dynamic_index_in_dim(rows, slot, 0, keepdims=False)

    def check(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        slot, _ = carry
        first, before = row(pieces.velocity, slot), row(pieces.before, slot)
        middle = row(pieces.before, jnp.minimum(slot + 1, newest))  # the right half begins the next piece
        is_halfway = _has_turned_halfway(first, velocity, middle - before, velocity_sum - middle)
        is_turning = _has_turned(first, velocity, velocity_sum - before)
        is_turning |= (slot < newest) & is_halfway  # a pair has no chord to its middle
        return slot + 1, is_turning

    def is_unfinished(carry: tuple[Array, Array]) -> Array:
        slot, is_turning = carry
        return (slot <= newest) & ~is_turning

    return jax.lax.while_loop(is_unfinished, check, (oldest, jnp.zeros((), bool)))[1]
