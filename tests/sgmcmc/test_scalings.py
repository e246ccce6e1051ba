"""Scalings by the number of data and the batch, the deduction of noise, and complex leaves, on targets without symmetry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import iv

import geodax as gx
from tests.suites.stochastic import bias, chain_means

NUM_DATA, BATCH = 40, 5


def posterior():
    return gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum((t - 0.3) ** 2) / 4,
        log_likelihood=lambda t, y: -0.5 * jnp.sum((y - t[None]) ** 2, axis=-1) / 9,
        num_data=NUM_DATA,
    )


def mean_gradient(t, y):
    return ((t - 0.3) / 4 + NUM_DATA * np.mean(t - y, axis=0) / 9) / NUM_DATA


def batch():
    return np.random.default_rng(3).normal(2.0, 3.0, size=(BATCH, 2))


def check_clipping(key):
    """The norm of the gradient of the *mean* potential is bounded."""
    t, y, step_size = np.array([4.0, -2.0]), batch(), 1e-3
    mean = mean_gradient(t, y)
    length = np.linalg.norm(mean)
    for share, expected in ((0.25, 0.25), (1.5, 1.0)):
        algorithm = gx.sgrld(posterior(), step_size=step_size, temperature=0.0, clip_norm=share * length)
        after, info = algorithm.step(jax.random.clone(key), algorithm.init(jnp.asarray(t)), jnp.asarray(y))
        np.testing.assert_allclose(info.gradient_scale, expected, rtol=1e-12)
        np.testing.assert_allclose(after.position, t - step_size * NUM_DATA * expected * mean, rtol=1e-12)


@pytest.mark.thorough
def test_clipping(key):
    check_clipping(key)


@pytest.mark.parametrize("ordering", ["paper", "baoab", "ubu"])
def test_clipping_of_sghmc(key, ordering):
    """From rest without noise the momentum is proportional to the gradient; catches an ordering that is left out."""
    t, y = jnp.array([4.0, -2.0]), jnp.asarray(batch())
    bound = 0.25 * float(np.linalg.norm(mean_gradient(np.asarray(t), np.asarray(y))))
    after = {}
    for clip_norm in (None, bound, 10 * bound):
        algorithm = gx.sghmc(posterior(), step_size=1e-3, temperature=0.0, clip_norm=clip_norm, ordering=ordering)
        after[clip_norm] = algorithm.step(jax.random.clone(key), algorithm.init(t), y)
    for clip_norm, expected in ((bound, 0.25), (10 * bound, 1.0)):
        np.testing.assert_allclose(after[clip_norm][0].momentum, expected * after[None][0].momentum, rtol=1e-9)
        np.testing.assert_allclose(after[clip_norm][1].gradient_scale, expected, rtol=1e-9)
    assert float(after[None][1].gradient_scale) == 1.0


def test_the_strongest_clipping_of_the_inner_steps_is_reported(key):
    """Catches the factor of the last step only, which is larger on the way downhill."""
    options = {"step_size": 0.3, "friction": 0.5, "temperature": 0.0, "clip_norm": 0.5}
    algorithm = gx.sghmc(lambda t: -0.5 * jnp.sum(t**2), **options)
    state, scales = algorithm.init(jnp.array([2.0, 1.0])), []
    for _ in range(5):
        state, info = algorithm.step(jax.random.clone(key), state)
        scales.append(float(info.gradient_scale))
    together = gx.sghmc(lambda t: -0.5 * jnp.sum(t**2), num_inner_steps=5, **options)
    after, info = together.step(jax.random.clone(key), together.init(jnp.array([2.0, 1.0])))
    np.testing.assert_allclose(after.position, state.position, rtol=1e-12)
    assert float(info.gradient_scale) == pytest.approx(min(scales))
    assert scales[-1] > 1.05 * min(scales)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
def test_metrics_learn_from_the_mean(key, sampler):
    check_mean(key, sampler)


def check_mean(key, sampler):
    t, y = np.array([4.0, -2.0]), batch()
    algorithm = sampler(posterior(), metric=gx.metrics.RMSProp(), step_size=1e-12)
    state, _ = algorithm.step(key, algorithm.init(jnp.asarray(t)), jnp.asarray(y))
    np.testing.assert_allclose(state.metric.squares, mean_gradient(t, y) ** 2, rtol=1e-6)


def stationary_variance(key, ordering, deviation):
    """Of a position under N(3, 1/4) whose gradient has noise: a step is linear, so two moments of it say all."""
    num = 300_000

    def density(x):
        return -2.0 * jnp.sum((x - 3.0) ** 2)

    def perturb(key, g):
        return g + deviation * jax.random.normal(key, g.shape, g.dtype)

    settings = {"step_size": 0.15, "friction": 0.4, "ordering": ordering}
    noisy = gx.sghmc(density, gradient_noise=deviation, perturb_gradient=perturb, **settings)
    still = gx.sghmc(density, temperature=0.0, **settings)

    def moved(algorithm, key, x, r):
        state = algorithm.init(x)._replace(momentum=r)
        after = jax.jit(algorithm.step)(key, state)[0]
        return np.stack([np.asarray(after.position) - 3.0, np.asarray(after.momentum)])

    keys = jax.random.split(key)
    matrix = moved(still, keys[0], jnp.array([4.0, 3.0]), jnp.array([0.0, 1.0]))
    added = np.cov(moved(noisy, keys[1], jnp.full(num, 3.0), jnp.zeros(num)))
    covariance = np.linalg.solve(np.eye(4) - np.kron(matrix, matrix), added.reshape(4))
    return covariance[0]


def check_deduction(key, ordering):
    """Noise of the gradient that is deducted leaves the law as it was; left in, it is a quarter too wide."""
    keys = jax.random.split(key)
    found = stationary_variance(keys[0], ordering, 2.5) / stationary_variance(keys[1], ordering, 0.0)
    assert found == pytest.approx(1.0, abs=4.5 * np.sqrt(2 * 2 / 300_000))


@pytest.mark.parametrize("ordering", ["paper", "baoab"])
def test_deduction(key, ordering):
    check_deduction(key, ordering)


CENTER = np.array([1.0 - 0.5j, -0.4 + 2.0j])
PRECISION = np.array([[2.0, 0.8], [0.8, 1.0]])  # of the real and the imaginary part of an entry


def complex_normal(z):
    apart = z - jnp.asarray(CENTER)
    parts = jnp.stack([apart.real, apart.imag])
    return -0.5 * jnp.sum(parts * (jnp.asarray(PRECISION) @ parts))


def parts_and_products(z):
    apart = z - jnp.asarray(CENTER)
    return jnp.concatenate([apart.real, apart.imag, apart.real**2, apart.imag**2, apart.real * apart.imag])


def check_complex_normal(key, ordering="baoab"):
    """Catches the gradient of the conjugate, under which nothing with an imaginary part is stationary."""
    algorithm = gx.sghmc(complex_normal, step_size=0.2, friction=0.3, ordering=ordering)
    starts = jnp.broadcast_to(jnp.asarray(CENTER), (1000, 2))
    means = chain_means(algorithm, starts, parts_and_products, key, num_steps=400, num_discarded=100)
    covariance = np.linalg.inv(PRECISION)
    (xx, xy), (_, yy) = covariance
    truth = np.repeat([0.0, 0.0, xx, yy, xy], 2)
    spread = np.repeat([xx**0.5, yy**0.5, 2**0.5 * xx, 2**0.5 * yy, (xx * yy + xy**2) ** 0.5], 2)
    found = bias(means, truth, spread)
    assert np.max(found.error) < 0.015
    assert np.max(np.abs(found.bias)) < 0.06, found.bias


@pytest.mark.thorough
@pytest.mark.parametrize("ordering", ["paper", "baoab"])
def test_complex_normal(key, ordering):
    check_complex_normal(key, ordering)


def check_complex_direction(key):
    """A complex column of unit length is a real direction of twice the dimension: I_3(k) / I_2(k) along F."""
    f = jnp.array([[0.9 + 0.7j], [-1.2j], [0.4 - 0.3j]])
    k = float(jnp.linalg.norm(f))
    manifold = gx.Stiefel()
    algorithm = gx.sghmc(lambda z: jnp.sum(f.conj() * z).real, manifold=manifold, step_size=0.15, friction=0.2)
    key_start, key_run = jax.random.split(key)
    starts = jax.vmap(lambda key: manifold.random_point(key, f))(jax.random.split(key_start, 1000))

    def parts(z):
        return jnp.concatenate([z.real.ravel(), z.imag.ravel()])

    means = chain_means(algorithm, starts, parts, key_run, num_steps=400, num_discarded=100)
    truth = np.asarray(parts(f)) / k * iv(3, k) / iv(2, k)
    found = bias(means, truth, np.full(6, 6**-0.5))
    assert np.max(found.error) < 0.02
    assert np.max(np.abs(found.bias)) < 0.06, found.bias


@pytest.mark.thorough
def test_complex_direction(key):
    check_complex_direction(key)


def as_parts(density):
    return lambda p: density(jax.lax.complex(p["re"], p["im"]))


@pytest.mark.thorough
def test_complex_normal_in_parts(key):
    """sgrld takes real leaves, of which a log density makes complex numbers; an exact law of the discretisation."""
    step_size = 0.05
    algorithm = gx.sgrld(as_parts(complex_normal), step_size=step_size)
    with pytest.raises(TypeError, match="z is complex; metrics act on real arrays"):
        gx.sgrld(lambda p: complex_normal(p["z"]), step_size=step_size).init({"z": jnp.asarray(CENTER)})
    start = {"re": jnp.asarray(CENTER.real), "im": jnp.asarray(CENTER.imag)}
    starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (1000, 2)), start)

    def statistics(p):
        return parts_and_products(jax.lax.complex(p["re"], p["im"]))

    means = chain_means(algorithm, starts, statistics, key, num_steps=500, num_discarded=200)
    (xx, xy), (_, yy) = np.linalg.inv(PRECISION - 0.5 * step_size * PRECISION @ PRECISION)
    found = bias(means, np.repeat([0.0, 0.0, xx, yy, xy], 2), np.ones(10))
    assert np.all(np.abs(found.bias) < 4.5 * found.error), found


def check_step_of_complex_leaves(key):
    """The step size found is that of the curvature, here along a direction between the real and the imaginary axis."""
    draws = gx.sample(
        key,
        gx.sghmc(complex_normal),
        jnp.asarray(CENTER),
        num_samples=1,
        num_warmup=200,
        num_chains=1,
        progress=False,
    )
    expected = np.sqrt(0.16 / np.linalg.eigvalsh(PRECISION).max())
    assert float(draws.sample_stats.step_size[0, 0]) == pytest.approx(expected, rel=0.02)


def test_step_of_complex_leaves(key):
    check_step_of_complex_leaves(key)
