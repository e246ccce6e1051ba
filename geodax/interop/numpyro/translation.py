"""A NumPyro model as a log density on a manifold.

Sites with support ``stiefel(n, p)`` are points of a Stiefel manifold, and sites on the sphere points of a sphere.
Angles (circular supports, such as that of ``VonMises``) become points of the unit circle. NumPyro's own transforms map
all others to unconstrained space. NumPyro runs the model itself, so plates, masks, scales, factors, conditioning and
enumeration have the same meaning.
"""

import functools
import importlib.util
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.core import Tracer
from numpyro.distributions import constraints
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_uniform
from numpyro.infer.util import constrain_fn, potential_energy

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.interop.numpyro.constants import LeftOut, checked, left_out, require_constant
from geodax.interop.numpyro.constraints import event_support
from geodax.interop.numpyro.distributions import _typed, as_key
from geodax.interop.numpyro.draws import axes_of
from geodax.interop.numpyro.initial import initial_positions
from geodax.interop.numpyro.masks import refuse_flat
from geodax.interop.numpyro.separation import Separated, dependent, identity_of, reusable, separated
from geodax.interop.numpyro.sites import angle, coordinate, manifold_of, strategy_of
from geodax.run.programs import compiled, reused
from geodax.run.records import OfData

Values = dict[str, Array]
_NUM_TRIALS = 100


class GeodaxModel(NamedTuple):
    """The result of :func:`to_geodax`.

    Attributes:
        log_density: Function from a position to its log density; on manifolds with respect to the uniform measure,
            elsewhere with respect to Lebesgue measure of the unconstrained values.
        manifold: The geometry of a position.
        position: An initial position: values of the sites on manifolds (of an angle its cosine and sine, along a new
            last axis), unconstrained values of the others.
        constrain: Function from a position to the values of all latent and deterministic sites, except for those that
            are summed out and deterministic sites that depend on them.
        start: ``key -> position``, random initial positions with finite density and gradient, if found within 100
            trials.
        observed: Values of the observed sites.
        enumerated: Names of the discrete sites that are summed out of the density.
        fixed: Values of parameters that a run of the model creates.
        dims: Names of the axes of each site, see :func:`geodax.interop.numpyro.sample`.
    """

    log_density: Callable[[Values], Scalar]
    manifold: AbstractManifold
    position: Values
    constrain: Callable[[Values], Values]
    start: Callable[[PRNGKey], Values]
    observed: Values
    enumerated: tuple[str, ...]
    fixed: dict[str, Any]
    dims: dict[str, tuple[str, ...]]


class Translation(NamedTuple):
    """A :class:`GeodaxModel`, and what :func:`sample` needs besides.

    Attributes:
        model: The translated model.
        target: Its log density, separated from its data.
        identity: The identity of the log density and of random initial positions, or None.
        initial: ``(values, num, key) -> positions`` from constrained values of sites.
    """

    model: GeodaxModel
    target: Separated
    identity: Hashable
    initial: Callable[[Any, int, PRNGKey], Values]


def to_geodax(
    model: Callable,
    *,
    model_args: tuple = (),
    model_kwargs: Mapping[str, Any] | None = None,
    rng_key: PRNGKey | int | np.integer = 0,
    init_strategy: Any = init_to_uniform,
    stiefel_manifold: Stiefel | None = None,
) -> GeodaxModel:
    """Express a NumPyro model as a log density on a manifold, for any sampler of geodax.

    Example::

        log_density, manifold, position, constrain, *_ = to_geodax(model, model_args=(data,))
        gx.sample(key, gx.nuts(log_density, manifold=manifold), position, keep=constrain, ...)

    Args:
        model: A NumPyro model.
        model_args: Its positional arguments.
        model_kwargs: Its keyword arguments.
        rng_key: A PRNG key, or a seed, for the first run of the model and the initial position.
        init_strategy: NumPyro's strategy for the initial positions. With the default ``init_to_uniform`` sites on
            manifolds start uniformly distributed.
        stiefel_manifold: The geometry of Stiefel sites; ``Stiefel()`` if left out.

    Returns:
        A :class:`GeodaxModel`.

    Raises:
        TypeError: If ``model_args`` is not a tuple, and inside ``jax.jit`` or ``jax.vmap``.
        ValueError: For models without continuous latent sites; subsampled plates; latent sites with delta
            distributions; discrete latent sites that cannot be enumerated, or beside batch axes without a plate; sites
            whose density leaves out a constant that depends on latent variables; and models in which entries of a
            latent site do not change the density, for instance due to ``obs_mask``.
        ModuleNotFoundError: If sites must be enumerated and funsor is not installed.
    """
    _checks.arguments("to_geodax", "model_args", model_args)
    return translate(model, model_args, model_kwargs, rng_key, init_strategy, stiefel_manifold).model


