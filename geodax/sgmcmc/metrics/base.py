r"""The interface of a metric, the identity, and a metric that is frozen after warm-up.

A metric :math:`G` is defined by three operations: :math:`G^{-1} u`, :math:`G^{-1/2} z` with a symmetric root, and the
divergence :math:`\Gamma_i = \sum_j \partial_j (G^{-1})_{ij}`. It acts on a whole pytree of unconstrained leaves. It
learns from gradients of the *mean* potential :math:`\hat g = \nabla U / n` over the n examples; its settings are in the
units of that potential.
"""

import abc
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._random import random_signs
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.sgmcmc.periodic import when


class Curvature(NamedTuple):
    """Local information about the mean potential at a position.

    Attributes:
        gradient: Gradient at the position, from the current batch.
        product: Function from a direction to the product of the Hessian with it, from the same batch.
        key: PRNG key for the probes.
        step_size: Step size on the mean potential, ``num_data`` times that on the potential; zero if it is unknown.
    """

    gradient: PyTree
    product: Callable[[PyTree], PyTree]
    key: PRNGKey
    step_size: Scalar | float = 0.0

    def probe(self) -> tuple[PyTree, PyTree]:
        """Draw random signs ``v`` and multiply the Hessian by them; ``v * product`` estimates the diagonal."""
        direction = random_signs(self.key, self.gradient)
        return direction, self.product(direction)


class AbstractMetric(eqx.Module):
    """A metric on unconstrained leaves, learnt from gradients; every method is pure and works under ``jit``.

    Attributes:
        has_exact_drift: Whether :meth:`drift` returns the divergence of the inverse metric (up to an unbiased estimate)
            and does not leave it out. :func:`geodax.sghmc` adds no divergence, and accepts such a metric only inside
            :class:`Frozen`.
        needs_curvature: Whether :meth:`drift` needs the curvature, which costs one product with the Hessian per step.
        is_lagged: Whether a step uses only the metric of the gradients before it.
        is_steady: Whether the metric changes slowly enough to work with momentum while it learns, without the
            divergence. If False, :func:`geodax.sghmc` accepts the metric only inside :class:`Frozen`, which is the
            identity while the metric learns; the metric must be nowhere smaller than the identity.
    """

    has_exact_drift: ClassVar[bool] = False
    needs_curvature: ClassVar[bool] = False
    is_lagged: ClassVar[bool] = False
    is_steady: ClassVar[bool] = True

    @abc.abstractmethod
    def init(self, position: Position) -> PyTree:
        """Return the state before the first gradient."""

    @abc.abstractmethod
    def update(self, state: PyTree, position: Position, grad: PyTree) -> PyTree:
        """Learn from the gradient of the mean potential at a position."""

    def conclude(self, state: PyTree, position: Position) -> PyTree:
        """Return the final state, with all periodic computations brought up to date."""
        return state

    @abc.abstractmethod
    def apply_inverse(self, state: PyTree, u: PyTree) -> PyTree:
        """Compute ``G^{-1} u``."""

    @abc.abstractmethod
    def apply_inverse_sqrt(self, state: PyTree, z: PyTree) -> PyTree:
        """Compute ``G^{-1/2} z`` with the symmetric root: two applications equal :meth:`apply_inverse`.

        A Cholesky factor is another root, with which steps go in wrong directions.
        """

    @abc.abstractmethod
    def drift(self, state: PyTree, position: Position, curvature: Curvature | None = None) -> PyTree:
        """Compute the divergence of ``G^{-1}``, or return zeros if it vanishes or the metric leaves it out.

        ``curvature`` is None unless the metric says ``needs_curvature``.
        """


class Identity(AbstractMetric):
    """The Euclidean metric: plain stochastic-gradient Langevin dynamics (Welling and Teh 2011)."""

    has_exact_drift = True

    def init(self, position: Position) -> PyTree:
        return ()

    def update(self, state: PyTree, position: Position, grad: PyTree) -> PyTree:
        return ()

    def apply_inverse(self, state: PyTree, u: PyTree) -> PyTree:
        return u

    def apply_inverse_sqrt(self, state: PyTree, z: PyTree) -> PyTree:
        return z

    def drift(self, state: PyTree, position: Position, curvature: Curvature | None = None) -> PyTree:
        return _tree.zeros_like(position)


