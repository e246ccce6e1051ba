r"""The step size that is taken where the user leaves it out.

During warm-up each iteration multiplies a vector by the Hessian of the potential on the current batch, in the units of
the metric, :math:`v \leftarrow G^{-1/2} \nabla^2 U_B\, G^{-1/2} v` (power iteration), and averages its growth: the
largest curvature :math:`\kappa`. Then

* ``sgrld``: :math:`h = 0.2 / \kappa`, which makes the variance of the stiffest direction 11 per cent too large
  (:math:`1 / (1 - h\kappa/2)`), that of the others less;
* ``sghmc``: :math:`\varepsilon = 0.4 / \sqrt\kappa`, 4 to 6 per cent in the order ``"paper"``.

The noise of batches is not looked at: it adds its own bias. The position rests during the first iterations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Adaptation, Array, PRNGKey, PyTree, Scalar
from geodax.data.parts import mean_over_parts, own_examples
from geodax.sgmcmc.gradients import Target

_NUM_RESTING = 10
_DECAY = 0.9


class CurvatureState(NamedTuple):
    """A vector that turns towards the stiffest direction, and the average of its growth."""

    direction: PyTree
    largest: Scalar


def curvature_adaptation(
    target: Target, whiten: Callable[[Any, PyTree], PyTree], step_size: Callable[[Scalar], Scalar]
) -> Adaptation:
    """Warm-up that finds the largest curvature.

    Args:
        target: The target.
        whiten: ``(state, vector) -> vector``, the root of the inverse metric (and, on a manifold, the projection).
        step_size: From the largest curvature to the step size.

    Returns:
        The adaptation; it writes the state's ``tuned_step_size``.
    """

    def init(state: Any) -> CurvatureState:
        leaves, structure = jax.tree.flatten(state.position)
        keys = jax.random.split(jax.random.key(0), len(leaves))
        draws = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
        return CurvatureState(_unit(structure.unflatten(draws))[0], jnp.zeros((), _tree.real_dtype(state.position)))

    def update(
        rng_key: PRNGKey, tuning: CurvatureState, state: Any, info: Any, iteration: Array, batch: PyTree = None
    ) -> tuple[CurvatureState, Any]:
        del rng_key, info
        along = whiten(state, tuning.direction)

        def curved(part: PyTree) -> PyTree:
            gradient = jax.grad(lambda position: -target.logdensity(position, own_examples(part)))
            return jax.jvp(gradient, (state.position,), (along,))[1]

        product = mean_over_parts(curved, batch)
        direction, growth = _unit(whiten(state, product))
        is_sound = jnp.isfinite(growth) & (growth > 0)
        average = jnp.where(iteration < _NUM_RESTING, growth, _DECAY * tuning.largest + (1.0 - _DECAY) * growth)
        found = CurvatureState(direction, average.astype(tuning.largest.dtype))
        tuning = _tree.where(is_sound, found, tuning)
        is_resting = (iteration < _NUM_RESTING) | (tuning.largest <= 0)
        tuned = jnp.where(is_resting, 0.0, step_size(jnp.where(tuning.largest > 0, tuning.largest, 1.0)))
        return tuning, state._replace(tuned_step_size=tuned.astype(state.tuned_step_size.dtype))

    return Adaptation(init, update)


def _unit(vector: PyTree) -> tuple[PyTree, Scalar]:
    length = jnp.sqrt(_tree.dot(vector, vector))
    safe = jnp.where(length > 0, length, jnp.ones_like(length))
    return jax.tree.map(lambda x: x / safe.astype(x.dtype), vector), length
