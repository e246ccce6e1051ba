"""Fits of parameters in half precision: as good as in single precision, and gone on from after an interruption."""

import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import geodax as gx
from geodax import vi
from geodax.run.errors import SamplingInterrupted

HALVES = [jnp.bfloat16, jnp.float16]
COUNT, SLOPE = 50, 3.0
BEST = -6.2  # the bound of the exact posterior, up to the noise of one draw
DEVIATION = (COUNT + 1.0) ** -0.5


def log_likelihood(w, batch):
    x, y = batch
    return -0.5 * (y - x @ w) ** 2


def data(dtype):
    x = jnp.ones((COUNT, 1), dtype)
    return x, jnp.full(COUNT, SLOPE, dtype)


def fitted(dtype, **options):
    options = {"num_steps": 1000, "progress": False, **options}
    start = vi.GaussianOver(jnp.zeros(1, dtype))
    return vi.fit(jax.random.key(0), start, log_likelihood, data(dtype), **options)


def looks_fitted(fit, dtype, rtol=0.1):
    mean, deviation = fit.network.family.mean, jnp.exp(fit.network.family.log_scale)
    assert mean.dtype == deviation.dtype == dtype
    np.testing.assert_allclose(np.asarray(mean, np.float64), SLOPE * COUNT / (COUNT + 1), atol=0.1)
    np.testing.assert_allclose(np.asarray(deviation, np.float64), DEVIATION, rtol=rtol)
    assert abs(fit.history.elbo[-20:].mean() - BEST) < 0.5


@pytest.mark.parametrize("dtype", HALVES)
def test_adam_moves_parameters_of_half_precision(dtype):
    """Catches memories that are rounded to 1, squares that vanish, and steps that are lost beside the parameters."""
    looks_fitted(fitted(dtype, learning_rate=0.01), dtype)


@pytest.mark.relaxed
def test_optimisers_of_others_do_as_well():
    looks_fitted(fitted(jnp.bfloat16, optimizer=optax.adam(0.01)), jnp.bfloat16)


def test_adam_alone_keeps_its_moments_in_single_precision():
    """Its updates have the dtype of the gradients, as optax's have."""
    adam = vi.adam(lambda i: jnp.asarray(0.01))
    gradients = {"a": jnp.full(2, 1e-6, jnp.float16), "b": jnp.full(2, 0.5, jnp.bfloat16)}
    state = adam.init(gradients)
    for _ in range(3):
        updates, state = adam.update(gradients, state)
    assert {leaf.dtype for leaf in jax.tree.leaves((state.mean, state.square))} == {np.dtype(np.float32)}
    for name, update in updates.items():
        assert update.dtype == gradients[name].dtype
        np.testing.assert_allclose(np.asarray(update, np.float64), -0.01, rtol=0.02)


@pytest.mark.parametrize("per_example", [True, False])
def test_natural_gradient_forgets_its_first_curvature(per_example):
    """Catches an average of squares that stays at its start where one minus the memory is less than its rounding."""
    found = {}
    for dtype in (jnp.bfloat16, jnp.float32):
        start = jnp.zeros(1, dtype)
        options = {"num_data": COUNT, "initial_curvature": 10.0, "per_example": per_example, "beta2": 0.998}
        algorithm = vi.vogn(start, log_likelihood, 0.05, **options)
        fit = vi.fit(
            jax.random.key(0), start, log_likelihood, data(dtype), num_steps=1500, algorithm=algorithm, progress=False
        )
        assert fit.network.family.mean.dtype == dtype
        found[dtype] = float(jnp.exp(fit.network.family.log_scale[0]))
    assert found[jnp.float32] > 2.0 * (COUNT * 10.0 + 1.0) ** -0.5
    np.testing.assert_allclose(found[jnp.bfloat16], found[jnp.float32], rtol=0.1)


