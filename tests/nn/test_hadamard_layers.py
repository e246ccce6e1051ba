"""Walsh-Hadamard layers against dense matrices, their moments against exact sums, their draws against both."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import vi
from geodax.geometry.hadamard import hadamard_matrix
from tests.marks import slow

nn = gx.nn


def dense(weight, g):
    """The matrix of a weight from its definition, for one g a block."""
    h = hadamard_matrix(weight.order)
    s1, s2 = (np.asarray(s) for s in (weight.s1, weight.s2))
    blocks = [np.diag(a) @ h @ np.diag(x) @ h @ np.diag(b) for a, x, b in zip(s1, np.asarray(g), s2, strict=True)]
    columns = [block.ravel(order="F") for block in blocks]
    rows = np.stack(columns) if weight.is_column else np.concatenate(blocks)
    return rows[: weight.out_features, : weight.in_features]


@functools.cache
def layer(*arguments, **options):
    made = nn.WHVILinear(*arguments, dtype=jnp.float64, key=jax.random.key(4), **options)
    rough = 1.0 + 0.5 * jax.random.normal(jax.random.key(5), made.weight.s1.shape, jnp.float64)
    return eqx.tree_at(lambda tree: tree.weight.s1, made, made.weight.s1 * rough)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inputs", "outputs", "column"),
    [
        (3, 10, None),
        (10, 2, True),
        slow(8, 8, None),
        slow(5, 3, None),
        slow(13, 1, None),
    ],
)
def test_layer_is_its_dense_matrix(inputs, outputs, column, key):
    check_dense_matrix(inputs, outputs, column, key)


def check_dense_matrix(inputs, outputs, column, key):
    """Fast product, entries by exclusive or, and the definition: padded, stacked, as columns."""
    made = layer(inputs, outputs, column=column)
    key_x, key_g = jax.random.split(key)
    x = jax.random.normal(key_x, (3, inputs), jnp.float64)
    for number in (0, 1):
        drawn = None if number == 0 else key_g
        g = made.weight.g.mean if drawn is None else made.weight.g.sample(jax.random.clone(key_g))
        matrix = dense(made.weight, g)
        again = [None, None] if drawn is None else [jax.random.clone(key_g), jax.random.clone(key_g)]
        np.testing.assert_allclose(made.weight.apply(x, drawn), np.asarray(x) @ matrix.T, atol=1e-12)
        np.testing.assert_allclose(made(x[0], key=again[0]), matrix @ np.asarray(x[0]), atol=1e-12)
        np.testing.assert_allclose(made.matrix(again[1]), matrix, atol=1e-12)


def test_layer_has_four_d_parameters():
    made = nn.WHVILinear(16, 16, use_bias=False, key=jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(made)) == 4 * 16
    other = nn.MeanFieldLinear(16, 16, use_bias=False, key=jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(other)) == 2 * 16**2


def test_each_example_has_a_draw_of_its_own(key):
    check_draws_of_rows(key)


def check_draws_of_rows(key):
    """Outputs of one input under many keys: the exact Gaussian law, and nothing shared between rows."""
    made = layer(5, 6, covariance="full")
    made = eqx.tree_at(
        lambda tree: tree.weight.g.lower, made, 0.3 * jax.random.normal(jax.random.key(8), (1, 8, 8), jnp.float64)
    )
    x = jnp.asarray([0.4, -1.0, 0.3, 2.0, 0.7])
    number = 20_000
    rows = jax.jit(lambda key: vi.draw(made, key).rows(jnp.broadcast_to(x, (number, 5))))(key)
    found = np.asarray(rows)
    jacobian = np.stack([dense(made.weight, np.eye(8)[i][None]) @ np.asarray(x) for i in range(8)], axis=1)
    covariance = jacobian @ np.asarray(made.weight.g.covariance())[0] @ jacobian.T
    mean = np.asarray(made.matrix()) @ np.asarray(x)
    variances = np.diagonal(covariance)
    assert np.abs((found.mean(0) - mean) / np.sqrt(variances / number)).max() < 4
    errors = np.sqrt((covariance**2 + np.outer(variances, variances)) / number)
    assert np.abs((np.cov(found.T) - covariance) / errors).max() < 4.5
    neighbours = np.mean((found[1:] - mean) * (found[:-1] - mean), axis=0) / variances
    assert np.abs(neighbours).max() < 4.5 / np.sqrt(number)


@pytest.mark.thorough
@pytest.mark.parametrize("covariance", [slow("diagonal"), "full", "low-rank"])
def test_moments_are_exact_sums(covariance):
    check_moments(covariance)


def check_moments(covariance):
    """U and V from the Gaussian's basis matrices, their roots, and the trace."""
    made = layer(4, 4, covariance=covariance)
    found = nn.row_col_moments(made)
    basis = [dense(made.weight, np.eye(4)[i][None]) for i in range(4)]
    sigma = np.asarray(made.weight.g.covariance())[0]
    row = sum(sigma[i, j] * basis[i] @ basis[j].T for i in range(4) for j in range(4))
    column = sum(sigma[i, j] * basis[i].T @ basis[j] for i in range(4) for j in range(4))
    np.testing.assert_allclose(found.mean[0], dense(made.weight, made.weight.g.mean), atol=1e-12)
    np.testing.assert_allclose(found.row[0], row, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.column[0], column / np.trace(row), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.trace(found.column[0]), 1.0, rtol=1e-12)
    for root, square in ((found.row_root[0], row), (found.column_root[0], column / np.trace(row))):
        np.testing.assert_allclose(np.asarray(root) @ np.asarray(root).T, square, rtol=1e-12, atol=1e-13)


