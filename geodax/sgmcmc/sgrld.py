r"""Stochastic-gradient Riemannian Langevin dynamics in any metric.

With a stochastic gradient of the log density, step size h, temperature :math:`\tau` and a metric G,

.. math::
    \theta \leftarrow \theta + h\, G^{-1} \nabla\log\pi_B(\theta) + \sqrt{2 \tau h}\; G^{-1/2} \xi
    + \tau h\, \Gamma(\theta), \qquad \Gamma_i = \sum_j \partial_j (G^{-1})_{ij},

(Welling and Teh 2011; Patterson and Teh 2013; Ma, Chen and Fox 2015; Yu, Hartmann, Williams and Klami 2023). The step
is computed by two applications of the root:
:math:`G^{-1/2} (h G^{-1/2} \nabla\log\pi_B + \sqrt{2 \tau h}\, \xi)`. The metric learns from the mean gradient over the
n examples, :math:`\hat g = -\nabla\log\pi_B / n`; the learning rate of gradient descent on the mean potential is
:math:`\ell = h n`.

For a Gaussian target of precision P and a constant metric the stationary precision is exactly
:math:`(P - \tfrac{h}{2} P G^{-1} P) / \tau`: the bias is of first order in h.
"""

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
    Position,
    PRNGKey,
    PyTree,
    SamplingAlgorithm,
    Scalar,
    Schedule,
)
from geodax.geometry.manifolds import Euclidean
from geodax.posterior import Posterior
from geodax.sgmcmc.control_variates import with_arrays
from geodax.sgmcmc.gradients import Perturbation, Target, as_target, clipped
from geodax.sgmcmc.info import StochasticInfo, info_of
from geodax.sgmcmc.mass import Mass
from geodax.sgmcmc.metrics import AbstractMetric, Curvature, Identity
from geodax.sgmcmc.metrics.base import require_real
from geodax.sgmcmc.precision import LeafDtypes, in_single_precision, scalar_dtype, scaled
from geodax.sgmcmc.schedules import as_schedule
from geodax.sgmcmc.settings import algorithm_of, as_setting
from geodax.sgmcmc.step_sizes import Stiffness, curvature_adaptation, step_size_of, untuned


class SGRLDState(NamedTuple):
    """State of stochastic-gradient Langevin dynamics between iterations.

    Attributes:
        position: Current draw.
        metric: State of the metric.
        iteration: Number of completed iterations; the argument of the schedules.
        tuned_step_size: The step size found in warm-up if none was given; NaN before that.
        dtypes: The dtypes in which the log density takes the position.
    """

    position: Position
    metric: PyTree
    iteration: Array
    tuned_step_size: Scalar
    dtypes: LeafDtypes = LeafDtypes()