class FrozenState(NamedTuple):
    """State of a metric and the number of gradients seen."""

    metric: PyTree
    count: Array


class Frozen(AbstractMetric):
    """A metric that learns from the first gradients and is constant afterwards, so that no term is left out.

    The metric is used while it learns if it is :attr:`~AbstractMetric.is_steady`. Otherwise (:class:`Monge`, which
    follows the gradient and so drives the momentum) the identity is used until the metric is constant.

    Periodic computations (the roots of :class:`Shampoo`, the scales of :class:`Wenzel`) are repeated at the last
    gradient.

    Args:
        metric: The metric.
        after: Number of gradients it learns from.
    """

    has_exact_drift = True

    metric: AbstractMetric
    after: int = eqx.field(static=True)

    def __init__(self, metric: AbstractMetric, *, after: int):
        if not isinstance(metric, AbstractMetric):
            raise TypeError(f"Frozen: expected a metric, found a {type(metric).__name__}.")
        self.metric, self.after = metric, _checks.whole("Frozen", "after", after)

    @property
    def is_lagged(self) -> bool:
        return self.metric.is_lagged

    def init(self, position: Position) -> FrozenState:
        return FrozenState(self.metric.init(position), jnp.zeros((), jnp.int32))

    def update(self, state: FrozenState, position: Position, grad: PyTree) -> FrozenState:
        def learn(learnt: PyTree, is_last: Array, position: Position, grad: PyTree) -> PyTree:
            return when(is_last, self.metric.conclude, self.metric.update(learnt, position, grad), position)

        is_last = state.count == self.after - 1
        learnt = when(state.count < self.after, learn, state.metric, is_last, position, grad)
        return FrozenState(learnt, jnp.minimum(state.count + 1, self.after))

    def conclude(self, state: FrozenState, position: Position) -> FrozenState:
        return state._replace(metric=self.metric.conclude(state.metric, position))

    def apply_inverse(self, state: FrozenState, u: PyTree) -> PyTree:
        return self._once_steady(state, u, self.metric.apply_inverse(state.metric, u))

    def apply_inverse_sqrt(self, state: FrozenState, z: PyTree) -> PyTree:
        return self._once_steady(state, z, self.metric.apply_inverse_sqrt(state.metric, z))

    def drift(self, state: FrozenState, position: Position, curvature: Curvature | None = None) -> PyTree:
        return _tree.zeros_like(position)

    def _once_steady(self, state: FrozenState, unchanged: PyTree, applied: PyTree) -> PyTree:
        return applied if self.metric.is_steady else _tree.where(state.count < self.after, unchanged, applied)


def moving_average(decay: float, average: PyTree, new: PyTree) -> PyTree:
    """Compute ``decay * average + (1 - decay) * new``."""
    return jax.tree.map(lambda a, b: decay * a + (1.0 - decay) * b, average, new)


def before_first(count: Array, epsilon: float) -> Scalar:
    """The term added to a diagonal: infinity before the first gradient, so that nothing moves, then ``epsilon``."""
    return jnp.where(count > 0, epsilon, jnp.inf)


def share_of_mean(decay: float, count: Array) -> Array:
    """Weight of the newest of ``count`` numbers in their bias-corrected moving average.

    ``average + share * (new - average)`` equals ``moving_average`` started at zero, divided by ``1 - decay**count``.
    """
    if decay == 0:
        return jnp.ones(count.shape, float)
    return (1.0 - decay) / -jnp.expm1(count.astype(float) * math.log(decay))


def require_real(owner: str, position: Position) -> None:
    """Raise TypeError if a leaf is complex."""
    for name, leaf in _tree.named_leaves(position):
        if jnp.iscomplexobj(leaf):
            raise TypeError(f"{owner}: {name} is complex; metrics act on real arrays. Use its real and imaginary part.")
