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
@pytest.mark.slow
def test_particles_start_from_the_prior(key):
    """Sequential Monte Carlo begins at initial values, where a model sets any, and ends near them."""
    import pymc as pm

    with pm.Model():
        gxpm.matrix_langevin("w", F)
        draws = pm.sample_smc(500, chains=4, cores=1, progressbar=False, random_seed=1).posterior["w"].values
    exact = np.asarray(gx.distributions.MatrixLangevin(F).sample(key, (20_000,)))
    assert np.all(np.abs(draws.mean((0, 1)) - exact.mean(0)) < 5 * exact.std(0) / np.sqrt(2000))


@needs_pymc
@pytest.mark.slow
def test_several_matrices_with_named_axes(key):
    import pymc as pm

    with pm.Model(coords={"group": list("abcd"), "row": range(3), "column": range(2)}) as model:
        gxpm.matrix_langevin("w", F, dims=("group", "row", "column"))
    chart = CHARTS["givens"]
    z = jax.random.normal(key, (4, chart.num_unconstrained))
    values = [float(expected(chart, row)[0]) for row in z]
    (name,) = model.initial_point()
    np.testing.assert_allclose(model.compile_logp(sum=False)({name: np.asarray(z)})[0], values)


@needs_pymc
def test_observed_matrices_keep_their_values(key, caplog):
    import pymc as pm

    observed = np.asarray(gx.distributions.MatrixLangevin(F).sample(key, (5,)))
    with pm.Model() as model:
        gxpm.matrix_langevin("w", F, observed=observed)
    (values,) = model.compile_logp(sum=False)({})
    np.testing.assert_allclose(values, (F * observed).sum((1, 2)))
    assert not caplog.records  # PyMC logs a transform that fails on the observed values


@needs_pymc
def test_models_can_be_changed():
    """PyMC refuses to rewrite models with initial values."""
    import pymc as pm

    with pm.Model(coords={"row": range(3), "column": range(2)}) as model:
        w = gxpm.orthonormal("w", gx.transforms.Polar(3, 2), dims=("row", "column"))
        v = gxpm.stiefel_uniform("v", 3, 2)
        pm.Normal("y", w + v, 0.5, observed=F)
    assert pm.do(model, {"v": np.eye(3, 2)}).named_vars_to_dims["w"] == ["row", "column"]
    with model, pytest.raises(NotImplementedError, match="w has no draws from its prior"):
        pm.sample_prior_predictive(2)


@needs_pymc
def test_wrong_arguments_are_refused():
    import pymc as pm

    with pm.Model(), pytest.raises(TypeError, match="needs numbers for f"):
        gxpm.matrix_langevin("w", pm.HalfNormal("scale") * F)
    with pm.Model(), pytest.warns(UserWarning, match="determinant 1 or -1"):
        gxpm.stiefel_uniform("w", 3, 3)
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
