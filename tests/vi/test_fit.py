"""Fits against conjugate posteriors and exact evidences; resume, early stops, held arrays, other optimisers."""

import os
import signal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import geodax as gx
from geodax import vi
from geodax.run import fit_plan
from geodax.run.errors import CheckpointError, NonFiniteError, SamplingInterrupted
from geodax.run.fit_chunks import build
from geodax.sgmcmc.schedules import polynomial

nn = gx.nn
NOISE, PRIOR = 0.5, 0.8
SILENT = {"progress": False}


@pytest.fixture(scope="module")
def regression():
    """Data of a linear model, its exact posterior, and the exact log evidence."""
    return linear_model()


def linear_model():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x @ np.array([1.0, -1.0, 0.5]) + NOISE * rng.normal(size=40)
    precision = np.eye(3) / PRIOR + x.T @ x / NOISE**2
    covariance = np.linalg.inv(precision)
    evidence = multivariate_normal(np.zeros(40), NOISE**2 * np.eye(40) + PRIOR * x @ x.T).logpdf(y)
    return (jnp.asarray(x), jnp.asarray(y)), covariance @ x.T @ y / NOISE**2, covariance, evidence


def log_likelihood(weights, batch):
    x, y = batch
    return -0.5 * ((y - x @ weights) / NOISE) ** 2 - 0.5 * jnp.log(2 * jnp.pi * NOISE**2)


def exact(mean, covariance):
    root = np.linalg.cholesky(covariance)
    family = vi.FullGaussian(jnp.asarray(mean), jnp.log(jnp.diagonal(jnp.asarray(root))), jnp.asarray(root))
    return vi.GaussianOver(jnp.zeros(3), family, prior_variance=PRIOR)


def mean_bound(q, data, key, num_samples=2000):
    return vi.elbo(key, q, log_likelihood, data, num_data=40, num_samples=num_samples).elbo


def test_bound_of_an_exactly_known_evidence(regression, key):
    check_bound(regression, key)


def check_bound(regression, key):
    """Equality at the exact posterior; elsewhere below by the divergence from it, also from batches."""
    data, mean, covariance, evidence = regression
    key_best, key_wide, key_batches = jax.random.split(key, 3)
    bound = jax.jit(mean_bound)
    best = exact(mean, covariance)
    draws = jax.jit(jax.vmap(lambda k: mean_bound(best, data, k, 1)))(jax.random.split(key_best, 2000))
    error = float(draws.std()) / np.sqrt(2000)
    assert abs(float(draws.mean()) - evidence) < 4 * error
    wide = exact(mean + 0.1, 2.0 * covariance)
    gap = 0.5 * (3 * 2.0 - 3 - 3 * np.log(2.0) + 0.01 * np.linalg.inv(covariance).sum())
    assert abs(float(bound(wide, data, key_wide)) - (evidence - gap)) < 0.5 * gap
    batches = gx.data.batches(data, batch_size=8)

    def of_batch(i):
        k = jax.random.fold_in(key_batches, i)
        return vi.elbo(k, wide, log_likelihood, batches.draw(jax.random.key(1), i), num_data=40).elbo

    values = np.asarray(jax.jit(jax.vmap(of_batch))(jnp.arange(4000)))
    assert abs(values.mean() - (evidence - gap)) < 4 * values.std() / np.sqrt(4000)


