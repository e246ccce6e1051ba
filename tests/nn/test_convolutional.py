"""Networks of images: their sizes, one block against a convolution by SciPy, and that examples do not see each other."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

import geodax as gx
from geodax.nn.convolutional import ResidualBlock
from tests.marks import slow

nn = gx.nn


def by_scipy(layer, x):
    """A normalised convolution."""
    kernel = np.asarray(layer.conv.weight if isinstance(layer.conv, nn.Conv2d) else layer.conv.kernel)
    stride = layer.conv.stride if isinstance(layer.conv.stride, int) else layer.conv.stride[0]
    y = np.stack([sum(signal.correlate2d(c, k, mode="same") for c, k in zip(x, ks, strict=True)) for ks in kernel])
    y = y[:, ::stride, ::stride]
    y = y / np.sqrt((y**2).mean(axis=(1, 2), keepdims=True) + 1e-6)
    return np.asarray(layer.norm.weight)[:, None, None] * y + np.asarray(layer.norm.bias)[:, None, None]


@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_block_is_two_convolutions_and_a_shortcut(orthogonal, key):
    key_block, key_x, key_norm = jax.random.split(key, 3)
    block = ResidualBlock(2, 4, orthogonal=orthogonal, activation=jnp.tanh, dtype=jnp.float64, key=key_block)
    norms = [block.first.norm, block.second.norm, block.shortcut.norm]
    drawn = [nn.Priors().sample(k, norm) for k, norm in zip(jax.random.split(key_norm, 3), norms, strict=True)]
    block = eqx.tree_at(lambda b: [b.first.norm, b.second.norm, b.shortcut.norm], block, drawn)
    x = jax.random.normal(key_x, (2, 6, 6), jnp.float64)
    y = by_scipy(block.second, np.tanh(by_scipy(block.first, np.asarray(x))))
    expected = np.tanh(y + by_scipy(block.shortcut, np.asarray(x)))
    np.testing.assert_allclose(eqx.filter_jit(block)(x), expected, atol=1e-12)


def test_networks_have_the_published_numbers_of_parameters(key):
    def count(kind, **options):
        network = jax.eval_shape(lambda key: kind(key=key, **options), key)
        return sum(leaf.size for leaf in jax.tree.leaves(network))

    # the originals' with a scale and a shift for each channel
    assert count(nn.ResNet20) == 272_474
    kernels = 9 * (3 * 16 + 2 * 16**2 + 16 * 32 + 32**2 + 32 * 64 + 64**2) + 16 * 32 + 32 * 64
    assert count(nn.ResNet20, blocks_a_stage=1) == kernels + 2 * (3 * 16 + 3 * 32 + 3 * 64) + 64 * 10 + 10
    convolutions = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    kernels = sum(9 * i * o + 2 * o for i, o in itertools.pairwise(convolutions))
    assert count(nn.VGG16) == kernels + 2 * (512 * 512 + 512) + 512 * 10 + 10
    assert count(nn.VGG16, orthogonal=True) == count(nn.VGG16)
    # the tables of the paper on Walsh-Hadamard inference, biases of convolutions and their normalisation apart
    small = [3, 32, 32, 64, 64, 128, 128, 128, *[256] * 6]
    kernels = sum(9 * i * o + 2 * o for i, o in itertools.pairwise(small))
    assert count(nn.VGG16, width=32, num_hidden=0) == kernels + 256 * 10 + 10
    kernels = sum(9 * i * o + 2 * o for i, o in itertools.pairwise([3, 64, 192, 384, 256, 256]))
    assert count(nn.AlexNet) == kernels + 2 * (4096 * 4096 + 4096) + 4096 * 10 + 10
    kernels = sum(9 * i * o + 2 * o for i, o in itertools.pairwise([3, *[64] * 5, *[128] * 4, *[256] * 4, *[512] * 4]))
    shortcuts = sum(i * o + 2 * o for i, o in itertools.pairwise([64, 128, 256, 512]))
    assert count(nn.ResNet18) == kernels + shortcuts + 512 * 10 + 10


@pytest.mark.parametrize("kind", [nn.AlexNet, nn.VGG16])
def test_networks_with_dense_layers_name_the_size_of_their_images(key, kind):
    """Catches 28 x 28 pixels halved to 3 and 4 rows, which no array operation takes."""
    with pytest.raises(
        ValueError, match=r"(AlexNet|VGG16): expected an image of shape \(channels, 32, 32\), found .*28"
    ):
        jax.eval_shape(lambda key: kind(5, width=1, key=key)(jnp.zeros((3, 28, 28), jnp.float32)), key)


@pytest.mark.slow
def test_the_other_networks_see_one_image_at_a_time(key):
    keys = jax.random.split(key, 3)
    x = jax.random.normal(keys[0], (2, 3, 32, 32), jnp.float32)
    for kind, part in ((nn.AlexNet, keys[1]), (nn.ResNet18, keys[2])):
        network = kind(5, width=2, key=part)
        outputs = jax.jit(lambda network, x: jax.vmap(network)(x))
        both = outputs(network, x)
        assert both.shape == (2, 5)
        changed = outputs(network, x.at[1].set(0.0))
        np.testing.assert_allclose(both[0], changed[0], rtol=1e-5)
        assert np.abs(both[1] - changed[1]).max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [slow(nn.VGG16), nn.ResNet20])
def test_orthogonal_networks_are_on_their_manifold_and_see_one_example(kind, key):
    key_net, key_x = jax.random.split(key)
    network = eqx.filter_jit(kind)(7, in_channels=1, width=2, orthogonal=True, key=key_net)
    manifold = nn.geometry(network)
    manifold.validate(network, "network")
    assert float(jax.jit(manifold.residual)(network)) < 1e-5
    kinds = {type(law).__name__ for path, _, law in nn.Priors().describe(network) if path.endswith("conv.weight")}
    assert kinds == {"Haar"}
    x = jax.random.normal(key_x, (3, 1, 32, 32), jnp.float32)
    logits = jax.jit(jax.vmap(network))
    together = logits(x)
    assert together.shape == (3, 7)
    # another neighbour does not change an example
    np.testing.assert_array_equal(logits(x.at[0].multiply(100.0))[1:], together[1:])
    assert np.ptp(together) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", [nn.VGG16, nn.ResNet20])
def test_gradients_of_small_networks_are_those_of_differences(kind, key):
    key_net, key_x, key_u = jax.random.split(key, 3)
    network = kind(3, in_channels=1, width=2, dtype=jnp.float64, key=key_net)
    x = jax.random.normal(key_x, (2, 1, 32, 32), jnp.float64)
    likelihood = jax.jit(lambda network: jnp.sum(nn.CategoricalLikelihood()(network, (x, jnp.asarray([0, 2])))))
    direction = nn.Priors([("*", nn.Gaussian(1.0))]).sample(key_u, network)
    slope = sum(
        float(jnp.sum(a * b))
        for a, b in zip(jax.tree.leaves(jax.grad(likelihood)(network)), jax.tree.leaves(direction), strict=True)
    )
    step = 1e-6
    ends = [likelihood(jax.tree.map(lambda a, b, h=h: a + h * b, network, direction)) for h in (step, -step)]
    assert float(ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, rel=1e-4)