@with_arrays
def sgrld(
    posterior: Posterior | LogDensity,
    *,
    metric: Any = None,
    step_size: float | Schedule | None = None,
    temperature: float | Schedule = 1.0,
    clip_norm: float | None = None,
    metric_warmup: int = 0,
    perturb_gradient: Perturbation | None = None,
) -> SamplingAlgorithm:
    """Stochastic-gradient Riemannian Langevin dynamics.

    Args:
        posterior: A :class:`geodax.Posterior`, whose gradient is estimated from the batch of each step, or a log
            density of the position, whose gradient is exact.
        metric: One of :mod:`geodax.metrics`; None is the identity.
        step_size: Step size h, or a schedule of the iteration; None finds one in warm-up by the rule of
            :mod:`geodax.sgmcmc.step_sizes`. The learning rate on the mean potential is h times the number of examples.
        temperature: Temperature, or a schedule. The number 0 trains instead of sampling.
        clip_norm: Largest norm of the gradient of the mean potential; a longer gradient is rescaled, which is reported
            as ``gradient_scale`` and changes the stationary distribution. None disables clipping.
        metric_warmup: Number of initial iterations during which the position is fixed and only the metric learns; they
            are part of the ``num_warmup`` of :func:`geodax.sample`.
        perturb_gradient: ``(key, gradient) -> gradient``, user-defined noise on the gradient.

    Returns:
        The algorithm, for :func:`geodax.sample` or for manual use through ``init(position)`` and
        ``step(rng_key, state, batch)``.

    Raises:
        TypeError: For arguments of the wrong type.
        ValueError: For an argument out of its range.
    """
    metric = Identity() if metric is None else metric
    if not isinstance(metric, AbstractMetric):
        raise TypeError(
            f"sgrld: metric must be one of gx.metrics, such as gx.metrics.Monge(), found {_checks.described(metric)}."
        )
    target = as_target("sgrld", posterior, perturb_gradient)
    step_sizes = as_schedule("sgrld", "step_size", step_size)
    temperatures = as_schedule("sgrld", "temperature", temperature, least=0.0)
    is_training = not callable(temperature) and _checks.number("sgrld", "temperature", temperature, least=0.0) == 0.0
    largest = None if clip_norm is None else _checks.number("sgrld", "clip_norm", clip_norm, above=0.0)
    num_waiting = _checks.whole("sgrld", "metric_warmup", metric_warmup, least=0)
    space = Euclidean()

    @in_full_precision
    def init(position: Position, rng_key: PRNGKey | None = None) -> SGRLDState:
        del rng_key  # BlackJAX's loops pass one
        space.validate(position, "position")
        require_real("sgrld", position)
        position, dtypes = in_single_precision(position)
        tuned = untuned(step_sizes, position)
        return SGRLDState(position, metric.init(position), jnp.zeros((), jnp.int32), tuned, dtypes)

    def evaluate(target: Target, key: PRNGKey, position: Position, batch: PyTree) -> tuple[Scalar, PyTree, Any]:
        """Potential, gradient of the log density, and Hessian product of the mean potential."""
        if not metric.needs_curvature:
            return *target.gradient(key, position, batch), None

        def both(position: Position) -> tuple[PyTree, Scalar]:
            potential, gradient = target.gradient(key, position, batch)
            return gradient, potential

        gradient, product, potential = jax.linearize(both, position, has_aux=True)
        return potential, gradient, lambda v: _tree.scale(-1.0 / target.num_data, product(v))

    @in_full_precision
    def step(rng_key: PRNGKey, state: SGRLDState, batch: PyTree = None) -> tuple[SGRLDState, StochasticInfo]:
        dtype, step_size = scalar_dtype(state.position), step_size_of("sgrld", step_sizes, state, num_waiting)
        temperature = temperatures(state.iteration).astype(dtype)
        key_gradient, key_probe, key_noise = jax.random.split(rng_key, 3)
        position = state.position
        potential, gradient, product = evaluate(target.taking(state.dtypes), key_gradient, position, batch)
        gradient, scale = clipped(gradient, largest, target.num_data)
        mean_gradient = _tree.scale(-1.0 / target.num_data, gradient)
        learnt = metric.update(state.metric, position, mean_gradient)
        used = state.metric if metric.is_lagged else learnt
        move = scaled(step_size, metric.apply_inverse_sqrt(used, gradient))
        if not is_training:
            noise = standard_normal(key_noise, position)
            move = _tree.add(move, scaled(jnp.sqrt(2.0 * temperature * step_size), noise))
        moved = _tree.add(position, metric.apply_inverse_sqrt(used, move))
        if not is_training:
            curvature = None
            if metric.needs_curvature:
                curvature = Curvature(mean_gradient, product, key_probe, step_size * target.num_data)
            drift = metric.drift(used, position, curvature)
            moved = _tree.add(moved, scaled(temperature * step_size, drift))
        info = info_of(space, moved, potential, step_size, temperature, scale)
        return SGRLDState(moved, learnt, state.iteration + 1, state.tuned_step_size, state.dtypes), info

    def adapt(num_warmup: int, cycle: Cycle | None = None) -> Adaptation:
        def step_size(state: SGRLDState, stiffness: Stiffness) -> Scalar:
            del state
            left = 0.0 if cycle is None else (cycle.num_batches + 1) / 3
            return 0.2 * stiffness.largest(stiffness.curvature, 1.0, stiffness.noise, cycle, 0.2 * left)

        return curvature_adaptation(target, Mass(metric, space, target.num_data), step_size, temperatures, num_warmup)

    settings = {
        "sampler": "sgrld",
        "metric": metric,
        "step_size": as_setting(step_size),
        "temperature": as_setting(temperature),
        "clip_norm": largest,
        "metric_warmup": num_waiting,
        "perturb_gradient": perturb_gradient is not None,
    }
    return algorithm_of(init, step, adapt, settings, posterior, target, manifold=space, num_waiting=num_waiting)
