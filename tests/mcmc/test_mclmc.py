"""The microcanonical samplers: their distribution, what warm-up finds, failures and arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import _tree
from geodax.mcmc.mclmc import _observed, _restarted
from tests.marks import slow
from tests.suites.chains import assert_agree
from tests.suites.test_known_targets import TARGETS

SCALES = np.array([0.3, 5.0, 1.0])
COVARIANCE = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 1.0]]) * np.outer(SCALES, SCALES)
MEAN = np.array([1.0, -2.0, 0.5])


def normal(dim: int):
    """A correlated normal log density of up to 3 dimensions that is not centred."""
    inverse = np.linalg.inv(COVARIANCE[:dim, :dim])
    return lambda x: -0.5 * (x - MEAN[:dim]) @ jnp.asarray(inverse) @ (x - MEAN[:dim])


def chain_means(algorithm, start, statistics, key, *, num_chains=512, num_discarded=50, num_iterations=400):
    """Averages of each chain over its iterations, and the energy errors or acceptance rates."""

    def chain(key, position):
        def iterate(carry, i):
            state, total = carry
            state, info = algorithm.step(jax.random.fold_in(key, i), state)
            return (state, total + jnp.where(i >= num_discarded, statistics(state.position), 0.0)), info

        state = algorithm.init(position)
        zero = jnp.zeros_like(statistics(position))
        (_, total), info = jax.lax.scan(iterate, (state, zero), jnp.arange(num_discarded + num_iterations))
        return total / num_iterations, info

    key_start, key_run = jax.random.split(key)
    positions = jax.vmap(start)(jax.random.split(key_start, num_chains))
    means, info = jax.jit(jax.vmap(chain))(jax.random.split(key_run, num_chains), positions)
    return np.asarray(means), info


def check_adjusted_on_a_normal(dim: int, key) -> None:
    """Moments at steps that reject a third; in few dimensions a wrong power of the speed shows most."""
    algorithm = gx.adjusted_mclmc(normal(dim), step_size=0.55 / dim**0.5, num_integration_steps=4, length_jitter=0.5)
    rows, columns = np.triu_indices(dim)
    means, info = chain_means(
        algorithm,
        lambda k: MEAN[:dim] + jax.random.normal(k, (dim,)),
        lambda x: jnp.concatenate([x, x[rows] * x[columns]]),
        key,
        num_iterations=1500,
        num_discarded=300,
    )
    second = (COVARIANCE[:dim, :dim] + np.outer(MEAN[:dim], MEAN[:dim]))[rows, columns]
    assert_agree(means, np.concatenate([MEAN[:dim], second]))
    assert 0.4 < float(info.acceptance_rate.mean()) < 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("dim", [2, slow(3)])
def test_adjusted_on_a_normal(dim, key):
    """Catches a wrong power d - 1 in the energy, and momenta that are not uniform."""
    check_adjusted_on_a_normal(dim, key)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["langevin-3x2", slow("both-5x2")])
def test_unadjusted_at_small_steps(name, key):
    """Without rejections the moments are those of the target up to the step's bias: a wrong refreshment or kick."""
    check_unadjusted(name, key)


def check_unadjusted(name: str, key) -> None:
    target, manifold = TARGETS[name], gx.Stiefel()
    algorithm = gx.mclmc(target.logdensity, manifold=manifold, step_size=0.25, length=1.5)
    means, info = chain_means(
        algorithm,
        lambda k: manifold.random_point(k, target.like),
        target.statistics,
        key,
        num_iterations=600,
        num_discarded=100,
    )
    truth = target.truth()
    error = np.hypot(means.std(0) / np.sqrt(len(means)), truth.error)
    bias = np.abs(means.mean(0) - truth.mean)
    assert np.all(bias < 4 * error + 0.01 * truth.spread), bias / truth.spread
    assert not np.any(info.is_divergent)


