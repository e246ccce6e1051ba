"""Bayesian PCA of wide tables: principal axes against the density in all columns, and what the programs cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import geodax as gx
from geodax.models.pca import density as ppca
from geodax.models.pca import reduced as ppca_reduced
from geodax.models.pca.density import PPCAParameters, PPCAPrior
from geodax.models.pca.observations import observations

PRIOR = PPCAPrior(0.7, 1.3, 0.9)


def _table(rows: int, n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    scores = generator.standard_normal((rows, 2)) * [2.0, 1.1]
    data = scores @ generator.standard_normal((2, n)) + generator.standard_normal((rows, n))
    return data - data.mean(axis=0)


def _position(data, p: int, seed: int) -> dict:
    """Neither on the axes nor near the start."""
    generator = np.random.default_rng(seed)
    n, r = data.basis.shape
    frame, _ = np.linalg.qr(generator.standard_normal((r + p if r < n else n, p)))
    return {
        "components": jnp.asarray(frame),
        "log_gaps": jnp.asarray(0.3 * generator.standard_normal(p)),
        "log_noise": jnp.asarray(-0.4 + 0.2 * generator.standard_normal()),
    }


def _log_mean_density(theta: PPCAParameters, num_rows: int) -> float:
    """Log density of the mean given all else, by a covariance matrix of all columns."""
    w, n = np.asarray(theta.components), theta.mean.shape[0]
    covariance = (w * np.asarray(theta.scale) ** 2) @ w.T + float(theta.noise) ** 2 * np.eye(n)
    precision = num_rows * np.linalg.inv(covariance) + np.eye(n) / PRIOR.mean_scale**2
    mean = np.asarray(theta.mean)
    return float(0.5 * np.linalg.slogdet(precision)[1] - 0.5 * mean @ precision @ mean)


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "n", "p"), [(6, 11, 2), (4, 30, 3), (300, 260, 2), (300, 260, 260), (257, 258, 3)])
def test_density_is_that_of_all_columns(rows, n, p):
    """Up to one constant, once the mean is divided out and the volume of what is outside of the span put in."""
    table = _table(rows, n)
    data = ppca_reduced.reduced_observations(table, p)
    r = data.basis.shape[1]
    assert r == (rows - 1 if rows + p < n else n)
    functions = ppca_reduced.log_density(data, PRIOR), ppca_reduced.parameters(data, PRIOR)
    reduced, draw, whole = map(jax.jit, (*functions, ppca.log_density(observations(table), PRIOR)))
    differences = []
    for seed in range(3):
        position = _position(data, p, seed)
        if p == n:  # then the noise may come near zero
            position["log_noise"] = jnp.log(10.0 ** (-3 * seed))
        theta = draw(position)
        np.testing.assert_allclose(theta.components.T @ theta.components, np.eye(p), atol=1e-13)
        inner, outer = position["components"][:r], np.asarray(position["components"][r:])
        np.testing.assert_allclose(data.basis.T @ theta.components, inner, atol=1e-13)
        volume = (n - r - p) * np.linalg.slogdet(outer)[1] if len(outer) else 0.0
        expected = whole(position | {"components": theta.components, "mean": theta.mean})
        expected = float(expected) - _log_mean_density(theta, rows) + volume
        differences.append(float(reduced(position)) - expected)
    np.testing.assert_allclose(differences, differences[0], atol=1e-10 * abs(float(expected)))


@pytest.mark.thorough
def test_gradients_are_those_of_all_columns():
    """With respect to the loadings within the table's span, the scales and the noise, at a mean that is fixed to zero."""
    rows, n, p = 6, 40, 2
    table = _table(rows, n)
    data = ppca_reduced.reduced_observations(table, p)
    r = data.basis.shape[1]
    position = _position(data, p, 1)
    theta = jax.jit(ppca_reduced.parameters(data, PRIOR))(position)

    def without_mean(position):
        """The density of all columns at the mean zero, over that of this mean given all else."""
        found = ppca.parameters(position)
        spectrum, noise = found.scale**2 + found.noise**2, found.noise
        along, across = rows / spectrum + PRIOR.mean_scale**-2, rows / noise**2 + PRIOR.mean_scale**-2
        determinant = jnp.sum(jnp.log(along)) + (n - p) * jnp.log(across)
        return ppca.log_density(observations(table), PRIOR)(position) - 0.5 * determinant

    whole = jax.jit(jax.grad(without_mean))(position | {"components": theta.components, "mean": jnp.zeros(n)})
    found = jax.jit(jax.grad(ppca_reduced.log_density(data, PRIOR)))(position)
    np.testing.assert_allclose(found["components"][:r], data.basis.T @ whole["components"], rtol=1e-10, atol=1e-10)
    for name in ("log_gaps", "log_noise"):
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-10)
    outer = position["components"][r:]
    np.testing.assert_allclose(found["components"][r:], (n - r - p) * jnp.linalg.inv(outer).T, rtol=1e-10)


