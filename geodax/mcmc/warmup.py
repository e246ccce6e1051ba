r"""Warm-up of the exact samplers: step size by dual averaging, scales by expanding windows.

Stan's schedule: a fast phase for the step size alone, windows of doubling length whose draws give the scales, a
last fast phase. Step size: dual averaging of :math:`\log\varepsilon` towards the target acceptance rate (Nesterov
2009; Hoffman and Gelman 2014, algorithm 6), started afresh after each window from a heuristic search. Scales:
standard deviations on Euclidean leaves, on a manifold leaf one number, the root of the total variance per degree
of freedom.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _tree
from geodax._types import Adaptation, Array, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState, energy, energy_error
from geodax.mcmc.trajectories import Integrator

# Constants of Hoffman and Gelman 2014, section 3.2
_GAMMA, _DELAY, _DECAY = 0.05, 10.0, 0.75
_SMALLEST_STEP, _LARGEST_STEP = 1e-10, 1e7


class DualAveraging(NamedTuple):
    """Stochastic approximation of the log step size."""

    center: Scalar
    error_sum: Scalar
    log_average: Scalar
    count: Scalar


class RunningVariance(NamedTuple):
    """Welford's sums over one window."""

    count: Scalar
    mean: Position
    squares: PyTree


class WarmupState(NamedTuple):
    """What warm-up carries from one iteration to the next."""

    dual_averaging: DualAveraging
    variance: RunningVariance


def window_schedule(num_warmup: int) -> tuple[np.ndarray, np.ndarray]:
    """Stan's warm-up schedule.

    Args:
        num_warmup: Number of warm-up iterations.

    Returns:
        Two Boolean arrays of that length: whether an iteration's draw counts towards the scales, and whether a
            window ends with it.
    """
    is_slow, is_end = np.zeros(num_warmup, bool), np.zeros(num_warmup, bool)
    if num_warmup < 20:
        return is_slow, is_end
    first, last, window = (75, 50, 25) if num_warmup >= 150 else (int(0.15 * num_warmup), int(0.1 * num_warmup), 0)
    start, stop = first, num_warmup - last
    window = window or stop - start
    is_slow[start:stop] = True
    while start < stop:
        end = start + window
        if end + 2 * window > stop:
            end = stop
        is_end[end - 1] = True
        start, window = end, 2 * window
    return is_slow, is_end


def window_adaptation(
    integrator: Integrator, manifold: AbstractManifold, *, num_warmup: int, target_acceptance_rate: float
) -> Adaptation:
    """Build the warm-up of HMC and NUTS.

    Args:
        integrator: The leapfrog step.
        manifold: Geometry of the position.
        num_warmup: Number of warm-up iterations.
        target_acceptance_rate: What the step size aims at.

    Returns:
        The pair of functions that :func:`geodax.sample` calls.
    """
    is_slow, is_end = window_schedule(num_warmup)
    # the step size is searched for before the first iteration's result is used, and after each window
    is_restart = is_end.copy()
    is_restart[:1] = True

    def init(state) -> WarmupState:
        dual_averaging = _restart(state.step_size)
        zeros = _tree.zeros_like(state.position)
        squares = jax.tree.map(lambda x: jnp.zeros(x.shape, x.real.dtype), state.position)
        return WarmupState(dual_averaging, RunningVariance(jnp.zeros_like(state.step_size), zeros, squares))

    def update(rng_key: PRNGKey, warmup: WarmupState, state, info, step: Array):
        longest = manifold.max_time(state.position, state.scale)
        dual_averaging = _observe(warmup.dual_averaging, target_acceptance_rate - info.acceptance_rate, longest)
        variance = jax.lax.cond(
            jnp.asarray(is_slow)[step],
            lambda v: _accumulate(v, state.position),
            lambda v: v,
            warmup.variance,
        )
        state = state._replace(step_size=_current_step(dual_averaging, longest))

        def restart(operand):
            state, _, variance = operand
            scale = _new_scale(manifold, variance, state.scale)
            step_size = _search(rng_key, integrator, manifold, state._replace(scale=scale), target_acceptance_rate)
            empty = jax.tree.map(jnp.zeros_like, variance)
            return state._replace(step_size=step_size, scale=scale), _restart(step_size), empty

        state, dual_averaging, variance = jax.lax.cond(
            jnp.asarray(is_restart)[step], restart, lambda operand: operand, (state, dual_averaging, variance)
        )
        # sampling goes on with the averaged step size
        average = jnp.exp(dual_averaging.log_average)
        is_last = (step == num_warmup - 1) & (dual_averaging.count > 0)
        state = state._replace(step_size=jnp.where(is_last, average, state.step_size))
        return WarmupState(dual_averaging, variance), state

    return Adaptation(init, update)


