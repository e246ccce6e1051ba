"""A NumPyro model as a log density on a manifold.

Sites with support ``stiefel(n, p)`` are points of a Stiefel manifold, and sites on the sphere points of a sphere.
Angles (circular supports, such as that of ``VonMises``) become points of the unit circle. NumPyro's own transforms map
all others to unconstrained space. NumPyro runs the model itself, so plates, masks, scales, factors, conditioning and
enumeration have the same meaning.
"""

import functools
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from numpyro.infer import init_to_uniform

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, SamplingAlgorithm, Scalar
from geodax.geometry.manifolds import AbstractManifold
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.interop.numpyro.constants import checked, require_constant
from geodax.interop.numpyro.distributions import _typed, as_key
from geodax.interop.numpyro.initial import initial_positions
from geodax.interop.numpyro.masks import refuse_flat
from geodax.interop.numpyro.separation import Separated, dependent, identity_of, reusable, separated
from geodax.interop.numpyro.sites import coordinate, strategy_of
from geodax.interop.numpyro.traced import TracedModel, Values
from geodax.run.programs import compiled, reused
from geodax.run.records import OfData

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
    key = as_key("to_geodax", rng_key)
    strategy = strategy_of(init_strategy)
    traced = TracedModel(model, model_args, dict(model_kwargs or {}), key, strategy, stiefel_manifold or Stiefel())
    summed = {name: traced.latent[name]["value"] for name in traced.enumerated}
    undetermined = dependent(traced.deterministic, summed) if summed else set()
    if undetermined:
        warnings.warn(
            f"to_geodax: the deterministic sites {sorted(undetermined)} depend on the discrete sites {list(summed)}, "
            "which are summed out, so they are not recorded. numpyro.infer.Predictive(model, draws, "
            "infer_discrete=True) draws both from their posterior.",
            stacklevel=3,
        )

    def constrain(position: Values) -> Values:
        return {name: value for name, value in traced.constrain(position).items() if name not in undetermined}

    def draw(key: PRNGKey, strategy: Callable = strategy) -> Values:
        sites = traced.run(key, strategy)
        return {name: coordinate(sites[name]) for name in traced.continuous}

    if traced.without_constant:
        places = reusable(lambda: [traced.constants_at(jax.random.key(number), -number) for number in (0, 1)])()
        require_constant({name: part.name for name, part in traced.without_constant.items()}, places)
    log_density = traced.log_density
    refuse_flat(
        {name: site["fn"] for name, site in traced.continuous.items() if name not in traced.curved},
        lambda key: jax.grad(log_density)(draw(key, strategy_of(init_to_uniform))),
    )
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

    def initial(values: Any, num: int, key: PRNGKey) -> Values:
        shapes = {name: jnp.shape(site["value"]) for name, site in traced.continuous.items()}

        def with_values(key: PRNGKey, given: Callable[[Any], Array | None]) -> dict[str, Any]:
            return traced.run(key, lambda site: strategy(site) if (value := given(site)) is None else value)

        return initial_positions(values, num, key, shapes, with_values, coordinate)

    translated = GeodaxModel(
        log_density,
        Product(traced.curved),
        start(key),
        constrain,
        start,
        traced.observed,
        traced.enumerated,
        traced.fixed,
        traced.axes,
    )
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
