"""Baselines by training alone: deep ensembles, SWAG and multi-SWAG.

Each chain is a network of its own, trained with Adam for ``num_warmup`` steps. As for the samplers, a tenth of the rows
is held out from training, and each network is the one that predicted them best. SWAG then follows stochastic gradient
descent on all rows (:mod:`geodax.run.swag`). Priors are the regularisers.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from geodax import nn
from geodax._types import PRNGKey
from geodax.data.batches import batches
from geodax.models.mlp.inference import INFERENCES, AbstractInference, Form, NetworkProblem
from geodax.models.mlp.stochastic import MOST_ITERATIONS, held_out_training, least_temperature
from geodax.models.options import kept_in
from geodax.models.pooling import require_count
from geodax.nn.likelihoods import apply_network
from geodax.posterior import Posterior
from geodax.run.ensembles import train_ensemble
from geodax.run.progress import Reporter
from geodax.run.sharding import Devices
from geodax.run.swag import swag
from geodax.sgmcmc.schedules import as_number

_BATCH_SIZE = 100
_LEAST_BATCHES = 4  # in a pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeepEnsemble(AbstractInference):
    """``inference="ensemble"``: :func:`geodax.train_ensemble`.

    Attributes:
        batch_size: Number of examples per batch; None selects 100, or a quarter of fewer than 400 rows.
        num_warmup: Number of training steps of each network.
        num_chains: Number of networks, trained side by side.
    """

    batch_size: int | None = None
    num_warmup: int = 2000
    num_chains: int = 4

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "DeepEnsemble":
        """Create an instance from the estimator's options of the same names."""
        if settings["temperature"] != 1.0:
            raise ValueError(
                f"temperature must be 1 for inference={settings['inference']!r}, which has none, found "
                f"{settings['temperature']!r}; use inference='mcmc' for other temperatures."
            )
        return cls(**{field.name: settings[field.name] for field in dataclasses.fields(cls)})

    def check(self, problem: NetworkProblem) -> None:
        """Raise ValueError for numbers out of range, and for priors whose optimum is a network of zeros."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "step_size":
                if value is not None:
                    as_number(type(self).__name__, "step_size", value)
            elif field.name != "batch_size" or value is not None:
                require_count(type(self).__name__, field.name, value, MOST_ITERATIONS, "a count")
        least, path = least_temperature(problem)
        if least > 0.0:
            raise ValueError(
                f"prior: under a horseshoe with one scale for all of {path} the optimum is an array of zeros; use "
                "prior='local-horseshoe', or inference='mcmc'."
            )

    def form(self, problem: NetworkProblem) -> Form:
        """Draws are networks as built by the problem."""
        return Form(problem.build(jax.random.key(0)), apply_network)

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
        """Train."""
        posterior, options = self._training(rng_key, problem, data)
        return train_ensemble(
            rng_key,
            posterior,
            problem.build,
            num_steps=self.num_warmup,
            num_members=self.num_chains,
            manifold=nn.geometry(problem.build(jax.random.key(0))),
            **options,
            **kept_in(folder),
            devices=devices,
            progress=progress,
        )

    def _training(
        self, rng_key: PRNGKey, problem: NetworkProblem, data: tuple[np.ndarray, np.ndarray]
    ) -> tuple[Posterior, dict[str, Any]]:
        num_data = len(data[0])
        posterior = Posterior(log_prior=problem.priors, log_likelihood=problem.log_likelihood(), num_data=num_data)
        size = max(1, min(_BATCH_SIZE, num_data // _LEAST_BATCHES)) if self.batch_size is None else self.batch_size
        size = min(size, num_data)
        posterior, marked, options = held_out_training(rng_key, posterior, data, -(-num_data // size), self.num_warmup)
        return posterior, {"batches": batches(marked, batch_size=size, order="epochs")} | options


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiSWAG(DeepEnsemble):
    """``inference="multi-swag"``: :func:`geodax.swag` around each of several networks.

    Attributes:
        step_size: Learning rate of the descent for the mean potential; None finds one.
        num_samples: Number of draws from the distribution around each network.
    """

    step_size: float | None = None
    num_samples: int = 100

    def check(self, problem: NetworkProblem) -> None:
        """Also raise ValueError for weights on manifolds."""
        if (problem.orthogonal or problem.rank is not None) and problem.widths:
            raise ValueError(
                "inference='swag' and 'multi-swag' support only free weights, but orthogonal=True and rank=... put "
                "them on Stiefel manifolds; use inference='ensemble' or 'mcmc'."
            )
        super().check(problem)

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
        """Train, follow the descent, and draw."""
        posterior, options = self._training(rng_key, problem, data)
        return swag(
            rng_key,
            posterior,
            problem.build,
            num_steps=self.num_warmup,
            num_samples=self.num_samples,
            num_networks=self._num_networks(),
            num_chains=self.num_chains,
            learning_rate=self.step_size,
            **options,
            **kept_in(folder),
            devices=devices,
            progress=progress,
        )

    def _num_networks(self) -> int:
        return self.num_chains


@dataclasses.dataclass(frozen=True, kw_only=True)
class SWAG(MultiSWAG):
    """``inference="swag"``: the same around one network, from which all chains draw."""

    def _num_networks(self) -> int:
        return 1


INFERENCES |= {"ensemble": DeepEnsemble, "swag": SWAG, "multi-swag": MultiSWAG}
