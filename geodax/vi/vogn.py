r"""Variational online Gauss-Newton: natural-gradient ascent of a mean-field bound with Adam's momentum.

The posterior of every parameter is normal with precision :math:`N f + \delta`, where f is a moving average of squared
gradients of *single examples* and :math:`\delta` the precision of the prior. With weights w drawn from it,

.. math::
    \bar g &= \tfrac1{|B|} \sum_{i \in B} \nabla_w [-\log p(y_i \mid w)] + \tfrac\delta N \mu, \qquad
    f \leftarrow \beta_2 f + (1 - \beta_2) \tfrac1{|B|} \sum_{i \in B} (\nabla_w \log p(y_i \mid w))^2, \\
    m &\leftarrow \beta_1 m + (1 - \beta_1) \bar g, \qquad
    \mu \leftarrow \mu - \ell_t \frac{m / (1 - \beta_1^t)}{f + \delta / N + \gamma} .

Noisy Adam (Zhang et al. 2018) is the same update with the square of the batch's mean gradient in place of the mean of
squares, a biased estimate of the curvature for batches of more than one example (``per_example=False``).

Sources:
    Khan, Nielsen, Tangkaratt, Lin, Gal and Srivastava (2018), Fast and scalable Bayesian deep learning by
    weight-perturbation in Adam. ICML.
    Zhang, Sun, Duvenaud and Grosse (2018), Noisy natural gradient as variational inference. ICML.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, PyTree, Schedule
from geodax.data.parts import gradients_over_parts, one_by_one, own_examples, scattered, whole
from geodax.vi.elbo import BoundInfo, VariationalAlgorithm
from geodax.vi.ivon import mean_and_gradient, schedule_of
from geodax.vi.positions import NOISE, GaussianOver, prior_variances_of, same_positions


class NaturalState(NamedTuple):
    """Means, averages of squared gradients and of gradients (vectors, or arrays by name), and the number of steps.

    Arrays are kept in at least single precision: in half precision a decay rate of 0.999 rounds to 1.
    """

    mean: PyTree
    curvature: PyTree
    momentum: PyTree
    count: Array
    points: tuple[Array, ...]
    point_averages: tuple[tuple[Array, Array], ...]


def vogn(
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    learning_rate: float | Schedule,
    *,
    num_data: int,
    prior_variance: float = 1.0,
    priors: Any = None,
    initial_curvature: float = 1.0,
    beta1: float = 0.9,
    beta2: float = 0.999,
    damping: float = 1e-3,
    points: Sequence[str] = (NOISE,),
    per_example: bool = True,
) -> VariationalAlgorithm:
    """Create variational online Gauss-Newton for an ordinary network or any other position.

    Args:
        network: A network without variational layers; its arrays are the initial means. Arrays that are split over
            devices (:func:`geodax.shard`) stay split, and the state and the posterior with them.
        log_likelihood: ``(position, batch) -> (B,)``.
        learning_rate: A number, or a function of the iteration; a rate of 1 is a Newton step.
        num_data: Number of examples in the whole data.
        prior_variance: Variance of the normal prior of every parameter.
        priors: A :class:`geodax.nn.Priors` of normal distributions with mean 0, in place of ``prior_variance``.
        initial_curvature: Initial value of the average f, which has no bias correction, so that the first draws are not
            too wide.
        beta1: Decay rate of the average of gradients.
        beta2: Decay rate of the average of squared gradients.
        damping: Added to the denominator of the step; it changes the path, not the target posterior.
        points: Shell patterns of the paths of parameters without posterior and prior; they take the same steps.
        per_example: False for noisy Adam.

    Returns:
        The algorithm; it fits a :class:`~geodax.vi.positions.GaussianOver` of the network.

    Raises:
        TypeError: If the network already has posteriors.
        ValueError: If a number is out of range, a prior is not normal with mean 0, or parameters lie on a manifold;
            raised by ``init`` if its network has other arrays.
    """
    num_data = _checks.whole("vogn", "num_data", num_data)
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        _checks.number("vogn", name, value, least=0.0, below=1.0)
    for name, value in (("initial_curvature", initial_curvature), ("damping", damping)):
        _checks.number("vogn", name, value, least=0.0)
    require_same = same_positions("vogn", network)
    variances = prior_variances_of("vogn", network, points, prior_variance, priors)
    template = GaussianOver(network, prior_variance=variances, points=points)
    rates = schedule_of(learning_rate)

    def prior_precisions() -> PyTree:
        return jax.tree.map(lambda variance: 1.0 / (num_data * variance), template.prior_variances())

    def init(network: PyTree) -> NaturalState:
        require_same(network)
        mean, free = _tree.widened(jax.tree.map(jnp.array, template.arranged(network)))
        averages = tuple((jnp.zeros_like(p), jnp.full_like(p, initial_curvature)) for p in free)
        first = jax.tree.map(lambda x: jnp.full_like(x, initial_curvature), mean)
        return NaturalState(mean, first, _tree.zeros_like(mean), jnp.zeros((), jnp.int32), free, averages)

    def posterior(state: NaturalState) -> GaussianOver:
        log_scale = jax.tree.map(
            lambda f, delta: -0.5 * jnp.log(num_data * (f + delta)), state.curvature, prior_precisions()
        )
        return template.fitted(state.mean, log_scale, state.points)

    def step(key: PRNGKey, state: NaturalState, batch: PyTree, iteration: Array) -> tuple[NaturalState, BoundInfo]:
        q = posterior(state)
        position = q.sample(key)

        def averages(part: PyTree, position: PyTree, _: PyTree) -> tuple[Array, tuple[PyTree, PyTree]]:
            """Means over examples of the log likelihood, its gradients and their squares."""
            single, axes = one_by_one(own_examples(part))
            values, gradients = jax.vmap(
                jax.value_and_grad(lambda position, rows: log_likelihood(position, rows)[0]), (None, axes)
            )(whole(part, position), single)
            values, gradients = _tree.widened((values, gradients))
            mean = jax.tree.map(lambda g: jnp.mean(g, axis=0), gradients)
            square = jax.tree.map(lambda g: jnp.mean(g * g, axis=0), gradients)
            return jnp.mean(values), (scattered(part, mean), scattered(part, square))

        if per_example:
            value, (gradient, square) = gradients_over_parts(averages, batch, position, position)
        else:
            value, gradient = mean_and_gradient(log_likelihood, batch, position)
            square = jax.tree.map(lambda g: g * g, gradient)
        first, square = q.arranged(gradient), q.arranged(square)
        first = _tree.scale(-1.0, first)
        count, rate = state.count + 1, rates(iteration)

        def moved(position, average, curvature, gradient, squared, prior=0.0):
            average = beta1 * average + (1.0 - beta1) * (gradient + prior * position)
            curvature = beta2 * curvature + (1.0 - beta2) * squared
            step = average / (1.0 - beta1 ** count.astype(average.dtype)) / (curvature + prior + damping)
            return position - rate.astype(step.dtype) * step, average, curvature

        trees = (state.mean, state.momentum, state.curvature, first[0], square[0], prior_precisions())
        found = jax.tree.map(moved, *trees)
        mean, momentum, curvature = jax.tree.transpose(jax.tree.structure(state.mean), None, found)
        points_moved = [
            moved(point, *averages, g, s)
            for point, averages, g, s in zip(state.points, state.point_averages, first[1], square[1], strict=True)
        ]
        expected = num_data * value
        kl = q.kl().astype(expected.dtype)
        next_state = NaturalState(
            mean,
            curvature,
            momentum,
            count,
            tuple(point for point, *_ in points_moved),
            tuple((average, square) for _, average, square in points_moved),
        )
        return next_state, BoundInfo(expected - kl, expected, kl)

    return VariationalAlgorithm(init, step, posterior, num_data, template.is_split)
