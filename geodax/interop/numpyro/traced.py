"""A NumPyro model with its data, and the sites of one run of it."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.distributions import ExpandedDistribution, constraints
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_uniform
from numpyro.infer.util import constrain_fn, potential_energy

from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.geometry.stiefel import Stiefel
from geodax.interop.numpyro.constants import LeftOut, checked, left_out
from geodax.interop.numpyro.constraints import event_support
from geodax.interop.numpyro.draws import axes_of
from geodax.interop.numpyro.sites import angle, manifold_of, strategy_of

Values = dict[str, Array]
Sites = dict[str, Any]


class TracedModel:
    """A model with its data.

    Attributes:
        latent: Its latent sites.
        enumerated: Names of the discrete ones, which are summed out of the density.
        continuous: The others.
        curved: Those on manifolds.
        fixed: Values that a run of the model creates: parameters of networks, keys of ``numpyro.prng_key``.
        observed: Values of the observed sites.
        axes: Names of the axes of each site.
        without_constant: Densities that leave out a constant.

    Raises:
        ValueError, ModuleNotFoundError: See :func:`geodax.interop.numpyro.to_geodax`.
    """

    def __init__(
        self, model: Callable, args: tuple, kwargs: dict[str, Any], key: PRNGKey, strategy: Callable, stiefel: Stiefel
    ):
        self._model, self._args, self._kwargs, self._key = model, args, kwargs, key
        sites = trace(substitute(seed(model, key), substitute_fn=strategy)).get_trace(*args, **kwargs)
        refuse_subsampling("to_geodax", sites)
        self.latent = _latent_sites(sites)
        self.enumerated = tuple(name for name, site in self.latent.items() if site["fn"].support.is_discrete)
        self.continuous = {name: site for name, site in self.latent.items() if name not in self.enumerated}
        if not self.continuous:
            raise ValueError("to_geodax: the model has no continuous latent site, so there is nothing to sample.")
        manifolds = {name: manifold_of(site["fn"], stiefel) for name, site in self.continuous.items()}
        self.curved: dict[str, AbstractManifold] = {name: m for name, m in manifolds.items() if m is not None}
        self._angles = {n for n, site in self.continuous.items() if event_support(site["fn"]) is constraints.circular}
        self.fixed = {name: site["value"] for name, site in sites.items() if site["type"] in ("param", "mutable")}
        self._seeded = seed(substitute(model, data=self.fixed), jax.random.key(0))
        self._density_model = _enumerated(self._seeded, sites) if self.enumerated else self._seeded
        self.without_constant = _left_out(sites)
        self.observed = {
            name: jnp.asarray(site["value"])
            for name, site in sites.items()
            if site["type"] == "sample" and site["is_observed"] and jnp.size(site["value"])
        }
        self.axes = {n: axes_of(site) for n, site in sites.items() if site["type"] in ("sample", "deterministic")}

    def run(self, key: PRNGKey, strategy: Callable) -> Sites:
        """Run the model with latent values by a strategy."""
        return self._sites(seed(substitute(self._model, data=self.fixed), key), substitute_fn=strategy)

    def log_density(self, position: Values) -> Scalar:
        """Log density of a position: with respect to the uniform measure on manifolds, unconstrained elsewhere."""
        on_manifolds, rest = self._split(position)
        conditioned = substitute(self._density_model, data=on_manifolds)
        with checked():
            energy = potential_energy(conditioned, self._args, self._kwargs, rest, enum=bool(self.enumerated))
            return -jnp.asarray(energy)

    def constrain(self, position: Values) -> Values:
        """Values of the latent and deterministic sites at a position."""
        on_manifolds, rest = self._split(position)
        conditioned = substitute(self._seeded, data=on_manifolds)
        return on_manifolds | constrain_fn(conditioned, self._args, self._kwargs, rest, return_deterministic=True)

    def deterministic(self, values: Values) -> Values:
        """Deterministic sites at the latent values of the first run, except for these."""
        known = self.fixed | {name: site["value"] for name, site in self.continuous.items()} | values
        sites = trace(seed(substitute(self._model, data=known), self._key)).get_trace(*self._args, **self._kwargs)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}

    def constants_at(self, key: PRNGKey, end: int) -> dict[str, Any]:
        """Constants that densities leave out, at random continuous and extreme discrete latent values."""
        sites = self.run(key, strategy_of(init_to_uniform))
        values = {name: sites[name]["value"] for name in self.continuous}
        values |= {name: _end_of_support(sites[name], end) for name in self.enumerated}
        found = _left_out(self._sites(self._seeded, data=values))
        return {name: (part.fixed, part.components) for name, part in found.items()}

    def _sites(self, model: Callable, **known: Any) -> Sites:
        return trace(substitute(model, **known)).get_trace(*self._args, **self._kwargs)

    def _split(self, position: Values) -> tuple[Values, Values]:
        """Values of the sites on manifolds, and the unconstrained values of the others."""
        on_manifolds = {n: angle(x) if n in self._angles else x for n, x in position.items() if n in self.curved}
        return on_manifolds, {name: x for name, x in position.items() if name not in self.curved}


def refuse_subsampling(owner: str, model_trace: Mapping[str, Any]) -> None:
    """Raise ValueError for plates that subsample their elements."""
    for name, site in model_trace.items():
        if site["type"] != "plate":
            continue
        size, subsample_size = site["args"]
        if subsample_size is not None and subsample_size != size:
            raise ValueError(
                f"{owner}: the plate {name!r} subsamples {subsample_size} of {size} elements. All data are needed "
                "here: leave subsample_size out, or use a stochastic-gradient sampler (geodax.sghmc) with a "
                "geodax.Posterior."
            )


def _latent_sites(model_trace: Mapping[str, Any]) -> dict[str, Any]:
    latent = {n: s for n, s in model_trace.items() if s["type"] == "sample" and not s["is_observed"]}
    for name, site in latent.items():
        if isinstance(site["fn"], numpyro.distributions.Delta):
            raise ValueError(
                f"to_geodax: the latent site {name!r} has a delta distribution; write numpyro.deterministic({name!r}, "
                "...) instead."
            )
        if site["fn"].support.is_discrete:
            _require_enumerable(name, site, model_trace)
    return latent


def _require_enumerable(name: str, site: Any, model_trace: Mapping[str, Any]) -> None:
    fn = site["fn"]
    while isinstance(fn, ExpandedDistribution):  # in a plate
        fn = fn.base_dist
    kind = type(fn).__name__
    if not site["fn"].has_enumerate_support or site["infer"].get("enumerate", "parallel") != "parallel":
        raise ValueError(
            f"to_geodax: the discrete latent site {name!r} ({kind}) cannot be enumerated. Gradients need continuous "
            "variables: sum over its values in the model, or condition on one."
        )
    _require_plates(name, model_trace)
    if importlib.util.find_spec("funsor") is None:
        raise ModuleNotFoundError(
            f"to_geodax: the discrete latent site {name!r} ({kind}) can be summed over by NumPyro's enumeration, which "
            "needs funsor: pip install funsor. Or sum over its values in the model yourself.",
            name="funsor",
        )


def _require_plates(discrete: str, model_trace: Mapping[str, Any]) -> None:
    """Raise ValueError for axes without a plate, which enumeration would take for the values of a discrete site."""
    for name, site in model_trace.items():
        if site["type"] != "sample":
            continue
        shape, fn = jnp.shape(site["value"]), site["fn"]
        batch = jnp.broadcast_shapes(fn.batch_shape, shape[: len(shape) - fn.event_dim])
        plates = {frame.dim for frame in site["cond_indep_stack"]}
        first = 1 if site.get("_control_flow_done") else 0  # after the axis of a scan
        for axis in range(first - len(batch), 0):
            if batch[axis] > 1 and axis not in plates:
                raise ValueError(
                    f"to_geodax: summing over the discrete site {discrete!r} needs a numpyro.plate for each batch "
                    f"axis, but axis {axis} of the site {name!r}, of length {batch[axis]}, has none. Put the site into "
                    "a plate, or declare the axis as one of its event: distribution.to_event(1)."
                )


def _enumerated(model: Callable, model_trace: Mapping[str, Any]) -> Callable:
    from numpyro.contrib.funsor import config_enumerate, enum

    frames = [f.dim for s in model_trace.values() if s["type"] == "sample" for f in s["cond_indep_stack"]]
    return enum(config_enumerate(model), first_available_dim=min([d for d in frames if d is not None], default=0) - 1)


def _left_out(sites: Mapping[str, Any]) -> dict[str, LeftOut]:
    found = {name: left_out(site["fn"]) for name, site in sites.items() if site["type"] == "sample"}
    return {name: part for name, part in found.items() if part is not None}


def _end_of_support(site: Any, end: int) -> Array:
    return jnp.broadcast_to(site["fn"].enumerate_support(expand=False)[end], jnp.shape(site["value"]))
