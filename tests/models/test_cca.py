"""Hierarchical canonical correlation analysis: density, conditionals, signs and order, estimator."""

import functools
from copy import deepcopy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import halfnorm, multivariate_normal, norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from geodax.app.cca.files import GroupedTable
from geodax.app.cca.run import CCARun
from geodax.diagnostics.findings import rhat
from geodax.mcmc.nuts import nuts
from geodax.models import HierarchicalCCA
from geodax.models.cca import density, pooling
from geodax.models.cca.density import CCAParameters
from geodax.models.cca.pooling import CCAPrior
from geodax.models.cca.signs import FRAMES, Frames, identified

N1, N2, Q, G = 5, 4, 2, 3
SIZES = (20, 30, 60)
NOTHING = np.zeros(N1 + N2, dtype=bool)
FIRST = np.arange(N1 + N2) < N1


def _frame(generator, *shape):
    return np.linalg.qr(generator.standard_normal(shape))[0]


def _theta(seed, *, q=Q, near: float | None = None) -> CCAParameters:
    """Parameters of all groups; with ``near`` the groups' matrices lie around common ones."""
    generator = np.random.default_rng(seed)
    frames = []
    for n, p in ((N1, q), (N2, q), (N1, 1), (N2, 1)):
        if near is None:
            frames.append(_frame(generator, G, n, p))
        else:
            moved = _frame(generator, n, p) + near * generator.standard_normal((G, n, p))
            u, _, vh = np.linalg.svd(moved, full_matrices=False)
            frames.append(u @ vh)

    def scales(low, high, *shape):
        return generator.uniform(low, high, (G, *shape))

    return CCAParameters(
        *frames,
        *(scales(1.2, 2.0, q) for _ in range(2)),
        *(scales(0.7, 1.1, 1) for _ in range(2)),
        *(scales(0.4, 0.6) for _ in range(2)),
        *(generator.standard_normal((G, n)) for n in (N1, N2)),
    )


def _arrays(theta):
    return jax.tree.map(jnp.asarray, theta)


