"""Our samplers on NumPyro models: the translation of a model, and the draws."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.distributions import constraints
from numpyro.infer import init_to_mean, init_to_median, init_to_sample, init_to_value
from numpyro.infer.util import log_density as numpyro_log_density
from numpyro.infer.util import potential_energy

import geodax as gx
from geodax.interop import numpyro as gxn
from geodax.interop.numpyro.separation import dependent
from tests.interop.test_numpyro_sites import F, langevin_truth
from tests.marks import slow
from tests.suites.chains import assert_agree
from tests.suites.references import by_quadrature, givens_frames

pytestmark = pytest.mark.relaxed

Y = jnp.array([[0.9, 0.1], [-0.3, 0.8], [0.2, 0.7], [0.8, -0.1]])
X = jnp.array([[1.0, 0.0, 0.2], [-0.5, 1.0, 0.1], [0.1, 0.7, -0.9], [1.1, 0.2, 0.4]])
NOISE = 0.7


def regression(x, y=None):
    """Rows of y are rows of x in a plane that is unknown."""
    w = numpyro.sample("w", gxn.MatrixLangevin(0.5 * F))
    numpyro.deterministic("first", w[:, 0])
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, NOISE).to_event(1), obs=y)


def regression_truth():
    def logdensity(w):
        errors = (np.asarray(Y) - np.einsum("ij,kjp->kip", np.asarray(X), w)) / NOISE
        return 0.5 * np.einsum("np,knp->k", np.asarray(F), w) - 0.5 * np.sum(errors**2, axis=(1, 2))

    return by_quadrature(
        givens_frames(3, 2, 40),
        logdensity,
        lambda x: np.concatenate([x.reshape(len(x), -1), x.reshape(len(x), -1) ** 2], axis=1),
    )


def statistics(w):
    entries = np.asarray(w).reshape(*w.shape[:2], -1)
    return np.concatenate([entries.mean(1), (entries**2).mean(1)], axis=1)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["hmc", slow("nuts")])
def test_samples_the_posterior(sampler):
    tree = gxn.sample(
        regression,
        model_args=(X,),
        model_kwargs={"y": Y},
        sampler=sampler,
        num_samples=200,
        num_warmup=200,
        num_chains=64,
        rng_key=jax.random.key(1),
        with_log_likelihood=True,
        progress=False,
    )
    truth = regression_truth()
    posterior = tree["posterior"]
    assert_agree(statistics(posterior["w"].values), truth.mean, spread=truth.spread, max_bias=0.05)
    np.testing.assert_array_equal(posterior["first"].values, posterior["w"].values[..., 0])
    np.testing.assert_array_equal(tree["observed_data"]["y"].values, Y)
    means = np.einsum("ij,cdjp->cdip", np.asarray(X), posterior["w"].values)
    expected = np.asarray(dist.Normal(means, NOISE).log_prob(Y)).sum(-1)
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, expected, rtol=1e-6)
    assert int(tree["sample_stats"]["diverging"].sum()) == 0
    assert float(tree["sample_stats"]["residual"].max()) < 1e-12


@pytest.mark.slow
def test_prior_alone_with_another_geometry():
    def model():
        numpyro.sample("w", gxn.MatrixLangevin(F))

    tree = gxn.sample(
        model,
        num_samples=200,
        num_warmup=200,
        num_chains=64,
        stiefel_manifold=gx.Stiefel(metric="embedded", flow="geodesic"),
        sampler_options={"target_acceptance_rate": 0.7},
        progress=False,
    )
    truth = langevin_truth()
    assert_agree(statistics(tree["posterior"]["w"].values), truth.mean, spread=truth.spread, max_bias=0.05)
    assert "observed_data" not in tree.children


@pytest.mark.thorough
def test_unit_vectors_of_a_conjugate_model():
    """Prior and likelihood of von Mises and Fisher make a posterior of the same kind."""
    loc, y = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.6, 0.8, 0.0])

    def model(y):
        u = numpyro.sample("u", gxn.VonMisesFisher(loc, 2.0))
        numpyro.sample("y", gxn.VonMisesFisher(u, 5.0), obs=y)

    strategy = numpyro.infer.init_to_mean
    options = {"num_samples": 200, "num_warmup": 200, "num_chains": 16, "sampler": "hmc", "progress": False}
    u = gxn.sample(model, model_args=(y,), init_strategy=strategy, **options)["posterior"]["u"].values
    natural = np.asarray(2.0 * loc + 5.0 * y)
    exact = gx.distributions.VonMisesFisher(natural / np.linalg.norm(natural), np.linalg.norm(natural))
    x = np.asarray(exact.sample(jax.random.key(0), (20_000,)))
    assert_agree(u.mean(1), np.asarray(exact.mean), spread=x.std(0), max_bias=0.05)


# ------------------------------------------------------------------------------------------- the translation


def everything(y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    upper = numpyro.sample("upper", dist.Uniform(0.0, scale))  # a support that depends on another site
    level = numpyro.sample("level", dist.ImproperUniform(constraints.real, (), ()))
    with numpyro.plate("groups", 2):
        w = numpyro.sample("w", gxn.MatrixLangevin(F))
    v = numpyro.sample("v", gxn.StiefelUniform(4, 1).expand([3]).to_event(1))
    u = numpyro.sample("u", dist.ProjectedNormal(jnp.array([1.0, 0.5, 0.0])))
    numpyro.factor("extra", -0.5 * level**2)
    with numpyro.plate("rows", 3), numpyro.handlers.scale(scale=2.0):
        numpyro.sample("y", dist.Normal(w[0, :, 0] * upper + v[0, :3, 0] + u, scale), obs=y)


@pytest.mark.thorough
def test_density_is_that_of_the_model(key):
    """Sites on manifolds without a Jacobian, all others with NumPyro's."""
    y = jnp.array([0.3, -0.2, 1.0])
    translated = gxn.to_geodax(everything, model_args=(y,), rng_key=key)
    shapes = {name: x.shape for name, x in translated.position.items()}
    assert shapes == {"scale": (), "upper": (), "level": (), "w": (2, 3, 2), "v": (3, 4, 1), "u": (3,)}
    kinds = {name: type(manifold) for name, manifold in translated.manifold.tree.items()}
    assert kinds == {"w": gx.Stiefel, "v": gx.Stiefel, "u": gx.Sphere}
    translated.manifold.validate(translated.position, "position")
    assert float(translated.manifold.residual(translated.position)) < 1e-12
    values = translated.constrain(translated.position)
    joint, _ = numpyro_log_density(everything, (y,), {}, values)
    log_scale, fraction = translated.position["scale"], translated.position["upper"]
    jacobian = log_scale + jnp.log(values["scale"]) - jax.nn.softplus(fraction) - jax.nn.softplus(-fraction)
    assert float(translated.log_density(translated.position)) == pytest.approx(float(joint + jacobian))
    np.testing.assert_array_equal(values["w"], translated.position["w"])
    assert 0 < float(values["upper"]) < float(values["scale"])


