r"""Ensembles drawn from variational posteriors, one fitted independently for each chain.

Adam maximises the bound for ``num_warmup`` steps. During the first quarter the weight of the divergence rises to 1 and
the noise of regressions is held fixed; the learning rate decreases as :math:`\ell (1 + 10 t / T)^{-1/2}`. Then
independent networks with ordinary weights are drawn, so all later steps are the same as for draws of a Markov chain.
Chains are independent fits: R-hat compares the optima found by the fits, not parts of a Markov chain.

IVON and noisy K-FAC (:class:`NaturalGradient`) fit a posterior over an ordinary network by natural-gradient steps with
the same schedule instead; the noise is held fixed during their first tenth. On few examples the bound can be largest
where the posterior is the prior and the noise explains everything. A posterior moves there within some thousands of
steps, so more of them can predict worse; a warning names it.

Priors are normal, given by the problem's rules. The noise of regressions is set to its mode under the prior; the
posterior of Walsh-Hadamard layers does not depend on the prior variance, and their biases are optimised without a
prior, as in the paper.

Source:
    Rossi, Marmin and Filippone (2020), Walsh-Hadamard variational inference for Bayesian deep learning. NeurIPS.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, nn
from geodax._types import Position, PRNGKey, Scalar, Schedule
from geodax._wording import argument, renamed
from geodax.models.mlp.inference import (
    INFERENCES,
    AbstractInference,
    Data,
    NetworkProblem,
    built_without_scales,
    independent_draws,
    require_free_weights,
)
from geodax.models.options import kept_in, require_numbers
from geodax.run.fit import fit
from geodax.run.sample import sample
from geodax.run.sharding import device_list, most_that_divide
from geodax.sgmcmc.schedules import polynomial
from geodax.vi.ivon import ivon
from geodax.vi.kronecker import KroneckerOver
from geodax.vi.noisy_kfac import noisy_kfac
from geodax.vi.positions import GaussianOver

_OWNER = "VariationalInference"
_LEARNING_RATE = 0.01
_NATURAL_RATES = {"ivon": 0.1, "noisy-kfac": 0.03}
# an average over 1,000 steps, not 100, postpones the collapse to the prior on few examples
_NATURAL = {"ivon": ivon, "noisy-kfac": functools.partial(noisy_kfac, beta2=0.999)}
_MOST_ROWS = 1000
_BATCH_SIZE = 1000
_ALL_NOISE = 0.95


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariationalInference(AbstractInference):
    """``inference="whvi"``, ``"mean-field"`` and ``"mc-dropout"``: :func:`geodax.vi.fit`, then independent draws.

    Attributes:
        kind: Kind of the layers, as for :func:`geodax.nn.variational`.
        step_size: Initial learning rate of Adam; None selects 0.01.
        batch_size: Number of examples per batch; None selects 1,000.
        num_warmup: Number of steps of each fit.
        num_samples: Number of networks drawn from each fit.
        num_chains: Number of fits, run one after the other.
        layer_options: Further options of every layer: ``rate``, ``covariance``, ``num_flows``, ``scales``.
    """

    kind: str = "whvi"
    step_size: float | None = None
    batch_size: int | None = None
    num_warmup: int = 2000
    num_samples: int = 100
    num_chains: int = 4
    layer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def likelihood_power(self) -> float:
        return 1.0

    def check(self, problem: NetworkProblem) -> None:
        require_free_weights(problem, argument("inference", self.kind), argument("inference", "mcmc"))
        require_numbers(_OWNER, self, "batch_size", "num_samples", "num_chains", "num_warmup")
        jax.eval_shape(lambda key: self.start(problem, key), jax.random.key(0))

    def _built(self, problem: NetworkProblem, key: PRNGKey) -> Any:
        return built_without_scales(problem, key, argument("inference", self.kind), argument("inference", "mcmc"))

    def start(self, problem: NetworkProblem, key: PRNGKey) -> Position:
        """Create the network with the initial posterior of a fit."""
        key_network, key_layers = jax.random.split(key)
        network = self._built(problem, key_network)
        inner = network.network if isinstance(network, nn.WithNoise) else network
        priors = _without_noise(problem.priors) if isinstance(network, nn.WithNoise) else problem.priors
        layers = nn.variational(inner, self.kind, key=key_layers, priors=priors, **self.layer_options)
        return nn.WithNoise(layers, network.log_noise) if isinstance(network, nn.WithNoise) else layers

    def method(self, problem: NetworkProblem, start: Any, likelihood: Any, num_data: int) -> dict[str, Any]:
        """Return the arguments of :func:`geodax.vi.fit` that say how a network is fitted."""
        has_noise = isinstance(start, nn.WithNoise)
        return {
            "learning_rate": self.schedule(),
            "kl_warmup": self.num_warmup // 4,
            "held": {"log_noise": self.num_warmup // 4} if has_noise else None,
            "log_prior": _NoisePrior(problem.priors) if has_noise else None,
        }

    def schedule(self, rate: float | None = None) -> Schedule:
        """Return a decreasing learning rate, that of the settings by default."""
        own = _LEARNING_RATE if self.step_size is None else self.step_size
        return polynomial(own if rate is None else rate, offset=self.num_warmup / 10, power=0.5)

    def run(self, rng_key: PRNGKey, problem: NetworkProblem, data: Data, *, folder: Path | None, **how: Any) -> Any:
        key_fits, key_draws = jax.random.split(rng_key)
        likelihood, num_data = problem.log_likelihood(as_bound=True), len(data[0])
        kept = kept_in(folder)
        batch_size = _BATCH_SIZE if self.batch_size is None else self.batch_size
        begin = jax.jit(lambda key: self.start(problem, key))
        all_devices = None if how["devices"] is None else device_list(_OWNER, how["devices"])
        some_devices = None if all_devices is None else most_that_divide(_OWNER, self.num_chains, all_devices)
        where: dict[str, Any] = how | {"devices": some_devices}
        fits = []
        for number in range(self.num_chains):
            key_start, key_fit = jax.random.split(jax.random.fold_in(key_fits, number))
            start: Any = begin(key_start)
            with renamed({"learning rate": "step_size"}):
                found = fit(
                    key_fit,
                    start,
                    likelihood,
                    data,
                    num_steps=self.num_warmup,
                    batch_size=batch_size if batch_size < num_data else None,
                    **self.method(problem, start, likelihood, num_data),
                    checkpoint=None if folder is None else folder / "checkpoint" / f"fit-{number}",
                    devices=all_devices,
                    progress=how["progress"],
                )
            fits.append(found.network)
        _warn_if_all_is_noise(fits)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *fits)
        return sample(
            key_draws,
            independent_draws(_draw_of(problem, likelihood, data)),
            stacked,
            num_samples=self.num_samples,
            num_chains=self.num_chains,
            num_warmup=0,
            stacked=True,
            **kept,
            **where,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeanField(VariationalInference):
    """``inference="mean-field"``: independent normal weights."""

    kind: str = "mean-field"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MCDropout(VariationalInference):
    """``inference="mc-dropout"``: inputs of layers are dropped at random."""

    kind: str = "mc-dropout"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NaturalGradient(VariationalInference):
    """``inference="ivon"`` and ``"noisy-kfac"``: natural-gradient steps, of which a learning rate of 1 is Newton's.

    Attributes:
        kind: ``"ivon"``, :func:`geodax.vi.ivon`, or ``"noisy-kfac"``, :func:`geodax.vi.noisy_kfac`.
        step_size: Initial learning rate; None selects 0.1 for IVON and 0.03 for noisy K-FAC. Adam has 0.01 for the
            noise of regressions.
    """

    kind: str = "ivon"

    def start(self, problem: NetworkProblem, key: PRNGKey) -> Position:
        return self._built(problem, key)

    def check(self, problem: NetworkProblem) -> None:
        _checks.chosen("NaturalGradient", "kind", self.kind, tuple(_NATURAL))
        super().check(problem)
        self.method(problem, problem.build(jax.random.key(0)), problem.log_likelihood(as_bound=True), 1)
        if self.kind == "noisy-kfac" and problem.num_incomplete:
            raise ValueError(
                f"{argument('inference', 'noisy-kfac')} needs one input for each row, and cells are missing; use "
                f"{argument('inference', 'ivon')}."
            )

    def method(self, problem: NetworkProblem, start: Any, likelihood: Any, num_data: int) -> dict[str, Any]:
        has_noise = isinstance(start, nn.WithNoise)
        algorithm = _NATURAL[self.kind](
            start,
            likelihood,
            self.schedule(_NATURAL_RATES[self.kind] if self.step_size is None else self.step_size),
            num_data=num_data,
            priors=problem.priors,
            point_rate=_held(self.schedule(_LEARNING_RATE), self.num_warmup // 10),
            log_prior=_NoisePrior(problem.priors) if has_noise else None,
        )
        return {"algorithm": algorithm}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyKFAC(NaturalGradient):
    """``inference="noisy-kfac"``."""

    kind: str = "noisy-kfac"


INFERENCES |= {
    "whvi": VariationalInference,
    "mean-field": MeanField,
    "mc-dropout": MCDropout,
    "ivon": NaturalGradient,
    "noisy-kfac": NoisyKFAC,
}


def _draw_of(problem: NetworkProblem, log_likelihood: Any, data: tuple[np.ndarray, ...]) -> Callable[..., Any]:
    """Return the draw of an ordinary network from a variational one; its density uses at most 1,000 rows."""
    num_data = len(data[0])
    rows = np.linspace(0, num_data - 1, min(num_data, _MOST_ROWS)).astype(int)
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[rows]), data)
    like: Any = problem.build(jax.random.key(0))

    def draw(fitted: Any, key: PRNGKey | None) -> tuple[Position, Scalar]:
        if isinstance(fitted, GaussianOver | KroneckerOver):
            drawn: Any = fitted.mean if key is None else fitted.sample(key)
        elif isinstance(like, nn.WithNoise):
            drawn = nn.WithNoise(nn.realize(fitted.network, like.network, key), fitted.log_noise)
        else:
            drawn = nn.realize(fitted, like, key)
        return drawn, problem.priors(drawn) + num_data * jnp.mean(log_likelihood(drawn, batch))

    return draw


def _held(schedule: Schedule, num_steps: int) -> Schedule:
    return lambda iteration: jnp.where(iteration < num_steps, 0.0, schedule(iteration))


def _warn_if_all_is_noise(fits: list[Any]) -> None:
    """Warn of fits whose noise is nearly the spread of the targets, which is 1."""
    networks = [found.mean if isinstance(found, GaussianOver | KroneckerOver) else found for found in fits]
    noises = [float(jnp.exp(jnp.min(node.log_noise))) for node in networks if isinstance(node, nn.WithNoise)]
    if noises and min(noises) > _ALL_NOISE:
        _checks.warn(
            f"The fitted noise is {min(noises):.2f} standard deviations of the targets, so the networks predict hardly "
            "better than their mean. Either the inputs say little about the targets, or the posterior has collapsed to "
            "the prior, as variational posteriors do on few rows; compare with "
            f"{argument('inference', 'mcmc')} or with fewer {argument('num_warmup')} steps."
        )


class _NoisePrior(eqx.Module):
    """The log prior density of the noise alone."""

    priors: nn.Priors

    def __call__(self, network: Any) -> Scalar:
        return self.priors({"log_noise": network.log_noise})


def _without_noise(priors: nn.Priors) -> nn.Priors:
    return nn.Priors([rule for rule in priors.rules if rule[0] != "*log_noise"])
