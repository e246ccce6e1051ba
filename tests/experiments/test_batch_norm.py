"""Batch normalisation with frozen statistics, in a chain and alone, and the augmentation of batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from experiments.common import batch_norm, chains
from experiments.common.augmentation import PADDING, flips_and_crops
from geodax.nn.convolutional import NormalizedConv


class Small(eqx.Module):
    """Two normalised convolutions."""

    layers: list

    def __call__(self, x):
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return jnp.mean(x, axis=(1, 2))


@pytest.fixture(scope="module")
def network():
    keys = jax.random.split(jax.random.key(0), 2)
    return batch_norm.normalised(Small([NormalizedConv(2, 3, key=keys[0]), NormalizedConv(3, 4, key=keys[1])]), "batch")


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).normal(1.0, 2.0, (24, 2, 5, 5)).astype(np.float32)


def by_hand(network, x):
    """Outputs for a batch normalised by its own statistics."""
    for layer in network.layers:
        x = jax.vmap(layer.conv)(x)
        mean, variance = (f(x, axis=(0, 2, 3), keepdims=True) for f in (jnp.mean, jnp.var))
        weight, bias = (p[None, :, None, None] for p in (layer.norm.weight, layer.norm.bias))
        x = jnp.tanh(weight * (x - mean) / jnp.sqrt(variance + 1e-5) + bias)
    return jnp.mean(x, axis=(2, 3))


@pytest.mark.thorough
def test_statistics_are_those_of_the_batch_layer_by_layer(network, images):
    """Statistics of the layer before, of each image, or of unnormalised inputs; outputs that differ from the frozen."""
    outputs, statistics = jax.jit(batch_norm.through_batch)(network, images)
    x = images
    for layer, (mean, variance) in zip(network.layers, statistics, strict=True):
        x = np.asarray(jax.vmap(layer.conv)(x))
        np.testing.assert_allclose(mean, x.mean(axis=(0, 2, 3)), atol=1e-5)
        np.testing.assert_allclose(variance, x.var(axis=(0, 2, 3)), rtol=1e-4)
        x = np.tanh((x - x.mean(axis=(0, 2, 3), keepdims=True)) / np.sqrt(x.var(axis=(0, 2, 3), keepdims=True) + 1e-5))
    np.testing.assert_allclose(outputs, x.mean(axis=(2, 3)), atol=1e-5)
    frozen = jax.vmap(batch_norm.refreshed(network, images))
    np.testing.assert_allclose(frozen(images), outputs, atol=1e-5)
    # an image's outputs do not depend on the others, those through a batch do
    np.testing.assert_allclose(frozen(images[:3]), outputs[:3], atol=1e-5)
    assert np.abs(batch_norm.through_batch(network, images[:3])[0] - outputs[:3]).max() > 0.01


@pytest.mark.thorough
def test_a_chain_freezes_the_statistics_after_burn_in(network, images):
    """Statistics that are sampled, that go on changing, or that burn-in's gradients ignore."""
    images, labels = jnp.asarray(images), jnp.arange(24, dtype=np.int32) % 4

    def algorithm_of(likelihood):
        posterior = gx.Posterior(log_prior=gx.nn.Priors(), log_likelihood=likelihood, num_data=24)
        return gx.sgrld(posterior, step_size=1e-4, temperature=0.0)

    training = batch_norm.sampler_of(algorithm_of, network, is_frozen=False)
    sampling = batch_norm.sampler_of(algorithm_of, network, is_frozen=True)
    batches = gx.data.batches((images, labels), batch_size=24, order="epochs")
    seen = []
    plan = chains.Plan(
        training,
        batches,
        num_steps=3,
        chunk=1,
        then=sampling,
        then_at=1,
        between=batch_norm.freeze(images),
        look=lambda positions, sums, count: seen.append(jax.tree.map(np.array, positions)) or {},
        look_every=1,
    )
    chains.run_chains(plan, jax.tree.map(lambda leaf: leaf[None], network), (0,), None)
    steps = [jax.tree.map(lambda leaf: leaf[0], position) for position in seen]
    found = [jax.tree.leaves([layer.statistics for layer in batch_norm.layers_of(step)]) for step in steps]
    expected = jax.tree.leaves(jax.jit(batch_norm.through_batch)(batch_norm.with_statistics(steps[0], None), images)[1])
    for one, two, value in zip(found[1], found[2], expected, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, value, rtol=1e-4, atol=1e-5)

    def step_by_hand(before, apply):
        """One step of the chain by hand."""
        parameters = batch_norm.with_statistics(before, None)
        likelihood = gx.nn.CategoricalLikelihood(apply)
        slope = jax.jit(jax.grad(lambda p: gx.nn.Priors()(p) + jnp.sum(likelihood(p, (images, labels)))))
        gradient = slope(parameters)
        return jax.tree.map(lambda p, g: p + 1e-4 * g, parameters, gradient)

    statistics = [layer.statistics for layer in batch_norm.layers_of(steps[1])]
    for before, after, apply in (
        (network, steps[0], by_hand),
        (steps[1], steps[2], lambda p, x: jax.vmap(batch_norm.with_statistics(p, statistics))(x)),
    ):
        got = jax.tree.leaves(batch_norm.with_statistics(after, None))
        for a, b in zip(got, jax.tree.leaves(step_by_hand(before, apply)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


def test_versions_of_images_are_flips_and_shifts():
    """One version for all, labels that move, a crop outside of the padding, another version for the same key."""
    images = np.tile(np.arange(1, 2 * 64 + 1, dtype=np.float32).reshape(1, 2, 8, 8), (400, 1, 1, 1))
    labels = np.arange(400)
    augment = jax.jit(flips_and_crops)
    found, kept = augment(jax.random.key(0), (images, labels))
    np.testing.assert_array_equal(kept, labels)
    np.testing.assert_array_equal(found, augment(jax.random.key(0), (images, labels))[0])
    padded = np.pad(images[0], ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    crops = {}
    for is_flipped in (False, True):
        source = np.pad(images[0, :, :, ::-1], ((0, 0), (4, 4), (4, 4))) if is_flipped else padded
        for row in range(9):
            for column in range(9):
                crops[source[:, row : row + 8, column : column + 8].tobytes()] = (is_flipped, row, column)
    places = np.array([crops[np.ascontiguousarray(image).tobytes()] for image in np.asarray(found)])
    assert places[:, 0].mean() == pytest.approx(0.5, abs=5 * 0.5 / 20)
    for column in (1, 2):
        assert set(places[:, column]) == set(range(9))
    assert abs(np.corrcoef(places.T)[np.triu_indices(3, 1)]).max() < 5 / 20
