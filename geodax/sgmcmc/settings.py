"""The settings of an algorithm, by which a checkpoint of one sampler is distinguished from that of another."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from geodax._types import Adaptation, Description, LogDensity, Position, PyTree, SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.posterior import Posterior
from geodax.sgmcmc.gradients import Target


def as_setting(value: Any) -> Any:
    """Convert a number, a schedule or None, as accepted by :func:`geodax.sgmcmc.schedules.as_schedule`."""
    return value if value is None or callable(value) else float(value)


def algorithm_of(
    init: Callable[..., Any],
    step: Callable[..., Any],
    adapt: Callable[..., Adaptation],
    settings: Mapping[str, Any],
    posterior: Posterior | LogDensity,
    target: Target,
    *,
    manifold: AbstractManifold,
    num_batches: int = 1,
    num_waiting: int = 0,
) -> SamplingAlgorithm:
    """Make a sampler of its functions, with its settings by name; it adapts without a step size."""
    densities = _named_densities(posterior, target)
    log_likelihood = posterior.likelihoods if isinstance(posterior, Posterior) else None
    return SamplingAlgorithm(
        init,
        step,
        adapt if settings["step_size"] is None else None,
        manifold,
        num_batches=num_batches if target.needs_batch else 0,
        num_data=target.num_data if target.needs_batch else 0,
        description=Description(tuple(settings.items()), densities, num_waiting, log_likelihood=log_likelihood),
    )


def _named_densities(
    posterior: Posterior | LogDensity, target: Target
) -> tuple[tuple[str, Callable[[Position, PyTree], Scalar]], ...]:
    """Name the functions of position and batch that define a target.

    For a posterior its log prior comes first, since the likelihood is large compared with it.
    """
    if target.control is None:
        whole = ("log density", target.logdensity)
    else:
        whole = ("log density", lambda position, batch: target.gradients(batch, position)[0][0])
    if not isinstance(posterior, Posterior):
        return (whole,)
    return ("log prior", lambda position, batch: jnp.asarray(posterior.log_prior(position))), whole
