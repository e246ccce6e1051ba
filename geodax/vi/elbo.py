r"""The evidence lower bound, and its stochastic ascent.

.. math::
    \mathcal L = E_{q(\theta)} \Big[ \sum_{i=1}^N \log p(y_i \mid \theta) \Big] - \mathrm{KL}(q \,\|\, p)
    \;\le\; \log p(y), \qquad
    \hat{\mathcal L} = \frac{N}{|B|} \sum_{i \in B} \frac1S \sum_{s=1}^S \log p(y_i \mid \theta_{is})
    - \beta\,\mathrm{KL}(q \,\|\, p) .

In networks of variational layers the weights :math:`\theta_{is}` are drawn independently for every example and draw.
The weight :math:`\beta` is 1, except during the warm-up of the divergence, when it rises from near 0.
"""

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, PyTree, Scalar
from geodax.data.parts import CHAIN_AXIS, DATA_AXIS, Part, gradient_and_aux, gradients_over_parts
from geodax.posterior import Posterior
from geodax.vi.modules import draw, require_network, total_kl
from geodax.vi.optimizers import Optimizer, require_optimizer, rounded, update_function
from geodax.vi.positions import require_free


class BoundInfo(NamedTuple):
    """Quantities reported by a step.

    Attributes:
        elbo: Estimate of the bound, in nats, for the whole data, before the step; with a ``log_prior`` of parameters
            without a posterior, this is added to it.
        log_likelihood: Expected log likelihood, the first term of the bound.
        kl: The unweighted divergence.
    """

    elbo: Scalar
    log_likelihood: Scalar
    kl: Scalar


class VariationalAlgorithm(NamedTuple):
    """A method that fits a variational posterior: pure functions ``init``, ``step`` and ``network``.

    Attributes:
        init: ``network -> state``, a pytree of arrays.
        step: ``(key, state, batch, iteration) -> (state, info)`` with a :class:`BoundInfo`.
        network: ``state -> network``, the posterior represented by a state.
        num_data: Number of examples in the whole data; None if unspecified.
        is_split: Whether the arrays of state and posterior are split over devices like those of a network.
    """

    init: Callable[[PyTree], Any]
    step: Callable[[PRNGKey, Any, PyTree, Array], tuple[Any, BoundInfo]]
    network: Callable[[Any], PyTree]
    num_data: int | None = None
    is_split: bool = False


class AscentState(NamedTuple):
    """Trained arrays, in at least single precision, and the optimiser's state."""

    params: PyTree
    optimizer: PyTree


def elbo(
    key: PRNGKey,
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    batch: PyTree,
    *,
    num_data: int,
    num_samples: int = 1,
    kl_weight: Any = 1.0,
    log_prior: Callable[[PyTree], Scalar] | None = None,
) -> BoundInfo:
    """Compute an unbiased estimate of the evidence lower bound from one batch.

    Args:
        key: A PRNG key.
        network: A network that contains variational modules, or a posterior over a whole position.
        log_likelihood: ``(position, batch) -> (B,)``, as for :class:`geodax.Posterior`; ``nn.GaussianLikelihood`` and
            the other likelihoods of ``nn`` draw different weights for each example.
        batch: Arrays whose first axis indexes the examples, or a :class:`~geodax.data.parts.Part`, whose estimate
            covers this device's examples and draws only and has to be averaged.
        num_data: Number of examples in the whole data.
        num_samples: Number of draws of the weights.
        kl_weight: Weight of the divergence.
        log_prior: Log prior density of the parameters without a posterior, as a function of the network; None for
            no such term.

    Returns:
        The estimate and its two terms.

    Raises:
        TypeError: If the network is a plain position without a posterior.
    """
    require_network("elbo", network)
    part = batch if isinstance(batch, Part) else Part(batch, ())
    key_draws, key_kl = jax.random.split(key)
    # half precision cannot represent sums over all weights and data
    kl = total_kl(_widened_module(network), key=key_kl)

    def expected(network: PyTree, batch: PyTree) -> Array:
        def once(key: PRNGKey) -> Array:
            return _tree.widened(
                jnp.asarray(log_likelihood(draw(network, key, *part.share(DATA_AXIS, *part.model_axes)), batch))
            )

        if num_samples == 1:
            return once(key_draws)
        number, count = part.share(CHAIN_AXIS)
        keys = jax.random.split(key_draws, num_samples)
        if number is not None:
            size = num_samples // count
            keys = jax.lax.dynamic_slice_in_dim(keys, number * size, size)
        return jnp.mean(jax.vmap(once)(keys), axis=0)

    flat = Posterior(log_prior=lambda _: jnp.zeros((), kl.dtype), log_likelihood=expected, num_data=num_data)
    value = flat.logdensity(network, part.batch)
    weighted = jnp.asarray(kl_weight).astype(value.dtype) * kl.astype(value.dtype)
    prior = jnp.zeros((), value.dtype) if log_prior is None else _tree.widened(jnp.asarray(log_prior(network)))
    return BoundInfo(value + prior.astype(value.dtype) - weighted, value, kl.astype(value.dtype))


