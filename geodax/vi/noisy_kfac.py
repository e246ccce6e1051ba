r"""Noisy K-FAC: natural-gradient ascent of the bound with a matrix distribution for each dense layer.

A layer has the weight and bias W, o x i, the inputs :math:`a = (x, 1)` and the gradients g of log likelihoods of single
examples with respect to its outputs. In units of the prior's standard deviations (:mod:`geodax.vi.kronecker`) the
posterior has the precision

.. math::
    N\, S \otimes A + I, \qquad
    A \leftarrow \beta_2 A + (1 - \beta_2) \tfrac1{|B|} \sum_{i \in B} a_i a_i^T, \qquad
    S \leftarrow \beta_2 S + (1 - \beta_2) \tfrac1{|B|} \sum_{i \in B} g_i g_i^T .

With weights drawn from it, the gradient :math:`\bar g` of the batch's mean loss and the mean :math:`\mu`,

.. math::
    m \leftarrow \beta_1 m + (1 - \beta_1) (\bar g + \tfrac1N \mu), \qquad
    \mu \leftarrow \mu - \ell_t\, (S \otimes A + \tfrac1N + \gamma)^{-1} \frac{m}{1 - \beta_1^t} .

Targets drawn from the network's own distribution make :math:`S \otimes A` an estimate of the Gauss-Newton matrix; given
targets, that of the empirical Fisher matrix, which also has the misfit in it. The paper adds the precision of the prior
to the two factors, which is an approximation; here it is added in their eigenbasis, where it is exact. Everything is
kept in a basis of eigenvectors that is computed anew every some steps; between them the diagonals of both factors in
this basis follow the averages (as in Vyas et al. 2024). A layer is then three products of a vector and a matrix for an
example, and weights are never drawn in their own coordinates. Arrays outside the layers take the steps of
:mod:`geodax.vi.ivon`.

Sources:
    Zhang, Sun, Duvenaud and Grosse (2018), Noisy natural gradient as variational inference. ICML, algorithm 2.
    Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature. ICML.
    Vyas, Morwani, Zhao, Kwun, Shapira, Brandfonbrener, Janson and Kakade (2024), SOAP: improving and stabilizing
    Shampoo using Adam. arXiv:2409.11321.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks, _parameters, _tree
from geodax._types import Array, PRNGKey, PyTree, Scalar, Schedule
from geodax.data.parts import DATA_AXIS, Part, gathered_again, one_by_one, over_rows, own_examples, whole
from geodax.vi.dense import extended, layers_at, matrix_of, output_zeros, places_of, replaced, require_one_call
from geodax.vi.eigenbases import LayerState, first_layer, like_rows, mesh_of, placed_like, refreshed
from geodax.vi.elbo import BoundInfo, VariationalAlgorithm
from geodax.vi.families import DiagonalGaussian, normal
from geodax.vi.ivon import Diagonal, move_points, newton_step, prior_and_gradient, schedule_of
from geodax.vi.kronecker import KroneckerOver, MatrixGaussian, assembled, column_units, others, vector_of
from geodax.vi.optimizers import adam
from geodax.vi.positions import NOISE, are_points, prior_variances_of, same_positions
from geodax.vi.stand_ins import AbstractStandIn

_OWNER = "noisy_kfac"
_FIRST_REFRESH = 8


class KroneckerState(NamedTuple):
    """Layers, other arrays with a posterior (None without), arrays without one, their optimiser, number of steps."""

    layers: tuple[LayerState, ...]
    rest: Diagonal | None
    points: tuple[Array, ...]
    optimizer: PyTree
    count: Array


class _Rotated(AbstractStandIn):
    """A dense layer as a matrix in a basis; gradients of the two slots are its input and its output's gradient."""

    layer: Any
    matrix: Float[Array, "o i"]
    left: Float[Array, "o o"]
    right: Float[Array, "i i"]
    columns: Float[Array, " i"]
    slots: tuple[Float[Array, " i"], Float[Array, " o"]]

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        inputs = extended(self.layer, jnp.reshape(x, -1)) * self.columns @ self.right
        before, after = self.slots
        y = _recorded(self.left @ (self.matrix @ inputs) + after, before, inputs.astype(before.dtype))
        return y.reshape(output_zeros(self.layer).shape).astype(jnp.result_type(x, self.layer.weight))


@jax.custom_vjp
def _recorded(y: Array, slot: Array, x: Array) -> Array:
    """Return y; the gradient of the slot is x."""
    return y


_recorded.defvjp(lambda y, slot, x: (y, x), lambda x, g: (g, x, jnp.zeros_like(x)))


