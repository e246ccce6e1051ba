"""``sample``: geodax's samplers for a NumPyro model, with its Stiefel sites on the manifold."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_uniform

from geodax import _checks
from geodax._types import PRNGKey, SamplingAlgorithm
from geodax.geometry.stiefel import Stiefel
from geodax.interop.numpyro.distributions import as_key
from geodax.interop.numpyro.draws import dataset, over_draws, variable_names, with_axes
from geodax.interop.numpyro.masks import counted_cells
from geodax.interop.numpyro.separation import dependent, reusable
from geodax.interop.numpyro.translation import GeodaxModel, sampler_of, translate
from geodax.mcmc.hmc import hmc
from geodax.mcmc.mclmc import adjusted_mclmc, mclmc
from geodax.mcmc.nuts import nuts
from geodax.run import sample as loop
from geodax.run.errors import StartError
from geodax.run.group_files import complete_store, labels_of
from geodax.run.identity import plain_setting
from geodax.run.store_layouts import dimension_names

_RUN_OPTIONS = {
    "thinning",
    "store",
    "checkpoint",
    "checkpoint_seconds",
    "devices",
    "num_superchains",
    "warm_start",
    "chain_method",
    "progress",
}
_SitesOf = Callable[[PRNGKey, Mapping[str, Any]], Mapping[str, Any]]
_BATCH_SIZE = 100  # draws whose log likelihoods are computed at once
_SAMPLERS: dict[str, Callable[..., SamplingAlgorithm]] = {
    sampler.__name__: sampler for sampler in (nuts, hmc, adjusted_mclmc, mclmc)
}


def sample(
    model: Callable,
    *,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    num_samples: int,
    num_warmup: int = 1000,
    num_chains: int = 4,
    rng_key: PRNGKey | int | np.integer = 0,
    sampler: str | Callable[..., SamplingAlgorithm] = "nuts",
    sampler_options: Mapping[str, Any] | None = None,
    stiefel_manifold: Stiefel | None = None,
    init_strategy: Any = init_to_uniform,
    init_values: Any = None,
    with_log_likelihood: bool = False,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    **run_options: Any,
) -> xr.DataTree:
    """Sample the posterior of a NumPyro model with a sampler of geodax.

    Sites with support ``stiefel(n, p)``, sites on the sphere and angles (``VonMises``) are sampled on the manifold,
    without charts, cuts, poles or redundant numbers. All others are sampled in NumPyro's unconstrained space.

    Args:
        model: A NumPyro model. Plates, masks, scales, factors, conditioned and deterministic sites work as in NumPyro;
            discrete latent sites are summed out, which needs funsor, and deterministic sites that depend on them are
            left out.
        model_args: The model's positional arguments.
        model_kwargs: The model's keyword arguments.
        num_samples: Number of stored draws per chain.
        num_warmup: Number of warm-up iterations, during which the sampler is tuned.
        num_chains: Number of chains.
        rng_key: A PRNG key, or a seed.
        sampler: ``"nuts"``, ``"hmc"``, ``"adjusted_mclmc"``, ``"mclmc"`` (which has a bias, see
            :func:`geodax.mclmc`), or a function ``(log_density, *, manifold, **sampler_options) -> algorithm``.
        sampler_options: Keyword arguments of the sampler, for instance ``{"target_acceptance_rate": 0.9}``.
        stiefel_manifold: The geometry of Stiefel sites, for instance ``Stiefel(metric="embedded", flow="geodesic")``.
        init_strategy: NumPyro's strategy. With the default, sites on manifolds start uniformly distributed.
        init_values: Initial values by name of some or all continuous latent sites, constrained as in ``init_to_value``:
            of the site's shape, for all chains, or with a leading axis, one per chain (per superchain with
            ``num_superchains``). The other sites start by ``init_strategy``.
        with_log_likelihood: Whether to add the log likelihood of each observed site at each draw. Cells masked by
            ``numpyro.handlers.mask``, and cells that have values of latent sites, are left out; the others are then
            stored along one axis, whose coordinate is their index in the flattened site.
        dims: Names of the axes of variables after chain and draw, ``{"w": ["variable", "component"]}``, or of those
            without one by default: axes of plates have the name of the plate, event axes those of
            ``infer={"event_dims": [...]}``, and all others are ``w_dim_0``, ``w_dim_1`` and so on, by their place.
        coords: Labels of axes, ``{"variable": ["height", "weight"]}``. With a ``store`` or ``checkpoint``: numbers,
            strings or dates.
        **run_options: Further arguments of :func:`geodax.sample`: ``thinning``, ``store``, ``checkpoint``,
            ``checkpoint_seconds``, ``devices``, ``num_superchains``, ``warm_start``, ``chain_method``, ``progress``.

    Returns:
        An ``xarray.DataTree`` with the groups ``posterior`` (latent and deterministic sites, constrained),
        ``sample_stats``, ``adaptation``, ``observed_data`` (NaN in cells that have values of latent sites, as in
        imputation) and, if requested, ``log_likelihood``; a ``store`` has them
        too at the end of the run, with the names and labels of axes. A slash in the name of a site becomes
        a dot, since slashes separate the groups of a DataTree; :func:`predictive` recognises these names.

    Raises:
        TypeError, ValueError, ModuleNotFoundError: See :func:`to_geodax` and :func:`geodax.sample`, and for an unknown
            sampler.
        StartError: If the density is not finite at the start; the message names the observed sites for which it is not.
    """
    build = _SAMPLERS.get(sampler) if isinstance(sampler, str) else sampler
    if build is None or not callable(build):
        raise ValueError(
            f"sample: sampler must be one of {list(_SAMPLERS)} or a function (log_density, *, manifold) -> algorithm, "
            f"such as gx.nuts, with its options in sampler_options, found {_checks.described(sampler)}."
        )
    _checks.arguments("sample", "model_args", model_args)
    unknown = sorted(set(run_options) - _RUN_OPTIONS)
    if unknown:
        raise TypeError(
            f"sample: unknown arguments {unknown}; the options of the run are {sorted(_RUN_OPTIONS)}, and those of the "
            "sampler belong in sampler_options={...}, those of the model in model_kwargs={...}."
        )
    key_model, key_run = jax.random.split(as_key("sample", rng_key))
    translation = translate(model, model_args, model_kwargs, key_model, init_strategy, stiefel_manifold)
    translated = translation.model
    if with_log_likelihood and translated.enumerated:
        raise ValueError(
            f"sample: with_log_likelihood needs values of the sites {list(translated.enumerated)}, but they are summed "
            "out; leave it out."
        )
    recorded = jax.eval_shape(translated.constrain, translated.position)
    names = variable_names("sample", [*recorded, *translated.observed])
    sites_of = _sites_of(model, model_args, model_kwargs, translated)
    imputed = _imputed(sites_of, translated)
    observed = _observed(translated.observed, names, imputed)

    def record(position: dict[str, Any]) -> dict[str, Any]:
        return {names[site]: value for site, value in translated.constrain(position).items()}

    def with_sampler(log_density: Callable) -> Any:
        return build(log_density, manifold=translated.manifold, **(sampler_options or {}))

    if build in _SAMPLERS.values():
        settings = (build, plain_setting(translated.manifold), plain_setting(dict(sampler_options or {})))
        algorithm, keep, data = sampler_of(translation, record, with_sampler, settings)
    else:
        algorithm, keep, data = with_sampler(translated.log_density), record, ()
        _require_manifold(algorithm, translated)
    start: Any = translated.start
    if init_values is not None:
        start = translation.initial(init_values, run_options.get("num_superchains") or num_chains, key_model)
    axes = {names[site]: axes for site, axes in translated.dims.items() if site in names}
    like = {"observed_data": observed, "posterior": _like(names, recorded)}
    store, checkpoint = run_options.get("store"), run_options.get("checkpoint")
    like = with_axes("sample", like, axes, dims, coords)  # raises before the run
    if store is not None or checkpoint is not None:
        labels_of(like)  # raises before the run
    try:
        tree = loop.sample(
            key_run,
            algorithm,
            start,
            num_samples=num_samples,
            num_warmup=num_warmup,
            num_chains=num_chains,
            keep=keep,
            logdensity_args=data,
            stacked=init_values is not None,
            **run_options,
        )
    except StartError as error:
        stack = start if init_values is not None else jax.tree.map(lambda x: x[None], translated.position)
        found = _undefined(sites_of, translated, stack)
        if not found:
            raise
        raise StartError(f"sample: {found}.") from error
    groups = {"posterior": tree["posterior"].to_dataset(), "observed_data": observed}
    if with_log_likelihood:
        groups["log_likelihood"] = _log_likelihood(sites_of, translated, tree, names, imputed)
    named = with_axes("sample", groups, axes, dims, coords)
    groups = {name: data for name, data in named.items() if data.data_vars}
    complete_store(store, checkpoint, groups)
    return tree.assign({name: xr.DataTree(data) for name, data in groups.items()})


def _require_manifold(algorithm: Any, translated: GeodaxModel) -> None:
    """Raise ValueError if a sampler for ordinary arrays would leave the manifolds of sites."""
    is_flat = translated.manifold.is_flat(translated.position)
    curved = sorted(site for site in translated.position if not is_flat[site])
    if curved and getattr(algorithm, "manifold", None) is None:
        raise ValueError(
            f"sample: the sites {curved} are on manifolds, which a sampler for ordinary arrays leaves, and this one "
            "has no attribute manifold. If it moves along the manifold that it was given, return a named tuple of "
            "init, step and manifold; otherwise sample a model reparametrised by gxn.PolarReparam or, for angles, "
            "numpyro.infer.reparam.CircularReparam."
        )


def _like(names: Mapping[str, str], recorded: Mapping[str, Any]) -> xr.Dataset:
    arrays = {names[site]: np.broadcast_to(0.0, (1, 1, *like.shape)) for site, like in recorded.items()}
    return xr.Dataset({name: (dimension_names(name, x.ndim - 2), x) for name, x in arrays.items()})


def _sites_of(model: Callable, args: tuple, kwargs: Mapping[str, Any] | None, translated: GeodaxModel) -> _SitesOf:
    def sites_of(key: PRNGKey, latent: Mapping[str, Any]) -> Mapping[str, Any]:
        conditioned = substitute(model, data={**translated.fixed, **latent})
        return trace(seed(conditioned, key)).get_trace(*args, **(kwargs or {}))

    return sites_of


def _imputed(sites_of: _SitesOf, translated: GeodaxModel) -> dict[str, np.ndarray]:
    """By observed site with such cells: which of its cells have values of latent sites, and so are no data."""

    def values(position: dict[str, Any]) -> dict[str, Any]:
        latent = {site: value for site, value in translated.constrain(position).items() if site in position}
        sites = sites_of(jax.random.key(0), latent)
        return {site: sites[site]["value"] for site in translated.observed}

    if not dependent(values, translated.position):
        return {}
    program = reusable(values, translated.position)
    one, other = (program(translated.start(jax.random.key(seed))) for seed in (0, 1))
    found = {site: np.asarray(one[site] != other[site]) for site in one}
    return {site: cells for site, cells in found.items() if cells.any()}


def _observed(values: Mapping[str, Any], names: Mapping[str, str], imputed: Mapping[str, np.ndarray]) -> xr.Dataset:
    data = {}
    for site, value in values.items():
        array = np.where(imputed[site], np.nan, value) if site in imputed else np.asarray(value)
        data[names[site]] = (dimension_names(names[site], array.ndim)[2:], array)
    return xr.Dataset(data)


def _undefined(sites_of: _SitesOf, translated: GeodaxModel, stack: Mapping[str, Any]) -> str:
    """Name the observed sites whose log probability is not finite at the first such initial position, if any."""

    @jax.jit  # since NumPyro's own checks of concrete parameters would raise an error
    def looked_at(position: dict[str, Any]) -> dict[str, Any]:
        values = translated.constrain(position)
        latent = {site: values[site] for site in translated.position}
        sites = sites_of(jax.random.key(0), latent)
        pairs = {name: (sites[name]["fn"], sites[name]["value"]) for name in translated.observed}
        return {name: (fn.log_prob(value), fn.support(value)) for name, (fn, value) in pairs.items()}

    for chain in range(len(jax.tree.leaves(stack)[0])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the run has given them
            found = looked_at(jax.tree.map(lambda x, chain=chain: x[chain], stack))
        said = []
        for name, (each, is_inside) in found.items():
            each = np.asarray(each)
            bad = ~np.isfinite(each)
            # given one value of a site that is summed out, an observation can be impossible
            is_sure = not translated.enumerated or np.isnan(translated.observed[name]).any()
            if is_sure and bad.any():
                where = f"at the start in {bad.sum()} of {bad.size} values" if bad.size > 1 else "at the start"
                reason = (
                    "its data hold NaN or are outside its support"
                    if (bad & ~np.asarray(is_inside)).any()
                    else "its data are within its support, so look for parameters that are not valid there or give the "
                    "data no probability, such as a scale of 0, and for NaN in the model's arguments"
                )
                said.append(f"the log probability of the observed site {name!r} is {each[bad][0]} {where}: {reason}")
        if said:
            return "; ".join(said)
    return ""


def _log_likelihood(
    sites_of: _SitesOf,
    translated: GeodaxModel,
    tree: xr.DataTree,
    names: Mapping[str, str],
    imputed: Mapping[str, np.ndarray],
) -> xr.Dataset:
    """Log likelihoods of the data; of a site with masked or imputed cells only the others, along one axis."""

    def of_draw(key: PRNGKey, latent: Mapping[str, Any]) -> dict[str, Any]:
        sites = sites_of(key, latent)
        found = {}
        for site in translated.observed:
            distribution, value = sites[site]["fn"], sites[site]["value"]
            found[f"values/{site}"] = distribution.log_prob(value)
            found[f"counts/{site}"] = jnp.broadcast_to(counted_cells(distribution), jnp.shape(found[f"values/{site}"]))
        return found

    posterior = tree["posterior"].to_dataset()
    latent = {site: posterior[names[site]] for site in translated.position}
    keys = jax.random.split(jax.random.key(0), (posterior.sizes["chain"], posterior.sizes["draw"]))
    found = over_draws("sample", of_draw, keys, latent, _BATCH_SIZE)
    arrays, coordinates = {}, {}
    for site in translated.observed:
        name, values = names[site], found[f"values/{site}"]
        counts = found[f"counts/{site}"].any(axis=(0, 1))
        if site in imputed:
            counts = counts & ~imputed[site].any(axis=tuple(range(counts.ndim, imputed[site].ndim)))
        if counts.all():
            arrays[name] = values
        elif counts.any():
            places = np.flatnonzero(counts)
            arrays[name] = values.reshape(*values.shape[:2], -1)[..., places]
            coordinates[f"{name}_dim_0"] = places
    return dataset(arrays, posterior).assign_coords(coordinates)
