"""The fast generators: the normal law out to 6 standard deviations, and no trace of one draw in another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from geodax._random import _log_of_cell, _mix, fast_normal, random_signs, standard_normal


def draws(key, num_keys, size):
    keys = jax.random.split(key, num_keys)
    return np.asarray(jax.jit(jax.vmap(lambda k: fast_normal(k, (size,))))(keys), np.float64)


@pytest.mark.thorough
def test_law(key):
    z = draws(key, 50, 100_001)
    flat = z.ravel()
    n = flat.size
    assert abs(flat.mean()) < 4 / np.sqrt(n)
    assert abs(flat.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs((flat**3).mean()) < 4 * np.sqrt(15 / n)
    assert abs((flat**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert kstest(flat[:1_000_000], "norm").pvalue > 1e-4
    edges = ndtri(np.linspace(0, 1, 1001)[1:-1])
    counts = np.bincount(np.searchsorted(edges, flat), minlength=1000)
    assert abs(np.sum((counts - n / 1000) ** 2) / (n / 1000) - 999) < 4.5 * np.sqrt(2 * 999)


def tail_counts(key, num_keys, size):
    """Draws beyond 3, 4, 4.5, 5, 5.5 and 6 standard deviations, and the extremes."""
    bounds = jnp.array([3.0, 4.0, 4.5, 5.0, 5.5, 6.0], jnp.float32)

    def count(total, k):
        z = fast_normal(k, (size,))
        return total + jnp.sum(jnp.abs(z)[None] > bounds[:, None], axis=1), (z.min(), z.max())

    start = jnp.zeros(6, int)
    total, extremes = jax.jit(lambda keys: jax.lax.scan(count, start, keys))(jax.random.split(key, num_keys))
    return np.asarray(total), np.asarray(bounds), np.min(extremes[0]), np.max(extremes[1])


def check_tails(key, num_keys, size):
    found, bounds, lowest, highest = tail_counts(key, num_keys, size)
    expected = 2 * ndtr(-bounds.astype(float)) * num_keys * size
    z = (found - expected) / np.sqrt(np.maximum(expected, 1))
    assert np.all(np.abs(z[expected > 5]) < 4.5), (found, expected)
    assert np.isfinite([lowest, highest]).all()
    return found


@pytest.mark.thorough
def test_tails(key):
    check_tails(key, 64, 1 << 18)


@pytest.mark.slow
def test_far_tails(key):
    """Four thousand million draws: 8 of them beyond 6 standard deviations."""
    found = check_tails(key, 1 << 12, 1 << 20)
    assert found[-1] > 0, "nothing beyond 6 standard deviations"


def correlation(a, b):
    return np.sum((a - a.mean()) * (b - b.mean())) / np.sqrt(np.sum((a - a.mean()) ** 2) * np.sum((b - b.mean()) ** 2))


def test_logarithm_of_cells():
    """Around every power of two, where the exponent changes, at both ends, and between."""
    powers = 1 << np.arange(31)
    cells = np.unique(np.concatenate([powers - 1, powers, powers + 1, np.arange(5000), (1 << 31) - 1 - np.arange(500)]))
    cells = np.unique(np.concatenate([cells, np.random.default_rng(0).integers(0, 1 << 31, 100_000)]))
    cells = cells[(cells >= 0) & (cells < 1 << 31)].astype(np.uint32)
    found = np.asarray(_log_of_cell(jnp.asarray(cells)), np.float64)
    truth = np.log((cells.astype(np.float32) + np.float32(0.5)).astype(np.float64) / 2.0**31)
    assert np.all(found <= 0)
    assert np.abs(found - truth).max() < 3e-6  # the rounding of numbers up to 22
    near_one = truth > -1
    assert np.abs(found - truth)[near_one].max() < 3e-7


def test_entries_are_uncorrelated(key):
    """Neighbours and others; the values, their squares, their signs and their tails."""
    z = draws(key, 20, 100_000)
    bound = 4.5 / np.sqrt(z.size)
    for function in (lambda x: x, np.square, np.sign, lambda x: np.abs(x) > 2.5):
        y = function(z).astype(float)
        for lag in (1, 2, 3, 64, 50_000):
            assert abs(correlation(y[:, :-lag], y[:, lag:])) < bound * np.sqrt(z.size / y[:, lag:].size), lag


@pytest.mark.thorough
def test_steps_chains_and_leaves_are_uncorrelated(key):
    """The same entries under keys that are folded from neighbouring numbers."""
    step_keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(40))
    trees = jax.jit(jax.vmap(lambda k: standard_normal(k, [jnp.zeros(40_000, jnp.float32)] * 2)))(step_keys)
    z = np.stack([np.asarray(leaf, float) for leaf in trees], axis=1).reshape(80, -1)
    for function in (lambda x: x, np.square):
        y = function(z)
        y = (y - y.mean(1, keepdims=True)) / y.std(1, keepdims=True)
        table = y @ y.T / y.shape[1] - np.eye(80)
        np.fill_diagonal(table, 0)
        assert np.abs(table).max() * np.sqrt(y.shape[1]) < 5.2
        for shift in (1, 7):
            moved = np.roll(y, shift, axis=1) @ y.T / y.shape[1]
            assert np.abs(moved).max() * np.sqrt(y.shape[1]) < 5.2


@pytest.mark.parametrize("make", [standard_normal, random_signs])
def test_leaves_are_uncorrelated(key, make):
    """Small leaves, which are cut from one draw, beside large ones and such of another dtype: no number twice."""
    sizes = [3, 1, 3000, 2, 2500, 4]
    like = [jnp.zeros(size, jnp.float32) for size in sizes] + [jnp.zeros((2, 3), jnp.float64)]
    draw = jax.jit(jax.vmap(lambda k: jnp.concatenate([x.ravel()[:10].astype(float) for x in make(k, like)])))
    z = np.asarray(draw(jax.random.split(key, 20_000)), float)
    assert z.shape == (20_000, 36)
    assert np.abs(z.T @ z / len(z) - np.eye(36)).max() < 5.2 * np.sqrt(2 / len(z))
    assert np.abs(np.corrcoef(z.T) - np.eye(36)).max() < 5.2 / np.sqrt(len(z))


def test_entries_over_keys_are_normal(key):
    """One entry under many keys: what a single parameter sees in the course of a run."""
    z = draws(key, 200_000, 6)
    for column in z.T:
        assert kstest(column, "norm").pvalue > 1e-4
    assert np.abs(np.corrcoef(z.T) - np.eye(6)).max() < 4.5 / np.sqrt(200_000)


def test_radius_and_sign_are_independent(key):
    """A draw's length says nothing about its sign, in the middle, in the tails and along the counter."""
    z = draws(key, 50, 100_000).ravel()
    for lower, upper in ((0, 0.01), (0, 0.5), (0.5, 1), (1, 2), (2, 3), (3, 7)):
        chosen = z[(np.abs(z) >= lower) & (np.abs(z) < upper)]
        assert abs(np.sign(chosen).sum()) < 4.5 * np.sqrt(chosen.size)


