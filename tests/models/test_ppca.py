"""The probabilistic PCA density, scores and predictions against brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import geodax as gx
from geodax.models.pca import density as ppca
from geodax.models.pca.density import PPCAParameters, PPCAPrior
from geodax.models.pca.observations import Observations, observations
from tests.models.simulations import ppca_rows

_natural = jax.jit(ppca.parameters)


def _parameters(n: int, p: int, seed: int = 0, *, is_diagonal: bool = False) -> tuple[dict, PPCAParameters]:
    generator = np.random.default_rng(seed)
    components, _ = np.linalg.qr(generator.standard_normal((n, p)))
    position = {
        "components": jnp.asarray(components),
        "log_gaps": jnp.asarray(0.3 * generator.standard_normal(p)),
        "mean": jnp.asarray(0.5 * generator.standard_normal(n)),
    }
    noise = {"noise": jnp.asarray(generator.standard_normal(n))} if is_diagonal else {"log_noise": jnp.asarray(-0.4)}
    return position | noise, _natural(position | noise)


def _with_holes(data: np.ndarray, share: float, seed: int = 1) -> np.ndarray:
    holes = np.random.default_rng(seed).random(data.shape) < share
    holes[0] = True  # a row without any value says nothing
    holes[1] = False
    return np.where(holes, np.nan, data)


def _covariance(theta: PPCAParameters) -> np.ndarray:
    loadings = np.asarray(theta.components) * np.asarray(theta.scale)
    return loadings @ loadings.T + np.asarray(theta.noise) ** 2 * np.eye(loadings.shape[0])


def _brute_force_log_likelihood(theta: PPCAParameters, data: np.ndarray) -> np.ndarray:
    covariance, mean = _covariance(theta), np.asarray(theta.mean)
    values = []
    for row in data:
        seen = ~np.isnan(row)
        values.append(
            multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(row[seen]) if seen.any() else 0.0
        )
    return np.array(values)


def _log_prior(position: dict, theta: PPCAParameters, prior: PPCAPrior) -> float:
    n = theta.mean.shape[0]
    return float(
        -0.5 * np.sum((np.asarray(theta.mean) / prior.mean_scale) ** 2)
        - 0.5 * np.sum((np.asarray(theta.scale) / prior.scale_scale) ** 2) / n
        - 0.5 * np.sum((np.asarray(theta.noise) / prior.noise_scale) ** 2)
        + np.sum(np.asarray(position["log_gaps"]))
        + float(position.get("log_noise", 0.0))
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "p"), [(5, 2), (4, 1), (3, 3), (7, 5)])
@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_log_density_is_prior_plus_marginal_normal(n, p, share, is_diagonal):
    """Differences of the density between two points agree with multivariate normals, missing cells left out."""
    prior = PPCAPrior(0.7, 1.3, 0.9)
    data = np.random.default_rng(3).standard_normal((6 if n == 7 else 12, n)) + 0.3
    data = _with_holes(data, share) if share else data
    logdensity_fn = jax.jit(ppca.log_density(observations(data, is_diagonal=is_diagonal), prior))
    found, expected = [], []
    for seed in (0, 1):
        position, theta = _parameters(n, p, seed, is_diagonal=is_diagonal)
        found.append(float(logdensity_fn(position)))
        expected.append(_brute_force_log_likelihood(theta, data).sum() + _log_prior(position, theta, prior))
    assert found[1] - found[0] == pytest.approx(expected[1] - expected[0], rel=1e-10)


@pytest.mark.thorough
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_many_rows_of_a_pattern_of_missing_cells_enter_by_sums(is_diagonal):
    """The density is that of all rows, and its cost does not depend on their number."""
    flops = []
    for rows in (40, 400):
        data = np.random.default_rng(4).standard_normal((rows, 4)) @ np.diag([1.0, 2.0, 0.5, 1.0]) + 0.3
        data[::4, 1] = data[1::4, 0] = data[1::4, 3] = np.nan
        data[2::8] = np.nan
        known = observations(data, is_diagonal=is_diagonal)
        assert len(known.rows) == 4 + 3 + 1
        logdensity_fn = jax.jit(ppca.log_density(known, PPCAPrior()))
        found, expected = [], []
        for seed in (0, 1):
            position, theta = _parameters(4, 2, seed, is_diagonal=is_diagonal)
            found.append(float(logdensity_fn(position)))
            expected.append(_brute_force_log_likelihood(theta, data).sum() + _log_prior(position, theta, PPCAPrior()))
            flops.append(logdensity_fn.lower(position).compile().cost_analysis()["flops"])
        assert found[1] - found[0] == pytest.approx(expected[1] - expected[0], rel=1e-10)
    assert len(set(flops)) == 1


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_small_noise_leaves_the_digits(share):
    """Where components fill the space, noise may come near zero; rounding errors must not be magnified by its inverse."""
    data = np.random.default_rng(3).standard_normal((40, 3))
    data = _with_holes(data, share) if share else data
    logdensity_fn = jax.jit(ppca.log_density(observations(data), PPCAPrior()))
    position = _parameters(3, 3)[0]
    small, tiny = (position | {"log_noise": jnp.log(noise)} for noise in (1e-6, 5e-8))
    differences = []
    for at in (position, small):
        theta = _natural(at)
        likelihood = _brute_force_log_likelihood(theta, data)
        differences.append(float(logdensity_fn(at)) - likelihood.sum() - _log_prior(at, theta, PPCAPrior()))
        found = jax.jit(ppca.row_posterior)(theta, data).log_density
        # the determinant of more components than observed cells is exact to the rounding error over the noise variance
        atol = np.finfo(float).eps / float(theta.noise) ** 2 if share else 0.0
        np.testing.assert_allclose(found, likelihood, rtol=1e-10, atol=atol)
    assert differences[1] == pytest.approx(differences[0], abs=1e-3 if share else 1e-9)
    assert logdensity_fn(tiny) == -np.inf


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_small_noise_of_one_column_leaves_the_digits(share):
    """Factor analysis may give a column no noise; the precision of the latent vectors is then very uneven."""
    data = np.random.default_rng(3).standard_normal((40, 5))
    data = _with_holes(data, share) if share else data
    logdensity_fn = jax.jit(ppca.log_density(observations(data, is_diagonal=True), PPCAPrior()))
    gradient = jax.jit(jax.grad(logdensity_fn))
    position = _parameters(5, 2, is_diagonal=True)[0]
    differences, slopes = [], []
    noises = np.array([0.5, 1e-3, 1e-4, 1e-5, -1e-5])
    for noise in noises:
        at = position | {"noise": position["noise"].at[2].set(noise)}
        theta = _natural(at)
        likelihood = _brute_force_log_likelihood(theta, data).sum()
        differences.append(float(logdensity_fn(at)) - likelihood - _log_prior(at, theta, PPCAPrior()))
        slopes.append(np.asarray(gradient(at)["noise"]))
    rounding = 10 * np.finfo(float).eps / noises**2  # of the precision of the latent vectors
    assert np.all(np.abs(np.array(differences) - differences[0]) < rounding + 1e-9)
    np.testing.assert_allclose(slopes[-1][[0, 1, 3, 4]], slopes[2][[0, 1, 3, 4]], rtol=1e-5)
    own = np.stack(slopes)[:, 2]  # the density is smooth and even
    assert np.all(np.abs(own - own[1] / noises[1] * noises)[1:] < (rounding / np.abs(noises) + 1e-3 * np.abs(own))[1:])
    assert logdensity_fn(position | {"noise": position["noise"].at[2].set(5e-8)}) == -np.inf


def test_scales_are_ordered_and_their_jacobian_is_right():
    """The log volume of gaps to scales is the sum of the gaps' logarithms."""
    gaps = jnp.array([0.3, -1.0, 0.2, -2.0])

    @jax.jit
    def scales(log_gaps):
        position = {"components": jnp.eye(4), "log_gaps": log_gaps, "log_noise": jnp.array(0.0), "mean": jnp.zeros(4)}
        return ppca.parameters(position).scale

    assert np.all(np.diff(scales(gaps)) < 0)
    _, log_volume = np.linalg.slogdet(jax.jacfwd(scales)(gaps))
    assert log_volume == pytest.approx(float(jnp.sum(gaps)), rel=1e-12)


