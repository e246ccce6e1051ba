"""The ReLU network in NumPyro has the density of the estimator, and NumPyro's algorithms run on it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoIAFNormal, AutoMultivariateNormal, AutoNormal
from numpyro.infer.util import log_density

from geodax.interop.numpyro import sample, unit_network
from geodax.models.unit_network import density
from geodax.models.unit_network.density import UnitNetworkForm, UnitNetworkPrior

pytestmark = pytest.mark.relaxed

PRIOR = UnitNetworkPrior(1.3, 1.7, 0.9, 0.8, 1.1)
SCALES = PRIOR._asdict()
H, D = 3, 2


def _rows(generator, number=9):
    x = generator.standard_normal((number, D))
    return x, np.maximum(0, x[:, 0] - x[:, 1]) + 0.2 * generator.standard_normal(number)


@pytest.mark.thorough
@pytest.mark.parametrize(("weights", "bias"), list(itertools.product(density.WEIGHTS, density.BIASES)))
def test_it_is_the_model_of_the_estimator(weights, bias):
    """Differences of log densities between two points; the volume element of log noise is the estimator's alone."""
    generator = np.random.default_rng(0)
    form = UnitNetworkForm(weights, bias)
    x, y = _rows(generator)
    ours = density.log_density(x, y, form, PRIOR)
    options = {"num_hidden": H, "weights": weights, "bias": bias, **SCALES}
    values = []
    for _ in range(2):
        units = generator.standard_normal((H, D + (bias == "joint")))
        if weights == "unit":
            units /= np.linalg.norm(units, axis=1, keepdims=True)
        noise = np.exp(0.3 * generator.standard_normal())
        position = {
            "units": jnp.asarray(units),
            "output": jnp.asarray(generator.standard_normal(H)),
            "intercept": jnp.asarray(generator.standard_normal()),
            "log_noise": jnp.asarray(np.log(noise)),
        }
        if bias == "separate":
            position["bias"] = jnp.asarray(generator.standard_normal(H))
        point = {name: value for name, value in position.items() if name != "log_noise"} | {"noise": noise}
        if weights == "unit":
            point["units"] = units[..., None]
        values.append([ours(position) - np.log(noise), log_density(unit_network, (x, y), options, point)[0]])
        if weights == "unit":
            apart = {f"units_{h}": units[h][:, None] for h in range(H)}
            apart |= {name: value for name, value in point.items() if name != "units"}
            centred = options | {"centers": np.eye(D + (bias == "joint"))[[0, 1, 0]]}
            np.testing.assert_allclose(log_density(unit_network, (x, y), centred, apart)[0], values[-1][1], rtol=1e-10)
    difference = np.diff(np.asarray(values), axis=0)[0]
    np.testing.assert_allclose(difference[0], difference[1], rtol=1e-8)


def test_predictions_and_errors():
    """Without targets the site is drawn; wrong arguments say so."""
    x, y = _rows(np.random.default_rng(1))
    drawn = Predictive(unit_network, num_samples=5)(jax.random.key(0), x, num_hidden=H)
    assert drawn["y"].shape == (5, len(x))
    assert drawn["weights"].shape == (5, H, D)
    for arguments, options, words in (
        ((x[:, 0], y), {}, "shape"),
        ((x[:, :1], y), {"bias": "separate"}, "only a sign"),
        ((x, y), {"centers": np.eye(2)}, "centers of shape"),
    ):
        with pytest.raises(ValueError, match=words), numpyro.handlers.seed(rng_seed=0):
            unit_network(*arguments, **options)


def _problem():
    """A unit that the data know well, so that nothing is copied by a permutation."""
    generator = np.random.default_rng(2)
    x = generator.standard_normal((150, D))
    y = 1.5 * np.maximum(0, 0.6 * x[:, 0] + 0.8 * x[:, 1] + 0.3) + 0.2 * generator.standard_normal(150)
    truth = {"units": np.array([[[0.6], [0.8]]]), "bias": np.array([0.3]), "output": np.array([1.5])}
    truth |= {"intercept": np.array(0.0), "noise": np.array(0.2)}
    return (x, y), {"num_hidden": 1, "bias": "separate"}, init_to_value(values=jax.tree.map(jnp.asarray, truth))


@pytest.mark.slow
def test_samplers_and_guides_agree():
    """NUTS in Givens angles, NUTS on the sphere, and three guides on a posterior close to normal."""
    data, options, start = _problem()
    run = MCMC(
        NUTS(unit_network, init_strategy=start),
        num_warmup=400,
        num_samples=1000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    run.run(jax.random.key(0), *data, **options)
    charted = run.get_samples()
    ours = sample(
        unit_network,
        model_args=data,
        model_kwargs=options,
        init_strategy=start,
        num_warmup=400,
        num_samples=1000,
        rng_key=1,
        progress=False,
    )["posterior"]
    names = ("units", "bias", "output", "intercept", "noise")
    exact = {name: np.asarray(charted[name]).reshape(4000, -1) for name in names}
    for name in names:
        other = ours[name].values.reshape(4000, -1)
        # both chains are worth a third of their draws and more
        error = exact[name].std(0) * np.sqrt(2 / 1300)
        assert np.abs((other.mean(0) - exact[name].mean(0)) / error).max() < 4
    for guide_type in (AutoNormal, AutoMultivariateNormal, AutoIAFNormal):
        guide = guide_type(unit_network, init_loc_fn=start)
        svi = SVI(unit_network, guide, optax.adam(optax.cosine_decay_schedule(0.01, 4000)), Trace_ELBO(num_particles=8))
        result = svi.run(jax.random.key(2), 4000, *data, progress_bar=False, **options)
        drawn = guide.sample_posterior(jax.random.key(3), result.params, sample_shape=(4000,))
        for name in names:
            values = np.asarray(drawn[name]).reshape(4000, -1)
            assert np.abs((values.mean(0) - exact[name].mean(0)) / exact[name].std(0)).max() < 0.4
            if guide_type is not AutoNormal:
                np.testing.assert_allclose(values.std(0), exact[name].std(0), rtol=0.25)
    assert abs(1.5 - exact["output"].mean()) < 4 * exact["output"].std()
