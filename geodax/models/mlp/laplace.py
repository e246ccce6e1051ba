"""Linearised Laplace approximations around several trained networks.

Each chain is a network of its own, trained as in a deep ensemble (:mod:`geodax.models.mlp.ensembles`). Around it, the
posterior of the last layer's weights, or of all, is normal with the Gauss-Newton matrix of all rows as precision
(:func:`geodax.nn.laplace_posterior`); the prior variance of each layer, and the noise of a regression, maximise the
marginal likelihood. A draw is a function of the network linearised in its weights (:class:`geodax.nn.Linearised`):
draws of weights leave the region where the network itself is linear, and predict worse. Missing inputs count as several
rows, one for each draw of the missing cells, which share the weight of the row.

Source:
    Immer, Korzepa and Bauer (2021), Improving predictions of Bayesian neural nets via local linearization. AISTATS.
    Eschenhagen, Daxberger, Hennig and Kristiadi (2021), Mixtures of Laplace approximations for improved post-hoc
    uncertainty in deep learning. arXiv:2111.03577. (Several networks.)
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, nn
from geodax._types import Position, PRNGKey, Scalar
from geodax._wording import argument
from geodax.models.mlp.ensembles import NetworkEnsemble
from geodax.models.mlp.inference import (
    INFERENCES,
    AbstractInference,
    Data,
    Form,
    NetworkProblem,
    built_without_scales,
    independent_draws,
    require_free_weights,
)
from geodax.models.options import kept_in
from geodax.nn.likelihoods import apply_network
from geodax.run.positions import last_positions
from geodax.run.sample import sample
from geodax.vi.positions import NOISE, SPACINGS, prior_variances_of

_OWNER = "LaplaceInference"
_STRUCTURES = ("kronecker", "diagonal", "full")
_LAYERS = ("all", "last")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceInference(AbstractInference):
    """``inference="laplace"``: an ensemble, then :func:`geodax.nn.laplace_posterior` around each of its networks.

    Attributes:
        batch_size: Number of examples per batch of the training; None selects 100, or a quarter of fewer than 400 rows.
        num_warmup: Number of training steps of each network.
        num_chains: Number of networks, trained side by side.
        num_samples: Number of draws around each network.
        structure: ``"kronecker"``, ``"diagonal"`` or ``"full"``, as for :func:`geodax.nn.laplace_posterior`.
        layers: ``"last"``, the others keep their trained weights; or ``"all"``.
    """

    batch_size: int | None = None
    num_warmup: int = 2000
    num_chains: int = 4
    num_samples: int = 100
    structure: str = "kronecker"
    layers: str = "last"

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> AbstractInference:
        if settings["step_size"] is not None:
            raise ValueError(
                f"{argument('step_size')} must be left out for {argument('inference', 'laplace')}, whose training has "
                f"its own, found {settings['step_size']!r}."
            )
        return super().from_settings(settings)

    @property
    def likelihood_power(self) -> float:
        return 1.0

    def check(self, problem: NetworkProblem) -> None:
        _checks.chosen(_OWNER, "structure", self.structure, _STRUCTURES)
        _checks.chosen(_OWNER, "layers", self.layers, _LAYERS)
        _checks.whole(_OWNER, "num_samples", self.num_samples)
        how, others = argument("inference", "laplace"), f"{argument('inference', 'ensemble')} or 'mcmc'"
        require_free_weights(problem, how, others)
        network = built_without_scales(problem, jax.random.key(0), how, others)
        prior_variances_of(how, network, (NOISE, SPACINGS), 1.0, problem.priors)
        if not isinstance(problem.likelihood, nn.CategoricalLikelihood | nn.GaussianLikelihood):
            raise ValueError(
                f"{how} needs classes or normal noise of one size; use {argument('likelihood', 'gaussian')}, or "
                f"{others}."
            )
        self._training.check(problem)

    @property
    def _training(self) -> NetworkEnsemble:
        settings = {name: getattr(self, name) for name in ("batch_size", "num_warmup", "num_chains")}
        return NetworkEnsemble(inference="ensemble", **settings)

    def form(self, problem: NetworkProblem) -> Form:
        network = problem.build(jax.random.key(0))
        return Form(nn.linearised(network, network), apply_network)

    def run(self, rng_key: PRNGKey, problem: NetworkProblem, data: Data, *, folder: Path | None, **how: Any) -> Any:
        key_training, key_draws = jax.random.split(rng_key)
        kept = kept_in(folder)
        inner = None if folder is None else folder / "checkpoint" / "training"
        trained = self._training.run(key_training, problem, data, folder=inner, **how)
        like: Any = problem.build(jax.random.key(0))
        networks = last_positions(trained, like)
        x, y, weights = whole_rows(problem, data)
        # problem.likelihood has no apply=, so that the outputs are those of the network
        posteriors = [
            nn.laplace_posterior(
                jax.tree.map(lambda leaf, k=k: leaf[k], networks),
                problem.likelihood,  # type: ignore[arg-type]
                (x, y),
                structure=self.structure,
                where=_last_layer if self.layers == "last" else None,
                weights=weights,
            ).maximised()
            for k in range(self.num_chains)
        ]
        return sample(
            key_draws,
            independent_draws(_linearised),
            # draws do not need the shares of the targets
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *(dataclasses.replace(p, shares=None) for p in posteriors)),
            num_samples=self.num_samples,
            num_chains=self.num_chains,
            stacked=True,
            **kept,
            **how,
        )


INFERENCES["laplace"] = LaplaceInference


def _linearised(posterior: nn.LaplacePosterior, key: PRNGKey | None) -> tuple[Position, Scalar]:
    drawn = posterior.network if key is None else posterior.sample(key)
    return nn.linearised(posterior.network, drawn), posterior.log_prob(drawn)


def whole_rows(
    problem: NetworkProblem, data: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return inputs, targets and weights with one row for each draw of a row's missing cells; None for weights of 1."""
    x, y, *given = data
    if not problem.num_incomplete:
        return x, y, given[0] if given else None
    num_draws = np.where((x[:, 1:] != x[:, :1]).any(axis=(1, 2)), x.shape[1], 1)
    rows = np.repeat(np.arange(len(x)), num_draws)
    which = np.concatenate([np.arange(number) for number in num_draws])
    weights = (given[0] if given else np.ones(len(x), np.float32)) / num_draws
    return x[rows, which], y[rows], weights[rows]


def _last_layer(network: Any) -> Any:
    while not isinstance(network, nn.MLP):
        network = network.network  # noise or cut points
    return network.layers[-1]
