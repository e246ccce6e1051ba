"""Laplace approximation over dense layers: exact for linear models, Gauss-Newton by autodiff, evidence, predictions, memory."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, optimize, stats

import geodax as gx
from geodax.nn.evidence import maximum
from tests.marks import slow

nn = gx.nn
NOISE, PRIOR = 0.4, 0.7
OWN_NOISES = np.array([0.9, 0.2])


def linear_model(key, size=30, noise=NOISE):
    """Data, design, and a linear network at the mode of its posterior; noise may be one number for each target."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(size, 3))
    y = x @ rng.normal(size=(3, 2)) + 1.0 + noise * rng.normal(size=(size, 2))
    design = np.c_[x, np.ones(size)]
    modes = [
        np.linalg.solve(design.T @ design / own**2 + np.eye(4) / PRIOR, design.T @ column / own**2)
        for column, own in zip(y.T, np.broadcast_to(noise, 2), strict=True)
    ]
    mode = np.stack(modes)
    layer = nn.Linear(3, 2, dtype=jnp.float64, key=key)
    layer = eqx.tree_at(lambda t: (t.weight, t.bias), layer, (jnp.asarray(mode[:, :3]), jnp.asarray(mode[:, 3])))
    return (jnp.asarray(x), jnp.asarray(y)), design, nn.WithNoise(eqx.nn.Sequential([layer]), jnp.log(noise))


def classifier(key, size=20, scale=1.0):
    key_network, key_x, key_y = jax.random.split(key, 3)
    network = nn.MLP(3, 3, widths=(4,), activation=jnp.tanh, dtype=jnp.float64, key=key_network)
    network = jax.tree.map(lambda leaf: scale * leaf, network)
    x = jax.random.normal(key_x, (size, 3), jnp.float64)
    return network, (x, jax.random.randint(key_y, (size,), 0, 3))


def flattened(network):
    """All parameters layer by layer, each as its weight with the bias in the last column, and the way back."""
    shapes = [(*layer.weight.shape[:1], layer.weight.shape[1] + 1) for layer in network.layers]
    vector = jnp.concatenate([jnp.c_[layer.weight, layer.bias].ravel() for layer in network.layers])

    def back(vector):
        parts = jnp.split(vector, np.cumsum([np.prod(shape) for shape in shapes])[:-1])
        matrices = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return eqx.tree_at(
            lambda tree: [leaf for layer in tree.layers for leaf in (layer.weight, layer.bias)],
            network,
            [leaf for matrix in matrices for leaf in (matrix[:, :-1], matrix[:, -1])],
        )

    return vector, back


def gauss_newton(network, x):
    """Sum over examples of J^T H J, from the definition: parameters x parameters."""

    @jax.jit
    def parts(network, x):
        vector, back = flattened(network)
        jacobians = jax.vmap(jax.jacobian(lambda vector, x: back(vector)(x)), (None, 0))(vector, x)
        return jacobians, jax.vmap(lambda x: jax.nn.softmax(network(x)))(x)

    jacobians, p = map(np.asarray, parts(network, x))
    hessians = p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]
    return np.einsum("nci,ncd,ndj->ij", jacobians, hessians, jacobians), hessians


def last_of(network):
    return network.layers[-1]


def dense(block):
    """The matrix of a block."""
    left = np.eye(block.values.shape[0]) if block.left is None else np.asarray(block.left)
    right = np.eye(block.values.shape[1]) if block.right is None else np.asarray(block.right)
    basis = np.kron(left, right)
    return basis @ np.diag(np.asarray(block.values).ravel()) @ basis.T


