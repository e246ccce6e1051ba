"""The other variational layers: exact laws of their outputs, kernels of random features, Laplace, whole networks, samplers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import geodax as gx
from geodax import vi
from tests.marks import slow

nn = gx.nn


def rows_of(layer, x, number, key):
    return np.asarray(jax.jit(lambda key: vi.draw(layer, key).rows(jnp.broadcast_to(x, (number, *x.shape))))(key))


@pytest.mark.parametrize("kind", [nn.MeanFieldLinear, nn.FullCovarianceLinear, slow(nn.DropoutLinear)])
def test_outputs_have_the_law_of_drawn_weights(kind, key):
    check_law_of_outputs(kind, key)


def check_law_of_outputs(kind, key):
    key_layer, key_lower, key_draws = jax.random.split(key, 3)
    layer = kind(3, 2, dtype=jnp.float64, key=key_layer, **({"rate": 0.3} if kind is nn.DropoutLinear else {}))
    x = jnp.asarray([0.5, -1.0, 2.0])
    if kind is nn.FullCovarianceLinear:
        layer = eqx.tree_at(lambda tree: tree.weight.lower, layer, jax.random.normal(key_lower, (2, 3, 3), jnp.float64))
        mean, covariance = layer.weight.mean @ x, np.diag(jnp.einsum("i,oij,j->o", x, layer.weight.covariance(), x))
    elif kind is nn.MeanFieldLinear:
        mean = layer.weight.mean @ x
        variances = jnp.exp(2 * layer.weight.log_scale) @ x**2 + jnp.exp(2 * layer.bias.log_scale)
        covariance = np.diag(variances)
    else:
        mean = layer.weight @ x
        contributions = np.asarray(layer.weight * x[None])
        covariance = 0.3 / 0.7 * contributions @ contributions.T
    found, number = rows_of(layer, x, 40_000, key_draws), 40_000
    centred = found - np.asarray(mean)
    assert np.abs(centred.mean(0) / found.std(0)).max() * np.sqrt(number) < 4
    products = centred[:, :, None] * centred[:, None, :]
    errors = products.std(0) / np.sqrt(number)
    assert np.abs((products.mean(0) - covariance) / errors).max() < 4.5
    np.testing.assert_allclose(layer(x), mean, rtol=1e-12)


def test_divergence_of_a_network_is_that_of_all_its_entries(key):
    check_divergence_of_a_network(key)


def check_divergence_of_a_network(key):
    """Two mean-field layers: a sum over entries, weights and biases with priors of their own."""
    keys = jax.random.split(key, 2)
    layers = [nn.MeanFieldLinear(3, 2, prior_variance=0.7, bias_prior_variance=2.0, key=part) for part in keys]
    expected = 0.0
    for layer in layers:
        for law, variance in ((layer.weight, 0.7), (layer.bias, 2.0)):
            mean, deviation = np.asarray(law.mean), np.exp(np.asarray(law.log_scale))
            ratio = (mean**2 + deviation**2) / variance
            expected += 0.5 * np.sum(ratio - 1.0 + np.log(variance) - 2.0 * np.log(deviation))
    np.testing.assert_allclose(nn.total_kl(eqx.nn.Sequential(layers)), expected, rtol=1e-5)


def check_dropout_divergence(key):
    """Of Gal and Ghahramani's approximation: kept weights M / (1 - p), each with probability 1 - p."""
    layer = nn.DropoutLinear(3, 2, rate=0.4, prior_variance=0.7, bias_prior_variance=2.0, key=key)
    layer = eqx.tree_at(lambda tree: tree.bias, layer, jnp.asarray([1.0, -2.0], jnp.float32))
    kept = np.asarray(layer.weight) / 0.6
    np.testing.assert_allclose(layer.kl(), 0.5 * (0.6 * np.sum(kept**2) / 0.7 + 5.0 / 2.0), rtol=1e-5)


def test_dropout_divergence(key):
    check_dropout_divergence(key)


def test_mean_field_convolution_draws_one_kernel(key):
    key_layer, key_x = jax.random.split(key)
    layer = nn.MeanFieldConv2d(1, 2, 1, use_bias=False, dtype=jnp.float64, key=key_layer)
    x = jax.random.uniform(key_x, (1, 3, 3), jnp.float64, 1.0, 2.0)
    ratio = np.asarray(layer(x, key=jax.random.key(1)) / x)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1, :1], ratio.shape), rtol=1e-12)
    assert np.abs(ratio[:, 0, 0] - np.asarray(layer.weight.mean)[:, 0, 0, 0]).min() > 1e-4
    assert nn.DropoutConv2d(1, 2, 1, rate=0.9, key=jax.random.key(3))(x.astype(jnp.float32)).shape == (2, 3, 3)