def noisy_kfac(
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    learning_rate: float | Schedule,
    *,
    num_data: int,
    where: Callable[[Any], Any] | None = None,
    prior_variance: float = 1.0,
    priors: Any = None,
    initial_curvature: float = 1.0,
    beta1: float = 0.9,
    beta2: float = 0.99,
    damping: float = 1e-3,
    refresh_every: int = 100,
    points: Sequence[str] = (NOISE,),
    point_rate: float | Schedule = 1e-3,
    log_prior: Callable[[PyTree], Scalar] | None = None,
) -> VariationalAlgorithm:
    """Create noisy K-FAC for a network with dense layers.

    Args:
        network: A whole network without variational layers; its arrays are the initial means, other leaves stay. If
            arrays are split over devices (:func:`geodax.shard`), the state and the posterior are split, too.
        log_likelihood: ``(position, batch) -> (B,)``, a function that calls the network's layers. The likelihoods of
            :mod:`geodax.nn` draw the targets of the curvature by their method ``sample``; other functions without this
            method use the given targets.
        learning_rate: A number, or a function of the iteration; a rate of 1 is a Newton step.
        num_data: Number of examples in the whole data.
        where: Selects a layer or a sequence of layers, ``lambda network: network.layers[-1]``; None for all
            :class:`equinox.nn.Linear`. Other arrays (convolutions, norms) have independent posteriors.
        prior_variance: Variance of the normal prior of every parameter.
        priors: A :class:`geodax.nn.Priors` of normal distributions with mean 0, in place of ``prior_variance``.
        initial_curvature: Initial curvature of the mean loss of an example, which has no bias correction, so that the
            first draws are not too wide.
        beta1: Decay rate of the average of gradients.
        beta2: Decay rate of the averages of second moments. Other arrays have 0.9995 for that of Hessians.
        damping: Added to the curvature in the denominator of the step, in units in which the prior has variance 1. It
            changes the path, not the target posterior.
        refresh_every: Number of steps between eigendecompositions; there are further ones after 8, 16, 32, ... steps.
        points: Shell patterns of the paths of parameters without posterior and prior; Adam moves them.
        point_rate: Learning rate of Adam, a number or a function of the iteration.
        log_prior: Log density of a prior over the points, a function of the position.

    Returns:
        The algorithm; it fits a :class:`~geodax.vi.KroneckerOver`. Memory is twice inputs² + outputs² a layer.

    Raises:
        TypeError: If the network already has posteriors, or ``where`` selects anything but dense layers.
        ValueError: If a number is out of range, a prior is not normal with mean 0, or parameters lie on a manifold;
            raised by ``init`` if its network has other arrays, and by the first step if a layer is not called once for
            an example. The first step raises TypeError if leaves of the network are missing, as after
            :func:`equinox.partition`, so that it cannot be called.
    """
    settings = newton_step(_OWNER, num_data, beta1, 0.9995, None)
    num_data = settings.num_data
    beta2 = _checks.number(_OWNER, "beta2", beta2, least=0.0, below=1.0)
    damping = _checks.number(_OWNER, "damping", damping, least=0.0)
    initial = _checks.number(_OWNER, "initial_curvature", initial_curvature, above=0.0)
    refresh_every = _checks.whole(_OWNER, "refresh_every", refresh_every)
    require_same = same_positions(_OWNER, network)
    _parameters.leaves(_OWNER, "network", network)
    _parameters.warn_if_tied(_OWNER, "network", network)
    places, is_rest, units, variances = _layout(network, where, points, prior_variance, priors)
    mesh = mesh_of(network)
    rates, optimizer = schedule_of(learning_rate), adam(schedule_of(point_rate))
    draw_targets = getattr(log_likelihood, "sample", None)

    def first(layer: Any, units: tuple[float, float | None]) -> LayerState:
        matrix = _tree.widened(matrix_of(layer))
        return first_layer(matrix, column_units(units, matrix.shape[1], matrix.dtype), initial, mesh)

    def init(network: PyTree) -> KroneckerState:
        require_same(network)
        network = eqx.filter(network, eqx.is_inexact_array)
        layers = tuple(map(first, layers_at(network, places), units))
        outside = zip(others(network, places), is_rest, strict=True)
        free = tuple(_tree.widened(jnp.array(array)) for array, chosen in outside if not chosen)
        rest = None
        if any(is_rest):
            mean = vector_of(network, places, is_rest)
            rest = Diagonal(mean, jnp.full_like(mean, initial), jnp.zeros_like(mean))
        return KroneckerState(layers, rest, free, optimizer.init(free), jnp.zeros((), jnp.int32))

    def posterior(state: KroneckerState) -> KroneckerOver:
        layers = []
        for layer, unit in zip(state.layers, units, strict=True):
            deviation = placed_like(jax.lax.rsqrt(num_data * layer.curvature() + 1.0), layer.mean)
            layers.append(MatrixGaussian(layer.mean, deviation, layer.left, layer.right, unit))
        means = [layer.outward(layer.mean) for layer in layers]
        at_mean = None if state.rest is None else state.rest.mean
        mean = placed_like(assembled(network, places, means, is_rest, at_mean, state.points), network)
        found = KroneckerOver(mean, tuple(layers), None, places, is_rest, variances)
        if state.rest is None:
            return found
        log_scale = jnp.log(settings.deviation(state.rest, found.prior_variances()))
        rest = DiagonalGaussian(state.rest.mean, log_scale)
        return eqx.tree_at(lambda node: node.rest, found, rest, is_leaf=lambda node: node is None)

    def step(key: PRNGKey, state: KroneckerState, batch: PyTree, iteration: Array) -> tuple[KroneckerState, BoundInfo]:
        q = posterior(state)
        key_rest, key_targets, *keys = jax.random.split(key, len(places) + 2)
        drawn = [
            layer.mean + layer.deviation * normal(key, layer.mean.shape, layer.mean.dtype)
            for key, layer in zip(keys, q.layers, strict=True)
        ]
        noise, rest = None, None
        if state.rest is not None and q.rest is not None:
            noise = normal(key_rest, state.rest.mean.shape, state.rest.mean.dtype)
            rest = state.rest.mean + jnp.exp(q.rest.log_scale) * noise

        def at(rest: Array | None, points: tuple[Array, ...]) -> PyTree:
            return assembled(network, places, [], is_rest, rest, points)

        def of_part(part: PyTree, layers: list[_Drawn], *given: Any) -> tuple[tuple[Array, Any, Any], list[_Moments]]:
            return _moments(part, log_likelihood, draw_targets, at, places, units, layers, *given)

        layers = [_Drawn(matrix, layer.left, layer.right) for matrix, layer in zip(drawn, q.layers, strict=True)]
        like = [_Moments(layer.mean, layer.outputs, layer.inputs) for layer in state.layers]
        given = rest, state.points, key_targets
        (value, of_rest, of_points), moments = over_rows(of_part, batch, layers, like, *given)
        count, rate = state.count + 1, rates(iteration)

        def moved(layer: LayerState, moment: _Moments) -> LayerState:
            gradient = layer.mean / num_data - moment.gradient
            momentum = beta1 * layer.momentum + (1.0 - beta1) * gradient
            layer = layer._replace(
                momentum=momentum,
                outputs=beta2 * layer.outputs + (1.0 - beta2) * moment.outputs,
                inputs=beta2 * layer.inputs + (1.0 - beta2) * moment.inputs,
            )
            unbiased = momentum / (1.0 - beta1 ** count.astype(momentum.dtype))
            change = unbiased / (layer.curvature() + (1.0 / num_data + damping))
            return layer._replace(mean=layer.mean - rate.astype(change.dtype) * change)

        layers = tuple(map(moved, state.layers, moments))
        is_power = (count & (count - 1) == 0) & (count >= _FIRST_REFRESH)
        is_due = is_power | (count % refresh_every == 0)
        layers = jax.lax.cond(is_due, refreshed, lambda layers: layers, layers)
        others_moved = None
        if state.rest is not None and noise is not None:
            others_moved = settings(state.rest, -of_rest, noise, q.prior_variances(), rate, count)
        prior, of_prior = prior_and_gradient(log_prior, lambda free: at(rest, free), state.points)
        free, inner = move_points(optimizer, state.points, state.optimizer, of_points, of_prior, num_data)
        expected = num_data * value
        kl = q.kl().astype(expected.dtype)
        info = BoundInfo(expected + prior.astype(expected.dtype) - kl, expected, kl)
        return KroneckerState(layers, others_moved, free, inner, count), info

    return VariationalAlgorithm(init, step, posterior, num_data, mesh is not None)


