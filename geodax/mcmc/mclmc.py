r"""Microcanonical Langevin Monte Carlo on any manifold, unadjusted and with a Metropolis step.

Both move by isokinetic dynamics (:mod:`geodax.mcmc.isokinetic`). :func:`mclmc` (Robnik and Seljak 2024) takes one step
of size :math:`\varepsilon` an iteration, mixes the momentum with a new one,

.. math::
    r \leftarrow \sqrt{d - 1}\; \frac{r + \nu z}{|r + \nu z|_*}, \qquad \nu = \sqrt{e^{2 \varepsilon / L} - 1},

with a Gaussian momentum :math:`z`, and accepts every step. :func:`adjusted_mclmc` (Robnik, Cohn-Gordon and Seljak 2025)
draws a uniform direction, takes several steps and accepts their end with probability :math:`\min(1, e^{-\Delta})`,
where :math:`\Delta` is the change of :math:`\sum\kappa - \log\pi`.

The energy error :math:`\Delta` of a single step tells the bias of the unadjusted form: warm-up finds the step size with
:math:`\mathrm{E}\, \Delta^2 = d \cdot` ``energy_variance`` from a moving average of :math:`\Delta^2 / \varepsilon^6`,
in which errors far from the target have less weight (Robnik and Seljak 2024). The length is :math:`L = 2
\sqrt{\mathrm{mean}\, v_i / s_i^2}` with the variances and the scales of the last window: twice the size of the
posterior in units of the scales.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _tree
from geodax._precision import in_full_precision
from geodax._types import Adaptation, Array, Description, Momentum, Position, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold, as_manifold
from geodax.mcmc.hmc import trajectory_sampler
from geodax.mcmc.integrators import IntegratorState, energy, energy_error, logdensity_and_gradient, point_of
from geodax.mcmc.isokinetic import Isokinetic, IsokineticMomentum, isokinetic_leapfrog
from geodax.mcmc.kernels import check_arguments, check_density
from geodax.mcmc.mass_matrix import Correlation, MassMatrix, initial_mass
from geodax.mcmc.step_size import NO_STEP_SIZE, known_step_size, with_first_step_size
from geodax.mcmc.trajectories import DIVERGENCE_THRESHOLD, Integrator
from geodax.mcmc.warmup import WarmupState, Window, moments, window_adaptation, window_schedule

_POWER = 6.0  # of the step size to which squared energy errors grow
_MEMORY = 149.0 / 151.0  # decay per iteration
_TRUST = 9.0  # how far, as a logarithm, an energy error may be from its target without losing weight
_PRIOR = 2.0  # weight, in iterations, of the step size that a search has found
_MOST = math.exp(_POWER)  # bound for one ratio of a squared energy error to its target
_FIRST_ACCEPTANCE = 0.65  # of a single step at the end of a search
_LENGTH = 2.0  # in units of the size of the posterior


class MCLMCState(NamedTuple):
    """State of unadjusted MCLMC between iterations.

    Attributes:
        momentum: Momentum in units of the scales, of squared norm ``dim - 1``; zero where the next iteration draws
            a new one.
        logdensity_grad: Tangent gradient of the log density, from the manifold's ``gradient``.
        step_size: Step size in units of the scales; ``()`` before the warm-up that finds it.
        length: Time over which a momentum is forgotten, in the same units.
        scale: As for HMC (:class:`~geodax.mcmc.kernels.HMCState`).
        correlation: As for HMC.
    """

    position: Position
    momentum: Momentum
    logdensity: Scalar
    logdensity_grad: PyTree
    step_size: Scalar
    length: Scalar
    scale: PyTree
    correlation: Correlation | tuple[()] = ()


class MCLMCInfo(NamedTuple):
    """Scalars that describe one iteration of unadjusted MCLMC.

    Attributes:
        energy_change: Energy error of the step.
        is_divergent: Whether its modulus passed 1,000 or it became undefined, or the flow left the manifold. The chain
            then stays and draws a new momentum.
        num_integration_steps: One.
        residual: Distance of the draw from the manifold.
    """

    energy_change: Scalar
    is_divergent: Array
    num_integration_steps: Array
    residual: Scalar


def adjusted_mclmc(
    logdensity_fn: Callable[..., Scalar],
    *,
    manifold: AbstractManifold | None = None,
    step_size: float | None = None,
    num_integration_steps: int | np.integer | None = None,
    length_jitter: float = 0.0,
    mass_matrix: str | None = None,
    target_acceptance_rate: float = 0.9,
) -> SamplingAlgorithm:
    """Metropolis-adjusted microcanonical sampler: HMC with motion at constant speed.

    Args:
        logdensity_fn: As for :func:`geodax.hmc`.
        manifold: Geometry of the position, of at least 2 dimensions; None is a pytree of unconstrained arrays.
        step_size: Step size; None finds it during the warm-up of :func:`geodax.sample`, together with the
            scales of the leaves. In a loop of your own give one.
        num_integration_steps: Number of steps of a trajectory, as for :func:`geodax.hmc`: None lets warm-up find one
            length for all chains.
        length_jitter: As for :func:`geodax.hmc`.
        mass_matrix: As for :func:`geodax.nuts`.
        target_acceptance_rate: Target of the warm-up.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init`` and ``step``.

    Raises:
        ValueError: For an argument out of its range, a position of one dimension, or a manifold whose flow is not
            symplectic.
        TypeError: For arguments of the wrong type.
    """
    return trajectory_sampler(
        "adjusted_mclmc",
        logdensity_fn,
        manifold=manifold,
        step_size=step_size,
        num_integration_steps=num_integration_steps,
        length_jitter=length_jitter,
        step_size_jitter=0.0,
        mass_matrix=mass_matrix,
        target_acceptance_rate=target_acceptance_rate,
        is_isokinetic=True,
    )


def mclmc(
    logdensity_fn: Callable[..., Scalar],
    *,
    manifold: AbstractManifold | None = None,
    step_size: float | None = None,
    length: float | None = None,
    mass_matrix: str | None = None,
    energy_variance: float = 5e-4,
) -> SamplingAlgorithm:
    """Unadjusted microcanonical Langevin Monte Carlo: one gradient an iteration, and a bias from its step size.

    Args:
        logdensity_fn: As for :func:`geodax.hmc`.
        manifold: Geometry of the position, connected and of at least 2 dimensions; None is a pytree of unconstrained
            arrays.
        step_size: Step size; None finds it during the warm-up of :func:`geodax.sample`, together with the
            scales of the leaves. In a loop of your own give one.
        length: Time over which a momentum is forgotten, in units of the scales. None lets warm-up find it; with a given
            ``step_size`` nothing is tuned, and None means 2.
        mass_matrix: As for :func:`geodax.nuts`.
        energy_variance: Target of the warm-up: mean squared energy error of a step per dimension. Smaller values have a
            smaller bias and a smaller step size, by the power 1/6.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init`` and ``step``. Successive draws are
        correlated; keep fewer with ``thinning``.

    Raises:
        ValueError: For an argument out of its range, a position of one dimension or with two components, or a manifold
            whose flow is not symplectic.
        TypeError: For arguments of the wrong type.
    """
    geometry = as_manifold("mclmc", manifold)
    check_arguments("mclmc", logdensity_fn, geometry, mass_matrix, is_isokinetic=True)
    energy_variance = _checks.number("mclmc", "energy_variance", energy_variance, above=0.0)
    if step_size is not None:
        step_size = _checks.number("mclmc", "step_size", step_size, above=0.0)
    if length is not None:
        length = _checks.number("mclmc", "length", length, above=0.0)
    evaluate = logdensity_and_gradient(logdensity_fn, geometry)
    isokinetic = Isokinetic(geometry)
    integrator = isokinetic_leapfrog(evaluate, isokinetic)

    @in_full_precision
    def init(position: Position, rng_key: PRNGKey | None = None) -> MCLMCState:
        del rng_key  # BlackJAX's loops pass one
        isokinetic.validate(position, "position")
        if not geometry.is_connected(position):
            raise ValueError(
                "mclmc: the position is a square orthogonal matrix, whose two components only a Metropolis step "
                "connects; use adjusted_mclmc, nuts or hmc."
            )
        check_density("mclmc", logdensity_fn, position)
        dtype = _tree.real_dtype(position)
        return MCLMCState(
            position,
            _tree.zeros_like(position),
            *evaluate(position),
            NO_STEP_SIZE if step_size is None else jnp.asarray(step_size, dtype),
            jnp.asarray(_LENGTH if length is None else length, dtype),
            *initial_mass(mass_matrix if step_size is None else "diagonal", geometry, position),
        )

    def adapt(num_warmup: int) -> Adaptation:
        return _adaptation(integrator, isokinetic, num_warmup, energy_variance, length)

    def bind(*args: PyTree) -> SamplingAlgorithm:
        return mclmc(lambda position: logdensity_fn(position, *args), **settings)

    settings = {
        "manifold": manifold,
        "step_size": step_size,
        "length": length,
        "mass_matrix": mass_matrix,
        "energy_variance": energy_variance,
    }
    description = Description((("sampler", "mclmc"), *settings.items()), bind=bind)
    step = _kernel(integrator, isokinetic)
    if step_size is not None:
        return SamplingAlgorithm(init, step, None, geometry, description=description)
    description = description._replace(adapted=("step_size", "length", "scale", "correlation"))
    return SamplingAlgorithm(init, step, adapt, geometry, description=description)


def _kernel(integrator: Integrator, manifold: Isokinetic):
    @in_full_precision
    def step(rng_key: PRNGKey, state: MCLMCState) -> tuple[MCLMCState, MCLMCInfo]:
        step_size = known_step_size("mclmc", state)
        time = step_size / state.length
        direction = manifold.refresh(rng_key, state.position, state.momentum, time)
        momentum = IsokineticMomentum(direction, jnp.zeros_like(step_size))
        start = IntegratorState(state.position, momentum, state.logdensity, state.logdensity_grad)
        end = integrator(start, step_size, MassMatrix(state.scale, state.correlation))
        change = energy_error(energy(start, manifold), energy(end, manifold))
        residual = manifold.residual(end.position)
        is_good = (jnp.abs(change) <= DIVERGENCE_THRESHOLD) & (residual <= jnp.sqrt(jnp.finfo(residual.dtype).eps))
        is_good &= _tree.is_finite(end.logdensity_grad)
        point = _tree.where(is_good, point_of(end), point_of(state))
        point = point._replace(position=manifold.renormalize(point.position))
        momentum = _tree.where(is_good, end.momentum.direction, _tree.zeros_like(direction))
        new = state._replace(**point._asdict(), momentum=momentum)
        return new, MCLMCInfo(change, ~is_good, jnp.ones((), jnp.int32), manifold.residual(point.position))

    return step


class _Errors(NamedTuple):
    """Weighted mean of squared energy errors per sixth power of the step size, relative to a reference.

    Attributes:
        reference: A step size at which the mean is one.
        total: Sum of the weighted ratios.
        weight: Sum of the weights.
    """

    reference: Scalar
    total: Scalar
    weight: Scalar


class MCLMCWarmup(NamedTuple):
    """State of the warm-up of one chain: that of HMC, and what the search for the step size has seen."""

    windows: WarmupState
    errors: _Errors


def _restarted(step_size: Scalar) -> _Errors:
    prior = jnp.full_like(step_size, _PRIOR)
    return _Errors(step_size, prior, prior)


def _observed(errors: _Errors, ratio: Scalar, step_size: Scalar) -> _Errors:
    """Add the ratio of a squared energy error to its target."""
    ratio = jnp.where(jnp.isfinite(ratio), jnp.minimum(ratio, _MOST), _MOST).astype(step_size.dtype)
    distance = jnp.log(jnp.maximum(ratio, 1.0 / _MOST)) / _TRUST
    weight = jnp.exp(-0.5 * distance**2)
    total = _MEMORY * errors.total + weight * ratio * (errors.reference / step_size) ** _POWER
    return errors._replace(total=total, weight=_MEMORY * errors.weight + weight)


def _adaptation(
    integrator: Integrator, manifold: Isokinetic, num_warmup: int, energy_variance: float, length: float | None
) -> Adaptation:
    """The windows of HMC's warm-up, with a step size from energy errors and with the length of each window."""
    inner = window_adaptation(integrator, manifold, num_warmup=num_warmup, target_acceptance_rate=_FIRST_ACCEPTANCE)
    _, is_end = window_schedule(num_warmup)

    def init(state: MCLMCState) -> MCLMCWarmup:
        return MCLMCWarmup(inner.init(state), _restarted(state.step_size))

    def update(rng_key: PRNGKey, warmup: MCLMCWarmup, state: MCLMCState, info: MCLMCInfo, step: Array):
        ratio = info.energy_change**2 / (manifold.dim(state.position) * energy_variance)
        errors = _observed(warmup.errors, ratio, state.step_size)
        found = errors.reference * (errors.total / errors.weight) ** (-1.0 / _POWER)
        window = warmup.windows.window
        windows, state = inner.update(rng_key, warmup.windows, state, _Observation(jnp.exp(-ratio)), step)
        # at the end of a window the scales change, and the search for a step size may have moved the chain
        is_end_now = jnp.asarray(is_end)[step]
        is_restart = is_end_now | (step == 0)
        longest = jnp.asarray(manifold.max_time(state.position, state.scale), found.dtype)
        errors = _tree.where(is_restart, _restarted(state.step_size), errors)
        state = state._replace(
            step_size=jnp.where(is_restart, state.step_size, jnp.minimum(found, longest)),
            momentum=_tree.where(is_restart, _tree.zeros_like(state.momentum), state.momentum),
        )
        if length is None:
            found = (_LENGTH * _size(manifold, window, state.scale)).astype(state.length.dtype)
            is_known = is_end_now & (found > 0) & jnp.isfinite(found)
            state = state._replace(length=jnp.where(is_known, found, state.length))
        return MCLMCWarmup(windows, errors), state

    return Adaptation(init, update, with_first_step_size)


class _Observation(NamedTuple):
    """The part of an info that HMC's warm-up reads; the step size that it finds between searches is not used."""

    acceptance_rate: Scalar


def _size(manifold: AbstractManifold, window: Window, scale: PyTree) -> Scalar:
    """Root mean square over the dimensions of the deviations from the mean, in units of the scales."""
    squares = jax.tree.map(
        lambda degrees, v, s: jnp.sum(degrees * v / s**2),
        manifold.degrees_of_freedom(window.anchor),
        moments(window, manifold)[0],
        scale,
    )
    return jnp.sqrt(_tree.total(jax.tree.leaves(squares)) / manifold.dim(window.anchor))