@pytest.mark.thorough
@pytest.mark.parametrize("noise", [NOISE, OWN_NOISES], ids=["common noise", "own noises"])
@pytest.mark.parametrize("structure", ["kronecker", "full"])
def test_a_linear_model_has_its_conjugate_posterior_evidence_and_predictions(structure, noise, key):
    """Catches a wrong noise, prior, number of examples, determinant, or order of rows and columns, or of targets."""
    data, design, network = linear_model(key, noise=noise)
    fitted = nn.laplace_posterior(
        network, nn.GaussianLikelihood(), data, structure=structure, prior_variance=PRIOR, batch_size=7
    )
    noises = np.broadcast_to(noise, 2)
    covariances = [np.linalg.inv(design.T @ design / own**2 + np.eye(4) / PRIOR) for own in noises]
    flat = jnp.c_[network.network[0].weight, network.network[0].bias].ravel()

    def log_prob(vector):
        matrix = vector.reshape(2, 4)
        return fitted.log_prob(
            eqx.tree_at(lambda t: (t.network[0].weight, t.network[0].bias), network, (matrix[:, :-1], matrix[:, -1]))
        )

    exact = stats.multivariate_normal(np.asarray(flat), linalg.block_diag(*covariances))
    elsewhere = flat + 0.1 * jnp.arange(8.0)
    np.testing.assert_allclose(log_prob(flat), exact.logpdf(flat), rtol=1e-10)
    np.testing.assert_allclose(log_prob(elsewhere), exact.logpdf(elsewhere), rtol=1e-10)
    evidence = sum(
        stats.multivariate_normal(np.zeros(30), own**2 * np.eye(30) + PRIOR * design @ design.T).logpdf(column)
        for column, own in zip(np.asarray(data[1]).T, noises, strict=True)
    )
    np.testing.assert_allclose(fitted.log_marginal_likelihood(), evidence, rtol=1e-10)
    divergence = (
        0.5 * (8 / PRIOR * np.trace(exact.cov) / 8 + float(flat @ flat) / PRIOR - 8 + 8 * np.log(PRIOR))
        - 0.5 * np.linalg.slogdet(exact.cov)[1]
    )
    np.testing.assert_allclose(fitted.kl(), divergence, rtol=1e-10)
    outputs = fitted.linearised(data[0][:5])
    variances = np.einsum("ni,tij,nj->nt", design[:5], covariances, design[:5])
    np.testing.assert_allclose(outputs.mean, jax.vmap(network)(data[0][:5]), rtol=1e-12)
    np.testing.assert_allclose(outputs.covariance, variances[:, :, None] * np.eye(2)[None], rtol=1e-9, atol=1e-14)


