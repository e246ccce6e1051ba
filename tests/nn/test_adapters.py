"""Adapters: the function they start from, the posterior of the update, what is a parameter, merging, errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax._tree import leaf_names

nn = gx.nn
KINDS = ("svd", "polar", "bottleneck")


class Own(eqx.Module):
    """Layers of all kinds, a function, a normalisation with two axes, and a matrix of its own."""

    layers: list
    embedding: jax.Array
    norm: eqx.nn.LayerNorm
    activation: object

    def __init__(self, key):
        keys = jax.random.split(key, 6)
        kind = {"dtype": jnp.float64}
        self.layers = [
            eqx.nn.Linear(4, 6, **kind, key=keys[0]),
            nn.OrthogonalLinear(6, 5, gain=1.5, **kind, key=keys[1]),
            nn.LowRankLinear(5, 6, rank=2, use_bias=False, **kind, key=keys[2]),
            nn.BottleneckLinear(6, 4, rank=3, **kind, key=keys[3]),
            eqx.nn.Linear(4, "scalar", **kind, key=keys[4]),
        ]
        self.embedding = jax.random.normal(keys[5], (3, 4), jnp.float64)
        self.norm = eqx.nn.LayerNorm((2, 3), dtype=jnp.float64)
        self.activation = jnp.tanh

    def __call__(self, x, *, key=None):
        x = x + self.embedding.sum(axis=0)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x) + self.norm(jnp.arange(6.0).reshape(2, 3)).sum()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_adapted_network(kind, key):
    """The function at the start, its parameters, and an ordinary network of the same function at any position."""
    key_network, key_adapter, key_prior, key_x = jax.random.split(key, 4)
    network = Own(key_network)
    where, ranks = ("layers.4", "layers.*", lambda path, shape: path == "embedding"), (1, 2, 3)
    start = nn.adapt(network, rank=ranks, where=where, factorization=kind, key=key_adapter)
    x = jax.random.normal(key_x, (4,), jnp.float64)
    np.testing.assert_array_equal(start(x), network(x))

    sizes = {"layers.0": (6, 4, 2), "layers.1": (5, 6, 2), "layers.2": (6, 5, 2), "layers.3": (4, 6, 2)}
    sizes |= {"layers.4": (1, 4, 1), "embedding": (3, 4, 3)}
    assert list(start.adapters) == sorted(sizes)
    scales = 0 if kind == "bottleneck" else 1
    leaves = jax.tree.leaves(start)
    assert sum(leaf.size for leaf in leaves) == sum(r * (m + n + scales) for m, n, r in sizes.values())
    assert all(name.startswith("adapters.") for name in leaf_names(start))
    if kind == "svd":  # the matrices of rank r are a manifold of this dimension
        assert nn.geometry(start).dim(start) == sum(r * (m + n - r) for m, n, r in sizes.values())

    drawn = nn.Priors().sample(key_prior, start)
    merged = drawn.merged()
    assert abs(float(drawn(x) - network(x))) > 1e-3
    np.testing.assert_allclose(drawn(x), merged(x), rtol=1e-12)
    np.testing.assert_allclose(drawn.network(x), merged(x), rtol=1e-12)
    assert all(isinstance(layer, eqx.nn.Linear) for layer in merged.layers)
    assert np.linalg.matrix_rank(merged.layers[0].weight - network.layers[0].weight) == 2
    assert merged.layers[0].bias is drawn.network.layers[0].layer.bias is network.layers[0].bias  # no copies


@pytest.mark.thorough
def test_default_is_every_dense_layer(key):
    """Of a tree of arrays without such layers, every matrix; names are without the endings of Flax's variables."""
    network = Own(jax.random.clone(key))
    assert list(nn.adapt(network, rank=1, key=jax.random.clone(key)).adapters) == [f"layers.{i}" for i in range(5)]
    tree = {"a/b": {"kernel": np.ones((3, 4), np.float32), "bias": np.ones(4, np.float32)}, "c": {"value": jnp.eye(2)}}
    start = nn.adapt(tree, rank=2, key=key)
    assert list(start.adapters) == ["a.b.kernel", "c"]
    scaled = jax.tree.map(lambda leaf: leaf + 1, start)
    update = scaled.adapters["a.b.kernel"].matrix
    np.testing.assert_allclose(scaled.merged()["a/b"]["kernel"], 1 + update, rtol=1e-6)
    assert scaled.merged()["a/b"]["bias"] is tree["a/b"]["bias"]
    jax.tree.map(np.testing.assert_array_equal, scaled.network, scaled.merged())


