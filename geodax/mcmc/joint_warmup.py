r"""Warm-up of many chains at once: one step size, one set of scales and one trajectory length for all.

Step size: dual averaging (:mod:`geodax.mcmc.step_size`) with the mean acceptance rate over the chains. A chain that
starts far out may reject every step size that suits the others, with little effect on that mean; until the last phase
the acceptance rate of such a chain replaces the mean. Before the first search for the shared step size each chain has
one of its own, which moves the chain where the density is extremely steep. Scales: those of :mod:`geodax.mcmc.warmup`,
from the draws of all chains in windows that double in length; with many chains windows can be short. Length: if the
sampler has one, its mean time :math:`T` climbs

.. math::
    J(T) = \log D(T) + \log S(T) - \log T, \qquad
    \frac{\partial J}{\partial \log T} = \frac{\partial_{\log t} D}{D} + \frac{\partial_{\log t} S}{S} - 1,

by stochastic approximation, and its logarithm is averaged over the last phase. :math:`D` and :math:`S` are the
moments of :mod:`geodax.mcmc.lengths`. The logarithms make the two comparable and the slope dimensionless, so that the
steps need no other normalisation; the last term is the cost of a trajectory. :math:`S` alone, the criterion of
Hoffman, Radul and Sountsov (2021), is pure noise on a manifold of unit vectors or frames with mean zero, since all
points are equally far from it. :math:`D` per unit of time alone favours trajectories that end opposite to where they
began, which is good for means and bad for variances. If the motion is nearly periodic, J has a maximum for every
period, and the first is the highest. So the climb starts at a single step, and the length of each move is bounded.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _tree
from geodax._types import Adaptation, Array, Position, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import Point, point_of
from geodax.mcmc.lengths import LONGEST, MOST_STEPS, AdaptedLength, JumpMoments
from geodax.mcmc.mass_matrix import (
    MassMatrix,
    Rows,
    estimate,
    euclidean_leaves,
    log_growth,
    no_rows,
    row_of,
    rows_to_keep,
    with_rows,
)
from geodax.mcmc.step_size import (
    DualAveraging,
    current_step,
    known_step_size,
    observe,
    one_step,
    restart,
    search_alone,
    search_step,
    with_first_step_size,
)
from geodax.mcmc.trajectories import Integrator
from geodax.mcmc.warmup import Window, add_draws, doubling_windows, empty_window, new_scale

_MEMORY = 0.9  # decay of the moving averages per iteration
_STANDSTILL = 0.6  # fraction of the target below which a chain's average acceptance rate marks it as the slowest
_FIRST_GAIN, _GAIN_DECAY = 0.07, 0.6
_STEEPEST = 3.0  # bound for a single observation of the slope: that of J for short trajectories
_SHORTER_THAN_ANY_STEP = -30.0  # logarithm of a time; the first search for a step size replaces it
_BOLDNESS = 1.0  # the mean acceptance rate over many chains is accurate, so no need to try longer steps first


class LengthSearch(NamedTuple):
    """State of the search for the trajectory length.

    Attributes:
        log_time: Logarithm of the mean time.
        log_average: Its average over the last phase.
        distance: Moving average of D.
        spread: Moving average of S.
        memory: Sum of the weights of the two averages.
        center: Moving average of the mean position over the chains.
        center_memory: Sum of its weights.
    """

    log_time: Scalar
    log_average: Scalar
    count: Scalar
    distance: Scalar
    spread: Scalar
    memory: Scalar
    center: Position
    center_memory: Scalar


class JointWarmup(NamedTuple):
    """State of the warm-up, shared by all chains.

    Attributes:
        window: Sums over the current window.
        rows: Some of its draws, for the correlations.
        length: The search for the length, empty for samplers without an adapted length.
    """

    dual_averaging: DualAveraging
    window: Window
    rows: Rows | tuple[()]
    length: PyTree
    acceptance: Float[Array, " chain"]


def joint_schedule(num_warmup: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Phases of the warm-up of many chains.

    Returns for each iteration whether its draws count towards the scales and whether a window ends with it; and the
    first iteration of the last phase, in which step size and length are averaged.
    """
    if num_warmup < 20:
        return *doubling_windows(num_warmup, num_warmup, num_warmup, 1), num_warmup // 2
    first = min(75, int(0.15 * num_warmup))
    last_phase = num_warmup - int(0.3 * num_warmup)
    window = min(10, last_phase - first)
    return *doubling_windows(num_warmup, first, last_phase, window), last_phase


