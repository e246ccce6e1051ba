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
turns at the antipode. A piece is also not used if either half of it has turned together with the nearest point of the
other half. Otherwise a trajectory could double from less than half a period to more than a whole one, and go round
many times. If the first half has turned so, one step shows it, and the rest of the doubling is saved. All of this
depends only on the set of points of the piece and is symmetric in its ends, which is sufficient for the sampler to be
exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState, energy, energy_error, point_of
from geodax.mcmc.mass_matrix import MassMatrix
from geodax.mcmc.randomness import Words, key_words, uniform

DIVERGENCE_THRESHOLD = 1000.0
# streams of random numbers within an iteration
_POINTS, _HALVES = 0, 1

Integrator = Callable[[IntegratorState, Scalar, MassMatrix], IntegratorState]


class TrajectoryResult(NamedTuple):
    """The result of one iteration's trajectory.

    Attributes:
        acceptance_rate: Mean Metropolis acceptance probability along the trajectory.
        is_divergent: Whether the energy error passed 1,000 or became undefined.
        energy: Hamiltonian of the next draw.
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
    """Build ``(rng_key, state, step_size, mass, num_integration_steps) -> TrajectoryResult`` with a Metropolis step."""

    def run(
        key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix, num_steps: Array
    ) -> TrajectoryResult:
        end = jax.lax.fori_loop(0, num_steps, lambda _, s: integrator(s, step_size, mass), start)
        return metropolis(key, start, end, num_steps, manifold)

    return run


def metropolis(
    key: PRNGKey, start: IntegratorState, end: IntegratorState, num_steps: Array, manifold: AbstractManifold
) -> TrajectoryResult:
    """Accept the end of a trajectory of ``num_steps`` leapfrog steps, or stay at its start."""
    initial_energy, new_energy = energy(start, manifold), energy(end, manifold)
    change = energy_error(initial_energy, new_energy)
    acceptance_rate = jnp.exp(jnp.minimum(-change, 0.0))
    is_accepted = jax.random.uniform(key, (), acceptance_rate.dtype) < acceptance_rate
    return TrajectoryResult(
        *_tree.where(is_accepted, point_of(end), point_of(start)),
        acceptance_rate=acceptance_rate,
        is_divergent=change > DIVERGENCE_THRESHOLD,
        energy=jnp.where(is_accepted, new_energy, initial_energy),
        num_integration_steps=jnp.asarray(num_steps, jnp.int32),
    )


Velocity = Float[Array, " dim"]


class _Mark(NamedTuple):
    """What the turning criterion needs of a point of a subtree.

    Attributes:
        offset: Sum of the velocities up to it less half its own; the chord from one point to another is the difference.
    """

    velocity: Velocity
    offset: Velocity


class _Neighbours(NamedTuple):
    """A point of a subtree and the one before it."""

    point: _Mark
    before: _Mark


# Where the balanced pieces that are still growing begin, a row for each; the first is the far end of the old tree.
# Separate arrays, since on CPUs XLA runs a loop faster whose arrays all have at most 512 bytes.
_OpenPieces = _Neighbours


class _Draw(NamedTuple):
    """A candidate for the next draw."""

    position: Position
    logdensity: Scalar
    logdensity_grad: PyTree
    energy: Scalar


class _Tree(NamedTuple):
    """A trajectory under construction.

    Attributes:
        ends: Its first and its last point in time.
        acceptance_sum: Sum of the acceptance probabilities of the steps taken.
        open_pieces: Room for those of a subtree, so that no doubling clears it.
    """

    ends: IntegratorState
    velocities: Float[Array, "2 dim"]
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

    end: IntegratorState
    draw: _Draw
    velocity_sum: Velocity
    log_weight: Scalar
    acceptance_sum: Scalar
    num_steps: Array
    is_turning: Array
    is_diverging: Array
    mark: _Mark
    open_pieces: _OpenPieces


def dynamic_trajectory(integrator: Integrator, manifold: AbstractManifold, max_num_doublings: int):
    """Build ``(rng_key, state, step_size, mass) -> TrajectoryResult`` without U-turns, with multinomial sampling.

    It has at most ``2**max_num_doublings - 1`` steps.
    """

    def velocity_at(state: IntegratorState) -> Velocity:
        velocity = manifold.velocity(state.position, state.momentum)
        return _tree.flatten(velocity, state.logdensity.dtype)

    def grow(words: Words, tree: _Tree, depth: Array, side: Array, step_size: Scalar, mass: MassMatrix, initial_energy):
        """Double the tree's length on one side, stopping early if the new half turns or cannot be used."""
        start, velocity = _row((tree.ends, tree.velocities), side)
        near = _Mark(velocity, -0.5 * velocity)
        velocity = _row(tree.velocities, 1 - side)
        far = _Mark(velocity, 0.5 * velocity - tree.velocity_sum)
        signed_step = jnp.where(side == 1, step_size, -step_size)
        subtree = _Subtree(
            end=start,
            draw=tree.draw,
            velocity_sum=jnp.zeros_like(tree.velocity_sum),
            log_weight=jnp.full_like(tree.log_weight, -jnp.inf),
            acceptance_sum=jnp.zeros_like(tree.acceptance_sum),
            num_steps=jnp.zeros_like(tree.num_steps),
            is_turning=jnp.zeros_like(tree.is_turning),
            is_diverging=jnp.zeros_like(tree.is_diverging),
            mark=near,
            open_pieces=_with_row(tree.open_pieces, _Neighbours(far, far), 0),
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
            mark = _Mark(velocity, velocity_sum - 0.5 * velocity)
            neighbours = _Neighbours(mark, subtree.mark)
            open_pieces = _open(subtree.open_pieces, neighbours, index)
            is_turning = _turns_at(open_pieces, neighbours, index)
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
                mark=mark,
                open_pieces=open_pieces,
            )

        subtree = jax.lax.while_loop(is_unfinished, extend, subtree)
        # two points are a piece, and halves only together with others
        is_turning = (depth > 0) & (subtree.is_turning | _turns(near, subtree.mark))
        return subtree._replace(is_turning=is_turning)

    def run(key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix) -> TrajectoryResult:
        words, directions = key_words(key)
        initial_energy = energy(start, manifold)
        velocity = velocity_at(start)
        rows = jnp.zeros((max_num_doublings, velocity.size), velocity.dtype)
        tree = _Tree(
            ends=jax.tree.map(lambda x: jnp.stack([x, x]), start),
            velocities=jnp.stack([velocity, velocity]),
            draw=_Draw(start.position, start.logdensity, start.logdensity_grad, initial_energy),
            velocity_sum=velocity,
            log_weight=jnp.zeros_like(initial_energy),
            acceptance_sum=jnp.zeros_like(initial_energy),
            num_steps=jnp.zeros((), jnp.int32),
            is_turning=jnp.zeros((), bool),
            is_diverging=jnp.zeros((), bool),
            open_pieces=_OpenPieces(_Mark(rows, rows), _Mark(rows, rows)),
        )

        def is_unfinished(carry: tuple[Array, _Tree]) -> Array:
            depth, tree = carry
            return (depth < max_num_doublings) & ~tree.is_turning & ~tree.is_diverging

        def double(carry: tuple[Array, _Tree]) -> tuple[Array, _Tree]:
            depth, tree = carry
            side = ((directions >> depth.astype(jnp.uint32)) % 2).astype(jnp.int32)
            new = grow(words, tree, depth, side, step_size, mass, initial_energy)
            is_complete = ~new.is_turning & ~new.is_diverging
            # biased progressive sampling between the old half and the new one
            u = uniform(words, depth, _HALVES, new.log_weight.dtype)
            is_taken = is_complete & (jnp.log(u) < new.log_weight - tree.log_weight)
            ends, velocities = _with_row((tree.ends, tree.velocities), (new.end, new.mark.velocity), side)
            velocity_sum = tree.velocity_sum + new.velocity_sum
            first, last = velocities
            whole = _Mark(first, 0.5 * first), _Mark(last, velocity_sum - 0.5 * last)
            return depth + 1, _Tree(
                ends=ends,
                velocities=velocities,
                draw=_tree.where(is_taken, new.draw, tree.draw),
                velocity_sum=velocity_sum,
                log_weight=jnp.logaddexp(tree.log_weight, new.log_weight),
                acceptance_sum=tree.acceptance_sum + new.acceptance_sum,
                num_steps=tree.num_steps + new.num_steps,
                is_turning=new.is_turning | _turns(*whole),
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


def _turns(first: _Mark, last: _Mark) -> Array:
    """Whether the velocity at either end of a piece points against the chord between its ends."""
    chord = last.offset - first.offset
    return jnp.any(jnp.stack([first.velocity, last.velocity]) @ chord <= 0)


def _newest_slot(index: Array) -> Array:
    """Row of the newest open piece: one for the old tree, and the ones in the binary form of ``index / 2``."""
    return jax.lax.population_count(index >> 1) + 1


def _open(pieces: _OpenPieces, neighbours: _Neighbours, index: Array) -> _OpenPieces:
    """Start a piece at an even point; an odd one goes into the first row, which is read at the first point only."""
    return _with_row(pieces, neighbours, jnp.where(index % 2 == 0, _newest_slot(index), 0))


def _turns_at(pieces: _OpenPieces, neighbours: _Neighbours, index: Array) -> Array:
    """Check every balanced piece that ends at a point, and the halves of pieces of which it is the nearest point."""
    end, newest = neighbours.point, _newest_slot(index)
    # an odd point ends a pair, an even one follows the first half of a piece
    begin = _tree.where(index % 2 == 1, neighbours.before, _row(pieces, newest - 1).point)
    is_turning = _turns(begin, end)
    num_ending = jax.lax.population_count(index & ~(index + 1))  # trailing ones of the index

    def check(carry: tuple[Array, _Mark, Array]) -> tuple[Array, _Mark, Array]:
        slot, before_half, _ = carry
        begin, before = _row(pieces, slot)
        return slot - 1, before, _turns(begin, end) | _turns(before_half, end)

    def is_unfinished(carry: tuple[Array, _Mark, Array]) -> Array:
        slot, _, is_turning = carry
        return (slot > newest - num_ending) & ~is_turning

    return jax.lax.while_loop(is_unfinished, check, (newest - 1, _row(pieces, newest).before, is_turning))[2]


def _row(rows: PyTree, index: Array) -> PyTree:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, 0, keepdims=False), rows)


def _with_row(rows: PyTree, row: PyTree, index: Array | int) -> PyTree:
    return jax.tree.map(lambda x, new: jax.lax.dynamic_update_index_in_dim(x, new, index, 0), rows, row)
