"""The eigenmodel of networks: density, invariances, estimator."""

from copy import deepcopy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.stats import chi2, norm
from sklearn.exceptions import NotFittedError

from geodax.diagnostics.findings import rhat
from geodax.models import Eigenmodel
from geodax.models.eigenmodel import density
from geodax.models.eigenmodel.density import EigenmodelParameters, EigenmodelPrior

N, RANK = 20, 2


def _parameters(generator, eigenvalues=(9.0, -7.0), intercept=-0.4):
    vectors, _ = np.linalg.qr(generator.standard_normal((N, len(eigenvalues))))
    return EigenmodelParameters(vectors, np.asarray(eigenvalues), np.asarray(intercept))


@pytest.fixture(scope="module")
def truth() -> EigenmodelParameters:
    return _parameters(np.random.default_rng(0))


@pytest.fixture(scope="module")
def network(truth) -> np.ndarray:
    with jax.enable_x64(True):
        drawn = density.draw_network(jax.random.key(1), jax.tree.map(jnp.asarray, truth), "probit")
    matrix = np.asarray(drawn, dtype=float).copy()
    matrix[0, 1] = matrix[1, 0] = matrix[5, 9] = matrix[9, 5] = np.nan
    return matrix


@pytest.fixture(scope="module")
def fitted(network) -> Eigenmodel:
    return Eigenmodel(RANK, num_warmup=300, num_samples=300, num_chains=4, random_state=0).fit(network)


@pytest.mark.thorough
def test_a_link_that_is_set_after_the_fit_is_for_the_next_one(fitted, network):
    later = deepcopy(fitted).set_params(link="log")
    np.testing.assert_array_equal(later.predict(), fitted.predict())
    np.testing.assert_array_equal(later.sample_networks(), fitted.sample_networks())
    assert later.score(network) == fitted.score(network)


@pytest.mark.parametrize("link", density.LINKS)
def test_probabilities_of_a_pair_add_up_to_one(link):
    """A wrong sign or a lost constant breaks the sum; the mean is the expected value."""
    eta = np.array([-9.0, -0.3, 2.0])
    values = np.arange(2.0 if link != "log" else 60.0)
    logs = density.pair_log_likelihood(jnp.asarray(eta)[:, None], jnp.asarray(values)[None, :], link)
    weights = np.exp(np.asarray(logs))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(weights @ values, density.expected(jnp.asarray(eta), link), rtol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("link", density.LINKS)
def test_density_by_hand_and_its_invariances(link):
    """Signs, order of columns and names of nodes do not matter; missing pairs and the diagonal are left out."""
    generator = np.random.default_rng(2)
    theta = _parameters(generator)
    matrix = generator.integers(0, 2, (N, N)).astype(float)
    matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
    matrix[3, 7] = matrix[7, 3] = np.nan
    prior = EigenmodelPrior(1.5, 4.0)
    found = jax.jit(density.log_density(density.pairs(matrix), link, prior))
    position = jax.tree.map(jnp.asarray, theta._asdict())
    single = jax.jit(lambda eta: density.expected(eta, link))
    eta = theta.intercept + theta.vectors @ np.diag(theta.eigenvalues) @ theta.vectors.T
    expected = np.sum(norm.logpdf(theta.eigenvalues, 0, 1.5 * np.sqrt(N)) - norm.logpdf(0, 0, 1.5 * np.sqrt(N)))
    expected += norm.logpdf(theta.intercept, 0, 4.0) - norm.logpdf(0, 0, 4.0)
    means = np.asarray(single(eta))
    for i in range(N):
        for j in range(i + 1, N):
            if (i, j) != (3, 7):
                mean = means[i, j]
                y = matrix[i, j]
                expected += y * np.log(mean) - mean if link == "log" else np.log(mean if y else 1 - mean)
    np.testing.assert_allclose(found(position), expected, rtol=1e-10)
    flipped = position | {"vectors": position["vectors"] * jnp.asarray([[1.0, -1.0]])}
    swapped = position | {"vectors": position["vectors"][:, ::-1], "eigenvalues": position["eigenvalues"][::-1]}
    order = generator.permutation(N)
    renamed = jax.jit(density.log_density(density.pairs(matrix[np.ix_(order, order)]), link, prior))
    for value in (
        found(flipped),
        found(swapped),
        renamed(position | {"vectors": position["vectors"][order]}),
        jax.jit(density.log_density(density.pairs(matrix + 7 * np.eye(N)), link, prior))(position),
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-10)


def test_density_keeps_single_precision(network, truth):
    """No constant promotes the log density of a float32 position."""
    position = {name: jnp.asarray(value, jnp.float32) for name, value in truth._asdict().items()}
    function = density.log_density(density.pairs(network), "probit", EigenmodelPrior())
    value, gradient = jax.jit(jax.value_and_grad(function))(position)
    assert value.dtype == jnp.float32
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradient))