def test_bound_under_a_prior_that_is_a_function(regression, key):
    """Correlated, with a mean: at the exact posterior the bound is the evidence."""
    (x, y), *_ = regression
    centre, spread = np.array([0.5, -2.0, 0.1]), np.array([[0.6, 0.2, 0.0], [0.2, 0.9, -0.1], [0.0, -0.1, 0.3]])
    precision = np.linalg.inv(spread) + x.T @ x / NOISE**2
    mean = np.linalg.solve(precision, np.linalg.solve(spread, centre) + x.T @ y / NOISE**2)
    evidence = multivariate_normal(x @ centre, NOISE**2 * np.eye(40) + x @ spread @ x.T).logpdf(y)
    family = exact(mean, np.linalg.inv(precision)).family

    def prior(weights):
        return jax.scipy.stats.multivariate_normal.logpdf(weights, centre, spread)

    best = vi.GaussianOver(jnp.zeros(3), family, log_prior=prior)
    draws = jax.jit(jax.vmap(lambda k: mean_bound(best, (x, y), k, 1)))(jax.random.split(key, 40_000))
    assert abs(float(draws.mean()) - evidence) < 4 * float(draws.std()) / np.sqrt(40_000)
    with pytest.raises(ValueError, match="estimated from a draw; give key="):
        best.kl()
    with pytest.raises(ValueError, match="one of log_prior and prior_variance"):
        vi.GaussianOver(jnp.zeros(3), log_prior=prior, prior_variance=2.0)


def test_fit_without_a_posterior_says_that_it_is_maximum_likelihood(regression, key):
    key_first, key_second = jax.random.split(key)
    layer = nn.Linear(3, "scalar", key=jax.random.key(1))
    likelihood, data = nn.GaussianLikelihood(noise=NOISE), regression[0]
    with pytest.warns(UserWarning, match="no part of the network has a posterior"):
        vi.fit(key_first, layer, likelihood, data, num_steps=2, **SILENT)
    vi.fit(key_second, layer, likelihood, data, num_steps=2, log_prior=nn.Priors(), **SILENT)


def test_fit_finds_the_conjugate_posterior(regression, key):
    data, mean, covariance, evidence = regression
    start = vi.GaussianOver(jnp.zeros(3), "full", prior_variance=PRIOR)
    fit = vi.fit(
        key,
        start,
        log_likelihood,
        data,
        num_steps=3000,
        learning_rate=polynomial(0.05, offset=30.0, power=1.0),
        num_samples=16,
        **SILENT,
    )
    scale = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(fit.network.family.mean, mean, atol=0.1 * scale.min())
    found = np.asarray(fit.network.family.covariance())
    np.testing.assert_allclose(found / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=0.1)
    assert abs(fit.history.elbo[-20:].mean() - evidence) < 0.1
    assert fit.history.step[-1] == 3000


@pytest.mark.slow
def test_natural_gradient_finds_the_mean_field_posterior(regression, key):
    """Precisions of the mean-field optimum are the diagonal of the exact precision; the squares estimate them."""
    data, mean, covariance, _ = regression
    algorithm = vi.vogn(
        jnp.zeros(3), log_likelihood, lambda t: jnp.asarray(0.02), num_data=40, prior_variance=PRIOR, damping=0.0
    )
    fit = vi.fit(key, jnp.zeros(3), log_likelihood, data, num_steps=4000, algorithm=algorithm, **SILENT)
    residuals = (np.asarray(data[1]) - np.asarray(data[0]) @ mean)[:, None]
    x = np.asarray(data[0])
    # the average over draws of squared gradients: residuals and the spread of the draws
    spread = 1.0 / np.diagonal(np.linalg.inv(covariance))
    for _ in range(20):
        square = (x**2 * (residuals**2 + (x**2 * spread).sum(1)[:, None])).sum(0) / NOISE**4
        spread = 1.0 / (square + 1.0 / PRIOR)
    np.testing.assert_allclose(jnp.exp(2 * fit.network.family.log_scale), spread, rtol=0.1)
    np.testing.assert_allclose(fit.network.family.mean, mean, atol=0.4 * np.sqrt(spread.min()))


@pytest.mark.parametrize("per_example", [True, False])
def test_natural_steps_are_their_formula(regression, per_example, key):
    check_natural_steps(regression, per_example, key)


