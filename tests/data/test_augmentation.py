"""Random changes of the examples of a batch."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.data.parts import draw_part
from geodax.run.feeding import make_feed

IMAGES, LABELS = np.arange(60, dtype=np.float32).reshape(10, 2, 3), np.arange(10, dtype=np.int32)


OTHER_KEY = jax.random.key(1)


def called_back(image, kept=[]):  # noqa: B006
    """A function made anew, which stays at another address each time."""
    kept.append(lambda x: np.asarray(x))
    return jax.pure_callback(kept[-1], jax.ShapeDtypeStruct(image.shape, image.dtype), image)


def flipped(key, example):
    image, label = example
    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image), label


def test_each_example_of_each_batch_has_its_own_key(key):
    """Catches one flip for a whole batch, the same flips in all batches, and labels that move away from images."""
    batches = gx.data.batches((IMAGES, LABELS), batch_size=5, order="epochs", augment=flipped)
    plain = gx.data.batches((IMAGES, LABELS), batch_size=5, order="epochs")
    numbers = jnp.arange(400)
    x, y = jax.jit(jax.vmap(batches.draw, (None, 0)))(key, numbers)
    before, labels = jax.jit(jax.vmap(plain.draw, (None, 0)))(jax.random.clone(key), numbers)
    np.testing.assert_array_equal(y, labels)
    is_flipped = np.asarray((x != before).any(axis=(2, 3)))
    np.testing.assert_array_equal(x, np.where(is_flipped[..., None, None], before[..., ::-1], before))
    for axis in (0, 1):  # each place over batches, and neighbours
        shares = is_flipped.mean(axis=axis)
        assert np.abs(shares - 0.5).max() < 5 * 0.5 / np.sqrt(is_flipped.shape[axis]) + 0.5 * axis
    together = np.mean(is_flipped[:, 1:] == is_flipped[:, :-1])
    assert abs(together - 0.5) < 5 * 0.5 / np.sqrt(1600)


def test_the_log_density_averages_over_augmentations_and_counts_each_image_once(key):
    """Catches N multiplied by the number of augmentations: the mean over batches is prior + the averaged sum."""
    posterior = gx.Posterior(
        log_prior=lambda p: -0.5 * p**2,
        log_likelihood=lambda p, batch: p * batch[0][:, 0, 0] - 0.1 * p**2,
        num_data=10,
    )
    batches = gx.data.batches((IMAGES, LABELS), batch_size=5, augment=flipped)
    p = jnp.asarray(0.3, jnp.float32)
    draw = jax.jit(jax.vmap(lambda i, key: posterior.logdensity(p, batches.draw(key, i)), (0, None)))
    found = np.asarray(draw(jnp.arange(20_000), key), np.float64)
    exact = -0.5 * 0.09 + np.sum(0.3 * 0.5 * (IMAGES[:, 0, 0] + IMAGES[:, 0, 2]) - 0.009)
    assert abs(found.mean() - exact) < 4 * found.std() / np.sqrt(len(found))


def test_devices_share_the_augmented_batch(key):
    """Catches keys that depend on the device: the parts of two devices are the batch of one."""
    batches = gx.data.batches((IMAGES, LABELS), batch_size=8, augment=flipped)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("data")
    part = jax.shard_map(
        lambda: draw_part(batches, key, jnp.int32(3), "data"), mesh=mesh, in_specs=(), out_specs=spec, check_vma=False
    )
    x, y = jax.jit(part)()
    whole = batches.draw(jax.random.clone(key), jnp.int32(3))
    np.testing.assert_array_equal(x, whole[0])
    np.testing.assert_array_equal(y, whole[1])


def test_batches_of_all_examples_are_augmented_for_each_chain(key):
    """Without an augmentation all chains get the examples as they are; catches that with one."""
    chains, number = jax.random.split(key, 2), jnp.int32(0)
    for augment in (None, flipped):
        feed = make_feed(gx.data.batches((IMAGES, LABELS), batch_size=10, augment=augment), 1)
        x, y = feed.draw(feed.load(0, 0), chains, number, number)
        if augment is None:
            np.testing.assert_array_equal(x, IMAGES)
        else:
            assert x.shape == (2, *IMAGES.shape)
            assert (x[0] != x[1]).any()
        np.testing.assert_array_equal(jnp.broadcast_to(y, (2, 10)), np.stack([LABELS] * 2))


def test_what_is_no_augmentation_is_refused():
    with pytest.raises(TypeError, match=r"augment must be a function \(key, example\) -> example"):
        gx.data.batches((IMAGES, LABELS), batch_size=2, augment=lambda example: example)
    with pytest.raises(TypeError, match="must return the arrays of one example"):
        gx.data.batches((IMAGES, LABELS), batch_size=2, augment=lambda key, example: example[0])


SIGNS = np.random.default_rng(0)  # others are the same eight times in one of 128 runs


@pytest.mark.parametrize(
    "draw",
    [np.random.default_rng(0).normal, lambda: SIGNS.choice([-1.0, 1.0]), random.random],
    ids=["normal", "sign", "python"],
)
def test_random_numbers_of_others_are_refused(draw):
    """They would be drawn once, when the loop is compiled, and be the same for all examples of all batches."""
    with pytest.raises(ValueError, match="Draw them from its key"):
        gx.data.batches((IMAGES, LABELS), batch_size=2, augment=lambda key, e: (e[0] + np.float32(draw()), e[1]))


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image * np.array([[0.0, np.nan, 1.0]], np.float32),
        lambda image: image + jax.random.normal(OTHER_KEY, image.shape, image.dtype),
        called_back,
        jax.nn.relu,
    ],
    ids=["constants with NaN", "a key", "a callback", "relu"],
)
def test_constants_and_functions_are_no_random_numbers(change):
    gx.data.batches((IMAGES, LABELS), batch_size=2, augment=lambda key, e: (change(e[0]), e[1]))
