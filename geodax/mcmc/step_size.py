r"""The search for a step size: first doubling and halving, then dual averaging.

Dual averaging of :math:`\log\varepsilon` towards the target acceptance rate (Nesterov 2009; Hoffman and Gelman 2014,
algorithm 6), with observations of one chain or of the mean over many.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState, energy, energy_error
from geodax.mcmc.trajectories import Integrator

# Constants of Hoffman and Gelman 2014, section 3.2
_GAMMA, _DELAY, _DECAY = 0.05, 10.0, 0.75
_SMALLEST_STEP, LARGEST_STEP = 1e-10, 1e7


class DualAveraging(NamedTuple):
    """Stochastic approximation of the log step size."""

    center: Scalar
    error_sum: Scalar
    log_average: Scalar
    count: Scalar


def restart(step_size: Scalar, boldness: float = 10.0) -> DualAveraging:
    """Restart the search.

    Args:
        step_size: An approximate step size.
        boldness: Factor by which the first iterations try larger steps.
    """
    zero = jnp.zeros_like(step_size)
    return DualAveraging(math.log(boldness) + jnp.log(step_size), zero, jnp.log(step_size), zero)


def observe(state: DualAveraging, error: Scalar, longest: Scalar | float) -> DualAveraging:
    """Update the search with one iteration.

    Args:
        state: The current state.
        error: Target acceptance rate minus the observed one.
        longest: Upper bound for the step size.
    """
    count = state.count + 1.0
    error_sum = state.error_sum + error.astype(count.dtype)
    state = state._replace(count=count, error_sum=error_sum)
    weight = count**-_DECAY
    log_step = jnp.log(current_step(state, longest))
    return state._replace(log_average=weight * log_step + (1.0 - weight) * state.log_average)


def current_step(state: DualAveraging, longest: Scalar | float) -> Scalar:
    """The step size of the next iteration, not yet averaged."""
    shrinkage = jnp.sqrt(state.count) / (_GAMMA * (state.count + _DELAY))
    log_step = state.center - shrinkage * state.error_sum
    smallest, largest = _bounds(longest, log_step.dtype)
    return jnp.clip(jnp.exp(log_step), smallest, largest)


def one_step_error(
    key: PRNGKey, integrator: Integrator, manifold: AbstractManifold, state, step_size: Scalar
) -> Scalar:
    """Energy error of a single leapfrog step with a new momentum."""
    momentum = manifold.sample_momentum(key, state.position)
    start = IntegratorState(state.position, momentum, state.logdensity, state.logdensity_grad)
    end = integrator(start, step_size, state.mass)
    return energy_error(energy(start, manifold), energy(end, manifold))


def search_step(is_small_enough: Callable[[Scalar, Array], Array], first: Scalar, longest: Scalar | float) -> Scalar:
    """Double or halve a step size until it crosses the boundary between small enough and too large.

    Args:
        is_small_enough: Function from a step size and the number of the attempt to a Boolean.
        first: First step size.
        longest: Upper bound for the step size.

    Returns:
        The step size.
    """
    smallest, longest = _bounds(longest, first.dtype)

    def is_unfinished(carry) -> Array:
        step_size, direction, last_direction, _ = carry
        is_inside = (step_size > smallest) & (step_size < longest)
        return (
            ((last_direction == 0) | (direction == last_direction))
            & ((direction < 0) | is_inside)
            & (step_size > smallest)
        )

    def move(carry):
        step_size, direction, _, round_ = carry
        step_size = step_size * 2.0 ** direction.astype(step_size.dtype)
        is_accepted = is_small_enough(step_size, round_)
        return step_size, jnp.where(is_accepted, 1, -1).astype(jnp.int32), direction, round_ + 1

    # the first pass evaluates the first step size: direction 0 leaves it unchanged
    zero = jnp.zeros((), jnp.int32)
    step_size, *_ = jax.lax.while_loop(is_unfinished, move, (jnp.minimum(first, longest), zero, zero, zero))
    return jnp.clip(step_size, smallest, longest)


def _bounds(longest: Scalar | float, dtype: Any) -> tuple[Scalar, Scalar]:
    """The smallest and the largest step size that the dtype can represent."""
    info = jnp.finfo(dtype)
    smallest = max(_SMALLEST_STEP, float(info.tiny))
    largest = jnp.minimum(jnp.asarray(longest, dtype), jnp.asarray(min(LARGEST_STEP, float(info.max)), dtype))
    return jnp.asarray(smallest, dtype), largest