def test_lq_view():
    made = layer(8, 8)
    scale, rotation = nn.lq(made)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(8), atol=1e-14)
    vec = np.asarray(scale[0]) * (np.asarray(rotation) @ np.asarray(made.weight.g.mean[0]))
    np.testing.assert_allclose(vec, dense(made.weight, made.weight.g.mean).ravel(order="F"), atol=1e-13)


@pytest.mark.thorough
def test_convolution_is_that_with_the_dense_kernel(key):
    made = nn.WHVIConv2d(2, 5, 3, stride=2, padding=1, dtype=jnp.float64, key=jax.random.key(1))
    made = eqx.tree_at(lambda tree: tree.bias, made, jnp.arange(5, dtype=jnp.float64))
    x = jax.random.normal(key, (2, 6, 7), jnp.float64)
    for drawn in (None, jax.random.key(2)):
        kernel = made.kernel(drawn)
        again = None if drawn is None else jax.random.clone(drawn)
        expected = jax.lax.conv_general_dilated(x[None], kernel, (2, 2), [(1, 1), (1, 1)])[0]
        np.testing.assert_allclose(made(x, key=again), expected + made.bias[:, None, None], atol=1e-12)


@pytest.mark.thorough
def test_variational_scales_and_flows_are_drawn_and_counted(key):
    check_scales_and_flows(key)


def check_scales_and_flows(key):
    made = nn.WHVILinear(4, 4, scales="variational", num_flows=1, dtype=jnp.float64, key=jax.random.key(1))
    key_first, key_second, key_kl = jax.random.split(key, 3)
    weights = [np.asarray(made.matrix(k)) for k in (key_first, key_second)]
    assert np.abs(weights[0] - weights[1]).min() > 1e-6
    scales = made.weight.s1.kl(1.0) + made.weight.s2.kl(1.0)
    alone = made.weight.g.kl(1.0, key=jax.random.clone(key_kl))
    np.testing.assert_allclose(made.kl(key=key_kl), alone + scales, rtol=1e-12)
    with pytest.raises(ValueError, match="variational"):
        nn.row_col_moments(made)


def test_prior_variance_is_a_variance_and_a_matter_of_units():
    """(lambda, g, S) and (lambda / c^2, g / c, c S) are one posterior of W with one divergence."""
    made = layer(4, 4)
    g, c = made.weight.g, 3.0
    other = eqx.tree_at(
        lambda tree: (tree.weight.g.mean, tree.weight.g.log_scale, tree.weight.s1),
        nn.WHVILinear(4, 4, prior_variance=1.0 / c**2, dtype=jnp.float64, key=jax.random.key(4)),
        (g.mean / c, g.log_scale - np.log(c), made.weight.s1 * c),
    )
    other = eqx.tree_at(lambda tree: tree.weight.s2, other, made.weight.s2)
    np.testing.assert_allclose(other.matrix(), made.matrix(), rtol=1e-12)
    np.testing.assert_allclose(other.kl(), made.kl(), rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"covariance": "banded"}, "'diagonal', 'full', 'low-rank'"),
        ({"scales": "fixed"}, "'optimized', 'variational'"),
        ({"prior_variance": 0.0}, "prior_variance must be a positive number"),
    ],
)
def test_layer_says_what_does_not_fit(options, words, key):
    with pytest.raises(ValueError, match=words):
        nn.WHVILinear(4, 4, **options, key=key)
