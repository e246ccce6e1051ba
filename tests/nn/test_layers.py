"""Layers: the matrices they apply, their gradients on the manifold, batches, geometry of networks, sampling."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax._tree import leaf_names

nn = gx.nn


@pytest.mark.thorough
@pytest.mark.parametrize(("inputs", "outputs"), [(7, 4), (4, 7), (5, 5)])
def test_orthogonal_linear_is_an_orthonormal_matrix(inputs, outputs, dtype, key):
    key_layer, key_x = jax.random.split(key)
    layer = nn.OrthogonalLinear(inputs, outputs, gain=1.5, dtype=dtype, key=key_layer)
    x = jax.random.normal(key_x, (inputs,), dtype)
    assert layer.weight.shape == (max(inputs, outputs), min(inputs, outputs))
    small = min(inputs, outputs)
    w = np.asarray(layer.matrix) / 1.5
    gram = w @ w.T if outputs <= inputs else w.T @ w
    tolerance = 20 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(gram, np.eye(small), atol=tolerance)
    np.testing.assert_allclose(layer(x), 1.5 * w @ np.asarray(x), rtol=0, atol=10 * tolerance)
    assert float(gx.Stiefel().residual(layer.weight)) < tolerance


@pytest.mark.parametrize("half", [jnp.float16, jnp.bfloat16])
class TestHalfPrecision:
    """LAPACK has none: decompositions are those of single precision, rounded."""

    layers = pytest.mark.parametrize(
        "make",
        [
            lambda dtype, key: nn.OrthogonalLinear(7, 4, dtype=dtype, key=key),
            lambda dtype, key: nn.LowRankLinear(7, 4, rank=3, dtype=dtype, key=key),
            lambda dtype, key: nn.OrthogonalConv2d(2, 4, 3, dtype=dtype, key=key),
            lambda dtype, key: nn.MLP(7, 4, widths=(5, 3), orthogonal=True, dtype=dtype, key=key),
        ],
        ids=["orthogonal", "low-rank", "images", "network"],
    )

    @pytest.mark.thorough
    @layers
    def test_layers(self, make, half, key):
        layer, wide = make(half, jax.random.clone(key)), make(jnp.float32, jax.random.clone(key))
        for found, expected in zip(jax.tree.leaves(layer), jax.tree.leaves(wide), strict=True):
            assert found.dtype == half
            if not isinstance(layer, nn.MLP):  # whose last layer draws in its own type
                np.testing.assert_array_equal(found, expected.astype(half))
        x = jnp.ones((2, 5, 5) if isinstance(layer, nn.OrthogonalConv2d) else 7, half)
        assert layer(x).dtype == half

    @pytest.mark.thorough
    @layers
    def test_priors(self, make, half, key):
        layer = make(half, jax.random.clone(key))
        drawn = nn.Priors().sample(key, layer)
        assert all(leaf.dtype == half and jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(drawn))
        found = nn.Priors()(drawn)
        assert found.dtype == jnp.float32
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), drawn)
        np.testing.assert_allclose(found, nn.Priors()(wide), rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize(("channels", "outputs"), [(3, 5), (1, 12)])
def test_orthogonal_convolution_is_the_product_with_patches(channels, outputs, key):
    key_layer, key_x = jax.random.split(key)
    layer = nn.OrthogonalConv2d(channels, outputs, 3, stride=2, padding=1, dtype=jnp.float64, key=key_layer)
    layer = eqx.tree_at(lambda tree: tree.bias, layer, jnp.arange(outputs, dtype=jnp.float64))
    x = jax.random.normal(key_x, (channels, 6, 7), jnp.float64)
    matrix = np.asarray(layer.weight if outputs >= 9 * channels else layer.weight.T)
    padded = np.pad(np.asarray(x), ((0, 0), (1, 1), (1, 1)))
    expected = np.zeros((outputs, 3, 4))
    for i in range(3):
        for j in range(4):
            patch = padded[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            expected[:, i, j] = matrix @ patch.ravel() + np.arange(outputs)
    np.testing.assert_allclose(layer(x), expected, atol=1e-13)
    gram = matrix @ matrix.T if outputs <= 9 * channels else matrix.T @ matrix
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-13)


@pytest.mark.thorough
def test_low_rank_linear_is_its_decomposition(dtype, key):
    key_layer, key_x = jax.random.split(key)
    layer = nn.LowRankLinear(6, 9, rank=3, dtype=dtype, key=key_layer)
    x = jax.random.normal(key_x, (6,), dtype)
    tolerance = 100 * float(jnp.finfo(dtype).eps)
    found = np.linalg.svd(np.asarray(layer.matrix), compute_uv=False)
    np.testing.assert_allclose(found[:3], layer.scales, rtol=tolerance)
    np.testing.assert_allclose(found[3:], 0, atol=tolerance)
    assert np.all(np.diff(layer.scales) < 0)
    assert float(layer.scales[-1]) > 0
    np.testing.assert_allclose(layer(x), np.asarray(layer.matrix) @ np.asarray(x), atol=10 * tolerance)


def test_filter_response_norm_sees_one_channel_of_one_image(key):
    layer = nn.FilterResponseNorm(2, epsilon=0.25, dtype=jnp.float64)
    layer = eqx.tree_at(lambda tree: (tree.weight, tree.bias), layer, (jnp.array([2.0, 3.0]), jnp.array([0.5, -1.0])))
    x = jax.random.normal(key, (2, 3, 4), jnp.float64)
    y = np.asarray(layer(x))
    for channel, (gamma, beta) in enumerate([(2.0, 0.5), (3.0, -1.0)]):
        plane = np.asarray(x[channel])
        np.testing.assert_allclose(y[channel], gamma * plane / np.sqrt((plane**2).mean() + 0.25) + beta, rtol=1e-13)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_filter_response_norm_of_large_numbers_in_half_precision(dtype, key):
    """Catches squares that overflow: all of an image would be its bias."""
    layer = nn.FilterResponseNorm(2, dtype=dtype)
    x = (1000.0 * jax.random.normal(key, (2, 6, 6), jnp.float32)).astype(dtype)
    found = layer(x)
    assert found.dtype == dtype
    wide = nn.FilterResponseNorm(2, dtype=jnp.float32)(x.astype(jnp.float32))
    np.testing.assert_allclose(np.asarray(found, np.float64), wide, rtol=float(jnp.finfo(dtype).eps))


def test_kernels_have_positive_whole_sides(key):
    assert nn.OrthogonalConv2d(1, 1, np.int64(3), key=key).kernel_size == (3, 3)
    with pytest.raises(ValueError, match="OrthogonalConv2d: height must be at least 1"):
        nn.OrthogonalConv2d(1, 1, 0, key=key)


def test_batches_are_the_examples_one_by_one(key):
    key_net, key_x = jax.random.split(key)
    network = nn.MLP(5, 3, widths=(8, 6), rank=(None, 2), dtype=jnp.float64, key=key_net)
    x = jax.random.normal(key_x, (4, 5), jnp.float64)
    alone = jax.jit(network.__call__)
    one_by_one = np.stack([np.asarray(alone(row)) for row in x])
    np.testing.assert_allclose(jax.vmap(network)(x), one_by_one, atol=1e-13)


@pytest.mark.thorough
def test_mlp_names_its_kinds_of_layers(key):
    keys = jax.random.split(key, 3)
    orthogonal = nn.MLP(20, 10, widths=(12, 12), orthogonal=True, key=keys[0])
    assert [type(layer).__name__ for layer in orthogonal.layers] == ["OrthogonalLinear", "OrthogonalLinear", "Linear"]
    assert orthogonal.layers[0].weight.dtype == jnp.float32
    low_rank = nn.MLP(16, 10, widths=(12, 12), rank=(5, None), key=keys[1])
    assert [type(layer).__name__ for layer in low_rank.layers] == ["LowRankLinear", "Linear", "Linear"]
    bottleneck = nn.MLP(16, "scalar", widths=(12,), rank=5, factorization="bottleneck", key=keys[2])
    assert type(bottleneck.layers[0]).__name__ == "BottleneckLinear"
    assert bottleneck(jnp.ones(16, jnp.float32)).shape == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": (3,)}, "as many ranks"),
        ({"rank": 3, "orthogonal": True}, "choose one"),
        ({"rank": 3, "factorization": "qr"}, "'svd', 'bottleneck'"),
        ({"rank": 9}, "at most min"),
        ({"widths": (0,), "orthogonal": True}, r"widths\[0\] must be at least 1"),
    ],
)
def test_mlp_says_what_does_not_fit(options, words, key):
    with pytest.raises(ValueError, match=words):
        nn.MLP(4, 2, **({"widths": (8, 8)} | options), key=key)


@pytest.mark.thorough
def test_geometry_has_stiefel_at_the_orthonormal_weights_only(key):
    keys = jax.random.split(key, 3)
    network = nn.MLP(6, 3, widths=(5, 4), orthogonal=True, key=keys[0])
    low_rank = nn.LowRankLinear(6, 5, rank=2, use_bias=False, key=keys[1])
    position = nn.WithNoise({"a": network, "b": low_rank, "c": jnp.ones(3, jnp.float32)})
    manifold = nn.geometry(position, stiefel=gx.Stiefel(metric="embedded"))
    manifold.validate(position, "network")
    flat = manifold.is_flat(position)
    assert [layer.weight for layer in flat.network["a"].layers] == [False, False, True]
    assert (flat.network["b"].left, flat.network["b"].right, flat.network["b"].log_gaps) == (False, False, True)
    assert flat.log_noise is True
    # 5x6 and 4x5 orthonormal rows, their biases, a 3x4 layer, factors 5x2 and 6x2, two gaps, three numbers, the noise
    expected = (30 - 15) + 5 + (20 - 10) + 4 + 15 + (10 - 3) + (12 - 3) + 2 + 3 + 1
    assert manifold.dim(position) == expected
    drawn = manifold.random_point(keys[2], position)
    assert jax.tree.structure(drawn) == jax.tree.structure(position)
    assert float(manifold.residual(drawn)) < 1e-5
    assert float(manifold.residual(jax.tree.map(lambda x: 2 * x, drawn))) > 1.0


@pytest.mark.thorough
def test_a_network_is_sampled_on_its_manifold(key):
    key_net, key_x, key_run = jax.random.split(key, 3)
    network = nn.MLP(4, 2, widths=(6, 5), orthogonal=True, dtype=jnp.float64, key=key_net)
    x = jax.random.normal(key_x, (40, 4), jnp.float64)
    y = (x[:, 0] > 0).astype(jnp.int32)
    posterior = gx.Posterior(log_prior=nn.Priors(), log_likelihood=nn.CategoricalLikelihood(), num_data=40)
    sampler = gx.sghmc(posterior, manifold=nn.geometry(network), step_size=0.03)
    draws = gx.sample(
        key_run,
        sampler,
        network,
        batches=gx.data.batches((x, y), batch_size=10),
        num_samples=60,
        num_warmup=100,
        num_chains=2,
        progress=False,
    )
    weights = draws["posterior"]["layers.1.weight"].values
    gram = np.einsum("cdnp,cdnq->cdpq", weights, weights)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(5), gram.shape), atol=1e-10)
    assert weights.std(axis=1).min() > 1e-3
    names = leaf_names(network)
    last = jax.tree.structure(network).unflatten([jnp.asarray(draws["posterior"][n].values[0, -1]) for n in names])
    likelihood = jax.jit(nn.CategoricalLikelihood())
    assert likelihood(last, (x, y)).mean() > likelihood(network, (x, y)).mean() + 0.2


IMAGE_LAYERS = {
    "orthogonal": lambda **options: nn.OrthogonalConv2d(3, 4, 3, **options),
    "whvi": lambda **options: nn.WHVIConv2d(3, 4, 3, **options),
    "mean-field": lambda **options: nn.MeanFieldConv2d(3, 4, 3, **options),
    "dropout": lambda **options: nn.DropoutConv2d(3, 4, 3, **options),
    "norm": lambda key, **options: nn.FilterResponseNorm(3, **options),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_layers_of_images_see_one_image_with_their_channels(name, key, unchecked):
    """Catches missing channels that count as black, one channel that counts as many, batches normalised as images."""
    layer = IMAGE_LAYERS[name](key=key)
    for shape in ((1, 6, 6), (4, 6, 6), (5, 3, 6, 6), (6, 6)):
        with pytest.raises(ValueError, match=r"one image of shape \(3, height, width\).*Use jax\.vmap"):
            layer(jnp.ones(shape, jnp.float32))
    assert jax.vmap(layer)(jnp.ones((5, 3, 6, 6), jnp.float32)).shape[:2] == (5, 3 if name == "norm" else 4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_images_may_be_bytes(name, key, unchecked):
    """Catches squares that wrap round at 256."""
    layer = IMAGE_LAYERS[name](key=key, dtype=jnp.float64)
    x = np.random.default_rng(0).integers(0, 256, (3, 6, 6)).astype(np.uint8)
    np.testing.assert_allclose(layer(jnp.asarray(x)), layer(jnp.asarray(x, jnp.float64)), rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in IMAGE_LAYERS if name != "norm"])
def test_padding_is_of_zeros(name, key, unchecked):
    for bad, error in ((-1, ValueError), ("REFLECT", ValueError), ((1, 2), TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="Conv2d: padding must be"):
            IMAGE_LAYERS[name](key=jax.random.clone(key), padding=bad)
    layer = IMAGE_LAYERS[name](key=key, padding="same")
    assert layer(jnp.ones((3, 6, 7), jnp.float32)).shape == (4, 6, 7)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "make",
    [
        lambda i, k: nn.MLP(i(4), i(2), widths=(i(5), i(3)), key=k),
        lambda i, k: nn.MLP(i(4), i(2), widths=(i(5), i(3)), rank=i(2), key=k),
        lambda i, k: nn.MLP(4, 2, widths=(5, 3), rank=np.array([2, 1]) if i is np.int64 else (2, 1), key=k),
        lambda i, k: nn.MLP(4, 2, widths=(5,), rank=i(2), factorization="bottleneck", key=k),
        lambda i, k: nn.MLP(i(4), i(2), widths=(i(5),), orthogonal=True, key=k),
        lambda i, k: nn.LowRankLinear(i(4), i(3), rank=i(2), key=k),
        lambda i, k: nn.OrthogonalConv2d(i(2), i(3), i(3), stride=i(1), padding=i(1), key=k),
        lambda i, k: nn.OrthogonalConv2d(2, 3, np.array([3, 2]) if i is np.int64 else (3, 2), key=k),
        lambda i, k: nn.MeanFieldConv2d(i(2), i(3), i(3), stride=i(2), key=k),
        lambda i, k: nn.DropoutConv2d(i(2), i(3), i(3), stride=i(2), key=k),
        lambda i, k: nn.WHVIConv2d(i(2), i(3), i(3), stride=i(2), key=k),
        lambda i, k: nn.WHVILinear(i(4), i(3), key=k),
        lambda i, k: nn.VGG16(i(3), in_channels=i(2), width=i(2), num_hidden=i(1), orthogonal=True, key=k),
        lambda i, k: nn.ResNet20(i(3), in_channels=i(2), width=i(2), key=k),
        lambda i, k: nn.AlexNet(i(3), in_channels=i(2), width=i(2), key=k),
        lambda i, k: nn.SingularValues(i(4), i(3)),
        lambda i, k: nn.BottleneckLinear(i(4), i(3), rank=i(2), key=k),
        lambda i, k: nn.DropoutLinear(i(4), i(3), key=k),
        lambda i, k: nn.MeanFieldLinear(i(4), i(3), key=k),
        lambda i, k: nn.FilterResponseNorm(i(4)),
        lambda i, k: nn.RandomFeatures(i(4), i(3), key=k),
    ],
)
def test_sizes_may_be_numbers_of_numpy(make, key, unchecked):
    """The same network, whose fields that are no arrays are Python's."""
    expected = jax.eval_shape(functools.partial(make, int), key)
    for kind in (np.int64, np.array):
        found = jax.eval_shape(functools.partial(make, kind), key)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        assert not {"int64", "array"} & set(str(jax.tree.structure(found)).replace("(", " ").split())
        assert jax.tree.leaves(found) == jax.tree.leaves(expected)


def test_numbers_of_numpy_leave_types_as_they_are(key, unchecked):
    """``np.sqrt(2)`` is a number in double precision, which an array in single precision would become too."""
    x = jnp.ones((3, 6, 6), jnp.float32)
    for conv, name in ((nn.OrthogonalConv2d, "OrthogonalConv2d"), (nn.DropoutConv2d, "DropoutConv2d")):
        assert conv(3, 4, 3, gain=np.sqrt(2), key=jax.random.clone(key))(x).dtype == jnp.float32
        with pytest.raises(ValueError, match=f"{name}: gain must be"):
            conv(3, 4, 3, gain=np.nan, key=jax.random.clone(key))
    for layer, part in (
        (nn.DropoutConv2d(3, 4, 3, rate=np.float64(0.1), key=key), x),
        (nn.DropoutLinear(6, 4, rate=np.float64(0.1), key=jax.random.clone(key)), x[0, 0]),
    ):
        assert layer(part, key=jax.random.key(1)).dtype == jnp.float32
