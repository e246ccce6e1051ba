"""Functions drawn from variational networks, and layers that one example passes through several times."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import vi
from geodax.vi import modules

nn = gx.nn
DRAWS = 4000


def require_covariance(draws, mean, covariance):
    """The second moments of draws, one a row, about a known mean."""
    products = (draws - mean)[:, :, None] * (draws - mean)[:, None, :]
    errors = products.std(0) / np.sqrt(len(draws))
    assert np.abs((products.mean(0) - covariance) / errors).max() < 4.5


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("kind", [nn.MeanFieldLinear, nn.FullCovarianceLinear])
def test_a_drawn_function_of_a_linear_layer_is_linear(kind, local, key):
    options = {} if local else {"local": False}
    layer = kind(2, 3, use_bias=False, initial_deviation=1.0, dtype=jnp.float64, key=jax.random.key(0), **options)
    a, b = jnp.asarray([1.0, -0.5]), jnp.asarray([0.3, 2.0])
    drawn = vi.sample_functions(key, layer, jnp.stack([a, b, a - 2.0 * b]), num_samples=20)
    np.testing.assert_allclose(drawn[:, 0] - 2.0 * drawn[:, 1], drawn[:, 2], atol=1e-12)
    assert float(jnp.std(drawn[:, 0], axis=0).min()) > 0.1


@pytest.mark.parametrize("weights", ["mean-field", "full"])
def test_functions_of_random_features_have_the_covariance_of_their_weights(weights, key):
    process = nn.RandomFeatureGP(
        1, 1, num_features=8, weights=weights, initial_deviation=2.0, dtype=jnp.float64, key=jax.random.key(0)
    )
    x = jnp.asarray([[-1.0], [0.4], [0.5]])
    features = jax.vmap(process.features)(x)
    drawn = np.asarray(vi.sample_functions(key, process, x, num_samples=DRAWS)[..., 0])
    mean = np.asarray(features @ process.layer.weight.mean[0])
    require_covariance(drawn, mean, np.asarray(2.0**2 / 8 * features @ features.T))


@pytest.mark.thorough
def test_modules_that_draw_weights_draw_them_as_before(key):
    """Walsh-Hadamard layers, flows among them, and dropout: the same weights for the same key."""
    keys = jax.random.split(jax.random.key(0), 2)
    layers = [nn.DropoutLinear(2, 4, rate=0.5, key=keys[0]), nn.WHVILinear(4, 4, num_flows=1, key=keys[1])]
    network = eqx.nn.Sequential(layers)
    x = jax.random.normal(jax.random.key(1), (3, 2), jnp.float32)
    drawn = vi.draw(network, jax.random.split(jax.random.clone(key), 1)[0])
    expected = jax.jit(jax.vmap(vi.seeded(drawn.network, drawn.key)))(x)
    np.testing.assert_allclose(vi.sample_functions(key, network, x, num_samples=1)[0], expected, rtol=1e-6)


def process_at(inducing):
    return nn.InducingPointGP(jnp.asarray(inducing), covariance="full", lengthscale=0.8, amplitude=1.3)


def test_values_of_a_process_are_drawn_together(key):
    """With v at its prior they are the process's own; equal inputs have equal values."""
    x = jnp.asarray([[0.0], [0.4], [3.0], [0.4]])
    drawn = np.asarray(vi.sample_functions(key, process_at([[0.1], [2.0]]), x, num_samples=DRAWS))
    np.testing.assert_allclose(drawn[:, 1], drawn[:, 3], atol=1e-6)
    squares = (np.asarray(x) - np.asarray(x).T) ** 2
    require_covariance(drawn, 0.0, 1.69 * np.exp(-0.5 * squares / 0.8**2))


class Tokens(eqx.Module):
    """A layer that is applied to several vectors of one example, in one of many ways."""

    layer: eqx.Module
    way: str = eqx.field(static=True)

    def __call__(self, x):
        if self.way == "vmap":
            return jax.vmap(self.layer)(x)
        if self.way == "calls":
            return jnp.stack([self.layer(x[0]), self.layer(x[1])])
        if self.way == "scan":
            return jax.lax.scan(lambda carry, row: (carry, self.layer(row)), 0.0, x)[1]
        return jax.checkpoint(jax.jit(lambda row: self.layer(row)))(x[0])


class Applied(eqx.Module):
    """A layer, and what is done with it."""

    layer: eqx.Module
    way: object = eqx.field(static=True)

    def __call__(self, x):
        return self.way(self.layer, x)


FORWARD = {
    "jacfwd": lambda layer, x: jax.jacfwd(layer)(x).ravel(),
    "jvp": lambda layer, x: jnp.concatenate(jax.jvp(layer, (x,), (jnp.asarray([1.0, -1.0]),))),
}