def check_natural_steps(regression, per_example, key):
    """Three steps with a batch that is not the data, and no argument of its default value."""
    n, variance, beta1, beta2, damping, rate = 40, PRIOR, 0.7, 0.6, 0.05, 0.3
    (x, y), *_ = regression
    x, y = np.asarray(x)[:8], np.asarray(y)[:8]
    mean, momentum, curvature, delta = np.array([0.4, -0.2, 1.5]), np.zeros(3), np.full(3, 2.0), 1 / (n * variance)
    algorithm = vi.vogn(
        jnp.asarray(mean),
        log_likelihood,
        rate,
        num_data=n,
        prior_variance=variance,
        initial_curvature=2.0,
        beta1=beta1,
        beta2=beta2,
        damping=damping,
        per_example=per_example,
    )
    state, step = algorithm.init(jnp.asarray(mean)), jax.jit(algorithm.step)
    for i, k in enumerate(jax.random.split(key, 3), 1):
        q = algorithm.network(state)
        np.testing.assert_allclose(jnp.exp(-2 * q.family.log_scale), n * curvature + 1 / variance)
        w = np.asarray(q.family.sample(k))
        state, info = step(jax.random.clone(k), state, (x, y), jnp.int32(i - 1))
        np.testing.assert_allclose(info.log_likelihood, n * np.mean(log_likelihood(w, (x, y))))
        np.testing.assert_allclose(info.elbo, info.log_likelihood - q.kl())
        gradients = -(y - x @ w)[:, None] * x / NOISE**2
        square = np.mean(gradients**2, axis=0) if per_example else np.mean(gradients, axis=0) ** 2
        momentum = beta1 * momentum + (1 - beta1) * (gradients.mean(axis=0) + delta * mean)
        curvature = beta2 * curvature + (1 - beta2) * square
        mean = mean - rate * momentum / (1 - beta1**i) / (curvature + delta + damping)
        np.testing.assert_allclose(algorithm.network(state).family.mean, mean)


def network(key):
    return nn.WithNoise(nn.variational(nn.MLP(2, "scalar", widths=(4,), key=key), "whvi", key=jax.random.key(2)))


def toy(number=48):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(number, 2)).astype(np.float32)
    return x, np.sin(x[:, 0]).astype(np.float32)