def _dense(theta) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and covariance of each group, written out block by block."""
    found = []
    for g in range(G):
        w1, w2, b1, b2, l1, l2, d1, d2, s1, s2, m1, m2 = (np.asarray(leaf)[g] for leaf in theta)
        first = w1 @ np.diag(l1**2) @ w1.T + b1 @ np.diag(d1**2) @ b1.T + s1**2 * np.eye(N1)
        second = w2 @ np.diag(l2**2) @ w2.T + b2 @ np.diag(d2**2) @ b2.T + s2**2 * np.eye(N2)
        between = w1 @ np.diag(l1 * l2) @ w2.T
        found.append((np.concatenate([m1, m2]), np.block([[first, between], [between.T, second]])))
    return found


def _simulated(theta, seed, sizes=SIZES):
    places = np.repeat(np.arange(G), sizes)
    generator = np.random.default_rng(seed)
    rows = [generator.multivariate_normal(*_dense(theta)[g], size=s) for g, s in enumerate(sizes)]
    return np.concatenate(rows), places


@pytest.fixture(scope="module")
def truth() -> CCAParameters:
    return _theta(1, q=1, near=0.15)


@pytest.fixture(scope="module")
def data(truth) -> tuple[np.ndarray, np.ndarray]:
    rows, places = _simulated(truth, 2)
    return rows, np.array(["a", "b", "c"])[places]


@pytest.fixture(scope="module")
def fitted(data) -> HierarchicalCCA:
    rows, groups = data
    model = HierarchicalCCA(num_warmup=300, num_samples=250, num_chains=2, random_state=0)
    return model.fit([rows[:, :N1], rows[:, N1:]], groups)


def test_likelihood_is_that_of_the_dense_normal():
    """Woodbury and sufficient statistics against every row under a covariance written out block by block."""
    theta = _theta(3)
    rows, places = _simulated(_theta(4), 5)
    statistics = density.grouped_rows(rows, places)
    found = jax.jit(lambda theta: density.log_likelihood(theta, statistics))(_arrays(theta))
    dense = _dense(theta)
    expected = [multivariate_normal(*dense[g]).logpdf(rows[places == g]).sum() for g in range(G)]
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    np.testing.assert_allclose(
        jax.jit(density.covariance)(_arrays(theta)), [c for _, c in dense], rtol=1e-12, atol=1e-14
    )


def test_likelihood_of_observed_cells_is_the_marginal_of_the_dense_normal():
    """Catches a missing cell taken as zero, a log determinant over all columns, and blocks in the wrong group."""
    theta = _theta(3)
    rows, places = _simulated(_theta(4), 5)
    is_observed = np.random.default_rng(6).random(rows.shape) < 0.7
    rows = np.where(is_observed, rows, np.nan)
    statistics = density.grouped_rows(rows, places)
    found = jax.jit(lambda theta: density.log_likelihood(theta, statistics))(_arrays(theta))
    dense = _dense(theta)
    expected = np.zeros(G)
    for row, observed, g in zip(rows, is_observed, places, strict=True):
        mean, c = dense[g]
        if observed.any():
            expected[g] += multivariate_normal(mean[observed], c[np.ix_(observed, observed)]).logpdf(row[observed])
    np.testing.assert_allclose(np.bincount(statistics.places, np.asarray(found)), expected, rtol=1e-11)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_small_noise_leaves_the_digits(share):
    """Where loadings fill a view, its noise may come near zero; rounding errors must not be magnified by its inverse."""
    theta = _theta(3, q=N2 - 1)._replace(noise_2=np.full(G, 1e-6))
    rows, places = _simulated(_theta(4), 5)
    rows = np.where(np.random.default_rng(6).random(rows.shape) < share, np.nan, rows)
    dense = _dense(theta)
    expected = []
    for row, g in zip(rows, places, strict=True):
        (mean, c), seen = dense[g], ~np.isnan(row)
        expected.append(multivariate_normal(mean[seen], c[np.ix_(seen, seen)]).logpdf(row[seen]) if seen.any() else 0.0)
    statistics = density.grouped_rows(rows, places)
    found = jax.jit(lambda theta: density.log_likelihood(theta, statistics))(_arrays(theta))
    by_row = jax.jit(density.row_log_density)(_arrays(theta), np.nan_to_num(rows), places, ~np.isnan(rows))
    scale = np.abs(expected).sum()
    assert float(jnp.sum(found)) == pytest.approx(np.sum(expected), abs=1e-6 * scale if share else 1e-11 * scale)
    # the determinant of more loadings than observed columns is exact to the rounding error over the noise variance
    atol = np.finfo(float).eps / 1e-6**2 if share else 1e-10
    np.testing.assert_allclose(by_row, expected, rtol=1e-11, atol=atol)


@pytest.mark.thorough
@pytest.mark.parametrize("view", [1, 2])
def test_noise_beyond_the_digits_is_refused(view):
    statistics, shape, (position, *_) = _layout_and_positions("hierarchical")
    function = jax.jit(pooling.log_density(statistics, shape, CCAPrior()))
    assert jnp.isfinite(function(position))
    tiny = position["log_scales"].at[0, view - 3].set(np.log(5e-8))
    assert function(position | {"log_scales": tiny}) == -np.inf


def test_conditionals_are_those_of_the_dense_normal():
    """One view given the other, scores, and densities of rows with one view missing."""
    theta = _theta(6)
    rows, places = _simulated(theta, 7, (3, 4, 5))
    given = (np.where(FIRST, rows, 0.0), places, np.broadcast_to(FIRST, rows.shape))
    found = np.asarray(jax.jit(density.conditional_mean)(_arrays(theta), *given))
    densities = np.asarray(jax.jit(density.row_log_density)(_arrays(theta), *given))
    scores = np.asarray(jax.jit(density.latent_mean)(_arrays(theta), rows, places, np.ones(rows.shape, dtype=bool)))
    loadings = np.asarray(jax.jit(density.loadings)(_arrays(theta)))
    for i, g in enumerate(places):
        mean, c = _dense(theta)[g]
        residual = rows[i] - mean
        expected = mean[N1:] + c[N1:, :N1] @ np.linalg.solve(c[:N1, :N1], residual[:N1])
        np.testing.assert_allclose(found[i, N1:], expected, rtol=1e-10)
        marginal = multivariate_normal(mean[:N1], c[:N1, :N1]).logpdf(rows[i, :N1])
        np.testing.assert_allclose(densities[i], marginal, rtol=1e-10)
        np.testing.assert_allclose(scores[i], loadings[g].T @ np.linalg.solve(c, residual), rtol=1e-9, atol=1e-12)


def test_drawn_rows_have_the_conditional_law(key):
    """Mean and covariance of view 2 given view 1, within 4.5 standard errors."""
    theta, count = _theta(8), 20_000
    row = np.where(FIRST, np.random.default_rng(9).standard_normal(N1 + N2), 0.0)
    rows = jnp.broadcast_to(jnp.asarray(row), (count, N1 + N2))
    observed = jnp.broadcast_to(FIRST, rows.shape)
    draw = jax.jit(lambda key, rows: density.draw_rows(key, _arrays(theta), rows, jnp.ones(count, int), observed))
    drawn = np.asarray(draw(key, rows))[:, N1:]
    mean, c = _dense(theta)[1]
    gain = c[N1:, :N1] @ np.linalg.inv(c[:N1, :N1])
    wanted = c[N1:, N1:] - gain @ c[:N1, N1:]
    error = (drawn.mean(axis=0) - mean[N1:] - gain @ (row - mean)[:N1]) / np.sqrt(np.diag(wanted) / count)
    assert np.abs(error).max() < 4.5
    scale = np.sqrt((wanted**2 + np.outer(np.diag(wanted), np.diag(wanted))) / count)
    assert np.abs((np.cov(drawn.T) - wanted) / scale).max() < 4.5


def _squared_correlations(theta) -> list[np.ndarray]:
    """Squares of all canonical correlations of each group, the largest first, by dense algebra."""
    found = []
    for _, c in _dense(theta):
        product = np.linalg.solve(c[:N1, :N1], c[:N1, N1:]) @ np.linalg.solve(c[N1:, N1:], c[N1:, :N1])
        found.append(np.sort(np.linalg.eigvals(product).real)[::-1])
    return found


def test_canonical_correlations_are_singular_values():
    """Whitened covariance between the views; all but q are zero."""
    theta = _theta(10)
    all_found = np.asarray(jax.jit(density.canonical_correlations)(_arrays(theta)))
    for found, values in zip(all_found, _squared_correlations(theta), strict=True):
        np.testing.assert_allclose(found, np.sqrt(values[:Q]), rtol=1e-8)
        assert np.abs(values[Q:]).max() < 1e-10


@functools.cache
def _layout_and_positions(which, num=2):
    rows, places = _simulated(_theta(11), 12)
    statistics = density.grouped_rows(rows, places)
    estimate = pooling.pooled_estimate(statistics, N1, (Q, 1, 1))
    keys = jax.random.split(jax.random.key(0), num)
    positions = [_arrays(pooling.starting_point(k, statistics, estimate, which, spread=1.0)) for k in keys]
    return statistics, pooling.layout(G, estimate.frames), positions


@pytest.mark.thorough
@pytest.mark.parametrize("which", ["separate", "complete"])
def test_priors_of_scales_and_means(which):
    """Half-normal scales, whose logarithms are sampled, and normal means; matrices are uniform."""
    statistics, shape, positions = _layout_and_positions(which)
    found = jax.jit(pooling.log_density(statistics, shape, CCAPrior(2.0, 0.8, 1.5, 0.4)))
    natural = jax.jit(lambda position: pooling.parameters(position, shape))
    likelihood = jax.jit(lambda theta: density.log_likelihood(theta, statistics))
    values = []
    for position in positions:
        theta = natural(position)
        expected = float(likelihood(theta).sum())
        expected += float(np.sum(position["log_scales"])) + norm(0, 2.0).logpdf(position["means"]).sum()
        for name in ("shared_scale", "own_scale"):
            for v, n in ((1, N1), (2, N2)):
                expected += halfnorm(scale=0.8 * n**0.5).logpdf(getattr(theta, f"{name}_{v}")).sum()
        expected += halfnorm(scale=1.5).logpdf(np.stack([theta.noise_1, theta.noise_2])).sum()
        assert all(getattr(theta, name).shape[0] == G for name in FRAMES)
        values.append([float(found(position)), expected])
    difference = np.diff(values, axis=0)[0]
    np.testing.assert_allclose(difference[0], difference[1], rtol=1e-9)


@pytest.mark.thorough
def test_signs_and_order_do_not_matter():
    """A shared column with its sign in both views, an own one alone, places exchanged together with scales."""
    statistics, shape, (position, *_) = _layout_and_positions("separate")
    theta = jax.jit(lambda position: pooling.parameters(position, shape))(position)
    likelihood = jax.jit(lambda theta: density.log_likelihood(theta, statistics))
    value = likelihood(theta)
    flip = jnp.asarray([-1.0, 1.0])[None, None, :]
    both = theta._replace(shared_1=theta.shared_1 * flip, shared_2=theta.shared_2 * flip, own_2=-theta.own_2)
    turned = {name: getattr(theta, name)[..., ::-1] for name in theta._fields if name.startswith("shared")}
    for other in (both, theta._replace(**turned)):
        np.testing.assert_allclose(likelihood(other), value, rtol=1e-11)
    one = theta._replace(shared_1=theta.shared_1 * flip)
    assert np.abs(likelihood(one) - value).max() > 1.0


@pytest.mark.thorough
def test_charts_are_centered_and_have_no_edge_for_groups():
    """Zero coordinates are the reference; deviations of any size give orthonormal matrices, round the circle."""
    _, shape, (position, *_) = _layout_and_positions("hierarchical")
    chart, span = shape.charts[0], shape.spans()[0]
    np.testing.assert_allclose(chart.forward(jnp.zeros(chart.num_unconstrained)), chart.compose(jnp.zeros(span.stop)))
    common, deviations = position["common"][span], position["deviations"][:, span]
    frames = jax.jit(lambda deviations, spread: pooling.group_frames(chart, common, deviations, spread))
    at_zero = frames(deviations, jnp.asarray(0.0))
    np.testing.assert_allclose(at_zero, np.broadcast_to(chart.forward(common), at_zero.shape), atol=1e-14)
    far = np.asarray(frames(deviations, jnp.asarray(5.0)))
    np.testing.assert_allclose(np.swapaxes(far, 1, 2) @ far, np.broadcast_to(np.eye(Q), (G, Q, Q)), atol=1e-13)
    turn = deviations.at[:, 0].add(2 * np.pi)
    one, two = (frames(d, jnp.asarray(1.0)) for d in (deviations, turn))
    np.testing.assert_allclose(one, two, atol=1e-13)
    # near the reference all angles have unit speed: distances of matrices are those of angles (latitudes below row p)
    small = jnp.zeros(span.stop).at[-1].set(1e-6)
    step = chart.compose(small) - chart.compose(jnp.zeros(span.stop))
    np.testing.assert_allclose(float(jnp.linalg.norm(step)), 1e-6, rtol=1e-5)


def test_identified_draws_are_the_same_model():
    """Random signs and exchanges of columns are taken back, and every draw keeps its covariance."""
    generator = np.random.default_rng(13)
    theta, shape = _theta(14), (2, 30)
    draws = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (*shape, *leaf.shape)).copy(), theta)
    order = generator.permuted(np.broadcast_to(np.arange(Q), (*shape, G, Q)), axis=-1)
    signs = generator.choice([-1.0, 1.0], (*shape, G, Q))
    mixed = {}
    for v in (1, 2):
        frame = np.take_along_axis(getattr(draws, f"shared_{v}"), order[..., None, :], axis=-1)
        mixed[f"shared_{v}"] = frame * signs[..., None, :]
        mixed[f"shared_scale_{v}"] = np.take_along_axis(getattr(draws, f"shared_scale_{v}"), order, axis=-1)
    mixed["own_1"] = draws.own_1 * generator.choice([-1.0, 1.0], (*shape, G, 1, 1))
    mixed = draws._replace(**mixed)
    reference = Frames(*(getattr(theta, name)[0] for name in FRAMES))
    found = identified(mixed, reference)
    covariance = jax.jit(density.covariance)
    np.testing.assert_allclose(covariance(_arrays(found)), covariance(_arrays(mixed)), atol=1e-12)
    for name in CCAParameters._fields:
        leaf = getattr(found, name)
        np.testing.assert_allclose(leaf, np.broadcast_to(leaf[:1, :1], leaf.shape), atol=1e-14, err_msg=name)
        # the reference is group 0 itself, whose columns come back with their own signs and places
        np.testing.assert_allclose(leaf[:, :, 0], getattr(draws, name)[:, :, 0], atol=1e-14, err_msg=name)


def test_moments_know_an_exact_covariance():
    """The singular vectors of the covariance between views, with one sign for both."""
    theta = _theta(15)
    (_, c), *_ = _dense(theta)
    found = pooling.from_moments(c, N1, (Q, 1, 1))
    order = np.argsort(-theta.shared_scale_1[0] * theta.shared_scale_2[0])
    cosines = [
        np.einsum("np,np->p", getattr(found.frames, f"shared_{v}"), getattr(theta, f"shared_{v}")[0][:, order])
        for v in (1, 2)
    ]
    np.testing.assert_allclose(np.abs(cosines), 1.0, rtol=1e-10)
    np.testing.assert_allclose(np.sign(cosines[0]), np.sign(cosines[1]))


@pytest.mark.thorough
@pytest.mark.parametrize("which", pooling.POOLINGS)
def test_density_keeps_single_precision(which):
    statistics, shape, (position, *_) = _layout_and_positions(which)
    function = jax.jit(jax.value_and_grad(pooling.log_density(statistics, shape, CCAPrior())))
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), position)
    value, gradient = function(single)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(float(value), float(function(position)[0]), rtol=1e-4)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.thorough
def test_density_calls_no_lapack():
    """Threads of LAPACK calls have been seen to wait for each other for ever where several devices run chains."""
    statistics, shape, (position, *_) = _layout_and_positions("hierarchical")
    function = jax.value_and_grad(pooling.log_density(statistics, shape, CCAPrior()))
    assert "lapack" not in jax.jit(function).lower(position).as_text()


@pytest.mark.thorough
def test_truth_is_recovered(fitted, truth):
    """Chains agree; directions are near those that made the data; most intervals hold the truth."""
    group = fitted.posterior_["posterior"]
    assert int(fitted.posterior_["sample_stats"]["diverging"].sum()) == 0
    assert max(float(rhat(group[name].values).max()) for name in CCAParameters._fields) < 1.06
    assert all(f"spread_{name}" in group for name in FRAMES)
    assert group["common_shared_1"].shape[2:] == (N1, 1)
    hits, num_directions = [], 0
    for name in FRAMES:
        spread = fitted.spread_[:N1] if name.endswith("1") else fitted.spread_[N1:]
        draws = group[name].values.reshape(-1, *group[name].shape[2:]) * spread[:, None]
        draws = draws / np.linalg.norm(draws, axis=-2, keepdims=True)
        true = getattr(truth, name)
        draws = draws * np.where((draws * true).sum(axis=-2).mean(axis=0) < 0, -1.0, 1.0)[:, None]
        low, high = np.quantile(draws, [0.025, 0.975], axis=0)
        hits += np.ravel((low < true) & (true < high)).tolist()
        num_directions += true[..., 0, :].size
        if name.startswith("shared"):
            assert np.abs((draws * true).sum(axis=-2)).mean(axis=0).min() > 0.9
    # the entries of a direction err together
    assert np.mean(hits) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / num_directions)


@pytest.mark.thorough
def test_canonical_correlations_of_the_draws(fitted):
    found, draws = fitted.canonical_correlations(), fitted.draws(None)
    assert found.shape == (draws.noise_1.shape[0], G, 1)
    for k in (0, 7, -1):
        exact = _squared_correlations(jax.tree.map(lambda leaf, k=k: leaf[k], draws))
        np.testing.assert_allclose(found[k, :, 0], [np.sqrt(values[0]) for values in exact], rtol=1e-8)


@pytest.mark.thorough
def test_predictions_are_averages_of_closed_forms(fitted, data):
    """The conditional expectation of each draw, by dense algebra in the units of the data."""
    rows, groups = data
    chosen = [0, 25, 70]
    draws = fitted.draws()
    covariances = np.asarray(jax.jit(density.covariance)(_arrays(draws)))
    means = np.concatenate([draws.mean_1, draws.mean_2], axis=-1)
    spread, center = fitted.spread_, fitted.center_
    for view, given in ((2, FIRST), (1, ~FIRST)):
        found = fitted.predict(rows[chosen][:, given], groups[chosen], view=view)
        for i, row in enumerate(chosen):
            g = "abc".index(groups[row])
            expected = []
            for c, m in zip(covariances[:, g], means[:, g], strict=True):
                c, m = c * np.outer(spread, spread), center + spread * m
                gain = np.linalg.solve(c[np.ix_(given, given)], (rows[row] - m)[given])
                expected.append(m[~given] + c[np.ix_(~given, given)] @ gain)
            np.testing.assert_allclose(found[i], np.mean(expected, axis=0), rtol=1e-9)
    drawn = fitted.sample_view(rows[chosen][:, FIRST], groups[chosen])
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert np.abs((drawn.mean(axis=0) - fitted.predict(rows[chosen][:, FIRST], groups[chosen])) / error).max() < 4.5


@pytest.mark.thorough
def test_predictions_of_a_file_are_exact_and_say_nothing_of_each_other(fitted, data, tmp_path):
    """Quantiles of one view are those of the mixture over the draws; rows that lack a cell or a group are empty."""
    rows, groups = data
    names = [f"x{k}" for k in range(rows.shape[1])]
    table = GroupedTable(rows, groups, tuple(names[:N1]), tuple(names[N1:]), "group")
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"

    def predicted(*lines):
        path.write_text("\n".join([",".join(["group", *names[:N1]]), *lines]) + "\n")
        notes = CCARun().predict(table, fitted, path, out)
        return [line.split(",") for line in out.read_text().splitlines()[1:]], notes

    line = ",".join([groups[0], *map(repr, rows[0, :N1].tolist())])
    (alone,), _ = predicted(line)
    found, notes = predicted("b," + "0," * (N1 - 1) + "0", line, "a," + "," * (N1 - 1), line.replace("a,", "NA,", 1))
    np.testing.assert_allclose(np.array(found[1][2:], float), np.array(alone[2:], float), rtol=1e-12)
    assert set(found[2][2:]) == set(found[3][2:]) == {""}
    assert "2 of 4 rows lack their group or all cells and have no prediction." in notes
    draws, given = fitted.draws(), np.arange(len(names)) < N1
    spread, center = fitted.spread_, fitted.center_
    means = center + spread * np.concatenate([draws.mean_1, draws.mean_2], axis=-1)[:, 0]
    covariances = np.asarray(jax.jit(density.covariance)(_arrays(draws)))[:, 0] * np.outer(spread, spread)
    gains = [np.linalg.solve(c[np.ix_(given, given)], c[np.ix_(given, ~given)]) for c in covariances]
    centres = [m[~given] + (rows[0] - m)[given] @ gain for m, gain in zip(means, gains, strict=True)]
    spreads = [
        np.sqrt(np.diag(c[np.ix_(~given, ~given)] - c[np.ix_(~given, given)] @ gain))
        for c, gain in zip(covariances, gains, strict=True)
    ]
    mean, low, high = np.array(alone[2:], float).reshape(-1, 3).T
    np.testing.assert_allclose(mean, np.mean(centres, axis=0), rtol=1e-9)
    for quantile, level in ((low, 0.05), (high, 0.95)):
        np.testing.assert_allclose(norm.cdf(quantile, centres, spreads).mean(axis=0), level, rtol=1e-6)


@pytest.mark.thorough
def test_scores_densities_and_replicates(fitted, data, truth):
    """Scores follow the true latent direction; densities are in the units of the data; replicates look like them."""
    rows, groups = data
    views = [rows[:, :N1], rows[:, N1:]]
    scores = fitted.transform(views, groups)
    assert scores.shape == (len(rows), 3)
    places = np.array(["abc".index(g) for g in groups])
    given = (rows, places, np.ones(rows.shape, dtype=bool))
    true = np.asarray(jax.jit(density.latent_mean)(_arrays(truth), *given))
    assert all(abs(np.corrcoef(scores[places == g, 0], true[places == g, 0])[0, 1]) > 0.95 for g in range(G))
    best = jax.jit(density.row_log_density)(_arrays(truth), *given)
    assert abs(fitted.score(views, groups) - float(best.mean())) < 0.6
    first, second = fitted.sample()
    both = np.concatenate([first, second], axis=-1)
    assert both.shape[1:] == rows.shape
    assert np.abs((both.mean(axis=1) - rows.mean(axis=0)).mean(axis=0) / rows.std(axis=0)).max() < 0.3
    assert [x.shape[1:] for x in fitted.sample(["a", "b"])] == [(2, N1), (2, N2)]


@pytest.mark.thorough
def test_missing_cells(fitted, data):
    """Predictions use the observed cells."""
    rows, groups = data
    first, second = rows[:, :N1], rows[:, N1:]
    without = np.full_like(second, np.nan)
    scores = fitted.score_samples([first, without], groups)
    np.testing.assert_allclose(
        scores + fitted.score_samples([np.full_like(first, np.nan), without], groups), scores, rtol=1e-12
    )
    holes = np.where(np.random.default_rng(3).random(first.shape) < 0.5, np.nan, first)
    filled = fitted.predict(holes, groups)
    assert np.mean((filled - second) ** 2) > np.mean((fitted.predict(first, groups) - second) ** 2)
    assert np.mean((filled - second) ** 2) < second.var(axis=0).mean()


def _lacking(data):
    rows, groups = data
    lacking = np.where(np.random.default_rng(4).random(rows.shape) < 0.1, np.nan, rows)
    return [lacking[:, :N1], lacking[:, N1:]], groups


@pytest.mark.slow
def test_a_fit_without_a_tenth_of_the_cells_agrees_with_the_fit_of_all(fitted, data):
    model = clone(fitted).fit(*_lacking(data))
    for name in ("shared_scale_1", "noise_1", "noise_2", "mean_1"):
        one, two = (np.asarray(m.posterior_["posterior"][name]) for m in (fitted, model))
        assert np.all(np.abs(one.mean((0, 1)) - two.mean((0, 1))) < 1.5 * one.std((0, 1))), name


@pytest.mark.thorough
def test_one_matrix_with_columns(fitted, data):
    """A data frame with columns of both views and of groups is the pair of matrices."""
    pandas = pytest.importorskip("pandas")
    rows, groups = data
    names = [f"x{i}" for i in range(N1 + N2)]
    frame = pandas.DataFrame(rows, columns=names).assign(kind=groups)
    model = clone(fitted).set_params(views=(names[:N1], names[N1:]))
    model.with_posterior(frame, "kind", posterior=fitted.posterior_)
    assert model.view_names_ == (tuple(names[:N1]), tuple(names[N1:]))
    views = [rows[:, :N1], rows[:, N1:]]
    np.testing.assert_allclose(model.transform(frame, "kind"), fitted.transform(views, groups), rtol=1e-12, atol=1e-14)
    by_place = clone(model).set_params(views=(list(range(N1)), list(range(N1, N1 + N2))))
    by_place.with_posterior(rows, groups, posterior=fitted.posterior_)
    expected = fitted.score(views, groups)
    for later in (by_place.views, by_place.views[::-1], None):  # columns are those of the fit
        np.testing.assert_allclose(by_place.set_params(views=later).score(rows, groups), expected, rtol=1e-12)


@pytest.mark.thorough
def test_columns_with_names_are_those_of_the_fit(fitted, data):
    """Catches the numbers of one column in the place of another: of both views, of one, and of views by position."""
    pandas = pytest.importorskip("pandas")
    rows, groups = data
    frame = pandas.DataFrame(rows, columns=[f"x{i}" for i in range(N1 + N2)])
    first, second = frame.iloc[:, :N1], frame.iloc[:, N1:]
    model = clone(fitted).with_posterior([first, second], groups, posterior=fitted.posterior_)
    places = (list(range(N1)), list(range(N1, N1 + N2)))
    by_place = clone(fitted).set_params(views=places).with_posterior(frame, groups, posterior=fitted.posterior_)
    np.testing.assert_array_equal(model.predict(first, groups), model.predict(rows[:, :N1], groups))
    ahead = model.predict(second, groups, view=1)
    np.testing.assert_allclose(ahead, fitted.predict(rows[:, N1:], groups, view=1), rtol=1e-12, atol=1e-14)
    for wrong in (
        lambda: model.transform([first.iloc[:, ::-1], second], groups),
        lambda: model.score([first, second.add_prefix("other ")], groups),
        lambda: model.predict(first.iloc[:, ::-1], groups),
        lambda: model.sample_view(first, groups, view=1),
        lambda: by_place.transform(frame.iloc[:, ::-1], groups),
    ):
        with pytest.raises(ValueError, match="expected the columns of the fit in their order, x"):
            wrong()


@pytest.mark.thorough
def test_columns_of_a_view_computed_from_others():
    """With no noise left in a view, its posterior is not proper, and chains would run to the edge of what they can count."""
    generator = np.random.default_rng(0)
    parts, other = generator.dirichlet([3, 2, 1], size=60), generator.standard_normal((60, 4))
    labels = np.repeat(["a", "b"], 30)
    parts[labels == "a"] += 1e-3 * generator.standard_normal((30, 3))
    model = HierarchicalCCA(num_warmup=5, num_samples=4, num_chains=1)
    for views, place in (([parts, other], 1), ([other, parts], 2)):
        with pytest.raises(
            ValueError, match=rf"in group 'b', view {place} has 3 columns, of which 1 are .* leave such"
        ):
            model.fit(views, labels)
    more = np.column_stack([parts, generator.standard_normal((60, 2))])
    for first in (parts[:, :2], more):
        assert np.all(model.fit([first, other], labels).posterior_["posterior"]["noise_1"].values > 0)


@pytest.mark.thorough
def test_rows_without_groups_are_one_group(data):
    """Without a hierarchy; predictions then need no groups either. Columns of a matrix are counted and compared."""
    rows, _ = data
    views = (list(range(N1)), list(range(N1, N1 + N2)))
    options = {"pooling": "complete", "num_warmup": 20, "num_samples": 10, "num_chains": 1, "random_state": 0}
    model = HierarchicalCCA(views=views, **options).fit(rows)
    assert model.n_features_in_ == N1 + N2
    pair = [rows[:, :N1], rows[:, N1:]]
    of_pair = clone(model).set_params(views=None).with_posterior(pair, np.zeros(len(rows)), posterior=model.posterior_)
    assert of_pair.n_features_in_ == N1 + N2
    np.testing.assert_allclose(model.transform(rows), of_pair.transform(pair), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.predict(rows[:, :N1]), of_pair.predict(rows[:, :N1]), rtol=1e-12, atol=1e-14)
    frame = model.set_output(transform="pandas").transform(rows)
    assert frame.columns.tolist() == ["shared0", "view_1_0", "view_2_0"]
    with pytest.raises(ValueError, match=f"X has {N1 + N2 - 1} features, but HierarchicalCCA is expecting {N1 + N2}"):
        model.transform(rows[:, 1:])
    with pytest.raises(ValueError, match="one label"):
        clone(model).set_params(pooling="hierarchical").fit(rows)


@pytest.mark.parametrize(
    ("options", "change", "words"),
    [
        ({"n_shared": 4}, lambda x, y, g: ([x, y], g), "n_shared"),
        ({"n_view_1": 0}, lambda x, y, g: ([x, y], g), "n_view_1"),
        ({"pooling": "partial"}, lambda x, y, g: ([x, y], g), "pooling must be one of"),
        ({}, lambda x, y, g: (x, g), "views="),
        ({}, lambda x, y, g: ([x, y[1:]], g), "same rows"),
        ({}, lambda x, y, g: ([x, y], None), "one label"),
        ({}, lambda x, y, g: ([x, y], g[1:]), "one label"),
        ({}, lambda x, y, g: ([np.where(x > 2, np.inf, x), y], g), "NaN for missing cells"),
        ({}, lambda x, y, g: ([np.where(np.arange(N1) == 1, np.nan, x), y], g), "view_1_2 of X has no value"),
        ({}, lambda x, y, g: ([x, 0 * y], g), "constant"),
        ({}, lambda x, y, g: ([x, y], np.arange(len(g)) // 2), "three rows"),
        ({}, lambda x, y, g: ([x, y], np.zeros(len(g))), "two groups"),
        ({"views": ([0, 1, 2], [2, 3])}, lambda x, y, g: (x, g), "both views"),
        ({"views": ([0, 1, 2], ["z"])}, lambda x, y, g: (x, g), "no column 'z'"),
        ({"views": ([0, 1, 2], [99])}, lambda x, y, g: (x, g), "column 99"),
    ],
)
def test_errors_of_the_input(data, options, change, words):
    rows, groups = data
    X, labels = change(rows[:, :N1], rows[:, N1:], groups)
    with pytest.raises(ValueError, match=words):
        HierarchicalCCA(**options).fit(X, labels)


@pytest.mark.thorough
def test_errors_of_predictions(fitted, data):
    rows, groups = data
    with pytest.raises(NotFittedError):
        HierarchicalCCA().predict(rows[:, :N1], groups)
    with pytest.raises(ValueError, match="'d' is not in the fit; expected one of a, b, c"):
        fitted.predict(rows[:3, :N1], ["a", "d", "a"])
    with pytest.raises(ValueError, match=r"found None. The fit had groups such as 'a'. A Pipeline passes its y as"):
        fitted.predict(rows[:3, :N1])
    with pytest.raises(ValueError, match="view 2 as 3 rows of 4"):
        fitted.predict(rows[:3, :N1], groups[:3], view=1)
    with pytest.raises(ValueError, match="view must be 1 or 2"):
        fitted.predict(rows[:3, :N1], groups[:3], view=3)


@pytest.mark.slow
def test_complete_and_separate_recover_too(data, truth):
    """The same data with the other poolings: chains agree; complete pooling has one matrix for all groups."""
    rows, groups = data
    for which in ("separate", "complete"):
        model = HierarchicalCCA(pooling=which, num_warmup=400, num_samples=400, num_chains=4, random_state=0)
        group = model.fit([rows[:, :N1], rows[:, N1:]], groups).posterior_["posterior"]
        assert float(rhat(group["shared_1"].values).max()) < 1.03
        assert "common_shared_1" not in group
        is_one = np.ptp(group["shared_1"].values, axis=2).max() < 1e-12
        assert is_one == (which == "complete")


@pytest.mark.slow
def test_shrinkage(truth):
    """Of groups whose matrices are alike the hierarchical posterior is narrower than the separate one, and not worse."""
    rows, places = _simulated(truth, 20, (12, 40, 80))
    widths, errors = [], []
    for which in ("separate", "hierarchical"):
        model = HierarchicalCCA(
            pooling=which, standardize=False, num_warmup=400, num_samples=400, num_chains=4, random_state=1
        )
        draws = model.fit([rows[:, :N1], rows[:, N1:]], places).draws(None)
        low, high = np.quantile(draws.shared_1[:, 0], [0.05, 0.95], axis=0)
        widths.append((high - low).mean())
        cosine = np.abs((draws.shared_1[:, 0] * truth.shared_1[0]).sum(axis=-2))
        errors.append(np.degrees(np.arccos(np.clip(cosine, 0, 1))).mean())
    assert widths[1] < widths[0]
    assert errors[1] < errors[0] + 2


def _invariants(position, theta):
    """What no sign touches: a spread, a product of scales, a noise, the angle between groups, a deviation's size."""
    return jnp.stack(
        [
            position["log_spreads"][0],
            jnp.sum(position["log_spreads"]),
            jnp.log(theta.shared_scale_1[0, 0] * theta.shared_scale_2[0, 0]),
            jnp.log(theta.noise_1[1]),
            jnp.abs(jnp.sum(theta.shared_1[0] * theta.shared_1[1])),
            jnp.abs(jnp.sum(theta.own_2[0] * theta.own_2[1])),
            jnp.sum(position["deviations"] ** 2),
        ]
    )