def test_walsh_hadamard_layers_of_half_precision(key):
    x = np.random.default_rng(0).normal(size=(60, 2))
    batch = jnp.asarray(x, jnp.bfloat16), jnp.asarray(x[:, :1] - x[:, 1:], jnp.bfloat16)
    layer = gx.nn.WHVILinear(2, 1, dtype=jnp.bfloat16, key=key)
    likelihood = gx.nn.GaussianLikelihood(0.5)
    options = {"num_steps": 150, "learning_rate": 0.05, "progress": False}
    fit = vi.fit(jax.random.key(4), layer, likelihood, batch, **options)
    assert fit.history.elbo[-1] > fit.history.elbo[0] / 3


def test_a_fit_of_half_precision_goes_on(tmp_path):
    """Catches a checkpoint that rounds what is kept in single precision."""
    options = {"num_steps": 60, "batch_size": 10, "learning_rate": 1e-3, "window": 20}
    whole = fitted(jnp.bfloat16, **options)

    def stop(progress):
        if progress.iteration >= 23:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SamplingInterrupted):
        fitted(jnp.bfloat16, **options, checkpoint=tmp_path, progress=stop)
    again = fitted(jnp.bfloat16, **options, checkpoint=tmp_path)
    assert again.num_steps == 60
    for a, b in zip(jax.tree.leaves(whole.network), jax.tree.leaves(again.network), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float64), np.asarray(b, np.float64))
    # steps of a thousandth beside the width of the posterior
    assert 0.03 < float(whole.network.family.mean[0]) < 0.07


@pytest.mark.parametrize("dtype", HALVES)
def test_chains_of_half_precision_are_trained(dtype):
    def log_prior(w):
        return -0.5 * jnp.sum(w.astype(jnp.float32) ** 2)

    posterior = gx.Posterior(
        log_prior=log_prior, log_likelihood=lambda w, b: log_likelihood(w, b).astype(jnp.float32), num_data=COUNT
    )
    algorithm = gx.train_first(gx.sghmc(posterior, step_size=1e-6), 100)
    adaptation = algorithm.adapt(100)
    state = algorithm.init(jnp.full(1, 0.25, dtype))
    memory = adaptation.init(state)

    def train(carry, i):
        memory, state = adaptation.update(jax.random.key(0), *carry, None, i, data(dtype))
        return (memory, state), None

    (_, state), _ = jax.lax.scan(train, (memory, state), jnp.arange(100))
    assert state.position.dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(state.position, np.float64), SLOPE * COUNT / (COUNT + 1), atol=0.03)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", HALVES)
def test_histories_of_many_data_and_steps_are_those_of_single_precision(dtype):
    """Catches bounds of more than 65,504, which float16 has not, and sums of many steps that stand still."""

    def history(kind):
        x, y = jnp.ones((20_000, 1), kind), jnp.full(20_000, 9.0, kind)
        start = vi.GaussianOver(jnp.zeros(1, kind))
        options = {"batch_size": 4, "num_steps": 2000, "window": 2000, "learning_rate": 1e-6, "progress": False}
        return vi.fit(jax.random.key(0), start, log_likelihood, (x, y), **options).history.elbo

    assert float(history(jnp.float32)[0]) < -500_000
    np.testing.assert_allclose(history(dtype), history(jnp.float32), rtol=0.02)


@pytest.mark.parametrize("dtype", HALVES)
def test_draws_have_the_mean_of_their_law(dtype, key):
    """Catches variates that are made in half precision: in bfloat16 their mean is 12 standard errors below zero."""
    size = 1_000_000
    draws = vi.DiagonalGaussian(jnp.zeros(size, dtype), jnp.zeros(size, dtype)).sample(key)
    assert draws.dtype == dtype
    assert abs(np.asarray(draws, np.float64).mean()) < 4 * size**-0.5


