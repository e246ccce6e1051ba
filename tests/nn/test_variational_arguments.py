"""Arguments of layers with posteriors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

nn = gx.nn
KEY = jax.random.key(0)
LAYERS = [
    lambda **options: nn.DropoutLinear(2, 2, key=jax.random.clone(KEY), **options),
    lambda **options: nn.DropoutConv2d(1, 2, 3, key=jax.random.clone(KEY), **options),
    lambda **options: nn.MeanFieldLinear(2, 2, key=jax.random.clone(KEY), **options),
    lambda **options: nn.MeanFieldConv2d(1, 2, 3, key=jax.random.clone(KEY), **options),
]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", ["prior_variance", "bias_prior_variance"])
@pytest.mark.parametrize("bad", [-1.0, 0.0, np.inf])
def test_variances_of_the_prior_are_positive(layer, name, bad):
    """Catches divergences that fall as the weights grow, or that are no numbers."""
    with pytest.raises(ValueError, match=f"(Dropout|MeanField)(Linear|Conv2d): {name} must be a positive number"):
        layer(**{name: bad})
    assert float(layer(**{name: 2.0}).kl()) > 0


@pytest.mark.parametrize("layer", [nn.DropoutConv2d, nn.MeanFieldConv2d])
def test_kernels_have_positive_whole_sides(layer):
    def conv(size):
        return layer(1, 1, size, key=jax.random.clone(KEY))

    with pytest.raises(ValueError, match="Conv2d: height must be a positive integer, found 0"):
        conv(0)
    with pytest.raises(ValueError, match="Conv2d: width must be a positive integer"):
        conv((3, -1))
    assert conv(np.int64(3))(jnp.ones((1, 5, 5), jnp.float32)).shape == (1, 3, 3)
    assert conv((3, 2))(jnp.ones((1, 5, 5), jnp.float32)).shape == (1, 3, 4)
