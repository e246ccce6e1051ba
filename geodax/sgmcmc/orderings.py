"""The orders of kick, flow and noise in a step of stochastic-gradient HMC (formulas: :mod:`geodax.sgmcmc.sghmc`).

A step is a function of what stays the same (:class:`Dynamics`), a random key, what moves, the function that evaluates
the gradient, the step size, the temperature (None for no noise), and the share of its first flow or kick.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax._random import standard_normal
from geodax._types import Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import Noise
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.precision import scaled
from geodax.sgmcmc.underdamped import FreeMotion, free_motion, move_freely

GradientAt = Callable[[Position], tuple[Any, PyTree]]
"""Maps a position to what is reported of the gradient there, and the ambient gradient of the log density."""


class Moving(NamedTuple):
    """A position, its momentum and the state of the metric."""

    position: Position
    momentum: Momentum
    metric: PyTree


class Dynamics(NamedTuple):
    """What stays the same from step to step.

    Attributes:
        mass: The geometry.
        kept: Fraction of the momentum that a step keeps, 1 less the friction.
        drawn: Variance of the injected noise at temperature 1, in units of the momentum's.
        taken: Variance of the gradient's noise in the momentum at step size 1, which the injected noise leaves out.
    """

    mass: Mass
    kept: float
    drawn: float
    taken: float

    def noise(self, key: PRNGKey, position: Position, temperature: Scalar | None, step_size: Scalar) -> Noise | None:
        """Draw the injected noise."""
        if temperature is None:
            return None
        taken = jnp.where(temperature > 0, self.taken * step_size**2, 0.0)
        return Noise(standard_normal(key, position), self.drawn * temperature, taken)

    @property
    def half(self) -> FreeMotion:
        """Half a step of the exact motion without a force."""
        return free_motion(1.0 - self.kept**0.5)


def paper_step(
    dynamics: Dynamics,
    key: PRNGKey,
    moving: Moving,
    gradient_at: GradientAt,
    step_size: Scalar,
    temperature: Scalar | None,
    share: Scalar,
) -> tuple[Moving, Any]:
    """A flow, then a kick with friction and noise (Yanush and Kropotov 2019, algorithm 2)."""
    mass, metric = dynamics.mass, moving.metric
    position, momentum = mass.flow(metric, moving.position, moving.momentum, share * step_size)
    seen, gradient = gradient_at(position)
    force = scaled(step_size, mass.whiten(metric, position, gradient))
    noise = dynamics.noise(key, position, temperature, step_size)
    momentum = mass.manifold.kick(position, momentum, kept=dynamics.kept, g=force, noise=noise)
    return Moving(position, momentum, mass.update(metric, position, gradient)), seen


def baoab_step(
    dynamics: Dynamics,
    key: PRNGKey,
    moving: Moving,
    gradient_at: GradientAt,
    step_size: Scalar,
    temperature: Scalar | None,
    share: Scalar,
) -> tuple[Moving, Any]:
    """Half a kick, half a flow, friction and noise, half a flow, half a kick (Leimkuhler and Matthews 2013)."""
    (position, momentum, metric), mass = moving, dynamics.mass
    seen, gradient = gradient_at(position)
    # the two half kicks at one position are one
    force = scaled(share * step_size, mass.whiten(metric, position, gradient))
    momentum = mass.manifold.kick(position, momentum, g=force)
    metric_after = mass.update(metric, position, gradient)
    position, momentum = mass.flow(metric, position, momentum, 0.5 * step_size)
    noise = dynamics.noise(key, position, temperature, step_size)
    momentum = mass.manifold.kick(position, momentum, kept=dynamics.kept, noise=noise)
    position, momentum = mass.flow(metric, position, momentum, 0.5 * step_size)
    return Moving(position, momentum, metric_after), seen


def ubu_step(
    dynamics: Dynamics,
    key: PRNGKey,
    moving: Moving,
    gradient_at: GradientAt,
    step_size: Scalar,
    temperature: Scalar | None,
    share: Scalar,
) -> tuple[Moving, Any]:
    """A kick between two half steps of the exact motion without a force (Sanz-Serna and Zygalakis 2021)."""
    del share  # position and momentum belong to one time
    (position, momentum, metric), mass = moving, dynamics.mass
    before, after = jax.random.split(key)
    time = 0.5 * step_size
    position, momentum = move_freely(dynamics.half, mass, before, metric, position, momentum, time, temperature)
    seen, gradient = gradient_at(position)
    force = scaled(step_size, mass.whiten(metric, position, gradient))
    momentum = mass.manifold.kick(position, momentum, g=force)
    metric_after = mass.update(metric, position, gradient)
    position, momentum = move_freely(dynamics.half, mass, after, metric, position, momentum, time, temperature)
    return Moving(position, momentum, metric_after), seen


ORDERINGS = {"paper": paper_step, "baoab": baoab_step, "ubu": ubu_step}
