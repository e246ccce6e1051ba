r"""The search for a step size: first doubling and halving, then dual averaging.

Dual averaging of :math:`\log\varepsilon` towards the target acceptance rate (Nesterov 2009; Hoffman and Gelman 2014,
algorithm 6), with observations of one chain or of the mean over many.

A chain that starts where the density is extremely steep rejects every step size that dual averaging could reach, and
changes of its energy are below the energy's rounding error. So the search of a single chain moves it. Where a
single leapfrog step with a small energy error raises the log density by more than :math:`\dim + 10`, the chain takes
it, and the search goes on with twice the step size. In a chain that has converged such a rise has a probability of
:math:`10^{-5}` or less, for it becomes kinetic energy.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState, Point, energy, energy_error
from geodax.mcmc.mass_matrix import MassMatrix
from geodax.mcmc.trajectories import Integrator

# Constants of Hoffman and Gelman 2014, section 3.2, but for the first: with their 0.05 a chain tuned alone ends 0.05 to
# 0.09 above a target of 0.8
_GAMMA, _DELAY, _DECAY = 0.1, 10.0, 0.75
_SMALLEST_STEP, LARGEST_STEP = 1e-10, 1e7
_MOST_MOVES = 1000  # attempts in which a search moves a chain
_AMPLE = 10.0  # rise of the log density, above the dimension, that makes a search move
_MOST_ERROR = 1.0  # energy error of a move

NO_STEP_SIZE: Any = ()  # in a state before the warm-up that finds one
Place = TypeVar("Place")


class DualAveraging(NamedTuple):
    """Stochastic approximation of the log step size."""

    center: Scalar
    error_sum: Scalar
    log_average: Scalar
    count: Scalar


def restart(step_size: Scalar, boldness: float = 10.0) -> DualAveraging:
    """Restart the search; the first iterations try steps that are larger by ``boldness``."""
    zero = jnp.zeros_like(step_size)
    return DualAveraging(math.log(boldness) + jnp.log(step_size), zero, jnp.log(step_size), zero)


def observe(state: DualAveraging, error: Scalar, longest: Scalar | float) -> DualAveraging:
    """Update the search with the target acceptance rate minus that of an iteration."""
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


def one_step(
    key: PRNGKey, integrator: Integrator, manifold: AbstractManifold, point: Point, mass: MassMatrix, step_size: Scalar
) -> tuple[Scalar, Point, Scalar]:
    """A single leapfrog step with a new momentum, for :func:`search_step`.

    Returns its acceptance probability, the point at its end, and the step size with which the search should go on
    there, or zero if it should stay.
    """
    momentum = manifold.sample_momentum(key, point.position)
    start = IntegratorState(point.position, momentum, point.logdensity, point.logdensity_grad)
    end = integrator(start, step_size, mass)
    error = energy_error(energy(start, manifold), energy(end, manifold))
    residual = manifold.residual(end.position)
    is_ample = (error < _MOST_ERROR) & (end.logdensity - start.logdensity > manifold.dim(point.position) + _AMPLE)
    is_ample &= (residual <= jnp.sqrt(jnp.finfo(residual.dtype).eps)) & _tree.is_finite(end.logdensity_grad)
    moved = Point(manifold.renormalize(end.position), end.logdensity, end.logdensity_grad)
    next_step = jnp.where(is_ample, 2.0 * step_size, jnp.zeros_like(step_size))
    return jnp.exp(jnp.minimum(-error, 0.0)), moved, next_step


def search_alone(
    key: PRNGKey,
    integrator: Integrator,
    manifold: AbstractManifold,
    point: Point,
    mass: MassMatrix,
    first: Scalar,
    target: float,
) -> tuple[Point, Scalar]:
    """Search for the step size of one chain, and move the chain where the density is extremely steep.

    ``target`` is the acceptance probability of a single step that separates small enough from too large.
    """

    def attempt(point: Point, step_size: Scalar, round_: Array):
        acceptance, other, next_step = one_step(
            jax.random.fold_in(key, round_), integrator, manifold, point, mass, step_size
        )
        return acceptance > target, other, next_step

    return search_step(attempt, point, first, manifold.max_time(point.position, mass.scale))


def search_step(
    attempt: Callable[[Place, Scalar, Array], tuple[Array, Place, Scalar]],
    place: Place,
    first: Scalar,
    longest: Scalar | float,
) -> tuple[Place, Scalar]:
    """Double or halve a step size until it crosses the boundary between small enough and too large.

    ``attempt`` maps a place, a step size and the number of the attempt to whether the step size is small enough,
    another place, and the first step size of a search from there, or zero to stay. Returns the last place and the step
    size.
    """
    smallest, longest = _bounds(longest, first.dtype)

    def is_unfinished(carry) -> Array:
        _, step_size, direction, last_direction, _, is_new = carry
        is_inside = (step_size > smallest) & (step_size < longest)
        return is_new | (
            ((last_direction == 0) | (direction == last_direction))
            & ((direction < 0) | is_inside)
            & (step_size > smallest)
        )

    def move(carry):
        place, step_size, direction, _, round_, _ = carry
        step_size = step_size * 2.0 ** direction.astype(step_size.dtype)
        is_accepted, other, next_step = attempt(place, step_size, round_)
        is_left = (next_step > 0) & (round_ < _MOST_MOVES)
        new_direction = jnp.where(is_left, 0, jnp.where(is_accepted, 1, -1)).astype(jnp.int32)
        return (
            _tree.where(is_left, other, place),
            jnp.where(is_left, jnp.minimum(next_step, longest), step_size),
            new_direction,
            jnp.where(is_left, 0, direction),
            round_ + 1,
            is_left,
        )

    # direction 0 leaves the step size unchanged: the first attempt at each place
    zero = jnp.zeros((), jnp.int32)
    start = (place, jnp.minimum(first, longest), zero, zero, zero, jnp.ones((), bool))
    place, step_size, *_ = jax.lax.while_loop(is_unfinished, move, start)
    return place, jnp.clip(step_size, smallest, longest)


def _bounds(longest: Scalar | float, dtype: Any) -> tuple[Scalar, Scalar]:
    """The smallest and the largest step size; steep densities need small ones, whose squares do not underflow."""
    info = jnp.finfo(dtype)
    tiny = float(info.tiny)
    smallest = max(min(_SMALLEST_STEP, tiny**0.5), tiny)
    largest = jnp.minimum(jnp.asarray(longest, dtype), jnp.asarray(min(LARGEST_STEP, float(info.max)), dtype))
    return jnp.asarray(smallest, dtype), largest


def known_step_size(name: str, state: Any) -> Scalar:
    """Return the step size of a sampler's state; raises ValueError before the warm-up that finds it."""
    if state.step_size is NO_STEP_SIZE:
        raise ValueError(
            f"{name}: there is no step size yet. The warm-up of gx.sample finds it. In a loop of your own pass "
            "step_size, set it by algorithm.init(position)._replace(step_size=value), or begin a warm-up by "
            "adaptation.begin(state)."
        )
    return jnp.asarray(state.step_size, _tree.real_dtype(state.position))


def with_first_step_size(state: Any) -> Any:
    """Give a state, or a stack of states, a step size from which to begin a warm-up, unless it has one."""
    if state.step_size is not NO_STEP_SIZE:
        return state
    return state._replace(step_size=jnp.ones(state.logdensity.shape, _tree.real_dtype(state.position)))
