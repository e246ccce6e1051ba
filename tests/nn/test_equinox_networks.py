"""Ordinary Equinox networks: results are those of the same network without other leaves; tied weights; statistics."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

nn, vi = gx.nn, gx.vi
LIKELIHOOD = nn.CategoricalLikelihood()


class Ordinary(eqx.Module):
    """A network with leaves that are no arrays: a flag, a number, a string, functions and a layer with two of them."""

    uses_scale: bool
    first: eqx.nn.Linear
    activation: Callable
    dropout: eqx.nn.Dropout
    scale: float
    last: eqx.nn.Linear
    name: str
    nothing: None
    buffer: jax.Array

    def __init__(self, layers):
        self.first, self.last = layers
        self.activation, self.dropout, self.name = jnp.tanh, eqx.nn.Dropout(0.5), "ordinary"
        self.uses_scale, self.scale, self.nothing, self.buffer = True, 1.0, None, jnp.arange(3)

    def __call__(self, x, *, key=None):
        hidden = self.dropout(self.activation(self.first(x)), key=key)
        return self.last(hidden * self.scale if self.uses_scale else 0.0 * hidden)


@pytest.fixture(params=["own", "eqx.nn.MLP"])
def networks(request, key):
    """A network without other leaves, and an ordinary one with the same weights."""
    plain = nn.MLP(4, 3, widths=(5,), activation=jnp.tanh, dtype=jnp.float64, key=key)
    if request.param == "own":
        return plain, eqx.nn.inference_mode(Ordinary(plain.layers))
    mlp = eqx.nn.MLP(4, 3, 5, 1, activation=jnp.tanh, dtype=jnp.float64, key=jax.random.key(1))
    return plain, eqx.tree_at(lambda tree: tree.layers, mlp, plain.layers)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(40, 4))), jnp.asarray(rng.integers(0, 3, 40))


def last_of(network):
    return network.last if isinstance(network, Ordinary) else network.layers[-1]


def numbers(tree):
    return jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))


def assert_same(found, expected):
    for one, other in zip(numbers(found), numbers(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_laplace_of_an_ordinary_network_is_that_of_its_layers(structure, networks, data):
    """Catches places that count other leaves, and leaves lost on the way to draws and predictions."""

    def of(network):
        keys = jax.random.split(jax.random.key(5), 3)
        fitted = nn.laplace_posterior(network, LIKELIHOOD, data, structure=structure)
        best = fitted.maximised()
        drawn = best.sample(keys[0])
        return (
            (fitted.log_marginal_likelihood(), best.log_marginal_likelihood(), best.kl(), best.log_prob(drawn)),
            (best.linearised(data[0]), fitted.sample_linearised(keys[1], data[0], num_samples=3)),
            (jax.vmap(drawn)(data[0]), vi.predict(keys[2], best, data[0], num_samples=3)),
            nn.laplace_posterior(network, LIKELIHOOD, data, structure=structure, where=last_of).linearised(data[0]),
        )

    plain, ordinary = networks
    assert_same(of(ordinary), of(plain))


@pytest.mark.thorough
def test_draws_by_the_sampler_are_arrays(networks, data):
    """Catches a sampler whose positions have functions in them, or lose the layers' places."""

    def draws(network):
        sampler = nn.laplace_posterior(network, LIKELIHOOD, data).sampler()
        start = eqx.filter(network, eqx.is_inexact_array)
        found = gx.sample(jax.random.key(0), sampler, start, num_samples=3, num_chains=2, progress=False)
        return [variable.values for variable in found["posterior"].dataset.data_vars.values()]

    plain, ordinary = networks
    for one, other in zip(draws(ordinary), draws(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.thorough
def test_noises_of_an_ordinary_network_are_maximised(networks, data):
    x, _ = data
    y = jnp.stack([x[:, 0], x[:, 1] * x[:, 2], 0.1 * x[:, 3]], axis=1)
    for noise in (jnp.zeros(()), jnp.zeros(3)):
        plain, ordinary = (
            nn.laplace_posterior(nn.WithNoise(network, noise), nn.GaussianLikelihood(), (x, y)).maximised()
            for network in networks
        )
        assert_same(ordinary, plain)


@pytest.mark.thorough
@pytest.mark.parametrize("where", [None, last_of], ids=["all layers", "last layer"])
def test_noisy_kfac_of_an_ordinary_network_is_that_of_its_layers(where, networks, data):
    """Catches other leaves that are moved, given priors or lost, and layers at other places."""
    priors = nn.Priors([("*bias", nn.Gaussian(0.3)), ("*", nn.Gaussian(0.7))])

    def of(network):
        method = vi.noisy_kfac(network, LIKELIHOOD, 0.1, num_data=40, priors=priors, where=where)
        fit = vi.fit(
            jax.random.key(1), network, LIKELIHOOD, data, num_steps=20, batch_size=10, algorithm=method, progress=False
        )
        q, keys = fit.network, jax.random.split(jax.random.key(2))
        return fit, vi.predict(keys[0], q, data[0], num_samples=3), q.kl(), q.log_prob(q.sample(keys[1]))

    plain, ordinary = map(of, networks)
    assert_same(ordinary, plain)
    np.testing.assert_allclose(ordinary[0].history.elbo, plain[0].history.elbo, rtol=1e-9)
    assert float(jnp.abs(last_of(ordinary[0].network.mean).weight - last_of(networks[1]).weight).max()) > 0.1


def test_the_part_of_a_network_with_its_arrays_is_refused_in_words(networks, data):
    network = networks[1]
    weights, rest = eqx.partition(network, eqx.is_inexact_array)
    with pytest.raises(TypeError, match=r"laplace_posterior: expected a whole network, found .* missing leaves"):
        nn.laplace_posterior(weights, LIKELIHOOD, data)
    combined = nn.CategoricalLikelihood(lambda weights, x: jax.vmap(eqx.combine(weights, rest))(x))
    for likelihood in (LIKELIHOOD, combined):
        method = vi.noisy_kfac(weights, likelihood, 0.1, num_data=40)
        with pytest.raises(TypeError, match=r"noisy_kfac: expected a whole network.* likelihood without apply="):
            vi.fit(jax.random.key(1), weights, likelihood, data, num_steps=2, algorithm=method, progress=False)


def test_both_approximations_refuse_labels_out_of_range(networks, data):
    x, y = data
    for labels in (y + 1, y - 1):
        with pytest.raises(ValueError, match=r"last_layer_laplace: .* not finite\. Labels must be from 0"):
            nn.last_layer_laplace(networks[1], LIKELIHOOD, (x, labels), where=last_of)
        with pytest.raises(ValueError, match=r"laplace_posterior: .* not finite\. Labels must be from 0"):
            nn.laplace_posterior(networks[1], LIKELIHOOD, (x, labels))


class Tied(eqx.Module):
    """A layer, and two with one weight, by whichever of them has it; the network reads the sizes of layers."""

    first: eqx.nn.Linear
    shared: eqx.nn.Shared

    def __init__(self, key, owner):
        keys = jax.random.split(key, 3)
        self.first, *pair = (eqx.nn.Linear(4, 4, dtype=jnp.float64, key=key) for key in keys)
        self.shared = eqx.nn.Shared(pair, lambda pair: pair[1 - owner].weight, lambda pair: pair[owner].weight)

    def __call__(self, x):
        second, third = self.shared()
        return third(jnp.tanh(second(jnp.tanh(self.first(x.reshape(self.first.in_features))))))


@pytest.mark.thorough
@pytest.mark.parametrize("owner", [0, 1])
def test_a_layer_beside_tied_ones_has_its_posterior(owner, data, key):
    """Catches a layer without a weight of its own among the dense ones, and reads of a layer that is marked or tapped."""
    network = Tied(key, owner)
    first, bias = network.first.weight, network.first.bias
    found = nn.laplace_posterior(network, LIKELIHOOD, data, structure="full", where=lambda tree: tree.first)

    def outputs(theta):
        layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), network.first, (theta[:, :-1], theta[:, -1]))
        moved = eqx.tree_at(lambda tree: tree.first, network, layer)
        return jax.vmap(moved)(data[0])

    theta = jnp.concatenate([first, bias[:, None]], axis=1)
    jacobian = jax.jacobian(outputs)(theta).reshape(40, 4, 20)
    p = jax.nn.softmax(outputs(theta))
    hessians = jax.vmap(jnp.diag)(p) - p[:, :, None] * p[:, None]
    precision = jnp.einsum("noi,nop,npj->ij", jacobian, hessians, jacobian) + jnp.eye(20)
    expected = jnp.einsum("noi,ij,npj->nop", jacobian, jnp.linalg.inv(precision), jacobian)
    np.testing.assert_allclose(found.linearised(data[0]).covariance, expected, rtol=1e-6)
    for where in (None, lambda tree: tree.shared.pytree[owner]):
        with pytest.raises(ValueError, match=r"the network uses the array 'weight' of a layer \(Linear\) outside"):
            nn.laplace_posterior(network, LIKELIHOOD, data, where=where)
    method = vi.noisy_kfac(network, LIKELIHOOD, 0.1, num_data=40, where=lambda tree: tree.first)
    fit = vi.fit(jax.random.key(1), network, LIKELIHOOD, data, num_steps=2, algorithm=method, progress=False)
    assert np.isfinite(fit.history.elbo).all()
    adapted = nn.adapt(network, rank=1, where="first", key=key)
    np.testing.assert_array_equal(adapted(data[0][0]), network(data[0][0]))
    assert len(nn.adapt(network, rank=1, key=key).adapters) == 2