def _predictors(fitted: Eigenmodel) -> np.ndarray:
    """Draws of what is identified, the linear predictor of each pair (chain, draw, pair)."""
    group = fitted.posterior_["posterior"]
    u, values, c = (group[name].values for name in EigenmodelParameters._fields)
    eta = np.einsum("cdip,cdp,cdjp->cdij", u, values, u) + c[..., None, None]
    return eta[..., *np.triu_indices(N, 1)]


@pytest.mark.thorough
def test_chains_agree(fitted):
    group = fitted.posterior_["posterior"]
    assert np.all(np.diff(group["eigenvalues"].values, axis=-1) <= 0)
    assert int(fitted.posterior_["sample_stats"]["diverging"].sum()) == 0
    assert rhat(_predictors(fitted)).max() < 1.1
    np.testing.assert_allclose(fitted.vectors_.T @ fitted.vectors_, np.eye(RANK), atol=1e-12)


@pytest.mark.slow
def test_posterior_is_calibrated():
    """Over networks whose parameters are drawn from the prior, the truth's place among the draws is uniform.

    As normal scores: their sum is normal and the sum of their squares chi-square, unless the posterior is shifted, too
    narrow or too wide. For a single network the share of predictors within their intervals may be anything.
    """
    generator = np.random.default_rng(0)
    scores = []
    for seed in range(12):
        eigenvalues = np.sort(np.sqrt(N) * generator.standard_normal(RANK))[::-1]
        theta = _parameters(generator, eigenvalues, generator.standard_normal())
        drawn = density.draw_network(jax.random.key(seed), jax.tree.map(jnp.asarray, theta), "probit")
        fitted = Eigenmodel(RANK, intercept_scale=1.0, num_warmup=300, num_samples=300, random_state=seed)
        group = fitted.fit(np.array(drawn)).posterior_["posterior"]
        eta = theta.intercept + theta.vectors @ np.diag(theta.eigenvalues) @ theta.vectors.T
        pairs = [
            (group["intercept"].values, theta.intercept),
            (group["eigenvalues"].values[..., 0], eigenvalues[0]),
            (group["eigenvalues"].values[..., -1], eigenvalues[-1]),
            (_predictors(fitted).mean(axis=-1), eta[np.triu_indices(N, 1)].mean()),
        ]
        scores.append([norm.ppf((np.sum(draws < true) + 0.5) / (draws.size + 1)) for draws, true in pairs])
    scores = np.asarray(scores)
    assert np.all(np.abs(scores.sum(axis=0)) < 4 * np.sqrt(len(scores)))
    low, high = chi2.ppf([1e-5, 1 - 1e-5], len(scores))
    squares = np.sum(scores**2, axis=0)
    assert np.all((low < squares) & (squares < high))


def test_predictions(fitted, network):
    """Probabilities of pairs, also of missing ones; better than the density of the network alone."""
    probabilities = fitted.predict()
    assert np.isnan(np.diag(probabilities)).all()
    off = ~np.eye(N, dtype=bool)
    assert np.all((probabilities[off] > 0) & (probabilities[off] < 1))
    np.testing.assert_allclose(probabilities, probabilities.T, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(np.array([[0, 1], [9, 5]])), probabilities[[0, 9], [1, 5]])
    share = np.nanmean(network[np.triu_indices(N, 1)])
    assert fitted.score(network) > share * np.log(share) + (1 - share) * np.log(1 - share)
    replicates = fitted.sample_networks()
    assert set(np.unique(replicates)) == {0.0, 1.0}
    np.testing.assert_array_equal(replicates, np.swapaxes(replicates, 1, 2))
    error = replicates.mean(axis=0)[off] - probabilities[off]
    assert np.abs(error).max() < 5 * 0.5 / np.sqrt(len(replicates))