class _Drawn(NamedTuple):
    """A drawn matrix in the basis of a layer."""

    matrix: Array
    left: Array
    right: Array


class _Moments(NamedTuple):
    """Means over the examples of a batch, in the basis of a layer."""

    gradient: Array
    outputs: Array
    inputs: Array


def _moments(
    part: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    draw_targets: Callable[[PRNGKey, Any, PyTree], PyTree] | None,
    at: Callable[[Array | None, tuple[Array, ...]], PyTree],
    places: tuple[int, ...],
    units: list[tuple[float, float | None]],
    layers: list[_Drawn],
    rest: Array | None,
    points: tuple[Array, ...],
    key: PRNGKey,
) -> tuple[tuple[Array, Any, Any], list[_Moments]]:
    """Mean log likelihood, its gradients with respect to the other arrays and the points, and moments of each layer."""
    rows, is_split = own_examples(part), isinstance(part, Part) and bool(part.model_axes)
    again = gathered_again if is_split else lambda function: function
    size = max(leaf.shape[0] for leaf in jax.tree.leaves(rows) if jnp.ndim(leaf))
    one = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]) if jnp.ndim(leaf) else (), leaf.dtype), rows
    )
    require_one_call(_OWNER, at(rest, points), places, log_likelihood, one, in_batch=True)

    def position(layers: list[_Drawn], slots: list[Any], rest: Array | None, points: tuple[Array, ...]) -> PyTree:
        def rotated(nodes: list[Any]) -> list[Any]:
            return [
                _Rotated(node, *_trimmed(layer), column_units(unit, layer.matrix.shape[1], layer.matrix.dtype), own)
                for node, layer, unit, own in zip(nodes, layers, units, slots, strict=True)
            ]

        return replaced(at(rest, points), places, rotated)

    single, axes = one_by_one(rows)

    def values_of(slots: list[Any], rest: Array | None, points: tuple[Array, ...], keys: Array | None = None) -> Array:
        """The log likelihoods, with keys those of targets drawn from the network."""
        gathered = whole(part, layers)

        def of_one(slots: list[Any], rows: PyTree, key: PRNGKey | None) -> Array:
            network = position(gathered, slots, rest, points)
            if draw_targets is not None and key is not None:
                rows = jax.lax.stop_gradient(draw_targets(key, network, rows))
            return log_likelihood(network, rows)[0]

        return _tree.widened(jax.vmap(of_one, (0, axes, 0))(slots, single, keys))

    weights = [layer.weight.shape for layer in layers_at(at(rest, points), places)]
    slots = [
        (jnp.zeros((size, layer.right.shape[1]), layer.right.dtype), jnp.zeros((size, rows), layer.right.dtype))
        for layer, (rows, _) in zip(layers, weights, strict=True)
    ]
    values, pull = jax.vjp(again(values_of), slots, rest, points)
    found, of_rest, of_points = pull(jnp.full_like(values, 1.0 / size))
    curved = [(x, size * g) for x, g in found]
    if draw_targets is not None:
        # a key for each example of the batch, whichever device has it
        number, count = part.share(DATA_AXIS, *part.model_axes) if isinstance(part, Part) else (None, 1)
        keys = jax.random.split(key, size * count)
        keys = keys if number is None else jax.lax.dynamic_slice_in_dim(keys, number * size, size)
        drawn, pull = jax.vjp(again(lambda slots: values_of(slots, rest, points, keys)), slots)
        (curved,) = pull(jnp.ones_like(drawn))
    moments = []
    for (inputs, g), (_, other), layer in zip(found, curved, whole(part, layers), strict=True):
        g, other = g @ layer.left, other @ layer.left
        of_inputs = like_rows(inputs.T @ inputs / size, layer.right)
        moments.append(_Moments(g.T @ inputs, other.T @ other / size, of_inputs))
    return (jnp.mean(values), _tree.widened(of_rest), _tree.widened(of_points)), moments


