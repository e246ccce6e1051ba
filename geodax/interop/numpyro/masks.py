"""Masked cells of sites: observations that do not count, and latent entries that nothing determines."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from geodax._types import Array, PRNGKey
from geodax.interop.numpyro.separation import reusable

_NUM_POINTS = 8


def counted_cells(distribution: Any) -> Array | bool:
    """Return which cells of the batch of a distribution enter its log density; True for all of them."""
    if isinstance(distribution, dist.MaskedDistribution):
        inner, mask = counted_cells(distribution.base_dist), distribution._mask
        return mask if inner is True and isinstance(mask, bool) else jnp.logical_and(inner, mask)
    if isinstance(distribution, dist.Independent | dist.ExpandedDistribution):
        inner = counted_cells(distribution.base_dist)
        if isinstance(inner, bool):
            return inner
        if isinstance(distribution, dist.Independent):  # a cell counts if a part of it counts
            return jnp.any(inner, axis=tuple(range(-distribution.reinterpreted_batch_ndims, 0)))
        return jnp.broadcast_to(inner, distribution.batch_shape)
    return True


def refuse_flat(sites: Mapping[str, Any], gradient: Callable[[PRNGKey], Mapping[str, Array]]) -> None:
    """Raise ValueError for entries of masked or improper sites along which the log density is constant.

    The gradient of the log density is one at a random point.
    """
    suspects = [
        name
        for name, distribution in sites.items()
        if counted_cells(distribution) is not True or isinstance(distribution, dist.ImproperUniform)
    ]
    if not suspects:
        return
    keys = jax.random.split(jax.random.key(0), _NUM_POINTS)
    slopes = reusable(jax.vmap(lambda key: {name: gradient(key)[name] for name in suspects}), keys)(keys)
    for name, values in slopes.items():
        is_flat = jnp.all(values == 0, axis=0)
        if bool(is_flat.any()):
            raise ValueError(
                f"to_geodax: the log density does not depend on {int(is_flat.sum())} of the {is_flat.size} numbers of "
                f"the latent site {name!r}: their posterior is improper, and chains drift along them without bound. "
                "obs_mask creates such numbers for all observed cells, handlers.mask for latent cells. Instead of "
                "obs_mask, observe the site under numpyro.handlers.mask(mask=mask) and draw the missing cells by "
                "geodax.interop.numpyro.predictive. If other sites need the missing values, make a latent site of "
                "these cells alone."
            )
