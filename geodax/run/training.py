"""Train the chains before sampling: an optimiser moves them during the first iterations of warm-up.

The step size of a sampler is limited by the stiffest direction on its way from a distant initial position to the
posterior. In networks, whose curvatures differ by orders of magnitude, this takes many times longer than an optimiser.
While the optimiser moves a chain, its sampler takes no steps; under a metric that learns from them, they are undone
except for their effect on the metric and the momentum. Then the sampler's own warm-up begins, so that it finds its step
size in the posterior.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from geodax import _checks, _tree
from geodax._types import Adaptation, Array, Cycle, PRNGKey, PyTree, SamplingAlgorithm
from geodax.geometry.manifolds import Euclidean
from geodax.run.advance import description_of
from geodax.run.descent import DescentState, compared_too, descent
from geodax.sgmcmc.metrics import Identity


class TrainingState(NamedTuple):
    """State of training, in addition to the states of a sampler.

    Attributes:
        adaptation: State of the sampler's own warm-up, or an empty tuple.
    """

    descent: DescentState
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
        score_every: Number of iterations between two positions that are compared; the score of one is its mean over the
            batches until the next. If a batch is a part of the data use the iterations of an epoch, since scores of
            single batches depend on their examples.

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
    manifold = Euclidean() if algorithm.manifold is None else algorithm.manifold
    metric = dict(description.settings).get("metric")
    has_steps = metric is not None and not isinstance(metric, Identity)
    training = descent(
        "train_first",
        densities["log density"] if objective is None else objective,
        num_training,
        manifold=manifold,
        optimizer=optimizer,
        score=score,
        score_every=score_every,
    )

    def adapt(num_warmup: int, cycle: Cycle | None = None) -> Adaptation:
        least = num_training if algorithm.adapt is None else num_training + 1
        if num_warmup < least:
            raise ValueError(
                f"train_first: num_training={num_training} iterations of training need a num_warmup of at least "
                f"{least}, found {num_warmup}."
            )
        own = None if algorithm.adapt is None else algorithm.adapt(num_warmup - num_training, cycle)

        def init(state: Any) -> TrainingState:
            return TrainingState(training.init(state.position), () if own is None else own.init(state))

        def update(
            rng_key: PRNGKey, memory: TrainingState, state: Any, info: Any, iteration: Array, batch: PyTree = None
        ) -> tuple[TrainingState, Any]:
            def train(memory: TrainingState, state: Any) -> tuple[TrainingState, Any]:
                now, _ = training.update(memory.descent, state.dtypes.cast(state.position), iteration, batch)
                here = now.position
                if score is not None:
                    here = _tree.where(iteration == num_training - 1, now.result(here), here)
                state = state._replace(position=here, iteration=iteration.astype(jnp.int32) + 1)
                if hasattr(state, "momentum"):
                    state = state._replace(momentum=manifold.project(here, state.momentum))
                return memory._replace(descent=now), state

            def tune(memory: TrainingState, state: Any) -> tuple[TrainingState, Any]:
                if own is None:
                    return memory, state
                args = () if batch is None else (batch,)
                adaptation, state = own.update(rng_key, memory.adaptation, state, info, iteration - num_training, *args)
                return memory._replace(adaptation=adaptation), state

            return jax.lax.cond(iteration < num_training, train, tune, memory, state)

        begin = None if own is None else own.begin
        return Adaptation(init, update, begin, num_idle=0 if has_steps else num_training)

    settings = {"num_training": num_training, "score_every": score_every, "optimizer": optimizer}
    settings |= {"training objective": objective is not None, "training score": score is not None}
    return algorithm._replace(
        adapt=adapt,
        description=description._replace(
            settings=(*description.settings, *settings.items()),
            densities=(*description.densities, *compared_too(objective, score)),
        ),
    )
