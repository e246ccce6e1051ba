"""The network models in NumPyro have the densities of the estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density

from geodax.interop.numpyro import eigenmodel, network_hmm
from geodax.models.eigenmodel import density as eigenmodel_density
from geodax.models.eigenmodel.density import EigenmodelPrior
from geodax.models.network import density as network_density
from geodax.models.network.counts import observations
from geodax.models.network.density import NetworkPrior

pytestmark = pytest.mark.relaxed


def _frames(generator, *shape):
    return np.linalg.qr(generator.standard_normal(shape))[0]


@pytest.mark.thorough
@pytest.mark.parametrize("link", eigenmodel_density.LINKS)
def test_eigenmodel_is_that_of_the_estimator(link):
    """Differences of log densities between two points, with a missing pair."""
    generator = np.random.default_rng(0)
    matrix = np.triu(generator.integers(0, 2, (6, 6)), 1).astype(float)
    matrix = matrix + matrix.T
    matrix[0, 4] = matrix[4, 0] = np.nan
    ours = eigenmodel_density.log_density(eigenmodel_density.pairs(matrix), link, EigenmodelPrior(0.8, 3.0))
    options = {"rank": 2, "link": link, "eigenvalue_scale": 0.8, "intercept_scale": 3.0}
    values = []
    for _ in range(2):
        point = {
            "vectors": jnp.asarray(_frames(generator, 6, 2)),
            "eigenvalues": jnp.asarray(3 * generator.standard_normal(2)),
            "intercept": jnp.asarray(generator.standard_normal()),
        }
        values.append([ours(point), log_density(eigenmodel, (matrix,), options, point)[0]])
    difference = np.diff(np.asarray(values), axis=0)[0]
    np.testing.assert_allclose(difference[0], difference[1], rtol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize(("likelihood", "intercept"), [("poisson", False), ("negative-binomial", True)])
def test_network_hmm_is_that_of_the_estimator(likelihood, intercept):
    """Differences of log densities; the volume element of the log ratios is the estimator's alone."""
    generator = np.random.default_rng(1)
    counts = np.triu(generator.poisson(2.0, (7, 4, 4))).astype(float)
    counts = counts + np.swapaxes(np.triu(counts, 1), 1, 2)
    counts[2, 0, 1] = counts[2, 1, 0] = np.nan
    prior = NetworkPrior(1.5, 0.8 if intercept else None, 2.0, 0.7)
    ours = network_density.log_density(observations(counts, likelihood=likelihood), prior)
    options = {"num_states": 3, "rank": 2, "likelihood": likelihood, "intercept": intercept, "eigenvalue_scale": 1.5}
    options |= {"intercept_scale": 0.8, "transition_concentration": 2.0, "dispersion_scale": 0.7}
    values = []
    for _ in range(2):
        position = {
            "vectors": tuple(jnp.asarray(_frames(generator, 3, 4, 2))),
            "eigenvalues": jnp.asarray(2 * generator.standard_normal((3, 2))),
            "log_ratios": jnp.asarray(generator.standard_normal((3, 2))),
        }
        extra = {name: jnp.asarray(generator.standard_normal(3)) for name in ("intercept", "log_dispersion")}
        kept = ("intercept",) * intercept + ("log_dispersion",) * (likelihood != "poisson")
        position |= {name: extra[name] for name in kept}
        theta = network_density.parameters(position)
        point = {"vectors": theta.vectors, "eigenvalues": theta.eigenvalues, "transition": theta.transition}
        point |= {name: extra[name] for name in kept}
        volume = jnp.sum(jnp.log(theta.transition))
        values.append([ours(position) - volume, log_density(network_hmm, (counts,), options, point)[0]])
    difference = np.diff(np.asarray(values), axis=0)[0]
    np.testing.assert_allclose(difference[0], difference[1], rtol=1e-8)


def test_errors():
    with pytest.raises(ValueError, match="square"):
        jax.eval_shape(lambda: eigenmodel(np.zeros((2, 3))))
    with pytest.raises(ValueError, match="windows, classes, classes"):
        network_hmm(np.zeros((2, 3)))


@pytest.mark.slow
def test_runs_with_the_samplers_of_geodax():
    """The matrices are sampled on the manifold: residuals at rounding, no chart."""
    from geodax.interop.numpyro import sample

    generator = np.random.default_rng(2)
    counts = np.triu(generator.poisson(3.0, (6, 3, 3))).astype(float)
    counts = counts + np.swapaxes(np.triu(counts, 1), 1, 2)
    tree = sample(
        network_hmm,
        model_args=(counts,),
        model_kwargs={"num_states": 2, "rank": 1, "eigenvalue_scale": 1.0},
        num_warmup=50,
        num_samples=30,
        num_chains=2,
        progress=False,
    )
    vectors = tree["posterior"]["vectors"].values
    assert vectors.shape == (2, 30, 2, 3, 1)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), 1.0, atol=1e-10)
