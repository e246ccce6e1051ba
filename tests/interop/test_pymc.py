"""Orthonormal matrices in PyMC models, where PyMC is installed."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.interop import pymc as gxpm

IS_THERE = importlib.util.find_spec("pymc") is not None
needs_pymc = pytest.mark.skipif(not IS_THERE, reason="needs PyMC: pip install 'geodax[pymc]'")
pytestmark = [
    pytest.mark.relaxed,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

F = np.array([[2.0, 0.3], [-0.4, 1.2], [0.8, 0.5]])
CHARTS = {"givens": gx.transforms.Givens(3, 2), "cayley": gx.transforms.CayleyChart(3, 2)}
TRANSFORMS = CHARTS | {"polar": gx.transforms.Polar(3, 2), "householder": gx.transforms.Householder(3, 2)}


def expected(transform, z):
    def logdensity(z):
        q, log_volume = transform.forward_and_log_volume(z)
        return jnp.sum(F * q) + log_volume

    return jax.value_and_grad(logdensity)(z)


def assert_same_density(model, transform, key):
    (name,) = model.initial_point()
    z = jax.random.normal(key, (transform.num_unconstrained,))
    value, gradient = expected(transform, z)
    point = {name: np.asarray(z)}
    assert float(model.compile_logp()(point)) == pytest.approx(float(value))
    np.testing.assert_allclose(model.compile_dlogp()(point), gradient, atol=1e-9)


@needs_pymc
@pytest.mark.slow
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_variable_of_any_transform(transform, key):
    import pymc as pm

    with pm.Model() as model:
        gxpm.orthonormal("w", transform, lambda w: (F * w).sum())
    assert_same_density(model, transform, key)


@needs_pymc
@pytest.mark.slow
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_matrix_langevin(chart, key):
    import pymc as pm

    with pm.Model() as model:
        w = gxpm.matrix_langevin("w", F, chart=chart)
    assert_same_density(model, chart, key)
    draws = pm.draw(w, 2000, random_seed=1)
    exact = np.asarray(gx.distributions.MatrixLangevin(F).sample(key, (20_000,)))
    error = np.hypot(draws.std(0) / np.sqrt(2000), exact.std(0) / np.sqrt(20_000))
    assert np.all(np.abs(draws.mean(0) - exact.mean(0)) < 4 * error)


@needs_pymc
@pytest.mark.slow
def test_uniform_and_sampling(key):
    """A uniform prior with a likelihood that makes it a matrix Langevin law, by PyMC's own NUTS."""
    import pymc as pm

    with pm.Model():
        w = gxpm.stiefel_uniform("w", 3, 2)
        pm.Potential("data", (F * w).sum())
        draws = pm.sample(400, tune=400, chains=8, cores=1, progressbar=False, random_seed=1).posterior["w"].values
    exact = np.asarray(gx.distributions.MatrixLangevin(F).sample(key, (20_000,)))
    means = draws.mean(1)
    error = np.hypot(means.std(0, ddof=1) / np.sqrt(8), exact.std(0) / np.sqrt(20_000))
    # with 8 chains a standard error has 7 degrees of freedom: 8 of them are as improbable as 4 of a normal law
    assert np.all(np.abs(means.mean(0) - exact.mean(0)) < 8 * error)


@needs_pymc
def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="redundant"):
        gxpm.stiefel_transform(gx.transforms.Polar(3, 2))
    with pytest.raises(ValueError, match=r"matrices of shape \(3, 2\)"):
        gxpm.matrix_langevin("w", F, chart=gx.transforms.Givens(4, 2))


def test_says_what_is_missing():
    if not IS_THERE:
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'geodax\[pymc\]'"):
            gxpm.orthonormal("w", gx.transforms.Polar(3, 2))
        return
    with jax.enable_x64(False), pytest.raises(RuntimeError, match="jax_enable_x64"):
        gxpm.orthonormal("w", gx.transforms.Polar(3, 2))