@pytest.mark.thorough
def test_counts():
    """The log link fits counts."""
    generator = np.random.default_rng(3)
    counts = np.triu(generator.poisson(2.0, (8, 8)), 1)
    counts = counts + counts.T
    model = Eigenmodel(1, link="log", num_warmup=60, num_samples=40, num_chains=2, random_state=1).fit(counts)
    assert 1.0 < np.nanmean(model.predict()) < 3.5


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"rank": 0}, lambda m: m, "rank"),
        ({"rank": 20}, lambda m: m, "nodes less one"),
        ({"link": "cauchit"}, lambda m: m, "link must be one of"),
        ({}, lambda m: m[:, :5], "square"),
        ({}, lambda m: np.triu(m), "symmetric"),
        ({}, lambda m: 2 * m, "link='log'"),
        ({"link": "log"}, lambda m: m - 1, "counts"),
        ({"link": "log"}, lambda m: m / 2, "counts"),
        ({}, lambda m: m * np.nan, "no pair"),
        ({}, lambda m: m[0], r"found shape \(20,\); networkx.to_numpy_array\(graph, weight=None\)"),
        ({}, sparse.csr_array, r"X is sparse; pass X.toarray\(\)"),
    ],
)
def test_errors_of_the_input(network, options, change, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Eigenmodel(**options).fit(change(np.nan_to_num(network)))


def test_errors_of_predictions(fitted):
    with pytest.raises(NotFittedError):
        Eigenmodel().predict()
    for pairs in (np.array([[1, 1]]), np.array([[0, N]]), np.array([[0.5, 1.0]]), np.array([1, 2])):
        with pytest.raises(ValueError, match=r"pair|indices of two different nodes"):
            fitted.predict(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("link", ["probit", "log"])
def test_ranks_of_prior_draws_are_uniform(link):
    """Simulation-based calibration: the truth, drawn from the prior, is a draw like those of the posterior."""
    generator = np.random.default_rng(4)
    n, prior = 8, EigenmodelPrior(0.5, 0.7)
    scores = []
    for repetition in range(24):
        vectors, triangle = np.linalg.qr(generator.standard_normal((n, 1)))
        truth = EigenmodelParameters(
            vectors * np.sign(triangle),
            0.5 * np.sqrt(n) * generator.standard_normal(1),
            np.asarray(0.7 * generator.standard_normal()),
        )
        drawn = density.draw_network(jax.random.key(repetition), jax.tree.map(jnp.asarray, truth), link)
        model = Eigenmodel(
            1,
            link=link,
            eigenvalue_scale=prior.eigenvalue_scale,
            intercept_scale=prior.intercept_scale,
            num_warmup=300,
            num_samples=500,
            num_chains=2,
            random_state=repetition,
        ).fit(np.asarray(drawn))
        draws = model.draws(None)
        eta = draws.intercept + draws.eigenvalues[:, 0] * draws.vectors[:, 0, 0] * draws.vectors[:, 1, 0]
        exact = truth.intercept + truth.eigenvalues[0] * truth.vectors[0, 0] * truth.vectors[1, 0]
        ranks = [np.mean(draws.intercept < truth.intercept), np.mean(draws.eigenvalues < truth.eigenvalues)]
        scores.append(norm.ppf(np.clip([*ranks, np.mean(eta < exact)], 1e-3, 1 - 1e-3)))
    scores = np.asarray(scores)
    assert np.abs(scores.mean(axis=0) * np.sqrt(len(scores))).max() < 4
    assert np.abs(((scores**2).mean(axis=0) - 1) * np.sqrt(len(scores) / 2)).max() < 4


def test_density_of_an_odd_number_of_nodes():
    """A row of the folded matrices is empty."""
    n, generator = 7, np.random.default_rng(4)
    upper = np.triu_indices(n, 1)
    matrix = np.triu(generator.random((n, n)) < 0.4, 1).astype(float)
    matrix = matrix + matrix.T
    vectors, _ = np.linalg.qr(generator.standard_normal((n, 1)))
    position = {"vectors": vectors, "eigenvalues": np.array([2.0]), "intercept": np.array(-1.3)}
    function = jax.jit(density.log_density(density.pairs(matrix), "probit", EigenmodelPrior()))
    found = function(jax.tree.map(jnp.asarray, position))
    eta = (2.0 * vectors @ vectors.T - 1.3)[upper]
    expected = norm.logcdf((2 * matrix[upper] - 1) * eta).sum() - 0.5 * 2.0**2 / n - 0.5 * 0.13**2
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_log_likelihoods_of_single_draws(network, fitted):
    tree = fitted.with_log_likelihood(network)
    one = deepcopy(fitted)
    one.posterior_ = fitted.posterior_.isel(chain=[1], draw=[7])
    np.testing.assert_allclose(tree["log_likelihood"]["x"][1, 7], one.log_predictive(network))
