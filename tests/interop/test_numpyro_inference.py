"""NumPyro's samplers and guides on models with orthonormal matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro import distributions as dist
from numpyro.handlers import reparam
from numpyro.infer import (
    MCMC,
    NUTS,
    SVI,
    Predictive,
    Trace_ELBO,
    init_to_mean,
    init_to_median,
    init_to_sample,
    init_to_uniform,
    log_likelihood,
)
from numpyro.infer.autoguide import AutoBNAFNormal, AutoIAFNormal, AutoMultivariateNormal, AutoNormal
from numpyro.infer.reparam import TransformReparam
from numpyro.infer.util import initialize_model

import geodax as gx
from geodax.interop import numpyro as gxn
from tests.interop.test_numpyro_sites import CHARTS, REPARAMS, F, langevin_truth
from tests.marks import slow
from tests.suites.chains import assert_agree

pytestmark = pytest.mark.relaxed

NUM_CHAINS = 64
CONCENTRATED = 10 * jnp.array([[2.0, 0.3], [-0.4, 1.2], [0.8, 0.5]])
MODE = gx.Stiefel().nearest(CONCENTRATED)


def langevin(f=F, chart=None):
    def model():
        numpyro.sample("w", gxn.MatrixLangevin(f, chart=chart))

    return model


def numpyro_draws(model, key, *args, num_warmup=300, num_samples=300, **options):
    sampler = MCMC(
        NUTS(model, **options),
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    sampler.run(key, *args)
    return sampler.get_samples(group_by_chain=True)


def assert_langevin(draws):
    """Means and mean squares of the entries over independent chains."""
    entries = np.asarray(draws).reshape(*draws.shape[:2], -1)
    truth = langevin_truth()
    means = np.concatenate([entries.mean(1), (entries**2).mean(1)], axis=1)
    assert_agree(means, truth.mean, spread=truth.spread, max_bias=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_nuts_in_charts(chart, key):
    assert_langevin(numpyro_draws(langevin(chart=chart), key)["w"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", REPARAMS)
def test_nuts_in_redundant_coordinates(kind, key):
    model = reparam(langevin(), config={"w": REPARAMS[kind]})
    assert_langevin(numpyro_draws(model, key)["w"])


@pytest.mark.slow
def test_nuts_on_angles_and_on_the_matrix_agree(key):
    """A prior on angles, sampled as a matrix in a chart and as angles."""

    def model():
        w = numpyro.sample("w", gxn.GivensAngles.normal(3, 2, jnp.array([0.5, 0.3, -0.4]), 0.4))
        numpyro.factor("data", 2 * w[1, 0] - w[2, 1])

    key_matrix, key_angles = jax.random.split(key)
    means = []
    for k, m in ((key_matrix, model), (key_angles, reparam(model, config={"w": TransformReparam()}))):
        draws = np.asarray(numpyro_draws(m, k)["w"])
        entries = draws.reshape(*draws.shape[:2], -1)
        means.append(np.concatenate([entries.mean(1), (entries**2).mean(1)], axis=1))
    error = means[1].std(0, ddof=1) / np.sqrt(NUM_CHAINS)
    assert_agree(means[0], means[1].mean(0), truth_error=error)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "strategy",
    [
        init_to_uniform,
        init_to_mean,
        slow(init_to_median),
        slow(init_to_sample),
    ],
)
def test_starting_points(strategy, key):
    def model():
        with numpyro.plate("groups", 3):
            numpyro.sample("w", gxn.MatrixLangevin(F))
        numpyro.sample("v", gxn.StiefelUniform(4, 1).expand([2]).to_event(1))

    found = initialize_model(key, model, init_strategy=strategy)
    assert {name: z.shape for name, z in found.param_info.z.items()} == {"w": (3, 3), "v": (2, 3)}
    values = found.postprocess_fn(found.param_info.z)
    assert bool(jnp.all(gxn.stiefel(3, 2)(values["w"])))
    assert values["v"].shape == (2, 4, 1)
    assert bool(jnp.all(jnp.isfinite(found.param_info.z_grad["w"])))


GUIDES = {
    "normal": AutoNormal,
    "multivariate": AutoMultivariateNormal,
    "iaf": AutoIAFNormal,
    "bnaf": AutoBNAFNormal,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_variational_inference(name, key):
    """Means and spreads of a concentrated law, whose log evidence is 0; the learning rate decays to let the end settle."""
    model = langevin(CONCENTRATED, gx.transforms.Givens(3, 2, center=MODE))
    guide = GUIDES[name](model)
    svi = SVI(model, guide, optax.adam(optax.cosine_decay_schedule(0.01, 2000)), Trace_ELBO(num_particles=16))
    key_run, key_draws, key_truth = jax.random.split(key, 3)
    result = svi.run(key_run, 2000, progress_bar=False)
    assert bool(jnp.all(jnp.isfinite(result.losses)))
    draws = guide.sample_posterior(key_draws, result.params, sample_shape=(4000,))["w"]
    assert bool(jnp.all(gxn.stiefel(3, 2)(draws)))
    exact = gx.distributions.MatrixLangevin(CONCENTRATED).sample(key_truth, (4000,))
    # the normalised density makes the evidence lower bound that of log 1
    assert -0.02 < float(jnp.mean(result.losses[-200:])) < 0.1
    np.testing.assert_allclose(draws.mean(0), exact.mean(0), atol=0.02)
    np.testing.assert_allclose(draws.std(0), exact.std(0), rtol=0.25, atol=0.01)


def rows(y=None):
    w = numpyro.sample("w", gxn.StiefelUniform(3, 1))
    with numpyro.plate("rows", 5):
        numpyro.sample("y", dist.Normal(w[:, 0], 0.5).to_event(1), obs=y)


@pytest.mark.thorough
def test_predictions_and_log_likelihoods(key):
    draws = Predictive(rows, num_samples=20)(key)
    assert draws["w"].shape == (20, 3, 1)
    assert draws["y"].shape == (20, 5, 3)
    posterior = {"w": draws["w"]}
    again = Predictive(rows, posterior_samples=posterior)(key)
    assert again["y"].shape == (20, 5, 3)
    y = draws["y"][0]
    found = log_likelihood(rows, posterior, y)["y"]
    expected = dist.Normal(draws["w"][:, None, :, 0], 0.5).log_prob(y).sum(-1)
    np.testing.assert_allclose(found, expected)


@pytest.mark.thorough
def test_transform_reparam_of_a_law_in_coordinates(key):
    """A distribution made in unconstrained space: the transform stands in a TransformedDistribution."""
    base = dist.Normal(0.0, 1.0).expand([3]).to_event(1)
    fn = dist.TransformedDistribution(base, gxn.StiefelTransform(CHARTS["cayley"]))
    assert (fn.batch_shape, fn.event_shape) == ((), (3, 2))

    def model():
        with numpyro.plate("groups", 2):
            numpyro.sample("w", fn)

    draws = Predictive(reparam(model, config={"w": TransformReparam()}), num_samples=7)(key)
    assert draws["w_base"].shape == (7, 2, 3)
    np.testing.assert_allclose(draws["w"], fn.transforms[0](draws["w_base"]))
    z = draws["w_base"]
    expected = base.log_prob(z) - jax.vmap(jax.vmap(CHARTS["cayley"].log_volume))(z)
    np.testing.assert_allclose(fn.log_prob(draws["w"]), expected, rtol=1e-9)
