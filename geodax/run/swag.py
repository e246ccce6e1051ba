r"""SWAG: a normal distribution around the path of stochastic gradient descent, and mixtures of several.

From a trained network, gradient descent with momentum continues at a constant learning rate. Of the networks
:math:`\theta_1, \dots, \theta_T` at regular intervals on its path, with running means :math:`\bar\theta_i`,

.. math::
    \bar\theta = \tfrac1T \textstyle\sum_i \theta_i, \qquad
    \Sigma = \mathrm{diag}\bigl(\tfrac1T \textstyle\sum_i \theta_i^2 - \bar\theta^2\bigr), \qquad
    D = (\theta_i - \bar\theta_i)_{i = T - K + 1, \dots, T},

and draws are

.. math::
    \theta = \bar\theta + \tfrac{1}{\sqrt2} \Sigma^{1/2} z_1 + \tfrac{1}{\sqrt{2 (K - 1)}} D z_2, \qquad
    z_1 \sim N(0, I_d), \; z_2 \sim N(0, I_K).

The distribution is an approximation: its width is that of the noise of gradient descent, which grows with the learning
rate and shrinks with the batch, whatever the posterior is. Without a learning rate, one is chosen whose noise has the
posterior's variance along the stiffest direction, where both are known. With friction :math:`\alpha` (one minus the
momentum), step :math:`\varepsilon` on the potential and variance V of its batch noise there, the noise acts like the
temperature :math:`\varepsilon^2 V / 2 \alpha`, which is 1 at ten times the squared step that :mod:`geodax.sgmcmc.sghmc`
takes without a ``step_size``; where the curvature limits steps more than the noise, descent is colder.

Sources:
    Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), A simple baseline for Bayesian uncertainty in deep learning.
    NeurIPS. (Algorithm 1; its running means are kept.)
    Wilson and Izmailov (2020), Bayesian deep learning and a probabilistic perspective of generalization. NeurIPS. (A
    mixture of independent SWAGs.)
    Mandt, Hoffman and Blei (2017), Stochastic gradient descent as approximate Bayesian inference. JMLR 18. (The
    learning rate at which descent is closest to the posterior.)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._random import standard_normal
from geodax._types import Array, Description, Position, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax.data.minibatches import Batches, Stream
from geodax.data.parts import mean_over_parts, own_examples
from geodax.geometry.manifolds import Euclidean
from geodax.geometry.product import named_parts
from geodax.nn.structure import geometry
from geodax.posterior import Posterior
from geodax.run.ensembles import train_ensemble
from geodax.run.positions import last_positions, position_variables, positions_at
from geodax.run.progress import Reporter
from geodax.run.sample import sample
from geodax.run.sharding import Devices
from geodax.run.starts import is_function
from geodax.sgmcmc.sghmc import sghmc

NUM_TUNING = 300
_MATCHED = 10.0**0.5  # steps whose noise has temperature 1, relative to those of the rule, where it has a tenth


class Moments(NamedTuple):
    """The normal distribution of a chain.

    Attributes:
        mean: Mean of the networks.
        deviation: Standard deviation of each entry.
        columns: Differences of the last K networks from the running means, K along the first axis.
    """

    mean: PyTree
    deviation: PyTree
    columns: PyTree


class SWAGState(NamedTuple):
    """A draw, and the distribution it was drawn from."""

    position: Position
    moments: Moments


class SWAGInfo(NamedTuple):
    """Scalars that describe a draw: the potential, estimated from a batch."""

    potential: Scalar


def swag(
    rng_key: PRNGKey,
    posterior: Any,
    position: Position | Callable[[PRNGKey], Position],
    *,
    batches: Batches | Stream,
    num_steps: int,
    num_samples: int = 100,
    num_networks: int = 1,
    num_chains: int | None = None,
    num_collected: int = 40,
    collect_every: int | None = None,
    rank: int = 20,
    learning_rate: float | None = None,
    momentum: float = 0.9,
    optimizer: Any = None,
    objective: Any = None,
    score: Any = None,
    score_every: int = 1,
    stacked: bool = False,
    store: str | Path | None = None,
    checkpoint: str | Path | None = None,
    devices: Devices = None,
    progress: bool | Reporter = True,
) -> xr.DataTree:
    """Train networks, follow stochastic gradient descent from them, and draw from normal distributions around its path.

    One network is SWAG; several, from independent trainings, are multi-SWAG, the mixture of their distributions. It is
    an approximation whose width depends on the learning rate: see :mod:`geodax.run.swag`.

    Args:
        rng_key: A JAX random key.
        posterior: The target, a :class:`geodax.Posterior`; its prior is the regulariser.
        position: Function ``key -> position``, called once per network, or an initial position, such as a trained
            network.
        batches: Batches of data. With all examples in a batch there is no noise, and the distributions have no width.
        num_steps: Number of steps of training, as :func:`geodax.train_ensemble` does it; 0 if the positions are
            trained already.
        num_samples: Number of draws of each chain.
        num_networks: Number of networks, each with a path and a normal distribution of its own.
        num_chains: Number of chains of draws, a multiple of ``num_networks`` that is divided among them in order; None
            is one per network.
        num_collected: Number of points collected on the path of each network.
        collect_every: Number of steps of descent between them; None is one pass through the data.
        rank: Number K of columns, at least 2 and at most ``num_collected``.
        learning_rate: Learning rate of the descent for the *mean* potential; None finds one in 300 iterations of
            :func:`geodax.sghmc` that are then discarded, each as expensive as four gradients.
        momentum: Momentum of the descent.
        optimizer: As for :func:`geodax.train_ensemble`, for the training.
        objective: As for :func:`geodax.train_ensemble`, for the training.
        score: As for :func:`geodax.train_ensemble`, for the training.
        score_every: As for :func:`geodax.train_ensemble`, for the training.
        stacked: Whether ``position`` has a leading axis over the networks.
        store: A folder to which the draws are streamed, as for :func:`geodax.sample`.
        checkpoint: A folder for checkpoints of all stages; an interrupted call resumes from there.
        devices: As for :func:`geodax.sample`.
        progress: As for :func:`geodax.sample`; each stage is a run of its own.

    Returns:
        The draws, as from :func:`geodax.sample`. The attribute ``learning_rate`` is that of the descent. The group
        ``collected`` has the points on the paths, with a chain for each network.

    Raises:
        TypeError: As for :func:`geodax.train_ensemble`.
        ValueError: If a number is out of range, if the network has parameters on a manifold, where a normal
            distribution has no place, or if no ``collect_every`` is given for a stream.
        NonFiniteError: If the learning rate is too large; also as for :func:`geodax.sample`.
    """
    num_steps = _checks.whole("swag", "num_steps", num_steps, least=0)
    num_networks = _checks.whole("swag", "num_networks", num_networks)
    num_chains = num_networks if num_chains is None else _checks.whole("swag", "num_chains", num_chains)
    if num_chains % num_networks:
        raise ValueError(f"swag: num_chains must be a multiple of num_networks={num_networks}, found {num_chains}.")
    num_collected = _checks.whole("swag", "num_collected", num_collected, least=2)
    rank = _checks.whole("swag", "rank", rank, least=2, most=num_collected)
    friction = 1.0 - _checks.number("swag", "momentum", momentum, least=0.0, below=1.0)
    if not isinstance(posterior, Posterior):
        raise TypeError(f"swag: posterior must be a gx.Posterior, found {_checks.described(posterior)}.")
    if learning_rate is not None:
        learning_rate = _checks.number("swag", "learning_rate", learning_rate, above=0.0)
    if collect_every is None:
        if not isinstance(batches, Batches):
            raise ValueError("swag: give collect_every, since a stream does not tell the length of a pass.")
        collect_every = batches.num_an_epoch
    collect_every = _checks.whole("swag", "collect_every", collect_every)
    key_training, key_rate, key_path, key_draws = jax.random.split(_checks.random_key("swag", rng_key), 4)
    like = position(jax.random.clone(key_training)) if is_function(position) else position
    like = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf)[int(stacked) :], jnp.result_type(leaf)), like)
    spaces = named_parts(geometry(like), like, "position")
    curved = [name for name, space, _ in spaces if not isinstance(space, Euclidean)]
    if curved:
        raise ValueError(
            f"swag: {curved[0]} lies on a manifold, where a normal distribution has no place; use gx.train_ensemble or "
            "gx.sghmc."
        )
    shared: dict[str, Any] = {"batches": batches, "devices": devices, "progress": progress}

    def stage(name: str) -> dict[str, Any]:
        return shared | {"checkpoint": None if checkpoint is None else Path(checkpoint) / name}

    if num_steps:
        trained = train_ensemble(
            key_training,
            posterior,
            position,
            num_steps=num_steps,
            num_members=num_networks,
            optimizer=optimizer,
            objective=objective,
            score=score,
            score_every=score_every,
            stacked=stacked,
            **stage("training"),
        )
        position, stacked = last_positions(trained, like), True
    counts: dict[str, Any] = {"num_chains": num_networks, "stacked": stacked}
    if learning_rate is None:
        tuning = sghmc(posterior, friction=friction)
        found = sample(key_rate, tuning, position, num_samples=1, num_warmup=NUM_TUNING, **counts, **stage("rate"))
        step_size = _MATCHED * float(np.median(found["sample_stats"].dataset["step_size"].values))
    else:
        step_size = (learning_rate / posterior.num_data) ** 0.5
    path = sample(
        key_path,
        sghmc(posterior, step_size=step_size, friction=friction, temperature=0.0),
        position,
        num_samples=num_collected,
        thinning=collect_every,
        **counts,
        **stage("path"),
    )
    points = positions_at(position_variables("swag", path, like), like, slice(None))
    moments = jax.vmap(lambda points: collected_moments(points, rank))(_tree.widened(points))
    draws = sample(
        key_draws,
        _normal(posterior, like),
        jax.tree.map(lambda leaf: jnp.repeat(leaf, num_chains // num_networks, axis=0), moments),
        num_samples=num_samples,
        num_chains=num_chains,
        stacked=True,
        store=store,
        **stage("draws"),
    )
    draws.attrs["learning_rate"] = step_size**2 * posterior.num_data
    draws["collected"] = xr.DataTree(path["posterior"].to_dataset())
    return draws


def collected_moments(positions: PyTree, rank: int) -> Moments:
    """Compute mean, standard deviations and ``rank`` columns of networks along the first axis, in the path's order."""

    def running(leaf: Array) -> Float[Array, "T ..."]:
        # relative to the first network, so that no digits are lost
        count = jnp.arange(1, len(leaf) + 1, dtype=leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))
        return leaf[:1] + jnp.cumsum(leaf - leaf[:1], axis=0) / count

    return Moments(
        jax.tree.map(lambda leaf: running(leaf)[-1], positions),
        jax.tree.map(lambda leaf: jnp.std(leaf, axis=0), positions),
        jax.tree.map(lambda leaf: (leaf - running(leaf))[-rank:], positions),
    )


