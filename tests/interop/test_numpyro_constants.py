"""Constants that densities leave out, and draws that have no derivative: what is refused, what is warned of, what passes."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer import SVI, Trace_ELBO, TraceGraph_ELBO
from numpyro.infer.util import log_density

import geodax as gx
from geodax.interop import numpyro as gxn

pytestmark = pytest.mark.relaxed

MODE = jnp.eye(4, 3)
WEIGHTS = jnp.diag(jnp.arange(4.0))


def observed(build):
    """A model of ten matrices, whose law depends on a positive number and a matrix."""

    def model(x):
        kappa = numpyro.sample("kappa", dist.Gamma(2.0, 0.5))
        mode = numpyro.sample("mode", gxn.StiefelUniform(4, 4))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", build(kappa, mode), obs=x)

    return model


def mixed(second):
    def build(kappa, mode):
        components = gxn.MatrixLangevin(jnp.stack([3.0 * MODE, second * mode[:, :3]]))
        return dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), components)

    return build


REFUSED = {
    "langevin": lambda kappa, mode: gxn.MatrixLangevin(kappa * MODE),
    "bingham": lambda kappa, mode: gxn.MatrixBingham(WEIGHTS, kappa * jnp.ones(3)),
    "bingham of two columns": lambda kappa, mode: gxn.MatrixBingham(kappa * WEIGHTS, jnp.ones(2)),
    "product": lambda kappa, mode: gxn.BinghamVonMisesFisher(mode[:, :3], WEIGHTS),
    "wrapped": lambda kappa, mode: gxn.MatrixLangevin(kappa * MODE).mask(True),
    "mixture": mixed(4.0),
    "mixture of kinds": lambda kappa, mode: dist.MixtureGeneral(
        dist.Categorical(jnp.array([0.3, 0.7])), [gxn.MatrixLangevin(3.0 * MODE), gxn.StiefelUniform(4, 3)]
    ),
}
TAKEN = {
    "two columns": lambda kappa, mode: gxn.MatrixLangevin(kappa * MODE[:, :2]),
    "bingham of one column": lambda kappa, mode: gxn.MatrixBingham(kappa * mode @ WEIGHTS @ mode.T),
    "fixed": lambda kappa, mode: gxn.MatrixLangevin(3.0 * MODE),
    "latent mode": lambda kappa, mode: gxn.MatrixLangevin(3.0 * mode[:, :3]),
    "latent axes": lambda kappa, mode: gxn.MatrixBingham(mode @ WEIGHTS @ mode.T, jnp.ones(3)),
    "product, turned": lambda kappa, mode: gxn.BinghamVonMisesFisher(mode[:, :3], mode @ WEIGHTS @ mode.T),
    "mixture": mixed(3.0),
}


@functools.cache
def matrices(columns=3):
    return gx.distributions.StiefelUniform(4, columns).sample(jax.random.key(0), (10,))


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSED)
def test_a_constant_that_changes_is_refused(name):
    """Catches posteriors of parameters without the constant: of a concentration 3 it was 117 with deviation 66."""
    x = matrices(2 if name == "bingham of two columns" else 3)
    with pytest.raises(ValueError, match=r"constants?\b.* not known.*MatrixLangevin with one or two columns"):
        gxn.to_geodax(observed(REFUSED[name]), model_args=(x,))


@pytest.mark.thorough
@pytest.mark.parametrize("name", TAKEN)
def test_a_constant_that_stays_is_not_refused(name):
    """Catches false alarms, also the warnings of a density that is differentiated."""
    x = matrices({"two columns": 2, "bingham of one column": 1}.get(name, 3))
    translated = gxn.to_geodax(observed(TAKEN[name]), model_args=(x,))
    gradient = jax.jit(jax.grad(translated.log_density))(translated.position)
    assert bool(jnp.all(jnp.isfinite(gradient["mode"])))


def test_a_discrete_latent_variable_changes_it_too():
    pytest.importorskip("funsor")

    def model(x):
        numpyro.sample("u", dist.Normal())
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("x", gxn.MatrixLangevin((1.0 + z)[..., None, None] * MODE), obs=x)

    with pytest.raises(ValueError, match="'x' has the distribution MatrixLangevin of 4 x 3 matrices"):
        gxn.to_geodax(model, model_args=(matrices(),))


@pytest.mark.thorough
@pytest.mark.parametrize(("columns", "is_latent"), [(3, True), (3, False), (2, True)])
def test_other_inferences_warn(columns, is_latent):
    """NumPyro's own samplers see densities only: they are warned where parameters are differentiated, and only there."""
    x = matrices(columns)

    def model():
        kappa = numpyro.sample("kappa", dist.Gamma(2.0, 0.5))
        numpyro.sample("x", gxn.MatrixLangevin((kappa if is_latent else 3.0) * MODE[:, :columns]), obs=x[0])

    def gradient(kappa):
        return jax.grad(lambda k: log_density(model, (), {}, {"kappa": k})[0])(kappa)

    for function, kappa in ((gradient, 1.0), (jax.jit(gradient), 1.0), (jax.vmap(gradient), jnp.ones(2))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(kappa)
        said = [str(w.message) for w in caught if "leaves out a constant" in str(w.message)]
        assert bool(said) == (is_latent and columns == 3)


@pytest.mark.thorough
def test_a_guide_that_draws_names_the_way_out():
    """Catches JAX's error about while loops, and a gradient that is silently zero."""

    def model():
        w = numpyro.sample("w", gxn.StiefelUniform(4, 2))
        numpyro.sample("y", dist.Normal(w, 0.5).to_event(2), obs=jnp.eye(4, 2))

    def guide():
        numpyro.sample("w", gxn.MatrixLangevin(numpyro.param("f", 0.1 * jnp.eye(4, 2))))

    optimiser = numpyro.optim.Adam(0.05)
    with pytest.raises(TypeError, match=r"MatrixLangevin: its draws.*Use numpyro\.infer\.TraceGraph_ELBO"):
        SVI(model, guide, optimiser, Trace_ELBO()).run(jax.random.key(0), 2, progress_bar=False)
    with pytest.raises(TypeError, match="MatrixLangevin: its draws"):
        jax.grad(lambda f: jnp.sum(gxn.MatrixLangevin(f).sample(jax.random.key(0), (3,))))(jnp.eye(4, 2))
    found = SVI(model, guide, optimiser, TraceGraph_ELBO(num_particles=16)).run(
        jax.random.key(0), 200, progress_bar=False
    )
    # the exact posterior is the matrix Langevin distribution with f = y / 0.25
    assert float(found.params["f"][0, 0]) > 1.5


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [np.int64(3), np.uint8(3)], ids=lambda seed: type(seed).__name__)
def test_seeds_of_numpy_are_seeds(seed):
    def model():
        numpyro.sample("w", gxn.StiefelUniform(3, 2))

    ours = gxn.to_geodax(model, rng_key=seed)
    np.testing.assert_array_equal(ours.position["w"], gxn.to_geodax(model, rng_key=3).position["w"])
    draws = gxn.sample(model, rng_key=seed, num_samples=1, num_warmup=1, num_chains=1, progress=False)
    assert draws["posterior"]["w"].shape == (1, 1, 3, 2)


@pytest.mark.thorough
def test_a_mixture_of_one_family(key):
    """The support of all components is the same set."""
    f = jnp.stack([2.0 * jnp.eye(3, 2), -jnp.eye(3, 2)])
    mixture = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), gxn.MatrixLangevin(f))
    x = mixture.sample(key, (5,))
    single = jnp.stack([gx.distributions.MatrixLangevin(part).log_prob(x) for part in f])
    expected = jnp.logaddexp(single[0] + jnp.log(0.3), single[1] + jnp.log(0.7))
    np.testing.assert_allclose(mixture.log_prob(x), expected, rtol=1e-10)
