"""Mass matrices with correlations: the estimate, the leapfrog step and the samplers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.diagnostics.convergence import ess
from geodax.mcmc.integrators import IntegratorState, leapfrog, logdensity_and_gradient
from geodax.mcmc.mass_matrix import (
    Correlation,
    MassMatrix,
    Rows,
    correlated,
    estimate,
    initial_mass,
    log_growth,
    room_for,
    rows_to_keep,
)
from tests.marks import slow


def covariance_of(dim: int, correlation: float, generator: np.random.Generator) -> np.ndarray:
    """Equal correlations, standard deviations over two orders of magnitude."""
    deviations = np.exp(generator.uniform(-2, 2, dim))
    return np.outer(deviations, deviations) * (correlation + (1 - correlation) * np.eye(dim))


def factors_of(dim: int, num_factors: int, generator: np.random.Generator) -> np.ndarray:
    """A few long directions and a few short ones, in a diagonal scaling."""
    directions, _ = np.linalg.qr(generator.standard_normal((dim, 2 * num_factors)))
    variances = np.concatenate([np.full(num_factors, 100.0), np.full(num_factors, 0.01)])
    scaled = np.eye(dim) + (directions * (variances - 1)) @ directions.T
    deviations = np.exp(generator.uniform(-1, 1, dim))
    return np.outer(deviations, deviations) * scaled


def rows_of(covariance: np.ndarray, num_rows: int, generator: np.random.Generator, room: int | None = None) -> Rows:
    """Draws of a normal distribution with mean 3 and their gradients, then rows that do not count."""
    offsets = generator.multivariate_normal(np.zeros(len(covariance)), covariance, num_rows)
    gradients = -np.linalg.solve(covariance, offsets.T).T
    rest = np.full(((room or num_rows) - num_rows, len(covariance)), 1e3)
    return Rows(jnp.asarray(np.vstack([3.0 + offsets, rest])), jnp.asarray(np.vstack([gradients, -rest])))


def inverse_mass(mass: MassMatrix) -> np.ndarray:
    """The matrix that a mass matrix stands for; its scales are one vector."""
    columns = jax.vmap(lambda x: mass.scale * correlated(mass, x, True), out_axes=1)(
        jnp.eye(len(mass.scale), dtype=mass.scale.dtype)
    )
    return np.asarray(columns @ columns.T)


def condition(covariance: np.ndarray, mass: MassMatrix) -> float:
    """Condition number of a covariance in units of a mass matrix."""
    values = np.linalg.eigvals(np.linalg.solve(inverse_mass(mass), covariance)).real
    return float(values.max() / values.min())


def check_few_large_and_many_small_eigenvalues():
    """Catches as many extreme eigenvalues as the rank where more are equally small and one is large."""
    generator = np.random.default_rng(3)
    covariance = covariance_of(60, 0.98, generator)
    rows = rows_of(covariance, 100, generator)
    scale = jnp.asarray(rows.draws.std(axis=0))
    before = initial_mass("low_rank", gx.Euclidean(), scale).correlation
    found = estimate(rows, jnp.asarray(100), scale, scale, before, True)
    assert condition(covariance, found) < 4


def check_estimate_of_a_normal_distribution(num_rows):
    """Catches a covariance of draws alone, which is far from exact with 30 draws of 12 entries, and rows that do
    not count."""
    generator = np.random.default_rng(1)
    covariance = covariance_of(12, 0.95, generator)
    rows = rows_of(covariance, num_rows, generator, room=num_rows + 7)
    scale = jnp.asarray(rows.draws[:num_rows].std(axis=0))
    before = initial_mass("dense", gx.Euclidean(), scale).correlation
    found = estimate(rows, jnp.asarray(num_rows), scale, scale, before, True)
    units = np.outer(scale, scale)
    values, vectors = np.linalg.eigh(covariance / units)
    expected = units * ((vectors * values ** (num_rows / (num_rows + 5))) @ vectors.T)
    np.testing.assert_allclose(inverse_mass(found), expected, rtol=0.02, atol=1e-3 * np.abs(expected).max())


class TestEstimate:
    @pytest.mark.parametrize("num_rows", [30, 400])
    def test_is_exact_for_a_normal_distribution(self, num_rows):
        check_estimate_of_a_normal_distribution(num_rows)

    @pytest.mark.thorough
    @pytest.mark.parametrize(("dim", "dtype"), [(60, "float64"), (400, "float64"), (60, "float32")])
    def test_low_rank_finds_long_and_short_directions(self, dim, dtype):
        """In 60 dimensions the rows span the space, in 400 they do not; 2 x 5 directions lie 10^4 apart."""
        generator = np.random.default_rng(2)
        covariance = factors_of(dim, 5, generator)
        rows = jax.tree.map(lambda x: x.astype(dtype), rows_of(covariance, 128, generator))
        scale = jnp.asarray(rows.draws.std(axis=0))
        before = initial_mass("low_rank", gx.Euclidean(), scale).correlation
        diagonal = condition(covariance, MassMatrix(scale))
        found = condition(covariance, estimate(rows, jnp.asarray(128), scale, scale, before, True))
        assert diagonal > 1000
        assert found < 0.05 * diagonal

    @pytest.mark.thorough
    @pytest.mark.parametrize(("num_rows", "gain"), [(50, 10), (200, 100)])
    def test_factors_with_fewer_rows_than_entries(self, num_rows, gain):
        """Catches an estimate in the span of all rows, where draws and gradients are nearly collinear."""
        generator = np.random.default_rng(4)
        loadings = generator.standard_normal((300, 8))
        covariance = np.eye(300) + 3.0 * loadings @ loadings.T
        rows = rows_of(covariance, num_rows, generator)
        scale = jnp.asarray(rows.draws.std(axis=0))
        before = initial_mass("low_rank", gx.Euclidean(), scale).correlation
        found = estimate(rows, jnp.asarray(num_rows), scale, scale, before, True)
        assert gain * condition(covariance, found) < condition(covariance, MassMatrix(scale))

    @pytest.mark.thorough
    def test_as_many_long_directions_as_the_rank(self):
        """Catches the median of the eigenvalues found in place of the common value of all other directions."""
        generator = np.random.default_rng(6)
        directions, _ = np.linalg.qr(generator.standard_normal((200, 36)))
        covariance = np.eye(200) + 400.0 * directions @ directions.T
        rows = rows_of(covariance, 500, generator)
        scale = jnp.ones(200)
        before = initial_mass("low_rank", gx.Euclidean(), scale).correlation
        found = estimate(rows, jnp.asarray(500), scale, scale, before, True)
        assert 0.7 < float(found.scale[0]) < 5.0

    @pytest.mark.thorough
    def test_few_large_and_many_small_eigenvalues(self):
        check_few_large_and_many_small_eigenvalues()

    def test_keeps_the_previous_one_without_usable_draws(self):
        scale = jnp.ones(3)
        before = Correlation(jnp.eye(3), jnp.array([2.0, 1.0, 0.5]))
        rows = Rows(jnp.full((8, 3), jnp.nan), jnp.zeros((8, 3)))
        for count in (0, 1, 8):
            found = estimate(rows, jnp.asarray(count), scale, scale, before, True)
            np.testing.assert_array_equal(found.correlation.roots, before.roots)
            np.testing.assert_array_equal(found.scale, scale)

    def test_room(self):
        """Catches as few draws as directions, and memory that grows without bound."""
        for dim, room in [(90, 360), (300, 512), (2_000, 256), (10_000, 256)]:
            assert room_for(Correlation(jnp.zeros((dim, 32)), jnp.ones(32)), 1_000) == room

    def test_rank(self):
        """The default stops at 10,000 entries; one entry alone has no correlations."""
        for kind, dim, rank in [("dense", 90, 90), ("low_rank", 90, 32), (None, 90, 32), (None, 3, 3)]:
            scale = jnp.ones(dim)
            assert initial_mass(kind, gx.Euclidean(), scale).correlation.vectors.shape == (dim, rank)
        for kind, dim in [("diagonal", 30), ("dense", 1), (None, 10_001)]:
            assert initial_mass(kind, gx.Euclidean(), jnp.ones(dim)).correlation == ()


def mixed_mass():
    generator = np.random.default_rng(4)
    vectors, _ = np.linalg.qr(generator.standard_normal((7, 3)))
    scale = {"frame": jnp.asarray(0.3), "x": jnp.array([1.0, 2.0, 0.5]), "z": jnp.array([0.7, 3.0])}
    return MassMatrix(scale, Correlation(jnp.asarray(vectors), jnp.array([3.0, 0.2, 5.0])))


def mixed_tree():
    generator = np.random.default_rng(5)
    z = generator.standard_normal(2) + 1j * generator.standard_normal(2)
    frame, _ = np.linalg.qr(generator.standard_normal((4, 2)))
    return {"frame": jnp.asarray(frame), "x": jnp.asarray(generator.standard_normal(3)), "z": jnp.asarray(z)}


def check_leapfrog_with_correlations():
    """Catches a C in only one of kick and flow, and one that is not transposed: the energy would drift."""
    mass, tree = mixed_mass(), mixed_tree()
    manifold = gx.Product({"frame": gx.Stiefel()})
    target = jnp.array([1.0, -2.0, 0.5])

    def logdensity(position):
        z = position["z"]
        quadratic = jnp.sum((position["x"] - target) ** 2) + jnp.sum(jnp.abs(z - (1 + 2j)) ** 2)
        return jnp.sum(position["frame"] * jnp.arange(8.0).reshape(4, 2)) - quadratic - jnp.sum(position["x"]) ** 2

    evaluate = logdensity_and_gradient(logdensity, manifold)
    step = jax.jit(leapfrog(evaluate, manifold))
    momentum = manifold.sample_momentum(jax.random.key(1), tree)
    start = IntegratorState(tree, momentum, *evaluate(tree))

    def energy(state: IntegratorState) -> float:
        return float(manifold.kinetic_energy(state.position, state.momentum) - state.logdensity)

    errors = []
    for num_steps in (40, 80):
        state = start
        for _ in range(num_steps):
            state = step(state, jnp.asarray(1.0 / num_steps), mass)
        errors.append(abs(energy(state) - energy(start)))
        for _ in range(num_steps):
            state = step(state, jnp.asarray(-1.0 / num_steps), mass)
        for found, expected in zip(jax.tree.leaves(state.position), jax.tree.leaves(tree), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    assert 2.5 < errors[0] / errors[1] < 6


class TestMatrix:
    def test_inverse_and_other_leaves(self):
        mass, tree = mixed_mass(), mixed_tree()
        flat = {"frame": False, "x": True, "z": True}
        there = correlated(mass, tree, flat)
        assert float(jnp.abs(there["x"] - tree["x"]).max()) > 0.01
        assert float(jnp.abs(there["z"] - tree["z"]).max()) > 0.01
        for found, expected in zip(
            jax.tree.leaves(correlated(mass, there, flat, inverse=True)), jax.tree.leaves(tree), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_array_equal(there["frame"], tree["frame"])

    def test_growth_is_the_largest_singular_value(self):
        generator = np.random.default_rng(6)

        def random_mass() -> MassMatrix:
            vectors, _ = np.linalg.qr(generator.standard_normal((6, 6)))
            scale = jnp.asarray(np.exp(generator.standard_normal(6)))
            return MassMatrix(
                scale, Correlation(jnp.asarray(vectors), jnp.asarray(np.exp(generator.uniform(-2, 2, 6))))
            )

        def matrix(mass: MassMatrix) -> np.ndarray:
            return np.asarray(jax.vmap(lambda x: mass.scale * correlated(mass, x, True), out_axes=1)(jnp.eye(6)))

        for _ in range(5):
            old, new = random_mass(), random_mass()
            expected = np.log(np.linalg.norm(np.linalg.solve(matrix(old), matrix(new)), 2))
            found = float(log_growth(old, new, old.scale, True))
            assert expected - 0.1 < found < expected + 1e-9

    @pytest.mark.thorough
    def test_leapfrog_is_reversible_and_second_order(self):
        check_leapfrog_with_correlations()


def test_rows_are_spread_over_their_window():
    is_slow, is_end = np.zeros(100, bool), np.zeros(100, bool)
    is_slow[10:90], is_end[[29, 89]] = True, True
    first, count = rows_to_keep(is_slow, is_end, 2, 40)
    assert (first[:10] == 40).all()
    assert (first[90:] == 40).all()
    np.testing.assert_array_equal(first[10:30], 2 * np.arange(20))  # as many as there is room for
    assert count[29] == 40
    kept = 30 + np.flatnonzero(first[30:90] < 40)
    np.testing.assert_array_equal(np.diff(kept), 3)  # evenly, every third iteration
    assert count[89] == 2 * len(kept) == 40
    np.testing.assert_array_equal(first[kept], 2 * np.arange(20))


@pytest.mark.parametrize("num_new", [1, 3, 5, 7])
def test_rows_never_exceed_the_room(num_new):
    """Catches a count of draws for some of which there was no room: their mean would be wrong."""
    for length in range(1, 400):
        is_slow, is_end = np.ones(length, bool), np.zeros(length, bool)
        is_end[-1] = True
        first, count = rows_to_keep(is_slow, is_end, num_new, 128)
        kept = np.flatnonzero(first < 128)
        assert count[-1] == num_new * len(kept) <= 128
        assert first[kept[-1]] + num_new <= 128


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("hmc", "dense"),
        ("nuts", "low_rank"),
        slow("nuts", "dense"),
        slow("hmc", "low_rank"),
    ],
)
def test_correlated_normal(name, kind, key):
    """Twenty entries with correlations of 0.98, on which a diagonal mass matrix has some ten effective draws: the moments,
    and short trajectories."""
    dim = 20
    covariance = covariance_of(dim, 0.98, np.random.default_rng(7))
    precision = jnp.asarray(np.linalg.inv(covariance))
    mean = jnp.linspace(-3.0, 3.0, dim)
    sampler = getattr(gx, name)(lambda x: -0.5 * (x - mean) @ precision @ (x - mean), mass_matrix=kind)
    num_chains = 4 if name == "nuts" else 32
    draws = gx.sample(
        key,
        sampler,
        lambda key: 3.0 * jax.random.normal(key, (dim,)),
        num_samples=4000 // num_chains,
        num_warmup=1000 // (1 if name == "nuts" else 3),
        num_chains=num_chains,
        progress=False,
    )
    x = draws["posterior"]["position"].values.astype(np.float64)
    assert float(draws["sample_stats"]["n_steps"].mean()) < 12
    effective = ess(x)
    assert effective.min() > 1500
    error = (x.mean(axis=(0, 1)) - np.asarray(mean)) / np.sqrt(np.diag(covariance) / effective)
    assert np.abs(error).max() < 4.5
    white = np.linalg.solve(np.linalg.cholesky(covariance), (x.reshape(-1, dim) - np.asarray(mean)).T)
    np.testing.assert_allclose(np.cov(white), np.eye(dim), atol=0.15)


class Positive(gx.Euclidean):
    """Positive numbers with the metric dx^2 / x^2, whose momenta change along the flow."""

    def is_flat(self, x):
        return False

    def momentum(self, x, z):
        return z / x

    def kinetic_energy(self, x, r):
        return 0.5 * jnp.sum((x * r) ** 2)

    def velocity(self, x, r):
        return x**2 * r

    def flow(self, x, r, t):
        factor = jnp.exp(t * x * r)
        return factor * x, r / factor

    def random_point(self, key, like):
        return jnp.exp(super().random_point(key, like))


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.nuts, gx.adjusted_mclmc])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_curved_leaves_with_the_shape_of_their_scales(shape, sampler):
    """Catches a leaf that is taken for a Euclidean one, whose momentum then stays what it was: the mean would be 0.4.

    A gamma distribution of shape 3 and rate 1.5, beside two correlated numbers.
    """
    manifold = gx.Product({"x": Positive()})
    precision = jnp.linalg.inv(jnp.array([[1.0, 0.9], [0.9, 1.0]]))

    def logdensity(at):
        return jnp.sum(3.0 * jnp.log(at["x"]) - 1.5 * at["x"]) - 0.5 * at["y"] @ precision @ at["y"]

    like = {"x": jnp.zeros(shape), "y": jnp.zeros(2)}
    run = gx.sample(
        jax.random.key(0),
        sampler(logdensity, manifold=manifold, mass_matrix="dense"),
        lambda key: manifold.random_point(key, like),
        num_warmup=300,
        num_samples=300,
        num_chains=16,
        progress=False,
    )["posterior"]
    for found, exact in ((run["x"], 2.0), (run["x"] ** 2, 16.0 / 3.0), (run["y"][..., 0] * run["y"][..., 1], 0.9)):
        means = np.asarray(found).reshape(16, 300, -1).mean(axis=(1, 2))
        assert abs(means.mean() - exact) < 4 * means.std(ddof=1) / 4