def _normal(posterior: Posterior, like: Position) -> SamplingAlgorithm:
    """Independent draws from the distribution of each chain."""

    def init(moments: Moments) -> SWAGState:
        return SWAGState(jax.tree.map(lambda leaf, kind: leaf.astype(kind.dtype), moments.mean, like), moments)

    def step(rng_key: PRNGKey, state: SWAGState, batch: PyTree = None) -> tuple[SWAGState, SWAGInfo]:
        moments = state.moments
        key_entries, key_columns = jax.random.split(rng_key)
        rank = jax.tree.leaves(moments.columns)[0].shape[0]
        weights = jax.random.normal(key_columns, (rank,), _tree.real_dtype(moments.mean)) / (2.0 * (rank - 1)) ** 0.5

        def moved(mean: Array, deviation: Array, columns: Array, z: Array, kind: Array) -> Array:
            along = jnp.tensordot(weights.astype(mean.dtype), columns, 1)
            return (mean + 0.5**0.5 * deviation * z + along).astype(kind.dtype)

        z = standard_normal(key_entries, moments.mean)
        drawn = jax.tree.map(moved, moments.mean, moments.deviation, moments.columns, z, like)
        potential = mean_over_parts(lambda part: -posterior.logdensity(drawn, own_examples(part)), batch)
        return SWAGState(drawn, moments), SWAGInfo(potential)

    return SamplingAlgorithm(
        init,
        step,
        num_batches=1,
        num_data=posterior.num_data,
        description=Description((("sampler", "swag"),), (("log density", posterior.logdensity),)),
    )
