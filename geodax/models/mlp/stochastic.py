r"""Ensembles by stochastic-gradient MCMC, in two stages of warm-up.

The first three quarters of the warm-up train with Adam (:func:`geodax.run.training.train_first`), from a fresh
initialisation for each chain. A network with more weights than rows eventually interpolates the data, and its noise
vanishes; chains that start there, where the posterior is narrow, need steps too small to leave. Training therefore
holds out a tenth of the rows, and each chain continues from where their likelihood was highest; for minibatches, from
the highest mean over an epoch, because batches contain different held-out rows. Training of less than four epochs,
which hardly overfits, uses all rows to the end. The rest of the warm-up runs the sampler on all rows and adapts its
step size if none is given. Under a horseshoe with one scale per array, whose density has a pole where the array is
zero, training would end there; the sampler then uses the whole warm-up, as it does for a handful of rows.

Metrics that leave out their divergence, and with ``sghmc`` all metrics, adapt only during the warm-up
(:class:`geodax.metrics.Frozen`), so that the draws come from a constant metric. During training gradients vanish, and
so does a metric built from their squares; the noise of the first draws would then be unbounded. In equilibrium the mean
square of an entry of the potential's gradient is its mean curvature, to which the prior alone contributes
:math:`1 / \sigma^2`. Hence ``"rmsprop"`` has :math:`\epsilon = 1 / N`, the root of that for :math:`\sigma = 1` in the
metric's units, those of the mean potential.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, nn
from geodax._types import Array, PRNGKey, PyTree, SamplingAlgorithm, Scalar
from geodax._wording import argument, in_python
from geodax.data.minibatches import batches
from geodax.geometry.manifolds import AbstractManifold
from geodax.models.mlp.inference import INFERENCES, AbstractInference, Data, NetworkProblem, require_free_weights
from geodax.models.mlp.weights import whole_groups
from geodax.models.options import kept_in, require_numbers
from geodax.posterior import Posterior
from geodax.run.sample import sample
from geodax.run.training import train_first
from geodax.sgmcmc import metrics
from geodax.sgmcmc.sghmc import sghmc
from geodax.sgmcmc.sgrld import sgrld

METRICS: Mapping[str, Callable[[int], metrics.AbstractMetric]] = {  # as functions of the number of examples
    "identity": lambda num_data: metrics.Identity(),
    "rmsprop": lambda num_data: metrics.RMSProp(epsilon=1.0 / num_data),
    "wenzel": lambda num_data: metrics.Wenzel(),
    "monge": lambda num_data: metrics.Monge(normalize=1.0),
    "shampoo": lambda num_data: metrics.Shampoo(),
}
SAMPLERS = ("sghmc", "sgrld")
_BATCH_SIZE = 5000
_PASS, _INNER, _LARGEST = 8, 4, 1000  # batches of a pass, steps of an iteration and examples of a batch of networks
_TRAINED = 2  # batches of an iteration that training takes: nearly as good as all four, at half the cost
_MANY = 2000  # examples; fewer are all used in each step
_HELD_OUT = 0.1  # fraction of the examples held out from training
_LEAST_EPOCHS = 4  # of training with held-out examples
_TRAINING = 3 / 4  # of the warm-up: an optimiser reaches the posterior in fewer gradients than a sampler
_LEAST_TRAINED = 20  # examples; with fewer, chains converge without training


@dataclasses.dataclass(frozen=True, kw_only=True)
class StochasticGradientMCMC(AbstractInference):
    """``inference="mcmc"``: :func:`geodax.sghmc` or :func:`geodax.sgrld`.

    Attributes:
        sampler: ``"sghmc"``, for any network, or ``"sgrld"``, for free weights.
        metric: A name in ``METRICS``, or a metric of :mod:`geodax.metrics`.
        step_size: Step size; None finds one during warm-up.
        friction: Friction of ``sghmc``.
        temperature: Temperature of the posterior; 0 trains, and gives an ensemble of optima.
        batch_size: Number of examples per batch. None selects for ``"sghmc"`` an eighth of the examples, at most 1,000,
            and four steps an iteration, or all examples if there are fewer than 2,000; for ``"sgrld"`` 5,000. With
            fewer than two batches all examples are used.
        num_warmup: Iterations before the first draw.
        num_samples: Number of draws kept per chain.
        thinning: Iterations between draws.
        num_chains: Number of chains, run in parallel.
    """

    sampler: str = "sghmc"
    metric: Any = "identity"
    step_size: float | None = None
    friction: float = 0.1
    temperature: float = 1.0
    batch_size: int | None = None
    num_warmup: int = 2000
    num_samples: int = 100
    thinning: int = 20
    num_chains: int = 4

    @property
    def likelihood_power(self) -> float | None:
        """Power of the likelihood in the posterior of the draws; None for optima."""
        return 1.0 / self.temperature if self.temperature > 0.0 else None

    def check(self, problem: NetworkProblem) -> None:
        _checks.chosen("StochasticGradientMCMC", "sampler", self.sampler, tuple(SAMPLERS))
        if self.sampler == "sgrld":
            require_free_weights(problem, argument("sampler", "sgrld"), argument("sampler", "sghmc"))
        is_named = isinstance(self.metric, str) and self.metric in METRICS
        if not isinstance(self.metric, metrics.AbstractMetric) and not is_named:
            raise ValueError(
                f"{argument('metric')} must be one of {list(METRICS)}"
                f"{in_python(', or a metric such as gx.metrics.Monge(alpha2=1.0)')}, found "
                f"{_checks.described(self.metric)}."
            )
        self.check_numbers()
        kicked = [path for path, size, prior in _horseshoes(problem) if prior.has_kicks(size)]
        if self.temperature > 0.0 and kicked:
            raise ValueError(
                f"{argument('prior')}: the horseshoe of {kicked[0]} has a density with a pole at zero, which gives "
                "samplers without an acceptance test Cauchy tails at any step size; "
                + in_python(
                    "set a least scale, such as nn.Horseshoe(local=True, least_scale=0.1).",
                    f"use {argument('prior', 'local-horseshoe')}.",
                )
            )
        least, path = least_temperature(problem)
        if least > 0.0 and self.temperature <= least:
            raise ValueError(
                f"{argument('temperature', self.temperature)} leaves no proper posterior: the horseshoe with one "
                f"scale for all of {path} collapses the array to zero at temperatures up to {least:g}. Use "
                f"{argument('temperature', 1)}, or {argument('prior', 'local-horseshoe')}."
            )

    def check_numbers(self) -> None:
        """Raise TypeError or ValueError for a number out of range."""
        owner, counts = "StochasticGradientMCMC", ["batch_size", "num_samples", "thinning", "num_chains"]
        _checks.number(owner, "friction", self.friction, above=0.0)
        _checks.number(owner, "temperature", self.temperature, least=0.0)
        if self.num_warmup != 0 or self.step_size is None:
            counts.append("num_warmup")
        require_numbers(owner, self, *counts)

    def run(self, rng_key: PRNGKey, problem: NetworkProblem, data: Data, *, folder: Path | None, **how: Any) -> Any:
        posterior = Posterior(log_prior=problem.priors, log_likelihood=problem.log_likelihood(), num_data=len(data[0]))
        manifold = None if self.sampler == "sgrld" else nn.geometry(jax.eval_shape(problem.build, jax.random.key(0)))
        trains = least_temperature(problem)[0] == 0  # otherwise training would end at zero arrays
        settings, num_inner_steps = self, 1
        if self.batch_size is None and self.sampler == "sghmc" and len(data[0]) >= _MANY:
            size = min(len(data[0]) // _PASS, _LARGEST)
            settings, num_inner_steps = dataclasses.replace(self, batch_size=size), _INNER
        return sample_in_stages(
            rng_key,
            settings,
            posterior,
            data,
            problem.build,
            manifold=manifold,
            trains=trains,
            groups=problem.groups,
            num_inner_steps=num_inner_steps,
            folder=folder,
            **how,
        )


INFERENCES["mcmc"] = StochasticGradientMCMC


def sample_in_stages(
    rng_key: PRNGKey,
    settings: StochasticGradientMCMC,
    posterior: Posterior,
    data: PyTree,
    start: Callable[[PRNGKey], PyTree],
    *,
    manifold: AbstractManifold | None,
    folder: Path | None,
    trains: bool = True,
    groups: np.ndarray | None = None,
    num_inner_steps: int = 1,
    **how: Any,
) -> Any:
    """Train, if ``trains``, and sample, as the module docstring describes; return the result of :func:`geodax.sample`.

    ``start`` maps a key to the initial position of a chain, ``manifold`` and the number of inner steps are for
    ``sghmc``, and ``how`` are further arguments of :func:`geodax.sample`.
    """
    num_data = posterior.num_data
    # steps in place of one of the size that warm-up finds; as many of sghmc make up for their length
    has_few = num_data < _LEAST_TRAINED and settings.step_size is None
    shorter = -(-2 * _LEAST_TRAINED // num_data) if has_few else 1
    num_inner_steps *= shorter if settings.sampler == "sghmc" else 1
    num_training = int(_TRAINING * settings.num_warmup) if trains and num_data >= _LEAST_TRAINED else 0
    batch_size = _BATCH_SIZE if settings.batch_size is None else settings.batch_size
    batch_size = batch_size if num_data >= 2 * batch_size else num_data
    epoch = -(-num_data // (batch_size * min(num_inner_steps, _TRAINED)))  # in iterations of training
    training: dict[str, Any] = {}
    if num_training:
        posterior, data, training = held_out_training(rng_key, posterior, data, epoch, num_training, groups)
    options = {
        "metric": _metric(settings, num_data),
        "step_size": settings.step_size,
        "temperature": settings.temperature,
    }
    if settings.sampler == "sgrld":
        algorithm = sgrld(posterior, **options)
    else:
        options |= {"friction": settings.friction, "ordering": "baoab", "num_inner_steps": num_inner_steps}
        algorithm = sghmc(posterior, **options, manifold=manifold)
    if shorter > 1:
        algorithm = _shortened(algorithm, 1 / shorter)
    if num_training:
        if num_inner_steps > 1:
            functions = {"objective": posterior.logdensity} | training
            training |= {
                name: _of_some_batches(functions[name]) for name in ("objective", "score") if name in functions
            }
        algorithm = train_first(algorithm, num_training, **training)
    return sample(
        rng_key,
        algorithm,
        start,
        num_samples=settings.num_samples,
        num_warmup=settings.num_warmup,
        num_chains=settings.num_chains,
        thinning=settings.thinning,
        batches=batches(data, batch_size=batch_size, order="epochs"),
        **kept_in(folder),
        chain_method="sequential" if jax.default_backend() == "cpu" else "vectorized",
        **how,
    )


def _shortened(algorithm: SamplingAlgorithm, share: float) -> SamplingAlgorithm:
    """The sampler with a share of the step size that its warm-up finds.

    The curvature grows with the inverse square of the noise, which few examples leave uncertain by orders of magnitude.
    With steps for typical values a chain that comes to a small noise was thrown to one of exp(19) or to infinity.
    """

    def step(rng_key: PRNGKey, state: Any, *batch: PyTree) -> tuple[Any, Any]:
        found = state.tuned_step_size
        state, info = algorithm.step(rng_key, state._replace(tuned_step_size=share * found), *batch)
        return state._replace(tuned_step_size=found), info

    return algorithm._replace(step=step)


def _of_some_batches(function: Callable[[PyTree, PyTree], Scalar]) -> Callable[[PyTree, PyTree], Scalar]:
    """The function of some of an iteration's batches, as one."""

    def of_some(position: PyTree, batches: PyTree) -> Scalar:
        return function(position, jax.tree.map(lambda x: x[:_TRAINED].reshape(-1, *x.shape[2:]), batches))

    return of_some


