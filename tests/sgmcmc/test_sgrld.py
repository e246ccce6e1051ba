"""Langevin dynamics in every metric against stationary laws that are known exactly."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import geodax as gx
from geodax.sgmcmc import schedules
from tests.marks import slow
from tests.suites.stochastic import SquaredDistance, chain_means

PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])


def gaussian(x):
    return -0.5 * x @ jnp.asarray(PRECISION, x.dtype) @ x


def frozen(metric, key):
    """The metric as constant as it can be: it has seen a few gradients and takes in no more."""
    state, update = metric.init(jnp.zeros(2)), jax.jit(metric.update)
    for k in jax.random.split(key, 20):
        state = update(state, jnp.zeros(2), jax.random.normal(k, (2,)) * jnp.array([1.5, 0.4]))
    return state


METRICS = {
    "identity": gx.metrics.Identity(),
    "rmsprop": gx.metrics.RMSProp(decay=0.9, epsilon=0.1),
    "monge": gx.metrics.Monge(alpha2=1.0),
    "shampoo": gx.metrics.Shampoo(statistics_every=1, update_every=1, epsilon=1e-2),
    "soap": gx.metrics.Shampoo(statistics_every=1, update_every=1, epsilon=1e-1, variant="soap"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("name", METRICS)
def test_one_step_has_the_mean_and_covariance_of_its_formula(key, name, temperature):
    """One step from many starts: x - h G^-1 P x and 2 tau h G^-1, which make the discretised stationary law exactly.

    Catches a noise of sqrt(h), a missing temperature, and an inverse in the place of its root.
    """
    key_metric, key_run = jax.random.split(key)
    base = METRICS[name]
    metric = gx.metrics.Frozen(base, after=1)
    h, num = 0.05, 200_000
    algorithm = gx.sgrld(gaussian, metric=metric, step_size=h, temperature=temperature)
    start = algorithm.init(jnp.array([0.8, -0.5]))
    inner = frozen(base, key_metric)
    start = start._replace(metric=start.metric._replace(metric=inner, count=jnp.int32(1)))
    after = jax.jit(jax.vmap(lambda k: algorithm.step(k, start)[0].position))(jax.random.split(key_run, num))
    inverse = np.asarray(jax.jit(jax.vmap(lambda e: base.apply_inverse(inner, e)))(jnp.eye(2)))
    mean = np.asarray(start.position) - h * inverse @ PRECISION @ np.asarray(start.position)
    covariance = 2 * temperature * h * inverse
    draws = np.asarray(after)
    error = np.sqrt(np.diag(covariance) / num)
    assert np.all(np.abs(draws.mean(0) - mean) < 4.5 * error)
    found = np.cov(draws.T)
    spread = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / num)
    assert np.all(np.abs(found - covariance) < 4.5 * spread)


@pytest.mark.thorough
@pytest.mark.parametrize("step_size", [0.1, 0.4])
def test_the_discretised_law_of_a_gaussian(key, step_size):
    """Stationary precision P - h/2 P^2 exactly, for the identity; the bias is of first order and large here."""
    algorithm = gx.sgrld(gaussian, step_size=step_size)
    starts = jnp.zeros((2000, 2))

    def second_moments(x):
        return jnp.stack([x[0] ** 2, x[1] ** 2, x[0] * x[1]])

    means = chain_means(algorithm, starts, second_moments, key, num_steps=500, num_discarded=100)
    covariance = np.linalg.inv(PRECISION - 0.5 * step_size * PRECISION @ PRECISION)
    truth = np.array([covariance[0, 0], covariance[1, 1], covariance[0, 1]])
    z = (means.mean(0) - truth) / (means.std(0, ddof=1) / np.sqrt(len(means)))
    assert np.all(np.abs(z) < 4.5), z
    exact = np.linalg.inv(PRECISION)
    assert abs(covariance[0, 0] / exact[0, 0] - 1) > 0.05


def variance(key, metric, *, step_size=0.01, noise=0.0, num_chains=2000, num_steps=3000, num_discarded=1000):
    perturb = None if not noise else lambda k, g: g + noise * jax.random.normal(k, g.shape, g.dtype)
    algorithm = gx.sgrld(lambda x: -0.5 * jnp.sum(x**2), metric=metric, step_size=step_size, perturb_gradient=perturb)
    starts = jax.random.normal(jax.random.fold_in(key, 1), (num_chains, 1))
    means = chain_means(algorithm, starts, lambda x: x**2, key, num_steps=num_steps, num_discarded=num_discarded)
    return float(means.mean())


class TestWhatIsSampled:
    """The standard normal in one dimension; without the divergence the law is G(x) exp(-x^2 / 2)."""

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("settings", "truth", "tolerance"),
        [
            ({"gamma": "none", "lag": False, "decay": 0.0}, 2.0, 0.1),
            ({"gamma": "averaged", "lag": True, "decay": 0.7}, 1.0, 0.05),
            slow({"gamma": "full", "lag": False, "decay": 0.0}, 1.0, 0.05),
            slow({"gamma": "full", "lag": True, "decay": 0.7}, 1.0, 0.05),
            slow({"gamma": "averaged", "lag": False, "decay": 0.0}, 1.0, 0.05),
            slow({"gamma": "none", "lag": False, "decay": 0.7}, 2.0, 0.1),
            slow({"gamma": "a2", "lag": False, "decay": 0.0}, 1.0, 0.05),
            slow({"gamma": "a2", "lag": False, "decay": 0.7}, 1.638, 0.1),
        ],
    )
    def test_monge(self, key, settings, truth, tolerance):
        """Catches a missing or a wrong sign of the divergence, and the paper's factor 1 - decay."""
        assert abs(variance(key, gx.metrics.Monge(alpha2=1.0, **settings)) - truth) < tolerance

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("scale", "start"),
        [(1.0, 0.0), (0.03, 100.0), slow(1.0, 100.0), slow(0.03, 0.0)],
    )
    def test_monge_as_it_is_by_default(self, key, scale, start):
        """Whatever the scale of a density and however far the start; the steps found make it a ninth too wide."""
        draws = gx.sample(
            key,
            gx.sgrld(lambda x: -0.5 * jnp.sum((x / scale) ** 2), metric=gx.metrics.Monge()),
            jnp.full(5, start * scale),
            num_samples=200,
            num_warmup=1000,
            thinning=10,
            num_chains=64,
            progress=False,
        )
        assert 1.0 < draws["posterior"]["position"].values.var() / scale**2 < 1.2

    @pytest.mark.parametrize(
        ("settings", "stiff", "slow", "tolerance"),
        [
            ({"gamma": "averaged"}, 1.0 / 0.95, 1.0 / 0.9995, 0.03),
            ({"gamma": "full"}, 0.776, 0.31, 0.03),
            ({"gamma": "none", "lag": False}, 1.605, 2.03, 0.06),
        ],
    )
    @pytest.mark.slow
    def test_monge_in_many_dimensions(self, key, settings, stiff, slow, tolerance):
        """Steps of a tenth of the shorter relaxation time and a window as long; the bias of the step is 1 / (1 - h k / 2)."""
        curvatures = jnp.where(jnp.arange(400) < 200, 1.0, 0.01)
        metric = gx.metrics.Monge(normalize=1.0, **settings)
        algorithm = gx.sgrld(lambda x: -0.5 * jnp.sum(curvatures * x**2), metric=metric, step_size=0.1)
        starts = jax.random.normal(jax.random.fold_in(key, 1), (64, 400)) / jnp.sqrt(curvatures)[None]

        def variances(x):
            scaled = curvatures * x**2
            return jnp.stack([jnp.mean(scaled[:200]), jnp.mean(scaled[200:])])

        means = chain_means(algorithm, starts, variances, key, num_steps=8000, num_discarded=4000)
        assert np.all(means.std(0) / np.sqrt(64) < 0.02)
        np.testing.assert_allclose(means.mean(0), [stiff, slow], atol=tolerance)

    @pytest.mark.slow
    @pytest.mark.parametrize(("lag", "truth", "tolerance"), [(True, 1.01, 0.05), (False, 1.219, 0.06)])
    def test_monge_with_gradient_noise(self, key, lag, truth, tolerance):
        """The metric of the current gradient multiplies its own noise; that of earlier ones does not."""
        metric = gx.metrics.Monge(alpha2=1.0, decay=0.7, lag=lag)
        assert abs(variance(key, metric, noise=1.0) - truth) < tolerance

    @pytest.mark.slow
    def test_monge_normalised(self, key):
        """The slower the average behind alpha2, the smaller the bias that its memory makes."""
        fast, slow = (gx.metrics.Monge(normalize=1.0, normalize_decay=d, decay=0.0) for d in (0.999, 0.9999))
        key_fast, key_slow = jax.random.split(key)
        assert 0.84 < variance(key_fast, fast, num_steps=6000, num_discarded=4000) < 0.94
        assert abs(variance(key_slow, slow, num_steps=20_000, num_discarded=14_000) - 1.0) < 0.05

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("gamma", "lowest", "highest"),
        [("averaged", 0.96, 1.04), slow("full", 0.5, 0.7)],
    )
    def test_rmsprop_with_a_long_memory(self, key, gamma, lowest, highest):
        """A window of ten relaxation times, the default decay; relative to the variance 1 / (1 - h / 2)."""
        metric = gx.metrics.RMSProp(epsilon=1.0, gamma=gamma)
        found = variance(key, metric, step_size=0.1, num_steps=2000, num_discarded=500)
        assert lowest < found * 0.95 < highest

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("gamma", "truth"),
        [
            ("full", 1.0),
            slow("none", 1.4438),
            slow("averaged", 1.0),
        ],
    )
    def test_rmsprop(self, key, gamma, truth):
        """With epsilon 1 the metric is 1 + |x|: (1 + 2 c) / (1 + c) with c = sqrt(2 / pi) where it is left out."""
        metric = gx.metrics.RMSProp(decay=0.0, epsilon=1.0, gamma=gamma)
        assert abs(variance(key, metric) - truth) < 0.05

    @pytest.mark.thorough
    def test_a_metric_with_a_divergence_of_its_own(self, key):
        """Catches a divergence that is only added where it needs the curvature: the variance is then 2."""
        assert abs(variance(key, SquaredDistance()) - 1.0) < 0.05


