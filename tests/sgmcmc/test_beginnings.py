"""What becomes of a good beginning in the first steps, when a step size is given and the metric knows nothing yet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

NUM_DATA = 1000
X = np.random.default_rng(0).normal(size=(NUM_DATA, 3))
Y = X @ [1.0, -2.0, 0.5] + np.random.default_rng(1).normal(size=NUM_DATA)
COVARIANCE = np.linalg.inv(X.T @ X + np.eye(3))
MODE, SPREAD = COVARIANCE @ X.T @ Y, np.sqrt(np.diag(COVARIANCE))


@pytest.fixture(scope="module")
def regression():
    return gx.Posterior(
        log_prior=lambda w: -0.5 * jnp.sum(w**2),
        log_likelihood=lambda w, b: -0.5 * (b[1] - b[0] @ w) ** 2,
        num_data=NUM_DATA,
    )


def distances(key, algorithm, num_steps=150, num_warmup=0):
    """Root mean square distance from the mode in standard deviations of the posterior, a step at a time."""
    draws = gx.sample(
        key,
        algorithm,
        jnp.asarray(MODE),
        batches=gx.data.batches((X, Y), batch_size=100),
        num_samples=num_steps,
        num_warmup=num_warmup,
        num_chains=20,
        progress=False,
    )
    z = (draws["posterior"]["position"].values - MODE) / SPREAD
    return np.sqrt(np.mean(z**2, axis=(0, 2)))


RMSPROP = gx.metrics.RMSProp()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sampler", "metric", "settings"),
    [
        (gx.sghmc, RMSPROP, {"step_size": 1e-3}),
        (gx.sghmc, RMSPROP, {"step_size": 1e-3, "ordering": "baoab"}),
        (gx.sghmc, RMSPROP, {"step_size": 1e-3, "ordering": "baoab", "resample_momentum": True}),
        (gx.sghmc, gx.metrics.Frozen(RMSPROP, after=50), {"step_size": 1e-3}),
        (gx.sghmc, gx.metrics.Shampoo(), {"step_size": 1e-3, "metric_warmup": 100}),
        (gx.sgrld, RMSPROP, {"step_size": 2e-5}),
        (gx.sgrld, gx.metrics.RMSProp(lag=True), {"step_size": 2e-5, "metric_warmup": 10}),
    ],
    ids=["paper", "baoab", "resampled", "frozen", "shampoo", "sgrld", "lagged"],
)
def test_a_chain_that_begins_at_the_mode_stays_near_it(key, regression, sampler, metric, settings):
    """The law of each is about 1.3 wide; chains were thrown 9 to 300 standard deviations away."""
    found = distances(key, sampler(regression, metric=metric, **settings), num_warmup=settings.get("metric_warmup", 0))
    assert found.max() < 4.0, found.max()
    assert found[-1] > 0.5, "chains should move"


@pytest.mark.thorough
def test_a_lagged_metric_rests_until_it_knows_a_gradient(key, regression):
    """The first step was six thousand standard deviations long."""
    found = distances(key, gx.sgrld(regression, metric=gx.metrics.RMSProp(lag=True), step_size=2e-7), num_steps=3)
    assert found[0] == 0.0
    assert 0 < found[1] < 10.0


@pytest.mark.thorough
@pytest.mark.parametrize("ordering", ["paper", "baoab"])
@pytest.mark.parametrize("num_inner_steps", [1, 3])
def test_metric_warmup_of_momenta_keeps_the_position(key, ordering, num_inner_steps):
    """Meanwhile the metric learns and momenta take up the law that they keep."""
    algorithm = gx.sghmc(
        lambda x: -0.5 * jnp.sum(x**2),
        metric=gx.metrics.Wenzel(),
        step_size=0.01,
        friction=0.9,
        metric_warmup=4,
        ordering=ordering,
        num_inner_steps=num_inner_steps,
    )
    state = algorithm.init(jnp.ones(5000))
    for i in range(6):
        state, info = algorithm.step(jax.random.fold_in(key, i), state)
        assert bool((state.position == 1.0).all()) == (i < 4)
        assert float(info.step_size) == (0.0 if i < 4 else 0.01)
        assert int(state.metric.count) == (i + 1) * num_inner_steps
        variance = 1 / (1 - 0.45) if ordering == "paper" else 1.0
        if i == 3:
            assert float(jnp.var(state.momentum)) == pytest.approx(variance, rel=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sghmc, gx.sgrld])
def test_metric_warmup_is_part_of_the_warmup(key, sampler):
    """Catches draws that are the start, as often as the metric had to learn."""
    algorithm = sampler(lambda x: -0.5 * jnp.sum(x**2), metric=gx.metrics.RMSProp(), step_size=0.01, metric_warmup=4)
    settings = {"num_samples": 3, "num_chains": 2, "progress": False}
    with pytest.raises(ValueError, match=r"metric_warmup=4 iterations, .* num_warmup=3, .* at least 4"):
        gx.sample(jax.random.clone(key), algorithm, jnp.ones(2), num_warmup=3, **settings)
    draws = gx.sample(key, algorithm, jnp.ones(2), num_warmup=4, **settings)["posterior"]["position"].values
    assert (draws != 1.0).all()


def test_metric_warmup_is_checked():
    with pytest.raises(ValueError, match="sghmc: metric_warmup must be at least 0"):
        gx.sghmc(lambda x: -jnp.sum(x**2), metric_warmup=-1)


@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_a_leaf_that_dies_has_the_metric_of_the_others(decay):
    """Once its average is negligible; catches sizes that are not measured again after the first gradients."""
    metric = gx.metrics.RMSProp(decay=decay)
    position = {"alive": jnp.zeros(4), "dead": jnp.zeros(4)}

    def step(state, is_over):
        gradient = {"alive": jnp.ones(4), "dead": jnp.where(is_over, 0.0, jnp.ones(4))}
        return metric.update(state, position, gradient), None

    last, _ = jax.lax.scan(step, metric.init(position), jnp.arange(4000) >= 200)
    inverse = metric.apply_inverse(last, jax.tree.map(jnp.ones_like, position))
    np.testing.assert_allclose(inverse["alive"], 1.0, rtol=1e-4)
    np.testing.assert_allclose(inverse["dead"], 2**0.5, rtol=1e-4)