class Language(eqx.Module):
    """An embedding whose weight is that of the last layer, and a layer between."""

    between: eqx.nn.Linear
    shared: eqx.nn.Shared

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.between = eqx.nn.Linear(4, 4, dtype=jnp.float64, key=keys[0])
        pair = (
            eqx.nn.Embedding(4, 4, dtype=jnp.float64, key=keys[1]),
            eqx.nn.Linear(4, 4, dtype=jnp.float64, key=keys[2]),
        )
        self.shared = eqx.nn.Shared(pair, lambda pair: pair[1].weight, lambda pair: pair[0].weight)

    def __call__(self, x):
        embedding, last = self.shared()
        return last(jnp.tanh(self.between(x @ embedding.weight)))


@pytest.mark.thorough
def test_all_layers_of_a_network_leave_out_those_without_a_weight(data, key):
    network = Language(key)
    method = vi.noisy_kfac(network, LIKELIHOOD, 0.1, num_data=40)
    fit = vi.fit(jax.random.key(1), network, LIKELIHOOD, data, num_steps=2, algorithm=method, progress=False)
    assert len(fit.network.layers) == 1
    assert fit.network.rest.location.shape == (4 * 4 + 4,)
    with pytest.warns(UserWarning, match="only dense layers have a posterior"):
        found = nn.laplace_posterior(network, LIKELIHOOD, data)
    expected = nn.laplace_posterior(network, LIKELIHOOD, data, where=lambda tree: tree.between)
    assert_same(found, expected)
    assert list(nn.adapt(network, rank=1, key=key).adapters) == ["between"]
    assert isinstance(nn.orthogonalize(network).between, nn.OrthogonalLinear)
    with pytest.raises(ValueError, match=r"variational: shared\.pytree\.1 has the weight of another layer"):
        nn.variational(network, "mean-field", key=key)


