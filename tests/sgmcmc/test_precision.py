"""Positions of half precision: they are kept in single precision, and the log density takes them as they were given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

HALVES = [jnp.bfloat16, jnp.float16]


def gaussian(x):
    return -0.5 * jnp.sum(x.astype(jnp.float32) ** 2)


NUM_DATA, NOISE = 50, 0.2
SD = (NUM_DATA / NOISE**2 + 1) ** -0.5
SAMPLERS = {  # with the stationary variance for a normal target, in units of the target's
    "sgrld": (lambda posterior: gx.sgrld(posterior, step_size=0.2 * SD**2), 1 / (1 - 0.2 / 2)),
    "sghmc": (lambda posterior: gx.sghmc(posterior, step_size=0.5 * SD, friction=0.3, ordering="baoab"), 1.0),
}


@pytest.mark.thorough
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_posterior_of_half_precision(key, name, half):
    """Steps are a few units of half precision or less: catches a position that loses them or drifts."""
    make, factor = SAMPLERS[name]
    data = np.random.default_rng(0).normal(1.0, NOISE, size=(NUM_DATA, 100)).astype(np.float32)
    mean = data.sum(axis=0) / NOISE**2 * SD**2
    seen = set()

    def log_likelihood(t, rows):
        seen.add(t["t"].dtype)
        return -0.5 * jnp.sum((rows - t["t"].astype(jnp.float32)[None]) ** 2, axis=1) / NOISE**2

    posterior = gx.Posterior(log_prior=lambda t: gaussian(t["t"]), log_likelihood=log_likelihood, num_data=NUM_DATA)
    draws = gx.sample(
        key,
        make(posterior),
        {"t": jnp.asarray(mean, half)},
        batches=gx.data.batches(data, batch_size=NUM_DATA),
        num_warmup=200,
        num_samples=400,
        thinning=5,
        num_chains=2,
        progress=False,
    )["posterior"]["t"].values
    assert seen == {jnp.dtype(half)}
    assert draws.dtype == np.float32
    away = ((draws - mean) / SD).transpose(0, 2, 1).reshape(200, -1)  # entries of chains are independent
    for found, expected in ((away.mean(axis=1), 0.0), ((away**2).mean(axis=1), factor)):
        assert abs(found.mean() - expected) < 4 * found.std(ddof=1) / len(found) ** 0.5


class TestScalars:
    @pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
    def test_step_sizes_keep_their_digits(self, key, sampler):
        """1e-8 was 0 in float16."""
        algorithm = sampler(gaussian, step_size=1e-8, temperature=1e-9)
        _, info = algorithm.step(key, algorithm.init(jnp.ones(3, jnp.float16)))
        np.testing.assert_allclose((info.step_size, info.temperature), (1e-8, 1e-9), rtol=1e-6)
        assert all(value.dtype in (jnp.float32, bool) for value in info)

    def test_a_small_step_meets_a_large_gradient(self, key):
        """Their product is within float16, where a step size of 1e-8 alone is not."""
        algorithm = gx.sgrld(lambda x: 3e4 * jnp.sum(x), step_size=1e-8, temperature=0.0)
        state, _ = algorithm.step(key, algorithm.init(jnp.zeros(3, jnp.float16)))
        np.testing.assert_allclose(state.position, 3e-4, rtol=1e-3)

    def test_clipping_does_not_overflow(self, key):
        """The squares of two entries of 300 are beyond float16."""
        algorithm = gx.sgrld(lambda x: 300.0 * jnp.sum(x), step_size=0.1, clip_norm=1.0)
        _, info = algorithm.step(key, algorithm.init(jnp.zeros(2, jnp.float16)))
        assert float(info.gradient_scale) == pytest.approx(1 / (300 * np.sqrt(2)), rel=1e-3)

    @pytest.mark.parametrize("size", [1e-30, 1e20, 1e36])
    def test_clipping_at_the_ends_of_single_precision(self, key, size):
        """Squares beyond single precision made the gradient zero, without a word; squares below it a norm of zero."""
        slope = jnp.array([3.0, 4.0], jnp.float32) * jnp.float32(size)
        bound = 0.5 if size > 1 else 2.5e-30
        algorithm = gx.sgrld(lambda x: slope @ x, step_size=0.1, temperature=0.0, clip_norm=bound)
        after, info = algorithm.step(key, algorithm.init(jnp.zeros(2, jnp.float32)))
        np.testing.assert_allclose(after.position, 0.1 * bound * np.array([0.6, 0.8]), rtol=1e-5)
        assert float(info.gradient_scale) == pytest.approx(bound / (5 * size), rel=1e-5)

    @pytest.mark.parametrize("value", [jnp.inf, jnp.nan])
    def test_clipping_hides_nothing_that_is_not_finite(self, key, value):
        algorithm = gx.sgrld(lambda x: value * jnp.sum(x), step_size=0.1, clip_norm=1.0)
        _, info = algorithm.step(key, algorithm.init(jnp.ones(2, jnp.float32)))
        assert not bool(info.is_finite)

    @pytest.mark.thorough
    @pytest.mark.parametrize("half", HALVES)
    @pytest.mark.parametrize(("sampler", "truth"), [(gx.sgrld, 0.2 / 400), (gx.sghmc, 0.4 / 20)])
    def test_tuning(self, key, sampler, truth, half):
        """Squares of curvatures, and of slopes, are beyond float16: the step size was 0."""
        curvatures = jnp.array([400.0, 4.0, 1.0], jnp.float32)
        algorithm = sampler(lambda x: -0.5 * jnp.sum(curvatures * x.astype(jnp.float32) ** 2))
        start = jnp.zeros(3, half)
        draws = gx.sample(key, algorithm, start, num_samples=5, num_warmup=60, num_chains=2, progress=False)
        np.testing.assert_allclose(draws["sample_stats"]["step_size"].values, truth, rtol=0.05)

    def test_the_noise_of_batches(self, key):
        """A variance of 1e6."""
        posterior = gx.Posterior(
            log_prior=lambda x: jnp.zeros((), x.dtype), log_likelihood=lambda x, b: b @ x, num_data=1000
        )
        target = gx.sgmcmc.gradients.as_target("sgrld", posterior, None)
        batch = jax.random.normal(key, (100, 1), jnp.float16)
        above, below = jnp.full(1, 5.0, jnp.float16), jnp.full(1, -5.0, jnp.float16)
        expected = np.var(10 * np.asarray(batch, float), ddof=1) * 1000**2 / 100
        np.testing.assert_allclose(target.batch_noise(above, below, batch), expected, rtol=0.01)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("local", [False, True])
def test_horseshoes_of_large_arrays(key, half, local):
    """The sum of the squares of 90,000 entries is beyond float16."""
    x = jax.random.normal(key, (300, 300), half)
    scales = jnp.zeros((300, 300) if local else (), half)
    for prior, args in (
        (gx.nn.Horseshoe(1.0, local=local), ()),
        (gx.nn.HierarchicalHorseshoe(1.0, local=local), (scales,)),
    ):
        both = jax.jit(jax.value_and_grad(prior.log_density))
        found, gradient = both(x, *args)
        expected, slope = both(x.astype(float), *(a.astype(float) for a in args))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(gradient.astype(float), slope, rtol=0.02, atol=1e-3)