def translate(
    model: Callable,
    model_args: tuple,
    model_kwargs: Mapping[str, Any] | None,
    rng_key: PRNGKey | int | np.integer,
    init_strategy: Any,
    stiefel_manifold: Stiefel | None,
) -> Translation:
    """Translate a model; see :func:`to_geodax`."""
    kwargs = dict(model_kwargs or {})
    key = as_key("to_geodax", rng_key)
    strategy = strategy_of(init_strategy)
    model_trace = trace(substitute(seed(model, key), substitute_fn=strategy)).get_trace(*model_args, **kwargs)
    refuse_subsampling("to_geodax", model_trace)
    latent = _latent_sites(model_trace)
    enumerated = tuple(name for name, site in latent.items() if site["fn"].support.is_discrete)
    continuous = {name: site for name, site in latent.items() if name not in enumerated}
    if not continuous:
        raise ValueError("to_geodax: the model has no continuous latent site, so there is nothing to sample.")

    manifolds = {name: manifold_of(site["fn"], stiefel_manifold or Stiefel()) for name, site in continuous.items()}
    curved = {name: manifold for name, manifold in manifolds.items() if manifold is not None}
    angles = {name for name, site in continuous.items() if event_support(site["fn"]) is constraints.circular}
    # values that a run of the model creates: parameters of networks, keys of numpyro.prng_key
    fixed = {name: site["value"] for name, site in model_trace.items() if site["type"] in ("param", "mutable")}
    seeded = seed(substitute(model, data=fixed), jax.random.key(0))
    density_model = _enumerated(seeded, model_trace) if enumerated else seeded

    def split(position: Values) -> tuple[Values, Values]:
        on_manifolds = {name: angle(x) if name in angles else x for name, x in position.items() if name in curved}
        return on_manifolds, {name: x for name, x in position.items() if name not in curved}

    def log_density(position: Values) -> Scalar:
        on_manifolds, rest = split(position)
        conditioned = substitute(density_model, data=on_manifolds)
        with checked():
            return -jnp.asarray(potential_energy(conditioned, model_args, kwargs, rest, enum=bool(enumerated)))

    summed = {name: latent[name]["value"] for name in enumerated}

    def deterministic(values: Values) -> Values:
        """Deterministic sites at the latent values of the first run, except for these."""
        known = fixed | {name: site["value"] for name, site in continuous.items()} | values
        sites = trace(seed(substitute(model, data=known), key)).get_trace(*model_args, **kwargs)
        return {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}

    undetermined = dependent(deterministic, summed) if summed else set()
    if undetermined:
        warnings.warn(
            f"to_geodax: the deterministic sites {sorted(undetermined)} depend on the discrete sites {list(summed)}, "
            "which are summed out, so they are not recorded. numpyro.infer.Predictive(model, draws, "
            "infer_discrete=True) draws both from their posterior.",
            stacklevel=3,
        )

    def constrain(position: Values) -> Values:
        on_manifolds, rest = split(position)
        conditioned = substitute(seeded, data=on_manifolds)
        found = on_manifolds | constrain_fn(conditioned, model_args, kwargs, rest, return_deterministic=True)
        return {name: value for name, value in found.items() if name not in undetermined}

    def sites_of(key: PRNGKey, strategy: Callable) -> dict[str, Any]:
        drawn = substitute(seed(substitute(model, data=fixed), key), substitute_fn=strategy)
        return trace(drawn).get_trace(*model_args, **kwargs)

    def draw(key: PRNGKey, strategy: Callable = strategy) -> Values:
        sites = sites_of(key, strategy)
        return {name: coordinate(sites[name]) for name in continuous}

    without_constant = _left_out(model_trace)
    if without_constant:

        def constants_at(key: PRNGKey, end: int) -> dict[str, Any]:
            """Constants at random continuous and extreme discrete latent values."""
            sites = sites_of(key, strategy_of(init_to_uniform))
            values = {name: sites[name]["value"] for name in continuous}
            values |= {name: _end_of_support(sites[name], end) for name in enumerated}
            found = _left_out(trace(substitute(seeded, data=values)).get_trace(*model_args, **kwargs))
            return {name: (part.fixed, part.components) for name, part in found.items()}

        places = reusable(lambda: [constants_at(jax.random.key(number), -number) for number in (0, 1)])()
        require_constant({name: part.name for name, part in without_constant.items()}, places)

    refuse_flat(
        {name: site["fn"] for name, site in continuous.items() if name not in curved},
        lambda key: jax.grad(log_density)(draw(key, strategy_of(init_to_uniform))),
    )
    geometry = Product(curved)
    drawn = separated(draw, key)
    target = separated(log_density, drawn.result)
    data = (drawn.data, target.data)

    def both(data: Any, key: PRNGKey, position: Values) -> Any:
        return drawn.call(data[0], key), jax.value_and_grad(functools.partial(_density, target.call, data[1]))(position)

    def find(data: Any, key: PRNGKey) -> Values:
        return _first_valid(functools.partial(drawn.call, data[0]), functools.partial(target.call, data[1]), key)

    identity = identity_of(both, data, key, drawn.result)
    program = compiled(find, data, key, key=identity and ("start", identity))

    def start(key: PRNGKey) -> Values:
        key = _typed(key)
        return _first_valid(draw, log_density, key) if isinstance(key, Tracer) else program(data, key)

    observed = {
        name: jnp.asarray(site["value"])
        for name, site in model_trace.items()
        if site["type"] == "sample" and site["is_observed"] and jnp.size(site["value"])
    }

    def initial(values: Any, num: int, key: PRNGKey) -> Values:
        shapes = {name: jnp.shape(site["value"]) for name, site in continuous.items()}

        def with_values(key: PRNGKey, given: Callable[[Any], Array | None]) -> dict[str, Any]:
            return sites_of(key, lambda site: strategy(site) if (value := given(site)) is None else value)

        return initial_positions(values, num, key, shapes, with_values, coordinate)

    dims = {name: axes_of(site) for name, site in model_trace.items() if site["type"] in ("sample", "deterministic")}
    translated = GeodaxModel(log_density, geometry, start(key), constrain, start, observed, enumerated, fixed, dims)
    return Translation(translated, target, identity, initial)