class TestSettings:
    @pytest.mark.thorough
    def test_metric_warmup_keeps_the_position(self, key):
        algorithm = gx.sgrld(gaussian, metric=gx.metrics.RMSProp(), step_size=0.01, metric_warmup=3)
        state = algorithm.init(jnp.ones(2))
        for i in range(5):
            state, info = algorithm.step(jax.random.fold_in(key, i), state)
            assert bool((state.position == 1.0).all()) == (i < 3)
            assert float(info.step_size) == (0.0 if i < 3 else 0.01)
        assert float(state.metric.squares.min()) > 0

    def test_clipping_is_reported(self, key):
        algorithm = gx.sgrld(gaussian, step_size=0.1, temperature=0.0, clip_norm=0.5)
        state = algorithm.init(jnp.array([3.0, 0.0]))
        after, info = algorithm.step(key, state)
        norm = float(jnp.linalg.norm(PRECISION @ state.position))
        assert float(info.gradient_scale) == pytest.approx(0.5 / norm)
        assert float(jnp.linalg.norm(after.position - state.position)) == pytest.approx(0.05)

    def test_temperature_zero_descends(self, key):
        algorithm = gx.sgrld(gaussian, step_size=0.1, temperature=0.0)
        state = algorithm.init(jnp.ones(2))
        after, _ = algorithm.step(key, state)
        np.testing.assert_allclose(after.position, np.ones(2) - 0.1 * PRECISION @ np.ones(2), rtol=1e-12)

    def test_the_metric_learns_from_the_mean(self, key):
        """With n copies of the data the metric's state is the same."""
        states = []
        for copies in (1, 10):
            posterior = gx.Posterior(
                log_prior=lambda t: 0.0 * jnp.sum(t),
                log_likelihood=lambda t, b: -0.5 * jnp.sum((b - t[None]) ** 2, axis=-1),
                num_data=20 * copies,
            )
            algorithm = gx.sgrld(posterior, metric=gx.metrics.RMSProp(), step_size=1e-9)
            state, _ = algorithm.step(key, algorithm.init(jnp.zeros(2)), jnp.ones((20, 2)))
            states.append(state.metric.squares)
            key = jax.random.clone(key)
        np.testing.assert_allclose(states[0], states[1], rtol=1e-12)

    @pytest.mark.thorough
    def test_dtype_is_kept(self, key, dtype):
        for metric in METRICS.values():
            algorithm = gx.sgrld(gaussian, metric=metric, step_size=0.1)
            state = algorithm.init(jnp.ones(2, dtype))
            after, info = jax.jit(algorithm.step)(jax.random.clone(key), state)
            assert jax.tree.map(lambda a: a.dtype, after) == jax.tree.map(lambda a: a.dtype, state)
            assert all(value.dtype in (dtype, bool) and value.shape == () for value in info)

    @pytest.mark.thorough
    @pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
    def test_half_precision_and_empty_leaves(self, key, half):
        """A dozen steps downhill are those of double precision, but for roundings."""

        def density(t):
            return gaussian(t["x"]) + jnp.sum(t["none"]) - 0.5 * jnp.sum((t["w"] @ t["w"].T) ** 2)

        for name, metric in (METRICS | {"wenzel": gx.metrics.Wenzel()}).items():
            algorithm = gx.sgrld(density, metric=metric, step_size=0.02, temperature=0.0)
            ends = []
            for dtype in (half, jnp.float64):
                start = {
                    "x": jnp.array([1.0, -0.5], dtype),
                    "w": jnp.ones((3, 2), dtype),
                    "none": jnp.zeros((0, 4), dtype),
                }
                state, step = algorithm.init(start), jax.jit(algorithm.step)
                for _ in range(12):
                    state, _ = step(jax.random.clone(key), state)
                assert state.position["w"].dtype == (jnp.float32 if dtype == half else dtype)
                ends.append(jax.tree.map(lambda leaf: np.asarray(leaf, float), state.position))
            for leaf in ("x", "w"):
                np.testing.assert_allclose(ends[0][leaf], ends[1][leaf], atol=0.06, err_msg=name)
                assert np.abs(ends[1][leaf] - (1.0 if leaf == "w" else np.array([1.0, -0.5]))).max() > 0.1

    def test_schedules_that_begin_after_the_warm_up(self, key):
        """Catches a decay that has passed, or a cycle that is cut, when sampling begins."""
        schedule = schedules.polynomial(0.1, offset=10.0, power=1.0)
        algorithm = gx.sgrld(gaussian, step_size=schedules.after_warmup(schedule, num_warmup=20))
        draws = gx.sample(
            key, algorithm, jnp.ones(2), num_warmup=20, num_samples=5, num_chains=1, thinning=1, progress=False
        )
        expected = 0.1 / (1 + np.arange(5) / 10)
        np.testing.assert_allclose(draws["sample_stats"]["step_size"][0], expected, rtol=1e-6)
        assert float(schedules.after_warmup(schedule, num_warmup=20)(3)) == pytest.approx(0.1)
        with pytest.raises(TypeError, match=r"after_warmup: schedule must be a function .*found 0\.1"):
            schedules.after_warmup(0.1, num_warmup=20)

    def test_schedules(self, key):
        schedule = schedules.polynomial(0.1, offset=10.0, power=1.0)
        algorithm = gx.sgrld(gaussian, step_size=schedule)
        state = algorithm.init(jnp.ones(2))
        for i in range(3):
            state, info = algorithm.step(jax.random.fold_in(key, i), state)
            assert float(info.step_size) == pytest.approx(0.1 / (1 + i / 10))

    def test_a_schedule_may_return_a_number(self, key):
        algorithm = gx.sgrld(gaussian, step_size=lambda i: 0.1, temperature=lambda i: 0.5)
        _, info = algorithm.step(key, algorithm.init(jnp.ones(2)))
        assert (float(info.step_size), float(info.temperature)) == (0.1, 0.5)

    @pytest.mark.parametrize(
        "schedule",
        [schedules.constant(0.1), schedules.polynomial(0.1), schedules.cyclical(0.1, num_iterations=3)],
        ids=["constant", "polynomial", "cyclical"],
    )
    def test_schedules_take_numbers_and_arrays(self, schedule):
        """As for a plot of them."""
        expected = [float(schedule(jnp.int32(i))) for i in range(4)]
        assert [float(schedule(i)) for i in range(4)] == expected
        np.testing.assert_allclose(schedule(np.arange(4)) * np.ones(4), expected, rtol=1e-12)

    @pytest.mark.parametrize("num_iterations", [0.5, 2.5])
    def test_a_cycle_is_a_whole_number_of_iterations(self, num_iterations):
        """A cycle of half an iteration had steps of size zero only."""
        with pytest.raises(TypeError, match=r"schedules.cyclical: num_iterations must be an integer, found"):
            schedules.cyclical(0.1, num_iterations=num_iterations)

    def test_a_cycle_goes_down_and_begins_anew(self):
        schedule = schedules.cyclical(0.2, num_iterations=4)
        values = [float(schedule(jnp.int32(i))) for i in range(8)]
        assert values[:4] == sorted(values[:4], reverse=True)
        np.testing.assert_allclose(values[:4], values[4:], rtol=1e-12)
        assert values[3] > 0

    def test_a_cycle_explores_before_it_samples(self):
        """A quarter of each cycle at temperature 0, the two of ten iterations whose middle is in it."""
        schedule = schedules.cyclical_temperature(0.5, num_iterations=10)
        values = np.asarray(schedule(np.arange(20)))
        np.testing.assert_array_equal(values, np.tile([0.0] * 2 + [0.5] * 8, 2))
        whole = schedules.cyclical_temperature(num_iterations=10, exploration_ratio=0.0)
        np.testing.assert_array_equal(whole(np.arange(20)), np.ones(20))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"exploration_ratio": 1.0}, "exploration_ratio must be at least 0 and below 1 and finite, found 1.0"),
            ({"exploration_ratio": -0.1}, "exploration_ratio must be at least 0 and below 1 and finite, found -0.1"),
            ({"value": 0.0}, "value must be a positive number and finite, found 0.0"),
            ({"num_iterations": 0}, "num_iterations must be at least 1, found 0"),
        ],
    )
    def test_bad_cycles(self, arguments, message):
        with pytest.raises(ValueError, match=f"schedules.cyclical_temperature: {message}"):
            schedules.cyclical_temperature(**({"num_iterations": 10} | arguments))

    @pytest.mark.thorough
    @pytest.mark.parametrize("exploration_ratio", [0.0, 0.1])
    def test_cycles_find_modes_that_constant_steps_do_not(self, key, exploration_ratio):
        """25 normal laws of variance 0.03 on a grid (Zhang et al. 2020, figure 2); the ends of cycles have their spread."""
        side = jnp.linspace(-4.0, 4.0, 5)
        centers = jnp.stack(jnp.meshgrid(side, side), axis=-1).reshape(25, 2)

        def log_density(x):
            return jax.nn.logsumexp(-jnp.sum((x[None] - centers) ** 2, axis=1) / 0.06)

        def found(key, algorithm):
            draws = gx.sample(key, algorithm, jnp.zeros(2), num_samples=800, thinning=10, num_chains=16, progress=False)
            late = (draws.sample_stats.step_size[0] < 0.006).values & (draws.sample_stats.temperature[0] > 0).values
            assert 0.1 < late.mean() <= 1.0
            apart = draws.isel(draw=late).posterior.position.values[:, :, None] - np.asarray(centers)
            squares = (apart**2).sum(axis=-1)
            return len(np.unique(squares.argmin(axis=-1))), squares.min(axis=-1).mean()

        step_size = schedules.cyclical(0.06, num_iterations=1000)
        temperature = schedules.cyclical_temperature(num_iterations=1000, exploration_ratio=exploration_ratio)
        keys = jax.random.split(key)
        modes, spread = found(keys[0], gx.sgrld(log_density, step_size=step_size, temperature=temperature))
        assert modes >= 18
        assert spread == pytest.approx(0.06, rel=0.1)
        stuck, _ = found(keys[1], gx.sgrld(log_density, step_size=0.005))
        assert stuck <= 2

    def test_a_class_is_no_metric(self):
        with pytest.raises(TypeError, match="the class Monge itself"):
            gx.sgrld(gaussian, metric=gx.metrics.Monge, step_size=0.1)

    @pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
    @pytest.mark.parametrize("temperature", [None, "0.5"])
    def test_a_temperature_is_a_number(self, sampler, temperature):
        with pytest.raises(TypeError, match="temperature must be a number"):
            inspect.unwrap(sampler)(gaussian, step_size=0.1, temperature=temperature)

    @pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc, gx.sgnht, gx.hmc, gx.nuts, gx.mclmc])
    def test_a_traced_number_is_refused_with_the_way_out(self, sampler, unchecked):
        with pytest.raises(TypeError, match=r"step_size must be a number, found a traced one.*_replace\(step_size"):
            jax.vmap(lambda h: sampler(gaussian, step_size=h).init(jnp.zeros(2)))(jnp.ones(3))

    def test_a_grid_of_traced_schedules(self, key):
        """One step from rest in each row has the standard deviation sqrt(2 h)."""
        steps = jnp.array([0.01, 0.04])

        def moved(h):
            algorithm = gx.sgrld(lambda x: 0.0 * jnp.sum(x), step_size=lambda _: h)
            return algorithm.step(jax.random.key(0), algorithm.init(jnp.zeros(50)))[0].position

        noise = jax.vmap(moved)(steps)
        np.testing.assert_allclose(noise[1], 2 * noise[0], rtol=1e-6)

    def test_sghmc_takes_a_metric_with_a_divergence_only_frozen(self):
        with pytest.raises(ValueError, match="SquaredDistance needs its divergence, which sghmc does not add"):
            gx.sghmc(gaussian, metric=SquaredDistance(), step_size=0.1)
        gx.sghmc(gaussian, metric=gx.metrics.Frozen(SquaredDistance(), after=3), step_size=0.1)

    @pytest.mark.thorough
    def test_a_metric_is_a_mass_for_sghmc(self, key):
        """With a frozen metric sghmc samples the same Gaussian, frames beside it keep their own geometry."""
        manifold = gx.Product({"frame": gx.Stiefel()})
        metric = gx.metrics.Frozen(gx.metrics.RMSProp(decay=0.5, epsilon=0.5), after=20)
        algorithm = gx.sghmc(
            lambda p: gaussian(p["w"]) + 0.0 * jnp.sum(p["frame"]), manifold=manifold, metric=metric, step_size=0.1
        )
        start = {"w": jnp.zeros((1500, 2)), "frame": jnp.broadcast_to(jnp.eye(3, 2), (1500, 3, 2))}
        means = chain_means(algorithm, start, lambda p: p["w"] ** 2, key, num_steps=600, num_discarded=300)
        truth = np.diag(np.linalg.inv(PRECISION))
        error = means.std(0, ddof=1) / np.sqrt(1500)
        assert np.all(np.abs(means.mean(0) - truth) < 4.5 * error + 0.03 * truth)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
