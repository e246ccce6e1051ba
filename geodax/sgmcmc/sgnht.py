r"""Stochastic-gradient Nose-Hoover thermostats on any manifold: HMC whose friction adapts to the noise of the batches.

With step size :math:`\varepsilon`, momentum :math:`r`, kinetic energy :math:`K`, dimension :math:`d`, temperature
:math:`\tau`, friction :math:`\xi` (per step) and the injected noise :math:`a`, a step is

.. math::
    r &\leftarrow r + \varepsilon\, \hat\nabla \log\pi_B(x), \\
    (x, r) &\leftarrow \mathrm{flow}(x, r, \varepsilon / 2), \\
    \xi &\leftarrow \xi + \tfrac{c}{2} (2 K(r) / d - \tau), \\
    r &\leftarrow e^{-\xi} r + \sqrt{a \tau (1 - e^{-2 \xi}) / \xi}\ \zeta,

and then again the second and the first two of these moves in reverse. Noise of the gradients with the same variance in
every direction, known or not, acts like more injected noise: :math:`\xi` settles at :math:`a` plus half the variance
that it adds to a momentum of variance 1 in a step, and the position keeps its distribution up to an error of second
order in :math:`\varepsilon`. One friction cannot absorb noise that differs between directions: directions with
more noise than the average stay too hot, others too cold. The noise of successive batches must be independent, as with
``batches(..., order="independent")``: errors that cancel over an epoch do not heat, but the thermostat cools for them.

Source:
    Ding et al. (2014), "Bayesian sampling using stochastic gradient thermostats"; Leimkuhler and Shang (2016),
    "Adaptive thermostats for noisy gradient systems", the splitting BADODAB.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._precision import in_full_precision
from geodax._random import standard_normal
from geodax._types import (
    Adaptation,
    Array,
    Cycle,
    LogDensity,
    Momentum,
    Position,
    PRNGKey,
    PyTree,
    SamplingAlgorithm,
    Scalar,
    Schedule,
)
from geodax.geometry.manifolds import AbstractManifold, Noise, as_manifold
from geodax.posterior import Posterior
from geodax.sgmcmc.control_variates import with_arrays
from geodax.sgmcmc.gradients import as_target
from geodax.sgmcmc.info import StochasticInfo, info_of
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.precision import LeafDtypes, in_single_precision, scalar_dtype, scaled
from geodax.sgmcmc.schedules import as_schedule
from geodax.sgmcmc.settings import algorithm_of, as_setting
from geodax.sgmcmc.step_sizes import Stiffness, curvature_adaptation, step_size_of, untuned


class SGNHTState(NamedTuple):
    """State of the thermostat between iterations.

    Attributes:
        position: Current draw.
        momentum: Its momentum.
        friction: The current friction.
        metric: An empty tuple; the mass is the identity.
        iteration: Number of completed iterations; the argument of the schedule.
        tuned_step_size: The step size found in warm-up if none was given; NaN before that.
        dtypes: The dtypes in which the log density takes the position.
    """

    position: Position
    momentum: Momentum
    friction: Scalar
    metric: PyTree
    iteration: Array
    tuned_step_size: Scalar
    dtypes: LeafDtypes = LeafDtypes()


@with_arrays
def sgnht(
    posterior: Posterior | LogDensity,
    *,
    manifold: AbstractManifold | None = None,
    step_size: float | Schedule | None = None,
    friction: float = 0.1,
    temperature: float = 1.0,
    rate: float | None = None,
) -> SamplingAlgorithm:
    """Stochastic-gradient Nose-Hoover thermostat.

    Args:
        posterior: A :class:`geodax.Posterior`, whose gradient is estimated from the batch of each step, or a log
            density of the position, whose gradient is exact.
        manifold: Geometry of the position; None is Euclidean space.
        step_size: Step size, or a schedule of the iteration; None finds one in warm-up.
        friction: Fraction of the momentum that a step without noise in the gradient removes, in (0, 1). It sets the
            injected noise.
        temperature: Temperature, above 0.
        rate: How fast the friction adapts: its change in a step if the kinetic energy is twice its mean. None takes
            half the square of the friction, for which it settles without oscillation.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init(position)`` and
        ``step(rng_key, state, batch)``.

    Raises:
        TypeError: For arguments of the wrong type.
        ValueError: For an argument out of its range.
    """
    manifold = as_manifold("sgnht", manifold)
    target = as_target("sgnht", posterior, None)
    step_sizes = as_schedule("sgnht", "step_size", step_size)
    temperature = _checks.number("sgnht", "temperature", temperature, above=0.0)
    temperatures = as_schedule("sgnht", "temperature", temperature)
    friction = _checks.number("sgnht", "friction", friction, above=0.0, below=1.0)
    injected = -math.log1p(-friction)
    rate = 0.5 * injected**2 if rate is None else _checks.number("sgnht", "rate", rate, above=0.0)
    mass = Mass(None, manifold, target.num_data)

    @in_full_precision
    def init(position: Position, rng_key: PRNGKey | None = None) -> SGNHTState:
        del rng_key  # BlackJAX's loops pass one
        manifold.validate(position, "position")
        position, dtypes = in_single_precision(position)
        tuned = untuned(step_sizes, position)
        start = jnp.asarray(injected, scalar_dtype(position))
        return SGNHTState(position, _tree.zeros_like(position), start, (), jnp.zeros((), jnp.int32), tuned, dtypes)

    @in_full_precision
    def step(rng_key: PRNGKey, state: SGNHTState, batch: PyTree = None) -> tuple[SGNHTState, StochasticInfo]:
        dtype, step_size = scalar_dtype(state.position), step_size_of("sgnht", step_sizes, state)
        potential, gradient = target.taking(state.dtypes).gradient(rng_key, state.position, batch)
        momentum = manifold.kick(state.position, state.momentum, g=scaled(step_size, gradient))
        position, momentum = mass.flow((), state.position, momentum, 0.5 * step_size)

        def adapted(now: Scalar, momentum: Momentum) -> Scalar:
            heat = 2.0 * manifold.kinetic_energy(position, momentum) / manifold.dim(position)
            change = 0.5 * rate * (heat.astype(dtype) - temperature)
            return now + jnp.where(step_size > 0, change, 0.0)  # a resting chain is cold

        now = adapted(state.friction, momentum)
        safe = jnp.where(jnp.abs(now) < 1e-6, 1e-6, now)
        drawn = -injected * temperature * jnp.expm1(-2.0 * safe) / safe
        noise = Noise(standard_normal(rng_key, position), drawn, jnp.zeros_like(drawn))
        momentum = manifold.kick(position, momentum, kept=jnp.exp(-now), noise=noise)
        now = adapted(now, momentum)
        position, momentum = mass.flow((), position, momentum, 0.5 * step_size)
        if not all(jax.tree.leaves(manifold.is_flat(position))):
            position = manifold.renormalize(position)
            momentum = manifold.project(position, momentum)
        heat, scale = jnp.asarray(temperature, dtype), jnp.ones((), dtype)
        info = info_of(manifold, position, potential, step_size, heat, scale)
        return SGNHTState(position, momentum, now, (), state.iteration + 1, state.tuned_step_size, state.dtypes), info

    def adapt(num_warmup: int, cycle: Cycle | None = None) -> Adaptation:
        del cycle  # the friction follows the noise of single batches

        def step_size(state: SGNHTState, stiffness: Stiffness) -> Scalar:
            del state  # noise adds at most a quarter to the friction
            return jax.lax.rsqrt(stiffness.curvature / 0.16 + 2.0 * stiffness.counted(stiffness.noise))

        return curvature_adaptation(target, mass, step_size, temperatures, num_warmup)

    settings = {
        "sampler": "sgnht",
        "manifold": manifold,
        "step_size": as_setting(step_size),
        "friction": friction,
        "temperature": temperature,
        "rate": rate,
    }
    return algorithm_of(init, step, adapt, settings, posterior, target, manifold=manifold)