@pytest.mark.thorough
def test_one_array_in_two_places_is_named(data, key):
    layer = eqx.nn.Linear(4, 4, dtype=jnp.float64, key=key)
    twice, zeros = eqx.nn.Sequential([layer, layer]), jnp.zeros(3)
    weights = eqx.filter(twice, eqx.is_inexact_array)
    message = r"layers\.0\.weight and layers\.1\.weight of the (position|network) are one array, but two parameters"

    def sampled(position):
        sampler = gx.sgrld(lambda x: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x)), step_size=0.1)
        return gx.sample(key, sampler, position, num_samples=2, num_chains=1, progress=False)

    with pytest.warns(UserWarning, match=message):
        sampled(weights)
    with pytest.warns(UserWarning, match=message):
        vi.GaussianOver(weights)
    with pytest.warns(UserWarning, match=message):
        vi.noisy_kfac(twice, LIKELIHOOD, 0.1, num_data=40)
    with pytest.warns(UserWarning, match=message):
        nn.laplace_posterior(twice, LIKELIHOOD, data)
    sampled({"a": zeros, "b": zeros})


def test_statistics_of_equinox_are_no_parameters(key):
    """Catches a network whose initial statistics were left in it, which a prior would move."""
    norm = eqx.nn.BatchNorm(4, "batch", mode="batch")
    with pytest.raises(TypeError, match=r"batch_state_index is no parameter.* equinox\.nn\.make_with_state"):
        vi.GaussianOver(eqx.filter(norm, eqx.is_inexact_array))
    whole, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "batch", mode="batch")
    assert vi.GaussianOver(eqx.filter(whole, eqx.is_inexact_array)).family.location.shape == (8,)
    with pytest.raises(TypeError, match=r"position\.state is no parameter"):
        vi.GaussianOver({"norm": eqx.filter(whole, eqx.is_inexact_array), "state": state})