def _trimmed(layer: _Drawn) -> _Drawn:
    return layer._replace(right=layer.right[: layer.matrix.shape[1]])


def _layout(
    network: PyTree, where: Callable[[Any], Any] | None, points: Sequence[str], prior_variance: float, priors: Any
) -> tuple[tuple[int, ...], tuple[bool, ...], list[tuple[float, float | None]], tuple[float, ...]]:
    """Places of the layers, whether other arrays have a posterior, units of the layers, variances of other arrays."""
    arrays = eqx.filter(network, eqx.is_inexact_array)
    structure, is_point = jax.tree.structure(arrays), are_points(arrays, points)
    found = iter(prior_variances_of(_OWNER, arrays, points, prior_variance, priors))
    variances = structure.unflatten([0.0 if point else next(found) for point in is_point])
    marked = structure.unflatten(is_point)

    def is_free(place: int) -> bool:
        (layer,), (mark,) = layers_at(network, (place,)), layers_at(marked, (place,))
        return layer.weight.ndim == 2 and not any(jax.tree.leaves(mark))

    places = tuple(place for place in places_of(_OWNER, network, where) if where is not None or is_free(place))
    if not places or not all(map(is_free, places)):
        raise ValueError(
            f"{_OWNER}: expected dense layers with matrices whose weight and bias have a posterior; check where= and "
            "points=, or use gx.vi.ivon."
        )
    units = [
        (float(layer.weight) ** 0.5, None if layer.bias is None else float(layer.bias) ** 0.5)
        for layer in layers_at(variances, places)
    ]
    is_rest = tuple(not point for point in others(marked, places))
    left = tuple(v for v, chosen in zip(others(variances, places), is_rest, strict=True) if chosen)
    return places, is_rest, units, left
