"""Trained layers and the nearest orthonormal or low-rank ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import nn


def linear(weight, bias=None):
    m, n = weight.shape
    layer = nn.Linear(n, m, use_bias=bias is not None, dtype=weight.dtype, key=jax.random.key(0))
    layer = eqx.tree_at(lambda layer: layer.weight, layer, weight)
    return layer if bias is None else eqx.tree_at(lambda layer: layer.bias, layer, bias)


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_layers_of_that_form_keep_their_function(key, shape):
    m, n = shape
    keys = jax.random.split(key, 4)
    q = gx.distributions.StiefelUniform(max(shape), min(shape)).sample(keys[0])
    weight = 1.7 * (q if m >= n else q.T)
    bias, x = jax.random.normal(keys[1], (m,)), jax.random.normal(keys[2], (n,))
    layer = linear(weight, bias)
    found = nn.orthogonalize(layer)
    assert isinstance(found, nn.OrthogonalLinear)
    np.testing.assert_allclose(found(x), layer(x), atol=1e-12)
    left, right = jnp.split(jax.random.normal(keys[3], (2, m + n)), [m], axis=1)
    layer = linear(left.T @ right)
    found = nn.orthogonalize(layer, rank=2)
    assert isinstance(found, nn.LowRankLinear)
    assert found.bias is None
    np.testing.assert_allclose(found(x), layer(x), atol=1e-12)


def test_no_other_matrix_of_the_form_is_nearer(key):
    """Catches a gain other than the mean singular value, and singular vectors in another order."""
    weight = jax.random.normal(key, (6, 4))
    singular = np.linalg.svd(weight, compute_uv=False)
    distance = np.linalg.norm(nn.orthogonalize(linear(weight)).matrix - weight)
    np.testing.assert_allclose(distance, np.linalg.norm(singular - singular.mean()), rtol=1e-12)
    distance = np.linalg.norm(nn.orthogonalize(linear(weight), rank=3).matrix - weight)
    np.testing.assert_allclose(distance, singular[3], rtol=1e-12)


@pytest.mark.thorough
def test_only_the_layers_asked_for_and_of_any_network(key):
    class Network(eqx.Module):
        first: nn.Linear
        norm: eqx.nn.LayerNorm
        second: nn.Linear

        def __call__(self, x):
            return self.second(self.norm(jax.nn.relu(self.first(x))))

    keys = jax.random.split(key)
    network = Network(nn.Linear(5, 4, key=keys[0]), eqx.nn.LayerNorm(4), nn.Linear(4, 2, key=keys[1]))
    found = nn.orthogonalize(network, where="first")
    assert found.second is network.second
    assert found.norm is network.norm
    geometry = nn.geometry(found)
    draws = gx.sample(
        key,
        gx.nuts(lambda n: -sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(n)), manifold=geometry),
        found,
        num_samples=5,
        num_warmup=5,
        num_chains=1,
        progress=False,
    )
    assert float(draws["sample_stats"]["residual"].max()) < 1e-4
    ranks = nn.orthogonalize(network, where=["first", "second"], rank=[3, 1])
    assert ranks.first.left.shape == (4, 3)
    assert ranks.second.left.shape == (2, 1)


def test_equal_singular_values_have_finite_gaps():
    layer = nn.orthogonalize(linear(jnp.eye(3)), rank=2)
    assert np.isfinite(layer.log_gaps).all()
    np.testing.assert_allclose(layer.scales, 1.0)


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        (linear(jnp.zeros((2, 3))), {}, "has rank 0; expected at least 1"),
        (linear(jnp.ones((2, 3))), {"rank": 2}, "has rank 1; expected at least 2"),
        (linear(jnp.full((2, 3), jnp.nan)), {}, "not finite"),
        ({"a": eqx.nn.LayerNorm(3)}, {}, r"expected a network with equinox\.nn\.Linear layers, found 'a'"),
        ({"a": linear(jnp.ones((2, 3)))}, {"where": "b"}, "orthogonalize: the pattern 'b' matches no dense layer"),
    ],
)
def test_what_cannot_be_is_refused(layer, options, message):
    with pytest.raises(ValueError, match=message):
        nn.orthogonalize(layer, **options)


def test_layers_whose_weights_another_module_scales_are_left_alone():
    """Catches weights that are neither orthonormal nor near the trained ones, and adapters that cannot be called."""
    keys = jax.random.split(jax.random.key(0), 3)
    scaled = eqx.nn.WeightNorm(nn.Linear(4, 4, key=keys[0]))
    network = eqx.nn.Sequential([scaled, nn.Linear(4, 2, key=keys[1])])
    found = nn.orthogonalize(network)
    assert found[0] is scaled
    assert isinstance(found[1], nn.OrthogonalLinear)
    adapted = nn.adapt(network, rank=1, key=keys[2])
    assert list(adapted.adapters) == ["layers.1"]
    np.testing.assert_array_equal(adapted(jnp.ones(4)), network(jnp.ones(4)))
    with pytest.raises(ValueError, match=r"'layers\.0\.layer' is no dense layer"):
        nn.orthogonalize(network, where="layers.0.layer")