@pytest.mark.thorough
@pytest.mark.parametrize("is_last", [True, False])
def test_the_precision_is_the_gauss_newton_matrix_by_autodiff(is_last, key):
    """Catches wrong roots of the output Hessian, sums over batches, transposed factors, a lost bias."""
    network, (x, y) = classifier(key)
    exact, hessians = gauss_newton(network, x)
    blocks = [slice(0, 16), slice(16, 31)]
    where = (lambda tree: tree.layers[-1]) if is_last else None
    if is_last:
        exact, blocks = exact[16:, 16:], [slice(0, 15)]

    def fit(structure):
        return nn.laplace_posterior(
            network, nn.CategoricalLikelihood(), (x, y), structure=structure, where=where, batch_size=7
        )

    np.testing.assert_allclose(dense(fit("full").blocks[0]), exact, rtol=1e-9, atol=1e-12)
    for block, part in zip(fit("diagonal").blocks, blocks, strict=True):
        np.testing.assert_allclose(block.values.ravel(), np.diagonal(exact)[part], rtol=1e-10)
    *hidden, last = fit("kronecker").blocks
    features = np.c_[np.tanh(jax.vmap(network.layers[0])(x)), np.ones(20)]
    np.testing.assert_allclose(dense(last), np.kron(hessians.mean(0), features.T @ features), rtol=1e-9, atol=1e-12)
    for block in hidden:
        inputs = np.c_[x, np.ones(20)]
        slopes = np.asarray(network.layers[1].weight)[None] * (1 - features[:, None, :-1] ** 2)
        outer = np.einsum("nci,ncd,ndj->ij", slopes, hessians, slopes)
        np.testing.assert_allclose(dense(block), np.kron(outer / 20, inputs.T @ inputs), rtol=1e-9, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
def test_maximised_is_the_maximum_of_the_evidence(structure, key):
    """Catches a wrong derivative of the determinant, of the noise or of a layer's own precision."""
    keys = jax.random.split(key, 2)
    x = jax.random.normal(keys[0], (40, 2), jnp.float64)
    network = nn.MLP(2, "scalar", widths=(3,), activation=jnp.tanh, dtype=jnp.float64, key=keys[1])
    y = jax.vmap(network)(x) + 0.3 * jnp.sin(5 * x[:, 0])
    fitted = nn.laplace_posterior(
        nn.WithNoise(network, jnp.zeros(())), nn.GaussianLikelihood(), (x, y), structure=structure
    )
    residuals = np.asarray(y - jax.vmap(network)(x))
    means = [np.r_[np.ravel(layer.weight), np.ravel(layer.bias)] for layer in network.layers]

    def loss(u):
        total = stats.norm(0, np.exp(u[-1])).logpdf(residuals).sum()
        for block, mean, log_delta in zip(fitted.blocks, means, u, strict=False):
            delta = np.exp(log_delta)
            precision = dense(block) / np.exp(2 * u[-1]) + delta * np.eye(mean.size)
            total += stats.norm(0, delta**-0.5).logpdf(mean).sum() + 0.5 * mean.size * np.log(2 * np.pi)
            total -= 0.5 * np.linalg.slogdet(precision)[1]
        return -total

    np.testing.assert_allclose(fitted.log_marginal_likelihood(), -loss(np.zeros(3)), rtol=1e-10)
    best = optimize.minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-6})
    found = fitted.maximised()
    reached = [*np.asarray(found.log_prior_precision), float(found.log_noise)]
    np.testing.assert_allclose(reached, best.x, atol=1e-4)
    np.testing.assert_allclose(found.network.log_noise, found.log_noise)
    shared = optimize.minimize(lambda u: loss([u[0], u[0], 0.0]), np.zeros(1), method="BFGS", options={"gtol": 1e-6})
    same = fitted.maximised(shared=True, noise=False)
    np.testing.assert_allclose(same.log_prior_precision, np.repeat(shared.x, 2), atol=1e-4)
    assert float(same.log_noise) == 0.0


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_noises_of_several_targets_are_at_the_maximum_of_the_evidence(structure, key):
    """Catches a Gauss-Newton matrix of another noise, and targets whose noises are exchanged, or one for all."""
    keys = jax.random.split(key, 2)
    x = jax.random.normal(keys[0], (40, 2), jnp.float64)
    network = nn.MLP(2, 2, widths=(3,), activation=jnp.tanh, dtype=jnp.float64, key=keys[1])
    y = jax.vmap(network)(x) + jnp.stack([0.7 * jnp.sin(5 * x[:, 0]), 0.1 * jnp.cos(4 * x[:, 1])], 1)

    def fit(u):
        held, variance = nn.WithNoise(network, jnp.asarray(u[-2:])), np.exp(-np.asarray(u[:-2])).tolist()
        return nn.laplace_posterior(held, nn.GaussianLikelihood(), (x, y), structure=structure, prior_variance=variance)

    start = np.zeros(3 if structure == "full" else 4)
    best = optimize.minimize(lambda u: -float(fit(u).log_marginal_likelihood()), start, method="BFGS", tol=1e-5)
    found = fit(start).maximised()
    reached = [*np.asarray(found.log_prior_precision), *np.asarray(found.log_noise)]
    np.testing.assert_allclose(reached, best.x, atol=1e-4)
    np.testing.assert_array_equal(found.network.log_noise, found.log_noise)
    again = fit(reached)
    np.testing.assert_allclose(again.log_marginal_likelihood(), found.log_marginal_likelihood(), rtol=1e-10)
    np.testing.assert_allclose(again.linearised(x[:3]).covariance, found.linearised(x[:3]).covariance, rtol=1e-6)
    vector, back = flattened(network)
    jacobians = np.asarray(jax.vmap(jax.jacobian(lambda vector, x: back(vector)(x)), (None, 0))(vector, x))
    exact = np.einsum("nci,c,ncj->ij", jacobians, np.exp(-2 * np.asarray(found.log_noise)), jacobians)
    blocks = {"kronecker": [], "diagonal": [slice(0, 9), slice(9, 17)], "full": [slice(0, 17)]}[structure]
    for block, part in zip(found.blocks if blocks else (), blocks, strict=True):
        expected = exact[part, part] if structure == "full" else np.diag(np.diagonal(exact)[part])
        np.testing.assert_allclose(dense(block), expected, rtol=1e-9, atol=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("number", [300.0, 1e9])
def test_the_maximum_is_found_beside_the_rounding_of_large_evidences(number):
    """Catches steps that are halved without end where the last digits of the evidence hide what they gain."""
    for k in range(100):
        values, square = (1 + k / 100) * np.geomspace(1e-3, number, 60), 7.3
        log_delta, log_beta = maximum([(values, square)], (0.31 * number, number), [0.0, 1.0 + k / 50])
        share = np.exp(log_beta) * values / (np.exp(log_beta) * values + np.exp(log_delta))
        np.testing.assert_allclose(share.sum(), np.exp(log_delta) * square, rtol=1e-4)
        np.testing.assert_allclose(number - share.sum(), np.exp(log_beta) * 0.31 * number, rtol=1e-6)


def test_maximised_refuses_an_evidence_without_maximum(key):
    with pytest.raises(ValueError, match="has no maximum"):
        maximum([(np.zeros(3), 0.0)], None, [0.0])
    data, _, network = linear_model(key)
    zero = eqx.tree_at(lambda tree: tree.network, network, jax.tree.map(jnp.zeros_like, network.network))
    with pytest.raises(ValueError, match="has no maximum"):
        nn.laplace_posterior(zero, nn.GaussianLikelihood(), data).maximised()
    labels = jnp.zeros(30, jnp.int32)
    with pytest.raises(ValueError, match="classes have no noise"):
        nn.laplace_posterior(network.network, nn.CategoricalLikelihood(), (data[0], labels)).maximised(noise=True)


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_draws_and_linearised_outputs_have_the_covariance(structure, key):
    """Catches a draw in the wrong basis, and a linearised covariance that misses a layer."""
    key_data, key_draws, key_outputs = jax.random.split(key, 3)
    network, (x, y) = classifier(key_data)
    fitted = nn.laplace_posterior(network, nn.CategoricalLikelihood(), (x, y), structure=structure, prior_variance=0.5)
    number = 20_000
    draws = jax.jit(jax.vmap(fitted.sample))(jax.random.split(key_draws, number))
    flat = jax.jit(lambda tree: flattened(tree)[0])
    steps = np.asarray(jax.jit(jax.vmap(flat))(draws)) - np.asarray(flat(network))
    precision = np.zeros((31, 31))
    for block, part in zip(fitted.blocks, [slice(0, 16), slice(16, 31)], strict=False):
        part = slice(0, 31) if structure == "full" else part
        precision[part, part] = dense(block)
    covariance = np.linalg.inv(precision + 2.0 * np.eye(31))
    whitened = steps @ np.linalg.cholesky(precision + 2.0 * np.eye(31))
    excess = whitened.T @ whitened / number - np.eye(31)
    assert np.abs(excess).max() * np.sqrt(number / 2) < 5

    vector, back = flattened(network)
    jacobian = jax.jit(jax.vmap(jax.jacobian(lambda vector, x: back(vector)(x)), (None, 0)))
    jacobians = np.asarray(jacobian(vector, x[:4]))
    outputs = fitted.linearised(x[:4])
    exact = np.einsum("nci,ij,ndj->ncd", jacobians, covariance, jacobians)
    np.testing.assert_allclose(outputs.covariance, exact, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(outputs.variance, np.einsum("ncc->nc", exact), rtol=1e-8)
    drawn = np.asarray(fitted.sample_linearised(key_outputs, x[:4], num_samples=number))
    z = (drawn - np.asarray(outputs.mean)) / np.sqrt(np.asarray(outputs.variance))
    assert np.abs((z**2).mean(0) - 1).max() * np.sqrt(number / 2) < 5
    assert np.abs(z.mean(0)).max() * np.sqrt(number) < 5
    between = (drawn[:, 0, 0] - outputs.mean[0, 0]) @ (drawn[:, 1, 0] - outputs.mean[1, 0]) / number
    joint = jacobians[0, 0] @ covariance @ jacobians[1, 0]
    spread = np.sqrt(exact[0, 0, 0] * exact[1, 0, 0])
    assert abs(between - joint) / spread * np.sqrt(number / 2) < 5


@pytest.mark.thorough
def test_draws_of_the_driver_give_ensemble_predictions(key):
    """The draws are a DataTree like that of chains; linearised draws are blocks of logits."""
    key_data, key_chains, key_logits = jax.random.split(key, 3)
    network, (x, y) = classifier(key_data, scale=3.0)
    fitted = nn.laplace_posterior(network, nn.CategoricalLikelihood(), (x, y))
    draws = gx.sample(key_chains, fitted.sampler(), network, num_samples=200, num_chains=2, progress=False)
    assert dict(draws["posterior"]["layers.1.weight"].sizes).get("draw") == 200
    found = gx.predictive.predict_classes(draws, network, x)
    assert found.num_draws == 400
    plain = np.asarray(jax.nn.softmax(jax.vmap(network)(x)))
    assert found.probabilities.max(1).mean() < plain.max(1).mean()
    assert found.epistemic.min() > 0
    logits = fitted.sample_linearised(key_logits, x, num_samples=4000)
    exact = gx.predictive.classes_from_logits(np.asarray(logits)).probabilities
    probit = np.asarray(fitted.linearised(x).probabilities())
    assert np.abs(probit - exact).mean() < np.abs(plain - exact).mean()


def test_probabilities_of_two_classes_are_mackays():
    """Catches variances of single logits in place of that of their difference."""
    mean, root = np.random.default_rng(0).normal(size=(5, 2)), np.random.default_rng(1).normal(size=(5, 2, 2))
    covariance = root @ np.swapaxes(root, 1, 2)
    z = mean[:, 1] - mean[:, 0]
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    expected = 1 / (1 + np.exp(-z / np.sqrt(1 + np.pi / 8 * variance)))
    outputs = nn.LinearisedOutputs(jnp.asarray(mean), jnp.asarray(covariance))
    np.testing.assert_allclose(outputs.probabilities()[:, 1], expected, rtol=1e-12)
    with pytest.raises(ValueError, match="at least two classes"):
        nn.LinearisedOutputs(jnp.zeros(5), jnp.ones((5, 1, 1))).probabilities()


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["kronecker", slow("diagonal")])
def test_a_thousand_classes_need_megabytes(key, structure):
    """A dense precision of 129,000 parameters would have 66 GB."""
    key_network, key_x, key_draws = jax.random.split(key, 3)
    network = nn.MLP(8, 1000, widths=(128,), key=key_network)
    x = jax.random.normal(key_x, (64, 8), jnp.float32)
    y = jnp.arange(64, dtype=jnp.int32)
    fitted = nn.laplace_posterior(
        network, nn.CategoricalLikelihood(), (x, y), structure=structure, where=lambda tree: tree.layers[-1]
    ).maximised()
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(fitted.blocks)) < 5e6
    outputs = fitted.linearised(x[:2])
    assert outputs.covariance.shape == (2, 1000, 1000)
    drawn = np.asarray(fitted.sample_linearised(key_draws, x, num_samples=100))[:, :2]
    ratio = drawn.var(axis=0).mean() / np.mean(outputs.variance)
    np.testing.assert_allclose(ratio, 1.0, atol=0.1)