def ascent(
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    optimizer: Optimizer,
    *,
    num_data: int,
    num_samples: int = 1,
    kl_warmup: int = 0,
    held: Mapping[str, int] | None = None,
    log_prior: Callable[[PyTree], Scalar] | None = None,
) -> VariationalAlgorithm:
    """Maximise the bound with an optimiser, whose gradients are those of the bound divided by ``num_data``.

    Args:
        network: The network or posterior to fit; only its structure is used here.
        log_likelihood: As for :func:`elbo`.
        optimizer: :func:`~geodax.vi.optimizers.adam`, or an optax optimiser. Optimisers with extra arguments receive
            ``value``, the loss, and ``grad``; line searches (``value_fn``) do not work with estimated bounds.
        num_data: Number of examples in the whole data.
        num_samples: Number of draws of the weights per step.
        kl_warmup: Number of steps in which the weight of the divergence rises to 1.
        held: Maps shell patterns of array paths to the number of steps during which these arrays stay fixed.
        log_prior: As for :func:`elbo`.

    Returns:
        The algorithm.

    Raises:
        TypeError: If an argument has the wrong type, or the optimizer needs unavailable arguments.
        ValueError: If a number is out of range, a pattern matches no array, or parameters lie on a manifold.
    """
    require_network("ascent", network)
    require_free("ascent", network)
    num_samples = _checks.whole("ascent", "num_samples", num_samples)
    kl_warmup = _checks.whole("ascent", "kl_warmup", kl_warmup, least=0)
    require_optimizer("ascent", optimizer)
    if log_prior is not None:
        _checks.function("ascent", "log_prior", log_prior)
    params, rest = eqx.partition(network, eqx.is_inexact_array)
    if not jax.tree.leaves(params):
        raise TypeError(f"ascent: expected a network with arrays to fit, found {_checks.described(network)}.")
    kinds = jax.tree.map(lambda leaf: leaf.dtype, params)
    update = update_function("ascent", optimizer, _tree.widened(params))
    free_from = _free_from(params, {} if held is None else held)

    def init(network: PyTree) -> AscentState:
        # copies, because a run donates its state
        arrays = _tree.widened(jax.tree.map(jnp.array, eqx.filter(network, eqx.is_inexact_array)))
        return AscentState(arrays, optimizer.init(arrays))

    def step(key: PRNGKey, state: AscentState, batch: PyTree, iteration: Array) -> tuple[AscentState, BoundInfo]:
        weight = jnp.minimum((iteration + 1) / max(kl_warmup, 1), 1.0)

        def loss(params: PyTree, batch: PyTree, key: PRNGKey, weight: Array) -> tuple[Scalar, BoundInfo]:
            info = elbo(
                key,
                eqx.combine(rounded(params, kinds), rest),
                log_likelihood,
                batch,
                num_data=num_data,
                num_samples=num_samples,
                kl_weight=weight,
                log_prior=log_prior,
            )
            return -info.elbo / num_data, info

        def of_part(part: PyTree, params: PyTree, *given: Array) -> tuple[BoundInfo, tuple[PyTree]]:
            gradient, info = gradient_and_aux(lambda x: loss(x, part, *given), part, params)
            return info, (gradient,)

        info, (gradients,) = gradients_over_parts(of_part, batch, state.params, given=(key, weight))
        # zero gradients keep the optimiser's moments of held arrays at zero too
        gradients = jax.tree.map(
            lambda g, first: g if first == 0 else jnp.where(iteration < first, jnp.zeros_like(g), g),
            gradients,
            free_from,
        )
        updates, optimizer_state = update(gradients, state.optimizer, state.params, -info.elbo / num_data)
        moved = jax.tree.map(
            lambda p, u, first: p + u.astype(p.dtype) if first == 0 else jnp.where(iteration < first, p, p + u),
            state.params,
            updates,
            free_from,
        )
        return AscentState(moved, optimizer_state), info

    def fitted(state: AscentState) -> PyTree:
        return eqx.combine(rounded(state.params, kinds), rest)

    return VariationalAlgorithm(init, step, fitted, num_data)


def _widened_module(network: PyTree) -> PyTree:
    arrays, rest = eqx.partition(network, eqx.is_inexact_array)
    return eqx.combine(_tree.widened(arrays), rest)


def _free_from(params: PyTree, held: Mapping[str, int]) -> PyTree:
    if not isinstance(held, Mapping):
        found = _checks.described(held)
        raise TypeError(
            f"ascent: held must map patterns to numbers of steps, such as {{'log_noise': 500}}, found {found}."
        )
    for pattern, steps in held.items():
        if not isinstance(pattern, str):
            raise TypeError(f"ascent: a pattern of held arrays must be a string, found {_checks.described(pattern)}.")
        _checks.whole("ascent", f"the steps of {pattern!r}", steps, least=0)
    names = _tree.leaf_names(params)
    for pattern in held:
        if not fnmatch.filter(names, pattern):
            raise ValueError(f"ascent: the pattern {pattern!r} of held arrays matches none of {names}.")
    steps = [max((n for pattern, n in held.items() if fnmatch.fnmatchcase(name, pattern)), default=0) for name in names]
    return jax.tree.structure(params).unflatten(steps)
