"""``predictive``: predictions of a NumPyro model at the draws of its posterior."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpyro.handlers import seed, substitute, trace

from geodax import _checks
from geodax._types import PRNGKey
from geodax.interop.numpyro.distributions import as_key
from geodax.interop.numpyro.draws import axes_of, dataset, over_draws, variable_names, with_axes
from geodax.interop.numpyro.traced import refuse_subsampling
from geodax.run.draws import open_draws

_OWNER = "predictive"
_PARAMETERS = ("param", "mutable")  # types of sites


def predictive(
    model: Callable,
    draws: Any,
    *,
    rng_key: PRNGKey | int | np.integer = 0,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    return_sites: Collection[str] | None = None,
    batch_size: int | np.integer = 100,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
) -> xr.DataTree:
    """Predict with a NumPyro model at the draws of its posterior.

    Example::

        draws = gxn.sample(model, model_args=(x, y), num_samples=1000)
        predictions = gxn.predictive(model, draws, rng_key=1, model_args=(x_new, None))
        draws["posterior_predictive"] = predictions["posterior_predictive"]  # for ArviZ

    The names of the draws are matched with the sites of the model. Latent sites without draws and draws without a site
    raise ValueError; nothing is drawn from the prior silently. Deterministic sites are computed again. Discrete sites
    that were summed out are drawn from the model, given the others.

    Args:
        model: The model that was sampled. A reparametrised one needs the same ``numpyro.handlers.reparam`` here.
        draws: The result of :func:`geodax.interop.numpyro.sample`, in memory or opened from a store, the folder of a
            store, or another DataTree or ArviZ ``InferenceData`` with a group ``posterior``. Draws are read in batches.
        rng_key: A PRNG key, or a seed.
        model_args: The model's positional arguments, with None instead of data to be predicted.
        model_kwargs: The model's keyword arguments.
        return_sites: Names of the sites to return. By default the predicted and the deterministic sites. It is needed
            if the draws have no group ``observed_data``, such as those in the store of an unfinished run, and for
            sites that the model did not have when it was sampled.
        batch_size: Number of draws computed at once, at least one per chain. It bounds the memory and
            does not change the result.
        dims: Names of axes by variable, as in :func:`geodax.interop.numpyro.sample`.
        coords: Labels of axes. Axes of latent sites, such as groups, keep those of the draws; an axis of data has none
            by default, since the model may predict other rows.

    Returns:
        An ``xarray.DataTree`` with the group ``posterior_predictive``, whose variables have the dimensions ``chain``,
        ``draw`` and those of the sites. Slashes in names become dots, as in the draws.

    Raises:
        TypeError: If the draws have no group ``posterior``, or ``model_args`` is not a tuple.
        ValueError: For draws of sites that the model does not have or has in another shape; for non-finite draws; for
            latent sites without draws; if there is nothing to predict; for subsampled plates; for parameters with
            random initial values.
    """
    _checks.arguments(_OWNER, "model_args", model_args)
    batch_size = _checks.whole(_OWNER, "batch_size", batch_size)
    key_model, key_draws = jax.random.split(as_key(_OWNER, rng_key))
    kwargs = dict(model_kwargs or {})

    def sites_of(key: PRNGKey, values: dict[str, Any]) -> dict[str, Any]:
        return trace(seed(substitute(model, data=values), key)).get_trace(*model_args, **kwargs)

    sites: dict[str, Any] = {}
    jax.eval_shape(lambda: sites.update(sites_of(key_model, {})))  # shapes and names, without draws of the prior
    refuse_subsampling(_OWNER, sites)
    if any(site["type"] in _PARAMETERS for site in sites.values()):
        _refuse_random_parameters(*(sites_of(key, {}) for key in (key_model, key_draws)))
    is_factor = {name for name, site in sites.items() if site.get("is_observed") and not jnp.size(site["value"])}
    sites = {n: site for n, site in sites.items() if site["type"] in ("sample", "deterministic") and n not in is_factor}
    names = variable_names(_OWNER, sites)
    tree = open_draws(draws) if isinstance(draws, str | Path) else draws
    posterior = _group(tree, "posterior")
    if posterior is None:
        raise TypeError(
            f"{_OWNER}: draws must be a DataTree with a group 'posterior', such as the result of sample, or the folder "
            f"of a store, found {_checks.described(draws)}."
        )
    observed = _group(tree, "observed_data")
    given = _matched(posterior, sites, names)
    chosen = _chosen(sites, names, given, return_sites, () if observed is None else list(observed.data_vars))
    keys = jax.random.split(key_draws, (posterior.sizes["chain"], posterior.sizes["draw"]))

    def predict(key: PRNGKey, values: dict[str, Any]) -> dict[str, Any]:
        predicted = sites_of(key, values)
        return {names[name]: predicted[name]["value"] for name in chosen}

    predictions = dataset(over_draws(_OWNER, predict, keys, given, batch_size), posterior)
    axes = {names[name]: axes_of(site) for name, site in sites.items()}
    groups = with_axes(_OWNER, {"posterior_predictive": predictions}, axes, dims, coords)
    return xr.DataTree.from_dict({name: _labelled(group, given) for name, group in groups.items()})


def _labelled(predictions: xr.Dataset, given: Mapping[str, xr.DataArray]) -> xr.Dataset:
    """Predictions with the labels of the latent sites' axes; those of data may have changed."""
    known = {axis: labels for draws in given.values() for axis, labels in draws.coords.items() if axis in draws.dims}
    return predictions.assign_coords(
        {
            axis: labels
            for axis, labels in known.items()
            if axis not in predictions.coords and predictions.sizes.get(axis) == labels.size
        }
    )