def test_frozen_weights_are_constants(key):
    """Equal weights are one structure, for compiled programs and resumed runs; other weights are another."""

    def make(shift):
        network = eqx.tree_at(lambda layer: layer.bias, base, base.bias + shift)
        return nn.adapt(network, rank=1, key=jax.random.key(1))

    base = eqx.nn.Linear(3, 2, key=key)
    one, same, other = make(0.0), make(0.0), make(1.0)
    structures = [jax.tree.structure(tree) for tree in (one, same, other)]
    assert structures[0] == structures[1] != structures[2]
    assert hash(structures[0]) == hash(structures[1])
    traced = []

    @jax.jit
    def call(network):
        traced.append(0)
        return network(jnp.ones(3))

    assert call(one) is not call(same)
    assert len(traced) == 1
    np.testing.assert_allclose(call(other) - call(one), 1.0, rtol=1e-6)


SIGMA, NOISE, NUM_DATA = 1.3, 0.7, 7


def exact_moments(x, residuals):
    """Means of a 2 x 2 update of rank 1 and of its squares: its scale is normal given two angles, on a grid."""
    angles = np.arange(400) * 2 * np.pi / 400
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    projected, along = x @ circle.T, residuals @ circle.T  # example x angle, of v and of u
    precision = SIGMA**-2 + np.sum(projected**2, axis=0)[None] / NOISE**2
    linear = (along.T @ projected) / NOISE**2
    log_weight = 0.5 * linear**2 / precision - 0.5 * np.log(precision)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean, square = linear / precision, 1 / precision + (linear / precision) ** 2
    return np.stack([c.T @ (weight * s) @ c for c, s in ((circle, mean), (circle**2, square))])


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(5)
    layer = eqx.nn.Linear(2, 2, dtype=jnp.float64, key=jax.random.key(0))
    x = rng.normal(size=(NUM_DATA, 2)) * [1.5, 0.6]
    truth = np.asarray(layer.weight) + np.array([[0.9, -0.2], [0.4, 0.5]])
    y = x @ truth.T + np.asarray(layer.bias) + NOISE * rng.normal(size=x.shape)
    x, y = jnp.asarray(x), jnp.asarray(y)
    return layer, (x, y), exact_moments(np.asarray(x), np.asarray(y - jax.vmap(layer)(x)))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["svd", "polar"])
def test_posterior_is_exact(regression, kind, key):
    """Catches another measure of the factors or prior of the scales, also in the free coordinates."""
    layer, data, expected = regression
    start = nn.adapt(layer, rank=1, factorization=kind, key=jax.random.key(2))
    rules = [("*.scales", nn.Gaussian(SIGMA))] + [("*", nn.Gaussian(1.0))] * (kind == "polar")
    posterior = gx.Posterior(log_prior=nn.Priors(rules), log_likelihood=nn.GaussianLikelihood(NOISE), num_data=NUM_DATA)
    algorithm = gx.hmc(posterior.full(data), manifold=nn.geometry(start), step_size=0.3, num_integration_steps=7)
    draws = gx.sample(
        key,
        algorithm,
        start,
        num_samples=1000,
        num_warmup=100,
        num_chains=32,
        keep=lambda network: network.adapters[""].matrix,
        progress=False,
    )
    (update,) = (variable.values for variable in draws["posterior"].data_vars.values())
    means = np.stack([update.mean(axis=1), (update**2).mean(axis=1)], axis=1)
    errors = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    assert errors.max() < 0.03
    assert np.abs((means.mean(axis=0) - expected) / errors).max() < 4


