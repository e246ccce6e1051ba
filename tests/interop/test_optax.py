"""Langevin dynamics as an optax transformation."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import geodax as gx
from geodax.interop.optax import langevin
from tests.suites.stochastic import SquaredDistance

METRICS = {
    "identity": gx.metrics.Identity(),
    "rmsprop": gx.metrics.RMSProp(),
    "wenzel": gx.metrics.Wenzel(),
    "monge": gx.metrics.Monge(gamma="none"),
    "shampoo": gx.metrics.Shampoo(),
}
NUM_DATA = 50


def potential(params):
    return 0.5 * jnp.sum(params["w"] ** 2) + jnp.sum(params["b"] ** 4)


@pytest.mark.thorough
@pytest.mark.parametrize("name", METRICS)
def test_without_noise_it_is_the_samplers_step(key, name):
    """Catches a learning rate that is not step_size times num_data, and a sign."""
    posterior = gx.Posterior(
        log_prior=lambda p: -potential(p), log_likelihood=lambda p, b: 0.0 * b * p["b"][0], num_data=NUM_DATA
    )
    params = {"w": jax.random.normal(key, (4, 3)), "b": jnp.ones(3)}
    sampler = gx.sgrld(posterior, metric=METRICS[name], step_size=0.01, temperature=0.0)
    optimiser = langevin(METRICS[name], 0.01 * NUM_DATA, num_data=NUM_DATA, key=jax.random.key(1), temperature=0.0)
    state, ours = optimiser.init(params), sampler.init(params)
    for i in range(3):
        gradient = jax.grad(lambda p: potential(p) / NUM_DATA)(params)
        updates, state = optimiser.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        ours, _ = sampler.step(jax.random.key(i), ours, jnp.ones(5))
        for leaf in params:
            np.testing.assert_allclose(params[leaf], ours.position[leaf], rtol=1e-10)


def test_the_noise_has_the_variance_of_its_formula(key):
    rate, tau, count = 0.02, 2.0, 40_000
    optimiser = optax.chain(
        langevin(gx.metrics.Identity(), rate, num_data=NUM_DATA, key=key, temperature=tau), optax.scale(1.0)
    )
    params = jnp.zeros(count)
    updates, state = optimiser.update(jnp.zeros(count), optimiser.init(params), params)
    again, _ = optimiser.update(jnp.zeros(count), state, params)
    truth = 2 * tau * rate / NUM_DATA
    assert abs(np.var(updates) / truth - 1) < 4 * np.sqrt(2 / count)
    assert abs(np.corrcoef(updates, again)[0, 1]) < 4 / np.sqrt(count)


def test_a_metric_with_a_divergence_of_its_own(key):
    """A standard normal for each of 2,000 numbers; without the divergence the variance is 2."""
    optimiser = langevin(SquaredDistance(), 0.02 * NUM_DATA, num_data=NUM_DATA, key=key)
    start = jax.random.normal(jax.random.fold_in(key, 1), (2000,))

    def step(carry, _):
        position, state = carry
        updates, state = optimiser.update(position / NUM_DATA, state, position)
        position = optax.apply_updates(position, updates)
        return (position, state), jnp.mean(position**2)

    _, squares = jax.lax.scan(step, (start, optimiser.init(start)), length=2000)
    assert abs(float(squares[500:].mean()) - 1.0) < 0.05


def test_a_metric_that_needs_a_hessian_is_refused(key):
    with pytest.raises(ValueError, match='gamma="none"'):
        langevin(gx.metrics.Monge(), 0.1, num_data=5, key=key)


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_numbers_may_be_injected(key, temperature):
    """Catches a number that is asked for its value while it is traced; the updates are those without a wrapper."""
    params = jnp.linspace(-1.0, 1.0, 4)
    settings = {"num_data": NUM_DATA, "key": key, "temperature": temperature}
    plain = langevin(gx.metrics.RMSProp(), 0.02, **settings)
    injected = optax.inject_hyperparams(langevin)(gx.metrics.RMSProp(), 0.02, **settings)
    found = []
    for optimiser in (plain, injected):
        state = optimiser.init(params)
        update = jax.jit(optimiser.update)
        for _ in range(3):
            updates, state = update(params, state, params)
        found.append(updates)
    np.testing.assert_allclose(*found, rtol=1e-12)
    state.hyperparams["learning_rate"] = jnp.zeros(())
    np.testing.assert_array_equal(update(params, state, params)[0], jnp.zeros(4))
    with pytest.raises(TypeError, match=r"learning_rate must be a number, found an array of .* of shape \(2,\)"):
        jax.jit(lambda rate: langevin(gx.metrics.RMSProp(), rate, **settings).init(params))(jnp.ones(2))
    with pytest.raises(ValueError, match="learning_rate must be a positive number"):
        langevin(gx.metrics.RMSProp(), jnp.zeros(()), **settings)
    with pytest.raises(ValueError, match="temperature must be at least 0"):
        langevin(gx.metrics.RMSProp(), 0.1, **(settings | {"temperature": jnp.array(-1.0)}))


def test_a_schedule_may_be_injected(key):
    params = jnp.ones(3)
    rates = optax.linear_schedule(0.1, 0.0, 2)
    optimiser = optax.inject_hyperparams(langevin, static_args=("num_data", "key"))(
        gx.metrics.Identity(), rates, num_data=NUM_DATA, key=key, temperature=0.0
    )
    state = optimiser.init(params)
    for expected in (-0.1, -0.05, 0.0):
        updates, state = jax.jit(optimiser.update)(params, state, params)
        np.testing.assert_allclose(updates, expected * params, rtol=1e-6)


@pytest.mark.thorough
def test_chains_with_keys_of_their_own(key):
    """The idiom of the docstring; catches states that share their noise."""
    settings = {"metric": gx.metrics.RMSProp(), "learning_rate": 0.1, "num_data": NUM_DATA}
    params = jnp.zeros((3, 500))

    def start(key, params):
        return langevin(**settings, key=key).init(params)

    states = jax.vmap(start)(jax.random.split(key, 3), params)
    update = langevin(**settings, key=jax.random.key(1)).update
    updates, _ = jax.vmap(update)(jnp.ones_like(params), states, params)
    correlations = np.corrcoef(updates)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(500)


def test_the_metric_learns_before_the_parameters_move(key):
    settings = {"metric": gx.metrics.RMSProp(), "learning_rate": 0.1, "num_data": NUM_DATA, "temperature": 0.0}
    params = jnp.linspace(-1.0, 1.0, 4)
    found = []
    for waiting in (0, 2):
        optimiser = langevin(**settings, key=key, metric_warmup=waiting)
        state = optimiser.init(params)
        updates = []
        for _ in range(3):
            update, state = jax.jit(optimiser.update)(params, state, params)
            updates.append(update)
        found.append(np.asarray(updates))
    assert np.abs(found[0]).min() > 0
    np.testing.assert_array_equal(found[1][:2], 0.0)
    np.testing.assert_allclose(found[1][2], found[0][2], rtol=1e-12)
    with pytest.raises(ValueError, match="metric_warmup must be at least 0"):
        langevin(**settings, key=key, metric_warmup=-1)


@pytest.mark.parametrize("wrong", [0, None, 2.5], ids=str)
def test_a_seed_is_no_key(wrong, unchecked):
    """It is refused where it is given, not at the first update."""
    with pytest.raises(TypeError, match="langevin: expected one PRNG key, found"):
        langevin(gx.metrics.Identity(), 0.1, num_data=5, key=wrong)


@pytest.mark.parametrize("kind", ["multi_transform", "masked", "prefix"])
def test_parts_of_the_parameters_have_independent_noise(key, kind):
    """Catches one key for two parts, whose sums then have twice the variance and whose differences have none."""
    count = 4000
    params = {"a": [jnp.zeros(count), jnp.zeros(count)], "b": [jnp.zeros(count), jnp.zeros(count)]}
    part = langevin(gx.metrics.Identity(), 0.1, num_data=NUM_DATA, key=key)
    if kind == "masked":
        first = {"a": [True, False], "b": [False, True]}
        rest = jax.tree.map(lambda is_first: not is_first, first)
        optimiser = optax.chain(optax.masked(part, first), optax.masked(part, rest))
    else:
        labels = {"a": "x", "b": "y"} if kind == "prefix" else {"a": ["x", "y"], "b": ["y", "x"]}
        optimiser = optax.multi_transform({"x": part, "y": part}, labels)
    updates, _ = optimiser.update(params, optimiser.init(params), params)
    correlation = np.corrcoef(np.stack(jax.tree.leaves(updates)))
    assert np.abs(correlation - np.eye(4)).max() < 5 / np.sqrt(count)


def test_half_precision_parameters_are_named(key):
    """Catches a chain that rests, because bfloat16 rounds its updates away, without a word."""
    optimiser = langevin(gx.metrics.Identity(), 1e-5, num_data=NUM_DATA, key=key)
    params = {"b": jnp.ones(3), "w": jnp.full(1000, 1.5, jnp.bfloat16)}
    with pytest.warns(UserWarning, match=r"langevin: w is bfloat16, which loses updates.*float32"):
        state = optimiser.init(params)
    updates, _ = optimiser.update(jax.tree.map(jnp.zeros_like, params), state, params)
    moved = optax.apply_updates(params, updates)
    assert [bool((moved[name] == params[name]).all()) for name in params] == [False, True]


@pytest.mark.parametrize("name", METRICS)
def test_a_label_without_parameters(key, name):
    sampled = langevin(METRICS[name], 1e-3, num_data=10, key=key)
    optimiser = optax.multi_transform({"sampled": sampled, "trained": optax.sgd(0.1)}, {"w": "trained"})
    params = {"w": jnp.ones(3)}
    updates, _ = optimiser.update(params, optimiser.init(params), params)
    np.testing.assert_allclose(updates["w"], -0.1)


def test_complex_parameters_are_refused(key):
    with pytest.raises(TypeError, match="langevin: z is complex; metrics act on real arrays"):
        langevin(gx.metrics.RMSProp(), 0.1, num_data=5, key=key).init({"z": jnp.ones(2, complex)})


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_rate_that_is_too_large_is_seen_in_the_parameters(key, is_wrapped):
    """As documented: ``optax.apply_if_finite`` lets the update of a finite gradient overflow."""
    optimiser = langevin(gx.metrics.Identity(), 1e3, num_data=NUM_DATA, key=key)
    if is_wrapped:
        optimiser = optax.apply_if_finite(optimiser, max_consecutive_errors=10_000)

    def step(carry, _):
        params, state = carry
        updates, state = optimiser.update(params / NUM_DATA, state, params)
        moved = optax.apply_updates(params, updates)
        return (moved, state), jnp.isfinite(optax.tree.norm(moved))

    params = jnp.ones(3)
    is_finite = jax.lax.scan(step, (params, optimiser.init(params)), length=400)[1]
    first = np.argmin(is_finite)
    assert 100 < first < 300
    assert not is_finite[first:].any()


def test_weights_on_manifolds_are_refused_where_they_would_move(key):
    """Catches steps that take orthonormal weights off their manifold without a word."""
    network = gx.nn.MLP(3, 2, widths=(3,), orthogonal=True, key=jax.random.key(0))
    sampled = langevin(gx.metrics.Identity(), 1e-3, num_data=10, key=key)
    with pytest.raises(ValueError, match=r"langevin: .*layers\.0 is a OrthogonalLinear, whose weights lie on a mani"):
        sampled.init(network)
    labels = jax.tree.map(lambda leaf: "still" if leaf.shape == (3, 3) else "sampled", network)
    optimiser = optax.multi_transform({"sampled": sampled, "still": optax.set_to_zero()}, lambda _: labels)
    updates, _ = optimiser.update(network, optimiser.init(network), network)
    assert [bool((leaf == 0).all()) for leaf in jax.tree.leaves(updates)] == [True, False, False, False]