@pytest.mark.parametrize("way", FORWARD)
def test_derivatives_in_forward_mode_have_the_weights_of_the_value(way, key):
    """Networks with derivatives in them: the law of a weight's two products is not that of two weights."""
    layer = nn.MeanFieldLinear(2, 1, use_bias=False, initial_deviation=1.0, dtype=jnp.float64, key=jax.random.key(0))
    x = jnp.broadcast_to(jnp.asarray([1.0, 0.3]), (DRAWS, 2))
    drawn = np.asarray(vi.predict(key, Applied(layer, FORWARD[way]), x, num_samples=1)[0])
    products = np.eye(2) if way == "jacfwd" else np.asarray([[1.0, 0.3], [1.0, -1.0]])
    variance = 0.5  # 1 / in_features
    require_covariance(drawn, products @ np.asarray(layer.weight.mean[0]), variance * products @ products.T)


def test_layers_whose_uses_are_not_to_be_seen_draw_their_weights(key, monkeypatch):
    layer = nn.MeanFieldLinear(1, 1, use_bias=False, initial_deviation=1.0, dtype=jnp.float64, key=jax.random.key(0))
    monkeypatch.setattr(modules, "_count", lambda jaxpr, times, uses: None)
    x = jnp.broadcast_to(jnp.asarray([[1.0], [-2.0]]), (5, 2, 1))
    rows = vi.predict(key, Tokens(layer, "vmap"), x, num_samples=2)
    np.testing.assert_allclose(rows[:, :, 1], -2.0 * rows[:, :, 0], rtol=1e-12)


def test_one_branch_of_several_is_taken():
    """A process in each branch of a condition draws one value."""

    def either(layer, x):
        return jax.lax.cond(x[0] > 0.0, lambda x: layer(x), lambda x: 10.0 + layer(-x), x)

    def uses(way):
        return modules._uses_of_a_row(Applied(process_at([[0.0]]), way), jnp.ones((2, 1)))

    assert list(uses(either).values()) == [modules.Use(1, False)]
    assert list(uses(lambda layer, x: either(layer, x) + layer(x)).values()) == [modules.Use(2, False)]


class OfPairs(vi.AbstractLocal):
    """A layer of one's own, of which an input is a pair."""

    layer: nn.MeanFieldLinear

    def __call__(self, x, *, key=None):
        return self.layer(x[0], key=key) + x[1]

    def fixed(self, key):
        drawn = self.layer.fixed(key)
        return lambda x: drawn(x[0]) + x[1]

    def kl(self, *, key=None):
        return self.layer.kl(key=key)


def test_inputs_of_local_layers_may_be_trees(key):
    layer = OfPairs(nn.MeanFieldLinear(1, 1, dtype=jnp.float64, key=jax.random.key(0)))
    x = jnp.ones((3, 1))
    once = Applied(layer, lambda layer, x: layer((x, 2.0)))
    assert vi.predict(key, once, x, num_samples=2).shape == (2, 3, 1)
    uses = modules._uses_of_a_row(Applied(layer, lambda layer, x: jax.vmap(lambda b: layer((x, b)))(x)), x)
    assert [use.is_several for use in uses.values()] == [True]
    assert not any(use.is_several for use in modules._uses_of_a_row(once, x).values())


def test_values_that_are_drawn_together_say_that_they_have_no_derivatives(key):
    def total(x):
        return jnp.sum(vi.sample_functions(key, process_at([[0.0], [1.0]]), x, num_samples=2))

    with pytest.raises(
        ValueError, match=r"jointly drawn values of an InducingPointGP have no derivatives.*RandomFeature"
    ):
        jax.grad(total)(jnp.asarray([[0.1], [0.9]]))


def test_words_stay_whole_numbers(key):
    """Inputs of an embedding, which `fit` takes as they are."""
    keys = jax.random.split(jax.random.key(0), 2)
    words = eqx.nn.Embedding(5, 2, dtype=jnp.float64, key=keys[0])
    layer = nn.MeanFieldLinear(2, 1, dtype=jnp.float64, key=keys[1])
    network = Applied((words, layer), lambda parts, x: jax.vmap(parts[1])(jax.vmap(parts[0])(x)))
    rows = jnp.asarray([[0, 1, 4], [2, 2, 3]])
    for draw in (vi.predict, vi.sample_functions):
        values = draw(jax.random.clone(key), network, rows, num_samples=3)
        assert values.shape == (3, 2, 3, 1)
        np.testing.assert_allclose(values[:, 1, 0], values[:, 1, 1], rtol=1e-12)


@pytest.mark.parametrize("way", ["vmap", "calls", "scan"])
def test_vectors_of_one_example_share_their_weights(way, key):
    layer = eqx.nn.Linear(1, 1, use_bias=False, dtype=jnp.float64, key=jax.random.key(0))
    network = nn.variational(Tokens(layer, way), "mean-field", initial_deviation=1.0, key=jax.random.key(1))
    x = jnp.broadcast_to(jnp.asarray([[1.0], [-2.0]]), (50, 2, 1))
    rows = vi.predict(key, network, x, num_samples=2)[..., 0].reshape(100, 2)
    np.testing.assert_allclose(rows[:, 1], -2.0 * rows[:, 0], rtol=1e-12)
    assert len(np.unique(rows[:, 0])) == 100


