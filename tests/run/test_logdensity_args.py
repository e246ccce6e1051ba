"""Arguments of the log density: one program for many data sets, seeds and refits."""

import gc
import weakref

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from tests.marks import slow
from tests.suites.chains import assert_agree

OPTIONS = {"num_samples": 100, "num_warmup": 100, "num_chains": 4, "progress": False}


def logdensity(x, data, scale):
    return -0.5 * jnp.sum(((data - x[None]) / scale["sd"]) ** 2)


def start(key):
    return jax.random.normal(key, (3,))


@pytest.fixture
def compilations(monkeypatch):
    """Names of the programs that are traced."""
    from geodax.run import programs

    names, original = [], programs._program
    monkeypatch.setattr(programs, "_program", lambda traced, *rest: (names.append(traced), original(traced, *rest))[1])
    return names


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.nuts, gx.mclmc, slow(gx.hmc)], ids=["nuts", "mclmc", "hmc"])
def test_draws_are_those_of_a_density_with_its_data(sampler):
    """The same draws up to rounding, in a program that other data and another seed have been through before."""
    data, scale = jnp.array([[1.0, 2.0, 3.0], [2.0, 3.0, 5.0]]), {"sd": jnp.asarray(0.5)}
    algorithm = sampler(logdensity)
    options = OPTIONS | {"num_warmup": 10, "num_samples": 5, "num_chains": 2}
    gx.sample(jax.random.key(0), algorithm, start, logdensity_args=(data, scale), **options)
    args = (10.0 + data, {"sd": jnp.asarray(2.0)})
    found = gx.sample(jax.random.key(1), algorithm, start, logdensity_args=args, **options)
    fixed = sampler(lambda x: logdensity(x, *args))
    expected = gx.sample(jax.random.key(1), fixed, start, **options)
    np.testing.assert_allclose(found["posterior"]["position"], expected["posterior"]["position"], rtol=1e-6)


@pytest.mark.thorough
def test_functions_with_a_derivative_of_their_own_take_an_argument_on_several_devices():
    """JAX 0.12 differentiates them with respect to one of two operands only if the other is no captured tracer."""

    @jax.custom_jvp
    def product(x, y):
        return x * y

    product.defjvp(lambda primals, tangents: (product(*primals), primals[0] * tangents[1] + tangents[0] * primals[1]))
    algorithm = gx.hmc(lambda x, scale: -jnp.sum(product(scale, x) ** 2), step_size=0.1, num_integration_steps=2)
    options = {"logdensity_args": (jnp.array([1.0, 2.0, 3.0]),), "num_samples": 3, "num_chains": 2, "progress": False}
    two, one = (gx.sample(jax.random.key(0), algorithm, start, devices=number, **options) for number in (2, 1))
    np.testing.assert_allclose(two["posterior"]["position"], one["posterior"]["position"], rtol=1e-6)


@pytest.mark.thorough
def test_nothing_is_compiled_again(compilations):
    algorithm = gx.hmc(logdensity, num_integration_steps=2)
    for number in range(4):
        args = (jnp.full((2, 3), float(number)), {"sd": jnp.asarray(1.0 + number)})
        gx.sample(jax.random.key(number), algorithm, start, logdensity_args=args, **OPTIONS)
        if number == 0:
            first = len(compilations)
            assert first >= 3
    assert len(compilations) == first
    gx.sample(jax.random.key(9), algorithm, start, logdensity_args=(jnp.zeros((5, 3)), args[1]), **OPTIONS)
    assert len(compilations) > first  # data of another shape


@pytest.mark.thorough
def test_other_records_and_numbers_are_other_programs(compilations):
    algorithm = gx.hmc(lambda x, y: -0.5 * jnp.sum((x - y) ** 2), step_size=0.5, num_integration_steps=2)
    options = OPTIONS | {"logdensity_args": (jnp.ones(3),)}
    for number in range(2):
        gx.sample(jax.random.key(number), algorithm, start, **options)
        if number == 0:
            first = len(compilations)
    assert len(compilations) == first
    for other in ({"keep": lambda x: {"sum": x.sum()}}, {"num_warmup": 90}, {"num_chains": 3}):
        gx.sample(jax.random.key(1), algorithm, start, **options | other)
        assert len(compilations) > first
        first = len(compilations)


@pytest.mark.thorough
def test_data_that_a_density_holds_may_change():
    """Catches a program that is reused for a sampler whose density reads other data than before."""
    data = {"y": np.zeros(3)}
    algorithm = gx.hmc(lambda x: -0.5 * jnp.sum((x - jnp.asarray(data["y"])) ** 2), num_integration_steps=4)
    for mean in (0.0, 50.0):
        data["y"] = np.full(3, mean)
        tree = gx.sample(jax.random.key(0), algorithm, start, **OPTIONS)
        assert abs(float(tree["posterior"]["position"].mean()) - mean) < 1.0


@pytest.mark.thorough
def test_records_of_a_module_with_arrays():
    """Catches a key that hashes what is in a function of the user."""

    class Scaled(eqx.Module):
        factor: jax.Array

        def __call__(self, x):
            return {"scaled": self.factor * x}

    algorithm = gx.hmc(lambda x, y: -0.5 * jnp.sum((x - y) ** 2), step_size=0.5, num_integration_steps=2)
    options = OPTIONS | {"num_samples": 5, "num_warmup": 0, "logdensity_args": (jnp.ones(3),)}
    plain = gx.sample(jax.random.key(0), algorithm, start, **options)
    for factor in (2.0, 3.0):
        keep = Scaled(jnp.asarray(factor))
        tree = gx.sample(jax.random.key(0), algorithm, start, keep=keep, **options)
        expected = factor * plain["posterior"]["position"].values
        np.testing.assert_allclose(tree["posterior"]["scaled"], expected, rtol=1e-10)


@pytest.mark.thorough
def test_simulation_based_calibration():
    """Ranks of the parameter among its draws are uniform, over 60 data sets from the prior."""
    algorithm = gx.nuts(lambda x, y: -0.5 * x**2 - 0.5 * jnp.sum((y - x) ** 2))
    generator = np.random.default_rng(0)
    uniform = []
    for seed in range(60):
        x = generator.normal()
        y = jnp.asarray(x + generator.normal(size=5))
        tree = gx.sample(
            jax.random.key(seed), algorithm, jnp.zeros(()), logdensity_args=(y,), **OPTIONS | {"num_chains": 2}
        )
        uniform.append(float((tree["posterior"]["position"].values < x).mean()))
    assert_agree(np.array(uniform)[:, None] - 0.5, np.zeros(1))
    assert 0.2 < np.std(uniform) < 0.38


def test_what_does_not_fit_is_refused():
    other = gx.nuts(logdensity)._replace(description=None)
    with pytest.raises(TypeError, match=r"arguments of the log density of gx\.hmc or gx\.nuts"):
        gx.sample(jax.random.key(0), other, start, logdensity_args=(jnp.zeros(3),), **OPTIONS)


@pytest.mark.thorough
def test_a_sampler_is_not_kept():
    """Catches a cache of programs that keeps a sampler, with what its density holds, alive."""

    class Density:
        def __call__(self, x, y):
            return -0.5 * jnp.sum((x - y) ** 2)

    density = Density()
    alive = weakref.ref(density)
    options = OPTIONS | {"num_samples": 5, "logdensity_args": (jnp.ones(3),)}
    gx.sample(jax.random.key(0), gx.nuts(density), start, **options)
    del density
    gc.collect()
    assert alive() is None