@pytest.mark.slow
def test_ranks_of_prior_draws_are_uniform():
    """Simulation-based calibration of the hierarchical posterior, with charts that do not come from the data."""
    generator = np.random.default_rng(21)
    reference = Frames(*(_frame(generator, 3, 1) for _ in range(4)))
    shape, prior = pooling.layout(2, reference), CCAPrior(1.0, 1.0, 1.0, 0.3)
    count, places, num_warmup, num_samples = 8, np.repeat([0, 1], 40), 400, 600

    @jax.jit
    def run(statistics, start, key):
        algorithm = nuts(pooling.log_density(statistics, shape, prior), target_acceptance_rate=0.9)
        adaptation = algorithm.adapt(num_warmup)

        def warm_up(carry, item):
            state, adapted = carry
            key, iteration = item
            key_step, key_update = jax.random.split(key)
            state, info = algorithm.step(key_step, state)
            adapted, state = adaptation.update(key_update, adapted, state, info, iteration)
            return (state, adapted), None

        def draw(state, key):
            state, _ = algorithm.step(key, state)
            return state, _invariants(state.position, pooling.parameters(state.position, shape))

        key_warmup, key_draws = jax.random.split(key)
        state = adaptation.begin(algorithm.init(start))
        items = (jax.random.split(key_warmup, num_warmup), jnp.arange(num_warmup))
        (state, _), _ = jax.lax.scan(warm_up, (state, adaptation.init(state)), items)
        return jax.lax.scan(draw, state, jax.random.split(key_draws, num_samples))[1]

    scores = []
    for repetition in range(24):
        common = []
        for chart in shape.charts:
            uniform = generator.standard_normal((3, 1))
            common.append(chart.inverse(jnp.asarray(uniform / np.linalg.norm(uniform))))
        widths = np.sqrt([3.0, 3.0, 3.0, 3.0, 1.0, 1.0])
        position = {
            "common": jnp.concatenate(common),
            "deviations": jnp.asarray(generator.standard_normal((2, count))),
            "log_spreads": jnp.asarray(np.log(np.abs(0.3 * generator.standard_normal(4)))),
            "log_scales": jnp.asarray(np.log(np.abs(widths * generator.standard_normal((2, 6))))),
            "means": jnp.asarray(generator.standard_normal((2, 6))),
        }
        theta = pooling.parameters(position, shape)
        empty = (jnp.zeros((80, 6)), jnp.asarray(places), jnp.zeros((80, 6), bool))
        rows = np.asarray(density.draw_rows(jax.random.key(repetition), theta, *empty))
        statistics = density.grouped_rows(rows, places)
        estimate = pooling.pooled_estimate(statistics, 3, (1, 1, 1))
        key_start, key_run = jax.random.split(jax.random.key(1000 + repetition))
        start = _arrays(pooling.starting_point(key_start, statistics, estimate, "hierarchical"))
        # the charts are fixed beforehand; the chain begins at what the data suggest in them
        near = [chart.inverse(jnp.asarray(f)) for chart, f in zip(shape.charts, estimate.frames, strict=True)]
        start["common"] = jnp.clip(jnp.concatenate(near), -3.0, 3.0)
        draws = np.asarray(run(_arrays(statistics), start, key_run))
        ranks = np.mean(draws < np.asarray(_invariants(position, theta)), axis=0)
        scores.append(norm.ppf(np.clip(ranks, 1e-3, 1 - 1e-3)))
    scores = np.asarray(scores)
    assert np.abs(scores.mean(axis=0) * np.sqrt(len(scores))).max() < 4
    assert np.abs(((scores**2).mean(axis=0) - 1) * np.sqrt(len(scores) / 2)).max() < 4


@pytest.mark.thorough
def test_fit_transform_is_a_fit_and_a_transform(data):
    """Where cells are missing too."""
    views, groups = _lacking(data)
    model = HierarchicalCCA(num_warmup=10, num_samples=5, num_chains=1, random_state=0)
    latent = model.fit_transform(views, groups)
    assert np.isfinite(latent).all()
    np.testing.assert_array_equal(latent, model.transform(views, groups))


def test_log_likelihoods_of_single_draws(data, fitted):
    rows, groups = data
    views = [rows[:, :N1], rows[:, N1:]]
    tree = fitted.with_log_likelihood(views, groups)
    one = deepcopy(fitted)
    one.posterior_ = fitted.posterior_.isel(chain=[1], draw=[7])
    np.testing.assert_allclose(tree["log_likelihood"]["x"][1, 7], one.score_samples(views, groups))
