"""Train the chains before sampling: an optimiser moves them during the first iterations of warm-up.

The step size of a sampler is limited by the stiffest direction on its way from a distant initial position to the
posterior. In networks, whose curvatures differ by orders of magnitude, this takes many times longer than an optimiser.
While the optimiser moves a chain, the steps of its sampler are undone, except for their effect on the momentum and on
the metric. Then the sampler's own warm-up begins, so that it finds its step size in the posterior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Adaptation, Array, Position, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.data.parts import gradients_over_parts, mean_over_parts, own_examples, value_and_gradient, whole
from geodax.geometry.manifolds import AbstractManifold, Euclidean
from geodax.run.advance import description_of
from geodax.sgmcmc.precision import scalar_dtype
from geodax.sgmcmc.schedules import cyclical
from geodax.vi.optimizers import Optimizer, Transformation, adam, rounded, update_function

_LEARNING_RATE = 0.1  # relative
_LEAST_SCALE = 0.01
Objective = Callable[[Position, PyTree], Scalar]


class TrainingState(NamedTuple):
    """State of training, in addition to the states of a sampler.

    Attributes:
        position: Current position of the optimiser, at least in single precision.
        optimizer: State of the optimiser.
        best: Position with the highest score; an empty tuple without a score.
        score: The highest score.
        total: Sum of the scores since the last comparison.
        adaptation: State of the sampler's own warm-up, or an empty tuple.
    """

    position: Position
    optimizer: PyTree
    best: Position
    score: Scalar
    total: Scalar
    adaptation: Any


def train_first(
    algorithm: SamplingAlgorithm,
    num_training: int,
    *,
    optimizer: Any = None,
    objective: Any = None,
    score: Any = None,
    score_every: int = 1,
) -> SamplingAlgorithm:
    """Return a sampler whose chains are trained first.

    On a manifold the optimiser receives the tangential part of the gradient, and the manifold's flow moves the point
    along the tangential part of the update: a descent direction for every optimiser that scales entries.

    Args:
        algorithm: A stochastic-gradient sampler: :func:`geodax.sghmc` or :func:`geodax.sgrld`.
        num_training: Number of training iterations, the first of the warm-up. The rest of the warm-up is the sampler's
            own, so :func:`geodax.sample` needs a ``num_warmup`` at least as large, and larger if a step size must be
            found.
        optimizer: Any optax optimiser except line searches, for the potential (minus the log density, summed over the
            data). None takes Adam with updates in units of each array's root mean square, or of 0.01 if that is larger
            (Shazeer and Stern 2018), and a learning rate that falls from 0.1 to 0 as half a cosine wave.
        objective: ``(position, batch) -> scalar``, maximised in place of the log density and in its units: for example
            the log density of a part of the examples.
        score: ``(position, batch) -> scalar``; the sampler starts at the optimiser's position with the highest score
            instead of the last one. With the likelihood of examples that the objective leaves out, this is where
            training begins to overfit.
        score_every: Number of iterations between two comparisons, each of the mean score since the last one. If a batch
            is a part of the data use the iterations of an epoch, since scores of single batches depend on their
            examples.

    Returns:
        The algorithm, for :func:`geodax.sample`. A checkpoint records the names of the optimiser's functions (not their
        settings) and the values of objective and score near the initial positions.

    Raises:
        TypeError: If the algorithm is not one of the two, or the optimiser is not an optax optimiser.
        ValueError: If the number of iterations is not positive, or training ends before the first comparison of scores;
            from :func:`geodax.sample`, if the warm-up is too short.
    """
    num_training = _checks.whole("train_first", "num_training", num_training, least=1)
    description = description_of(algorithm)
    densities = dict(description.densities)
    if "log density" not in densities:
        raise TypeError(
            "train_first: expected a stochastic-gradient sampler such as gx.sghmc(posterior) or gx.sgrld(posterior), "
            f"found {_checks.described(algorithm)}."
        )
    if optimizer is None:
        optimizer = _relative(adam(cyclical(_LEARNING_RATE, num_iterations=num_training)))
    if not isinstance(optimizer, Optimizer):
        raise TypeError(
            "train_first: the optimizer must have functions init and update, as optax's have, found "
            f"{_checks.described(optimizer)}."
        )
    for name, function in (("objective", objective), ("score", score)):
        if function is not None and not callable(function):
            raise TypeError(
                f"train_first: {name} must be a function (position, batch) -> scalar, found "
                f"{_checks.described(function)}."
            )
    score_every = _checks.whole("train_first", "score_every", score_every, least=1)
    if score is not None and score_every > num_training:
        raise ValueError(
            f"train_first: score_every={score_every} is more than the num_training={num_training} iterations of "
            "training, so that no scores would be compared."
        )
    maximized: Objective = densities["log density"] if objective is None else objective
    manifold: AbstractManifold = Euclidean() if algorithm.manifold is None else algorithm.manifold

    def moved(position: Position, state: PyTree, like: Position, batch: PyTree) -> tuple[Position, PyTree]:
        def of_part(part: PyTree, position: Position) -> tuple[Scalar, tuple[PyTree]]:
            examples = own_examples(part)
            value, gradient = value_and_gradient(lambda x: -maximized(rounded(x, kinds), examples), part, position)
            return value, (gradient,)

        kinds = jax.tree.map(lambda leaf: leaf.dtype, like)
        potential, (gradient,) = gradients_over_parts(of_part, batch, position)
        gradient = manifold.project(position, gradient)
        update, state = update_function("train_first", optimizer, position)(gradient, state, position, potential)
        along = manifold.project(position, update)
        one = jnp.ones((), _tree.real_dtype(position))
        return manifold.renormalize(manifold.flow(position, along, one)[0]), state

    def compared(training: TrainingState, like: Position, iteration: Array, batch: PyTree) -> TrainingState:
        """Keep the position if its score is higher than the best so far."""
        if score is None:
            return training
        scored = score

        def of_part(part: PyTree, position: Position) -> Scalar:
            return scored(whole(part, position), own_examples(part))

        here = rounded(training.position, like)
        found = mean_over_parts(of_part, batch, here).astype(training.score.dtype)
        total = training.total + found
        is_due = (iteration + 1) % score_every == 0
        mean = total / score_every
        is_better = is_due & (mean > training.score)
        return training._replace(
            best=_tree.where(is_better, training.position, training.best),
            score=jnp.where(is_better, mean, training.score),
            total=jnp.where(is_due, jnp.zeros_like(total), total),
        )

    def adapt(num_warmup: int) -> Adaptation:
        least = num_training if algorithm.adapt is None else num_training + 1
        if num_warmup < least:
            raise ValueError(
                f"train_first: num_training={num_training} iterations of training need a num_warmup of at least "
                f"{least}, found {num_warmup}."
            )
        own = None if algorithm.adapt is None else algorithm.adapt(num_warmup - num_training)

        def init(state: Any) -> TrainingState:
            for name, leaf in zip(_tree.leaf_names(state.position), jax.tree.leaves(state.position), strict=True):
                if jnp.iscomplexobj(leaf):
                    raise TypeError(f"train_first: {name} is complex, but optimisers move real arrays.")
            position = _tree.widened(state.position)
            best = () if score is None else position
            zero = jnp.zeros((), scalar_dtype(position))
            return TrainingState(
                position, optimizer.init(position), best, zero - jnp.inf, zero, () if own is None else own.init(state)
            )

        def update(
            rng_key: PRNGKey, training: TrainingState, state: Any, info: Any, iteration: Array, batch: PyTree = None
        ) -> tuple[TrainingState, Any]:
            def train(training: TrainingState, state: Any) -> tuple[TrainingState, Any]:
                position, memory = moved(training.position, training.optimizer, state.position, batch)
                training = training._replace(position=position, optimizer=memory)
                training = compared(training, state.position, iteration, batch)
                if score is not None:  # the initial position if every score is NaN
                    position = _tree.where(iteration == num_training - 1, training.best, position)
                here = rounded(position, state.position)
                state = state._replace(position=here)
                if hasattr(state, "momentum"):
                    state = state._replace(momentum=manifold.project(here, state.momentum))
                return training, state

            def tune(training: TrainingState, state: Any) -> tuple[TrainingState, Any]:
                if own is None:
                    return training, state
                args = () if batch is None else (batch,)
                adaptation, state = own.update(
                    rng_key, training.adaptation, state, info, iteration - num_training, *args
                )
                return training._replace(adaptation=adaptation), state

            return jax.lax.cond(iteration < num_training, train, tune, training, state)

        return Adaptation(init, update, begin=None if own is None else own.begin)

    named = {"training objective": objective, "training score": score}
    compared_too = [(name, _scalar(function)) for name, function in named.items() if function is not None]
    settings = {"num_training": num_training, "score_every": score_every, "optimizer": optimizer} | {
        name: function is not None for name, function in named.items()
    }
    return algorithm._replace(
        adapt=adapt,
        description=description._replace(
            settings=(*description.settings, *settings.items()),
            densities=(*description.densities, *compared_too),
        ),
    )


def _scalar(function: Objective) -> Objective:
    return lambda position, batch: jnp.asarray(function(position, batch))


def _relative(optimizer: Transformation) -> Transformation:
    """Scale updates by the size of the arrays, so that arrays of all sizes move at the same relative rate."""

    def update(gradients: PyTree, state: PyTree, params: PyTree) -> tuple[PyTree, PyTree]:
        updates, state = optimizer.update(gradients, state, params)

        def scaled(update: Array, param: Array) -> Array:
            return jnp.maximum(jnp.sqrt(jnp.mean(param**2)), _LEAST_SCALE).astype(update.dtype) * update

        return jax.tree.map(scaled, updates, params), state

    return Transformation(optimizer.init, update)
