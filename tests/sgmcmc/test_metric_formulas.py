"""Metrics against their formulas, at settings that are neither 0 nor out of sight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.sgmcmc.metrics import Curvature

CURVATURES = jnp.array([2.0, 0.5, 3.0])


def check_window_of_rmsprop(key, lag=True):
    """The share 1 / (1 + 2 w H / G) of a diagonal Hessian, which one probe finds exactly."""
    decay, step_size, x = 0.6, 0.3, jnp.array([0.7, -1.1, 0.4])
    drifts = {}
    for gamma in ("full", "averaged"):
        metric = gx.metrics.RMSProp(decay=decay, epsilon=0.2, gamma=gamma, lag=lag)
        state = metric.update(metric.init(x), x, CURVATURES * x)
        curvature = Curvature(CURVATURES * x, lambda v: CURVATURES * v, jax.random.clone(key), step_size)
        drifts[gamma] = metric.drift(state, x, curvature)
    g = jnp.abs(CURVATURES * x) + 0.2
    np.testing.assert_allclose(drifts["full"], -jnp.sign(x) * CURVATURES / g**2, rtol=1e-10)
    window = step_size * (decay / (1 - decay) + lag)
    np.testing.assert_allclose(drifts["averaged"], drifts["full"] / (1 + 2 * window * CURVATURES / g), rtol=1e-10)


@pytest.mark.parametrize("lag", [False, True])
def test_window_of_rmsprop(key, lag):
    check_window_of_rmsprop(key, lag)


def check_wenzel(key):
    """Averages that begin at one, and an epsilon under the root."""
    decay, epsilon = 0.8, 0.05
    metric = gx.metrics.Wenzel(decay=decay, epsilon=epsilon)
    position = {"a": jnp.zeros(2), "b": jnp.zeros((2, 3)), "c": jnp.zeros(())}
    state, means = metric.init(position), dict.fromkeys(position, 1.0)
    for i in range(9):
        gradient = {
            name: scale * (1.0 + jax.random.normal(jax.random.fold_in(key, 3 * i + j), leaf.shape))
            for j, (name, leaf, scale) in enumerate(zip("abc", position.values(), (2.0, 0.1, 0.4), strict=True))
        }
        state = metric.update(state, position, gradient)
        means = {name: decay * means[name] + (1 - decay) * float(jnp.mean(gradient[name] ** 2)) for name in means}
        scales = {name: np.sqrt(epsilon + mean) for name, mean in means.items()}
        applied = metric.apply_inverse(state, jax.tree.map(jnp.ones_like, position))
        for name in position:
            np.testing.assert_allclose(applied[name], min(scales.values()) / scales[name], rtol=1e-10)


def test_wenzel(key):
    check_wenzel(key)


def check_blocks(key):
    """A matrix in blocks is as many matrices by themselves: as few, of sizes as equal as they can be."""
    settings = {"decay": 0.5, "statistics_every": 1, "update_every": 1, "epsilon": 1e-2}
    whole = gx.metrics.Shampoo(block_size=3, **settings)
    alone = gx.metrics.Shampoo(block_size=10, **settings)
    parts = [
        (slice(0, 3), slice(0, 2)),
        (slice(0, 3), slice(2, 4)),
        (slice(3, 6), slice(0, 2)),
        (slice(3, 6), slice(2, 4)),
    ]
    like = jnp.zeros((6, 4))
    state, states = whole.init(like), [alone.init(like[part]) for part in parts]
    update, update_alone = (jax.jit(lambda s, g, metric=metric: metric.update(s, g, g)) for metric in (whole, alone))
    for i in range(6):
        g = jax.random.normal(jax.random.fold_in(key, i), like.shape) * jnp.arange(1.0, 5.0)[None] + 0.5
        state = update(state, g)
        states = [update_alone(s, g[part]) for s, part in zip(states, parts, strict=True)]
    z = 1.0 + jnp.arange(24.0).reshape(6, 4) ** 2
    found = whole.apply_inverse(state, z)
    for s, part in zip(states, parts, strict=True):
        np.testing.assert_allclose(found[part], alone.apply_inverse(s, z[part]), rtol=1e-8)


@pytest.mark.thorough
def test_blocks(key):
    check_blocks(key)


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["shampoo", "soap"])
def test_shampoo_learns_when_it_is_due(key, variant):
    """Statistics of gradients 1, 10, 20, ... and roots at 1, 100, 200, ..., as it is by default."""
    metric = gx.metrics.Shampoo(variant=variant, epsilon=1e-3)
    like = jnp.zeros((3, 2))
    update = jax.jit(lambda state, g: metric.update(state, like, g))
    state, left = metric.init(like), 1e-3 * np.eye(3)
    for count in range(1, 201):
        before = state
        g = jax.random.normal(jax.random.fold_in(key, count), like.shape) + 0.5
        state = update(before, g)
        if count == 1 or count % 10 == 0:
            left = 0.99 * left + 0.01 * np.asarray(g @ g.T)
        np.testing.assert_allclose(state.leaves[0].left[0, 0], left, rtol=1e-9, atol=1e-12)
        has_changed = bool(jnp.any(state.leaves[0].left_factor != before.leaves[0].left_factor))
        assert has_changed == (count in (1, 100, 200))


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["shampoo", "soap"])
def test_a_gradient_out_of_proportion_is_learnt_at_once(variant):
    """Where gradients vanished a metric of them is no measure for those that come; it waited for 10 gradients or 100."""
    metric = gx.metrics.Shampoo(variant=variant)
    like, state = jnp.zeros(3), None
    state = metric.init(like)
    for _ in range(4):
        state = metric.update(state, like, jnp.full(3, 1e-3))
    state = metric.update(state, like, jnp.full(3, 2.0))
    applied = metric.apply_inverse(state, jnp.full(3, 2.0))
    assert float(applied.max()) < 20.0


class TestUnknown:
    """What a metric is without statistics, in proportion to what is known."""

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "metric",
        [
            gx.metrics.RMSProp(),
            gx.metrics.Shampoo(),
            gx.metrics.Shampoo(method="newton"),
            gx.metrics.Shampoo(variant="soap"),
        ],
        ids=["rmsprop", "shampoo", "newton", "soap"],
    )
    @pytest.mark.parametrize("tiny", [0.0, 1e-8])
    def test_a_leaf_without_a_gradient_has_the_size_of_the_others(self, metric, tiny):
        position = {"w": jnp.zeros((2, 2)), "b": jnp.zeros(4)}
        update = jax.jit(lambda state, g: metric.update(state, position, g))
        state = metric.init(position)
        for _ in range(3):
            state = update(state, {"w": jnp.full((2, 2), 3.0), "b": jnp.full(4, 3.0 * tiny)})
        applied = metric.apply_inverse(state, jax.tree.map(jnp.ones_like, position))
        np.testing.assert_allclose(applied["b"], np.sqrt(2) / 3.0, rtol=1e-3)
        state = metric.init(position)
        for _ in range(3):
            state = update(state, jax.tree.map(lambda x: jnp.full_like(x, tiny), position))
        applied = metric.apply_inverse(state, jax.tree.map(jnp.ones_like, position))
        jax.tree.map(lambda x: np.testing.assert_allclose(x, 1.0, rtol=1e-3), applied)

    def test_gradients_that_vanish_are_not_averaged(self):
        """An average of nothing and one gradient is that gradient."""
        metric, like = gx.metrics.RMSProp(epsilon=0.0), jnp.zeros(2)
        state = metric.init(like)
        for size in (0.0, 1e-9, 0.0, 2.0):
            state = metric.update(state, like, jnp.full(2, size))
        np.testing.assert_allclose(metric.apply_inverse(state, jnp.ones(2)), 0.5, rtol=1e-12)
