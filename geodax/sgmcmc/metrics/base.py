r"""What a metric is to a sampler, and the two simplest ones.

A metric :math:`G` is given by what can be done with it: :math:`G^{-1} u`, :math:`G^{-1/2} z` with a symmetric root, and
the divergence :math:`\Gamma_i = \sum_j \partial_j (G^{-1})_{ij}`. It acts on a whole pytree of unconstrained leaves,
and learns from gradients of the *mean* potential :math:`\hat g = \nabla U / n` over the n examples, in whose units its
settings are.
"""

import abc
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks as _arguments
from geodax import _tree
from geodax._random import random_signs
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.sgmcmc.periodic import when
from geodax.sgmcmc.schedules import as_number


class Curvature(NamedTuple):
    """What is known of the mean potential around a position.

    Attributes:
        gradient: Its gradient there, from the current batch.
        product: From a direction to the product of its Hessian with it, from the same batch.
        key: Randomness for probes.
        step_size: The step on the mean potential, ``num_data`` times that on the potential; zero where it is not known.
    """

    gradient: PyTree
    product: Callable[[PyTree], PyTree]
    key: PRNGKey
    step_size: Scalar | float = 0.0

    def probe(self) -> tuple[PyTree, PyTree]:
        """Random signs ``v`` and the Hessian's product with them; ``v * product`` estimates the diagonal."""
        direction = random_signs(self.key, self.gradient)
        return direction, self.product(direction)


class AbstractMetric(eqx.Module):
    """A metric on unconstrained leaves, learnt from gradients; every method is pure and works under ``jit``."""

    @property
    @abc.abstractmethod
    def has_exact_drift(self) -> bool:
        """Whether :meth:`drift` is the divergence of the inverse metric (up to an unbiased estimate), not left out."""

    @property
    @abc.abstractmethod
    def needs_curvature(self) -> bool:
        """Whether :meth:`drift` wants the curvature, which costs a product with the Hessian in each step."""

    @property
    @abc.abstractmethod
    def is_lagged(self) -> bool:
        """Whether a step uses the metric of the gradients before it only."""

    @property
    def is_steady(self) -> bool:
        """Whether it changes so slowly that momenta bear it while it learns, without the divergence.

        Where it is False :func:`geodax.sghmc` takes the metric frozen only, and :class:`Frozen` is the identity until
        then; the metric must be nowhere smaller.
        """
        return True

    @abc.abstractmethod
    def init(self, position: Position) -> PyTree:
        """The state before the first gradient."""

    @abc.abstractmethod
    def update(self, state: PyTree, position: Position, grad: PyTree) -> PyTree:
        """Learn from the gradient of the mean potential at a position."""

    def conclude(self, state: PyTree, position: Position) -> PyTree:
        """The state for good when there are no gradients to come: what is computed now and then, from all of them."""
        return state

    @abc.abstractmethod
    def apply_inverse(self, state: PyTree, u: PyTree) -> PyTree:
        """``G^{-1} u``."""

    @abc.abstractmethod
    def apply_inverse_sqrt(self, state: PyTree, z: PyTree) -> PyTree:
        """``G^{-1/2} z`` with the symmetric root: applied twice it is :meth:`apply_inverse`."""

    @abc.abstractmethod
    def drift(self, state: PyTree, position: Position, curvature: Curvature | None = None) -> PyTree:
        """The divergence of ``G^{-1}``, or zeros where the metric leaves it out."""


class Identity(AbstractMetric):
    """The Euclidean metric: plain stochastic-gradient Langevin dynamics (Welling and Teh 2011)."""

    @property
    def has_exact_drift(self) -> bool:
        """It is zero."""
        return True

    @property
    def needs_curvature(self) -> bool:
        """No."""
        return False

    @property
    def is_lagged(self) -> bool:
        """There is nothing to be learnt."""
        return False

    def init(self, position: Position) -> PyTree:
        """Nothing."""
        return ()

    def update(self, state: PyTree, position: Position, grad: PyTree) -> PyTree:
        """Nothing."""
        return ()

    def apply_inverse(self, state: PyTree, u: PyTree) -> PyTree:
        """``u`` itself."""
        return u

    def apply_inverse_sqrt(self, state: PyTree, z: PyTree) -> PyTree:
        """``z`` itself."""
        return z

    def drift(self, state: PyTree, position: Position, curvature: Curvature | None = None) -> PyTree:
        """Zeros."""
        return _tree.zeros_like(position)


