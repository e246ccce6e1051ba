"""Which layers of a network become variational, and which are refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import vi

nn = gx.nn


def convolution(kind, *args, **options):
    return kind(*args, in_channels=1, out_channels=2, kernel_size=3, key=jax.random.key(0), **options)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (convolution(eqx.nn.Conv1d), r"layers\.0, a Conv1d over 1 axes, has no variational form"),
        (convolution(eqx.nn.Conv, 3), r"layers\.0, a Conv over 3 axes, has no variational form"),
        (convolution(eqx.nn.ConvTranspose2d), r"layers\.0, a ConvTranspose2d over 2 axes, has no variational form"),
        (convolution(nn.Conv2d, padding=1, padding_mode="CIRCULAR"), r"padded with zeros, found .*'CIRCULAR'"),
        (convolution(nn.Conv2d, padding="SAME", padding_mode="REFLECT"), r"padded with zeros, found .*'REFLECT'"),
    ],
)
def test_convolutions_without_a_variational_form_are_refused(layer, message):
    network = eqx.nn.Sequential([layer, nn.Linear(4, 1, key=jax.random.key(1))])
    with pytest.raises(ValueError, match=message):
        nn.variational(network, "whvi", key=jax.random.key(2))


def test_a_convolution_over_two_axes_by_any_name():
    network = convolution(eqx.nn.Conv, 2, padding=0, padding_mode="CIRCULAR", dtype=jnp.float32)
    made = nn.variational(network, "mean-field", key=jax.random.key(1))
    assert isinstance(made, nn.MeanFieldConv2d)
    image = jnp.ones((1, 5, 5), jnp.float32)
    np.testing.assert_allclose(nn.realize(made, network)(image), made(image), rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{"orthogonal": True}, {"rank": 2}, {"rank": 2, "factorization": "bottleneck"}], ids=str
)
def test_weights_that_are_not_free_are_refused(options):
    network = nn.MLP(4, 2, widths=(4,), key=jax.random.key(0), **options)
    with pytest.raises(ValueError, match=r"supports only free weights, but layers\.0 is a .*gx\.sghmc"):
        nn.variational(network, "mean-field", key=jax.random.key(1))


@pytest.mark.thorough
def test_a_layer_of_one_number():
    network = eqx.nn.Linear("scalar", 3, dtype=jnp.float32, key=jax.random.key(0))
    made = nn.variational(network, "mean-field", key=jax.random.key(1))
    x = jnp.asarray([0.5, 2.0], jnp.float32)
    assert vi.predict(jax.random.key(2), made, x, num_samples=4).shape == (4, 2, 3)
    mean = nn.realize(made, network)
    np.testing.assert_allclose(jax.vmap(mean)(x), jax.vmap(made)(x), rtol=1e-6)
    both = nn.variational(eqx.nn.Linear("scalar", "scalar", key=jax.random.key(0)), "whvi", key=jax.random.key(1))
    assert both(jnp.asarray(1.0)).shape == ()


class Reshaping(eqx.Module):
    first: eqx.nn.Linear
    last: eqx.nn.Linear

    def __call__(self, x):
        hidden = self.first(x.reshape(self.first.in_features))
        return self.last(hidden.reshape(self.first.out_features))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inference", "local"), [("whvi", True), ("mean-field", True), ("mean-field", False), ("mc-dropout", True)]
)
def test_networks_read_the_sizes_of_their_layers(inference, local):
    keys = jax.random.split(jax.random.key(0), 4)
    network = Reshaping(
        nn.Linear(4, 3, dtype=jnp.float32, key=keys[0]), nn.Linear(3, "scalar", dtype=jnp.float32, key=keys[1])
    )
    made = nn.variational(network, inference, key=keys[2], local=local)
    x = jnp.ones((5, 2, 2), jnp.float32)
    assert vi.predict(keys[3], made, x, num_samples=2).shape == (2, 5)
    assert vi.sample_functions(jax.random.key(1), made, x, num_samples=2).shape == (2, 5)