def held_out_training(
    rng_key: PRNGKey, posterior: Posterior, data: PyTree, epoch: int, num_training: int, groups: np.ndarray | None
) -> tuple[Posterior, PyTree, dict[str, Any]]:
    """Hold examples out of training, unless it is too short to overfit; ``epoch`` is a pass through the data in steps.

    If examples are in groups they are whole ones: a network can know each group by its inputs.

    Returns the posterior of all examples, the data as it takes them, and the arguments ``objective``, ``score`` and
    ``score_every`` of :func:`geodax.train_first`, or none.
    """
    num_data = posterior.num_data
    if num_data < _LEAST_TRAINED or (epoch > 1 and num_training < _LEAST_EPOCHS * epoch):
        return posterior, data, {}
    held_out = _held_out(rng_key, num_data, groups)
    marked, training = _in_parts(posterior, float(held_out.mean()))
    return marked, (data, held_out), training | {"score_every": epoch}


def _held_out(rng_key: PRNGKey, num_data: int, groups: np.ndarray | None) -> np.ndarray:
    generator = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)))  # a draw of JAX would be compiled
    number = round(_HELD_OUT * num_data)
    if groups is not None:
        chosen = whole_groups(groups, number, generator)
        if 2 * chosen.sum() <= num_data:  # not of a few large groups
            return chosen
    return generator.permutation(num_data) < number