def _restart(step_size: Scalar) -> DualAveraging:
    zero = jnp.zeros_like(step_size)
    return DualAveraging(math.log(10.0) + jnp.log(step_size), zero, jnp.log(step_size), zero)


def _observe(state: DualAveraging, error: Scalar, longest: Scalar | float) -> DualAveraging:
    count = state.count + 1.0
    error_sum = state.error_sum + error.astype(count.dtype)
    state = state._replace(count=count, error_sum=error_sum)
    weight = count**-_DECAY
    log_step = jnp.log(_current_step(state, longest))
    return state._replace(log_average=weight * log_step + (1.0 - weight) * state.log_average)


def _current_step(state: DualAveraging, longest: Scalar | float) -> Scalar:
    shrinkage = jnp.sqrt(state.count) / (_GAMMA * (state.count + _DELAY))
    log_step = state.center - shrinkage * state.error_sum
    largest = jnp.minimum(jnp.asarray(longest, log_step.dtype), _LARGEST_STEP)
    return jnp.clip(jnp.exp(log_step), _SMALLEST_STEP, largest)


def _accumulate(variance: RunningVariance, position: Position) -> RunningVariance:
    count = variance.count + 1.0
    before = _tree.subtract(position, variance.mean)
    mean = jax.tree.map(lambda m, d: m + d / count.astype(d.dtype), variance.mean, before)
    after = _tree.subtract(position, mean)
    squares = jax.tree.map(lambda s, d, e: s + (d * jnp.conj(e)).real, variance.squares, before, after)
    return RunningVariance(count, mean, squares)


def _new_scale(manifold: AbstractManifold, variance: RunningVariance, old: PyTree) -> PyTree:
    """Standard deviations from a window, shrunk a little towards the old ones on the log scale."""
    count = variance.count
    entries = jax.tree.map(lambda s: s / jnp.maximum(count - 1.0, 1.0).astype(s.dtype), variance.squares)
    weight = count / (count + 5.0)

    def shrink(new: Array, before: Array) -> Array:
        ratio = new / before
        has_moved = (ratio > 0) & jnp.isfinite(ratio)
        safe = jnp.where(has_moved, ratio, jnp.ones_like(ratio))
        return before * safe ** weight.astype(safe.dtype)

    return jax.tree.map(shrink, manifold.scale_from_variance(entries), old)


def _search(
    key: PRNGKey, integrator: Integrator, manifold: AbstractManifold, state, target_acceptance_rate: float
) -> Scalar:
    """Double or halve the step size until one step's acceptance probability crosses the target."""
    log_target = math.log(target_acceptance_rate)
    longest = jnp.minimum(
        jnp.asarray(manifold.max_time(state.position, state.scale), state.step_size.dtype), _LARGEST_STEP
    )

    def log_acceptance(step_size: Scalar, round_: Array) -> Scalar:
        momentum = manifold.sample_momentum(jax.random.fold_in(key, round_), state.position)
        start = IntegratorState(state.position, momentum, state.logdensity, state.logdensity_grad)
        end = integrator(start, step_size, state.scale)
        return -energy_error(energy(start, manifold), energy(end, manifold))

    def is_unfinished(carry) -> Array:
        step_size, direction, last_direction, _ = carry
        is_inside = (step_size > _SMALLEST_STEP) & (step_size < longest)
        return (
            ((last_direction == 0) | (direction == last_direction))
            & ((direction < 0) | is_inside)
            & (step_size > _SMALLEST_STEP)
        )

    def move(carry):
        step_size, direction, _, round_ = carry
        step_size = step_size * 2.0 ** direction.astype(step_size.dtype)
        is_accepted = log_acceptance(step_size, round_) > log_target
        return step_size, jnp.where(is_accepted, 1, -1).astype(jnp.int32), direction, round_ + 1

    first = jnp.minimum(state.step_size, longest)
    # the first pass evaluates the starting step itself: direction 0 leaves it as it is
    zero = jnp.zeros((), jnp.int32)
    step_size, *_ = jax.lax.while_loop(is_unfinished, move, (first, zero, zero, zero))
    return jnp.clip(step_size, _SMALLEST_STEP, longest)
