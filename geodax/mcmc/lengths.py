r"""Trajectories with an adapted length shared by all chains, and the statistics by which it is improved.

The length is a mean time :math:`T` (in units of the scales). Iteration :math:`i` runs for :math:`t = (\tfrac12 +
u_i)\, T`, rounded to whole steps, where :math:`u_i = \mathrm{frac}(i \varphi)` with the golden ratio
:math:`\varphi` is a quasi-random sequence shared by all chains, so that parallel chains take equally many steps and
none waits for another. The lengths do not depend on the positions, so the sampler stays exact. They vary by a factor of
3, so that they do not resonate with a period of the target.

Write :math:`y` for the position in units of the mass matrix, :math:`y'` and :math:`v'` for the end of a trajectory and
the velocity there, :math:`c` for the mean over chains, :math:`\alpha` for the acceptance probability, and
:math:`\Delta = |y' - c|^2 - |y - c|^2`. Distances are chords in the ambient space, added over all leaves. Two
measures of how far a trajectory of time :math:`t` takes a chain are

.. math::
    D = \mathrm{E}\, \alpha\, |y' - y|^2, \qquad
    S = \mathrm{E}\, \alpha\, \Delta^2, \qquad
    \frac{\partial D}{\partial \log t} = \mathrm{E}\, 2 \alpha t\, \langle y' - y, v' \rangle, \qquad
    \frac{\partial S}{\partial \log t} = \mathrm{E}\, 4 \alpha t\, \Delta\, \langle y' - c, v' \rangle:

the expected squared jump, which rewards trajectories to the other side of the target, and the change in the squared
distance from the centre (ChEES, Hoffman, Radul and Sountsov 2021), which rewards those to another energy. This module
measures them; :mod:`geodax.mcmc.joint_warmup` maximises.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._types import Array, Position, PRNGKey, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.integrators import IntegratorState
from geodax.mcmc.mass_matrix import MassMatrix, correlated, euclidean_leaves
from geodax.mcmc.trajectories import Integrator, TrajectoryResult, metropolis

MOST_STEPS = 1023
SHORTEST, LONGEST = 0.5, 1.5  # times of single trajectories, in units of their mean
_GOLDEN = 2654435769  # 2**32 divided by the golden ratio


class JumpMoments(NamedTuple):
    """One trajectory's contribution to D and S of the module's formulas, and to their derivatives.

    Attributes:
        distance: Acceptance times the squared distance travelled.
        distance_slope: Its derivative with respect to the logarithm of the time.
        spread: Acceptance times the squared change of the squared distance from the centre.
        spread_slope: Its derivative with respect to the logarithm of the time.
    """

    distance: Scalar
    distance_slope: Scalar
    spread: Scalar
    spread_slope: Scalar


class AdaptedLength(NamedTuple):
    """State of the adapted length in a chain; equal in all chains except for the moments.

    Attributes:
        time: Mean time of a trajectory in units of the scales.
        moments: Moments of the last trajectory.
    """

    time: Scalar
    iteration: Array
    center: Position
    moments: JumpMoments


def initial_length(position: Position) -> AdaptedLength:
    """Return a length of a single step, until warm-up finds a better one."""
    zero = jnp.zeros((), _tree.real_dtype(position))
    return AdaptedLength(zero, jnp.zeros((), jnp.int32), position, JumpMoments(zero, zero, zero, zero))


def adapted_trajectory(integrator: Integrator, manifold: AbstractManifold):
    """Build ``(rng_key, state, step_size, mass, length) -> TrajectoryResult``, which includes the new length."""

    def run(
        key: PRNGKey, start: IntegratorState, step_size: Scalar, mass: MassMatrix, length: AdaptedLength
    ) -> TrajectoryResult:
        time = length.time * _factor(length.iteration, step_size.dtype)
        num_steps = jnp.clip(jnp.round(time / step_size), 1, MOST_STEPS).astype(jnp.int32)
        num_steps = _in_common(num_steps)
        end = jax.lax.fori_loop(0, num_steps, lambda _, s: integrator(s, step_size, mass), start)
        result = metropolis(key, start, end, num_steps, manifold)
        moments = _jump_moments(
            start, end, step_size * num_steps.astype(step_size.dtype), mass, length.center, result, manifold
        )
        return result._replace(length=length._replace(iteration=length.iteration + 1, moments=moments))

    return run


def _factor(iteration: Array, dtype) -> Scalar:
    bits = iteration.astype(jnp.uint32) * jnp.uint32(_GOLDEN)
    u = (bits >> jnp.uint32(8)).astype(dtype) * 2.0**-24
    return SHORTEST + (LONGEST - SHORTEST) * u


@jax.custom_batching.custom_vmap
def _in_common(num_steps: Array) -> Array:
    """The same number for all chains of a ``vmap``: with a common bound their loop needs no masks."""
    return num_steps


@_in_common.def_vmap
def _(axis_size, in_batched, num_steps):
    del axis_size
    return (_in_common(jnp.max(num_steps, axis=0)) if in_batched[0] else _in_common(num_steps)), False


def _jump_moments(
    start: IntegratorState,
    end: IntegratorState,
    time: Scalar,
    mass: MassMatrix,
    center: Position,
    result: TrajectoryResult,
    manifold: AbstractManifold,
) -> JumpMoments:
    """The trajectory's contribution to D, S and their derivatives; zeros if it failed."""
    dtype = time.dtype
    flat = euclidean_leaves(manifold, center, mass.scale)

    def offset(there: Position, here: Position) -> Array:
        difference = _tree.subtract(there, here)
        in_scales = manifold.scaled(end.position, difference, jax.tree.map(jnp.reciprocal, mass.scale))
        return _tree.flatten(correlated(mass, in_scales, flat, inverse=True), dtype)

    velocity = _tree.flatten(manifold.velocity(end.position, end.momentum), dtype)
    jump = offset(end.position, start.position)
    before, after = offset(start.position, center), offset(end.position, center)
    change = jnp.dot(after, after) - jnp.dot(before, before)
    weight = result.acceptance_rate.astype(dtype)
    moments = JumpMoments(
        distance=weight * jnp.dot(jump, jump),
        distance_slope=2.0 * weight * time * jnp.dot(jump, velocity),
        spread=weight * change**2,
        spread_slope=4.0 * weight * time * change * jnp.dot(after, velocity),
    )
    return _tree.where(_tree.is_finite(moments), moments, _tree.zeros_like(moments))
