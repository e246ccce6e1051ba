r"""Stochastic-gradient Hamiltonian Monte Carlo on any manifold.

With friction :math:`\alpha`, temperature :math:`\tau`, step size :math:`\varepsilon` and a stochastic gradient of the
log density, one inner step in the order ``"paper"`` is (Yanush and Kropotov 2019, algorithm 2; Chen, Fox and Guestrin
2014, in the momentum :math:`r = v / \varepsilon`)

.. math::
    (x, r) &\leftarrow \mathrm{flow}(x, r, \varepsilon), \\
    r &\leftarrow (1 - \alpha)\, r + \varepsilon\, \hat\nabla \log\pi_B(x) + \xi, \qquad
    \mathrm{Cov}(\xi) = 2 \alpha \tau\, C_x - \varepsilon^2 V\, \hat C_x,

where :math:`C_x` is the covariance of a momentum draw, :math:`V` the variance of the noise in each entry of the
gradient and :math:`\hat C_x` the covariance of a kick by standard normal noise. On Stiefel's skew part the two differ
by a factor, so the deducted variance depends on the metric: with :math:`\beta = \varepsilon^2 V / 2` the noise is
:math:`2(\alpha\tau - \beta)` in the normal part and, in units of the momentum's variance,
:math:`2(\alpha\tau - 2\beta)`, :math:`2(\alpha\tau - \beta)` or :math:`2(\alpha\tau - 4\beta)` in the skew part of the
canonical, the embedded and the literal scheme. No factor of :math:`\varepsilon` is missing in the noise, and the
exact Ornstein-Uhlenbeck variance :math:`2\alpha - \alpha^2` would be wrong in this order: it samples at the temperature
:math:`1 - \alpha/2`.

In the order ``"baoab"`` (Leimkuhler and Matthews 2013) a step is half a kick, half a flow, the exact
Ornstein-Uhlenbeck move :math:`r \leftarrow (1 - \alpha) r + \xi` with

.. math::
    \mathrm{Cov}(\xi) = (2\alpha - \alpha^2) \tau\, C_x - (1 - \tfrac{\alpha}{2})^2 \varepsilon^2 V \hat C_x,

half a flow, half a kick. The two half kicks at one position share their gradient, so a step costs one gradient. In the
long run the noise of the gradient moves the position by :math:`1 - \alpha / 2` times as far as noise of the same size
that enters between the two half flows, which explains the factor.

In the order ``"ubu"`` (Sanz-Serna and Zygalakis 2021), for Euclidean leaves only, a full kick lies between two half
steps of the exact motion without a force, friction and noise included (:mod:`geodax.sgmcmc.underdamped`).

If each iteration draws a new momentum, as algorithm 2 does, it must be drawn from the distribution that the steps leave
invariant, and position and momentum must belong to the same time. In the order ``"paper"`` the momentum's variance is
:math:`1 / (1 - \alpha / 2)` and it is independent of the position halfway through a flow; so the first flow of an
iteration is half a flow, and the iteration ends with the other half. In the order ``"baoab"`` the variance is 1 and the
first kick is half a kick. With variance 1 and a full first flow, as printed, the variance of a standard normal target
is off by -2 to +16 per cent for :math:`\alpha = 0.1`, 10 inner steps and step sizes from 0.1 to 0.4.

A metric :math:`G` is the mass of the Euclidean leaves. Momenta are kept in units of :math:`G^{1/2}`: kicks and
velocities are multiplied by :math:`G^{-1/2}`, and the noise stays white.

At temperature 0 there is no noise, and the sampler is gradient descent with momentum :math:`1 - \alpha` and learning
rate :math:`\varepsilon^2` along the manifold's flow.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
from geodax.geometry.manifolds import AbstractManifold, as_manifold
from geodax.posterior import Posterior
from geodax.sgmcmc.control_variates import with_arrays
from geodax.sgmcmc.gradients import Perturbation, Target, as_target, clipped, inner_batch
from geodax.sgmcmc.info import StochasticInfo, info_of
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.metrics import AbstractMetric, Frozen, Identity
from geodax.sgmcmc.orderings import ORDERINGS, Dynamics, Moving, Step, dynamics_of
from geodax.sgmcmc.periodic import when
from geodax.sgmcmc.precision import LeafDtypes, in_single_precision, scalar_dtype, scaled
from geodax.sgmcmc.schedules import as_schedule
from geodax.sgmcmc.settings import algorithm_of, as_setting
from geodax.sgmcmc.step_sizes import Stiffness, curvature_adaptation, step_size_of, untuned


class SGHMCState(NamedTuple):
    """State of stochastic-gradient HMC between iterations.

    Attributes:
        position: Current draw.
        momentum: Its momentum, on Euclidean leaves in units of the square root of the metric.
        metric: State of the metric, an empty tuple without one.
        iteration: Number of completed iterations; the argument of the schedules.
        tuned_step_size: The step size found in warm-up if none was given; NaN before that.
        dtypes: The dtypes in which the log density takes the position.
    """

    position: Position
    momentum: Momentum
    metric: PyTree
    iteration: Array
    tuned_step_size: Scalar
    dtypes: LeafDtypes = LeafDtypes()


@with_arrays
def sghmc(
    posterior: Posterior | LogDensity,
    *,
    manifold: AbstractManifold | None = None,
    metric: Any = None,
    step_size: float | Schedule | None = None,
    friction: float = 0.1,
    temperature: float | Schedule = 1.0,
    num_inner_steps: int = 1,
    clip_norm: float | None = None,
    gradient_noise: float = 0.0,
    perturb_gradient: Perturbation | None = None,
    ordering: str = "paper",
    resample_momentum: bool = False,
    renormalize_every: int = 10,
    metric_warmup: int = 0,
) -> SamplingAlgorithm:
    """Stochastic-gradient Hamiltonian Monte Carlo.

    Args:
        posterior: A :class:`geodax.Posterior`, whose gradient is estimated from the batch of each step, or a log
            density of the position, whose gradient is exact.
        manifold: Geometry of the position; None is Euclidean space.
        metric: Mass of the Euclidean leaves, one of :mod:`geodax.metrics`; None is the identity. While it adapts, the
            stationary distribution is approximate, since no divergence is added: see :class:`geodax.metrics.Frozen`. A
            metric that follows the gradient (``Monge``) or would add its divergence (``RMSProp(gamma="averaged")``)
            must be frozen.
        step_size: Step size, or a schedule of the iteration; None finds one in warm-up by the rule of
            :mod:`geodax.sgmcmc.step_sizes`. Its square is the learning rate of gradient descent with momentum on the
            potential (the sum over the data, not the mean).
        friction: Fraction of the momentum that a step removes, in (0, 1]; 1 - friction is the momentum of gradient
            descent.
        temperature: Temperature, or a schedule. The number 0 trains instead of sampling.
        num_inner_steps: Number of steps per iteration. With a posterior each step takes its own batch.
        clip_norm: Largest norm of the ambient gradient of the mean potential, as for :func:`geodax.sgrld`; with several
            inner steps ``gradient_scale`` is the smallest of theirs. None disables clipping.
        gradient_noise: Known standard deviation of the noise in each entry of the ambient gradient. Its contribution is
            deducted from the injected noise unless the temperature is 0.
        perturb_gradient: ``(key, gradient) -> gradient``, user-defined noise on the ambient gradient.
        ordering: ``"paper"``; ``"baoab"``, several times more accurate at the same step size; or ``"ubu"``, as
            accurate, in Euclidean space. Batches add an error, small with ``batches(..., order="symmetric")``.
        resample_momentum: Whether each iteration starts with a new momentum, as in the paper; otherwise the momentum
            continues from one iteration to the next, starting at zero.
        renormalize_every: Number of steps between removals of the rounding error of position and momentum, at the end
            of an iteration. The polar flow does not need them and ignores it.
        metric_warmup: Number of initial iterations during which the position is fixed and only the metric learns; about
            100 for :class:`~geodax.metrics.Shampoo` with a given ``step_size``. They are part of the ``num_warmup`` of
            :func:`geodax.sample`.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init(position)`` and
        ``step(rng_key, state, batch)``.

    Raises:
        TypeError: For arguments of the wrong type.
        ValueError: For an argument out of its range, a metric that must be frozen, or gradient noise larger than the
            friction can absorb.
    """
    manifold = as_manifold("sghmc", manifold)
    target = as_target("sghmc", posterior, perturb_gradient)
    step_sizes = as_schedule("sghmc", "step_size", step_size)
    temperatures = as_schedule("sghmc", "temperature", temperature, least=0.0)
    is_training = not callable(temperature) and _checks.number("sghmc", "temperature", temperature, least=0.0) == 0.0
    friction = _checks.number("sghmc", "friction", friction, above=0.0, most=1.0)
    largest = None if clip_norm is None else _checks.number("sghmc", "clip_norm", clip_norm, above=0.0)
    gradient_variance = _checks.number("sghmc", "gradient_noise", gradient_noise, least=0.0) ** 2
    _checks.chosen("sghmc", "ordering", ordering, tuple(ORDERINGS))
    num_inner_steps = _checks.whole("sghmc", "num_inner_steps", num_inner_steps)
    renormalize_every = _checks.whole("sghmc", "renormalize_every", renormalize_every)
    _check_metric(metric)
    _check_noise(gradient_variance, friction, ordering, has_metric=metric is not None)
    num_waiting = _checks.whole("sghmc", "metric_warmup", metric_warmup, least=0)
    mass = Mass(metric, manifold, target.num_data)
    renormalized = _renormalized(manifold, max(1, renormalize_every // num_inner_steps))
    dynamics = dynamics_of(ordering, mass, friction, gradient_variance)

    @in_full_precision
    def init(position: Position, rng_key: PRNGKey | None = None) -> SGHMCState:
        del rng_key  # BlackJAX's loops pass one
        manifold.validate(position, "position")
        if ordering == "ubu" and not all(jax.tree.leaves(manifold.is_flat(position))):
            raise ValueError(
                "sghmc: the ordering 'ubu' is for Euclidean positions, found leaves on a manifold; use 'baoab'."
            )
        if gradient_variance and not is_training and step_sizes is not None:
            _check_capacity(manifold.noise_capacity(position))
        position, dtypes = in_single_precision(position)
        tuned = untuned(step_sizes, position)
        still = _tree.zeros_like(position)
        return SGHMCState(position, still, mass.init(position), jnp.zeros((), jnp.int32), tuned, dtypes)

    def _check_capacity(capacity: float) -> None:
        with jax.ensure_compile_time_eval():
            start = jnp.zeros((), jnp.int32)
            variance = dynamics.drawn * float(temperatures(start))
            noise = dynamics.deducted * float(step_sizes(start)) ** 2 * gradient_variance
        if variance > 0 and noise > capacity * variance:  # at temperature 0 no noise is injected or deducted
            raise ValueError(
                f"sghmc: the gradient's noise enters the momentum with variance {noise:.3g} a step, more than the "
                f"{capacity * variance:.3g} that the friction removes at this temperature on this manifold. Use a "
                "larger friction or a smaller step_size."
            )

    @in_full_precision
    def step(rng_key: PRNGKey, state: SGHMCState, batch: PyTree = None) -> tuple[SGHMCState, StochasticInfo]:
        dtype, step_size = scalar_dtype(state.position), step_size_of("sghmc", step_sizes, state, num_waiting)
        temperature = temperatures(state.iteration).astype(dtype)
        key_momentum, key_steps = jax.random.split(rng_key)
        momentum = state.momentum
        if resample_momentum:
            root = jnp.sqrt(temperature * dynamics.fresh_variance)
            fresh = manifold.momentum(state.position, standard_normal(key_momentum, state.position))
            momentum = scaled(root, fresh)

        def inner(index: Array, carry):
            moving, (_, least) = carry
            key_gradient, key_noise = jax.random.split(jax.random.fold_in(key_steps, index))
            part = inner_batch(batch, index, num_inner_steps)
            # a new momentum belongs to the time of the position; a continued one is half a flow or kick behind
            share = jnp.where(index == 0, 0.5, 1.0).astype(dtype) if resample_momentum else jnp.ones((), dtype)

            def gradient_at(position: Position) -> tuple[tuple[Scalar, Scalar], PyTree]:
                potential, gradient = target.taking(state.dtypes).gradient(key_gradient, position, part)
                gradient, scale = clipped(gradient, largest, target.num_data)
                return (potential, scale), gradient

            at = Step(key_noise, gradient_at, step_size, None if is_training else temperature, share)
            moving, (potential, scale) = dynamics.take(dynamics, at, moving)
            return moving, (potential.astype(dtype), jnp.minimum(least, scale))

        carry = (Moving(state.position, momentum, state.metric), (jnp.zeros((), dtype), jnp.ones((), dtype)))
        if num_inner_steps == 1:
            carry = inner(jnp.zeros((), jnp.int32), carry)
        else:
            carry = jax.lax.fori_loop(0, num_inner_steps, inner, carry)
        (position, momentum, metric_state), (potential, least) = carry
        if resample_momentum and ordering == "paper":
            position, momentum = mass.flow(metric_state, position, momentum, 0.5 * step_size)
        iteration = state.iteration + 1
        position, momentum = renormalized(iteration, position, momentum)
        info = info_of(manifold, position, potential, step_size, temperature, least)
        return SGHMCState(position, momentum, metric_state, iteration, state.tuned_step_size, state.dtypes), info

    adapt = _adaptation(target, dynamics, temperatures, num_inner_steps, None if resample_momentum else friction)
    settings = {
        "sampler": "sghmc",
        "manifold": manifold,
        "metric": metric,
        "step_size": as_setting(step_size),
        "friction": friction,
        "temperature": as_setting(temperature),
        "num_inner_steps": num_inner_steps,
        "clip_norm": largest,
        "gradient_noise": as_setting(gradient_noise),
        "perturb_gradient": perturb_gradient is not None,
        "ordering": ordering,
        "resample_momentum": bool(resample_momentum),
        "renormalize_every": renormalize_every,
        "metric_warmup": num_waiting,
    }
    facts = {"manifold": manifold, "num_batches": num_inner_steps, "num_waiting": num_waiting}
    first = target.changed(lambda of: lambda position, batch: of(position, inner_batch(batch, 0, num_inner_steps)))
    return algorithm_of(init, step, adapt, settings, posterior, first, **facts)


def _renormalized(
    manifold: AbstractManifold, num_iterations: int
) -> Callable[[Array, Position, Momentum], tuple[Position, Momentum]]:
    """Function that removes the rounding error of position and momentum in each ``num_iterations``-th iteration."""

    def remove(pair: tuple[Position, Momentum]) -> tuple[Position, Momentum]:
        position = manifold.renormalize(pair[0])
        return position, manifold.project(position, pair[1])

    def renormalized(iteration: Array, position: Position, momentum: Momentum) -> tuple[Position, Momentum]:
        if all(jax.tree.leaves(manifold.corrects_itself(position))):
            return position, momentum
        if num_iterations == 1:
            return remove((position, momentum))
        return when(iteration % num_iterations == 0, remove, (position, momentum))

    return renormalized


def _adaptation(
    target: Target, dynamics: Dynamics, temperatures: Schedule, num_inner_steps: int, friction: float | None
) -> Callable[..., Adaptation]:
    """The adaptation of the step size, with the friction of a momentum that passes from batch to batch, or None."""
    mass, known = dynamics.mass, dynamics.gradient_variance

    def adapt(num_warmup: int, cycle: Cycle | None = None) -> Adaptation:
        left = 0.0
        if friction is None:
            cycle = None
        elif cycle is not None:
            left = (cycle.num_batches + 1) * min(cycle.num_batches / 12, 1 / (3 * friction))

        def step_size(state: SGHMCState, stiffness: Stiffness) -> Scalar:
            unknown = jnp.maximum(stiffness.noise - known, 0.0)
            capacity = mass.manifold.noise_capacity(state.position)  # 0 where no noise can be deducted
            taken = stiffness.beta * known / capacity if known else 0.0
            heat = dynamics.deducted / dynamics.drawn
            curvature = stiffness.curvature / 0.16 + heat * taken
            return jnp.sqrt(stiffness.largest(curvature, 10.0 * heat, unknown, cycle, left))

        found = curvature_adaptation(target, mass, step_size, temperatures, num_warmup)

        def update(*args: Any) -> tuple[Any, SGHMCState]:
            # of several batches the first, before devices divide its examples
            return found.update(*args[:5], *(inner_batch(batch, 0, num_inner_steps) for batch in args[5:]))

        return found._replace(update=update)

    return adapt


def _check_noise(gradient_variance: float, friction: float, ordering: str, has_metric: bool) -> None:
    if has_metric and gradient_variance:
        raise ValueError(
            "sghmc: gradient_noise is isotropic noise of the gradient in the units of the position and cannot be "
            "deducted under a metric; leave one of the two out."
        )
    if ordering == "ubu" and (gradient_variance or friction == 1):
        raise ValueError(
            "sghmc: the ordering 'ubu' needs a friction below 1 and cannot deduct gradient_noise; use 'baoab' for that."
        )


def _check_metric(metric: Any) -> None:
    if metric is None:
        return
    if not isinstance(metric, AbstractMetric):
        raise TypeError(
            f"sghmc: metric must be one of gx.metrics, such as gx.metrics.RMSProp(), found {_checks.described(metric)}."
        )
    has_divergence = metric.has_exact_drift and not isinstance(metric, Identity | Frozen)
    if metric.needs_curvature or has_divergence or not metric.is_steady:
        reason = "needs its divergence, which sghmc does not add" if metric.is_steady else "follows the gradient"
        raise ValueError(
            f"sghmc: the metric {type(metric).__name__} {reason}, so draws would not follow the target. Pass "
            "gx.metrics.Frozen(metric, after=num_warmup), which is constant after the warm-up, or use gx.sgrld."
        )