def _group(tree: Any, name: str) -> xr.Dataset | None:
    try:
        group = tree[name]
    except (KeyError, TypeError, IndexError, AttributeError):
        return None
    group = group.to_dataset() if isinstance(group, xr.DataTree) else group
    return group if isinstance(group, xr.Dataset) else None


def _matched(posterior: xr.Dataset, sites: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, xr.DataArray]:
    """The draws of the latent sites of the model, (chain, draw, ...)."""
    places = {variable: site for site, variable in names.items()} | {site: site for site in names}
    unknown = sorted(str(name) for name in posterior.data_vars if name not in places)
    if unknown:
        raise ValueError(
            f"{_OWNER}: the draws have the variables {unknown}, but the model has no such sites; it has "
            f"{sorted(names.values())}. Pass the model that was sampled, with the same numpyro.handlers (scope, "
            "reparam), or drop the variables."
        )
    given = {}
    for name in map(str, posterior.data_vars):
        variable, site = posterior[name], sites[places[name]]
        if site["type"] != "sample" or site["is_observed"]:
            continue
        if not {"chain", "draw"} <= set(variable.dims) or not variable.size:
            raise ValueError(
                f"{_OWNER}: expected draws with the dimensions chain and draw, found {name!r} with the sizes "
                f"{dict(variable.sizes)}."
            )
        variable = variable.transpose("chain", "draw", ...)
        if variable.shape[2:] != jnp.shape(site["value"]):
            raise ValueError(
                f"{_OWNER}: the draws of the site {name!r} have shape {variable.shape[2:]}, but the model has "
                f"{jnp.shape(site['value'])} in this call. If each example has its own value and these are other "
                "examples, drop the variable and name the site in return_sites: it is then drawn from its prior."
            )
        given[places[name]] = variable
    return given


def _chosen(
    sites: Mapping[str, Any],
    names: Mapping[str, str],
    given: Mapping[str, Any],
    return_sites: Collection[str] | None,
    observed: Collection[Any],
) -> list[str]:
    """The sites to return; sites without draws must be known to be predictions."""
    if isinstance(return_sites, str) or not isinstance(return_sites, Collection | None):
        raise TypeError(f"{_OWNER}: return_sites must be a list of names, found {_checks.described(return_sites)}.")
    places = {variable: site for site, variable in names.items()} | {site: site for site in names}
    unknown = sorted(map(str, set(return_sites or ()) - set(places)))
    if unknown:
        raise ValueError(f"{_OWNER}: return_sites has {unknown}, but the model's sites are {sorted(names)}.")
    asked = [places[name] for name in return_sites or ()]
    fixed = [name for name in sites if sites[name]["type"] == "sample" and sites[name]["is_observed"]]
    predicted = [name for name in sites if sites[name]["type"] == "sample" and name not in (*fixed, *given)]
    known = {*asked, *(places.get(name, name) for name in observed)}
    missing = [
        name
        for name in predicted
        if not (name in known or sites[name]["fn"].support.is_discrete or sites[name]["infer"].get("was_observed"))
    ]
    if missing:
        raise ValueError(
            f"{_OWNER}: the draws have no values of the sites {missing}, and no record that these were observed. To "
            f"predict them (or draw them from their priors), name them: return_sites={missing}."
        )
    if not predicted or set(asked) & set(fixed):
        raise ValueError(
            f"{_OWNER}: the sites {sorted(set(asked) & set(fixed)) or fixed} have observed values in this call: there "
            "is nothing to predict. Pass None instead of the data (as in model_args=(x, None)), or pass "
            "numpyro.handlers.uncondition(model)."
        )
    return asked or [*predicted, *(name for name in sites if sites[name]["type"] == "deterministic")]


def _refuse_random_parameters(sites: Mapping[str, Any], again: Mapping[str, Any]) -> None:
    for name, site in sites.items():
        if site["type"] not in _PARAMETERS:
            continue
        if not jax.tree.all(jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), site["value"], again[name]["value"])):
            raise ValueError(
                f"{_OWNER}: the parameter {name!r} has random initial values, which the draws do not contain. Fix it, "
                f"for sample and here: numpyro.handlers.substitute(model, data={{{name!r}: ...}})."
            )