@pytest.fixture(scope="module")
def classes():
    network = nn.MLP(5, 3, widths=(6,), key=jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    return network, (x, np.arange(20) % 3)


def sampled(network, data, folder, num_samples):
    start = nn.adapt(network, rank=2, where="layers.0", key=jax.random.key(1))
    likelihood = nn.CategoricalLikelihood()
    posterior = gx.Posterior(log_prior=nn.Priors(), log_likelihood=likelihood, num_data=20, compute_dtype=jnp.bfloat16)
    algorithm = gx.sghmc(posterior, manifold=nn.geometry(start), step_size=0.05)
    draws = gx.sample(
        jax.random.key(2),
        algorithm,
        start,
        batches=gx.data.batches(data, batch_size=10),
        num_samples=num_samples,
        num_chains=2,
        checkpoint=folder,
        progress=False,
    )
    return start, draws


@pytest.mark.thorough
def test_run(classes, tmp_path):
    """Batches, half precision in the likelihood, draws of adapters only, predictions, and a resumed run."""
    network, data = classes
    start, whole = sampled(network, data, tmp_path / "whole", 6)
    assert set(whole["posterior"]) == set(leaf_names(start))
    last = jax.tree.map(lambda leaf: leaf[1], gx.last_positions(whole, start))
    sampled(network, data, tmp_path / "parts", 3)
    again = nn.MLP(5, 3, widths=(6,), key=jax.random.key(0))
    _, parts = sampled(again, data, tmp_path / "parts", 6)
    for name in whole["posterior"]:
        np.testing.assert_array_equal(whole["posterior"][name], parts["posterior"][name])
    assert float(whole["sample_stats"]["residual"].max()) < 1e-5
    only = gx.predictive.predict_classes(whole.isel(chain=[1], draw=[5]), start, data[0])
    expected = jax.nn.softmax(jax.vmap(last.merged())(data[0]))
    np.testing.assert_allclose(only.probabilities, expected, atol=1e-5)
    assert np.ptp(whole["posterior"]["adapters.layers.0.scales"].values) > 1e-2


def test_half_precision_reaches_the_frozen_weights(classes):
    """Under strict promotion a weight in single precision would raise; its rounding must be seen."""
    network, (x, _) = classes
    start = nn.adapt(network, rank=2, key=jax.random.key(1))
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), start)
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), network)
    row = jnp.asarray(x[0], jnp.bfloat16)
    np.testing.assert_array_equal(half(row), rounded(row))
    assert half(row).dtype == jnp.bfloat16


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_adapters_of_half_precision(dtype):
    """Rounded to half precision, the factors would not be orthonormal, and no sampler with a manifold would start."""
    weights = {"w": jax.random.normal(jax.random.key(0), (20, 8), dtype)}
    start = nn.adapt(weights, rank=3, key=jax.random.key(1))
    np.testing.assert_array_equal(start.merged()["w"], weights["w"].astype(jnp.float32))
    draws = gx.sample(
        jax.random.key(2),
        gx.sghmc(nn.Priors([("*.scales", nn.Gaussian(1.0))]), manifold=nn.geometry(start), step_size=0.1),
        start,
        num_samples=5,
        num_chains=1,
        progress=False,
    )
    assert float(draws["sample_stats"]["residual"].max()) < 1e-5


def test_adapted_parameters_are_no_function(key):
    with pytest.raises(TypeError, match=r"a dict of parameters.*merged\(\)"):
        nn.adapt({"w": jnp.eye(2)}, rank=1, key=key)(jnp.ones(2))