@pytest.fixture(scope="module")
def natural():
    """Fits of a line and its noise by natural gradients, by method and dtype of parameters and data."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((60, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]]) + 0.4
    y = x @ np.array([0.6, 0.9]) + 0.3 + 0.5 * generator.standard_normal(60)
    likelihood, found = gx.nn.GaussianLikelihood(), {}
    for method in (vi.ivon, vi.noisy_kfac):
        for dtype in (jnp.float32, *HALVES):
            line = gx.nn.MLP(2, "scalar", widths=(), dtype=dtype, key=jax.random.key(1))
            start = gx.nn.WithNoise(line, jnp.zeros((), dtype))
            algorithm = method(start, likelihood, 0.05, num_data=60, point_rate=0.01)
            batches = (jnp.asarray(x, dtype), jnp.asarray(y, dtype))
            options = {"num_steps": 600, "batch_size": 20, "algorithm": algorithm, "progress": False}
            found[method.__name__, dtype] = vi.fit(jax.random.key(0), start, likelihood, batches, **options)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("method", ["ivon", "noisy_kfac"])
def test_natural_gradients_of_half_precision_are_those_of_single_precision(natural, method, dtype):
    """Catches averages of curvature, steps and noise that are lost beside values of half precision."""
    fit, other = natural[method, dtype], natural[method, jnp.float32]
    eps = float(jnp.finfo(dtype).eps)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(fit.network.mean))
    found, wide = (np.asarray(jax.tree.leaves(each.network.mean)[0], np.float64) for each in (fit, other))
    np.testing.assert_allclose(found, wide, rtol=5 * eps, atol=5 * eps)
    np.testing.assert_allclose(float(fit.network.mean.log_noise), float(other.network.mean.log_noise), atol=0.02)
    draws = jax.vmap(fit.network.sample)(jax.random.split(jax.random.key(3), 2000))
    wide = jax.vmap(other.network.sample)(jax.random.split(jax.random.key(4), 2000))
    for one, two in zip(jax.tree.leaves(draws.network), jax.tree.leaves(wide.network), strict=True):
        assert one.dtype == dtype
        spread = [np.asarray(leaf, np.float64).std(axis=0) for leaf in (one, two)]
        np.testing.assert_allclose(*spread, rtol=5 * (2 * 2 / 2000 / 2) ** 0.5 + 4 * eps)
    np.testing.assert_allclose(float(fit.network.kl()), float(other.network.kl()), rtol=0.02)
    tails = [each.history.elbo[-20:].mean() for each in (fit, other)]
    np.testing.assert_allclose(*tails, atol=0.5)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", HALVES)
def test_divergences_of_many_parameters_are_those_of_single_precision(dtype):
    """Catches sums of more than 65,504, which float16 has not, and squares of small deviations, which it rounds to 0."""

    def made(dtype):
        means, scales = jnp.full(200_000, 0.25, dtype), jnp.full(200_000, -9.0, dtype)
        few = jnp.full(300, 0.25, dtype)
        yield vi.DiagonalGaussian(means, scales)
        yield vi.FullGaussian(few, jnp.full(300, -9.0, dtype), jnp.zeros((300, 300), dtype))
        yield vi.LowRankGaussian(few, jnp.full(300, -9.0, dtype), jnp.full((300, 1), 0.5, dtype))

    for half, single in zip(made(dtype), made(jnp.float32), strict=True):
        np.testing.assert_allclose(half.kl(0.0625), single.kl(0.0625), rtol=1e-5)
        np.testing.assert_allclose(half.log_prob(half.mean), single.log_prob(single.mean), rtol=1e-5)
    weights = jnp.full(200_000, 0.25, dtype)
    algorithm = vi.ivon(weights, log_likelihood, 0.1, num_data=COUNT)
    assert 65_504 < float(algorithm.network(algorithm.init(weights)).kl()) < np.inf
    half, single = (
        gx.nn.DropoutLinear(400, 500, prior_variance=0.01, dtype=kind, key=jax.random.key(0))
        for kind in (dtype, jnp.float32)
    )
    single = eqx.tree_at(lambda layer: layer.weight, single, half.weight.astype(jnp.float32))
    np.testing.assert_allclose(half.kl(), single.kl(), rtol=1e-6)
