"""IVON, VOGN and noisy K-FAC: stationary distributions on a conjugate target, steps by their formula, posteriors, resume."""

import signal
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import vi
from geodax.run.errors import SamplingInterrupted
from geodax.sgmcmc.schedules import polynomial

nn = gx.nn
SIZE, BATCH, NOISE, CHAINS = 60, 12, 0.5, 8
PRIORS = nn.Priors([("*bias", nn.Gaussian(0.3)), ("*", nn.Gaussian(0.7))])
METHODS = {"ivon": vi.ivon, "vogn": vi.vogn, "noisy_kfac": vi.noisy_kfac}


@pytest.fixture(scope="module")
def regression():
    """A dense layer with correlated inputs; its exact posterior has the precision ``precision`` for each output."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZE, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]]) + 0.4
    y = x @ rng.normal(size=(2, 2)) + np.array([0.3, -0.5]) + NOISE * rng.normal(size=(SIZE, 2))
    design = np.c_[x, np.ones(SIZE)]
    precision = design.T @ design / NOISE**2 + np.diag([0.7**-2, 0.7**-2, 0.3**-2])
    return (jnp.asarray(x), jnp.asarray(y)), np.linalg.solve(precision, design.T @ y / NOISE**2).T, precision


def columns(layer):
    return jnp.concatenate([layer.weight, layer.bias[:, None]], axis=1)


@pytest.fixture(scope="module", params=METHODS)
def stationary(request, regression):
    """Means and precision matrices of independent chains, averaged over the second half of their steps."""
    data, *_ = regression
    start = nn.Linear(2, 2, dtype=jnp.float64, key=jax.random.key(1))
    options = {"refresh_every": 1, "beta2": 0.98} if request.param == "noisy_kfac" else {"beta2": 0.998}
    make = METHODS[request.param]
    algorithm = make(start, nn.GaussianLikelihood(NOISE), 0.03, num_data=SIZE, priors=PRIORS, **options)
    batches = gx.data.batches(data, batch_size=BATCH)

    def precision(q):
        if request.param != "noisy_kfac":
            flat = jnp.exp(-2.0 * q.family.log_scale)
            return jax.vmap(jnp.diag)(jnp.c_[flat[:4].reshape(2, 2), flat[4:]])
        (layer,) = q.layers
        # of each output: the precision of the first row of U z V^T, and so on
        kept = jnp.einsum("pq,ik,qk,jk->pij", layer.left**2, layer.right, layer.deviation**-2, layer.right)
        return kept / jnp.outer(layer.columns(), layer.columns())[None]

    def chain(key):
        def body(state, i):
            key_step, key_data = jax.random.split(jax.random.fold_in(key, i))
            state, _ = algorithm.step(key_step, state, batches.draw(key_data, i), i)
            q = algorithm.network(state)
            return state, (columns(q.mean), precision(q))

        _, found = jax.lax.scan(body, algorithm.init(start), jnp.arange(6000))
        return jax.tree.map(lambda leaf: leaf[3000:].mean(axis=0), found)

    return request.param, *map(np.asarray, jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(2), CHAINS)))


def within(found, exact, bias=0.0):
    error = found.std(axis=0, ddof=1) / np.sqrt(CHAINS)
    assert (np.abs(found.mean(axis=0) - exact) <= 4.5 * error + bias * np.abs(exact)).all()


@pytest.mark.thorough
def test_stationary_mean_is_that_of_the_exact_posterior(stationary, regression):
    """Catches a prior with the wrong weight and likelihoods that are not scaled to the data."""
    _, means, _ = stationary
    within(means, regression[1])


def test_stationary_precision_is_that_of_the_mean_field_optimum(stationary, regression):
    """Catches N and the batch size exchanged, prior variances taken for deviations, and curvature without its noise."""
    name, _, precisions = stationary
    if name == "vogn":
        # averages over draws of squared gradients; means that move with the batches raise them a little
        within(precisions, precision_of_squares(*regression), bias=0.03)
        return
    exact = np.diag(np.diag(regression[2])) if name == "ivon" else regression[2]
    # the term that keeps Hessians positive raises them by (1 - beta2) N / B / 2
    within(precisions, exact, bias=0.01 if name == "ivon" else 0.0)


def precision_of_squares(data, mean, precision):
    """The precision of each output that squared gradients of single examples have in expectation under it."""
    x, y = map(np.asarray, data)
    squares = np.c_[x, np.ones(SIZE)] ** 2
    residuals, prior = (y - np.c_[x, np.ones(SIZE)] @ mean.T) ** 2, np.array([0.7**-2, 0.7**-2, 0.3**-2])
    found = np.tile(np.diag(precision), (2, 1))
    for _ in range(50):
        found = (residuals + squares @ (1.0 / found).T).T @ squares / NOISE**4 + prior
    return np.stack([np.diag(row) for row in found])


@pytest.mark.thorough
def test_a_step_of_noisy_kfac_is_its_formula(regression, key):
    """Catches inputs, gradients and examples of a layer mixed up; with many data weights are drawn at their mean."""
    n, rate, beta2, damping = 2**31 - 1, 0.3, 0.9, 0.05
    (x, y), *_ = regression
    batch = x[:7], y[:7, 0]
    key_network, key_step = jax.random.split(key)
    network = nn.MLP(2, "scalar", widths=(3,), activation=jnp.tanh, dtype=jnp.float64, key=key_network)
    start = nn.WithNoise(network, jnp.asarray(-0.4))
    likelihood = nn.GaussianLikelihood()
    algorithm = vi.noisy_kfac(
        start,
        lambda position, batch: likelihood(position, batch),
        rate,
        num_data=n,
        priors=PRIORS,
        beta1=0.6,
        beta2=beta2,
        damping=damping,
        initial_curvature=4.0,
        point_rate=0.02,
        log_prior=lambda position: 1e16 * position.log_noise,
    )
    state, info = jax.jit(algorithm.step)(key_step, algorithm.init(start), batch, jnp.asarray(0))
    moved = algorithm.network(state).mean
    gradient = jax.grad(lambda net: -jnp.mean(likelihood(net, batch)))(start)
    units = np.array([0.7, 0.7, 0.7, 0.3])
    hidden = np.tanh(np.c_[batch[0], np.ones(7)] @ np.asarray(columns(start.network.layers[0])).T)
    residual = (np.asarray(batch[1]) - np.asarray(jax.vmap(start)(batch[0])))[:, None] * np.exp(0.8)
    below = residual * np.asarray(start.network.layers[1].weight) * (1.0 - hidden**2)
    cases = ((np.asarray(batch[0]), below), (hidden, residual))
    for i, (inputs, g) in enumerate(cases):
        unit = units[-1 - inputs.shape[1] :]
        a = np.c_[inputs, np.ones(7)] * unit
        of_inputs = beta2 * 2.0 * unit**2 + (1 - beta2) * (a**2).mean(axis=0)
        of_outputs = beta2 * 2.0 + (1 - beta2) * (g**2).mean(axis=0)
        curvature = of_outputs[:, None] * of_inputs + damping
        change = rate * unit * unit * np.asarray(columns(gradient.network.layers[i])) / curvature
        found = columns(start.network.layers[i]) - columns(moved.network.layers[i])
        np.testing.assert_allclose(found, change, atol=1e-3 * np.abs(change).max())
    assert gradient.log_noise > 0  # Adam would go down without the prior of the noise
    np.testing.assert_allclose(moved.log_noise, -0.4 + 0.02, rtol=1e-6)
    np.testing.assert_allclose(info.log_likelihood, n * jnp.mean(likelihood(start, batch)), rtol=1e-3)


class Mixed(eqx.Module):
    """A convolution, whose weights have independent posteriors, and two dense layers, one without bias."""

    convolution: eqx.nn.Conv1d
    dense: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.convolution = eqx.nn.Conv1d(1, 2, 2, dtype=jnp.float32, key=keys[0])
        self.dense = eqx.nn.Linear(6, 3, use_bias=False, dtype=jnp.float32, key=keys[1])
        self.last = eqx.nn.Linear(3, 3, dtype=jnp.float32, key=keys[2])

    def __call__(self, x):
        return self.last(jax.nn.tanh(self.dense(jax.nn.tanh(self.convolution(x[None])).reshape(-1))))


@pytest.fixture(scope="module")
def classes():
    x = np.random.default_rng(3).normal(size=(90, 4)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(np.argmax(x[:, :3], axis=1).astype(np.int32))


def fitted(name, classes, **options):
    network = Mixed(jax.random.key(0))
    rate = polynomial(0.05, offset=100.0, power=0.5)
    algorithm = METHODS[name](network, nn.CategoricalLikelihood(), rate, num_data=90, priors=PRIORS)
    options = {"num_steps": 300, "batch_size": 30, "progress": False, "window": 50} | options
    return vi.fit(jax.random.key(4), network, nn.CategoricalLikelihood(), classes, algorithm=algorithm, **options)


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_fits_resume_and_posteriors_agree_with_their_draws(name, classes, tmp_path, key):
    """Catches states that checkpoints lose, and draws, densities and divergences of different distributions."""
    whole = fitted(name, classes)

    def stop(progress):
        if progress.iteration >= 110:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SamplingInterrupted):
        fitted(name, classes, checkpoint=tmp_path, progress=stop)
    again = fitted(name, classes, checkpoint=tmp_path)
    for a, b in zip(jax.tree.leaves(whole.network), jax.tree.leaves(again.network), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.history.elbo[-1] > whole.history.elbo[0] + 20
    q = whole.network
    key_predict, key_draws = jax.random.split(key)
    logits = vi.predict(key_predict, q, classes[0], num_samples=20)
    labels = np.argmax(np.asarray(jax.nn.softmax(logits).mean(axis=0)), axis=1)
    assert np.mean(labels == np.asarray(classes[1])) > 0.8
    draws = jax.jit(jax.vmap(q.sample))(jax.random.split(key_draws, 4000))
    ratio = np.asarray(jax.jit(jax.vmap(lambda net: q.log_prob(net) - PRIORS(net)))(draws))
    assert abs(ratio.mean() - float(q.kl())) < 4.5 * ratio.std() / np.sqrt(4000)
    for drawn, mean in zip(jax.tree.leaves(draws), jax.tree.leaves(q.mean), strict=True):
        drawn, mean = np.asarray(drawn), np.asarray(mean)
        assert (np.abs(drawn.mean(axis=0) - mean) < 5.5 * drawn.std(axis=0) / np.sqrt(4000)).all()


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_networks_of_single_precision_take_data_of_double_precision(name, classes, key):
    """Noisy K-FAC had second moments of double precision, which was an error of a branch."""
    network, likelihood = nn.MLP(4, 3, widths=(5,), key=key), nn.CategoricalLikelihood()
    algorithm = METHODS[name](network, likelihood, 0.05, num_data=90)
    step, start, found = jax.jit(algorithm.step), algorithm.init(network), []
    with jax.numpy_dtype_promotion("standard"):
        for dtype in (jnp.float32, jnp.float64):
            state, _ = step(jax.random.key(4), start, (classes[0].astype(dtype), classes[1]), jnp.asarray(0))
            assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {leaf.dtype for leaf in jax.tree.leaves(start)}
            found.append(jax.tree.leaves(algorithm.network(state).mean))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_wrong_arguments_are_named(classes):
    network, likelihood = Mixed(jax.random.key(0)), nn.CategoricalLikelihood()
    for make in METHODS.values():
        with pytest.raises(ValueError, match=r"the prior of convolution.weight must be nn\.Gaussian with mean 0"):
            make(network, likelihood, 0.1, num_data=90, priors=nn.Priors([("*", nn.Laplace(1.0))]))
        with pytest.raises(TypeError, match=r"priors must be a gx\.nn\.Priors"):
            make(network, likelihood, 0.1, num_data=90, priors=2.0)
        with pytest.raises(TypeError, match="already has posteriors"):
            make(vi.GaussianOver(network), likelihood, 0.1, num_data=90)
        with pytest.raises(ValueError, match="beta2 must be at least 0 and below 1"):
            make(network, likelihood, 0.1, num_data=90, beta2=1.0)
    with pytest.raises(TypeError, match="where must select dense layers"):
        vi.noisy_kfac(network, likelihood, 0.1, num_data=90, where=lambda net: net.convolution)
    with pytest.raises(ValueError, match="weight and bias have a posterior"):
        vi.noisy_kfac(network, likelihood, 0.1, num_data=90, points=("last.*",), where=lambda net: net.last)

    class Twice(Mixed):
        def __call__(self, x):
            return jax.vmap(self.last)(jnp.outer(x, jnp.ones(3, x.dtype))).mean(axis=0)

    algorithm = vi.noisy_kfac(Twice(jax.random.key(0)), likelihood, 0.1, num_data=90, where=lambda net: net.last)
    with pytest.raises(ValueError, match=r"noisy_kfac: expected dense layers .* called under jax\.vmap"):
        algorithm.step(jax.random.key(0), algorithm.init(Twice(jax.random.key(0))), classes, jnp.asarray(0))
    with pytest.raises(ValueError, match="one prior_variance for each of 5 arrays"):
        vi.GaussianOver(network, prior_variance=(1.0, 2.0))
    with pytest.raises(ValueError, match="needs covariance='diagonal'"):
        vi.GaussianOver(jnp.zeros(2), "full", prior_variance=(1.0,))


def test_a_pattern_of_points_without_a_match_is_an_error():
    """Catches a mistyped name whose array silently gets a posterior and a prior."""
    start = {"weight": jnp.zeros(3), "log_noise": jnp.zeros(())}
    with pytest.raises(ValueError, match=r"no array matches 'log_nois'; the arrays are log_noise, weight"):
        vi.GaussianOver(start, points=("log_nois",))
    assert len(vi.GaussianOver(start, points=("log_noise",)).free) == 1
    vi.GaussianOver({"weight": jnp.zeros(3)}, points=("*log_noise",))  # the default of the natural-gradient methods


def test_a_fit_that_ends_far_below_its_start_says_so():
    """IVON stays finite at any rate; only its predictions showed that it had diverged."""
    x = jnp.linspace(-1.0, 1.0, 40, dtype=jnp.float32)[:, None]
    network = gx.nn.MLP(1, "scalar", widths=(10,), key=jax.random.key(0))
    likelihood = gx.nn.GaussianLikelihood(0.3)

    def fit(rate):
        method = gx.vi.ivon(network, likelihood, rate, num_data=40, priors=gx.nn.Priors())
        data, options = (x, jnp.sin(3.0 * x[:, 0])), {"num_steps": 300, "progress": False}
        return gx.vi.fit(jax.random.key(1), network, likelihood, data, algorithm=method, **options)

    with pytest.warns(UserWarning, match=r"the fit diverged: .* learning rate that is too large"):
        fit(10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(0.3)
