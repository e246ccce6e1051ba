"""Orthonormal matrices as sites of NumPyro models: constraint, charts, distributions, reparametrisers, priors on angles."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.distributions import biject_to
from numpyro.handlers import reparam, seed, trace
from numpyro.infer import Predictive
from numpyro.infer.reparam import TransformReparam
from numpyro.infer.util import potential_energy

import geodax as gx
from geodax.interop import numpyro as gxn
from tests.marks import slow
from tests.suites.references import by_quadrature, givens_frames

pytestmark = pytest.mark.relaxed

F = jnp.array([[2.0, 0.3], [-0.4, 1.2], [0.8, 0.5]])
CENTER = gx.Stiefel().nearest(F)
CHARTS = {
    "givens": gx.transforms.Givens(3, 2),
    "shifted": gx.transforms.Givens(3, 2, shift=jnp.array([0.7, -1.9])),
    "centered": gx.transforms.Givens(3, 2, center=CENTER),
    "cayley": gx.transforms.CayleyChart(3, 2, center=CENTER),
}
REPARAMS = {"polar": gxn.PolarReparam(), "householder": gxn.HouseholderReparam(), "circle": gxn.CircleReparam()}


def sites_of(model, key):
    """Sites of a model whose values have shapes and no numbers, so that nothing is compiled."""
    found = {}

    def run(key):
        found.update(trace(seed(model, key)).get_trace())
        return key

    jax.eval_shape(run, key)
    return found


def langevin_truth(f=F):
    """E x, E x^2 by quadrature over Givens angles."""
    return by_quadrature(
        givens_frames(*f.shape, 40),
        lambda x: np.einsum("np,knp->k", np.asarray(f), x),
        lambda x: np.concatenate([x.reshape(len(x), -1), x.reshape(len(x), -1) ** 2], axis=1),
    )


def check_coordinates_carry_the_law(key, chart=CHARTS["givens"], num_nodes=64):
    """What NumPyro's samplers see, integrated over all of R^k, has mass 1 and the moments of the matrix Langevin law."""
    del key

    def model():
        numpyro.sample("w", gxn.MatrixLangevin(F, chart=chart))

    node = np.linspace(-7.0, 7.0, num_nodes)
    grid = jnp.asarray(np.stack(np.meshgrid(*[np.sinh(node)] * 3, indexing="ij"), axis=-1).reshape(-1, 3))
    slopes = np.cosh(node) * (node[1] - node[0])
    weight = np.einsum("i,j,k->ijk", slopes, slopes, slopes).ravel()
    density = jax.jit(jax.vmap(lambda z: jnp.exp(-potential_energy(model, (), {}, {"w": z}))))(grid)
    mass = weight * np.asarray(density)
    frames = np.asarray(biject_to(gxn.stiefel(3, 2, chart=chart))(grid)).reshape(len(grid), -1)
    assert mass.sum() == pytest.approx(1, abs=2e-3)
    moments = np.concatenate([mass @ frames, mass @ frames**2])
    np.testing.assert_allclose(moments, langevin_truth().mean, atol=2e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_coordinates_carry_the_law(chart, key):
    """A log volume that is missing, doubled, or of another reference measure."""
    check_coordinates_carry_the_law(key, chart)


@pytest.mark.thorough
@pytest.mark.parametrize(("shape", "batch"), [((3, 2), ()), ((5, 3), (4,)), ((4, 1), (2, 3))])
def test_transform_there_and_back(shape, batch, key, dtype):
    transform = biject_to(gxn.stiefel(*shape))
    size = shape[0] * shape[1] - shape[1] * (shape[1] + 1) // 2
    z = jax.random.normal(key, (*batch, size), dtype)

    @jax.jit
    def everything(z):
        q = transform(z)
        both = transform.call_with_intermediates(z)
        return q, transform.inv(q), transform.log_abs_det_jacobian(z, q), both, transform.codomain(q)

    q, back, log_volume, (again, intermediates), is_inside = everything(z)
    assert transform.forward_shape(z.shape) == q.shape == (*batch, *shape)
    assert transform.inverse_shape(q.shape) == z.shape == back.shape
    assert q.dtype == log_volume.dtype == dtype
    assert bool(jnp.all(is_inside))
    assert is_inside.shape == log_volume.shape == batch
    np.testing.assert_allclose(back, z, atol=1e3 * jnp.finfo(dtype).eps)
    last = transform.chart.log_volume(z[(-1,) * len(batch)])
    np.testing.assert_allclose(log_volume[(-1,) * len(batch)], last, rtol=1e-5)
    np.testing.assert_array_equal(again, q)
    np.testing.assert_array_equal(intermediates, log_volume)


@pytest.mark.thorough
def test_transform_is_a_pytree():
    transform = biject_to(gxn.stiefel(3, 2, chart=CHARTS["shifted"]))
    through_jit = jax.jit(lambda t: t)(transform)
    assert through_jit == transform
    assert transform != biject_to(gxn.stiefel(3, 2))
    assert gxn.stiefel(3, 2) == gxn.stiefel(3, 2)
    assert gxn.stiefel(3, 2) != gxn.stiefel(4, 2)
    z = jnp.ones(3)
    np.testing.assert_allclose(jax.jit(lambda t, z: t(z))(transform, z), transform(z), atol=1e-14)


@pytest.mark.thorough
def test_constraint_knows_orthonormal_matrices(key, dtype):
    support = gxn.stiefel(6, 2)
    x = gx.distributions.StiefelUniform(6, 2, dtype).sample(key, (5,))
    off = x.at[3].multiply(1 + 1e-3)
    assert support(x).tolist() == [True] * 5
    assert support(off).tolist() == [True, True, True, False, True]
    assert bool(support(support.feasible_like(x[0])))
    with pytest.raises(ValueError, match=r"expected matrices of shape \(..., 6, 2\), found shape \(2, 6\)"):
        support(x[0].T)


@pytest.mark.thorough
@pytest.mark.parametrize("chart", [None, gx.transforms.Givens(3, 3, determinant=-1)], ids=["default", "chosen"])
def test_square_matrices_have_a_component_to_choose(chart):
    support = gxn.stiefel(3, 3, chart=chart)
    if chart is None:
        with pytest.warns(UserWarning, match="determinant 1 or -1"):
            transform = biject_to(support)
    else:
        transform = biject_to(support)
    assert float(jnp.linalg.det(transform(jnp.ones(3)))) == pytest.approx(1 if chart is None else -1)
    feasible = support.feasible_like(jnp.zeros((2, 3, 3)))
    np.testing.assert_allclose(transform(transform.inv(feasible)), feasible, atol=1e-12)


@pytest.mark.parametrize(
    ("chart", "error", "message"),
    [
        (gx.transforms.Polar(3, 2), ValueError, "redundant.*PolarReparam"),
        (gx.transforms.Givens(3, 2, wrap="circle"), ValueError, "CircleReparam"),
        (gx.transforms.Givens(4, 2), ValueError, r"matrices of shape \(3, 2\), found \(4, 2\)"),
        ("givens", TypeError, "must be a transform"),
    ],
)
def test_charts_that_are_none_are_refused(chart, error, message):
    with pytest.raises(error, match=message):
        gxn.stiefel(3, 2, chart=chart)


A = jnp.diag(jnp.array([1.0, 0.5, -1.0]))
DISTRIBUTIONS = {
    "uniform": (lambda: gxn.StiefelUniform(3, 2), lambda: gx.distributions.StiefelUniform(3, 2)),
    "langevin": (lambda: gxn.MatrixLangevin(F), lambda: gx.distributions.MatrixLangevin(F)),
    "bingham": (lambda: gxn.MatrixBingham(A, [1.0, 2.0]), lambda: gx.distributions.MatrixBingham(A, [1.0, 2.0])),
    "both": (
        lambda: gxn.BinghamVonMisesFisher(F, A),
        lambda: gx.distributions.BinghamVonMisesFisher(F, A),
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("ours", "law"), DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_distributions_are_those_of_geodax(ours, law, key):
    ours, law = ours(), law()
    draws = ours.sample(key, (4,))
    np.testing.assert_array_equal(draws, law.sample(key, (4,)))
    np.testing.assert_allclose(ours.log_prob(draws), law.log_prob(draws))
    assert ours.is_normalized == law.is_normalized
    assert (ours.batch_shape, ours.event_shape) == ((), (3, 2))
    through_jit = jax.jit(lambda d, x: d.log_prob(x))(ours, draws)
    np.testing.assert_allclose(through_jit, law.log_prob(draws))
    expanded = ours.expand((5,))
    assert expanded.sample(jax.random.PRNGKey(0), (2,)).shape == (2, 5, 3, 2)
    assert expanded.log_prob(draws[:, None]).shape == (4, 5)


@pytest.mark.slow
def test_von_mises_fisher(key):
    """One column of the matrix Langevin distribution; on the sphere the mean is coth(k) - 1 / k."""
    loc = jnp.array([[1.0, -2.0, 2.0], [0.0, 3.0, 4.0]]) / jnp.array([[3.0], [5.0]])
    concentration = jnp.array([0.5, 20.0])
    fisher = gxn.VonMisesFisher(loc, concentration)
    assert (fisher.batch_shape, fisher.event_shape) == ((2,), (3,))
    x = fisher.sample(key, (20_000,))
    assert bool(jnp.all(fisher.support(x)))
    langevin = gxn.MatrixLangevin((concentration[:, None] * loc)[..., None])
    np.testing.assert_allclose(fisher.log_prob(x[:9]), langevin.log_prob(x[:9, ..., None]), rtol=1e-12)
    length = 1 / np.tanh(concentration) - 1 / np.asarray(concentration)
    np.testing.assert_allclose(fisher.mean, length[:, None] * np.asarray(loc), rtol=1e-10)
    error = np.asarray(x).std(0) / np.sqrt(len(x))
    assert np.all(np.abs(x.mean(0) - fisher.mean) < 4.5 * error)
    for wrong in ((2 * loc[0], 1.0), (loc[0], -1.0), (1.0, 1.0)):
        with pytest.raises(ValueError, match="VonMisesFisher"):
            gxn.VonMisesFisher(*wrong)


@pytest.mark.thorough
def test_a_common_concentration_has_one_normalizing_constant():
    """Rows with a direction of their own, and one concentration, as in a regression."""
    loc = jnp.tile(jnp.array([0.0, 0.6, 0.8]), (7, 1))
    fisher = gxn.VonMisesFisher(loc, 3.0)
    assert fisher.log_prob(loc).shape == fisher.batch_shape == (7,)
    assert re.findall(r"f\d+(\[\d*\]) = scan", str(jax.make_jaxpr(fisher.log_prob)(loc))) == ["[]"]  # its series
    crossed = gxn.VonMisesFisher(loc[:, None], jnp.array([1.0, 5.0]))
    single = [[gxn.VonMisesFisher(u, kappa).log_prob(loc[0]) for kappa in (1.0, 5.0)] for u in loc[:2]]
    np.testing.assert_allclose(crossed.log_prob(loc[0])[:2], single, rtol=1e-6)


@pytest.mark.thorough
def test_parameters_have_batches(key):
    f = jnp.stack([F, -F, 2 * F])
    ours = gxn.MatrixLangevin(f)
    assert (ours.batch_shape, ours.event_shape) == ((3,), (3, 2))
    draws = jax.jit(lambda key: ours.sample(key, (200,)))(key)
    assert draws.shape == (200, 3, 3, 2)
    density = jax.jit(lambda f, x: gx.distributions.MatrixLangevin(f).log_prob(x))
    expected = [density(f[i], draws[:, i]) for i in range(3)]
    np.testing.assert_allclose(jax.jit(ours.log_prob)(draws), np.stack(expected, axis=1))
    means, truth = np.asarray(draws).mean(0), langevin_truth().mean[:6].reshape(3, 2)
    error = np.asarray(draws).std(0) / np.sqrt(200)
    assert np.all(np.abs(means[0] - truth) < 4 * error[0])
    assert np.all(np.abs(means[1] + truth) < 4 * error[1])
    both = gxn.MatrixBingham(jnp.stack([A, 2 * A]), jnp.ones((2, 1)))
    assert both.sample(key).shape == (2, 3, 1)
    gibbs = gxn.MatrixLangevin(f, num_sweeps=3).sample(key)
    assert bool(jnp.all(gxn.stiefel(3, 2)(gibbs)))


def test_wrong_parameters_are_refused(key):
    with pytest.raises(ValueError, match="n >= p >= 1"):
        gxn.StiefelUniform(2, 3)
    with pytest.raises(ValueError, match="n >= p >= 1"):
        gxn.MatrixLangevin(F.T)
    with pytest.raises(ValueError, match="at least 2 axes"):
        gxn.MatrixLangevin(jnp.ones(3))
    with pytest.raises(ValueError, match="symmetric"):
        gxn.MatrixBingham(F @ F.T + jnp.triu(jnp.ones((3, 3))), [1.0])
    with pytest.raises(ValueError, match="num_sweeps"):
        gxn.MatrixLangevin(F, num_sweeps=0)
    with pytest.raises(ValueError, match="found"):
        gxn.MatrixLangevin(F).log_prob(F.T)
    with pytest.warns(UserWarning, match="Out-of-support"):
        gxn.MatrixLangevin(F, validate_args=True).log_prob(2 * CENTER)


# -------------------------------------------------------------------------------------------- reparametrisers


def one_site(fn):
    def model():
        numpyro.sample("w", fn)

    return model


def check_auxiliary_vector(key, kind):
    """Its draws, weighted back to the uniform law of the matrix, are standard normal (or have the angles' logistic law)."""
    model = reparam(one_site(gxn.MatrixLangevin(F)), config={"w": REPARAMS[kind]})
    draws = Predictive(model, num_samples=40_000)(key)
    z, w = np.asarray(draws[f"w_{kind}"]), np.asarray(draws["w"])
    truth = langevin_truth()
    entries = w.reshape(len(w), -1)
    values = np.concatenate([entries, entries**2], axis=1)
    assert np.all(np.abs(values.mean(0) - truth.mean) < 4 * values.std(0) / np.sqrt(len(w)))
    weight = np.exp(-np.asarray(gxn.MatrixLangevin(F).log_prob(w)))
    normal = z[:, [0, 2, 3, 4]] if kind == "circle" else z  # entry 1 is the logit of a latitude
    terms = weight[:, None] * np.concatenate([np.ones((len(z), 1)), normal, normal**2, normal**4], axis=1)
    count = normal.shape[1]
    expected = np.concatenate([[1], np.zeros(count), np.ones(count), np.full(count, 3)])
    assert np.all(np.abs(terms.mean(0) - expected) < 4 * terms.std(0) / np.sqrt(len(w)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", REPARAMS)
def test_auxiliary_vector_has_its_law(kind, key):
    check_auxiliary_vector(key, kind)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", REPARAMS)
def test_reparametrised_density_is_prior_plus_log_volume(kind, key):
    model = reparam(one_site(gxn.MatrixLangevin(F)), config={"w": REPARAMS[kind]})
    transform = REPARAMS[kind].transform(3, 2)
    z = jax.random.normal(key, (transform.num_unconstrained,))
    expected = gx.distributions.MatrixLangevin(F).log_prob(transform.forward(z)) + transform.log_volume(z)
    found = -potential_energy(model, (), {}, {f"w_{kind}": z})
    assert float(found) == pytest.approx(float(expected))


@pytest.mark.parametrize("kind", REPARAMS)
def test_reparametrisers_know_plates_and_independent_copies(kind, key):
    def model():
        with numpyro.plate("rows", 4), numpyro.plate("columns", 3):
            numpyro.sample("w", gxn.MatrixLangevin(F))
        numpyro.sample("v", gxn.StiefelUniform(4, 1).expand([2]).to_event(1))

    config = {"w": REPARAMS[kind], "v": REPARAMS[kind]}
    sites = sites_of(reparam(model, config=config), key)
    size = REPARAMS[kind].transform(3, 2).num_unconstrained
    assert sites[f"w_{kind}"]["value"].shape == (3, 4, size)
    assert sites["w"]["value"].shape == (3, 4, 3, 2)
    assert sites[f"w_{kind}"]["fn"].batch_shape == (3, 4)
    assert sites["v"]["value"].shape == (2, 4, 1)
    assert sites[f"v_{kind}"]["fn"].batch_shape == ()


def test_reparametrisers_refuse_other_sites(key):
    model = reparam(one_site(dist.Normal(0, 1)), config={"w": gxn.PolarReparam()})
    with pytest.raises(ValueError, match=r"'w' has a Normal.*stiefel"):
        seed(model, key)()

    def observed():
        numpyro.sample("w", gxn.StiefelUniform(3, 2), obs=CENTER)

    with pytest.raises(ValueError, match="observed"):
        seed(reparam(observed, config={"w": gxn.PolarReparam()}), key)()


# ----------------------------------------------------------------------------------------------------- angles


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "p"), [(4, 2), *(slow(n, p) for n, p in ((3, 1), (5, 3)))])
def test_density_of_angles_is_one_of_matrices(n, p, key):
    """Against the uniform law: the mean of the density over uniform matrices is 1, and its draws have the same angles."""
    size = n * p - p * (p + 1) // 2
    prior = gxn.GivensAngles.normal(n, p, 0.2, 0.8)
    frames = jax.jit(lambda key: gx.distributions.StiefelUniform(n, p).sample(key, (200_000,)))(key)
    lower, upper = gxn.angle_ranges(n, p)
    theta = jax.jit(jax.vmap(gx.transforms.Givens(n, p).decompose))(frames)
    assert bool(jnp.all((theta >= lower) & (theta <= upper)))
    # bounded weights: the volume element is part of the test function
    volume = jax.jit(lambda theta: jnp.exp(gxn.angle_log_volume(theta, n, p)))
    terms = np.exp(jax.jit(prior.log_prob)(frames)) * np.asarray(volume(theta))
    draws, base = jax.jit(lambda key: (prior.sample(key, (50_000,)), prior.base_dist.sample(key, (50_000,))))(key)
    angles = jax.jit(jax.vmap(gx.transforms.Givens(n, p).decompose))(draws)
    ours = np.asarray(volume(angles))
    error = np.hypot(terms.std() / np.sqrt(len(terms)), ours.std() / np.sqrt(len(ours)))
    assert abs(terms.mean() - ours.mean()) < 4 * error
    assert base.shape == (50_000, size)
    np.testing.assert_allclose(angles, base, atol=1e-7)


@pytest.mark.thorough
def test_shifted_longitudes_come_back(key):
    prior = gxn.GivensAngles.normal(4, 2, jnp.array([3.0, 0.1, 0.2, -3.0, 0.1]), 0.3, shift=jnp.array([3.0, -3.0]))
    theta = prior.base_dist.sample(key, (1000,))
    (transform,) = prior.transforms
    np.testing.assert_allclose(transform.inv(transform(theta)), theta, atol=1e-9)


@pytest.mark.thorough
def test_angles_are_a_site_of_their_own(key):
    def model():
        mean = numpyro.sample("mean", gxn.GivensAngles.uniform_angles(4, 2))
        spread = numpyro.sample("spread", dist.HalfNormal(0.5))
        with numpyro.plate("groups", 3):
            numpyro.sample("w", gxn.GivensAngles.normal(4, 2, mean, spread))

    sites = sites_of(reparam(model, config={"w": TransformReparam()}), key)
    assert sites["w_base"]["value"].shape == (3, 5)
    assert sites["w"]["value"].shape == (3, 4, 2)
    prior = Predictive(reparam(model, config={"w": TransformReparam()}), num_samples=5)(key)
    assert prior["w"].shape == (5, 3, 4, 2)
    sites = trace(seed(model, key)).get_trace()
    assert sites["w"]["fn"].support == gxn.stiefel(4, 2, chart=sites["w"]["fn"].support.chart)
    values = {name: biject_to(sites[name]["fn"].support).inv(sites[name]["value"]) for name in ("mean", "spread", "w")}
    gradient = jax.jit(jax.grad(lambda z: potential_energy(model, (), {}, z)))(values)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("angles", "error", "message"),
    [
        (lambda: dist.Uniform(-2.0, 2.0).expand([3]), ValueError, "expected angle 13 in the range -1.5708 to 1.5708"),
        (lambda: dist.Uniform(jnp.array([1.0, 0, 0]), jnp.array([6.0, 1, 1])), ValueError, "angle 12.*shift"),
        (lambda: dist.Normal(0, 1).expand([3]), TypeError, "must lie in intervals"),
        (lambda: dist.Uniform(-1.0, 1.0).expand([4]), ValueError, "vectors of 3 angles"),
        (lambda: jnp.zeros(3), TypeError, "NumPyro distribution"),
    ],
)
def test_angles_outside_their_ranges_are_refused(angles, error, message):
    with pytest.raises(error, match=message):
        gxn.GivensAngles(3, 2, angles())


def test_frames_of_integers():
    """Catches a tolerance that is computed from an integer type."""
    frame = jnp.eye(4, 2, dtype=int)
    assert bool(gxn.stiefel(4, 2)(frame))
    assert not bool(gxn.stiefel(4, 2)(2 * frame))
    law = gxn.MatrixLangevin(jnp.ones((4, 2)))
    np.testing.assert_allclose(law.log_prob(frame), law.log_prob(frame.astype(float)))