@pytest.mark.slow
def test_samples_a_model_of_all_kinds_of_sites():
    y = jnp.array([0.3, -0.2, 1.0])
    tree = gxn.sample(everything, model_args=(y,), num_samples=50, num_warmup=100, num_chains=2, progress=False)
    posterior = tree["posterior"]
    assert bool((posterior["upper"] < posterior["scale"]).all())
    assert bool(jnp.all(gxn.stiefel(3, 2)(posterior["w"].values)))
    np.testing.assert_allclose(np.linalg.norm(posterior["u"].values, axis=-1), 1)


def test_ordinary_models_are_numpyros(key):
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 3))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    y = jnp.array([0.3, -0.2, 1.0])
    translated = gxn.to_geodax(model, model_args=(y,), rng_key=key)
    at = translated.position
    assert float(translated.log_density(at)) == pytest.approx(-float(potential_energy(model, (y,), {}, at)))


@pytest.mark.thorough
def test_starts_where_the_density_is_finite(key):
    def model():
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.sample("w", gxn.StiefelUniform(3, 2))
        numpyro.factor("bound", jnp.where(x > 1.5, 0.0, -jnp.inf))

    translated = gxn.to_geodax(model, rng_key=key)
    starts = jax.vmap(translated.start)(jax.random.split(key, 20))
    assert bool(jnp.all(starts["x"] > 1.5))
    assert len(np.unique(np.asarray(starts["x"]))) == 20


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("strategy", "is_near"),
    [(init_to_mean, True), (init_to_median, True), (init_to_sample, True), (init_to_value(values={"s": 0.3}), False)],
)
def test_strategies_for_unit_vectors_and_angles(strategy, is_near, key):
    """NumPyro has no coordinates of spheres, and its medians of angles near pi can be near 0."""
    loc = jnp.array([0.0, 0.6, 0.8])

    def model():
        numpyro.sample("s", dist.HalfNormal(1.0))
        with numpyro.plate("rows", 2):
            numpyro.sample("u", gxn.VonMisesFisher(loc, 100.0))
        numpyro.sample("flat", dist.ImproperUniform(constraints.sphere, (), (3,)))
        numpyro.sample("a", dist.VonMises(jnp.array([3.1, -3.1]), 100.0).to_event(1))

    translated = gxn.to_geodax(model, init_strategy=strategy)
    starts = jax.vmap(translated.start)(jax.random.split(key, 100))
    assert float(jnp.max(jax.vmap(translated.manifold.residual)(starts))) < 1e-12
    cosines = starts["u"] @ loc, -starts["a"][..., 0], starts["flat"][:, 0]
    if not is_near:
        np.testing.assert_allclose(starts["s"], np.log(0.3))
    for cosine, is_uniform in zip(cosines, (not is_near, not is_near, True), strict=True):
        low = float(jnp.min(cosine))
        assert low < -0.5 if is_uniform else low > 0.8


