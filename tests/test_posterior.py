"""A posterior scales a batch to the data, and says what is wrong with its functions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx

DATA = {"x": jnp.linspace(-1.0, 2.0, 6), "y": jnp.arange(6.0) ** 2}


def log_prior(theta):
    return -0.5 * theta**2


def log_likelihood(theta, batch):
    return -0.5 * (batch["y"] - theta * batch["x"]) ** 2


def posterior(**changes):
    return gx.Posterior(**{"log_prior": log_prior, "log_likelihood": log_likelihood, "num_data": 6} | changes)


def test_batches_are_unbiased():
    """Catches a missing N / B, a mean in the place of the sum, and a prior that is scaled too."""
    theta = jnp.array(0.7)
    pairs = [jax.tree.map(lambda a, i=i: a[jnp.array(i)], DATA) for i in itertools.combinations(range(6), 2)]
    average = np.mean([posterior().logdensity(theta, batch) for batch in pairs])
    x, y = np.asarray(DATA["x"]), np.asarray(DATA["y"])
    truth = -0.5 * 0.7**2 - 0.5 * np.sum((y - 0.7 * x) ** 2)
    np.testing.assert_allclose(average, truth, rtol=1e-12)
    np.testing.assert_allclose(posterior().full(DATA)(theta), truth, rtol=1e-12)


def test_the_dtype_is_the_positions(dtype):
    batch = jax.tree.map(lambda a: a.astype(dtype), DATA)
    assert posterior().logdensity(jnp.asarray(0.7, dtype), batch).dtype == dtype


def test_sums_of_half_precision_have_room():
    """100,000 likelihoods of -3 in float16, whose largest number is 65,504."""
    posterior = gx.Posterior(
        log_prior=lambda x: jnp.zeros((), jnp.float32),
        log_likelihood=lambda x, rows: jnp.full(rows.shape, -3.0, jnp.float16),
        num_data=100_000,
    )
    assert posterior.logdensity(jnp.zeros(1, jnp.float16), jnp.zeros(100_000, jnp.float16)) == -300_000


@pytest.mark.parametrize("half", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("is_position_half", [False, True])
def test_half_precision_is_summed_in_single(half, is_position_half):
    """Catches a batch whose sum overflows, and a log density of two digits for a Metropolis step to compare."""
    example = jnp.asarray(-70.3, half)
    target = posterior(
        log_prior=lambda p: jnp.zeros((), half if is_position_half else jnp.float32) * p["mean"],
        log_likelihood=lambda p, b: (example + p["mean"].astype(half))[None] * b.astype(half),
        num_data=2000,
    )
    position = {"mean": jnp.zeros((), half if is_position_half else jnp.float32)}
    value = target.logdensity(position, jnp.ones(1000))
    np.testing.assert_allclose(value, 2000 * float(example), rtol=1e-6)


@pytest.mark.thorough
def test_an_exact_sampler_takes_the_full_density(key):
    draws = gx.sample(
        key,
        gx.hmc(posterior().full(DATA), step_size=0.2, num_integration_steps=5),
        jnp.array(0.0),
        num_samples=20,
        num_chains=2,
        progress=False,
    )
    assert np.isfinite(draws["posterior"]["position"].values).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"log_likelihood": lambda t, b: jnp.sum(b["x"] * t)}, ValueError, "Leave out the sum or mean"),
        ({"log_likelihood": lambda t, b: (b["x"] * t)[:, None]}, ValueError, r"found shape \(6, 1\)"),
        ({"log_likelihood": lambda t, b: (b["x"] * t)[:3]}, ValueError, "3 numbers for 6 examples"),
        ({"log_likelihood": lambda t, b: jnp.arange(6)}, TypeError, "real floating-point"),
        ({"log_prior": lambda t: jnp.zeros(2)}, ValueError, r"log_prior must return a scalar, .*\(2,\)"),
    ],
)
def test_what_the_functions_return_is_checked(changes, error, message):
    with pytest.raises(error, match=message):
        posterior(**changes).logdensity(jnp.array(0.7), DATA)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"log_prior": 3}, TypeError, "log_prior must be a function"),
        ({"num_data": 6.5}, TypeError, "integer"),
        ({"num_data": True}, TypeError, "integer"),
        ({"num_data": 0}, ValueError, "at least 1"),
    ],
)
def test_arguments_are_checked(changes, error, message):
    with pytest.raises(error, match=message):
        posterior(**changes)


def test_full_wants_all_the_data():
    with pytest.raises(ValueError, match=r"num_data = 7.*has 6"):
        posterior(num_data=7).full(DATA)


def _deep(p, x):
    for w in p["layers"]:
        x = jnp.tanh(x @ w)
    return -jnp.sum((x - p["target"][None]) ** 2, axis=-1)


DEEP = {"layers": [jnp.full((6, 6), 0.1 * (i + 1)) for i in range(4)], "target": jnp.linspace(-1.0, 1.0, 6)}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options", [{"num_micro_batches": 4}, {"num_micro_batches": 2, "checkpoint_activations": True}]
)
def test_options_that_save_memory_change_nothing_else(key, options):
    """Catches a sum scaled by the size of a part of the batch, and gradients of the last part alone."""
    settings = {"log_prior": lambda p: -jnp.sum(p["target"] ** 2), "log_likelihood": _deep, "num_data": 1000}
    x = jax.random.normal(key, (32, 6))
    plain = jax.value_and_grad(gx.Posterior(**settings).logdensity)(DEEP, x)
    found = jax.value_and_grad(gx.Posterior(**settings, **options).logdensity)(DEEP, x)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_micro_batches_and_checkpoints_need_less_memory(key):
    x = jax.random.normal(key, (1024, 6))

    def temporary(**options):
        target = gx.Posterior(log_prior=lambda p: jnp.zeros(()), log_likelihood=_deep, num_data=1024, **options)
        return jax.jit(jax.grad(target.logdensity)).lower(DEEP, x).compile().memory_analysis().temp_size_in_bytes

    assert temporary(num_micro_batches=8) < 0.3 * temporary()


@pytest.mark.thorough
def test_activations_in_half_precision(key):
    """The likelihood gets bfloat16, the gradient of a position in single precision is in single precision."""
    seen = []

    def log_likelihood(p, x):
        seen.extend(leaf.dtype for leaf in jax.tree.leaves((p, x)))
        return _deep(p, x)

    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), DEEP)
    x = jax.random.normal(key, (32, 6), jnp.float32)
    settings = {"log_prior": lambda p: -jnp.sum(p["target"] ** 2), "num_data": 1000}
    exact = jax.grad(gx.Posterior(log_likelihood=_deep, **settings).logdensity)(single, x)
    half = gx.Posterior(
        log_likelihood=log_likelihood,
        compute_dtype=jnp.bfloat16,
        num_micro_batches=4,
        checkpoint_activations=True,
        **settings,
    )
    gradient = jax.grad(half.logdensity)(single, x)
    assert set(seen) == {jnp.dtype(jnp.bfloat16)}
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(exact), strict=True):
        assert a.dtype == jnp.float32
        assert 0 < float(jnp.linalg.norm(a - b)) < 0.05 * float(jnp.linalg.norm(b))


def test_micro_batches_must_divide_a_batch():
    target = gx.Posterior(log_prior=lambda p: jnp.zeros(()), log_likelihood=_deep, num_data=9, num_micro_batches=4)
    with pytest.raises(ValueError, match=r"has 9 examples .* divided evenly among num_micro_batches=4"):
        target.logdensity(DEEP, jnp.zeros((9, 6)))