class Shared(eqx.Module):
    layer: nn.Linear
    use: str = eqx.field(static=True)

    def __call__(self, x):
        if self.use == "twice":
            return self.layer(self.layer(x))
        if self.use == "never":
            return x
        if self.use == "loop":
            return jax.lax.scan(lambda x, _: (self.layer(x), None), x, length=2)[0]
        return jax.vmap(self.layer)(jnp.stack([x, 2 * x])).sum(0)


def test_linearised_outputs_cost_some_passes_through_the_network(key):
    """Catches Jacobians of 5 x 200 x 300 numbers an example that are turned into the basis of the precision."""
    network = gx.nn.MLP(300, 5, widths=(200,), key=key)
    rows, labels = jnp.ones((32, 300), jnp.float32), jnp.zeros(32, int)
    posterior = gx.nn.laplace_posterior(network, gx.nn.CategoricalLikelihood(), (rows, labels))
    compiled = jax.jit(lambda rows: posterior._linearised(rows)).lower(rows).compile()
    num_parameters = sum(leaf.size for leaf in jax.tree.leaves(network))
    assert compiled.cost_analysis()["flops"] / 32 < 30 * num_parameters


def test_arguments_are_refused_in_words(key):
    key_data, key_layer = jax.random.split(key)
    network, data = classifier(key_data)
    layer = nn.Linear(3, 3, dtype=jnp.float64, key=key_layer)
    likelihood = nn.CategoricalLikelihood()
    several = "called several times or in a loop"
    messages = {"twice": several, "never": "not called", "vmap": "under jax.vmap", "loop": several}
    for use, message in messages.items():
        shared = Shared(layer, use)
        with pytest.raises(ValueError, match=f"'layer' is .*{message}"):
            nn.laplace_posterior(shared, likelihood, data)
    with pytest.raises(TypeError, match="where must select dense layers"):
        nn.laplace_posterior(network, likelihood, data, where=lambda tree: tree.layers[0].weight)
    with pytest.raises(TypeError, match=r"where must select dense layers.*found none"):
        nn.laplace_posterior(network, likelihood, data, where=lambda tree: [])
    with pytest.raises(TypeError, match="without apply="):
        nn.laplace_posterior(network, nn.CategoricalLikelihood(lambda network, x: jax.vmap(network)(x)), data)
    with pytest.raises(ValueError, match="one for each of 2 layers, found 3"):
        nn.laplace_posterior(network, likelihood, data, prior_variance=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"equal numbers of examples.*found \[19, 20\]"):
        nn.laplace_posterior(network, likelihood, (data[0], data[1][:19]))
    with pytest.raises(ValueError, match="Labels must be from 0"):
        nn.laplace_posterior(network, likelihood, (data[0], data[1] + 1))
    with pytest.raises(ValueError, match="structure"):
        nn.laplace_posterior(network, likelihood, data, structure="kfac")
    orthogonal = nn.OrthogonalLinear(3, 3, dtype=jnp.float64, key=jax.random.key(0))
    with pytest.raises(ValueError, match="found none"):
        nn.laplace_posterior(orthogonal, likelihood, data)


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["kronecker", "diagonal", "full"])
def test_weights_count_rows(structure, key):
    """Catches a sum, a misfit or a number of targets without weights."""
    network, (x, y) = classifier(key)
    counts = np.arange(20) % 3
    repeated = jnp.repeat(x, counts, axis=0), jnp.repeat(y, counts)
    fit = {"structure": structure, "batch_size": 7}
    found = nn.laplace_posterior(network, nn.CategoricalLikelihood(), (x, y), weights=counts, **fit)
    whole = nn.laplace_posterior(network, nn.CategoricalLikelihood(), repeated, **fit)
    for one, other in zip(found.blocks, whole.blocks, strict=True):
        np.testing.assert_allclose(dense(one), dense(other), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.misfit, whole.misfit)
    if structure == "kronecker":
        (x, y), _, line = linear_model(jax.random.key(1))
        counts = np.arange(30) % 3
        repeated = jnp.repeat(x, counts, axis=0), jnp.repeat(y, counts, axis=0)
        found = nn.laplace_posterior(line, nn.GaussianLikelihood(), (x, y), weights=counts).maximised()
        whole = nn.laplace_posterior(line, nn.GaussianLikelihood(), repeated).maximised()
        np.testing.assert_allclose(found.log_noise, whole.log_noise, rtol=1e-8)
        np.testing.assert_allclose(found.log_marginal_likelihood(), whole.log_marginal_likelihood(), rtol=1e-8)