@pytest.mark.thorough
def test_interrupted_is_uninterrupted(tmp_path, monkeypatch, key):
    """Stopped by a signal and resumed: the same bits, whatever the chunks were."""
    k = jax.random.key(3)
    start = network(jax.random.key(0))
    options = dict(num_steps=120, batch_size=8, window=30, kl_warmup=50, held={"log_noise": 40}, validation=toy(16))
    whole = vi.fit(k, start, nn.GaussianLikelihood(), toy(), **options, **SILENT)

    def stop(progress):
        assert str(progress).startswith(f"fitting {progress.iteration}/120")
        if progress.iteration >= 37:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SamplingInterrupted, match="to resume from"):
        vi.fit(
            jax.random.clone(k), start, nn.GaussianLikelihood(), toy(), **options, checkpoint=tmp_path, progress=stop
        )
    again = vi.fit(jax.random.clone(k), start, nn.GaussianLikelihood(), toy(), **options, checkpoint=tmp_path, **SILENT)
    assert again.num_steps == 120
    for a, b in zip(jax.tree.leaves(whole.network), jax.tree.leaves(again.network), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(whole.history, again.history, strict=True):
        np.testing.assert_array_equal(a, b)
    with monkeypatch.context() as patch:  # nothing is left to do: windows are not closed once more
        patch.setattr(fit_plan, "build", lambda *a: (build(*a)[0], pytest.fail))
        ended = vi.fit(
            jax.random.clone(k), start, nn.GaussianLikelihood(), toy(), **options, checkpoint=tmp_path, **SILENT
        )
    for a, b in zip(jax.tree.leaves(again.network), jax.tree.leaves(ended.network), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(CheckpointError, match="another fit: its kl_warmup"):
        vi.fit(
            jax.random.clone(k),
            start,
            nn.GaussianLikelihood(),
            toy(),
            **(options | {"kl_warmup": 0}),
            checkpoint=tmp_path,
            **SILENT,
        )


@pytest.mark.thorough
def test_noise_is_held_then_free(key):
    key_held, key_free = jax.random.split(key)
    start = network(jax.random.key(0))
    options = dict(batch_size=8, held={"*log_noise": 10}, **SILENT)
    held = vi.fit(key_held, start, nn.GaussianLikelihood(), toy(), num_steps=10, **options)
    assert float(held.network.log_noise) == 0.0
    free = vi.fit(key_free, start, nn.GaussianLikelihood(), toy(), num_steps=13, **options)
    # three steps of at most the learning rate: no burst from what was gathered while it was held
    assert 0.0005 < abs(float(free.network.log_noise)) < 0.0031
    with pytest.raises(ValueError, match="matches none of"):
        vi.fit(jax.random.key(0), start, nn.GaussianLikelihood(), toy(), num_steps=3, held={"noise": 3}, **SILENT)


@pytest.mark.parametrize(("kl_warmup", "expected"), [(0, [1, 1]), (1, [1, 1]), (4, [0.25, 0.5, 0.75, 1, 1])])
def test_the_divergence_rises_to_its_weight(regression, kl_warmup, expected, key):
    check_kl_warmup(regression, kl_warmup, expected, key)


def check_kl_warmup(regression, kl_warmup, expected, key):
    """Weights of 1 / kl_warmup, 2 / kl_warmup, ... in the first steps, and 1 from the step kl_warmup on."""
    data, *_ = regression
    start = vi.GaussianOver(jnp.zeros(3), "full", scale=2.0, prior_variance=PRIOR)
    algorithm = vi.ascent(start, log_likelihood, vi.adam(lambda i: i), num_data=40, kl_warmup=kl_warmup)
    state = algorithm.init(start)
    step = jax.jit(algorithm.step)
    infos = [step(jax.random.clone(key), state, data, jnp.int32(i))[1] for i in range(len(expected))]
    np.testing.assert_allclose([(i.log_likelihood - i.elbo) / i.kl for i in infos], expected, rtol=1e-10)


def test_early_stop_returns_the_best(key):
    """Validation targets with the sign turned: every step away from the start makes them less likely."""
    x, y = toy()
    start = vi.GaussianOver(nn.Linear(2, "scalar", dtype=jnp.float32, key=jax.random.key(5)), scale=0.01)
    zero = eqx.tree_at(lambda q: q.family.mean, start, jnp.zeros_like(start.family.mean))
    fit = vi.fit(
        key,
        zero,
        nn.GaussianLikelihood(0.3),
        (x, y),
        num_steps=500,
        window=5,
        validation=(x, -y),
        patience=3,
        learning_rate=0.01,
        **SILENT,
    )
    assert fit.stopped_early
    assert fit.num_steps == 5 * (1 + int(np.argmax(fit.history.validation)) + 3)
    assert len(fit.history.step) == fit.num_steps // 5
    assert np.abs(fit.network.family.mean).max() < 0.1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_validation_data_without_a_bound_stop_the_fit(regression, bad, key):
    """Catches the network of the start returned as the best one."""
    (x, y), *_ = regression
    start = vi.GaussianOver(jnp.zeros(3), prior_variance=PRIOR)
    options = {"num_steps": 20, "window": 5, "validation": (x[:6], y[:6].at[2].set(bad)), **SILENT}
    with pytest.raises(NonFiniteError, match=r"validation data is .* after 5 of 20 steps.*1 of 6 examples") as found:
        vi.fit(key, start, log_likelihood, (x, y), **options)
    assert not np.any(found.value.fit.network.mean == start.mean)


def test_a_fit_that_stops_within_a_window_has_its_means(regression, key):
    """Catches NaN for the steps of an open window, and the network of the start."""
    data, *_ = regression
    start = vi.GaussianOver(jnp.zeros(3), prior_variance=PRIOR)
    options = {"batch_size": 8, "num_steps": 40, "window": 30, **SILENT}

    def stop(progress):
        if progress.iteration >= 7:
            raise RuntimeError

    with pytest.raises(RuntimeError) as found:
        vi.fit(key, start, log_likelihood, data, **options | {"validation": data, "progress": stop})
    part = found.value.fit
    each = vi.fit(jax.random.clone(key), start, log_likelihood, data, **options | {"window": 1}).history
    assert part.history.step.tolist() == [part.num_steps]
    for name in ("elbo", "log_likelihood", "kl"):
        expected = getattr(each, name)[: part.num_steps].mean()
        np.testing.assert_allclose(getattr(part.history, name), [expected], rtol=1e-10)
    assert not np.any(part.network.mean == start.mean)


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["ascent", "ivon", "noisy_kfac"])
def test_the_bound_has_the_prior_of_the_points(method, key):
    """Catches methods whose bounds cannot be compared, and a log likelihood with a prior in it."""
    likelihood, plain = nn.GaussianLikelihood(), network(jax.random.key(0))
    if method != "ascent":
        plain = nn.WithNoise(nn.MLP(2, "scalar", widths=(3,), key=jax.random.key(1)), -1.0)
    found = []
    for prior in (None, lambda position: 7.0 * jnp.reshape(position.log_noise, ()) - 3.0):
        if method == "ascent":
            algorithm = vi.ascent(plain, likelihood, vi.adam(lambda i: i), num_data=48, log_prior=prior)
        else:
            algorithm = getattr(vi, method)(plain, likelihood, 0.1, num_data=48, log_prior=prior)
        batch = tuple(map(jnp.asarray, toy()))
        step = algorithm.step(jax.random.clone(key), algorithm.init(plain), batch, jnp.int32(0))
        found.append(step[1])
    np.testing.assert_allclose(found[1].elbo - found[0].elbo, 7.0 * float(plain.log_noise) - 3.0, rtol=1e-4)
    assert found[1].log_likelihood == found[0].log_likelihood


@pytest.mark.relaxed
def test_optax_does_as_well(regression, key):
    import optax

    data, *_ = regression
    start = vi.GaussianOver(jnp.zeros(3), prior_variance=PRIOR)
    ours = vi.fit(key, start, log_likelihood, data, num_steps=50, learning_rate=0.01, **SILENT)
    theirs = vi.fit(
        jax.random.clone(key), start, log_likelihood, data, num_steps=50, optimizer=optax.adam(0.01), **SILENT
    )
    np.testing.assert_allclose(ours.network.family.mean, theirs.network.family.mean, rtol=1e-6)


@pytest.mark.thorough
@pytest.mark.relaxed
def test_optimisers_may_see_the_loss(regression, key):
    """Those that take extra arguments are handed minus the bound of an example, and the gradient."""
    import optax

    data, mean, *_ = regression
    start = vi.GaussianOver(jnp.zeros(3), prior_variance=PRIOR, scale=0.01)

    def seen(updates, state, params=None, *, value, grad, **extra):
        assert not extra
        gap = value + evaluate(params) / 40
        return jax.tree.map(lambda u, g: -0.01 * g + 0.0 * u, updates, grad), jnp.maximum(state, jnp.abs(gap))

    def evaluate(params):
        q = eqx.combine(params, start)
        return vi.elbo(k_step, q, log_likelihood, data, num_data=40).elbo

    k_step = jax.random.fold_in(jax.random.split(key, 3)[1], 0)
    own = optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(()), seen)
    algorithm = vi.ascent(start, log_likelihood, own, num_data=40)
    state, info = algorithm.step(k_step, algorithm.init(start), data, jnp.int32(0))
    assert float(state.optimizer) < 1e-9 * abs(float(info.elbo))
    plateau = optax.chain(optax.adam(0.02), optax.contrib.reduce_on_plateau(patience=50))
    fit = vi.fit(key, start, log_likelihood, data, num_steps=1000, num_samples=8, optimizer=plateau, **SILENT)
    np.testing.assert_allclose(fit.network.family.mean, mean, atol=0.05)
    with pytest.raises(TypeError, match=r"requires more than gradients, value and grad .*value_fn.*learning rate"):
        vi.fit(key, start, log_likelihood, data, num_steps=3, optimizer=optax.lbfgs(), **SILENT)


