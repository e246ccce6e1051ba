"""Steps of an optimiser on a log density, and the position with the highest score: the core of all training."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.data.parts import gradients_over_parts, mean_over_parts, own_examples, value_and_gradient, whole
from geodax.geometry.manifolds import AbstractManifold
from geodax.sgmcmc.precision import scalar_dtype
from geodax.sgmcmc.schedules import cyclical
from geodax.vi.optimizers import Transformation, adam, require_optimizer, rounded, update_function

_LEARNING_RATE = 0.1  # relative
_LEAST_SCALE = 0.01
Objective = Callable[[Position, PyTree], Scalar]


class DescentState(NamedTuple):
    """State of an optimiser.

    Attributes:
        best: Position with the highest score, NaN if training ends without any score that is a number; an empty tuple
            without a score function.
        candidate: Position whose score is being summed; an empty tuple if each iteration has its own.
    """

    position: Position
    optimizer: PyTree
    best: Position
    score: Scalar
    candidate: Position
    total: Scalar

    def result(self, like: Position) -> Position:
        """The best position, or the current one without a score, in the dtypes of ``like``."""
        return rounded(self.position if isinstance(self.best, tuple) and not self.best else self.best, like)


class Descent(NamedTuple):
    """An optimiser of a log density.

    Attributes:
        init: ``position -> state``.
        update: ``(state, like, iteration, batch) -> (state, potential)``; the dtypes of ``like`` are those in which
            the log density is evaluated, the potential is minus its value before the update.
    """

    init: Callable[[Position], DescentState]
    update: Callable[[DescentState, Position, Array, PyTree], tuple[DescentState, Scalar]]


def descent(
    owner: str,
    maximized: Objective,
    num_steps: int,
    *,
    manifold: AbstractManifold,
    optimizer: Any = None,
    score: Any = None,
    score_every: int = 1,
) -> Descent:
    """Build the steps of an optimiser of ``(position, batch) -> scalar``; other arguments are those of `train_first`.

    On a manifold the optimiser receives the tangential part of the gradient, and the manifold's flow moves the point
    along the tangential part of the update: a descent direction for every optimiser that scales entries. Raises
    TypeError or ValueError for arguments that do not fit.
    """
    if optimizer is None:
        optimizer = _relative(adam(cyclical(_LEARNING_RATE, num_iterations=num_steps)))
    require_optimizer(owner, optimizer)
    for name, function in (("objective", maximized), ("score", score)):
        if function is not None:
            _checks.function(owner, name, function, "a function (position, batch) -> scalar")
    score_every = _checks.whole(owner, "score_every", score_every, least=1)
    if score is not None and score_every > num_steps:
        raise ValueError(
            f"{owner}: score_every={score_every} is more than the {num_steps} iterations of training, so that no "
            "scores would be compared."
        )

    def init(position: Position) -> DescentState:
        for name, leaf in _tree.named_leaves(position):
            if jnp.iscomplexobj(leaf):
                raise TypeError(f"{owner}: {name} is complex, but optimisers move real arrays.")
        position = _tree.widened(position)
        zero = jnp.zeros((), scalar_dtype(position))
        best = () if score is None else position
        candidate = () if score is None or score_every == 1 else position
        return DescentState(position, optimizer.init(position), best, zero - jnp.inf, candidate, zero)

    def compared(state: DescentState, like: Position, iteration: Array, batch: PyTree) -> DescentState:
        """Keep the candidate if its mean score is higher than the best so far.

        Its scores are those of one position, that where they begin; only the last ones, with a small learning rate,
        follow the optimiser to its end.
        """
        if score is None:
            return state
        scored = score

        def of_part(part: PyTree, position: Position) -> Scalar:
            return scored(whole(part, position), own_examples(part))

        is_new = iteration % score_every == 0
        follows = is_new | (iteration >= (num_steps // score_every - 1) * score_every)
        # of the position itself the gradient evaluates the network too
        candidate = state.position if score_every == 1 else _tree.where(follows, state.position, state.candidate)
        found = mean_over_parts(of_part, batch, rounded(candidate, like)).astype(state.score.dtype)
        total = jnp.where(is_new, found, state.total + found)
        mean = total / score_every
        is_better = ((iteration + 1) % score_every == 0) & (mean > state.score)
        highest = jnp.where(is_better, mean, state.score)
        best = _tree.where(is_better, candidate, state.best)
        is_lost = (iteration == num_steps - 1) & jnp.isneginf(highest)
        return state._replace(
            best=jax.tree.map(lambda x: jnp.where(is_lost, jnp.nan, x), best),
            score=highest,
            candidate=() if score_every == 1 else candidate,
            total=total,
        )

    def update(state: DescentState, like: Position, iteration: Array, batch: PyTree) -> tuple[DescentState, Scalar]:
        state = compared(state, like, iteration, batch)
        position = state.position

        def of_part(part: PyTree, position: Position) -> tuple[Scalar, tuple[PyTree]]:
            examples = own_examples(part)
            value, gradient = value_and_gradient(lambda x: -maximized(rounded(x, kinds), examples), part, position)
            return value, (gradient,)

        kinds = jax.tree.map(lambda leaf: leaf.dtype, like)
        potential, (gradient,) = gradients_over_parts(of_part, batch, position)
        gradient = manifold.project(position, gradient)
        change, memory = update_function(owner, optimizer, position)(gradient, state.optimizer, position, potential)
        along = manifold.project(position, change)
        one = jnp.ones((), _tree.real_dtype(position))
        moved = manifold.renormalize(manifold.flow(position, along, one)[0])
        return state._replace(position=moved, optimizer=memory), potential

    return Descent(init, update)


def compared_too(objective: Any, score: Any) -> list[tuple[str, Objective]]:
    """Names and functions that a checkpoint compares besides the log density, with arrays as values."""

    def as_array(function: Objective) -> Objective:
        return lambda position, batch: jnp.asarray(function(position, batch))

    named = {"training objective": objective, "training score": score}
    return [(name, as_array(function)) for name, function in named.items() if function is not None]


def _relative(optimizer: Transformation) -> Transformation:
    """Scale updates by the size of the arrays, so that arrays of all sizes move at the same relative rate."""

    def update(gradients: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree]:
        updates, state = optimizer.update(gradients, state, params)

        def scaled(update: Array, param: Array) -> Array:
            return jnp.maximum(jnp.sqrt(jnp.mean(param**2)), _LEAST_SCALE).astype(update.dtype) * update

        return jax.tree.map(scaled, updates, params), state

    return Transformation(optimizer.init, update)
