r"""Laplace approximations of the posterior of a trained network: of its last layer, or of its dense layers.

With the other layers fixed, the posterior of the last layer's parameters :math:`\theta` is approximated by a normal
distribution at :math:`\hat\theta` whose precision is minus the Hessian there,

.. math::
    \Lambda = - \sum_{i=1}^N \nabla^2_\theta \log p(y_i \mid \hat\theta) + \lambda^{-1} I .

For a linear last layer with a normal or a categorical likelihood the Hessian is the generalised Gauss-Newton matrix, so
the precision is positive definite wherever training stopped.

Source:
    Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), Laplace redux. NeurIPS.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _parameters, _tree
from geodax._types import Array, PyTree
from geodax._wording import LABELS
from geodax.data.errors import listed
from geodax.data.minibatches import require_no_batches
from geodax.nn.evidence import warn_if_vague
from geodax.nn.gauss_newton import Taps, batch_sums, blocks_of, weighted_sum
from geodax.nn.laplace_layers import LaplacePosterior
from geodax.nn.likelihoods import CategoricalLikelihood, GaussianLikelihood, apply_network
from geodax.vi.dense import replaced
from geodax.vi.families import FullGaussian
from geodax.vi.positions import GaussianOver

_POSTERIOR = "laplace_posterior"


def last_layer_laplace(
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    data: PyTree,
    *,
    where: Callable[[PyTree], Any],
    prior_variance: float = 1.0,
    batch_size: int = 512,
) -> Any:
    """Replace the last layer of a trained network by a Gaussian posterior over it.

    The precision is dense, the Hessian of any likelihood; for layers with many parameters, and for several layers, use
    :func:`laplace_posterior`.

    Args:
        network: A network trained to the posterior mode, at least of its last layer.
        log_likelihood: ``(position, batch) -> (B,)``.
        data: Arrays whose first axis indexes the examples.
        where: Selects the layer: ``lambda network: network.layers[-1]``, for parameters of Flax
            ``lambda params: params["out"]``.
        prior_variance: Variance of the normal prior of every parameter of the layer.
        batch_size: Number of examples whose Hessian is computed at a time.

    Returns:
        The network with a :class:`~geodax.vi.GaussianOver` as its last layer, for :func:`geodax.vi.predict`.

    Raises:
        TypeError: If ``batch_size`` is not an integer.
        ValueError: If the log likelihood or an array of the data does not have one entry for each example, or a log
            likelihood is not finite, as for labels out of range. If the precision is not positive definite, which can
            happen away from a mode if the Hessian of the likelihood is not a Gauss-Newton matrix.
    """
    batch_size = _checks.whole("last_layer_laplace", "batch_size", batch_size)
    _require_values("last_layer_laplace", network, data)
    network, rebuilt = _as_dict(network)
    over = GaussianOver(where(network), "full", prior_variance=prior_variance)
    mean: Any = over.family.location
    require_no_batches("last_layer_laplace", data)
    data = jax.tree.map(jnp.asarray, data)
    num_data = _num_examples("last_layer_laplace", data)

    @jax.jit
    def expansion(theta: Array, batch: PyTree) -> tuple[Array, Array]:
        def total(theta: Array) -> Array:
            values = log_likelihood(rebuilt(eqx.tree_at(where, network, over.position(theta))), batch)
            rows = jax.tree.leaves(batch)[0].shape[:1]
            if values.shape != rows:
                raise ValueError(
                    f"last_layer_laplace: log_likelihood must return one number for each of the {rows[0]} examples of "
                    f"a batch, neither summed nor averaged, found shape {values.shape}."
                )
            return jnp.sum(values)

        return total(theta), jax.hessian(total)(theta)

    value = jnp.zeros((), mean.dtype)
    precision = jnp.eye(mean.size, dtype=mean.dtype) / over.prior_variances()
    for start in range(0, num_data, batch_size):
        rows = slice(start, start + batch_size)
        of_batch, hessian = expansion(mean, jax.tree.map(operator.itemgetter(rows), data))
        value, precision = value + of_batch.astype(mean.dtype), precision - hessian
    _require_finite("last_layer_laplace", value)
    # the flipped inverse Cholesky factor is a Cholesky factor of the inverse
    flipped = jnp.linalg.cholesky(precision[::-1, ::-1])
    if not bool(jnp.isfinite(flipped).all()):
        raise ValueError(
            "last_layer_laplace: the precision is not positive definite. Train the last layer to its mode, or use a "
            "likelihood that is log-concave in the network's outputs."
        )
    root = jax.lax.linalg.triangular_solve(
        flipped[::-1, ::-1].T, jnp.eye(mean.size, dtype=mean.dtype), left_side=True, lower=True
    )
    if isinstance(log_likelihood, CategoricalLikelihood):
        num_determined = mean.size - float(jnp.sum(root * root)) / prior_variance
        warn_if_vague("last_layer_laplace", num_determined, -float(value), float(num_data))
    family = FullGaussian(mean, jnp.log(jnp.diagonal(root)), jnp.tril(root, -1))
    return rebuilt(eqx.tree_at(where, network, eqx.tree_at(lambda tree: tree.family, over, family)))


def _as_dict(network: PyTree) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Convert other mappings to dicts, and return the way back."""
    if isinstance(network, dict) or not isinstance(network, Mapping):
        return network, lambda network: network
    return _tree.entries_of(network)