def test_a_layer_that_is_used_once_draws_what_it_returns(key):
    """Also within a transformation that leaves one input for each example one input."""
    layer = nn.MeanFieldLinear(2, 2, dtype=jnp.float64, key=jax.random.key(0))
    chain = eqx.nn.Sequential([eqx.nn.Lambda(Tokens(layer, "checkpoint")), layer])
    uses = modules._uses_of_a_row(chain, jnp.zeros((3, 2, 2)))
    assert len(uses) == 2
    assert not any(use.is_several for use in uses.values())
    x = jnp.ones((3, 2, 2))
    rows = vi.draw(layer, key).rows(x[:, 0])
    keys = jax.random.split(jax.random.split(jax.random.clone(key))[1], 3)
    expected = jax.vmap(lambda key, row: layer(row, key=jax.random.fold_in(key, 0)))(keys, x[:, 0])
    np.testing.assert_allclose(rows, expected, rtol=1e-12)


def likelihood_of_differences(position, batch):
    """A likelihood of one's own that applies the network to two inputs of each example."""
    x, y = batch
    difference = jax.vmap(position)(x[:, 0]) - jax.vmap(position)(x[:, 1])
    return jnp.sum(-0.5 * ((y - difference) / 0.5) ** 2 - 0.5 * jnp.log(2 * jnp.pi * 0.25), axis=1)


class Difference(eqx.Module):
    layer: eqx.Module

    def __call__(self, x):
        values = jax.vmap(self.layer)(x)
        return values[0] - values[1]


@pytest.mark.parametrize("of", ["network", "likelihood"])
def test_bound_of_a_network_with_shared_weights_is_no_higher_than_the_evidence(of, key):
    """At the exact posterior of one weight, with y = 2 w + noise, the two are equal."""
    layer = nn.MeanFieldLinear(1, 1, use_bias=False, dtype=jnp.float64, key=jax.random.key(0))
    y, noise = 0.7, 0.5
    variance = 1 / (1 + 4 / noise**2)
    exact = (jnp.asarray([[variance * 2 * y / noise**2]]), jnp.asarray([[0.5 * np.log(variance)]]))
    layer = eqx.tree_at(lambda tree: (tree.weight.mean, tree.weight.log_scale), layer, exact)
    evidence = -0.5 * (y**2 / (4 + noise**2) + np.log(2 * np.pi * (4 + noise**2)))
    batch = (jnp.asarray([[[1.0], [-1.0]]]), jnp.asarray([[y]]))
    network = Difference(layer) if of == "network" else layer
    likelihood = nn.GaussianLikelihood(noise) if of == "network" else likelihood_of_differences

    def bound(key):
        return vi.elbo(key, network, likelihood, batch, num_data=1).elbo

    draws = np.asarray(jax.jit(jax.vmap(bound))(jax.random.split(key, DRAWS)))
    assert abs(draws.mean() - evidence) < 4.5 * draws.std() / np.sqrt(DRAWS)


def test_layers_of_attention_draw_their_weights(key):
    keys = jax.random.split(key, 3)
    network = [
        eqx.nn.MultiheadAttention(2, 4, dtype=jnp.float32, key=keys[0]),
        eqx.nn.Linear(4, 1, dtype=jnp.float32, key=keys[1]),
    ]
    attention, last = nn.variational(network, "mean-field", key=keys[2])
    assert not attention.query_proj.local
    assert last.local
    made = nn.variational(network, "mean-field", local=False, key=jax.random.key(0))
    assert not made[1].local
    assert isinstance(nn.variational(network, "whvi", local=False, key=jax.random.key(0))[1], nn.WHVILinear)


def test_values_of_a_process_at_several_inputs_of_one_example(key):
    x, process = jnp.asarray([[[0.0], [0.1]], [[0.1], [0.2]]]), process_at([[0.0]])
    drawn = vi.sample_functions(key, Tokens(process, "vmap"), x, num_samples=3)
    np.testing.assert_allclose(drawn[:, 0, 1], drawn[:, 1, 0], atol=1e-6)
    with pytest.raises(ValueError, match=r"InducingPointGP draws its value at one input.* under jax.vmap"):
        vi.predict(jax.random.key(1), Tokens(process, "vmap"), x)
    with pytest.raises(ValueError, match=r"in several calls or in a loop.*RandomFeatureGP"):
        vi.sample_functions(jax.random.key(1), Tokens(process, "calls"), x)
    with pytest.raises(ValueError, match=r"in several calls or in a loop"):
        vi.draw(Tokens(process, "calls"), jax.random.key(1))(x[0])