@pytest.mark.parametrize("kernel", ["rbf", slow("arc-cosine")])
def test_random_features_have_their_kernel(kernel, key):
    number = 40_000
    features = nn.RandomFeatures(2, number, kernel=kernel, lengthscale=0.7, amplitude=1.3, dtype=jnp.float64, key=key)
    a, b = jnp.asarray([0.3, -0.5]), jnp.asarray([0.6, 0.4])
    pair = number * np.asarray(features(a) * features(b))
    u, v = np.asarray(a) / 0.7, np.asarray(b) / 0.7
    if kernel == "rbf":
        truth = 1.3**2 * np.exp(-0.5 * ((u - v) ** 2).sum())
    else:
        angle = np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
        size = np.linalg.norm(u) * np.linalg.norm(v)
        truth = 1.3**2 / np.pi * size * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
    assert abs(pair.mean() - truth) < 4 * pair.std() / np.sqrt(number)


@pytest.mark.thorough
def test_random_feature_process_has_three_kinds_of_weights(key):
    counts = {}
    for weights in ("mean-field", "full", "whvi"):
        process = nn.RandomFeatureGP(2, 1, num_features=16, weights=weights, key=jax.random.key(0))
        counts[weights] = sum(leaf.size for leaf in jax.tree.leaves(process.layer))
        fixed = eqx.filter_grad(lambda p: p(jnp.ones(2, jnp.float32))[0])(process).features
        assert fixed.projection_bits is None
        assert np.asarray(fixed.log_lengthscales).any()
    assert counts == {"mean-field": 32, "full": 16 + 16 + 256, "whvi": 4 * 4}
    with pytest.raises(ValueError, match=r"must be one of .'mean-field', 'full', 'whvi'"):
        nn.RandomFeatureGP(2, 1, num_features=16, weights="dense", key=key)


@pytest.mark.thorough
@pytest.mark.relaxed
def test_random_projections_stay_as_they_are(tmp_path):
    """Under weight decay, in priors, in a file, and when all floats change their type."""
    process = nn.RandomFeatureGP(2, 1, num_features=4, key=jax.random.key(0))
    features = process.features
    drawn = jax.random.normal(jax.random.split(jax.random.split(jax.random.key(0))[0])[0], (4, 2), jnp.float32)
    np.testing.assert_array_equal(features.projection, drawn)
    params, rest = eqx.partition(process, eqx.is_inexact_array)
    optimizer = optax.adamw(0.1, weight_decay=0.5)
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, params), optimizer.init(params), params)
    moved = eqx.combine(optax.apply_updates(params, updates), rest).features
    np.testing.assert_array_equal(moved.projection, features.projection)
    np.testing.assert_array_equal(moved.phase, features.phase)
    assert not np.array_equal(moved.log_amplitude, features.log_amplitude)
    paths = [path for path, _, _ in nn.Priors().describe(eqx.filter(process, eqx.is_inexact_array))]
    assert paths == [
        "features.log_lengthscales",
        "features.log_amplitude",
        "layer.weight.mean",
        "layer.weight.log_scale",
    ]
    eqx.tree_serialise_leaves(tmp_path / "process.eqx", process)
    other = nn.RandomFeatureGP(2, 1, num_features=4, key=jax.random.key(1))
    read = eqx.tree_deserialise_leaves(tmp_path / "process.eqx", other)
    x = jnp.asarray([0.3, -1.0], jnp.float32)
    np.testing.assert_array_equal(read(x), process(x))
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf, process)
    np.testing.assert_allclose(wide(x.astype(jnp.float64)), process(x), rtol=1e-5)


def test_random_projections_that_were_cast_say_so(tmp_path):
    """Whole numbers taken for values, and words of double precision cut short by a template in single precision."""
    features = nn.RandomFeatureGP(2, 1, num_features=4, dtype=jnp.float64, key=jax.random.key(0)).features
    cast = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), features)
    with pytest.raises(TypeError, match=r"expected projection bits of dtype uint32, found float32.*is_inexact_array"):
        cast(jnp.ones(2, jnp.float32))
    eqx.tree_serialise_leaves(tmp_path / "features", features)
    with jax.enable_x64(False):
        template = nn.RandomFeatureGP(2, 1, num_features=4, key=jax.random.key(0)).features
        assert template.dtype == "float32"
        with pytest.raises(RuntimeError, match="shape"):
            eqx.tree_deserialise_leaves(tmp_path / "features", template)
    loaded = eqx.tree_deserialise_leaves(tmp_path / "features", features)
    np.testing.assert_array_equal(loaded.projection, features.projection)
    assert loaded.projection.dtype == np.float64


def regression(size=30):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(size, 3))
    return jnp.asarray(x), jnp.asarray(x @ np.array([0.5, -1.0, 1.0]) + 0.4 * rng.normal(size=size))