def test_natural_gradient_is_of_the_same_data_and_network(regression):
    data, *_ = regression
    zeros = jnp.zeros(3)

    def fit(network, algorithm):
        return vi.fit(jax.random.key(0), network, log_likelihood, data, num_steps=3, algorithm=algorithm, **SILENT)

    with pytest.raises(ValueError, match=r"made with num_data=4000, but the data have 40 examples.*num_data=40"):
        fit(zeros, vi.vogn(zeros, log_likelihood, 0.1, num_data=4000))
    algorithm = vi.vogn(zeros, log_likelihood, 0.1, num_data=40)
    with pytest.raises(TypeError, match="already has posteriors"):
        fit(vi.GaussianOver(zeros), algorithm)
    with pytest.raises(TypeError, match="already has posteriors"):
        vi.vogn(vi.GaussianOver(zeros), log_likelihood, 0.1, num_data=40)
    with pytest.raises(ValueError, match=r"expected a network with the arrays .*\(3,\).*one with .*\(4,\)"):
        fit(jnp.zeros(4), algorithm)
    fit(zeros, algorithm)


def test_natural_gradient_tells_arrays_of_one_name_apart():
    def position(size):
        return {"a": {"b": jnp.zeros(size)}, "a.b": jnp.zeros(3)}

    algorithm = vi.vogn(position(2), lambda position, batch: jnp.zeros(4), 0.1, num_data=4)
    with pytest.raises(ValueError, match=r"expected a network with the arrays .*\(2,\).*one with .*\(4,\)"):
        algorithm.init(position(4))
    algorithm.init(position(2))


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"orthogonal": True}, {"rank": 2}])
def test_weights_on_manifolds_are_not_moved_as_free_ones(options, key):
    """Catches steps and draws that take orthonormal weights off their manifold without a word."""
    network, likelihood = nn.MLP(3, 2, widths=(3,), key=key, **options), nn.CategoricalLikelihood()
    data, name = (jnp.zeros((4, 3), jnp.float32), jnp.zeros(4, jnp.int32)), type(network.layers[0]).__name__
    words = rf"layers\.0 is a {name}, whose weights lie on a manifold.*gx\.sghmc"
    with pytest.raises(ValueError, match=f"GaussianOver: expected free arrays.*{words}"):
        vi.GaussianOver(network)
    with pytest.raises(ValueError, match=f"GaussianOver.*the position is a {name}"):
        vi.GaussianOver(network.layers[0])
    with pytest.raises(ValueError, match=f"vogn: .*{words}"):
        vi.vogn(network, likelihood, 0.1, num_data=4)
    last = eqx.tree_at(lambda n: n.layers[-1], network, vi.GaussianOver(network.layers[-1]))
    for start in (network, nn.WithNoise(last)):
        with pytest.raises(ValueError, match=f"ascent: .*{words}"):
            vi.fit(jax.random.key(0), start, likelihood, data, num_steps=3, **SILENT)
    # a posterior over the free layer alone can be looked at
    assert np.isfinite(vi.elbo(jax.random.key(0), last, likelihood, data, num_data=4).elbo)


