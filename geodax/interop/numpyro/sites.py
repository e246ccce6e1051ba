"""Sites on manifolds: their geometry, the coordinates of their values, and initial values."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from numpyro.distributions import biject_to, constraints
from numpyro.infer import init_to_mean, init_to_median, init_to_uniform, init_to_value

from geodax import _checks
from geodax._types import Array
from geodax.geometry.manifolds import AbstractManifold
from geodax.geometry.sphere import Sphere
from geodax.geometry.stiefel import Stiefel
from geodax.interop.numpyro.constraints import _Stiefel, event_support
from geodax.interop.numpyro.distributions import _typed


def manifold_of(distribution: Any, stiefel_manifold: Stiefel) -> AbstractManifold | None:
    """The manifold of a site; None for a site that NumPyro maps to unconstrained space."""
    support = event_support(distribution)
    if isinstance(support, _Stiefel):
        return stiefel_manifold
    return Sphere() if support is constraints.sphere or support is constraints.circular else None


def coordinate(site: Any) -> Array:
    """The entry of a position for the value of a site."""
    value = jnp.asarray(site["value"])
    if event_support(site["fn"]) is constraints.circular:
        return jnp.stack([jnp.cos(value), jnp.sin(value)], axis=-1)
    is_curved = manifold_of(site["fn"], Stiefel()) is not None
    return value if is_curved else jnp.asarray(biject_to(site["fn"].support).inv(value))


def angle(point: Array) -> Array:
    """The angle of a point of the unit circle."""
    return jnp.arctan2(point[..., 1], point[..., 0])


def strategy_of(init_strategy: Any) -> Callable:
    """The user's strategy; on manifolds uniformly distributed points, on spheres means and medians of unit vectors."""
    kind = "a function of NumPyro, such as numpyro.infer.init_to_median or init_to_value(values={...})"
    _checks.function("to_geodax", "init_strategy", init_strategy, kind)
    chosen: Any = init_strategy if isinstance(init_strategy, functools.partial) else init_strategy()
    function, options = getattr(chosen, "func", None), getattr(chosen, "keywords", {})
    known = (init_to_uniform, init_to_value, init_to_mean, init_to_median)

    def initial(site: Any) -> Any:
        is_latent = site["type"] == "sample" and not site["is_observed"] and site["value"] is None
        manifold = manifold_of(site["fn"], Stiefel()) if is_latent else None
        if manifold is None or site["name"] in options.get("values", {}) or function not in known:
            return chosen(site)
        distribution = site["fn"]
        is_uniform = function in (init_to_uniform, init_to_value)
        if isinstance(manifold, Stiefel) and not is_uniform:
            return chosen(site)
        key, sample_shape = site["kwargs"]["rng_key"], site["kwargs"]["sample_shape"]
        shape = (*sample_shape, *distribution.shape())
        point, is_angle = None, event_support(distribution) is constraints.circular
        with contextlib.suppress(NotImplementedError):  # there is no mean, or no way to draw
            if function is init_to_mean:
                point = coordinate({"fn": distribution, "value": jnp.broadcast_to(distribution.mean, shape)})
            elif not is_uniform:
                draws = distribution(rng_key=key, sample_shape=(options["num_samples"], *sample_shape))
                point = jnp.median(coordinate({"fn": distribution, "value": draws}), axis=0)
        if point is None:
            like = jnp.zeros((*shape, 2) if is_angle else shape, jnp.result_type(float))
            point = manifold.random_point(_typed(key), like)
        else:
            point = manifold.nearest(point)
        return angle(point) if is_angle else point

    return initial