# ----------------------------------------------------------------------------------------------------- errors


def subsampled():
    w = numpyro.sample("w", gxn.StiefelUniform(3, 2))
    with numpyro.plate("rows", 10, subsample_size=4):
        numpyro.sample("y", dist.Normal(w[0, 0], 1), obs=jnp.zeros(4))


def delta():
    numpyro.sample("w", gxn.StiefelUniform(3, 2))
    numpyro.sample("d", dist.Delta(1.0))


def poisson():
    w = numpyro.sample("w", gxn.StiefelUniform(3, 2))
    numpyro.sample("count", dist.Poisson(jnp.exp(w[0, 0])))


def counts_in_a_plate():
    w = numpyro.sample("w", gxn.StiefelUniform(3, 2))
    with numpyro.plate("rows", 4):
        numpyro.sample("count", dist.Poisson(jnp.exp(w[0, 0])))


def nothing():
    numpyro.sample("y", dist.Normal(0, 1), obs=jnp.ones(()))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (subsampled, "plate 'rows' subsamples 4 of 10"),
        (delta, "'d' has a delta distribution"),
        (poisson, r"'count' \(Poisson\) cannot be enumerated"),
        (counts_in_a_plate, r"'count' \(Poisson\) cannot be enumerated"),
        (nothing, "nothing to sample"),
    ],
)
def test_models_that_cannot_be_sampled_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        gxn.to_geodax(model)


def mixture(y):
    w = numpyro.sample("w", gxn.MatrixLangevin(F))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(jnp.where(z == 1, w[0, 0], -w[1, 1]), 0.5), obs=y)


def test_discrete_sites_are_summed_over():
    y = jnp.array([0.4, -0.7])
    if importlib.util.find_spec("funsor") is None:
        with pytest.raises(ModuleNotFoundError, match="pip install funsor"):
            gxn.to_geodax(mixture, model_args=(y,))
        return
    translated = gxn.to_geodax(mixture, model_args=(y,))
    assert translated.enumerated == ("z",)
    w = translated.position["w"]
    both = [jnp.log(0.3) + dist.Normal(w[0, 0], 0.5).log_prob(y), jnp.log(0.7) + dist.Normal(-w[1, 1], 0.5).log_prob(y)]
    expected = gx.distributions.MatrixLangevin(F).log_prob(w) + jnp.sum(jnp.logaddexp(*both))
    assert float(translated.log_density(translated.position)) == pytest.approx(float(expected))
    assert set(translated.constrain(translated.position)) == {"w"}
    with pytest.raises(ValueError, match="'z'"):
        gxn.sample(mixture, model_args=(y,), num_samples=1, with_log_likelihood=True)


def unplated(y):
    mean = numpyro.sample("mean", dist.Normal(0, 3))
    z = numpyro.sample("z", dist.Bernoulli(0.3))
    numpyro.sample("y", dist.Normal(mean * z, 1.0), obs=y)


def test_summing_over_discrete_sites_needs_plates():
    """As many rows without a plate as ``z`` has values were taken for these values."""
    with pytest.raises(ValueError, match="axis -1 of the site 'y', of length 2, has none"):
        gxn.to_geodax(unplated, model_args=(jnp.array([0.4, -0.7]),))


def assigned(y):
    mean = numpyro.sample("mean", dist.Normal(0, 3).expand([2]).to_event(1))
    numpyro.deterministic("gap", mean[1] - mean[0])
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(numpyro.deterministic("own", mean[z]), 1.0), obs=y)


def test_what_depends_on_sites_that_are_summed_out_is_not_recorded():
    """One draw of ``z`` from its prior would stand in for its posterior."""
    pytest.importorskip("funsor")
    y = jnp.array([0.4, -0.7, 2.0])
    with pytest.warns(UserWarning, match=r"\['own'\] depend on the discrete sites \['z'\]"):
        translated = gxn.to_geodax(assigned, model_args=(y,))
    assert set(translated.constrain(translated.position)) == {"mean", "gap"}