def laplace_posterior(
    network: PyTree,
    likelihood: CategoricalLikelihood | GaussianLikelihood,
    data: PyTree,
    *,
    structure: str = "kronecker",
    where: Callable[[Any], Any] | None = None,
    prior_variance: float | Sequence[float] = 1.0,
    weights: Any = None,
    batch_size: int = 512,
) -> LaplacePosterior:
    """Approximate the posterior of dense layers of a trained network by a normal distribution.

    The precision is the generalised Gauss-Newton matrix of the likelihood plus that of the prior. Layers that are not
    selected, or not dense, keep their trained parameters.

    Args:
        network: A network of one example, trained to the posterior mode; of an Equinox network the whole, not a part of
            :func:`equinox.partition`, and if it has dropout in ``equinox.nn.inference_mode``.
        likelihood: A likelihood of networks, with its default ``apply``; several targets may have their own noise.
        data: Inputs and targets whose first axis indexes the examples.
        structure: ``"kronecker"``: two factors a layer, memory of inputs² + outputs². ``"diagonal"``: a number a
            parameter. Both ignore correlations between layers. ``"full"``: the matrix of all selected parameters.
        where: Selects a layer or a sequence of layers, ``lambda network: network.layers[-1]``; None for all
            :class:`equinox.nn.Linear`, with a warning if there are other weights, such as those of convolutions.
        prior_variance: Variance of the normal prior of every parameter; or one variance a layer, in the order in
            which the layers appear in the network, not for ``"full"``.
        weights: Weight of each example, which multiplies its log likelihood; None weights all by 1.
        batch_size: Number of examples at a time.

    Returns:
        The posterior. Time is one backward pass a batch and output; a layer whose outputs are the network's needs none.

    Raises:
        TypeError: If ``where`` selects anything but dense layers, or the likelihood is another function.
        ValueError: If an argument is out of range, the numbers of examples differ, or a layer is called several times
            for an example.

    Example:
        ``posterior = laplace_posterior(network, CategoricalLikelihood(), (x, y)).maximised()``, then
        ``posterior.linearised(x).probabilities()``.
    """
    _checks.chosen(_POSTERIOR, "structure", structure, ("kronecker", "diagonal", "full"))
    batch_size = _checks.whole(_POSTERIOR, "batch_size", batch_size)
    _require_values(_POSTERIOR, network, data)
    if not isinstance(likelihood, CategoricalLikelihood | GaussianLikelihood) or likelihood.apply is not apply_network:
        raise TypeError(
            f"{_POSTERIOR}: expected nn.CategoricalLikelihood() or nn.GaussianLikelihood(...) without apply=, found "
            f"{_checks.described(likelihood)}; for other likelihoods use nn.last_layer_laplace."
        )
    require_no_batches(_POSTERIOR, data)
    data = jax.tree.map(jnp.asarray, data)
    _parameters.warn_if_tied(_POSTERIOR, "network", network)
    taps, size = Taps(_POSTERIOR, network, where), _num_examples(_POSTERIOR, data)
    if where is None:
        _warn_of_others(network, taps.places)
    weight = _weights(weights, size)
    variances = _variances(prior_variance, 1 if structure == "full" else len(taps.places))
    are_last = tuple(taps.are_last(network, data[0]))

    total = None
    for start in range(0, size, batch_size):
        rows = slice(start, start + batch_size)
        batch = jax.tree.map(operator.itemgetter(rows), data)
        part = _sums(taps, are_last, structure, likelihood, network, batch, jnp.asarray(weight[rows]))
        total = part if total is None else _tree.add(total, part)
    assert total is not None
    sums, misfit = total
    _require_finite(_POSTERIOR, misfit)
    num_data, log_noise = float(np.sum(weight)), None
    if isinstance(likelihood, GaussianLikelihood):
        log_noise = likelihood.log_noise(network, misfit).astype(misfit.dtype)
    shares = None
    if log_noise is None or log_noise.ndim == 0:
        misfit = jnp.sum(misfit)
    else:
        shares, sums = sums, weighted_sum(sums, jnp.exp(-2.0 * log_noise).reshape(-1))
    return LaplacePosterior(
        network,
        blocks_of(sums, num_data),
        -jnp.log(jnp.asarray(variances, misfit.dtype)),
        log_noise,
        misfit,
        shares,
        num_data * (data[1].size // size),
        structure == "full",
        taps.places,
    )


@eqx.filter_jit
def _sums(
    taps: Taps,
    are_last: tuple[bool, ...],
    structure: str,
    likelihood: Any,
    network: PyTree,
    batch: tuple[PyTree, Array],
    weights: Array,
) -> tuple[Any, Array]:
    """Sums of a batch for the Gauss-Newton matrices, of each target if it has its own noise, and its misfit."""
    is_classes = isinstance(likelihood, CategoricalLikelihood)
    each = -likelihood(network, batch)  # also checks the targets
    sums = functools.partial(batch_sums, taps, are_last, structure, is_classes, network, batch[0], weights)
    if not is_classes:
        residuals = _tree.widened(apply_network(network, batch[0])) - _tree.widened(batch[1])
        each = residuals * residuals
    misfit = jnp.tensordot(weights.astype(each.dtype), each, 1)
    if is_classes or likelihood.log_noise(network, misfit).ndim == 0:
        return sums(), misfit
    return jax.lax.map(sums, jnp.arange(misfit.size)), misfit


def _warn_of_others(network: PyTree, places: tuple[int, ...]) -> None:
    """Warn of weights that no dense layer has; biases and scales of norms are few."""
    arrays = eqx.filter(network, eqx.is_inexact_array)
    beside = replaced(arrays, places, lambda layers: [None] * len(layers))
    left = _tree.named_leaves(beside)
    weights = [name for name, array in left if array.ndim > 1]
    if weights:
        sizes = [sum(array.size for array in jax.tree.leaves(tree)) for tree in (beside, arrays)]
        _checks.warn(
            f"{_POSTERIOR}: only dense layers have a posterior; {listed(weights)} and all other arrays, "
            f"{sizes[0]:,} of {sizes[1]:,} parameters, keep their trained values. Select the layers with where= if "
            "that is meant, or use gx.vi.noisy_kfac for all arrays."
        )


def _require_values(owner: str, network: PyTree, data: PyTree) -> None:
    _checks.outside_programs(owner, "", network, data)
    _parameters.undeleted(owner, "network", network)


def _require_finite(owner: str, total: Array) -> None:
    if not bool(jnp.isfinite(total).all()):
        raise ValueError(
            f"{owner}: the log likelihood of the data is not finite. {LABELS.capitalize()}, and the data and the "
            "trained network finite."
        )


def _num_examples(owner: str, data: PyTree) -> int:
    sizes = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"{owner}: expected arrays with equal numbers of examples along their first axis, found {sorted(sizes)}."
        )
    return sizes.pop()


def _weights(given: Any, size: int) -> np.ndarray:
    if given is None:
        return np.ones(size, np.float32)
    weights = _checks.numbers(_POSTERIOR, "weights", given)
    if weights.shape != (size,) or not np.all(weights >= 0) or not np.any(weights > 0):
        raise ValueError(
            f"{_POSTERIOR}: expected a weight of at least 0 for each of {size} examples, some of them positive, found "
            f"{_checks.described(given)}."
        )
    return weights


def _variances(given: Any, number: int) -> list[float]:
    variances = list(given) if isinstance(given, list | tuple) else [given] * number
    if len(variances) != number:
        raise ValueError(
            f"{_POSTERIOR}: prior_variance must be one number, or one for each of {number} layers, found "
            f"{len(variances)}."
        )
    return [_checks.number(_POSTERIOR, "prior_variance", variance, above=0.0) for variance in variances]