@pytest.mark.thorough
def test_last_layer_laplace_is_exact_for_a_linear_model(key):
    x, y = regression()
    design = np.c_[np.asarray(x), np.ones(30)]
    covariance = np.linalg.inv(np.eye(4) / 0.7 + design.T @ design / 0.4**2)
    mode = covariance @ design.T @ np.asarray(y) / 0.4**2
    layer = nn.Linear(3, "scalar", dtype=jnp.float64, key=key)
    layer = eqx.tree_at(lambda t: (t.weight, t.bias), layer, (jnp.asarray(mode[None, :3]), jnp.asarray(mode[3:])))
    network = nn.Linear(3, 3, key=jax.random.key(0))
    eye = jnp.eye(3, dtype=jnp.float64)
    network = eqx.tree_at(lambda t: (t.weight, t.bias), network, (eye, jnp.zeros(3, jnp.float64)))
    chain = nn.WithNoise(eqx.nn.Sequential([network, layer]), jnp.asarray(np.log(0.4)))
    fitted = nn.last_layer_laplace(
        chain,
        nn.GaussianLikelihood(),
        (x, y),
        where=lambda tree: tree.network.layers[-1],
        prior_variance=0.7,
        batch_size=16,
    )
    last = fitted.network.layers[-1]
    np.testing.assert_allclose(last.family.covariance(), covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(last.family.mean, mode, rtol=1e-12)


def test_last_layer_laplace_sees_all_examples_one_by_one(key):
    """Catches batches that leave the prior as it is, and means over a batch, which count as one example."""
    layer, likelihood, data = (
        nn.Linear(3, "scalar", dtype=jnp.float64, key=key),
        nn.GaussianLikelihood(0.4),
        regression(),
    )

    def laplace(likelihood, data, **options):
        return nn.last_layer_laplace(
            eqx.nn.Sequential([layer]), likelihood, data, where=lambda tree: tree[0], **options
        )

    for bad in (-1, 0):
        with pytest.raises(ValueError, match="last_layer_laplace: batch_size must be at least 1"):
            laplace(likelihood, data, batch_size=bad)
    for reduced in (jnp.mean, lambda values: jnp.sum(values, keepdims=True)):
        with pytest.raises(ValueError, match="one number for each of the 30 examples of a batch"):
            laplace(lambda position, batch, reduced=reduced: reduced(likelihood(position, batch)), data)
    with pytest.raises(ValueError, match=r"equal numbers of examples.*found \[20, 30\]"):
        laplace(likelihood, (data[0], data[1][:20]))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "inference",
    ["whvi", slow("mean-field"), slow("mc-dropout")],
)
def test_any_network_becomes_variational(inference, key):
    """The network does not hand keys to its layers; rows differ, and without a key they do not."""
    mlp = nn.MLP(3, "scalar", widths=(4,), key=jax.random.key(0))
    made = nn.variational(mlp, inference, key=key, **({"rate": 0.5} if inference == "mc-dropout" else {}))
    same = jnp.broadcast_to(jnp.asarray([0.3, -1.0, 2.0], jnp.float32), (50, 3))
    rows = vi.predict(jax.random.key(1), made, same, num_samples=1)[0]
    assert rows.shape == (50,)
    assert len(np.unique(np.asarray(rows))) > 3
    functions = vi.sample_functions(jax.random.key(1), made, same[:2], num_samples=3)
    np.testing.assert_array_equal(functions[:, 0], functions[:, 1])
    assert float(nn.total_kl(made)) > 0
    with pytest.raises(ValueError, match="'whvi', 'mean-field', 'mc-dropout'"):
        nn.variational(mlp, "hmc", key=jax.random.key(0))


@pytest.mark.thorough
def test_convolutional_networks_keep_their_shapes(key):
    network = eqx.nn.Sequential(
        [nn.Conv2d(3, 4, 3, padding=1, stride=2, dtype=jnp.float32, key=key), eqx.nn.Lambda(jax.nn.relu)]
    )
    made = nn.variational(network, "whvi", key=jax.random.key(1))
    image = jnp.ones((3, 8, 8), jnp.float32)
    assert made(image).shape == network(image).shape
    odd = nn.Conv2d(4, 4, 3, groups=2, key=jax.random.key(2))
    with pytest.raises(ValueError, match="one group"):
        nn.variational(odd, "whvi", key=jax.random.key(1))


def vectors():
    """A layer's vectors as a position: the posterior, a start, the data, and the exact mean and precision of g."""
    x, y = regression()
    layer = nn.WHVILinear(3, 1, use_bias=False, prior_variance=0.5, dtype=jnp.float64, key=jax.random.key(4))
    likelihood = nn.GaussianLikelihood(0.4)
    posterior, start = nn.hadamard_posterior(layer, likelihood, num_data=30)
    design = np.stack(
        [np.asarray(x) @ np.asarray(nn.with_vectors(layer, [jnp.eye(2)[i][None]]).matrix())[0] for i in range(2)],
        axis=1,
    )
    precision = np.eye(2) / 0.5 + design.T @ design / 0.4**2
    mean = np.linalg.solve(precision, design.T @ np.asarray(y)) / 0.4**2
    data = (x, y[:, None])
    return posterior, start, data, mean, precision