@pytest.mark.thorough
def test_unadjusted_warm_up_on_a_normal(key):
    """Step size by the energy error, length by the size, standard deviations: wrong units of any of them."""
    scales = np.logspace(-2, 2, 30)
    tree = gx.sample(
        key,
        gx.mclmc(lambda x: -0.5 * jnp.sum((x / scales) ** 2), mass_matrix="diagonal"),
        lambda k: scales * jax.random.normal(k, (30,)),
        num_warmup=3000,
        num_samples=3000,
        num_chains=4,
        progress=False,
    )
    errors = tree["sample_stats"]["energy_change"].values
    assert 2e-4 < np.mean(errors**2) / 30 < 1.2e-3
    np.testing.assert_allclose(tree["adaptation"]["length"], 2.0, rtol=0.2)
    np.testing.assert_allclose(tree["adaptation"]["scale"] / scales, 1.0, atol=0.6)
    spread = tree["posterior"]["position"].values.std((0, 1)) / scales
    np.testing.assert_allclose(spread, 1.0, atol=0.15)


@pytest.mark.thorough
def test_adjusted_warm_up_on_a_product(key):
    """Sixteen chains find the acceptance rate and the moments of a frame beside Euclidean leaves."""
    target = TARGETS["product"]
    tree = gx.sample(
        key,
        gx.adjusted_mclmc(target.logdensity, manifold=gx.Product({"frame": gx.Stiefel()})),
        lambda k: gx.Product({"frame": gx.Stiefel()}).random_point(k, target.like),
        keep=target.statistics,
        num_warmup=500,
        num_samples=1500,
        num_chains=16,
        progress=False,
    )
    assert 0.8 < float(tree["sample_stats"]["acceptance_rate"].mean()) < 0.97
    means = tree["posterior"]["position"].values.mean(1)
    truth = target.truth()
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    # sixteen chains: Student's t with 15 degrees of freedom
    assert np.all(np.abs(means.mean(0) - truth.mean) < 6.5 * np.hypot(error, truth.error))


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.mclmc, slow(gx.adjusted_mclmc)])
def test_a_run_that_goes_on_is_the_same_run(sampler, tmp_path):
    """Catches a momentum, a length or a state of the warm-up that a checkpoint leaves out."""

    def run(num_samples: int, checkpoint=None):
        return gx.sample(
            jax.random.key(3),
            sampler(lambda x: jnp.sum(x[:, 0]), manifold=gx.Stiefel()),
            lambda k: gx.Stiefel().random_point(k, jnp.zeros((4, 2))),
            num_warmup=25,
            num_samples=num_samples,
            num_chains=2,
            checkpoint=checkpoint,
            progress=False,
        )["posterior"]["position"].values

    run(4, tmp_path)
    np.testing.assert_array_equal(run(9, tmp_path), run(9))


def test_momenta_stay_tangent_in_single_precision(key):
    """Rounding that grows from step to step, since the momentum is never drawn anew."""
    manifold = gx.Product({"frame": gx.Stiefel(), "direction": gx.Sphere()})
    like = {"frame": jnp.zeros((5, 2), jnp.float32), "direction": jnp.zeros(4, jnp.float32)}
    algorithm = gx.mclmc(
        lambda x: 20.0 * x["frame"][0, 0] + 30.0 * x["direction"][1], manifold=manifold, step_size=0.2, length=50.0
    )

    @jax.jit
    def run(key):
        key_start, key = jax.random.split(key)
        state = algorithm.init(manifold.random_point(key_start, like))
        state = jax.lax.fori_loop(0, 20_000, lambda i, s: algorithm.step(jax.random.fold_in(key, i), s)[0], state)
        off = _tree.subtract(manifold.project(state.position, state.momentum), state.momentum)
        return manifold.residual(state.position), jnp.sqrt(_tree.dot(off, off))

    residual, off = run(key)
    assert residual < 2e-6
    assert off < 2e-5


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "dtype"),
    [
        (gx.mclmc, jnp.float32),
        (gx.adjusted_mclmc, jnp.float64),
        slow(gx.mclmc, jnp.float64),
        slow(gx.adjusted_mclmc, jnp.float32),
    ],
)
def test_chains_that_start_far_out_come_back(sampler, dtype, key):
    """A strong kick aligns the momentum with the force; past the mode rounding must not let the chain leave for good."""
    tree = gx.sample(
        key,
        sampler(lambda x: -0.5 * jnp.sum(x**2)),
        lambda k: 300.0 * jax.random.normal(k, (3,), dtype),
        num_warmup=1500,
        num_samples=500,
        num_chains=8,
        progress=False,
    )
    assert np.abs(tree["posterior"]["position"].values).max() < 7.0


