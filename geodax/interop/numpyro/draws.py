"""Draws of a model's sites: their names and axes, and functions of them in batches that bound the memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from geodax._types import Array, PRNGKey
from geodax.interop.numpyro.separation import reusable
from geodax.run.store_layouts import dimension_names


def variable_names(owner: str, sites: Iterable[str]) -> dict[str, str]:
    """Names of the variables of sites; slashes, which separate the groups of a DataTree, become dots."""
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
    """Apply ``(key, values of the sites) -> arrays by name`` to each draw of sites, which are read in batches.

    At least one draw per chain is computed at once. Raises ValueError if a draw is not finite.
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


def axes_of(site: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the axes of a site: of its plates, of its event (``infer={"event_dims": [...]}``), or empty.

    The plates of a deterministic site are its first axes, if the sizes agree.
    """
    shape, frames = jnp.shape(site["value"]), sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
    names = [""] * len(shape)
    event = list((site.get("infer") or {}).get("event_dims", ()))
    if site["type"] == "sample":
        num_batch = len(shape) - site["fn"].event_dim
        places = {num_batch + frame.dim: frame for frame in frames}
        names[num_batch : num_batch + len(event)] = event[: len(shape) - num_batch]
    else:
        places = dict(enumerate(frames))
    if all(0 <= place < len(shape) and shape[place] == frame.size for place, frame in places.items()):
        for place, frame in places.items():
            names[place] = frame.name.replace("/", ".")
    return tuple(names)


def with_axes(
    owner: str,
    groups: Mapping[str, xr.Dataset],
    axes: Mapping[str, tuple[str, ...]],
    dims: Mapping[str, Sequence[str]] | None,
    coords: Mapping[str, Any] | None,
) -> dict[str, xr.Dataset]:
    """Name the axes of variables of datasets, and label them.

    Names that the user gives (``dims``) take precedence over ``axes``, in which an empty name is none. Raises
    ValueError for names of variables and axes that do not exist or are taken, and numbers of names and labels that do
    not fit.
    """
    dims, coords = dims or {}, coords or {}
    taken = {"chain", "draw", *(name for group in groups.values() for name in map(str, group.data_vars))}
    unknown = sorted(set(dims) - taken | set(dims) & {"chain", "draw"})
    if unknown:
        raise ValueError(f"{owner}: dims names {unknown}, but the variables are {sorted(taken - {'chain', 'draw'})}.")
    renamed = {}
    for group, found in groups.items():
        arrays = {}
        for name, array in ((str(name), array) for name, array in found.data_vars.items()):
            own = [dim for dim in array.dims if dim not in ("chain", "draw")]
            known = axes.get(name, ())
            new = list(dims.get(name, known[: len(own)]))
            if name in dims and known.count("") == len(new) < len(known):  # names of the axes without one
                given = iter(new)
                new = [axis or next(given) for axis in known]
            fits = len(new) == len(own) or (group == "log_likelihood" and len(new) > len(own))  # it has no event axes
            if name in dims and (isinstance(dims[name], str) or not fits or taken & set(new)):
                raise ValueError(
                    f"{owner}: expected dims[{name!r}] to be a list of names for {len(own)} axes, or for "
                    f"those without a name, none that of a variable, found {dims[name]!r}."
                )
            has_labels = any(dim in array.coords for dim in own)  # cells of a masked site
            names = {old: n for old, n in zip(own, new, strict=False) if n and n not in taken and not has_labels}
            arrays[name] = array.rename(names) if len(set(names.values())) == len(names) else array
        renamed[group] = xr.Dataset(arrays, coords=found.coords, attrs=found.attrs)
    sizes = {dim: size for group in renamed.values() for dim, size in group.sizes.items()}
    for dim, labels in coords.items():
        if sizes.get(dim) != len(labels):
            raise ValueError(
                f"{owner}: coords has {len(labels)} labels of {dim!r}, expected "
                + (f"{sizes[dim]}." if dim in sizes else f"one of the axes {sorted(map(str, sizes))}.")
            )
    return {
        group: found.assign_coords({dim: list(labels) for dim, labels in coords.items() if dim in found.sizes})
        for group, found in renamed.items()
    }
