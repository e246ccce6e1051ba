r"""Improved variational online Newton (IVON): a mean-field posterior at the price of Adam.

The posterior of every parameter is normal with mean :math:`\mu`, variance :math:`\sigma^2 = 1 / (N (h + \delta))` and
:math:`\delta = 1 / (N \lambda)`, where :math:`\lambda` is the variance of its prior. With weights
:math:`w = \mu + \sigma \epsilon` drawn from it and :math:`\hat g = -\tfrac1{|B|} \sum_{i \in B} \nabla_w
\log p(y_i \mid w)`,

.. math::
    \hat h &= \hat g \, \epsilon / \sigma, \qquad
    h \leftarrow \beta_2 h + (1 - \beta_2) \hat h + \tfrac12 (1 - \beta_2)^2 \frac{(h - \hat h)^2}{h + \delta}, \\
    m &\leftarrow \beta_1 m + (1 - \beta_1) \hat g, \qquad
    \mu \leftarrow \mu - \ell_t \frac{m / (1 - \beta_1^t) + \delta \mu}{h + \delta} .

The expectation of :math:`\hat h` is that of the diagonal of the Hessian of the loss (Price's theorem), for batches of
any size, so one gradient of the batch's mean suffices. The last term of the average keeps :math:`h + \delta` positive.
It raises the stationary precision by a fraction of about :math:`\tfrac12 (1 - \beta_2) N / |B|`, so
:math:`1 - \beta_2` has to be small beside :math:`|B| / N`, that is, the average has to extend over more than a pass.

Source:
    Shen, Daheim, Cong, Nickl, Marconi, Bazan, Yokota, Gurevych, Cremers, Khan and Möllenhoff (2024), Variational
    learning is effective for large deep networks. ICML, algorithm 1. A learning rate :math:`\alpha` there is
    :math:`\ell = \alpha (h_0 + \delta)` here.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, PRNGKey, PyTree, Scalar, Schedule
from geodax.data.parts import gradients_over_parts, own_examples, value_and_gradient
from geodax.vi.elbo import BoundInfo, VariationalAlgorithm
from geodax.vi.optimizers import Transformation, adam, rounded
from geodax.vi.positions import NOISE, GaussianOver, prior_variances_of, same_positions


class Diagonal(NamedTuple):
    """Means, averages of Hessians and of gradients in at least single precision: vectors, or arrays by name."""

    mean: PyTree
    hessian: PyTree
    momentum: PyTree


class NewtonState(NamedTuple):
    """Parameters with a posterior, parameters without, the state of Adam for these, and the number of steps."""

    diagonal: Diagonal
    points: tuple[Array, ...]
    optimizer: PyTree
    count: Array


class NewtonStep(NamedTuple):
    """Settings of the steps of parameters with independent posteriors.

    Attributes:
        beta1: Decay rate of the average of gradients.
        beta2: Decay rate of the average of Hessians.
        clip: Largest absolute entry of a step at learning rate 1; None for no limit.
    """

    num_data: int
    beta1: float
    beta2: float
    clip: float | None

    def deviation(self, state: Diagonal, variance: Any) -> PyTree:
        """Return the standard deviations of the posterior; ``variance`` is that of the prior."""
        return jax.tree.map(lambda h, v: jax.lax.rsqrt(self.num_data * h + 1.0 / v), state.hessian, variance)

    def __call__(
        self, state: Diagonal, gradient: PyTree, noise: PyTree, variance: Any, rate: Array, t: Array
    ) -> Diagonal:
        """Return the state after step t, from 1, with the gradient of the mean loss at parameters drawn with noise."""

        def moved(mean, hessian, momentum, gradient, noise, deviation, variance):
            delta = 1.0 / (self.num_data * variance)
            change = (1.0 - self.beta2) * (gradient * noise / deviation - hessian)
            hessian = hessian + change + 0.5 * change * change / (hessian + delta)
            momentum = self.beta1 * momentum + (1.0 - self.beta1) * gradient
            unbiased = momentum / (1.0 - self.beta1 ** t.astype(momentum.dtype))
            step = (unbiased + delta * mean) / (hessian + delta)
            if self.clip is not None:
                step = jnp.clip(step, -self.clip, self.clip)
            return Diagonal(mean - rate.astype(step.dtype) * step, hessian, momentum)

        found = jax.tree.map(moved, *state, gradient, noise, self.deviation(state, variance), variance)
        return jax.tree.transpose(jax.tree.structure(state.mean), None, found)


def ivon(
    network: PyTree,
    log_likelihood: Callable[[Any, PyTree], Array],
    learning_rate: float | Schedule,
    *,
    num_data: int,
    prior_variance: float = 1.0,
    priors: Any = None,
    initial_hessian: float = 1.0,
    beta1: float = 0.9,
    beta2: float = 0.9995,
    clip: float | None = None,
    points: Sequence[str] = (NOISE,),
    point_rate: float | Schedule = 1e-3,
    log_prior: Callable[[PyTree], Scalar] | None = None,
) -> VariationalAlgorithm:
    """Create improved variational online Newton for an ordinary network or any other position.

    Args:
        network: A network without variational layers; its arrays are the initial means. Arrays that are split over
            devices (:func:`geodax.shard`) stay split, and the state and the posterior with them.
        log_likelihood: ``(position, batch) -> (B,)``.
        learning_rate: A number, or a function of the iteration; a rate of 1 is a Newton step.
        num_data: Number of examples in the whole data.
        prior_variance: Variance of the normal prior of every parameter.
        priors: A :class:`geodax.nn.Priors` of normal distributions with mean 0, in place of ``prior_variance``.
        initial_hessian: Initial value of the average h, which has no bias correction; much larger values keep the
            posterior too narrow for about 1 / (1 - ``beta2``) steps, much smaller ones make the first draws too wide.
        beta1: Decay rate of the average of gradients.
        beta2: Decay rate of the average of Hessians.
        clip: Largest absolute entry of a step at learning rate 1; None for no limit.
        points: Shell patterns of the paths of parameters without posterior and prior; Adam moves them.
        point_rate: Learning rate of Adam, a number or a function of the iteration.
        log_prior: Log density of a prior over the points, a function of the position.

    Returns:
        The algorithm; it fits a :class:`~geodax.vi.positions.GaussianOver` of the network.

    Raises:
        TypeError: If the network already has posteriors.
        ValueError: If a number is out of range, a prior is not normal with mean 0, or parameters lie on a manifold;
            raised by ``init`` if its network has other arrays.
    """
    stepped = newton_step("ivon", num_data, beta1, beta2, clip)
    initial = _checks.number("ivon", "initial_hessian", initial_hessian, above=0.0)
    require_same = same_positions("ivon", network)
    variances = prior_variances_of("ivon", network, points, prior_variance, priors)
    template = GaussianOver(network, prior_variance=variances, points=points)
    rates, optimizer = schedule_of(learning_rate), adam(schedule_of(point_rate))

    def init(network: PyTree) -> NewtonState:
        require_same(network)
        mean, free = _tree.widened(jax.tree.map(jnp.array, template.arranged(network)))
        diagonal = Diagonal(mean, jax.tree.map(lambda x: jnp.full_like(x, initial), mean), _tree.zeros_like(mean))
        return NewtonState(diagonal, free, optimizer.init(free), jnp.zeros((), jnp.int32))

    def posterior(state: NewtonState) -> GaussianOver:
        deviation = stepped.deviation(state.diagonal, template.prior_variances())
        return template.fitted(state.diagonal.mean, jax.tree.map(jnp.log, deviation), state.points)

    def step(key: PRNGKey, state: NewtonState, batch: PyTree, iteration: Array) -> tuple[NewtonState, BoundInfo]:
        q, variance = posterior(state), template.prior_variances()
        mean, deviation = state.diagonal.mean, stepped.deviation(state.diagonal, variance)
        # it is used twice, and cheaper to keep than to draw again
        noise = jax.lax.optimization_barrier(q.noise(key, mean))
        w = rounded(jax.tree.map(lambda m, s, e: m + s * e, mean, deviation, noise), q.family.location)

        value, gradient = mean_and_gradient(log_likelihood, batch, q.position(w))
        of_mean, of_points = q.arranged(gradient)
        count = state.count + 1
        diagonal = stepped(state.diagonal, _tree.scale(-1.0, of_mean), noise, variance, rates(iteration), count)
        prior, of_prior = prior_and_gradient(
            log_prior, lambda free: eqx.tree_at(lambda t: t.free, q, free).position(w), q.free
        )
        moved, inner = move_points(optimizer, state.points, state.optimizer, of_points, of_prior, stepped.num_data)
        expected = stepped.num_data * value
        kl = q.kl().astype(expected.dtype)
        info = BoundInfo(expected + prior.astype(expected.dtype) - kl, expected, kl)
        return NewtonState(diagonal, moved, inner, count), info

    return VariationalAlgorithm(init, step, posterior, stepped.num_data, template.is_split)


def newton_step(owner: str, num_data: int, beta1: float, beta2: float, clip: float | None) -> NewtonStep:
    """Check the settings of a step."""
    num_data = _checks.whole(owner, "num_data", num_data)
    beta1, beta2 = (
        _checks.number(owner, name, value, least=0.0, below=1.0) for name, value in (("beta1", beta1), ("beta2", beta2))
    )
    clip = None if clip is None else _checks.number(owner, "clip", clip, above=0.0)
    return NewtonStep(num_data, beta1, beta2, clip)


def mean_and_gradient(
    log_likelihood: Callable[[Any, PyTree], Array], batch: PyTree, position: PyTree
) -> tuple[Array, PyTree]:
    """Return the mean log likelihood of the examples of a batch, and its gradient, in at least single precision."""

    def of_part(part: PyTree, position: PyTree) -> tuple[Array, tuple[PyTree]]:
        def value(position: PyTree) -> Array:
            return jnp.mean(_tree.widened(log_likelihood(position, own_examples(part))))

        found, gradient = value_and_gradient(value, part, position)
        return found, (_tree.widened(gradient),)

    value, (gradient,) = gradients_over_parts(of_part, batch, position)
    return value, gradient


def schedule_of(rate: float | Schedule) -> Schedule:
    """Return a learning rate as a function of the iteration, an array."""
    return lambda iteration: jnp.asarray(rate(iteration) if callable(rate) else rate)


def prior_and_gradient(
    log_prior: Callable[[PyTree], Scalar] | None, at: Callable[[tuple[Array, ...]], PyTree], points: tuple[Array, ...]
) -> tuple[Scalar, tuple[Array, ...]]:
    """Return the log prior and its gradient with respect to the points."""
    if log_prior is None:
        return jnp.zeros(()), _tree.widened(_tree.zeros_like(points))
    return _tree.widened(jax.value_and_grad(lambda points: log_prior(at(points)))(points))


def move_points(
    optimizer: Transformation, points: tuple, state: PyTree, of_mean: tuple, of_prior: tuple, num_data: int
) -> tuple[tuple[Array, ...], PyTree]:
    """Move the parameters without a posterior up the mean log likelihood plus the log prior divided by ``num_data``."""
    gradients = jax.tree.map(lambda g, p: -g - p.astype(g.dtype) / num_data, of_mean, of_prior)
    updates, state = optimizer.update(gradients, state)
    return _tree.add(points, updates), state
