r"""The exact motion of underdamped Langevin dynamics without a force.

With friction :math:`\gamma` over the time :math:`t`, :math:`g = \gamma t` and :math:`\eta = e^{-g}`,

.. math::
    v' &= \eta v + \sqrt{\tau}\, \zeta, \qquad
    x' = x + t \Big( \frac{1 - \eta}{g} v + \sqrt{\tau}\, \chi \Big), \\
    \mathrm{Var}\,\zeta &= 1 - \eta^2, \qquad \mathrm{Cov}(\zeta, \chi) = \frac{(1 - \eta)^2}{g}, \qquad
    \mathrm{Var}\,\chi = \frac{2}{g^2} \Big( g - 2 (1 - \eta) + \frac{1 - \eta^2}{2} \Big).

Source:
    Sanz-Serna and Zygalakis (2021), "Wasserstein distance estimates for the distributions of numerical approximations
    to ergodic stochastic differential equations": the splitting UBU, whose error is of second order.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from geodax import _tree
from geodax._random import standard_normal
from geodax._types import Momentum, Position, PRNGKey, PyTree, Scalar
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.precision import scaled

_NUM_POWERS = 24


class FreeMotion(NamedTuple):
    """Coefficients of the motion, times in units of the duration.

    Attributes:
        kept: Fraction of the momentum that is kept.
        drift: Displacement by a momentum of one.
        shared: Factors of the noise that moves the momentum and, the second, the position.
        own: Factor of the noise that moves the position alone.
    """

    kept: float
    drift: float
    shared: tuple[float, float]
    own: float


def free_motion(friction: float) -> FreeMotion:
    """Compute the coefficients from the fraction of the momentum that is lost, in (0, 1]."""
    if friction == 1:  # the limit of infinite friction
        return FreeMotion(0.0, 0.0, (1.0, 0.0), 0.0)
    g = -math.log1p(-friction)
    spread = math.sqrt(friction * (2.0 - friction))  # of the momentum
    along = friction**2 / (g * spread)
    return FreeMotion(1.0 - friction, friction / g, (spread, along), math.sqrt(_variance(g) - along**2))


def move_freely(
    motion: FreeMotion,
    mass: Mass,
    key: PRNGKey,
    metric_state: PyTree,
    position: Position,
    momentum: Momentum,
    time: Scalar,
    temperature: Scalar | None,
) -> tuple[Position, Momentum]:
    """Move Euclidean leaves over a time; without a temperature there is no noise."""
    displacement = jax.tree.map(lambda r: motion.drift * r, momentum)
    momentum = jax.tree.map(lambda r: motion.kept * r, momentum)
    if temperature is not None:
        one, two = (scaled(jnp.sqrt(temperature), standard_normal(k, position)) for k in jax.random.split(key))
        shift = jax.tree.map(lambda a, b: motion.shared[1] * a + motion.own * b, one, two)
        displacement = _tree.add(displacement, shift)
        momentum = _tree.add(momentum, jax.tree.map(lambda a: motion.shared[0] * a, one))
    return mass.flow(metric_state, position, displacement, time)[0], momentum


def _variance(g: float) -> float:
    if g > 1.0:
        return 2.0 / g**2 * (g + 2.0 * math.expm1(-g) - 0.5 * math.expm1(-2.0 * g))
    return sum(2.0 * (-1) ** k * (2 - 2 ** (k - 1)) * g ** (k - 2) / math.factorial(k) for k in range(3, _NUM_POWERS))