def test_data_of_a_density_leave_the_motion_as_it_is(key):
    """Catches Hamiltonian motion in the sampler that `logdensity_args` makes."""
    options = {"step_size": 0.4, "num_integration_steps": 3}
    bind = gx.adjusted_mclmc(lambda x, mean: -0.5 * jnp.sum((x - mean) ** 2), **options).description.bind
    fixed = gx.adjusted_mclmc(lambda x: -0.5 * jnp.sum((x - 1.0) ** 2), **options)
    found, expected = (
        a.step(jax.random.clone(key), a.init(jnp.zeros(4)))[0].position for a in (bind(jnp.asarray(1.0)), fixed)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_an_undefined_density_is_never_entered(key):
    """A step into the undefined half that counts as a move; the chain must turn back and stay finite."""
    algorithm = gx.mclmc(lambda x: jnp.where(x[0] > 0, jnp.nan, -0.5 * jnp.sum(x**2)), step_size=0.5)

    def iterate(state, i):
        state, info = algorithm.step(jax.random.fold_in(key, i), state)
        return state, (state.position, state.logdensity, info.is_divergent)

    start = jnp.asarray([-1.0, 0.5, 0.5])
    _, (x, logdensity, is_divergent) = jax.lax.scan(iterate, algorithm.init(start), jnp.arange(500))
    assert np.all(x[:, 0] <= 0)
    assert np.all(np.isfinite(logdensity))
    assert 0 < np.mean(is_divergent) < 0.5
    assert np.std(x[:, 1]) > 0.5


@pytest.mark.parametrize("sampler", [gx.mclmc, gx.adjusted_mclmc])
def test_wrong_arguments(sampler):
    """What would fail silently or later: one dimension, the scheme without an energy, flows that keep no volume."""
    with pytest.raises(ValueError, match=r"at least 2 dimensions, found 1; use nuts or hmc"):
        sampler(lambda x: -jnp.sum(x**2)).init(jnp.zeros(1))
    with pytest.raises(ValueError, match=r"literal"):
        sampler(lambda x: jnp.sum(x), manifold=gx.Stiefel(metric="literal"))
    with pytest.raises(ValueError, match=r"not reversible and volume preserving"):
        sampler(lambda x: jnp.sum(x), manifold=gx.Stiefel(metric="embedded", flow="polar"))
    with pytest.raises(ValueError, match=r"step_size must be a positive number"):
        sampler(lambda x: jnp.sum(x), step_size=0.0)


def test_wrong_arguments_of_the_unadjusted_form():
    """A square frame, whose other component is out of reach, and settings out of range."""
    with pytest.raises(ValueError, match="adjusted_mclmc, nuts or hmc"):
        gx.mclmc(lambda x: jnp.sum(x), manifold=gx.Stiefel()).init(jnp.eye(3))
    for name in ("length", "energy_variance"):
        with pytest.raises(ValueError, match=f"mclmc: {name} must be a positive number"):
            gx.mclmc(lambda x: jnp.sum(x), **{name: -1.0})


@pytest.mark.parametrize("log_ratio", [-4.0, 0.0, 4.5])
def test_energy_errors_far_from_the_target_have_less_weight(log_ratio):
    """Catches a moving average that one outlier decides."""
    before = _restarted(jnp.asarray(0.5))
    after = _observed(before, jnp.exp(log_ratio), jnp.asarray(1.0))
    weight = np.exp(-0.5 * (log_ratio / 9.0) ** 2)
    kept = 149 / 151 * 2.0  # two iterations are the weight of the first step size
    np.testing.assert_allclose(after.weight, kept + weight, rtol=1e-6)
    np.testing.assert_allclose(after.total, kept + weight * np.exp(log_ratio) / 2**6, rtol=1e-6)
