"""What the estimators of networks ask of an inference, and the inferences they know by name.

An inference turns a network, a prior and data into an ensemble of draws. All that comes after (probabilities,
uncertainties, scores, conformal sets, reports) needs two things of it: the draws as a DataTree, and how to evaluate
one. A new inference is a subclass of :class:`AbstractInference` and an entry of :data:`INFERENCES`; where its draws are
not draws of the network's own weights (masks of dropout, vectors of Walsh-Hadamard layers), its
:meth:`~AbstractInference.form` says what they are.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax import nn
from geodax._types import Array, Position, PRNGKey, PyTree
from geodax.nn.likelihoods import apply_network
from geodax.run.progress import Reporter
from geodax.run.sharding import Devices

ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkProblem:
    """A network with its prior and likelihood, before any data.

    Attributes:
        in_features: Entries of an input.
        out_features: Number of classes; None for one number.
        widths: Units of the hidden layers.
        activation: A name in :data:`ACTIVATIONS`.
        orthogonal: Whether hidden layers have orthonormal weights.
        rank: Rank of hidden layers' weights, or one a layer, or None.
        priors: Priors by rule.
        noise: Standard deviation of the noise of numbers, in standardised units; None where it is a parameter.
    """

    in_features: int
    out_features: int | None
    widths: tuple[int, ...]
    activation: str
    orthogonal: bool
    rank: int | tuple[int | None, ...] | None
    priors: nn.Priors
    noise: float | None

    @property
    def is_classification(self) -> bool:
        """Whether targets are classes."""
        return self.out_features is not None

    def build(self, key: PRNGKey) -> Position:
        """A new network in single precision, with the parameters of noise and prior that belong to it."""
        network = nn.MLP(
            self.in_features,
            "scalar" if self.out_features is None else self.out_features,
            widths=self.widths,
            activation=ACTIVATIONS[self.activation],
            orthogonal=self.orthogonal,
            rank=self.rank,
            dtype=jnp.float32,
            key=key,
        )
        if not self.is_classification and self.noise is None:
            return self.priors.extend(nn.WithNoise(network, -1.0, dtype=jnp.float32))
        return self.priors.extend(network)

    def log_likelihood(self, apply: Callable[[Position, PyTree], Array] = apply_network) -> Callable[..., Array]:
        """``(position, (x, y)) -> (B,)`` for :class:`geodax.Posterior`."""
        return nn.CategoricalLikelihood(apply) if self.is_classification else nn.GaussianLikelihood(self.noise, apply)


class Form(NamedTuple):
    """What the draws of an inference are.

    Attributes:
        like: A position with the form of a draw; the DataTree has a variable for each of its arrays.
        apply: ``(position, x) -> outputs``: logits (B, classes), means (B,) where the noise is known or a
            :class:`geodax.nn.WithNoise` in the position, or a pair of means and noise standard deviations.
    """

    like: Position
    apply: Callable[[Position, PyTree], Any]


class AbstractInference(abc.ABC):
    """From a problem and data to an ensemble; an instance holds its settings."""

    @classmethod
    @abc.abstractmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "AbstractInference":
        """Take what it needs from the options of an estimator, and refuse what does not fit with a ValueError."""

    @abc.abstractmethod
    def check(self, problem: NetworkProblem) -> None:
        """Raise ValueError for a problem that it cannot treat."""

    @abc.abstractmethod
    def form(self, problem: NetworkProblem) -> Form:
        """What its draws are."""

    @abc.abstractmethod
    def run(
        self,
        rng_key: PRNGKey,
        problem: NetworkProblem,
        data: tuple[np.ndarray, np.ndarray],
        *,
        folder: Path | None,
        devices: Devices,
        progress: bool | Reporter,
    ) -> Any:
        """Make the ensemble.

        Args:
            rng_key: All randomness; equal keys give equal draws.
            problem: The problem.
            data: Standardised inputs and targets (labels from 0 as int32), in single precision.
            folder: Where draws (``posterior.zarr``) and checkpoints (``checkpoint``) go, from which the same call goes
                on after an interruption; None keeps all in memory.
            devices: As for :func:`geodax.sample`.
            progress: As for :func:`geodax.sample`.

        Returns:
            A DataTree with draws of the form's positions in the group ``posterior``, and scalars (chain, draw) in
            ``sample_stats``, one of which is ``potential`` or ``lp``.
        """


INFERENCES: dict[str, type[AbstractInference]] = {}
"""Inferences by the name that the option ``inference`` gives them."""


def chosen_inference(inference: Any, settings: Mapping[str, Any]) -> AbstractInference:
    """An inference by its name, with the options of an estimator; or itself.

    Args:
        inference: A name in :data:`INFERENCES`, or an inference with settings of its own.
        settings: Options of the estimator, by name.

    Returns:
        The inference.

    Raises:
        ValueError: For an unknown name.
    """
    if isinstance(inference, AbstractInference):
        return inference
    if not isinstance(inference, str) or inference not in INFERENCES:
        raise ValueError(
            f"inference must be one of {sorted(INFERENCES)}, or a configured inference such as "
            f"StochasticGradientMCMC(...), found {inference!r}."
        )
    return INFERENCES[inference].from_settings(settings)