def test_a_horseshoe_with_a_least_scale_is_sampled(key, sampler):
    """Catches the pole: without a least scale 6 per cent of the draws lie beyond 2.5, whatever the step size."""
    least = 0.1
    prior = gx.nn.Horseshoe(1.0, local=True, least_scale=least)

    # given u, the inverse square of the scale, the posterior is normal with variance 1 / (1 + u)
    log_u = np.linspace(-40, 12, 20_001)
    u = np.exp(log_u)
    weight = np.exp(0.5 * log_u - np.log1p(u) - 0.5 * least**2 * u - 0.5 * np.log1p(1 / u))
    weight /= weight.sum()
    variance = np.sum(weight / (1 + u))
    beyond = np.sum(weight * 2 * stats.norm.sf(2.5 * np.sqrt(1 + u)))

    step_size = 0.01 if sampler is gx.sgrld else 0.1
    draws = gx.sample(
        key,
        sampler(lambda x: prior.log_density(x) - 0.5 * jnp.sum(x**2), step_size=step_size),
        lambda key: 0.5 * jax.random.normal(key, (4000,), jnp.float64),
        num_samples=40,
        num_warmup=1000,
        thinning=100,
        num_chains=1,
        progress=False,
    )["posterior"]["position"].values
    assert abs(np.mean(draws**2) / variance - 1) < 0.08
    assert abs(np.mean(np.abs(draws) > 2.5) / beyond - 1) < 0.4
    assert np.abs(draws).max() < 7