def test_modules_of_ones_own_may_use_the_names_of_others(regression):
    """A property that raises, fields that are None: what a module is, its class says."""

    class Named(eqx.Module):
        w: jax.Array
        manifolds: None = eqx.field(static=True, default=None)

        @property
        def structured_priors(self):
            raise KeyError("not yet")

    assert vi.GaussianOver(Named(jnp.zeros(3))).family.location.shape == (3,)


def test_what_is_no_posterior_is_named(regression):
    data, *_ = regression
    for position in (jnp.zeros(3), {"w": jnp.zeros(3)}):
        with pytest.raises(TypeError, match=r"vi\.GaussianOver\(position\)"):
            vi.fit(jax.random.key(0), position, log_likelihood, data, num_steps=3, **SILENT)
    for dtype in (jnp.int32, jnp.complex64):
        words = f"must be a real floating-point array, found an array of {jnp.dtype(dtype)}"
        with pytest.raises(TypeError, match=words):
            vi.GaussianOver(jnp.zeros(3, dtype))


def test_complex_parameters_are_refused():
    """Catches steps along a gradient that is not conjugated, which lead away from the optimum."""

    class Network(eqx.Module):
        last: vi.GaussianOver
        phase: jax.Array

    network = Network(vi.GaussianOver(jnp.zeros(3)), jnp.ones(2, complex))
    words = r"phase must be a real floating-point array, found an array of complex128.*real and imaginary parts"
    with pytest.raises(TypeError, match=f"ascent: {words}"):
        vi.ascent(network, log_likelihood, vi.adam(lambda i: i), num_data=4)
    for make in (vi.GaussianOver, lambda position: vi.vogn(position, log_likelihood, 0.1, num_data=4)):
        with pytest.raises(TypeError, match=words):
            make({"w": jnp.zeros(3), "phase": jnp.ones(2, complex)})


