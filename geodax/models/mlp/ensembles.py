"""Baselines by training alone: deep ensembles, SWAG and multi-SWAG.

Each chain is a network of its own, trained with Adam for ``num_warmup`` steps. As for the samplers, a tenth of the rows
is held out from training, and each network is the one that predicted them best. SWAG then follows stochastic gradient
descent on all rows (:mod:`geodax.run.swag`). Priors are the regularisers.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from geodax import _checks, nn
from geodax._types import PRNGKey
from geodax._wording import argument
from geodax.data.minibatches import batches
from geodax.models.mlp.inference import INFERENCES, AbstractInference, Data, NetworkProblem, require_free_weights
from geodax.models.mlp.stochastic import held_out_training, least_temperature
from geodax.models.options import kept_in, require_numbers
from geodax.posterior import Posterior
from geodax.run.ensembles import train_ensemble
from geodax.run.swag import swag

_BATCH_SIZE = 100
_LEAST_BATCHES = 4  # in a pass
_INFERENCES = ("ensemble", "swag", "multi-swag")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkEnsemble(AbstractInference):
    """``inference="ensemble"``, :func:`geodax.train_ensemble`; ``"swag"`` and ``"multi-swag"``, :func:`geodax.swag`.

    Attributes:
        inference: One of the three. In ``"swag"`` all chains draw from the distribution around one network.
        batch_size: Number of examples per batch; None selects 100, or a quarter of fewer than 400 rows.
        num_warmup: Number of training steps of each network.
        num_chains: Number of chains; for ``"ensemble"`` and ``"multi-swag"`` also of networks, trained side by side.
        step_size: Learning rate of SWAG's descent for the mean potential; None finds one.
        num_samples: Number of draws of each chain, except for ``"ensemble"``, where a network is a draw.
    """

    inference: str = "ensemble"
    batch_size: int | None = None
    num_warmup: int = 2000
    num_chains: int = 4
    step_size: float | None = None
    num_samples: int = 100

    def check(self, problem: NetworkProblem) -> None:
        _checks.chosen("NetworkEnsemble", "inference", self.inference, _INFERENCES)
        require_numbers("NetworkEnsemble", self, "batch_size", "num_warmup", "num_chains", "num_samples")
        if self.inference != "ensemble":
            instead = f"{argument('inference', 'ensemble')} or 'mcmc'"
            require_free_weights(problem, argument("inference", self.inference), instead)
        least, path = least_temperature(problem)
        if least > 0.0:
            raise ValueError(
                f"with {argument('prior', 'horseshoe')}, which has one scale for all of {path}, the optimum is an "
                f"array of zeros; use {argument('prior', 'local-horseshoe')}, or {argument('inference', 'mcmc')}."
            )

    def run(self, rng_key: PRNGKey, problem: NetworkProblem, data: Data, *, folder: Path | None, **how: Any) -> Any:
        num_data = len(data[0])
        posterior = Posterior(log_prior=problem.priors, log_likelihood=problem.log_likelihood(), num_data=num_data)
        size = max(1, min(_BATCH_SIZE, num_data // _LEAST_BATCHES)) if self.batch_size is None else self.batch_size
        size = min(size, num_data)
        epoch = -(-num_data // size)
        posterior, marked, options = held_out_training(rng_key, posterior, data, epoch, self.num_warmup, problem.groups)
        options |= {"batches": batches(marked, batch_size=size, order="epochs"), "num_steps": self.num_warmup}
        options |= kept_in(folder) | how
        if self.inference == "ensemble":
            manifold = nn.geometry(jax.eval_shape(problem.build, jax.random.key(0)))
            return train_ensemble(
                rng_key, posterior, problem.build, num_members=self.num_chains, manifold=manifold, **options
            )
        return swag(
            rng_key,
            posterior,
            problem.build,
            num_samples=self.num_samples,
            num_networks=1 if self.inference == "swag" else self.num_chains,
            num_chains=self.num_chains,
            learning_rate=self.step_size,
            **options,
        )


INFERENCES |= dict.fromkeys(_INFERENCES, NetworkEnsemble)