def test_results_that_depend_on_arguments():
    known = jnp.arange(3.0)

    def function(x, y):
        picked = jax.lax.cond(x > 0, lambda: known, lambda: 2 * known)
        return {"shape": jnp.ones(y.shape), "known": known * 2, "x": x, "picked": picked, "sum": jnp.sum(y[1:] * known)}

    assert dependent(function, jnp.int32(1), jnp.ones(4)) == {"x", "picked", "sum"}


@pytest.mark.parametrize(("transform", "x"), [(jax.jit, X), (jax.vmap, X[None])])
def test_traced_data_are_refused(transform, x):
    with pytest.raises(TypeError, match=r"inside jax\.jit, jax\.vmap or jax\.grad"):
        transform(lambda x: gxn.to_geodax(regression, model_args=(x,)).position)(x)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="'nuts', 'hmc', 'adjusted_mclmc', 'mclmc'"):
        gxn.sample(regression, model_args=(X,), num_samples=1, sampler="gibbs")
    with pytest.raises(TypeError, match="init_strategy must be a function of NumPyro"):
        gxn.sample(regression, model_args=(X,), num_samples=1, init_strategy="uniform")
    with pytest.raises(TypeError, match=r"\['step_size'\]"):
        gxn.sample(regression, model_args=(X,), num_samples=1, step_size=0.1)


# ----------------------------------------------------------------------------------------------------- angles


def angles():
    with numpyro.plate("rows", 2):
        numpyro.sample("single", dist.VonMises(3.0, jnp.array([20.0, 5.0])))
    numpyro.sample("event", dist.VonMises(jnp.array([3.0, -3.0, 0.5]), 8.0).to_event(1))
    with numpyro.handlers.mask(mask=False):
        numpyro.sample("anywhere", dist.VonMises(0.0, 1.0))


@pytest.mark.thorough
def test_angles_lie_on_circles(key):
    translated = gxn.to_geodax(angles, rng_key=key)
    shapes = {name: x.shape for name, x in translated.position.items()}
    assert shapes == {"single": (2, 2), "event": (3, 2), "anywhere": (2,)}
    translated.manifold.validate(translated.position, "position")
    values = translated.constrain(translated.position)
    for name, point in translated.position.items():
        np.testing.assert_allclose(np.cos(values[name]), point[..., 0], atol=1e-12)
        np.testing.assert_allclose(np.sin(values[name]), point[..., 1], atol=1e-12)
    joint, _ = numpyro_log_density(angles, (), {}, values)
    assert float(translated.log_density(translated.position)) == pytest.approx(float(joint))
    starts = jax.vmap(translated.start)(jax.random.split(key, 400))
    assert float(jnp.max(abs(jnp.mean(starts["single"], axis=0)))) < 5 * (0.5 / 400) ** 0.5


@pytest.mark.thorough
def test_samples_angles_beyond_pi():
    """Chains that stick on either side of pi have a mean sine near its mean over one side."""

    def model():
        with numpyro.plate("rows", 2):
            numpyro.sample("a", dist.VonMises(jnp.array([3.1, -2.9]), jnp.array([30.0, 4.0])))

    tree = gxn.sample(model, num_samples=200, num_warmup=200, num_chains=32, sampler="hmc", rng_key=1, progress=False)
    a = tree["posterior"]["a"].values
    assert float(abs(a).max()) <= np.pi
    both = np.stack([np.cos(a), np.sin(a), np.cos(2 * a), np.sin(2 * a)], axis=-1)
    grid = np.linspace(-np.pi, np.pi, 20_001)[1:]
    truth, spread = [], []
    for loc, concentration in ((3.1, 30.0), (-2.9, 4.0)):
        weights = np.exp(concentration * (np.cos(grid - loc) - 1))
        waves = np.stack([np.cos(grid), np.sin(grid), np.cos(2 * grid), np.sin(2 * grid)])
        mean = waves @ weights / weights.sum()
        truth.append(mean)
        spread.append(np.sqrt((waves - mean[:, None]) ** 2 @ weights / weights.sum()))
    assert_agree(both.mean(axis=1).reshape(32, -1), np.concatenate(truth), spread=np.concatenate(spread), max_bias=0.05)
    share = (a[..., 0] > 0).mean(axis=1)  # 0.59 beyond which no chain is one-sided
    assert share.min() > 0.2
    assert share.max() < 0.95
