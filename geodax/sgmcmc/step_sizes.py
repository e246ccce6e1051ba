r"""The step size that is taken where the user leaves it out.

During warm-up each iteration multiplies a vector by the Hessian of the potential on the current batch, in the units of
the metric, :math:`v \leftarrow G^{-1/2} \nabla^2 U_B\, G^{-1/2} v` (power iteration), and averages the logarithm of its
growth: the largest curvature :math:`\kappa`. How much the slopes of the batch's examples along v differ says what
variance V the slope of the potential has that a batch of B of N examples estimates: near :math:`\kappa N / B` for a
likelihood that is right. At the temperature :math:`\tau`

* ``sgrld``: :math:`h = 0.2 / (\kappa + V / \tau)`, which makes the variance of the stiffest direction 11 per cent too
  large (:math:`(1 + hV/2\tau) / (1 - h\kappa/2)`), that of the others less;
* ``sghmc``: :math:`\varepsilon^{-2} = \kappa / 0.16 + 10\, c\, V / \tau`, where c is half the inverse of the friction
  (times :math:`1 - \alpha/2` in the order ``"baoab"``): the noise of batches raises the temperature by a tenth at most
  (on Stiefel's skew part twice or four times that in the canonical or the literal scheme), and the steps add 4 to 6 per
  cent in the order ``"paper"``. Noise that is deducted (``gradient_noise``) counts as far as friction has to absorb it.

The noise counts from the second half of the warm-up on: without it steps are larger, and chains come sooner to where
the posterior is. It does not count at temperature 0, nor where a batch has as many examples as there are data. Noise of
a user's own (``perturb_gradient``) is not looked at.

Slopes are those at the scale on which chains move, differences of log likelihoods, and so is the Hessian, a difference
of gradients: with the thermal amplitude :math:`a = \kappa^{-1/2}` of the stiffest direction and normal z,

.. math::
    \nabla^2 U_B\, v \approx \frac{\nabla U_B(\theta + a z + a v) - \nabla U_B(\theta + a z - a v)}{2 a},

which for a normal law is the Hessian itself. At the pole of a horseshoe's density the second derivatives are infinite
and would let the step size shrink as fast as the chain nears the pole, so that it never leaves.

The position rests during the first iterations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._random import standard_normal
from geodax._types import Adaptation, Array, PRNGKey, PyTree, Scalar
from geodax.data.parts import mean_over_parts, own_examples
from geodax.sgmcmc.gradients import Target

_NUM_RESTING = 10
_DECAY = 0.9
_FIRST_AMPLITUDE = 1e-2


class CurvatureState(NamedTuple):
    """A vector that turns to the stiffest direction, means of its growth and the noise along it, a distance."""

    direction: PyTree
    largest: Scalar
    noise: Scalar
    amplitude: Scalar


def curvature_adaptation(
    target: Target,
    whiten: Callable[[Any, PyTree], PyTree],
    step_size: Callable[[Any, Scalar, Scalar, Scalar], Scalar],
    temperature: Callable[[Array], Scalar],
    num_warmup: int,
) -> Adaptation:
    """Warm-up that finds the largest curvature, and the noise of batches.

    Args:
        target: The target.
        whiten: ``(state, vector) -> vector``, the root of the inverse metric (and, on a manifold, the projection).
        step_size: ``(state, largest, noise, beta) -> step size``: the largest curvature, the noise's variance along its
            direction as far as it counts, the inverse temperature, 0 where the temperature is 0.
        temperature: From the iteration to the temperature.
        num_warmup: Iterations of the warm-up.

    Returns:
        The adaptation; it writes the state's ``tuned_step_size``.
    """

    def init(state: Any) -> CurvatureState:
        zero = jnp.zeros((), _tree.real_dtype(state.position))
        direction, _ = _unit(standard_normal(jax.random.key(0), state.position))
        return CurvatureState(direction, zero, zero, zero + _FIRST_AMPLITUDE)

    def update(
        rng_key: PRNGKey, tuning: CurvatureState, state: Any, info: Any, iteration: Array, batch: PyTree = None
    ) -> tuple[CurvatureState, Any]:
        del info
        amplitude = tuning.amplitude
        along = whiten(state, tuning.direction)
        center = _plus(state.position, amplitude, whiten(state, standard_normal(rng_key, state.position)))
        above, below = _plus(center, amplitude, along), _plus(center, -amplitude, along)

        def difference(part: PyTree) -> tuple[Scalar, PyTree]:
            evaluate = jax.value_and_grad(lambda position: -target.logdensity(position, own_examples(part)))
            (upper, gradient_above), (lower, gradient_below) = evaluate(above), evaluate(below)
            return upper + lower, _tree.subtract(gradient_above, gradient_below)

        potentials, change = mean_over_parts(difference, batch)
        direction, growth = _unit(whiten(state, change))
        # gradients may be finite where the density is not
        growth = jnp.where(jnp.isfinite(potentials), growth / (2.0 * amplitude), jnp.nan)
        is_sound = jnp.isfinite(growth) & (growth > 0)
        is_resting = (iteration < _NUM_RESTING) | (tuning.largest <= 0)
        averaged = tuning.largest**_DECAY * growth ** (1.0 - _DECAY)
        largest = jnp.where(is_resting, growth, averaged).astype(tuning.largest.dtype)
        ends = _plus(state.position, amplitude, along), _plus(state.position, -amplitude, along)
        noise = (target.batch_noise(*ends, batch) / (2.0 * amplitude) ** 2).astype(tuning.noise.dtype)
        noise = jnp.where(is_resting, noise, _DECAY * tuning.noise + (1.0 - _DECAY) * noise)
        noise = jnp.where(jnp.isfinite(noise), noise, tuning.noise)
        found = CurvatureState(direction, largest, noise, (1.0 / jnp.sqrt(largest)).astype(amplitude.dtype))
        # where the density is not finite that far away look nearer, where it is not curved look farther
        elsewhere = tuning._replace(amplitude=jnp.where(jnp.isfinite(growth), 2.0 * amplitude, 0.5 * amplitude))
        tuning = _tree.where(is_sound, found, elsewhere)
        has_none = (iteration < _NUM_RESTING) | (tuning.largest <= 0)
        heat = temperature(iteration).astype(tuning.noise.dtype)
        beta = jnp.where(heat > 0, 1.0 / jnp.where(heat > 0, heat, 1.0), 0.0)
        noise = jnp.where(iteration < num_warmup // 2, 0.0, tuning.noise)
        largest = jnp.where(tuning.largest > 0, tuning.largest, 1.0)
        tuned = jnp.where(has_none, 0.0, step_size(state, largest, noise, beta))
        return tuning, state._replace(tuned_step_size=tuned.astype(state.tuned_step_size.dtype))

    return Adaptation(init, update)


def _plus(position: PyTree, factor: Any, vector: PyTree) -> PyTree:
    return jax.tree.map(lambda x, v: x + jnp.asarray(factor, v.dtype) * v, position, vector)


def _unit(vector: PyTree) -> tuple[PyTree, Scalar]:
    length = jnp.sqrt(_tree.dot(vector, vector))
    safe = jnp.where(length > 0, length, jnp.ones_like(length))
    return jax.tree.map(lambda x: x / safe.astype(x.dtype), vector), length