def test_weights_and_noises_are_checked(key):
    """Catches weights that are broadcast, and noise of the targets that scales the wrong axis."""
    data, _, network = linear_model(key)
    for weights in (np.ones(29), -np.ones(30), np.zeros(30)):
        with pytest.raises(ValueError, match="a weight of at least 0 for each of 30 examples"):
            nn.laplace_posterior(network, nn.GaussianLikelihood(), data, weights=weights)
    with pytest.raises(
        ValueError, match=r"one for each of the targets of shape \(2,\), found an array of shape \(3,\)"
    ):
        nn.laplace_posterior(nn.WithNoise(network.network, jnp.zeros(3)), nn.GaussianLikelihood(), data)
    noisy = nn.WithNoise(network.network, jnp.zeros(2))
    with pytest.raises(ValueError, match="has no maximum"):
        nn.laplace_posterior(noisy, nn.GaussianLikelihood(), (data[0], jax.vmap(noisy)(data[0]))).maximised()


@pytest.mark.thorough
@pytest.mark.parametrize("wrap", ["noise", "cut points", "none"])
def test_a_linearised_network_is_the_first_order_expansion(wrap, key):
    """Catches the derivative at the drawn parameters, and noise or cut points that are expanded too."""
    keys = jax.random.split(key, 3)
    mode, other = (nn.MLP(3, "scalar", widths=(4,), activation=jnp.tanh, dtype=jnp.float64, key=k) for k in keys[:2])
    x = jax.random.normal(keys[2], (3,), jnp.float64)
    vector, back = flattened(mode)
    expected = mode(x) + jax.grad(lambda vector: back(vector)(x))(vector) @ (flattened(other)[0] - vector)
    if wrap == "noise":
        mode, other = (nn.WithNoise(network, jnp.asarray(-0.3)) for network in (mode, other))
    if wrap == "cut points":
        mode, other = (nn.WithCutPoints(network, 3, dtype=jnp.float64) for network in (mode, other))
        expected = nn.WithCutPoints(lambda x, y=expected: y, 3, dtype=jnp.float64)(x)
    np.testing.assert_allclose(nn.linearised(mode, other)(x), expected, rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("structure", ["diagonal", "full"])
def test_a_posterior_far_less_sure_than_its_network_says_so(structure, key):
    """Catches a wrong trace, a loss that is not an example's, and alarms for networks that are unsure, or narrow priors."""
    network, (x, _) = classifier(key, size=100, scale=12.0)
    log_p = jax.nn.log_softmax(jax.vmap(network)(x)).max(axis=1)
    x = x[log_p > -0.01]
    y = jnp.argmax(jax.vmap(network)(x), axis=1)

    def fit(network=network, **options):
        return nn.laplace_posterior(network, nn.CategoricalLikelihood(), (x, y), structure=structure, **options)

    fitted = fit(prior_variance=1e4)
    with pytest.warns(UserWarning, match="LaplacePosterior: .* far less sure") as caught:
        fitted.linearised(x[:2])
    exact, _ = gauss_newton(network, x)
    exact = np.diag(np.diagonal(exact)) if structure == "diagonal" else exact
    determined = np.trace(exact @ np.linalg.inv(exact + np.eye(31) / 1e4))
    log_p = np.asarray(nn.CategoricalLikelihood()(network, (x, y))).mean()
    drawn = log_p - determined / 2 / len(x)
    assert f"likelihood of {log_p:.2g} an example of the training data, its draws have about {drawn:.2g}." in str(
        caught[0].message
    )
    with pytest.warns(UserWarning, match="far less sure"):
        fitted.sampler()
    with pytest.warns(UserWarning, match="far less sure"):
        fitted.sample_linearised(jax.random.key(0), x[:2], num_samples=2)
    with pytest.warns(UserWarning, match="last_layer_laplace: .* far less sure") as caught:
        nn.last_layer_laplace(network, nn.CategoricalLikelihood(), (x, y), where=last_of, prior_variance=1e6)
    if structure == "full":
        with pytest.warns(UserWarning, match="far less sure") as of_full:
            fit(where=last_of, prior_variance=1e6).linearised(x[:2])
        assert str(caught[0].message).partition(":")[2] == str(of_full[0].message).partition(":")[2]
    # neither a narrow prior nor an unsure network is warned of: warnings are errors here
    fit(prior_variance=1e-4).linearised(x[:2])
    fit(jax.tree.map(lambda leaf: leaf / 12.0, network), prior_variance=1e4).linearised(x[:2])


class Convolved(eqx.Module):
    convolution: eqx.nn.Conv1d
    norm: eqx.nn.LayerNorm
    last: eqx.nn.Linear

    def __call__(self, x):
        return self.last(self.norm(jnp.tanh(self.convolution(x[None])).reshape(-1)))


def test_weights_that_keep_their_values_are_named(key):
    """Catches a posterior that looks like one over all layers, and warnings for layers that were selected."""
    _, (x, y) = classifier(key)
    keys = jax.random.split(jax.random.key(1))
    network = Convolved(
        eqx.nn.Conv1d(1, 2, 2, dtype=jnp.float64, key=keys[0]),
        eqx.nn.LayerNorm(4, dtype=jnp.float64),
        eqx.nn.Linear(4, 3, dtype=jnp.float64, key=keys[1]),
    )
    message = r"'convolution.weight', 'convolution.bias' and all other arrays, 14 of 29 parameters, keep their trained"
    with pytest.warns(UserWarning, match=message):
        nn.laplace_posterior(network, nn.CategoricalLikelihood(), (x, y))
    nn.laplace_posterior(network, nn.CategoricalLikelihood(), (x, y), where=lambda net: net.last)
    without = eqx.tree_at(lambda net: net.convolution, network, lambda x: jnp.concatenate([x, x[:, :1]], axis=1))
    nn.laplace_posterior(without, nn.CategoricalLikelihood(), (x, y))


@pytest.mark.thorough
def test_orthonormal_weights_of_other_layers_stay_where_they_are(key):
    """Catches a sampler that is refused because of a layer that it does not move."""
    key_data, key_network, key_draws = jax.random.split(key, 3)
    network = nn.MLP(3, 3, widths=(4,), orthogonal=True, dtype=jnp.float64, key=key_network)
    _, data = classifier(key_data)
    fitted = nn.laplace_posterior(network, nn.CategoricalLikelihood(), data, where=lambda net: net.layers[-1])
    draws = gx.sample(key_draws, fitted.sampler(), network, num_samples=5, num_chains=2, progress=False)["posterior"]
    np.testing.assert_array_equal(draws["layers.0.weight"][1, 4], network.layers[0].weight)
    assert len(np.unique(draws["layers.1.weight"][..., 0, 0])) == 10


def test_saved_posterior_is_read_into_one_of_fewer_rows(key, tmp_path):
    """Catches a number of observations taken from the posterior it is read into."""
    data, _, model = linear_model(key)
    fitted = nn.laplace_posterior(model, nn.GaussianLikelihood(None), data)
    eqx.tree_serialise_leaves(tmp_path / "fitted.eqx", fitted)
    other = nn.laplace_posterior(model, nn.GaussianLikelihood(None), jax.tree.map(lambda rows: rows[:3], data))
    again = eqx.tree_deserialise_leaves(tmp_path / "fitted.eqx", other)
    assert again.log_marginal_likelihood() == fitted.log_marginal_likelihood()
    assert eqx.tree_equal(again.maximised(), fitted.maximised())
