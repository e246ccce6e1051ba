"""Errors at the start of a NumPyro model that name the observed sites whose data, or parameters, are wrong."""

import importlib.util

import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer import init_to_value

from geodax.interop import numpyro as gxn
from geodax.interop.numpyro.sampling import _sites_of, _undefined
from geodax.run.errors import StartError

pytestmark = [pytest.mark.relaxed, pytest.mark.filterwarnings("ignore:Out-of-support values")]

OPTIONS = {"num_samples": 2, "num_warmup": 2, "num_chains": 2, "progress": False}
WRONG = r"its data hold NaN or are outside its support\.$"


def normal(y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    numpyro.sample("sound", dist.Normal(b, 1.0), obs=jnp.ones(2))
    numpyro.sample("y", dist.Normal(b, 1.0), obs=y)


def poisson(y):
    numpyro.sample("y", dist.Poisson(numpyro.sample("rate", dist.Gamma(2.0, 1.0))), obs=y)


def unit_vectors(y):
    v = numpyro.sample("v", gxn.StiefelUniform(3, 1))
    numpyro.sample("y", gxn.VonMisesFisher(v[:, 0], 5.0), obs=y)


def events(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.MultivariateNormal(a, jnp.eye(2)), obs=y)


def masked(y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.handlers.mask(mask=np.array([False, True, True])):
        numpyro.sample("y", dist.Normal(b, 1.0), obs=y)


UNIT = np.array([[0.0, 0.6, 0.8], [0.0, 0.8, 0.6]])


@pytest.mark.thorough
@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize(
    ("model", "y", "words"),
    [
        (normal, np.array([1.0, np.nan, 2.0, np.inf]), "in 2 of 4 values"),
        (poisson, np.array([1, -1, 2]), "in 1 of 3 values"),
        (poisson, -1, "at the start"),
        (unit_vectors, UNIT * np.array([[1.0], [2.0]]), "in 1 of 2 values"),
        (events, np.array([[1.0, 2.0], [np.nan, 0.0]]), "in 1 of 2 values"),
        (masked, np.array([np.nan, 1.0, np.nan]), "in 1 of 3 values"),
    ],
)
def test_impossible_data(model, y, words, is_checked):
    """Catches an error that blames the point, with and without the checks of NumPyro."""
    if model is unit_vectors and not is_checked:
        pytest.skip("without checks its density is finite off the sphere")
    with numpyro.validation_enabled(is_checked), pytest.raises(StartError) as caught:
        gxn.sample(model, model_args=(y,), **OPTIONS)
    assert caught.match(r"^sample: the log probability of the observed site 'y' is (nan|-inf) at the start.*" + WRONG)
    assert caught.match(words)


def test_several_sites():
    def model():
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("counts", dist.Poisson(jnp.exp(b)), obs=jnp.array([2, -1]))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=np.nan)

    with pytest.raises(StartError, match="site 'counts' is .* in 1 of 2 values: .*; the log .* site 'y' is .*" + WRONG):
        gxn.sample(model, **OPTIONS)


def test_parameters_that_make_possible_data_impossible():
    """Catches data that are blamed for the start, and the start of another chain."""

    def model(y):
        s = numpyro.sample("s", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(0.0, jnp.where(s > 0, 1.0, 1e-200)), obs=y)

    with pytest.raises(StartError, match=r"'y' is -inf at the start in 2 of 3 values: its data are within its support"):
        gxn.sample(model, model_args=(np.array([1.0, 0.0, -1.0]),), init_values={"s": np.array([1.0, -1.0])}, **OPTIONS)


def test_what_is_no_observation():
    """Catches a site that is blamed for a factor."""

    def model():
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.factor("f", jnp.log(-(b**2)))
        numpyro.sample("y", dist.Normal(b, 1.0), obs=1.0)

    with pytest.raises(StartError, match="log density is nan at the start of chain 0") as caught:
        gxn.sample(model, **OPTIONS)
    assert "'y'" not in str(caught.value)


@pytest.mark.skipif(importlib.util.find_spec("funsor") is None, reason="needs funsor")
def test_sites_that_are_summed_out():
    """Catches an observation that is impossible given one of the values."""

    def model(y):
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("below", dist.Uniform(z - 1.0, z * 1.0), obs=jnp.asarray(-0.5))
        numpyro.sample("above", dist.Uniform(z * 1.0, z + 1.0), obs=jnp.asarray(1.5))
        numpyro.sample("y", dist.Normal(b + z, 1.0), obs=y)

    with pytest.raises(
        StartError, match="^sample: the log probability of the observed site 'y' is .*" + WRONG
    ) as caught:
        gxn.sample(model, model_args=(np.nan,), **OPTIONS)
    assert "'below'" not in str(caught.value)
    assert "'above'" not in str(caught.value)


def test_invalid_parameters_hide_no_data():
    """Catches NumPyro's own error about parameters, at the start of a chain whose data are wrong everywhere."""

    def model(y):
        s = numpyro.sample("s", dist.Normal(0.0, 1.0))
        numpyro.sample("z", dist.Normal(0.0, jnp.where(s > 0, 1.0, 0.0)), obs=1.0)
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    values = {"s": jnp.ones(())}
    translated = gxn.to_geodax(model, model_args=(np.nan,), init_strategy=init_to_value(values=values))
    found = _undefined(_sites_of(model, (np.nan,), None, translated), translated, {"s": -jnp.ones(1)})
    assert "'z'" in found
    assert "'y'" in found
