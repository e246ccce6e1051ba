"""What an algorithm says of itself, by which a checkpoint of one sampler is told from one of another."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from geodax._types import LogDensity, Position, PyTree, Scalar
from geodax.posterior import Posterior


def as_setting(value: Any) -> Any:
    """A number, a schedule or None that :func:`geodax.sgmcmc.schedules.as_schedule` has let pass."""
    return value if value is None or callable(value) else float(value)


def named_densities(
    posterior: Posterior | LogDensity, logdensity: Callable[[Position, PyTree], Scalar]
) -> tuple[tuple[str, Callable[[Position, PyTree], Scalar]], ...]:
    """The functions that make a target.

    Args:
        posterior: What the user gave.
        logdensity: Its log density at a position, estimated from the batches of an iteration.

    Returns:
        The log density, before it a posterior's log prior, beside which a likelihood is large: names and functions of
        position and batch.
    """
    whole = ("log density", logdensity)
    if not isinstance(posterior, Posterior):
        return (whole,)
    return ("log prior", lambda position, batch: jnp.asarray(posterior.log_prior(position))), whole