def test_fewer_rows_than_columns_give_the_density_of_the_scatter_matrix():
    """Where there are missing cells too: value and gradient."""
    table = _table(6, 40)
    table[2, 3:9] = table[4, ::2] = np.nan
    data = observations(table)
    assert data.scatter.shape == (4, 40)
    both = [ppca.log_density(d, PRIOR) for d in (data, data._replace(scatter=data.scatter.T @ data.scatter))]
    position = ppca.starting_points(table, 3)(jax.random.key(1)) | {"mean": jnp.linspace(-0.3, 0.5, 40)}
    position = jax.tree.map(jnp.asarray, position)
    found, expected = (jax.jit(jax.value_and_grad(f))(position) for f in both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), found, expected)


@pytest.mark.thorough
def test_loadings_are_uniform_where_the_data_say_nothing():
    """Moments of entries of W within and outside of the span against those of the uniform distribution."""
    n, p, r, num_draws = 7, 2, 3, 200_000
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((n, r)))[0]
    data = ppca_reduced.ReducedObservations(0.0, basis, np.zeros(r))
    key_frame, key_scale = jax.random.split(jax.random.key(3))
    frames = jax.jit(lambda key: gx.distributions.StiefelUniform(r + p, p).sample(key, (num_draws,)))(key_frame)
    scales = jax.random.normal(key_scale, (num_draws, p + 1))
    positions = {"components": frames, "log_gaps": scales[:, :p], "log_noise": scales[:, p]}
    w = np.asarray(jax.jit(jax.vmap(ppca_reduced.parameters(data, PRIOR)))(positions).components)
    logdensity = jax.jit(jax.vmap(ppca_reduced.log_density(data, PRIOR)))
    at_scales = logdensity(positions | {"components": np.broadcast_to(np.eye(r + p, p)[::-1], frames.shape)})
    weight = np.exp(np.asarray(logdensity(positions)) - np.asarray(at_scales))
    weight /= weight.mean()
    for found, expected in (
        (w[:, 0, 0] ** 2, 1 / n),
        (w[:, 6, 1] ** 4, 3 / (n * (n + 2))),
        ((basis[:, 0] @ w[:, :, 0].T) ** 4, 3 / (n * (n + 2))),
        (w[:, 1, 0] ** 2 * w[:, 5, 1] ** 2, (n + 1) / (n * (n - 1) * (n + 2))),
        (w[:, 1, 0] * w[:, 5, 1] * w[:, 1, 1] * w[:, 5, 0], -1 / (n * (n - 1) * (n + 2))),
    ):
        error = np.std(weight * (found - expected)) / np.sqrt(num_draws)
        assert abs(np.mean(weight * (found - expected))) < 4 * error


def test_mean_is_drawn_from_its_conditional_distribution():
    """Covariance of the draws, at one set of loadings and scales; they differ by nothing but the last bits of the noise."""
    table = _table(6, 12)
    data = ppca_reduced.reduced_observations(table, 2)
    position = _position(data, 2, 5)
    noise = float(position["log_noise"]) + 1e-12 * np.arange(40_000)
    draw = jax.jit(jax.vmap(lambda x: ppca_reduced.parameters(data, PRIOR)(position | {"log_noise": x})))
    draws = draw(jnp.asarray(noise))
    theta = PPCAParameters(*(np.asarray(x) for x in draws))
    along = np.einsum("dnp,dn->dp", theta.components, theta.mean)
    across = np.sum(theta.mean**2, axis=1) - np.sum(along**2, axis=1)
    precision = 6 / (theta.scale[0] ** 2 + theta.noise[0] ** 2) + PRIOR.mean_scale**-2
    np.testing.assert_allclose(along.var(axis=0), 1 / precision, rtol=0.03)
    np.testing.assert_allclose(across.mean(), 10 / (6 / theta.noise[0] ** 2 + PRIOR.mean_scale**-2), rtol=0.02)
    np.testing.assert_allclose(np.corrcoef(along.T, across)[np.triu_indices(3, 1)], 0.0, atol=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "n", "p"), [(4, 9, 2), (3, 5, 1), (2, 9, 3)])
