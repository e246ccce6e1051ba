r"""Warm-up of the exact samplers: step size by dual averaging, scales by expanding windows.

Stan's schedule: a fast phase for the step size alone, windows of doubling length with draws that give the scales, a
last fast phase. Step size: dual averaging of :math:`\log\varepsilon` towards the target acceptance rate (Nesterov
2009; Hoffman and Gelman 2014, algorithm 6), restarted after each window from a heuristic search. Scales:
standard deviations on Euclidean leaves. On a manifold leaf the directions with a scale in common have, with :math:`v`
the variance and :math:`g` the mean squared gradient, both per degree of freedom,

.. math:: s = \min\bigl(v^{1/2},\, (v / g)^{1/4}\bigr).

If they have narrow normal distributions with variances :math:`v_i`, the second expression is the geometric mean of
the two lengths :math:`(\mathrm{mean}\, v_i)^{1/2}` and :math:`(\mathrm{mean}\, v_i^{-1})^{-1/2}` that bound a
trajectory from above and a step from below. Of all scalings by one number it makes positions and gradients equally
large, as they are for a standard normal. Chains around modes that differ by a symmetry inflate the variance, but not
the gradient.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _tree
from geodax._types import Adaptation, Array, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import point_of
from geodax.mcmc.mass_matrix import (
    MassMatrix,
    Rows,
    estimate,
    euclidean_leaves,
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
    restart,
    search_alone,
    with_first_step_size,
)
from geodax.mcmc.trajectories import Integrator


class Window(NamedTuple):
    """Sums over the draws of one window.

    Attributes:
        anchor: One of the draws.
        shifts: Sum of the draws' differences from it.
        squares: Sum of the squares of the components of the differences at the anchor, in the form of the scales.
        gradients: Sum of those of the gradients' velocities, each at its draw.
    """

    count: Scalar
    anchor: Position
    shifts: PyTree
    squares: PyTree
    gradients: PyTree


class WarmupState(NamedTuple):
    """State of the warm-up of one chain."""

    dual_averaging: DualAveraging
    window: Window
    rows: Rows | tuple[()]


def window_schedule(num_warmup: int) -> tuple[np.ndarray, np.ndarray]:
    """Stan's warm-up schedule, but with a longer last phase below 150 iterations: a tenth is too few for a step size.

    Returns for each iteration whether its draw counts towards the scales, and whether a window ends with it.
    """
    if num_warmup < 20:
        return doubling_windows(num_warmup, num_warmup, num_warmup, 1)
    if num_warmup < 150:
        first, stop = int(0.15 * num_warmup), num_warmup - min(20, num_warmup // 2)
        return doubling_windows(num_warmup, first, stop, stop - first)
    return doubling_windows(num_warmup, 75, num_warmup - 50, 25)


def doubling_windows(num_warmup: int, start: int, stop: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows that double in length; the last one extends to the end if another would not fit.

    ``window`` is the length of the first. Returns for each iteration whether it lies in a window, and whether one ends
    with it.
    """
    is_slow, is_end = np.zeros(num_warmup, bool), np.zeros(num_warmup, bool)
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
    """Build the warm-up of HMC and NUTS."""
    is_slow, is_end = window_schedule(num_warmup)
    # the step size is searched for before the first iteration's result is used, and after each window
    is_restart = is_end.copy()
    is_restart[:1] = True

    def init(state) -> WarmupState:
        rows = no_rows(state.correlation, int(is_slow.sum()))
        return WarmupState(restart(known_step_size("adapt", state)), empty_window(state, manifold), rows)

    def update(rng_key: PRNGKey, warmup: WarmupState, state, info, step: Array):
        longest = manifold.max_time(state.position, state.scale)
        flat = euclidean_leaves(manifold, state.position, state.scale)
        dual_averaging = observe(warmup.dual_averaging, target_acceptance_rate - info.acceptance_rate, longest)
        draw = jax.tree.map(lambda x: x[None], (state.position, state.logdensity_grad))
        window = jax.lax.cond(
            jnp.asarray(is_slow)[step], lambda w: add_draws(w, manifold, *draw), lambda w: w, warmup.window
        )
        rows, num_rows = warmup.rows, None
        if isinstance(rows, Rows):
            first, num_rows = rows_to_keep(is_slow, is_end, 1, len(rows.draws))
            new = row_of(state.position, state.logdensity_grad, flat)
            rows = with_rows(rows, jnp.asarray(first)[step], new)
        state = state._replace(step_size=current_step(dual_averaging, longest))

        def end_window(operand):
            state, _, window = operand
            scale, correlation = new_scale(manifold, window, state.scale), state.correlation
            if num_rows is not None:
                num_kept = jnp.asarray(num_rows)[step]
                scale, correlation = estimate(rows, num_kept, scale, state.position, correlation, flat)
            mass = MassMatrix(scale, correlation)
            point, step_size = search_alone(
                rng_key, integrator, manifold, point_of(state), mass, state.step_size, target_acceptance_rate
            )
            state = state._replace(**point._asdict(), **mass._asdict(), step_size=step_size)
            return state, restart(step_size), _tree.zeros_like(window)

        state, dual_averaging, window = jax.lax.cond(
            jnp.asarray(is_restart)[step], end_window, lambda operand: operand, (state, dual_averaging, window)
        )
        # sampling uses the averaged step size
        average = jnp.exp(dual_averaging.log_average)
        is_last = (step == num_warmup - 1) & (dual_averaging.count > 0)
        state = state._replace(step_size=jnp.where(is_last, average, state.step_size))
        return WarmupState(dual_averaging, window, rows), state

    return Adaptation(init, update, with_first_step_size)


