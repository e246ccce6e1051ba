"""The settings of an algorithm, by which a checkpoint of one sampler is distinguished from that of another."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from geodax._types import Description, LogDensity, Position, PyTree, Scalar
from geodax.posterior import Posterior
from geodax.sgmcmc.gradients import Target


def as_setting(value: Any) -> Any:
    """Convert a number, a schedule or None, as accepted by :func:`geodax.sgmcmc.schedules.as_schedule`."""
    return value if value is None or callable(value) else float(value)


def described(
    settings: Mapping[str, Any], posterior: Posterior | LogDensity, target: Target, num_waiting: int = 0
) -> Description:
    """Describe a sampler by its settings and its target, as :func:`_named_densities`."""
    densities = _named_densities(posterior, target)
    log_likelihood = posterior.log_likelihood if isinstance(posterior, Posterior) else None
    return Description(tuple(settings.items()), densities, num_waiting, log_likelihood=log_likelihood)


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
