r"""The step size that is used if the user gives none.

Iterations of the warm-up (all of the first fifth, at least 100, and every eighth of the others: each costs two
gradients) multiply a vector by the Hessian of the potential on the current batch, in the units of the metric, :math:`v
\leftarrow H_B v`, :math:`H_B = G^{-1/2} \nabla^2 U_B\, G^{-1/2}` (power iteration). The mean of its growth :math:`|H_B
v|` is the largest curvature :math:`\kappa`; without batches, where curvatures differ only with the position, it is the
geometric mean. Curvatures that differ between batches make steps unstable that their mean would allow. A step is stable
in mean square if it is small compared with :math:`\mathbb{E} v^T H_B v / \mathbb{E} |H_B v|^2`, so the excess :math:`E
= \mathbb{E}|H_B v|^2 / \mathbb{E}|v^T H_B v| - \kappa` is counted like the variance of a noise. The differences between
the slopes of the batch's examples along v give the variance V of the slope of the potential that a batch of B of N
examples estimates: near :math:`\kappa N / B` for a correct likelihood. With :math:`V' = \max(V / \tau, E / 5)` at the
temperature :math:`\tau`

* ``sgrld``: :math:`h = 0.2 / (\kappa + V')`, which makes the variance of the stiffest direction 11 per cent too
  large (:math:`(1 + hV/2\tau) / (1 - h\kappa/2)`), that of the others less;
* ``sghmc``: :math:`\varepsilon^{-2} = \kappa / 0.16 + 10\, c\, V'`, where c is half the inverse of the friction
  (times :math:`1 - \alpha/2` in the order ``"baoab"``): the noise of batches raises the temperature by at most a tenth,
  and the steps add 4 to 6 per cent in the order ``"paper"``. Deducted noise (``gradient_noise``) counts as far as the
  friction has to absorb it.

With batches without replacement (``order="epochs"`` or ``"symmetric"``) the errors of a pass cancel where the chain
hardly moves in the meantime. For a linear force and passes of R batches the fraction

.. math::
    F = 1 - \frac{2}{R (R - 1)} \sum_{k=1}^{R-1} (R - k)\, \rho_k

of the variance that independent noise would add remains, where :math:`\rho_k` is the chain's autocorrelation over k
steps in that direction. Small steps have :math:`F \approx h\kappa\, (R + 1) / 3` in ``sgrld`` and
:math:`F \approx \varepsilon^2 \kappa\, (R + 1) \min(R / 12, 1 / 3\alpha)` in ``sghmc`` at the friction
:math:`\alpha`. So :math:`V / \tau` counts by that fraction, at most 1, and wholly for the share of the examples that do
not fill a batch; the excess counts as before. Momenta drawn anew forget the earlier errors; then F = 1.

In the first quarter of the warm-up V does not count, so that chains quickly reach the posterior; with these steps they
are about N / B times too hot there. In the following half the steps shrink in equal ratios to those of the rule, slowly
enough for chains to cool down. V does not count at temperature 0 either, nor if a batch has as many examples as the
data. User-defined noise (``perturb_gradient``) is ignored.

Slopes are measured at the scale on which chains move, as differences of log likelihoods, and so is the Hessian, as a
difference of gradients. With the thermal amplitude :math:`a` of the stiffest direction, the inverse square root of the
geometric mean of the last growths, and normal z,

.. math::
    \nabla^2 U_B\, v \approx \frac{\nabla U_B(\theta + a z + a v) - \nabla U_B(\theta + a z - a v)}{2 a},

which equals the Hessian for a normal distribution. At the pole of a horseshoe's density the second derivatives are
infinite; they would shrink the step size as fast as the chain approaches the pole, so that it never leaves.

On a manifold, points are moved by its free motion and a gradient is the change of the momentum by a kick. So the
curvature is that of the density *on the manifold*, where a linear function has one too, and V is the variance of kicks
along v divided by that of a momentum draw. A step on a manifold is bounded, also if the density is flat: a typical
momentum turns by at most an eighth of a circle. In flat space a density without any curvature raises an error.

The position is fixed during the first iterations: ten of them, or all but one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from geodax import _tree
from geodax._random import standard_normal
from geodax._types import Adaptation, Array, Cycle, PRNGKey, PyTree, Scalar, Schedule
from geodax.geometry.manifolds import AbstractManifold
from geodax.sgmcmc.gradients import Target
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.periodic import when
from geodax.sgmcmc.precision import dot, scalar_dtype

_NUM_RESTING = 10
_RATE = 0.1  # of the averages: the last ten iterations, and later the last tenth
_FIRST_AMPLITUDE = 1e-2
_STABLE = 0.2  # fraction of the excess of curvature that counts as noise
_ALWAYS, _EVERY = 0.2, 8  # the fraction of the warm-up that measures in each iteration, and how often the rest does
_LOUD, _QUIET = 0.25, 0.75  # fractions of the warm-up between which the weight of the batch noise grows to one


class Stiffness(NamedTuple):
    """The quantities that determine a step size.

    Attributes:
        curvature: Largest curvature of the potential.
        excess: How much less stable steps are because the curvature differs between batches.
        noise: Variance of the batch noise along the stiffest direction.
        beta: Weighted inverse temperature; 0 if the noise does not count.
    """

    curvature: Scalar
    excess: Scalar
    noise: Scalar
    beta: Scalar

    def counted(self, noise: Scalar) -> Scalar:
        """The variance that counts, in units of the temperature, if the batch noise is ``noise``."""
        return jnp.maximum(self.beta * noise, _STABLE * self.excess)

    def largest(
        self, fixed: Scalar, weight: float, noise: Scalar, cycle: Cycle | None = None, left: float = 0.0
    ) -> Scalar:
        """The largest u for which ``u * (fixed + weight * V')`` is at most 1, with V' the batch noise that counts.

        In the pass of a ``cycle`` the errors of batches cancel, but the fraction ``left * curvature * u``, at most all.
        """
        alone = 1.0 / (fixed + weight * self.counted(noise))
        if cycle is None:
            return alone
        linear = fixed + weight * self.counted(cycle.left_out * noise)
        square = weight * (1.0 - cycle.left_out) * left * self.beta * noise * self.curvature
        return jnp.maximum(alone, 2.0 / (linear + jnp.sqrt(linear**2 + 4.0 * square)))


class CurvatureState(NamedTuple):
    """A vector that converges to the stiffest direction, and averages along it.

    Attributes:
        direction: The vector.
        growth: Mean of its growth.
        root_square: Root mean square of its growth.
        slope: Mean of the component of the growth along the vector.
        typical: Geometric mean of the last growths.
        noise: Mean of the batch noise.
        amplitude: Distance over which gradients are compared.
    """

    direction: PyTree
    growth: Scalar
    root_square: Scalar
    slope: Scalar
    typical: Scalar
    noise: Scalar
    amplitude: Scalar


def curvature_adaptation(
    target: Target,
    mass: Mass,
    step_size: Callable[[Any, Stiffness], Scalar],
    temperature: Callable[[Array], Scalar],
    num_warmup: int,
) -> Adaptation:
    """Build the warm-up that finds the largest curvature and the batch noise.

    It reads ``position`` and ``metric`` of a sampler's state, and sets ``tuned_step_size``, which starts at zero.
    """
    num_resting = min(_NUM_RESTING, num_warmup - 1)
    num_first = max(10 * _NUM_RESTING, round(_ALWAYS * num_warmup))
    manifold = mass.manifold

    def init(state: Any) -> CurvatureState:
        zero = jnp.zeros((), scalar_dtype(state.position))
        direction, _ = _unit(standard_normal(jax.random.key(0), state.position))
        return CurvatureState(direction, zero, zero, zero, zero, zero, zero + _FIRST_AMPLITUDE)

    def update(
        rng_key: PRNGKey, tuning: CurvatureState, state: Any, info: Any, iteration: Array, batch: PyTree = None
    ) -> tuple[CurvatureState, Any]:
        del info
        is_due = (iteration < num_first) | (iteration % _EVERY == 0) | (iteration == num_warmup - 1)

        def measure(kept: tuple, noise: PyTree, state: Any, iteration: Array, batch: PyTree) -> tuple:
            tuning, state = measured(noise, kept[0], state._replace(tuned_step_size=kept[1]), iteration, batch)
            return tuning, state.tuned_step_size

        kept = tuning, state.tuned_step_size
        # apart from the measurement, or the compiler repeats the draw in each expression of it
        noise = when(is_due, lambda like, key: standard_normal(key, like), state.position, rng_key)
        tuning, tuned = when(is_due, measure, kept, noise, state, iteration, batch)
        return tuning, state._replace(tuned_step_size=tuned)

    def measured(
        noise: PyTree, tuning: CurvatureState, state: Any, iteration: Array, batch: PyTree
    ) -> tuple[CurvatureState, Any]:
        position, here = state.position, target.taking(state.dtypes)
        longest = _longest_time(manifold, position)
        amplitude = jnp.minimum(tuning.amplitude, longest)
        along, _ = _unit(manifold.project(position, tuning.direction))
        thermal = manifold.momentum(position, noise)

        def moved(momentum: PyTree) -> PyTree:
            return mass.flow(state.metric, position, momentum, amplitude)[0]

        ends = moved(_tree.add(thermal, along)), moved(_tree.subtract(thermal, along))
        logdensities, gradients = here.gradients(batch, *ends)
        forces = [
            mass.force(state.metric, there, jax.tree.map(lambda g: -jnp.conj(g), gradient))
            for there, gradient in zip(ends, gradients, strict=True)
        ]
        change = _tree.subtract(*forces)
        change = manifold.project(position, change)
        direction, growth = _unit(change)
        # gradients can be finite where the density is not
        growth = jnp.where(jnp.isfinite(sum(logdensities)), growth / (2.0 * amplitude), jnp.nan)
        slope = jnp.abs(dot(along, change)) / (2.0 * amplitude)
        is_sound = jnp.isfinite(growth) & (growth > 0)
        is_resting = (iteration < num_resting) | (tuning.typical <= 0)
        count = iteration.astype(tuning.growth.dtype)
        num_measured = jnp.minimum(count, num_first) + jnp.maximum(count - num_first, 0.0) / _EVERY
        rate = 1.0 / jnp.maximum(1.0 / _RATE, _RATE * num_measured)

        def averaged(mean: Scalar, found: Scalar) -> Scalar:
            found = found.astype(mean.dtype)
            return jnp.where(is_resting, found, mean + rate * (found - mean))

        near = moved(along), moved(jax.tree.map(jnp.negative, along))
        length = (2.0 * amplitude) ** 2 * 2.0 * manifold.kinetic_energy(position, along).astype(amplitude.dtype)
        noise = averaged(tuning.noise, here.batch_noise(*near, batch) / length)
        larger = jnp.maximum(tuning.root_square, growth)  # its square can overflow
        mixed = larger * jnp.sqrt((1.0 - rate) * (tuning.root_square / larger) ** 2 + rate * (growth / larger) ** 2)
        typical = jnp.where(is_resting, growth, tuning.typical ** (1.0 - _RATE) * growth**_RATE)
        found = CurvatureState(
            direction,
            averaged(tuning.growth, growth),
            jnp.where(is_resting, growth, mixed).astype(tuning.root_square.dtype),
            averaged(tuning.slope, slope),
            typical.astype(tuning.typical.dtype),
            jnp.where(jnp.isfinite(noise), noise, tuning.noise),
            (1.0 / jnp.sqrt(typical)).astype(amplitude.dtype),
        )
        # halve the distance if the density is not finite there, increase it if there is no curvature
        elsewhere = tuning._replace(amplitude=jnp.where(jnp.isfinite(growth), 2.0 * amplitude, 0.5 * amplitude))
        tuning = _tree.where(is_sound, found, elsewhere)
        is_curved = tuning.typical > 0
        heat = temperature(iteration).astype(tuning.noise.dtype)
        beta = jnp.where(heat > 0, 1.0 / jnp.where(heat > 0, heat, 1.0), 0.0)
        stiffness = _stiffness(tuning, is_curved, beta)
        loud = step_size(state, stiffness._replace(noise=jnp.zeros_like(beta)))
        quiet = step_size(state, stiffness)
        share = jnp.clip(((count + 1.0) / num_warmup - _LOUD) / (_QUIET - _LOUD), 0.0, 1.0)
        by_rule = loud * (quiet / loud) ** share.astype(quiet.dtype)
        # without any curvature only a manifold bounds a step; flat space does not
        without = jnp.where(jnp.isfinite(longest), longest, jnp.where(iteration < num_warmup - 1, 0.0, jnp.nan))
        tuned = jnp.where(is_curved, jnp.minimum(by_rule, longest), without)
        tuned = jnp.where(iteration < num_resting, resting(position), tuned)
        return tuning, state._replace(tuned_step_size=tuned.astype(state.tuned_step_size.dtype))

    return Adaptation(init, update, begin=lambda state: state._replace(tuned_step_size=resting(state.position)))


def _stiffness(tuning: CurvatureState, is_curved: Array, beta: Scalar) -> Stiffness:
    typical = jnp.where(is_curved, tuning.typical, 1.0)
    growth = jnp.where(is_curved, tuning.growth, 1.0)
    slope = jnp.where(tuning.slope > 0, tuning.slope, growth)
    excess = jnp.maximum(tuning.root_square * (tuning.root_square / slope) - growth, 0.0)
    # without batches curvatures differ only with the position, as at the poles of a density
    has_batches = tuning.noise > 0
    return Stiffness(jnp.where(has_batches, growth, typical), jnp.where(has_batches, excess, 0.0), tuning.noise, beta)


def resting(position: PyTree) -> Scalar:
    """The step size of a chain that does not move."""
    return jnp.zeros((), scalar_dtype(position))


def untuned(schedule: Schedule | None, position: PyTree) -> Scalar:
    """The tuned step size before any warm-up: without a schedule NaN, or a resting chain would look like a sample."""
    return jnp.full((), 0.0 if schedule else jnp.nan, scalar_dtype(position))


def step_size_of(name: str, schedule: Schedule | None, state: Any, num_waiting: int = 0) -> Scalar:
    """The step size of an iteration: zero while only the metric learns, then that of the schedule or the warm-up.

    Raises ValueError if there was neither.
    """
    found = schedule(state.iteration) if schedule else state.tuned_step_size
    if schedule is None and not isinstance(found, Tracer) and bool(jnp.any(jnp.isnan(found))):
        raise ValueError(
            f"{name}: without a step_size the sampler finds one in the warm-up of gx.sample. To call its steps by hand "
            "construct it with a step_size."
        )
    found = found.astype(scalar_dtype(state.position))
    return jnp.where(state.iteration < num_waiting, jnp.zeros_like(found), found) if num_waiting else found


def _longest_time(manifold: AbstractManifold, position: PyTree) -> Scalar:
    longest = 0.5 * manifold.max_time(position, manifold.initial_scale(position))
    return jnp.asarray(longest).astype(scalar_dtype(position))


def _unit(vector: PyTree) -> tuple[PyTree, Scalar]:
    length = jnp.sqrt(dot(vector, vector))
    safe = jnp.where(length > 0, length, jnp.ones_like(length))
    return jax.tree.map(
        lambda x: (_tree.widened(x) / safe.astype(_tree.widened(x).dtype)).astype(x.dtype), vector
    ), length