def test_radius_and_angle_are_independent(key):
    """Both come from one counter: bits of one word beside bits of the other, at the same entry and at others."""

    def words(key):
        drawn = jax.random.bits(key, (6,), jnp.uint32)
        counter = jax.lax.iota(jnp.uint32, 1 << 17)
        return _mix(counter, drawn[:3]), _mix(counter, drawn[3:])

    radius, angle = (np.asarray(x) for x in jax.jit(jax.vmap(words))(jax.random.split(key, 40)))
    for lag in (0, 1, -1, 64):
        moved = np.roll(angle, lag, axis=1)
        for of_radius, of_angle in ((25, 25), (1, 25), (25, 1), (12, 12)):
            cell = ((radius >> of_radius) & 127) * 128 + ((moved >> of_angle) & 127)
            counts = np.bincount(cell.ravel(), minlength=1 << 14)
            expected = cell.size / counts.size
            score = (np.sum((counts - expected) ** 2) / expected - counts.size + 1) / np.sqrt(2 * counts.size)
            assert abs(score) < 4.5, (lag, of_radius, of_angle)


def test_signs(key):
    """Fair coins, independent over entries, leaves and keys, in the dtypes of the leaves."""
    like = {"large": jnp.zeros((60, 50), jnp.float32), "small": jnp.zeros(3), "double": jnp.zeros((50, 60))}
    keys = jax.random.split(key, 2_000)
    signs = jax.jit(jax.vmap(lambda k: random_signs(k, like)))(keys)
    for name, leaf in like.items():
        assert signs[name].dtype == leaf.dtype
        assert signs[name].shape == (2_000, *leaf.shape)
        assert set(np.unique(signs[name])) == {-1.0, 1.0}
    large = np.asarray(signs["large"], float).reshape(2_000, -1)
    double = np.asarray(signs["double"], float).reshape(2_000, -1)
    size = large.size
    for product in (large, large[:, 1:] * large[:, :-1], large[1:] * large[:-1], large * double):
        assert abs(product.sum()) < 4.5 * np.sqrt(size)
    assert np.abs(large.mean(0)).max() < 5.2 / np.sqrt(2_000)


@pytest.mark.thorough
def test_leaves_of_every_dtype(key):
    like = {
        "large": jnp.zeros((60, 50), jnp.float32),
        "small": jnp.zeros(3, jnp.float32),
        "double": jnp.zeros((60, 50)),
        "complex": jnp.zeros((60, 50), complex),
        "half": jnp.zeros((60, 50), jnp.bfloat16),
    }
    noise = standard_normal(key, like)
    for name, leaf in like.items():
        assert noise[name].shape == leaf.shape
        assert noise[name].dtype == leaf.dtype
    assert abs(np.asarray(noise["complex"].real).var() - 1) < 4 * np.sqrt(2 / 3000)
    np.testing.assert_array_equal(standard_normal(jax.random.clone(key), like)["large"], noise["large"])