def test_factor_analysis_without_the_mean_is_that_of_the_joint_normal(rows, n, p):
    """All cells are jointly normal; the mean is drawn from its conditional distribution."""
    table = _table(rows, n)
    found = ppca_reduced.problem(table, p, PRIOR, is_diagonal=True)
    logdensity_fn, draw = jax.jit(found.logdensity_fn), jax.jit(jax.vmap(lambda at: found.parameters(at)))
    differences, identity = [], np.eye(n)
    for seed in range(3):
        position = jax.tree.map(jnp.asarray, found.start(jax.random.key(seed)))
        assert set(position) == {"components", "log_gaps", "noise"}
        many = jax.tree.map(lambda value: jnp.repeat(value[None], 20_000, axis=0), position)
        many["log_gaps"] = many["log_gaps"] + 1e-9 * jnp.arange(20_000.0)[:, None]  # other bits, other draws
        draws = draw(many)
        w, scale, noise = (np.asarray(value[0]) for value in draws[:3])
        covariance = (w * scale**2) @ w.T + np.diag(noise**2)
        joint = np.kron(np.eye(rows), covariance) + PRIOR.mean_scale**2 * np.kron(np.ones((rows, rows)), identity)
        expected = multivariate_normal(cov=joint).logpdf(table.reshape(-1))
        expected -= 0.5 * (np.sum((scale / PRIOR.scale_scale) ** 2) / n + np.sum((noise / PRIOR.noise_scale) ** 2))
        differences.append(float(logdensity_fn(position)) - expected - float(position["log_gaps"].sum()))
        spread = np.linalg.inv(rows * np.linalg.inv(covariance) + identity / PRIOR.mean_scale**2)
        root = np.linalg.cholesky(np.linalg.inv(spread))
        standard = np.asarray(draws.mean) @ root
        np.testing.assert_allclose(standard.mean(axis=0), 0.0, atol=5 / np.sqrt(20_000))
        np.testing.assert_allclose(standard.T @ standard / 20_000, identity, atol=5 * np.sqrt(2 / 20_000))
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)


def test_tables_of_few_columns_and_missing_cells_stay_in_all_columns():
    """So that their draws stay the same."""
    assert ppca_reduced.reduced_observations(_table(20, 6), 2) is None
    holes = _table(6, 40)
    holes[0, 0] = np.nan
    assert ppca_reduced.reduced_observations(holes, 2) is None
    assert ppca_reduced.reduced_observations(_table(6, 40) + 0.1, 2) is None


def _cost(function, position) -> tuple[float, int]:
    compiled = jax.jit(jax.value_and_grad(function)).lower(position).compile()
    memory = compiled.memory_analysis()
    return compiled.cost_analysis()["flops"], memory.temp_size_in_bytes + memory.output_size_in_bytes


def test_a_gradient_of_a_wide_table_costs_its_rank():
    """50 rows: no more operations for 3,000 columns than for 300, far fewer than columns squared."""
    costs = []
    for n in (300, 3000):
        data = ppca_reduced.reduced_observations(_table(50, n), 2)
        position = ppca_reduced.starting_points(data, 2)(jax.random.key(0))
        costs.append(_cost(ppca_reduced.log_density(data, PRIOR), position))
    assert costs[1] == costs[0]
    assert costs[1][0] < 20_000
    assert costs[1][1] < 100_000


def test_a_gradient_of_a_wide_table_with_missing_cells_costs_its_cells():
    """50 rows with 3,000 columns: linear in the cells."""
    costs = []
    for n in (300, 3000):
        table = _table(50, n)
        table[0, 0] = np.nan
        position = ppca.starting_points(table, 2)(jax.random.key(0))
        costs.append(_cost(ppca.log_density(observations(table), PRIOR), position))
    assert costs[1][0] < 11 * costs[0][0]
    assert costs[1][0] < 20 * 50 * 3000 * 2


def test_the_start_of_a_long_table_asks_for_nothing_larger_than_the_table(monkeypatch):
    """200,000 rows and 20 columns: no matrix of rows by rows, and one decomposition for all chains."""
    calls = []
    for name in ("svd", "eigh"):
        original = getattr(np.linalg, name)

        def counted(x, *args, original=original, **options):
            calls.append((np.shape(x), options.get("full_matrices", False)))
            assert not (
                options.get("full_matrices", len(args) == 0 and original is np.linalg.svd) and max(x.shape) > 1000
            )
            return original(x, *args, **options)

        monkeypatch.setattr(np.linalg, name, counted)
    start = ppca.starting_points(np.random.default_rng(0).standard_normal((200_000, 20)), 2)
    positions = [start(key) for key in jax.random.split(jax.random.key(0), 4)]
    assert all(np.isfinite(x).all() for position in positions for x in position.values())
    assert [shape for shape, _ in calls if shape != (20, 2)] == [(20, 20)]