def joint_adaptation(
    integrator: Integrator,
    manifold: AbstractManifold,
    *,
    num_warmup: int,
    target_acceptance_rate: float,
    first_moves: tuple[Integrator, AbstractManifold],
) -> Adaptation:
    """Build the warm-up of HMC and NUTS with many chains.

    PRNG keys, states and infos have a leading chain axis; the adaptation's state is shared by all chains.
    ``first_moves``, the step of Hamiltonian dynamics and its manifold, moves chains away from bad starts.
    """
    is_slow, is_end, last_phase = joint_schedule(num_warmup)
    # the step size is searched for before the first iteration's result is used, and after each window
    is_restart = is_end.copy()
    is_restart[:1] = True

    def init(states) -> JointWarmup:
        first = jax.tree.map(lambda x: x[0], states)
        length = _first_search(first.length) if isinstance(first.length, AdaptedLength) else ()
        acceptance = jnp.ones_like(states.logdensity)
        rows = no_rows(first.correlation, int(is_slow.sum()) * len(acceptance))
        dual_averaging = restart(known_step_size("adapt", first), _BOLDNESS)
        return JointWarmup(dual_averaging, empty_window(first, manifold), rows, length, acceptance)

    def come_near(rng_keys: Array, states):
        """Move the chains that start far out, each by a search of its own; the median of the step sizes found."""

        def alone(key: Array, state) -> tuple[Point, Scalar]:
            key = jax.random.split(key)[0]
            return search_alone(key, *first_moves, point_of(state), state.mass, state.step_size, target_acceptance_rate)

        points, step_sizes = jax.vmap(alone)(rng_keys, states)
        return states._replace(**points._asdict()), jnp.median(step_sizes)

    def update(rng_keys: Array, warmup: JointWarmup, states, infos, step: Array):
        tuned = jax.tree.map(lambda x: x[0], states)  # tuned values are the same in all chains
        longest = manifold.max_time(tuned.position, tuned.scale)
        flat = euclidean_leaves(manifold, tuned.position, tuned.scale)
        is_last_phase = step >= last_phase
        states, first_step = jax.lax.cond(
            step == 0, come_near, lambda _, states: (states, tuned.step_size), rng_keys, states
        )
        acceptance = _MEMORY * warmup.acceptance + (1.0 - _MEMORY) * infos.acceptance_rate
        least = jnp.where(is_last_phase, 0.0, _STANDSTILL * target_acceptance_rate)
        error = target_acceptance_rate - _observed_acceptance(infos.acceptance_rate, acceptance, least)
        dual_averaging = observe(warmup.dual_averaging, error, longest)
        window = jax.lax.cond(
            jnp.asarray(is_slow)[step],
            lambda w: add_draws(w, manifold, states.position, states.logdensity_grad),
            lambda w: w,
            warmup.window,
        )
        rows, num_rows = warmup.rows, None
        if isinstance(rows, Rows):
            some = _spread_out(len(acceptance), len(rows.draws))
            first, num_rows = rows_to_keep(is_slow, is_end, len(some), len(rows.draws))
            drawn = jax.tree.map(lambda x: x[some], (states.position, states.logdensity_grad))
            drawn = jax.vmap(lambda position, gradient: row_of(position, gradient, flat))(*drawn)
            rows = with_rows(rows, jnp.asarray(first)[step], drawn)
        length = warmup.length
        if isinstance(length, LengthSearch):
            length = _climb(length, states, tuned.step_size, step, is_last_phase)

        def end_window(operand):
            step_size, old, _, window, length = operand
            mass = MassMatrix(new_scale(manifold, window, old.scale), old.correlation)
            if num_rows is not None:
                mass = estimate(rows, jnp.asarray(num_rows)[step], mass.scale, tuned.position, old.correlation, flat)
            step_size = jnp.where(step == 0, first_step, step_size)
            found = _search(rng_keys, integrator, manifold, states, mass, step_size, target_acceptance_rate)
            if isinstance(length, LengthSearch):
                # a new unit of time; J can have many maxima, and the first is climbed from below
                zero = jnp.zeros_like(length.memory)
                log_time = jnp.maximum(length.log_time - log_growth(old, mass, tuned.position, flat), jnp.log(found))
                length = length._replace(log_time=log_time, distance=zero, spread=zero, memory=zero)
            return found, mass, restart(found, _BOLDNESS), _tree.zeros_like(window), length

        step_size, mass, dual_averaging, window, length = jax.lax.cond(
            jnp.asarray(is_restart)[step],
            end_window,
            lambda operand: operand,
            (current_step(dual_averaging, longest), tuned.mass, dual_averaging, window, length),
        )
        # sampling uses the averages
        is_last = (step == num_warmup - 1) & (dual_averaging.count > 0)
        step_size = jnp.where(is_last, jnp.exp(dual_averaging.log_average), step_size)
        if isinstance(length, LengthSearch):
            log_time = jnp.where(is_last & (length.count > 0), length.log_average, length.log_time)
            length = length._replace(log_time=jnp.minimum(log_time, jnp.log(step_size * (MOST_STEPS / LONGEST))))
            time = jnp.exp(length.log_time)
            states = states._replace(
                length=states.length._replace(
                    time=_repeat(time, states.length.time), center=_repeat(length.center, states.length.center)
                )
            )
        states = states._replace(
            step_size=_repeat(step_size, states.step_size),
            scale=_repeat(mass.scale, states.scale),
            correlation=_repeat(mass.correlation, states.correlation),
        )
        return JointWarmup(dual_averaging, window, rows, length, acceptance), states

    return Adaptation(init, update, with_first_step_size)


