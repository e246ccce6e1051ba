"""``sample``: our samplers on a NumPyro model, its Stiefel sites on the manifold itself."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import xarray as xr
from numpyro.infer import init_to_uniform, log_likelihood

from geodax._types import PRNGKey, SamplingAlgorithm
from geodax.geometry.stiefel import Stiefel
from geodax.interop.numpyro.distributions import as_key
from geodax.interop.numpyro.translation import GeodaxModel, to_geodax
from geodax.mcmc.hmc import hmc
from geodax.mcmc.nuts import nuts
from geodax.run import sample as loop

_RUN_OPTIONS = {"thinning", "store", "checkpoint", "checkpoint_seconds", "devices", "num_superchains", "progress"}
_SAMPLERS: dict[str, Callable[..., SamplingAlgorithm]] = {"nuts": nuts, "hmc": hmc}


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
    with_log_likelihood: bool = False,
    **run_options: Any,
) -> xr.DataTree:
    """Sample the posterior of a NumPyro model with a sampler of geodax.

    Sites with support ``stiefel(n, p)`` (and those on the sphere) are sampled on the manifold: no chart, no cut, no
    pole, no redundant numbers. All others are sampled where NumPyro samples them, in unconstrained space.

    Args:
        model: A NumPyro model. Plates, masks, scales, factors, conditioned and deterministic sites are NumPyro's;
            discrete latent sites are summed over, which needs funsor.
        model_args: The model's positional arguments.
        model_kwargs: The model's keyword arguments.
        num_samples: Draws kept for each chain.
        num_warmup: Iterations before them, during which the sampler is tuned.
        num_chains: Number of chains.
        rng_key: A random key, or a seed.
        sampler: ``"nuts"``, ``"hmc"``, or a function ``(log_density, *, manifold, **sampler_options) -> algorithm``.
        sampler_options: Keyword arguments of the sampler, for instance ``{"target_acceptance_rate": 0.9}``.
        stiefel_manifold: The geometry of Stiefel sites, for instance ``Stiefel(metric="embedded", flow="geodesic")``.
        init_strategy: NumPyro's. With the default, sites on manifolds start uniformly distributed.
        with_log_likelihood: Whether to add the log likelihood of each observed site at each draw.
        **run_options: Further arguments of :func:`geodax.sample`: ``thinning``, ``store``, ``checkpoint``,
            ``checkpoint_seconds``, ``devices``, ``num_superchains``, ``progress``.

    Returns:
        An ``xarray.DataTree`` with the groups ``posterior`` (latent and deterministic sites, constrained),
        ``sample_stats``, ``observed_data`` and, if asked for, ``log_likelihood``. A slash in the name of a site becomes
        a point.

    Raises:
        TypeError, ValueError, ModuleNotFoundError: As :func:`to_geodax` and :func:`geodax.sample`, and for an unknown
            sampler.
    """
    build = _SAMPLERS.get(sampler) if isinstance(sampler, str) else sampler
    if build is None or not callable(build):
        raise ValueError(
            f'sample: sampler must be "nuts", "hmc" or a function (log_density, *, manifold) -> algorithm, found '
            f"{sampler!r}."
        )
    unknown = sorted(set(run_options) - _RUN_OPTIONS)
    if unknown:
        raise TypeError(
            f"sample: unknown arguments {unknown}; the run's options are {sorted(_RUN_OPTIONS)}, and those of the "
            "sampler belong into sampler_options={...}."
        )
    key_model, key_run = jax.random.split(as_key("sample", rng_key))
    translated = to_geodax(
        model,
        model_args=model_args,
        model_kwargs=model_kwargs,
        rng_key=key_model,
        init_strategy=init_strategy,
        stiefel_manifold=stiefel_manifold,
    )
    if with_log_likelihood and translated.enumerated:
        raise ValueError(
            f"sample: with_log_likelihood needs values of the sites {list(translated.enumerated)}, but they are summed "
            "over; leave it out."
        )
    algorithm = build(translated.log_density, manifold=translated.manifold, **(sampler_options or {}))
    tree = loop.sample(
        key_run,
        algorithm,
        translated.start,
        num_samples=num_samples,
        num_warmup=num_warmup,
        num_chains=num_chains,
        keep=lambda position: _renamed(translated.constrain(position)),
        **run_options,
    )
    groups = {"observed_data": _observed(translated.observed)}
    if with_log_likelihood:
        groups["log_likelihood"] = _log_likelihood(model, model_args, model_kwargs, translated, tree)
    return tree.assign({name: xr.DataTree(data) for name, data in groups.items() if data.data_vars})


def _renamed(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("/", "."): value for name, value in values.items()}


def _observed(values: Mapping[str, Any]) -> xr.Dataset:
    data = {}
    for name, value in _renamed(values).items():
        array = np.asarray(value)
        data[name] = ([f"{name}_dim_{i}" for i in range(array.ndim)], array)
    return xr.Dataset(data)


def _log_likelihood(
    model: Callable, args: tuple, kwargs: Mapping[str, Any] | None, translated: GeodaxModel, tree: xr.DataTree
) -> xr.Dataset:
    posterior = tree["posterior"].to_dataset()
    latent = {name: posterior[name.replace("/", ".")].values for name in translated.position}
    values = log_likelihood(model, latent, *args, parallel=False, batch_ndims=2, **(kwargs or {}))
    data = {}
    for name, value in _renamed({n: v for n, v in values.items() if n in translated.observed}).items():
        array = np.asarray(value)
        data[name] = (["chain", "draw", *[f"{name}_dim_{i}" for i in range(array.ndim - 2)]], array)
    return xr.Dataset(data, coords={"chain": posterior["chain"], "draw": posterior["draw"]})
