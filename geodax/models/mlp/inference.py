"""The interface of inference methods for the network estimators, and the methods by name.

An inference turns a network, a prior and data into an ensemble of draws. The later steps (probabilities, uncertainties,
scores, conformal sets, reports) need only the draws as a DataTree, and a function that evaluates one. To add an
inference, subclass :class:`AbstractInference` and add an entry to :data:`INFERENCES`. If its draws are not the
network's own weights (but dropout masks, or vectors of Walsh-Hadamard layers), its :meth:`~AbstractInference.form`
describes them.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import nn
from geodax._types import Array, Position, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax._wording import argument, in_python
from geodax.nn.likelihoods import apply_network
from geodax.run.progress import Reporter
from geodax.run.sharding import Devices

Data = tuple[np.ndarray, ...]
"""Standardised inputs, targets and, if there are any, weights of the rows."""
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkProblem:
    """A network with its prior and likelihood, without the data.

    Attributes:
        in_features: Number of inputs.
        out_features: Number of classes; None for one real output; otherwise the number of outputs of a regression.
        widths: Numbers of units in the hidden layers.
        activation: A name in :data:`ACTIVATIONS`.
        orthogonal: Whether hidden layers have orthonormal weights.
        rank: Rank of hidden layers' weights, one for all or one per layer, or None.
        priors: Priors by rule.
        likelihood: A likelihood of :mod:`geodax.nn`, in standardised units if it is that of real numbers.
        num_targets: Number of targets of an example; None if each is a number, not a vector.
        is_ordinal: Whether the classes are ordered: the network has one output and cut points.
        is_weighted: Whether examples have weights.
        num_incomplete: Number of examples with missing inputs; if positive, all examples have several draws of them
            along the second axis of x.
        groups: Group of each example if those held out from training should be whole groups.
    """

    in_features: int
    out_features: int | None
    widths: tuple[int, ...]
    activation: str
    orthogonal: bool
    rank: int | tuple[int | None, ...] | None
    priors: nn.Priors
    likelihood: nn.CategoricalLikelihood | nn.AbstractLikelihood
    num_targets: int | None = None
    is_ordinal: bool = False
    is_weighted: bool = False
    num_incomplete: int = 0
    groups: np.ndarray | None = dataclasses.field(default=None, compare=False)

    def build(self, key: PRNGKey) -> Position:
        """Create a network in single precision, including noise and prior parameters."""
        out_features = "scalar" if self.out_features is None or self.is_ordinal else self.out_features
        network = _network(
            in_features=self.in_features,
            out_features=out_features,
            widths=self.widths,
            activation=ACTIVATIONS[self.activation],
            orthogonal=self.orthogonal,
            rank=self.rank,
            key=key,
        )
        if self.is_ordinal:
            assert self.out_features is not None
            return self.priors.extend(nn.WithCutPoints(network, self.out_features))
        if isinstance(self.likelihood, nn.AbstractLikelihood) and self.likelihood.has_parameter:
            shape = () if self.num_targets is None else (self.num_targets,)
            return self.priors.extend(nn.WithNoise(network, jnp.full(shape, -1.0, jnp.float32)))
        return self.priors.extend(network)

    def log_likelihood(
        self, apply: Callable[[Position, PyTree], Array] = apply_network, *, as_bound: bool = False
    ) -> Callable[..., Array]:
        """Return ``(position, batch) -> (B,)`` for :class:`geodax.Posterior`; batches are (x, y), or (x, y, weights).

        Args:
            apply: As for the likelihoods of :mod:`geodax.nn`.
            as_bound: Whether to average the log likelihoods of the draws of missing inputs, a lower bound, instead of
                the likelihoods.
        """
        each = dataclasses.replace(self.likelihood, apply=apply)

        def over_draws(position: Position, batch: tuple[Array, Array]) -> Array:
            x, y = batch
            # the draws of complete examples are equal; one suffices
            rows = jnp.argsort(jnp.all(x[:, 1:] == x[:, :1], axis=(1, 2)))[: self.num_incomplete]
            others = x[rows, 1:].reshape(-1, x.shape[-1]), jnp.repeat(y[rows], x.shape[1] - 1, axis=0)
            values = each(position, jax.tree.map(lambda *parts: jnp.concatenate(parts), (x[:, 0], y), others))
            first = values[: len(x)]
            flat = jnp.column_stack([first[rows], values[len(x) :].reshape(len(rows), -1)])
            mean = flat.mean(axis=1) if as_bound else jax.nn.logsumexp(flat, axis=1) - math.log(x.shape[1])
            return first.at[rows].set(mean)

        unweighted = over_draws if self.num_incomplete else each
        return nn.Weighted(unweighted) if self.is_weighted else unweighted


class Form(NamedTuple):
    """The structure of an inference's draws, and how to evaluate them.

    Attributes:
        like: A position with the structure of a draw; the DataTree has a variable for each of its arrays.
        apply: ``(position, x) -> outputs``: logits (B, classes), outputs for the likelihood of numbers, or, if that is
            Gaussian, a pair of means and noise standard deviations.
    """

    like: Position
    apply: Callable[[Position, PyTree], Any]


class DrawState(NamedTuple):
    """A draw, its log density, and the posterior it was drawn from."""

    position: Position
    logdensity: Scalar
    posterior: Any


def independent_draws(draw: Callable[[Any, PRNGKey | None], tuple[Position, Scalar]]) -> SamplingAlgorithm:
    """Draw independently from posteriors, which ``init`` takes; ``draw`` returns a draw, or without a key the mean."""

    def state(posterior: Any, key: PRNGKey | None) -> DrawState:
        return DrawState(*draw(posterior, key), posterior)

    def step(rng_key: PRNGKey, previous: DrawState) -> tuple[DrawState, dict[str, Array]]:
        return state(previous.posterior, rng_key), {}

    return SamplingAlgorithm(lambda posterior: state(posterior, None), step)


class AbstractInference(abc.ABC):
    """A method that maps a problem and data to an ensemble; instances hold its settings."""

    @property
    def likelihood_power(self) -> float | None:
        """Power of the likelihood in the posterior of the draws; None if they are not draws of a posterior."""
        return None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "AbstractInference":
        """Create an instance from the options of an estimator; raises ValueError for unsuitable ones.

        The default takes the options that have the names of the fields of a dataclass, of which ``temperature`` must be
        1 if there is no such field.
        """
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if "temperature" not in names and settings.get("temperature", 1.0) != 1.0:
            raise ValueError(
                f"{argument('temperature')} must be 1 for {argument('inference', settings['inference'])}, which has "
                f"none, found {settings['temperature']!r}; use {argument('inference', 'mcmc')} for other temperatures."
            )
        return cls(**{name: settings[name] for name in names if name in settings})

    @abc.abstractmethod
    def check(self, problem: NetworkProblem) -> None:
        """Raise ValueError for a problem that the method does not support."""

    def form(self, problem: NetworkProblem) -> Form:
        """Return the form of the draws: by default networks as built by the problem."""
        return Form(problem.build(jax.random.key(0)), apply_network)

    @abc.abstractmethod
    def run(
        self,
        rng_key: PRNGKey,
        problem: NetworkProblem,
        data: Data,
        *,
        folder: Path | None,
        devices: Devices,
        progress: bool | Reporter,
    ) -> Any:
        """Compute the ensemble.

        Args:
            rng_key: A PRNG key; equal keys give equal draws.
            problem: The problem.
            data: Standardised inputs (rows x columns; rows x draws x columns if cells are missing) and targets (labels
                from 0 as int32), in single precision, and the weights of the rows if there are any.
            folder: Folder for draws (``posterior.zarr``) and checkpoints (``checkpoint``), from which the same call
                resumes after an interruption; None keeps all in memory.
            devices: As for :func:`geodax.sample`.
            progress: As for :func:`geodax.sample`.

        Returns:
            A DataTree with draws of the form's positions in the group ``posterior``, and scalars (chain, draw) in
            ``sample_stats``, one of them named ``potential`` or ``lp``.
        """


@eqx.filter_jit
def _network(**options: Any) -> nn.MLP:
    return nn.MLP(**options, dtype=jnp.float32)


def require_free_weights(problem: NetworkProblem, what: str, instead: str) -> None:
    """Raise ValueError for orthonormal or low-rank weights, which a method does not support."""
    if (problem.orthogonal or problem.rank is not None) and problem.widths:
        raise ValueError(
            f"{what} supports only free weights, but {argument('orthogonal', True)} and {argument('rank')} put them on "
            f"Stiefel manifolds; use {instead}."
        )


def built_without_scales(problem: NetworkProblem, key: PRNGKey, what: str, instead: str) -> Any:
    """Build the network; raise ValueError for priors with scales as parameters, which a method does not support."""
    network = problem.build(key)
    if isinstance(network, nn.Hierarchical):
        raise ValueError(f"{what} requires normal priors; use {argument('prior', 'gaussian')}, or {instead}.")
    return network


INFERENCES: dict[str, type[AbstractInference]] = {}
"""Inference methods by the value of the option ``inference``."""


def chosen_inference(inference: Any, settings: Mapping[str, Any]) -> AbstractInference:
    """Return an inference by name, configured by an estimator's options; instances are returned unchanged."""
    if isinstance(inference, AbstractInference):
        return inference
    if not isinstance(inference, str) or inference not in INFERENCES:
        raise ValueError(
            f"{argument('inference')} must be one of {sorted(INFERENCES)}"
            f"{in_python(', or a configured inference such as StochasticGradientMCMC(...)')}, found {inference!r}."
        )
    return INFERENCES[inference].from_settings(settings)