def _observed_acceptance(new: Array, average: Array, least: Scalar) -> Scalar:
    """The acceptance rate for tuning: the mean over chains, or the slowest chain's if its average is below a bound."""
    last = jnp.argmin(average)
    mean = jnp.mean(new)
    return jnp.where(average[last] < least, jnp.minimum(new[last], mean), mean)


def _spread_out(num_chains: int, room: int) -> np.ndarray:
    """Chains whose draws are kept: all, or so many that a window keeps some iterations."""
    kept = min(num_chains, max(1, room // 8))
    return np.arange(kept) * num_chains // kept


def _repeat(value: PyTree, like: PyTree) -> PyTree:
    return jax.tree.map(lambda v, x: jnp.broadcast_to(v, x.shape).astype(x.dtype), value, like)


def _search(
    keys: Array,
    integrator: Integrator,
    manifold: AbstractManifold,
    states,
    mass: MassMatrix,
    first: Scalar,
    target: float,
) -> Scalar:
    """Double or halve the step size until the mean acceptance probability of one step crosses the target."""

    def attempt(states, step_size: Scalar, round_: Array):
        def acceptance(key: Array, state) -> Scalar:
            key_round = jax.random.fold_in(key, round_)
            return one_step(key_round, integrator, manifold, point_of(state), mass, step_size)[0]

        # chains that share a step size are not moved
        return jnp.mean(jax.vmap(acceptance)(keys, states)) > target, states, jnp.zeros_like(step_size)

    longest = manifold.max_time(jax.tree.map(lambda x: x[0], states.position), mass.scale)
    return search_step(attempt, states, first, longest)[1]


def _first_search(length: AdaptedLength) -> LengthSearch:
    zero = jnp.zeros_like(length.time)
    log_time = zero + _SHORTER_THAN_ANY_STEP
    center = _tree.zeros_like(length.center)
    return LengthSearch(log_time, zero, zero, zero, zero, zero, center, zero)


def _climb(search: LengthSearch, states, step_size: Scalar, step: Array, is_last_phase: Array) -> LengthSearch:
    """One step up the slope of J, from one iteration of all chains."""
    moments = JumpMoments(*(jnp.mean(m) for m in states.length.moments))
    distance, memory = _remember(search.distance, search.memory, moments.distance)
    spread, _ = _remember(search.spread, search.memory, moments.spread)
    mean = jax.tree.map(lambda x: jnp.mean(x, axis=0), states.position)
    remembered = jax.tree.map(lambda c, m: _remember(c, search.center_memory, m)[0], search.center, mean)
    slope = _ratio(moments.distance_slope, distance) + _ratio(moments.spread_slope, spread) - 1.0
    # single steps longer than the mean time can raise the length but not lower it
    least = jnp.where(search.log_time < jnp.log(step_size), 0.0, -_STEEPEST).astype(slope.dtype)
    slope = jnp.clip(slope, least, _STEEPEST)
    count = search.count + is_last_phase.astype(search.count.dtype)
    gain = _FIRST_GAIN * (1.0 + count) ** -_GAIN_DECAY
    log_time = search.log_time + gain * slope
    averaged = search.log_average + (log_time - search.log_average) / jnp.maximum(count, 1.0)
    return LengthSearch(
        log_time=log_time,
        log_average=jnp.where(is_last_phase, averaged, search.log_average),
        count=count,
        distance=distance,
        spread=spread,
        memory=memory,
        center=remembered,
        center_memory=_MEMORY * search.center_memory + 1.0 - _MEMORY,
    )


def _remember(average: Array, memory: Scalar, new: Array) -> tuple[Array, Scalar]:
    """Moving average with weights that sum to one, and the sum of the weights before normalisation."""
    total = _MEMORY * memory + 1.0 - _MEMORY
    weight = (1.0 - _MEMORY) / total
    return average + weight.astype(new.dtype) * (new - average), total


def _ratio(slope: Scalar, moment: Scalar) -> Scalar:
    """A relative slope; zero if nothing moved."""
    is_known = moment > 0
    return jnp.where(is_known, slope / jnp.where(is_known, moment, jnp.ones_like(moment)), jnp.zeros_like(slope))