def test_gradient_costs_the_same_for_any_number_of_complete_rows():
    """Complete rows enter through sufficient statistics only."""
    position, _ = _parameters(6, 2)
    flops = []
    for rows in (20, 20_000):
        data = np.random.default_rng(0).standard_normal((rows, 6))
        gradient = jax.jit(jax.grad(ppca.log_density(observations(data), PPCAPrior())))
        flops.append(gradient.lower(position).compile().cost_analysis()["flops"])
    assert flops[0] == flops[1]


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_row_posterior_agrees_with_conditioning_the_joint_normal(share, is_diagonal):
    """Scores given a row, and the row's density, by conditioning a multivariate normal."""
    _, theta = _parameters(5, 2, is_diagonal=is_diagonal)
    data = np.random.default_rng(5).standard_normal((6, 5))
    data = _with_holes(data, share) if share else data
    found = jax.jit(ppca.row_posterior)(theta, jnp.asarray(data))
    np.testing.assert_allclose(found.log_density, _brute_force_log_likelihood(theta, data), rtol=1e-10, atol=1e-12)
    covariance, scale = _covariance(theta), np.asarray(theta.scale)
    cross = np.asarray(theta.components) * scale**2  # Cov(x, Lambda z)
    for i, row in enumerate(data):
        seen = ~np.isnan(row)
        gain = np.linalg.solve(covariance[np.ix_(seen, seen)], cross[seen]).T if seen.any() else np.zeros((2, 0))
        mean = gain @ (row - np.asarray(theta.mean))[seen]
        variance = np.diag(scale**2) - gain @ cross[seen]
        factor = np.asarray(found.score_factor[i])
        np.testing.assert_allclose(found.score_mean[i], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(factor @ factor.T, variance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("is_diagonal", [False, True])
def test_drawn_cells_have_the_conditional_law(key, is_diagonal):
    """Filled cells have the mean and the covariance of the conditional normal; observed ones stay."""
    _, theta = _parameters(4, 2, is_diagonal=is_diagonal)
    row = np.array([[0.4, np.nan, -0.2, np.nan]])
    draw = jax.jit(jax.vmap(ppca.draw_cells, (0, None, None)))
    draws = np.asarray(draw(jax.random.split(key, 40_000), theta, jnp.asarray(row)))
    seen, hidden = [0, 2], [1, 3]
    covariance, mean = _covariance(theta), np.asarray(theta.mean)
    gain = covariance[np.ix_(hidden, seen)] @ np.linalg.inv(covariance[np.ix_(seen, seen)])
    expected = mean[hidden] + gain @ (row[0] - mean)[seen]
    variance = covariance[np.ix_(hidden, hidden)] - gain @ covariance[np.ix_(seen, hidden)]
    assert np.all(draws[:, 0, seen] == row[0, seen])
    errors = (draws[:, 0, hidden].mean(axis=0) - expected) / np.sqrt(np.diag(variance) / len(draws))
    assert np.all(np.abs(errors) < 4)
    spread = np.cov(draws[:, 0, hidden].T)
    tolerance = 4 * np.sqrt((variance**2 + np.outer(np.diag(variance), np.diag(variance))) / len(draws))
    assert np.all(np.abs(spread - variance) < tolerance)


def test_starting_points_are_valid_and_differ(key):
    """Starts lie on the manifold, also with missing cells, more columns than rows, and a column without spread."""
    data = np.random.default_rng(0).standard_normal((3, 6))
    data[:, 4] = 0.0
    data[0, 0] = np.nan
    one, two = map(ppca.starting_points(data, 4), jax.random.split(key))
    assert float(gx.Stiefel().residual(jnp.asarray(one["components"]))) < 1e-12
    assert not np.allclose(one["components"], two["components"])
    logdensity_fn = jax.jit(ppca.log_density(observations(data), PPCAPrior()))
    assert np.isfinite(float(logdensity_fn(jax.tree.map(jnp.asarray, one))))


@pytest.mark.slow
@pytest.mark.parametrize("is_diagonal", [False, True])
def test_simulation_based_calibration(key, is_diagonal):
    """Ranks of the true parameters among posterior draws are uniform (Talts et al. 2018)."""
    n, p, num_rows, num_sets, num_draws = 4, 2, 15, 256, 63
    prior = PPCAPrior()
    key_truth, key_data, key_run = jax.random.split(key, 3)

    def truth(k):
        k1, k2, k3, k4 = jax.random.split(k, 4)
        scale = jnp.sort(jnp.abs(jax.random.normal(k1, (p,))) * jnp.sqrt(float(n)) * prior.scale_scale)[::-1]
        components = gx.Stiefel().random_point(k2, jnp.zeros((n, p)))
        noise = jnp.abs(jax.random.normal(k3, (n,) if is_diagonal else ()))
        return PPCAParameters(components, scale, noise, jax.random.normal(k4, (n,)))

    def posterior_ranks(k, theta, data):
        average = data.mean(axis=0)
        empty = (np.zeros((0, n)), np.zeros(0), np.zeros((0, n), bool), np.zeros(0, np.int64), np.zeros(0))
        centred = data - average[None, :]
        scatter = jnp.linalg.qr(centred, mode="r") if is_diagonal else centred.T @ centred
        stats = Observations(float(num_rows), average, scatter, *empty)
        # all sets wait for the longest trajectory, so that it is bounded
        algorithm = gx.nuts(
            ppca.log_density(stats, prior), manifold=gx.Product({"components": gx.Stiefel()}), max_num_doublings=6
        )
        gaps = jnp.log(theta.scale - jnp.append(theta.scale[1:], 0.0))
        noise = {"noise": theta.noise} if is_diagonal else {"log_noise": jnp.log(theta.noise)}
        # started from the truth, which is a draw from the posterior
        warmup = algorithm.adapt(200)
        state = algorithm.init({"components": theta.components, "log_gaps": gaps, "mean": theta.mean} | noise)
        state = warmup.begin(state)

        def adapt(carry, i):
            state, adaptation = carry
            state, info = algorithm.step(jax.random.fold_in(k, 2 * i), state)
            adaptation, state = warmup.update(jax.random.fold_in(k, 2 * i + 1), adaptation, state, info, i)
            return (state, adaptation), None

        def draw(state, i):
            def thin(j, state):
                return algorithm.step(jax.random.fold_in(k, 10_000 + 8 * i + j), state)[0]

            state = jax.lax.fori_loop(0, 8, thin, state)
            return state, quantities(ppca.parameters(state.position))

        (state, _), _ = jax.lax.scan(adapt, (state, warmup.init(state)), jnp.arange(200, dtype=jnp.int32))
        _, draws = jax.lax.scan(draw, state, jnp.arange(num_draws, dtype=jnp.int32))
        return jnp.sum(draws < quantities(theta)[None, :], axis=0)

    def quantities(theta: PPCAParameters):
        projector = theta.components @ theta.components.T
        noise = jnp.atleast_1d(theta.noise)[0]
        return jnp.stack([theta.scale[0], theta.scale[1], noise, theta.mean[0], projector[0, 0], projector[0, 1]])

    truths = jax.vmap(truth)(jax.random.split(key_truth, num_sets))
    data = jax.vmap(lambda k, t: ppca_rows(k, t, num_rows))(jax.random.split(key_data, num_sets), truths)
    ranks = np.asarray(jax.jit(jax.vmap(posterior_ranks))(jax.random.split(key_run, num_sets), truths, data))
    num_bins = 8
    counts = np.stack([np.bincount(r * num_bins // (num_draws + 1), minlength=num_bins) for r in ranks.T])
    statistic = ((counts - num_sets / num_bins) ** 2 / (num_sets / num_bins)).sum(axis=1)
    # chi-square with 7 degrees of freedom: 24.3 is the 0.1 % point, which six quantities together exceed once in 170
    assert np.all(statistic < 24.3), counts