@pytest.mark.thorough
def test_other_inferences(classes, key):
    """Variational inference in free coordinates, Laplace over the two layers of each bottleneck."""
    network, data = classes
    likelihood = nn.CategoricalLikelihood()
    orthonormal, free, product = (
        nn.adapt(network, rank=2, factorization=kind, key=jax.random.key(1)) for kind in KINDS
    )
    with pytest.raises(ValueError, match=r"factorization='polar'"):
        gx.vi.GaussianOver(orthonormal)
    fit = gx.vi.fit(
        jax.random.clone(key),
        gx.vi.GaussianOver(free),
        likelihood,
        data,
        num_steps=60,
        batch_size=20,
        learning_rate=0.05,
        progress=False,
    )
    drawn = fit.network.sample(jax.random.clone(key))
    assert jax.tree.structure(drawn) == jax.tree.structure(free)
    assert float(fit.history.elbo[-1]) > float(fit.history.elbo[0])
    laplace = nn.laplace_posterior(product, likelihood, (jnp.asarray(data[0]), jnp.asarray(data[1])))
    assert [block.values.shape for block in laplace.blocks] == [(2, 5), (6, 2), (2, 6), (3, 2)]
    assert jax.tree.structure(laplace.sample(key)) == jax.tree.structure(product)


@pytest.mark.thorough
def test_priors_count_stacks_once(key):
    """The density of positions with a leading axis is the sum, with the fan-in of one of them."""
    start = nn.adapt(eqx.nn.Linear(4, 3, key=jax.random.key(0)), rank=2, key=jax.random.key(1))
    priors = nn.Priors()
    stack = eqx.filter_vmap(lambda key: priors.sample(key, start))(jax.random.split(key, 3))
    np.testing.assert_allclose(priors(stack), jax.vmap(priors)(stack).sum(), rtol=1e-5)


def _stack(count: int):
    return eqx.filter_vmap(lambda key: eqx.nn.Linear(4, 3, key=key))(jax.random.split(jax.random.key(0), count))


def test_matrices_of_integers_are_no_weights(key):
    start = nn.adapt({"codes": jnp.ones((4, 3), jnp.int8), "w": jnp.ones((4, 3))}, rank=1, key=key)
    assert list(start.adapters) == ["w"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"rank": 2, "where": "layers.4"}, ValueError, r"'layers\.4', 1 x 4, 1, found 2.*rank=\(1, 2\)"),
        ({"where": "layer.0"}, ValueError, r"'layer\.0' matches no dense.*mean 'layers\.0'.*'layers\.0', 'layers\.1'"),
        ({"where": ["layers.0", "heads.*"]}, ValueError, r"'heads\.\*' matches no dense layer"),
        ({"where": "norm"}, ValueError, r"'norm' is no dense layer; it holds 'norm\.weight', 'norm\.bias'"),
        ({"where": "norm.weight"}, ValueError, r"'norm\.weight' is no dense layer but an array.*\(2, 3\)"),
        ({"where": "layers.0.bias"}, ValueError, r"no dense layer but an array of float64 of shape \(6,\)"),
        ({"where": lambda path, shape: False}, ValueError, "function where= selects no dense layer"),
        ({"where": ()}, ValueError, "where has no pattern.*'layers.0'"),
        ({"network": nn.adapt({"w": jnp.eye(2)}, rank=1, key=jax.random.key(0))}, ValueError, r"merged\(\)"),
        ({"where": 3}, TypeError, "where must be a pattern"),
        ({"where": ("layers.0", "layers.1"), "rank": (1, 2, 3)}, ValueError, "one for each of 2 patterns, found 3"),
        ({"rank": 1.5}, TypeError, "rank must be an integer"),
        ({"factorization": "lora"}, ValueError, "factorization must be one of"),
        ({"network": {"bias": jnp.ones(3)}}, ValueError, "expected a network with dense layers.*found 'bias'"),
        ({"network": {"w": jnp.ones((2, 2), int)}}, TypeError, "'w' must be a real floating-point array"),
        ({"network": _stack(2)}, ValueError, r"stacked ones of shape \(2, 3, 4\).*leaf\[i\]"),
        ({"network": {"a": {"b": jnp.eye(2)}, "a.b": jnp.eye(2)}}, ValueError, "two layers.*same path"),
    ],
)
def test_errors(options, error, words, unchecked):
    arguments = {"network": Own(jax.random.key(0)), "rank": 1, "key": jax.random.key(1)} | options
    with pytest.raises(error, match=words):
        nn.adapt(arguments.pop("network"), **arguments)


def test_traced_weights_are_refused(key):
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(lambda w: nn.adapt({"w": w}, rank=1, key=key).merged())(jnp.eye(2))