def empty_window(state, manifold: AbstractManifold) -> Window:
    """Sums over no draws, with the shapes of a state."""
    like, squares = state.position, _tree.zeros_like(manifold.degrees_of_freedom(state.position))
    return Window(jnp.zeros((), _tree.real_dtype(like)), like, _tree.zeros_like(like), squares, squares)


def add_draws(window: Window, manifold: AbstractManifold, positions: Position, gradients: PyTree) -> Window:
    """Add draws along a leading axis; the first of a window is its anchor."""
    count = window.count + float(jax.tree.leaves(positions)[0].shape[0])
    first = jax.tree.map(lambda x: x[0], positions)
    anchor = _tree.where(window.count == 0, first, window.anchor)

    def parts(position: Position, gradient: PyTree) -> tuple[PyTree, ...]:
        shift = _tree.subtract(position, anchor)
        velocity = manifold.velocity(position, gradient)
        return shift, manifold.squares(anchor, shift), manifold.squares(position, velocity)

    new = jax.tree.map(lambda x: jnp.sum(x, axis=0), jax.vmap(parts)(positions, gradients))
    return Window(count, anchor, *_tree.add(tuple(window[2:]), new))


def moments(window: Window, manifold: AbstractManifold) -> tuple[PyTree, PyTree]:
    """Variances and mean squared gradients, both per degree of freedom and in the form of the scales."""
    count = jnp.maximum(window.count, 1.0)
    mean = jax.tree.map(lambda total: total / count.astype(total.dtype), window.shifts)
    shifted = manifold.squares(window.anchor, mean)
    degrees = jax.tree.map(lambda d: jnp.maximum(d, 0.5), manifold.degrees_of_freedom(window.anchor))

    def variance(total: Array, of_mean: Array, degrees: Array) -> Array:
        deviations = jnp.maximum(total - count.astype(total.dtype) * of_mean, 0.0)
        return deviations / (jnp.maximum(count - 1.0, 1.0).astype(total.dtype) * degrees)

    steepness = jax.tree.map(lambda total, d: total / (count.astype(total.dtype) * d), window.gradients, degrees)
    return jax.tree.map(variance, window.squares, shifted, degrees), steepness


def new_scale(manifold: AbstractManifold, window: Window, old: PyTree) -> PyTree:
    """Compute scales from a window, shrunk slightly towards the old ones on the log scale.

    They are standard deviations where every Euclidean entry has its own scale, elsewhere the module's s.
    """
    weight = window.count / (window.count + 5.0)

    def scale(variance: Array, steepness: Array, is_entry: bool, before: Array) -> Array:
        spread = jnp.sqrt(variance)
        ratio = (spread if is_entry else jnp.minimum(spread, (variance / steepness) ** 0.25)) / before
        has_moved = (ratio > 0) & jnp.isfinite(ratio)
        safe = jnp.where(has_moved, ratio, jnp.ones_like(ratio))
        return before * safe ** weight.astype(safe.dtype)

    is_entry = euclidean_leaves(manifold, window.anchor, old)
    return jax.tree.map(scale, *moments(window, manifold), is_entry, old)