class FrozenState(NamedTuple):
    """State of a metric and the gradients it has seen."""

    metric: PyTree
    count: Array


class Frozen(AbstractMetric):
    """A metric that learns from the first gradients and is constant from then on, so that nothing is left out.

    While it learns it is in use already, unless it follows the gradient like :class:`Monge`, which drives momenta: in
    the place of one that is not :attr:`~AbstractMetric.is_steady` there is the identity until it is constant.

    What a metric computes of its statistics now and then only (the roots of :class:`Shampoo`, the scales of
    :class:`Wenzel`) is computed once more at the last gradient.

    Args:
        metric: The metric.
        after: Number of gradients it learns from.
    """

    metric: AbstractMetric
    after: int = eqx.field(static=True)

    def __init__(self, metric: AbstractMetric, *, after: int):
        if not isinstance(metric, AbstractMetric):
            raise TypeError(f"Frozen: expected a metric, found a {type(metric).__name__}.")
        self.metric, self.after = metric, _arguments.whole("Frozen", "after", after)

    @property
    def has_exact_drift(self) -> bool:
        """A constant metric has none."""
        return True

    @property
    def needs_curvature(self) -> bool:
        """No."""
        return False

    @property
    def is_lagged(self) -> bool:
        """That of the metric."""
        return self.metric.is_lagged

    def init(self, position: Position) -> FrozenState:
        """The metric's, and no gradient seen."""
        return FrozenState(self.metric.init(position), jnp.zeros((), jnp.int32))

    def update(self, state: FrozenState, position: Position, grad: PyTree) -> FrozenState:
        """The metric's, for the first gradients."""

        def learn(learnt: PyTree, is_last: Array, position: Position, grad: PyTree) -> PyTree:
            return when(is_last, self.metric.conclude, self.metric.update(learnt, position, grad), position)

        is_last = state.count == self.after - 1
        learnt = when(state.count < self.after, learn, state.metric, is_last, position, grad)
        return FrozenState(learnt, jnp.minimum(state.count + 1, self.after))

    def conclude(self, state: FrozenState, position: Position) -> FrozenState:
        """The metric's."""
        return state._replace(metric=self.metric.conclude(state.metric, position))

    def apply_inverse(self, state: FrozenState, u: PyTree) -> PyTree:
        """That of the metric."""
        return self._once_steady(state, u, self.metric.apply_inverse(state.metric, u))

    def apply_inverse_sqrt(self, state: FrozenState, z: PyTree) -> PyTree:
        """That of the metric."""
        return self._once_steady(state, z, self.metric.apply_inverse_sqrt(state.metric, z))

    def drift(self, state: FrozenState, position: Position, curvature: Curvature | None = None) -> PyTree:
        """Zeros."""
        return _tree.zeros_like(position)

    def _once_steady(self, state: FrozenState, unchanged: PyTree, applied: PyTree) -> PyTree:
        return applied if self.metric.is_steady else _tree.where(state.count < self.after, unchanged, applied)


def moving_average(decay: float, average: PyTree, new: PyTree) -> PyTree:
    """``decay * average + (1 - decay) * new``."""
    return jax.tree.map(lambda a, b: decay * a + (1.0 - decay) * b, average, new)


def before_first(count: Array, epsilon: float) -> Scalar:
    """What is added to a diagonal: infinity before the first gradient, so that nothing moves, then ``epsilon``."""
    return jnp.where(count > 0, epsilon, jnp.inf)


def share_of_mean(decay: float, count: Array) -> Array:
    """Weight of the newest of ``count`` numbers in their moving average without the bias of where it began.

    With ``average + share * (new - average)`` it is ``moving_average`` begun at zero, over ``1 - decay**count``.
    """
    if decay == 0:
        return jnp.ones(count.shape, float)
    return (1.0 - decay) / -jnp.expm1(count.astype(float) * math.log(decay))


def require_real(owner: str, position: Position) -> None:
    """Raise TypeError, naming the leaf, where a metric would have to act on complex numbers."""
    for name, leaf in zip(_tree.leaf_names(position), jax.tree.leaves(position), strict=True):
        if jnp.iscomplexobj(leaf):
            raise TypeError(f"{owner}: {name} is complex; metrics act on real arrays. Use its real and imaginary part.")


def as_decay(metric: str, name: str, value: float) -> float:
    """Check that a moving average's decay lies in [0, 1)."""
    number = as_number(metric, name, value, least=0.0)
    if number >= 1:
        raise ValueError(f"{metric}: {name} must lie in [0, 1), found {value!r}.")
    return number
