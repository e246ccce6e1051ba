"""What the experiments with networks share: the posteriors of one network, the paper's optimiser, test scores on the way.

Settings of section D.1 of the supplement: batches of 64, one draw a step, Adam with the learning rate
0.001 (1 + 0.0005 t)^-0.3, 64 draws at test time.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from experiments.common.experiment import Figures
from geodax.predict.predictive import classes_from_logits, numbers_from_means
from geodax.predict.scores import accuracy, ece, log_probability, mnll, rmse
from geodax.sgmcmc.schedules import polynomial

METHODS = ("WHVI", "mean-field", "MC dropout", "VOGN")
NATURAL = {"VOGN": gx.vi.vogn, "noisy K-FAC": gx.vi.noisy_kfac}
KINDS = {"WHVI": "whvi", "mean-field": "mean-field", "MC dropout": "mc-dropout"}


def start(method: str, data: gx.data.Supervised, widths: tuple[int, ...], key, *, dropout_rate: float = 0.005) -> Any:
    """The network with its posterior to begin with; without one for the natural gradient.

    Regression networks come with a noise to begin with of 0.3 standard deviations.
    """
    key_network, key_layers = jax.random.split(key)
    outputs = data.num_classes or "scalar"
    network: Any = gx.nn.MLP(data.train[0].shape[1], outputs, widths=widths, key=key_network)
    if method in KINDS:
        options: dict[str, Any] = {"rate": dropout_rate} if method == "MC dropout" else {}
        network = gx.nn.variational(network, KINDS[method], key=key_layers, **options)
    return network if data.num_classes else gx.nn.WithNoise(network, float(np.log(0.3)))


def likelihood_of(data: gx.data.Supervised) -> Any:
    """That of the targets."""
    return gx.nn.CategoricalLikelihood() if data.num_classes else gx.nn.GaussianLikelihood()


def rate(first: float = 1e-3):
    """The paper's schedule."""
    return polynomial(first, offset=2000.0, power=0.3)


def natural(method: str, network: Any, data: gx.data.Supervised, first: float, **options: Any) -> Any:
    """A natural-gradient method with the paper's schedule from a rate of its own."""
    return NATURAL[method](network, likelihood_of(data), rate(first), num_data=len(data.train[0]), **options)


def fit_and_test(
    key_fit,
    key_test,
    network: Any,
    data: gx.data.Supervised,
    *,
    num_steps: int,
    batch_size: int,
    num_draws: int,
    **options: Any,
) -> Figures:
    """Test scores of a network that is fitted, its bound an example, its divergence, and the seconds of the fit.

    The options are those of :func:`geodax.vi.fit`.
    """
    likelihood, size = likelihood_of(data), len(data.train[0])
    fit = gx.vi.fit(
        key_fit,
        network,
        likelihood,
        data.train,
        num_steps=num_steps,
        batch_size=min(batch_size, size),
        progress=False,
        **options,
    )
    scores = tested(key_test, fit.network, data, num_draws)
    return scores | {
        "bound": fit.history.elbo[-1] / size,
        "kl": fit.history.kl[-1],
        "fit_seconds": fit.seconds,
    }


def tested(key, network: Any, data: gx.data.Supervised, num_draws: int) -> Figures:
    """Test scores: error and MNLL in the units of the data."""
    x, y = data.test
    outputs = np.asarray(_outputs(key, network, jnp.asarray(x), num_draws))
    if data.num_classes:
        found = classes_from_logits([outputs])
        return {
            "error": 1.0 - accuracy(found.probabilities, y),
            "mnll": -log_probability(found.probabilities, y),
            "ece": ece(found.probabilities, y),
        }
    whole = isinstance(network, gx.vi.GaussianOver | gx.vi.KroneckerOver)
    log_noise = float((network.mean if whole else network).log_noise)
    found = numbers_from_means([(outputs, np.full(outputs.shape, np.exp(log_noise)))], targets=y)
    scale = data.standardisation.target_scale
    return {"error": scale * rmse(found.mean, y), "mnll": mnll(found.log_density) + np.log(scale)}


@jax.jit
def _drawn(keys, network, x):
    return jax.lax.map(lambda key: gx.vi.predict(key, network, x, num_samples=1)[0], keys)


def _outputs(key, network: Any, x: Any, num_draws: int) -> Any:
    return _drawn(jax.random.split(key, num_draws), network, x)