@pytest.mark.thorough
def test_posterior_of_the_vectors_is_gaussian():
    posterior, start, data, mean, precision = vectors()
    density = posterior.full(data)
    hessian = jax.hessian(density)(start)[0][0].reshape(2, 2)
    np.testing.assert_allclose(hessian, -precision, rtol=1e-9, atol=1e-9)
    slope = jax.grad(density)([jnp.asarray(mean[None])])[0]
    np.testing.assert_allclose(slope, 0.0, atol=1e-8)


@pytest.mark.slow
def test_vectors_of_a_layer_are_sampled(key):
    posterior, start, data, mean, precision = vectors()
    draws = gx.sample(
        key,
        gx.sgrld(posterior, step_size=0.02 / np.linalg.eigvalsh(precision).max()),
        start,
        batches=gx.data.batches(data, batch_size=30, order="epochs"),
        num_samples=4000,
        num_warmup=500,
        thinning=5,
        progress=False,
    )["posterior"]
    found = draws[next(iter(draws))].values.reshape(-1, 2)
    scale = np.sqrt(np.diagonal(np.linalg.inv(precision)))
    assert np.abs((found.mean(0) - mean) / scale).max() < 0.2
    assert np.abs(found.std(0) / scale - 1).max() < 0.15


@pytest.mark.thorough
def test_inducing_points_at_all_inputs_are_the_exact_process(key):
    """With the inducing inputs at the data and the best law of v, draws have the exact posterior's mean and variance."""
    generator = np.random.default_rng(0)
    x, places = generator.uniform(-2, 2, (12, 2)), generator.uniform(-2, 2, (5, 2))
    y, noise = np.sin(x[:, 0]) + x[:, 1], 0.3

    def kernel(a, b):
        return 1.69 * np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(axis=-1) / 0.8**2)

    model = nn.InducingPointGP(jnp.asarray(x), covariance="full", lengthscale=0.8, amplitude=1.3)
    gram = kernel(x, x) + 1.69e-6 * np.eye(12)
    root = np.linalg.cholesky(gram)
    # y = L v + noise
    covariance = np.linalg.inv(np.eye(12) + root.T @ root / noise**2)
    lower = np.linalg.cholesky(covariance)
    v = vi.FullGaussian(
        jnp.asarray(covariance @ root.T @ y / noise**2), jnp.log(jnp.diagonal(lower)), jnp.asarray(np.tril(lower, -1))
    )
    model = eqx.tree_at(lambda tree: tree.v, model, v)
    gain = kernel(places, x) @ np.linalg.inv(gram + noise**2 * np.eye(12))
    mean, variance = gain @ y, 1.69 - (gain * kernel(places, x)).sum(axis=1)
    np.testing.assert_allclose(jax.vmap(model)(jnp.asarray(places)), mean, atol=1e-4)
    keys = jax.random.split(key, 20_000)
    drawn = np.asarray(jax.jit(jax.vmap(lambda k: vi.draw(model, k).rows(jnp.asarray(places))))(keys))
    assert np.abs((drawn.mean(axis=0) - mean) / np.sqrt(variance / 20_000)).max() < 4.5
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=5 * np.sqrt(2 / 20_000), atol=1e-4)
    np.testing.assert_allclose(
        model.kl(),
        0.5 * (np.trace(covariance) + v.mean @ v.mean - 12 - np.linalg.slogdet(covariance)[1]),
        rtol=1e-10,
    )


def test_arguments_of_inducing_points():
    whole = nn.InducingPointGP([[0], [1], [2]], lengthscale=0.5, amplitude=3.0)
    np.testing.assert_allclose(jnp.exp(whole.log_lengthscales), [0.5])
    np.testing.assert_allclose(jnp.exp(whole.log_amplitude), 3.0)
    np.testing.assert_allclose(whole.inducing, [[0.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match=r"InducingPointGP: expected one vector of 1 numbers, found shape \(4,\)"):
        whole(jnp.ones(4))
    with pytest.raises(ValueError, match="InducingPointGP: lengthscale must be a positive number"):
        nn.InducingPointGP(jnp.zeros((2, 1)), lengthscale=-1.0)
    with pytest.raises(ValueError, match="InducingPointGP: amplitude must be a positive number"):
        nn.InducingPointGP(jnp.zeros((2, 1)), amplitude=0.0)
    with pytest.raises(ValueError, match=r"one inducing input per row, found shape \(3,\)"):
        nn.InducingPointGP(jnp.zeros(3))
