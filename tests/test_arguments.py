"""Numbers of NumPy and JAX are taken wherever one of Python is, and what is no number is named."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax._checks import described
from geodax.diagnostics.convergence import nested_rhat


def density(x):
    return -0.5 * jnp.sum(x**2)


def posterior(num_data):
    return gx.Posterior(log_prior=density, log_likelihood=lambda x, batch: batch, num_data=num_data)


def draws(num_samples, num_warmup, num_chains, thinning):
    counts = {"num_samples": num_samples, "num_warmup": num_warmup, "num_chains": num_chains, "thinning": thinning}
    algorithm = gx.hmc(density, step_size=0.1, num_integration_steps=1)
    tree = gx.sample(jax.random.key(0), algorithm, jnp.zeros(2), **counts, progress=False)
    return tree["posterior"]["position"].values.tolist(), dict(tree.attrs, compile_seconds=0, sampling_seconds=0)


WHOLE = {
    "nuts": lambda i: gx.nuts(density, max_num_doublings=i(3)).description.settings[2:3],
    "hmc": lambda i: gx.hmc(density, num_integration_steps=i(3)).description.settings[2:3],
    "sample": lambda i: draws(i(3), i(2), i(2), i(1)),
    "Posterior": lambda i: posterior(i(3)).num_data,
    "batches": lambda i: gx.data.batches(np.zeros(5), batch_size=i(3)).batch_size,
    "nested_rhat": lambda i: nested_rhat(np.arange(12.0).reshape(4, 3) ** 2, num_superchains=i(2)).item(),
    "device_mesh": lambda i: str(gx.device_mesh(chain=i(2), data=i(1))),
    "Givens": lambda i: str(gx.transforms.Givens(i(3), i(2))),
    "Polar": lambda i: str(gx.transforms.Polar(i(3), i(2))),
    "Householder": lambda i: str(gx.transforms.Householder(i(3), i(2))),
    "CayleyChart": lambda i: str(gx.transforms.CayleyChart(i(3), i(2))),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_of_numpy_are_those_of_python(name, unchecked):
    expected = WHOLE[name](int)
    for kind in (np.int64, np.array, jnp.asarray):
        found = WHOLE[name](kind)
        assert repr(found) == repr(expected)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("wrong", [True, 2.0, "2", np.array([2])])
def test_what_is_no_whole_number_is_named(name, wrong, unchecked):
    with pytest.raises(TypeError, match="must be an integer, found"):
        WHOLE[name](lambda number: wrong)


@pytest.mark.parametrize("sampler", [gx.hmc, gx.nuts, gx.sgrld, gx.sghmc, gx.sgnht])
def test_step_sizes_of_numpy_are_those_of_python(sampler, unchecked):
    for kind in (np.float32, np.array, jnp.asarray, jnp.bfloat16, Fraction):
        found = dict(sampler(density, step_size=kind(0.25)).description.settings)["step_size"]
        assert (type(found), found) == (float, 0.25)
    for wrong, error in ((0.0, ValueError), (np.inf, ValueError), (True, TypeError), ("0.1", TypeError)):
        with pytest.raises(error, match=f"{sampler.__name__}: step_size must be a (positive )?number"):
            sampler(density, step_size=wrong)


@pytest.mark.parametrize("data", [[1.0, 2.0], ([1.0, 2.0], [1.0, 2.0]), {"x": np.ones(2), "y": [[1], [2]]}])
def test_lists_of_numbers_are_named_as_data(data):
    """Catches lists that are read as many scalars, with a message about one of them."""
    for make in (lambda: gx.data.batches(data, batch_size=2), lambda: posterior(2).full(data)):
        with pytest.raises(TypeError, match=r"found a list of numbers. Pass np.asarray"):
            make()


@pytest.mark.parametrize(
    ("value", "text"), [(np.int64(0), "0"), (np.float32(0.1), "0.1"), (np.str_("a"), "'a'"), (np.bool_(True), "True")]
)
def test_numbers_of_numpy_are_printed_as_numbers(value, text):
    """Catches `np.int64(0)` in messages."""
    assert described(value) == text


DONATED = {
    "sample": lambda w: gx.sample(jax.random.key(0), gx.hmc(density, step_size=0.1), w, num_samples=1),
    "GaussianOver": gx.vi.GaussianOver,
    "vi.fit": lambda w: gx.vi.fit(jax.random.key(0), w, density, jnp.ones(3), num_steps=1, log_prior=density),
    "adapt": lambda w: gx.nn.adapt(w, rank=1, key=jax.random.key(0)),
    "last_layer_laplace": lambda w: gx.nn.last_layer_laplace(w, density, jnp.ones(3), where=lambda w: w["w"]),
}


@pytest.mark.parametrize("name", DONATED)
def test_arrays_that_a_training_step_was_given_are_named(name):
    """Catches JAX's error without a name, and adapters of weights that are gone."""
    weights = {"w": jnp.ones((3, 3)), "b": jnp.zeros(3)}
    moved = jax.jit(lambda w: jax.tree.map(lambda x: x + 1, w), donate_argnums=0)(weights)
    with pytest.raises(ValueError, match=rf"{name}: (position|network)\.b has been deleted, .*donate_argnums"):
        DONATED[name](weights)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(moved))
