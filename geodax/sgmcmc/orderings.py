"""The orders of kick, flow and noise in a step of stochastic-gradient HMC (formulas: :mod:`geodax.sgmcmc.sghmc`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax._random import standard_normal
from geodax._types import Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.geometry.manifolds import Noise
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.precision import scaled
from geodax.sgmcmc.underdamped import free_motion, move_freely

GradientAt = Callable[[Position], tuple[Any, PyTree]]
"""Maps a position to what is reported of the gradient there, and the ambient gradient of the log density."""


class Moving(NamedTuple):
    """A position, its momentum and the state of the metric."""

    position: Position
    momentum: Momentum
    metric: PyTree


class Step(NamedTuple):
    """The arguments of a step.

    Attributes:
        temperature: None for no noise.
        share: 1/2 for half of the first flow or kick, else 1.
    """

    key: PRNGKey
    gradient_at: GradientAt
    step_size: Scalar
    temperature: Scalar | None
    share: Scalar


class Dynamics(NamedTuple):
    """An order of the parts of a step, and what stays the same from step to step.

    Attributes:
        take: Takes a step.
        mass: The geometry.
        kept: Fraction of the momentum that a step keeps.
        drawn: Variance of the injected noise at temperature 1, in units of the momentum's.
        deducted: Variance of the gradient's noise in the momentum, in units of that of a kick.
        gradient_variance: Known variance of the noise in each entry of the gradient.
        fresh_variance: Variance at temperature 1 of the momentum that the steps leave invariant.
    """

    take: Callable[["Dynamics", Step, Moving], tuple[Moving, Any]]
    mass: Mass
    kept: float
    drawn: float
    deducted: float
    gradient_variance: float
    fresh_variance: float

    def noise(self, step: Step, position: Position) -> Noise | None:
        """Draw the injected noise, without the part that the gradient's noise replaces."""
        if step.temperature is None:
            return None
        taken = jnp.where(step.temperature > 0, self.deducted * self.gradient_variance * step.step_size**2, 0.0)
        return Noise(standard_normal(step.key, position), self.drawn * step.temperature, taken)


def dynamics_of(ordering: str, mass: Mass, friction: float, gradient_variance: float) -> Dynamics:
    """Make the dynamics of an ordering."""
    kept = 1.0 - friction
    if ordering == "paper":
        drawn, deducted, fresh_variance = 2.0 * friction, 1.0, 1.0 / (1.0 - 0.5 * friction)
    else:
        drawn, deducted, fresh_variance = 1.0 - kept**2, (0.5 + 0.5 * kept) ** 2, 1.0
    return Dynamics(ORDERINGS[ordering], mass, kept, drawn, deducted, gradient_variance, fresh_variance)


def _paper(dynamics: Dynamics, step: Step, moving: Moving) -> tuple[Moving, Any]:
    """A flow, then a kick with friction and noise (Yanush and Kropotov 2019, algorithm 2)."""
    mass, metric = dynamics.mass, moving.metric
    position, momentum = mass.flow(metric, moving.position, moving.momentum, step.share * step.step_size)
    seen, gradient = step.gradient_at(position)
    force = scaled(step.step_size, mass.whiten(metric, position, gradient))
    noise = dynamics.noise(step, position)
    momentum = mass.manifold.kick(position, momentum, kept=dynamics.kept, g=force, noise=noise)
    return Moving(position, momentum, mass.update(metric, position, gradient)), seen


def _baoab(dynamics: Dynamics, step: Step, moving: Moving) -> tuple[Moving, Any]:
    """Half a kick, half a flow, friction and noise, half a flow, half a kick (Leimkuhler and Matthews 2013)."""
    (position, momentum, metric), mass, half = moving, dynamics.mass, 0.5 * step.step_size
    seen, gradient = step.gradient_at(position)
    # the two half kicks at one position are one
    force = scaled(step.share * step.step_size, mass.whiten(metric, position, gradient))
    momentum = mass.manifold.kick(position, momentum, g=force)
    metric_after = mass.update(metric, position, gradient)
    position, momentum = mass.flow(metric, position, momentum, half)
    momentum = mass.manifold.kick(position, momentum, kept=dynamics.kept, noise=dynamics.noise(step, position))
    position, momentum = mass.flow(metric, position, momentum, half)
    return Moving(position, momentum, metric_after), seen


def _ubu(dynamics: Dynamics, step: Step, moving: Moving) -> tuple[Moving, Any]:
    """A kick between two half steps of the exact motion without a force (Sanz-Serna and Zygalakis 2021).

    Position and momentum belong to one time, so that the share is of no use.
    """
    (position, momentum, metric), mass = moving, dynamics.mass
    half, time = free_motion(1.0 - dynamics.kept**0.5), 0.5 * step.step_size
    before, after = jax.random.split(step.key)
    position, momentum = move_freely(half, mass, before, metric, position, momentum, time, step.temperature)
    seen, gradient = step.gradient_at(position)
    force = scaled(step.step_size, mass.whiten(metric, position, gradient))
    momentum = mass.manifold.kick(position, momentum, g=force)
    metric_after = mass.update(metric, position, gradient)
    position, momentum = move_freely(half, mass, after, metric, position, momentum, time, step.temperature)
    return Moving(position, momentum, metric_after), seen


ORDERINGS = {"paper": _paper, "baoab": _baoab, "ubu": _ubu}
