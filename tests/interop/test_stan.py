"""The functions in the Stan language, compiled and run by Stan: the same matrices, densities and gradients."""

import asyncio
import contextlib
import importlib.util
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.interop.stan import stan_functions, write_stan_functions

PROGRAM = (
    stan_functions()
    + """
data {
  int<lower=1> n;
  int<lower=1> p;
  int<lower=0> size;
  int kind;
  matrix[n, p] f;
}
parameters {
  vector[size] z;
}
transformed parameters {
  matrix[n, p] q;
  if (kind == 0) q = givens_lp(z, n, p);
  else if (kind == 1) q = polar_lp(to_matrix(z, n, p, 0));
  else if (kind == 2) q = householder_lp(z, n, p);
  else if (kind == 3) q = cayley_lp(z, n, p);
  else q = givens_matrix(z, n, p);
}
model {
  if (kind == 4) target += givens_log_volume(z, n, p);
  target += sum(f .* q);
}
"""
)
KINDS = (gx.transforms.Givens, gx.transforms.Polar, gx.transforms.Householder, gx.transforms.CayleyChart)
SHAPES = [(3, 2), (5, 3), (4, 1), (3, 3), (2, 1)]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """``(data) -> model`` of the compiled program."""
    if importlib.util.find_spec("stan") is None:
        pytest.skip("needs Stan: pip install 'geodax[stan]' brings PyStan, whose wheel has Stan's sources")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("needs a C++ compiler for Stan's programs")
    import httpstan.cache
    import httpstan.models
    import stan

    name = httpstan.models.calculate_model_name(PROGRAM)
    if name not in httpstan.cache.list_model_names():
        # what stan.build does, without its time limit
        with contextlib.chdir(tmp_path_factory.mktemp("stan")):  # the compiler's output goes below the working folder
            messages = asyncio.run(httpstan.models.build_services_extension_module(PROGRAM))
        httpstan.cache.dump_stanc_warnings("", name)
        httpstan.cache.dump_services_extension_module_compiler_output(messages, name)
    return lambda data: stan.build(PROGRAM, data=data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyStan and of what it uses
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[kind.__name__ for kind in KINDS])
def test_stan_computes_the_same(kind, shape, key, build):
    transform = KINDS[kind](*shape)
    key_z, key_f = jax.random.split(key)
    f = jax.random.normal(key_f, shape)
    z = 2 * jax.random.normal(key_z, (transform.num_unconstrained,))
    n, p = shape
    model = build({"n": n, "p": p, "size": z.size, "kind": kind, "f": np.asarray(f).tolist()})

    def logdensity(z):
        q, log_volume = transform.forward_and_log_volume(z)
        return jnp.sum(f * q) + log_volume

    value, gradient = jax.value_and_grad(logdensity)(z)
    unconstrained = np.asarray(z).tolist()
    assert model.log_prob(unconstrained) == pytest.approx(float(value), rel=1e-9)
    np.testing.assert_allclose(model.grad_log_prob(unconstrained), gradient, rtol=1e-6, atol=1e-8)
    # all numbers of the program in Stan's order: the vector, then the matrix column by column
    q = np.asarray(model.constrain_pars(unconstrained, include_tparams=True))[z.size :].reshape(p, n).T
    np.testing.assert_allclose(q, transform.forward(z), atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PyStan and of what it uses
@pytest.mark.parametrize("shape", [(3, 2), (5, 3)], ids=str)
def test_stan_knows_angles(shape, key, build):
    transform = gx.transforms.Givens(*shape)
    z = jax.random.normal(key, (transform.num_unconstrained,))
    theta = np.asarray(transform.angles(z))
    n, p = shape
    model = build({"n": n, "p": p, "size": z.size, "kind": 4, "f": np.zeros(shape).tolist()})
    numbers = np.asarray(model.constrain_pars(theta.tolist(), include_tparams=True))
    np.testing.assert_allclose(numbers[z.size :].reshape(p, n).T, transform.forward(z), atol=1e-12)
    # the density of the angles: that of the vector less the slopes of the logistic function, by differences
    slopes = jnp.diagonal(jax.jacobian(transform.angles)(z))
    expected = transform.log_volume(z) - jnp.sum(jnp.log(slopes))
    assert model.log_prob(theta.tolist()) == pytest.approx(float(expected), rel=1e-9)


def test_file_holds_what_a_program_includes(tmp_path):
    path = write_stan_functions(tmp_path / "orthonormal.stanfunctions", ["givens"])
    text = path.read_text(encoding="utf-8")
    assert "functions {\n" + text + "}\n" == stan_functions(["givens"])
    assert "givens_lp" in text
    assert "polar_lp" not in text


@pytest.mark.parametrize("names", [["givens", "euler"], [], "givens"])
def test_unknown_names_are_refused(names):
    with pytest.raises(ValueError, match=r"expected names from \['givens'"):
        stan_functions(names)