def sampler_of(
    translation: Translation,
    record: Callable[[Values], Values],
    build: Callable[[Callable[..., Scalar]], SamplingAlgorithm],
    settings: Hashable,
) -> tuple[SamplingAlgorithm, OfData, tuple]:
    """The ``algorithm``, ``keep`` and ``logdensity_args`` of :func:`geodax.sample`, the same for equal computations.

    ``build`` makes the sampler from a log density ``(position, *data)``; ``settings`` are what determines it besides.
    """
    target, identity, position = translation.target, translation.identity, translation.model.position
    recorded = separated(record, position)
    density, values = target.call, recorded.call

    def make() -> tuple[SamplingAlgorithm, OfData]:
        algorithm = build(lambda position, data, _: _density(density, data, position))
        return algorithm, OfData(lambda position, _, data: values(data, position))

    of_record = identity_of(recorded.call, recorded.data, position)
    is_known = identity is not None and of_record is not None
    return *(reused((identity, of_record, settings), make) if is_known else make()), (target.data, recorded.data)


def _density(call: Callable[..., Scalar], data: Any, position: Values) -> Scalar:
    with checked():
        return call(data, position)


def _left_out(sites: Mapping[str, Any]) -> dict[str, LeftOut]:
    found = {name: left_out(site["fn"]) for name, site in sites.items() if site["type"] == "sample"}
    return {name: part for name, part in found.items() if part is not None}


def _end_of_support(site: Any, end: int) -> Array:
    return jnp.broadcast_to(site["fn"].enumerate_support(expand=False)[end], jnp.shape(site["value"]))


def _first_valid(draw: Callable, log_density: Callable, key: PRNGKey) -> Values:
    """The first random position with finite density and gradient, or the last one."""

    def attempt(number: Any) -> tuple[Values, Any]:
        position = draw(jax.random.fold_in(key, number))
        return position, _tree.is_finite(jax.value_and_grad(log_density)(position))

    def is_open(carry: Any) -> Any:
        number, _, is_valid = carry
        return ~is_valid & (number < _NUM_TRIALS)

    def again(carry: Any) -> Any:
        return carry[0] + 1, *attempt(carry[0])

    like = jax.eval_shape(attempt, jnp.int32(0))[0]
    nowhere = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    return jax.lax.while_loop(is_open, again, (jnp.int32(0), nowhere, jnp.asarray(False)))[1]


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
    kind = type(site["fn"]).__name__
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


def _enumerated(model: Callable, model_trace: Mapping[str, Any]) -> Callable:
    from numpyro.contrib.funsor import config_enumerate, enum

    frames = [f.dim for s in model_trace.values() if s["type"] == "sample" for f in s["cond_indep_stack"]]
    return enum(config_enumerate(model), first_available_dim=min([d for d in frames if d is not None], default=0) - 1)
