"""Deep ensembles: networks trained independently, in the form of draws.

Each member starts at its own initialisation and sees the batches in its own order (Lakshminarayanan, Pritzel and
Blundell 2017, Simple and scalable predictive uncertainty estimation using deep ensembles, NeurIPS). A member is a chain
with one draw, so predictions, scores and conformal sets take an ensemble as they take the draws of a sampler.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import xarray as xr

from geodax import _checks, _tree
from geodax._types import Array, Description, Position, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.data.minibatches import Batches, Stream
from geodax.geometry.manifolds import AbstractManifold, as_manifold
from geodax.posterior import Posterior
from geodax.run.descent import DescentState, compared_too, descent
from geodax.run.progress import Reporter
from geodax.run.sample import sample
from geodax.run.sharding import Devices
from geodax.run.starts import is_function


class OptimizationState(NamedTuple):
    """A network in training.

    Attributes:
        position: The network, or the one with the highest score so far.
    """

    position: Position
    descent: DescentState
    iteration: Array


class OptimizationInfo(NamedTuple):
    """Scalars that describe one step.

    Attributes:
        potential: Minus the objective before the step, estimated from the batch.
        is_finite: Whether it and the network are finite; :func:`geodax.sample` stops if they are not.
    """

    potential: Scalar
    is_finite: Array


def train_ensemble(
    rng_key: PRNGKey,
    posterior: Any,
    position: Position | Callable[[PRNGKey], Position],
    *,
    batches: Batches | Stream,
    num_steps: int,
    num_members: int = 5,
    optimizer: Any = None,
    manifold: AbstractManifold | None = None,
    objective: Any = None,
    score: Any = None,
    score_every: int = 1,
    stacked: bool = False,
    store: str | Path | None = None,
    checkpoint: str | Path | None = None,
    devices: Devices = None,
    progress: bool | Reporter = True,
) -> xr.DataTree:
    """Train networks independently, side by side: a deep ensemble.

    Args:
        rng_key: A JAX random key.
        posterior: A :class:`geodax.Posterior`, whose log density is maximised: its prior is the regulariser, and a
            normal prior a weight decay.
        position: Function ``key -> position``, called once per member, or an initial position.
        batches: Batches of data, from :func:`geodax.data.batches` or :func:`geodax.data.stream`.
        num_steps: Number of optimiser steps of each member.
        num_members: Number of members.
        optimizer: Any optax optimiser except line searches, for the *mean* potential: minus the log density divided by
            the number of examples, so learning rates mean what they mean in ordinary training. None takes the optimiser
            of :func:`geodax.train_first`.
        manifold: Geometry of the position, for example ``gx.nn.geometry(network)``; None is Euclidean space.
        objective: ``(position, batch) -> scalar``, maximised in place of the log density and in its units: for example
            the log density of a part of the examples.
        score: ``(position, batch) -> scalar``; each member is the network with the highest score on the way instead of
            the last one, as in :func:`geodax.train_first`.
        score_every: Number of steps between two networks that are compared, as in :func:`geodax.train_first`.
        stacked: Whether ``position`` has a leading axis over the members.
        store: As for :func:`geodax.sample`.
        checkpoint: As for :func:`geodax.sample`; an interrupted training resumes from there.
        devices: As for :func:`geodax.sample`, with members in place of chains.
        progress: As for :func:`geodax.sample`.

    Returns:
        The result of :func:`geodax.sample`, with a chain for each member and one draw: its network.

    Raises:
        TypeError: If the posterior is not a :class:`geodax.Posterior`, or the optimiser not an optax optimiser.
        ValueError: If a number is out of range, if training ends before the first comparison of scores, or if members
            would be equal, since they start from one position and get the same batches.
        NonFiniteError: If a member becomes non-finite, or none of its scores is a number; also as for
            :func:`geodax.sample`.
    """
    num_steps = _checks.whole("train_ensemble", "num_steps", num_steps)
    num_members = _checks.whole("train_ensemble", "num_members", num_members)
    is_whole = isinstance(batches, Batches) and batches.batch_size == batches.num_data and batches.augment is None
    if num_members > 1 and (is_whole or isinstance(batches, Stream)) and not (stacked or is_function(position)):
        raise ValueError(
            f"train_ensemble: {num_members} members that start from one position and get the same batches would be "
            "equal. Give a function key -> position, such as lambda key: priors.sample(key, network), or stacked "
            "positions with stacked=True."
        )
    algorithm = _optimization(posterior, num_steps, optimizer, manifold, objective, score, score_every)
    return sample(
        rng_key,
        algorithm,
        position,
        num_samples=1,
        num_warmup=num_steps - 1,
        num_chains=num_members,
        batches=batches,
        stacked=stacked,
        store=store,
        checkpoint=checkpoint,
        devices=devices,
        progress=progress,
    )


def _optimization(
    posterior: Any,
    num_steps: int,
    optimizer: Any,
    manifold: AbstractManifold | None,
    objective: Any,
    score: Any,
    score_every: int,
) -> SamplingAlgorithm:
    if not isinstance(posterior, Posterior):
        raise TypeError(f"train_ensemble: posterior must be a gx.Posterior, found {_checks.described(posterior)}.")
    maximized: Any = posterior.logdensity if objective is None else objective
    num_data = posterior.num_data
    _checks.function("train_ensemble", "objective", maximized, "a function (position, batch) -> scalar")
    geometry = as_manifold("train_ensemble", manifold)
    training = descent(
        "train_ensemble",
        lambda position, batch: maximized(position, batch) / num_data,
        num_steps,
        manifold=geometry,
        optimizer=optimizer,
        score=score,
        score_every=score_every,
    )

    def init(position: Position) -> OptimizationState:
        geometry.validate(position, "position")
        return OptimizationState(position, training.init(position), jnp.zeros((), jnp.int32))

    def step(
        rng_key: PRNGKey, state: OptimizationState, batch: PyTree = None
    ) -> tuple[OptimizationState, OptimizationInfo]:
        del rng_key
        found, potential = training.update(state.descent, state.position, state.iteration, batch)
        result = found.result(state.position)
        is_finite = jnp.isfinite(potential) & _tree.is_finite((found.position, result))
        info = OptimizationInfo(num_data * potential, is_finite)
        return OptimizationState(result, found, state.iteration + 1), info

    settings = {"sampler": "train_ensemble", "num_steps": num_steps, "optimizer": optimizer, "score_every": score_every}
    densities = [("log density", posterior.logdensity), *compared_too(objective, score)]
    return SamplingAlgorithm(
        init,
        step,
        manifold=manifold,
        num_batches=1,
        num_data=num_data,
        description=Description(
            tuple(settings.items()), tuple(densities), owner="train_ensemble", log_likelihood=posterior.likelihoods
        ),
    )
