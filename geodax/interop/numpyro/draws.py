"""Draws of a model's sites: their names, and functions of them in batches that bound the memory."""

from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from geodax._types import Array, PRNGKey
from geodax.interop.numpyro.separation import reusable
from geodax.run.zarr_files import dimension_names


def variable_names(owner: str, sites: Iterable[str]) -> dict[str, str]:
    """Names of the variables of sites; slashes, which separate the groups of a DataTree, become dots.

    Args:
        owner: Name of the caller, for the message.
        sites: Names of sites.

    Returns:
        The name of the variable for each site.

    Raises:
        ValueError: If two sites would have the same variable, or a name is that of a dimension.
    """
    variables: dict[str, str] = {}
    owners: dict[str, str] = {}
    for site in sites:
        name = site.replace("/", ".")
        if owners.setdefault(name, site) != site:
            raise ValueError(
                f"{owner}: the sites {owners[name]!r} and {site!r} would both be recorded as {name!r}, since a slash "
                'becomes a dot. Rename one of them, or use numpyro.handlers.scope(..., divider="_").'
            )
        if name in ("chain", "draw"):
            raise ValueError(f"{owner}: the site {site!r} has the name of a dimension of the draws; rename it.")
        variables[site] = name
    return variables


def over_draws(
    owner: str,
    function: Callable[[PRNGKey, dict[str, Array]], dict[str, Array]],
    keys: Array,
    variables: Mapping[str, xr.DataArray],
    batch_size: int,
) -> dict[str, np.ndarray]:
    """Apply a function to each draw.

    Args:
        owner: Name of the caller, for the message.
        function: ``(key, values of the sites) -> arrays by name``, for one draw.
        keys: PRNG keys, (chain, draw).
        variables: Draws of the sites, (chain, draw, ...); read in batches.
        batch_size: Number of draws computed at once, at least one per chain.

    Returns:
        Arrays (chain, draw, ...) by name.

    Raises:
        ValueError: If a draw is not finite.
    """
    num_chains, num_draws = keys.shape
    step = max(1, batch_size // num_chains)
    programs: dict[int, Callable] = {}  # by number of draws
    found: dict[str, np.ndarray] = {}
    for start in range(0, num_draws, step):
        part = slice(start, start + step)
        values = {site: np.asarray(variable[:, part].values) for site, variable in variables.items()}
        for site, array in values.items():
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{owner}: the draws {start} to {start + array.shape[1] - 1} of the site {site!r} are not finite. "
                    "The store of an unfinished run contains NaN after its last draw: select the draws before it "
                    "by draws.isel(draw=slice(0, number))."
                )
        args = (keys[:, part], jax.tree.map(jnp.asarray, values))
        if args[0].shape[1] not in programs:
            programs[args[0].shape[1]] = reusable(jax.vmap(jax.vmap(function)), *args)
        for name, batch in programs[args[0].shape[1]](*args).items():
            if name not in found:
                found[name] = np.empty((num_chains, num_draws, *batch.shape[2:]), batch.dtype)
            found[name][:, part] = batch
    return found


def dataset(arrays: Mapping[str, np.ndarray], posterior: xr.Dataset) -> xr.Dataset:
    """Arrays (chain, draw, ...) as a dataset with the chains and draws of a posterior."""
    data = {name: (dimension_names(name, array.ndim - 2), array) for name, array in arrays.items()}
    return xr.Dataset(data, coords={axis: posterior[axis] for axis in ("chain", "draw")})