def test_fit_says_what_is_wrong(regression, key):
    data, *_ = regression
    start = vi.GaussianOver(jnp.zeros(3), prior_variance=PRIOR)
    with pytest.raises(NonFiniteError, match="no longer finite"):
        vi.fit(key, start, log_likelihood, data, num_steps=50, learning_rate=1e6, **SILENT)
    for options, words in (
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"num_steps": 3, "patience": 2}, "needs validation data"),
        ({"num_steps": 3, "learning_rate": 0.1, "optimizer": vi.adam(lambda i: 0.1)}, "an optimizer is given"),
    ):
        with pytest.raises(ValueError, match=words):
            vi.fit(jax.random.key(0), start, log_likelihood, data, **options, **SILENT)
    with pytest.raises(TypeError, match=r"vi\.fit: called inside jax\.jit, vmap, grad or scan.* gx\.vi\.ascent"):
        jax.jit(lambda k: vi.fit(k, start, log_likelihood, data, num_steps=3, **SILENT).history.elbo)(jax.random.key(0))


@pytest.mark.parametrize("kind", ["batches", "list", "loader"])
def test_batches_in_place_of_arrays_are_refused(regression, kind):
    """Where all data are needed, batches, streams and lists of tuples get an error that asks for the arrays."""
    (x, y), *_ = regression
    data = {
        "batches": lambda: gx.data.batches((x, y), batch_size=10),
        "list": lambda: [(x, y), (x, y)],
        "loader": lambda: gx.data.from_loader([(x, y)]),
    }[kind]()
    layer, likelihood = nn.Linear(3, 1, dtype=jnp.float64, key=jax.random.key(0)), nn.GaussianLikelihood(NOISE)
    for owner, use in (
        (
            "vi.fit",
            lambda: vi.fit(
                jax.random.key(0), vi.GaussianOver(layer), likelihood, (x, y), num_steps=2, validation=data, **SILENT
            ),
        ),
        ("laplace_posterior", lambda: nn.laplace_posterior(layer, likelihood, data)),
        ("last_layer_laplace", lambda: nn.last_layer_laplace(layer, likelihood, data, where=lambda layer: layer)),
    ):
        with pytest.raises(TypeError, match=rf"{owner}: expected the arrays of the data, such as \(x, y\), found"):
            use()
    if kind == "list":
        with pytest.raises(TypeError, match=r"vi.fit: expected the arrays .* a list of 2 tuples"):
            vi.fit(jax.random.key(0), vi.GaussianOver(layer), likelihood, data, num_steps=2)
