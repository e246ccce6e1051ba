"""Ordered positive numbers, such as singular values, from unconstrained ones."""

import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array


def ordered_scales(log_gaps: Float[Array, " r"]) -> Float[Array, " r"]:
    """Convert log gaps to descending positive numbers, by cumulative sums from the smallest upwards."""
    return jnp.cumsum(jnp.exp(log_gaps)[::-1])[::-1]
