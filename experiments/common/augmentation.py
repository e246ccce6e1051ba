"""Flips and crops of training images, drawn anew for each batch.

The likelihood of a batch stays scaled by the number of images, not of their versions. What a sampler sees is an unbiased
estimate of :math:`\\log p(\\theta) + \\sum_i E_a \\log p(y_i \\mid a(x_i), \\theta)`, over flips and crops :math:`a`: a
density of the parameters, but not their posterior given the images, as no likelihood of a label is this mean of logarithms.
"""

from typing import Any

import jax
import jax.numpy as jnp

PADDING = 4  # as for CIFAR-10 by He, Zhang, Ren and Sun (2016), section 4.2


def flips_and_crops(key: jax.Array, batch: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
    """Flip each image with probability one half, pad it with zeros, and cut it out at a random place.

    Zeros are the mean colour of normalised images.

    Args:
        key: Randomness.
        batch: Images (image, channel, row, column), and their labels, which stay as they are.

    Returns:
        As many images of the same size, and the labels.
    """
    images, labels = batch
    key_flips, key_places = jax.random.split(key)
    flips = jax.random.bernoulli(key_flips, shape=(len(images), 1, 1, 1))
    places = jax.random.randint(key_places, (len(images), 2), 0, 2 * PADDING + 1)
    padded = jnp.pad(
        jnp.where(flips, images[..., ::-1], images), ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING))
    )

    def crop(image: jax.Array, place: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(image, (0, place[0], place[1]), images.shape[1:])

    return jax.vmap(crop)(padded, places), labels


AUGMENTATIONS = {"flips and crops": flips_and_crops, "none": None}