def test_a_network_in_training_mode_is_named(data, key):
    """Catches Equinox's error, which asks for a key, without the way out."""
    network = Ordinary(nn.MLP(4, 3, widths=(5,), dtype=jnp.float64, key=key).layers)
    for call in (lambda: LIKELIHOOD(network, data), lambda: nn.laplace_posterior(network, LIKELIHOOD, data)):
        with pytest.raises(RuntimeError, match="Dropout requires a key") as found:
            call()
        assert any("equinox.nn.inference_mode" in note for note in found.value.__notes__)


@pytest.mark.thorough
def test_a_tied_orthonormal_weight_is_sampled_once(key):
    """Catches a manifold for the place of a weight that is in another layer."""
    pair = tuple(nn.OrthogonalLinear(4, 4, dtype=jnp.float64, key=k) for k in jax.random.split(key))
    shared = eqx.nn.Shared(pair, lambda pair: pair[1].weight, lambda pair: pair[0].weight)
    weights, rest = eqx.partition(shared, eqx.is_inexact_array)
    manifold = nn.geometry(weights)
    assert manifold.dim(weights) == 6 + 4 + 4

    def log_density(weights):
        return jnp.sum(eqx.combine(weights, rest)()[1](jnp.arange(4.0))) - 0.5 * sum(
            jnp.sum(leaf**2) for leaf in jax.tree.leaves(weights)
        )

    sampler = gx.hmc(log_density, manifold=manifold, step_size=0.1, num_integration_steps=3)
    state, _ = jax.jit(sampler.step)(jax.random.key(1), sampler.init(weights))
    one, two = eqx.combine(state.position, rest)()
    np.testing.assert_array_equal(one.weight, two.weight)
    np.testing.assert_allclose(one.weight.T @ one.weight, np.eye(4), atol=1e-12)
    assert not np.allclose(one.weight, pair[0].weight, atol=1e-3)


def test_apply_of_the_network_alone_is_named(data, key):
    """Catches an error of pytrees alone, where ``apply`` takes the network and the position is a ``WithNoise``."""
    x, _ = data
    weights, rest = eqx.partition(eqx.nn.MLP(4, "scalar", 5, 1, key=key), eqx.is_inexact_array)
    likelihood = nn.GaussianLikelihood(apply=lambda weights, x: jax.vmap(eqx.combine(weights, rest))(x))
    with pytest.raises(ValueError, match="pytree structure") as found:
        likelihood(nn.WithNoise(weights), (x, x[:, 0]))
    assert any("is position.network" in note for note in found.value.__notes__)
    weights, rest = eqx.partition(nn.WithNoise(eqx.combine(weights, rest)), eqx.is_inexact_array)
    assert likelihood(weights, (x, x[:, 0])).shape == x.shape[:1]


@pytest.mark.thorough
def test_a_stack_of_networks_is_named(data, key):
    """Catches JAX's error of shapes alone, for an ensemble where one network is expected."""
    stack = eqx.filter_vmap(lambda key: eqx.nn.MLP(4, 3, 5, 1, key=key))(jax.random.split(key, 4))
    for call in (
        lambda: LIKELIHOOD(stack, data),
        lambda: nn.laplace_posterior(stack, LIKELIHOOD, data),
        lambda: nn.last_layer_laplace(stack, LIKELIHOOD, data, where=lambda network: network.layers[-1]),
    ):
        with pytest.raises(TypeError, match="dot_general") as found:
            call()
        assert any("a stack of networks" in note for note in found.value.__notes__)