def _in_parts(posterior: Posterior, share: float) -> tuple[Posterior, dict[str, Any]]:
    """Posterior of examples, of which a share is marked as held out, and the functions maximised by training."""

    def log_likelihood(position: PyTree, batch: PyTree) -> Array:
        return posterior.log_likelihood(position, batch[0])

    def trained(position: PyTree, batch: PyTree) -> Array:
        each = log_likelihood(position, batch)
        return jnp.where(batch[1], jnp.zeros_like(each), each) / (1.0 - share)

    def score(position: PyTree, batch: PyTree) -> Scalar:
        each = log_likelihood(position, batch)
        return jnp.mean(jnp.where(batch[1], each, jnp.zeros_like(each)))

    def with_likelihood(function: Callable[[PyTree, PyTree], Array]) -> Posterior:
        return Posterior(log_prior=posterior.log_prior, log_likelihood=function, num_data=posterior.num_data)

    return with_likelihood(log_likelihood), {"objective": with_likelihood(trained).logdensity, "score": score}


def _horseshoes(problem: NetworkProblem) -> list[tuple[str, int, nn.Horseshoe | nn.HierarchicalHorseshoe]]:
    """Arrays with a horseshoe prior: path, number of entries, prior."""
    described: list[Any] = []
    # traced to get the shapes without computing a network
    jax.eval_shape(lambda key: described.extend(problem.priors.describe(problem.build(key))), jax.random.key(0))
    return [
        (path, math.prod(shape), prior)
        for path, shape, prior in described
        if isinstance(prior, nn.Horseshoe | nn.HierarchicalHorseshoe)
    ]


def least_temperature(problem: NetworkProblem) -> tuple[float, str]:
    """The highest temperature at which a horseshoe collapses an array to zero, and the path of that array."""
    return max(((prior.least_temperature(size), path) for path, size, prior in _horseshoes(problem)), default=(0.0, ""))


def _metric(settings: StochasticGradientMCMC, num_data: int) -> metrics.AbstractMetric | None:
    named = not isinstance(settings.metric, metrics.AbstractMetric)
    metric = METRICS[settings.metric](num_data) if named else settings.metric
    if isinstance(metric, metrics.Identity):
        return None
    if isinstance(metric, metrics.Frozen) or (settings.sampler == "sgrld" and metric.has_exact_drift):
        return metric
    if settings.num_warmup == 0:
        raise ValueError(
            f"{argument('metric')} adapts during warm-up, which needs {argument('num_warmup')} > 0; "
            f"or use {argument('metric', 'identity')}."
        )
    return metrics.Frozen(metric, after=settings.num_warmup)
