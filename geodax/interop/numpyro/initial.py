"""Initial positions from values of sites that the user gives."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._types import Array, PRNGKey


def initial_positions(
    values: Any,
    num: int,
    key: PRNGKey,
    shapes: Mapping[str, tuple[int, ...]],
    sites_of: Callable[[PRNGKey, Callable[[Any], Array | None]], Mapping[str, Any]],
    coordinate: Callable[[Any], Array],
) -> dict[str, Array]:
    """Return initial positions along a leading axis from constrained values of some or all latent sites.

    Values have the shape of their site, or a leading axis of ``num`` initial positions; the key draws the sites without
    values. ``sites_of`` runs the model with the values that a function of sites gives, or others where it gives None,
    and ``coordinate`` is the entry of a position for a site. Raises TypeError if ``values`` is not a mapping from sites
    to numbers, ValueError for unknown sites, other shapes, and values outside of the support.
    """
    if not isinstance(values, Mapping):
        raise TypeError(
            "sample: init_values must be a dict from names of latent sites to values, found "
            f"{_checks.described(values)}."
        )
    unknown = sorted(map(str, set(values) - set(shapes)))
    if unknown:
        raise ValueError(f"sample: init_values has {unknown}, but the continuous latent sites are {sorted(shapes)}.")
    stacks = {}
    for name, value in values.items():
        array = _checks.array("sample", f"init_values[{name!r}]", value, kinds="floating-point")
        if array.shape not in (shapes[name], (num, *shapes[name])):
            raise ValueError(
                f"sample: expected init_values[{name!r}] of shape {shapes[name]}, or {(num, *shapes[name])} with one "
                f"value per chain, found {array.shape}."
            )
        stacks[name] = jnp.broadcast_to(array, (num, *shapes[name]))
    positions = []
    for chain, key_chain in enumerate(jax.random.split(key, num)):

        def given(site: Mapping[str, Any], chain: int = chain) -> Array | None:
            if site["name"] not in stacks:
                return None
            value = stacks[site["name"]][chain]
            _require(bool(jnp.all(site["fn"].support(value))), site, chain, value)
            return value

        sites = sites_of(key_chain, given)
        positions.append({name: coordinate(sites[name]) for name in shapes})
        for name in stacks:
            is_inside = bool(jnp.isfinite(positions[-1][name]).all())
            _require(is_inside, sites[name], chain, sites[name]["value"])
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *positions)


def _require(is_inside: bool, site: Mapping[str, Any], chain: int, value: Array) -> None:
    if not is_inside:
        raise ValueError(
            f"sample: init_values[{site['name']!r}] of chain {chain} is outside of the support of the site or at its "
            f"edge: expected {site['fn'].support!r}, found {np.array2string(np.asarray(value), threshold=8)}."
        )
