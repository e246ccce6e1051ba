"""What must hold for every transform: volumes, inverses, the uniform law, finite gradients, sampling."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.geometry.transforms import AbstractTransform, CayleyChart, Givens, Householder, Polar, unconstrain
from tests.marks import slow
from tests.suites import references
from tests.suites.chains import assert_agree, run_chains
from tests.suites.test_known_targets import TARGETS


def frame(n: int, p: int, seed: int = 0) -> np.ndarray:
    return references.haar_frames(np.random.default_rng(seed), 1, n, p)[0]


class Case(NamedTuple):
    """A transform, and the share of the orthonormal matrices that it reaches."""

    name: str
    transform: AbstractTransform
    share: float = 1.0


CASES = [
    Case("givens-3x2", Givens(3, 2)),
    Case("givens-3x3", Givens(3, 3, determinant=-1), 0.5),
    Case("givens-5x3", Givens(5, 3, shift=[0.7, -2.0, 3.0])),
    Case("givens-half-5x3", Givens(5, 3, half=True, shift=1.0), 1 / 8),
    Case("givens-circle-5x3", Givens(5, 3, wrap="circle", center=frame(5, 3))),
    Case("cayley-3x3", CayleyChart(3, 3), 0.5),
    Case("cayley-5x3", CayleyChart(5, 3, center=frame(5, 3))),
    Case("polar-5x3", Polar(5, 3)),
    Case("polar-3x3", Polar(3, 3)),
    Case("householder-5x3", Householder(5, 3)),
    Case("householder-3x3", Householder(3, 3)),
]
MORE = [
    *(
        Case(f"{t.__name__}-{n}x{p}", t(n, p))
        for t in (Givens, CayleyChart, Polar, Householder)
        for n, p in [(2, 1), (3, 1), (7, 2)]
    ),
    *(Case(f"{t.__name__}-{n}x{n}", t(n, n), 0.5) for t in (Givens, CayleyChart) for n in (2, 6)),
    Case("givens-half-3x3", Givens(3, 3, half=True, center=frame(3, 3)), 1 / 8),
    Case("givens-circle-3x2", Givens(3, 2, wrap="circle")),
    Case("cayley-3x3-centered", CayleyChart(3, 3, center=frame(3, 3)), 0.5),
]
ALL = [pytest.param(c, id=c.name) for c in CASES]
ALL += [slow(c, id=c.name) for c in MORE]


def evaluate(transform: AbstractTransform, dtype, key):
    """Points on the way there and back, log volumes by autodiff, and where uniform frames go."""
    n, p = transform.shape
    m = np.arange(n - p + 1, n + 1)
    spheres = np.log(2) + m / 2 * np.log(np.pi) - jax.scipy.special.gammaln(jnp.asarray(m / 2))
    constant = float(p * (p - 1) / 4 * np.log(2) + spheres.sum())

    def log_gram_and_slopes(z):
        jacobian = jax.jacrev(transform.forward)(z).reshape(n * p, -1)
        return 0.5 * jnp.linalg.slogdet(jacobian.T @ jacobian)[1] - constant, jnp.linalg.norm(jacobian, axis=0)

    forward = jax.jit(jax.vmap(transform.forward_and_log_volume))
    inverse = jax.jit(jax.vmap(transform.inverse))
    z = 0.8 * jax.random.normal(key, (20, transform.num_unconstrained), dtype)
    q, log_volume = forward(z)
    frames = references.haar_frames(np.random.default_rng(1), 20, n, p)
    if n == p and transform.is_injective:  # a chart has one of the two determinants
        frames[:, :, -1] *= (np.linalg.det(frames) * np.linalg.det(q[0]))[:, None]
    frames = jnp.asarray(frames, dtype)
    gram, slope = jax.jit(jax.vmap(log_gram_and_slopes))(z)
    found = {
        "z": z,
        "q": q,
        "log_volume": log_volume,
        "gram": gram,
        "slope": slope,
        "back": inverse(q),
        "again": forward(inverse(q))[0],
        "alone": jax.jit(jax.vmap(lambda z: (transform.forward(z), transform.log_volume(z))))(z),
        "frame": frames,
        "reached": forward(inverse(frames))[0],
    }
    return jax.tree.map(np.asarray, found)


def check_log_volume(transform: AbstractTransform, key) -> None:
    found = evaluate(transform, jnp.float64, key)
    np.testing.assert_allclose(found["log_volume"], found["gram"], rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("case", ALL)
def test_there_and_back(case, key, dtype):
    """Orthonormality, both inverses, the parts against the whole, dtypes, and volumes of charts."""
    transform, epsilon = case.transform, jnp.finfo(dtype).eps
    found = evaluate(transform, dtype, key)
    q, z = found["q"], found["z"]
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(dtype)}
    identity = np.broadcast_to(np.eye(transform.p), (20, transform.p, transform.p))
    np.testing.assert_allclose(np.swapaxes(q, 1, 2) @ q, identity, atol=100 * epsilon)
    np.testing.assert_allclose(found["alone"][0], q, atol=100 * epsilon)
    np.testing.assert_allclose(found["alone"][1], found["log_volume"], rtol=100 * epsilon, atol=100 * epsilon)
    np.testing.assert_allclose(found["again"], q, atol=2000 * epsilon)
    assert found["back"].shape == z.shape
    assert transform.is_injective == (transform.num_unconstrained == gx.Stiefel().dim(jnp.asarray(q[0])))
    if transform.is_injective:
        # a coordinate is known as well as the matrix where its image moves, and no better near a pole
        assert np.max(np.abs(found["back"] - z) * np.minimum(found["slope"], 1)) < 5000 * epsilon
        if dtype == jnp.float64:
            np.testing.assert_allclose(found["log_volume"], found["gram"], rtol=1e-9, atol=1e-9)
    reached, frames = found["reached"], found["frame"]
    if getattr(transform, "half", False):
        reached = reached * np.sign(np.sum(reached * frames, axis=1))[:, None, :]
    # a chart is ill-conditioned near the points that it misses
    np.testing.assert_allclose(reached, frames, atol=1e6 * epsilon if dtype == jnp.float64 else 1e-2)


@pytest.mark.parametrize("case", [p for p in ALL if p.id in ("givens-half-5x3", "cayley-3x3", "polar-5x3")])
def test_own_transforms_pass_their_check(case):
    gx.transforms.check_transform(case.transform)


class Scaled(AbstractTransform):
    """A chart in other units, whose log volume lacks them unless it is asked to have them."""

    chart: CayleyChart
    has_volume: bool
    n: int = 4
    p: int = 2
    num_unconstrained = 5
    is_injective = True

    def forward_and_log_volume(self, z):
        return self.forward(z), self.log_volume(z)

    def forward(self, z):
        return self.chart.forward(2 * z)

    def log_volume(self, z):
        return self.chart.log_volume(2 * z) + (5 * jnp.log(2.0) if self.has_volume else 0.0)

    def inverse(self, q):
        return 0.5 * self.chart.inverse(q)


def test_a_log_volume_that_lacks_a_constant_is_named():
    gx.transforms.check_transform(Scaled(CayleyChart(4, 2), True))
    with pytest.raises(ValueError, match=r"Scaled\(4, 2\) breaks 1 of 5 laws: log_volume is .* \(error"):
        gx.transforms.check_transform(Scaled(CayleyChart(4, 2), False))


def proposal(transform, rng, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws from a law that is wider than the reference law, and their log densities."""
    size = transform.num_unconstrained
    if isinstance(transform, CayleyChart):  # Student's t, 1 degree of freedom: no tail is heavier
        scale = 1 / np.sqrt(2 * transform.n)
        z = scale * rng.standard_normal((num, size)) / np.abs(rng.standard_normal((num, 1)))
        log_gamma = [float(jax.scipy.special.gammaln((1 + d) / 2)) for d in (0, size)]
        constant = log_gamma[1] - log_gamma[0] - size * (np.log(scale) + 0.5 * np.log(np.pi))
        return z, constant - (1 + size) / 2 * np.log1p(np.sum(z**2, axis=1) / scale**2)
    normal = rng.standard_normal((num, size)), lambda z: -0.5 * np.sum(z**2 + np.log(2 * np.pi), axis=1)
    if not isinstance(transform, Givens):
        return normal[0], normal[1](normal[0])
    i, j = np.triu_indices(transform.p, 1, transform.n)
    width = 1 / np.sqrt(np.append(j - i, np.ones(size - i.size)))
    z = rng.logistic(size=(num, size))
    log_density = -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z))) - np.log(width)
    z = width * z
    if transform.wrap == "circle":
        steps = np.cumsum([0, *(transform.n - 1 - np.arange(transform.p - 1))])
        pairs = [*steps, *range(size - transform.p, size)]
        z[:, pairs] = normal[0][:, pairs]
        log_density[:, pairs] = -0.5 * (z[:, pairs] ** 2 + np.log(2 * np.pi))
    return z, log_density.sum(1)


def check_uniform_law(case: Case, seed: int = 2, num: int = 100_000) -> None:
    """Weighted moments of frames: with the log volume alone for a density they are those of Haar measure."""
    transform, (n, p) = case.transform, case.transform.shape
    z, log_density = proposal(transform, np.random.default_rng(seed), num)
    q, log_volume = jax.jit(jax.vmap(transform.forward_and_log_volume))(jnp.asarray(z))
    weight, q = np.exp(np.asarray(log_volume) - log_density), np.asarray(q)
    # a law that spreads without bounds shows in the weights' own error, not in averages with that error
    assert weight.std() / np.sqrt(num) < 0.02
    values = [np.ones(num), *(q**2).reshape(num, -1).T, *(q**4).reshape(num, -1).T]
    truth = [1.0, *[1 / n] * (n * p), *[3 / (n * (n + 2))] * (n * p)]
    if p > 1:
        values.append(q[:, 0, 0] ** 2 * q[:, 1, 1] ** 2)
        truth.append((n + 1) / (n * (n - 1) * (n + 2)))
    if not (n == p or getattr(transform, "half", False)):
        values += [*q.reshape(num, -1).T]
        truth += [0.0] * (n * p)
    assert_agree(weight[:, None] * np.stack(values, axis=1), case.share * np.asarray(truth))


@pytest.mark.thorough
@pytest.mark.parametrize("case", [p for p in ALL if p.id != "CayleyChart-6x6"])
def test_reference_law_is_uniform(case):
    """A wrong exponent, sign or constant of a log volume; a redundant law that is not the one for which the map is Haar."""
    check_uniform_law(case)


@pytest.mark.thorough
@pytest.mark.parametrize("case", ALL)
def test_gradients_are_finite_far_out_and_at_zero(case, dtype):
    transform = case.transform
    rng = np.random.default_rng(3)
    f = jnp.asarray(rng.normal(size=transform.shape), dtype)

    def value(z):
        q, log_volume = transform.forward_and_log_volume(z)
        return jnp.sum(f * q) + log_volume

    points = [scale * rng.normal(size=transform.num_unconstrained) for scale in (1e-6, 1, 30, 300)]
    if transform.is_injective:
        points.append(np.zeros(transform.num_unconstrained))
    both = jax.jit(jax.vmap(jax.value_and_grad(value)))
    values, gradients = both(jnp.asarray(np.stack(points), dtype))
    assert np.all(np.isfinite(values))
    assert np.all(np.isfinite(gradients))
    if dtype == jnp.float64:
        step, direction = 1e-6, rng.normal(size=points[1].size)
        ends = np.stack([points[1] + step * direction, points[1] - step * direction, *points[2:]])
        values = both(jnp.asarray(ends))[0]
        slope = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(gradients[1] @ direction, slope, rtol=1e-6, atol=1e-7)


NUTS_CASES = {
    "polar": Polar(3, 2),
    "householder": Householder(3, 2),
    "givens": Givens(3, 2),
    "givens-circle": Givens(3, 2, wrap="circle"),
    "givens-centered": Givens(3, 2, center=frame(3, 2)),
    "cayley": CayleyChart(3, 2),
}
NUTS_FAST = {("langevin-3x2", "givens-circle")}


def check_nuts(transform, target, key) -> None:
    """Ordinary NUTS on the pull-back from uniform points, against quadrature."""
    u = unconstrain(target.logdensity, transform)
    algorithm = gx.nuts(u.logdensity, step_size=0.35, max_num_doublings=6)
    key_start, key_run = jax.random.split(key)
    start = jax.jit(lambda key: gx.distributions.StiefelUniform(3, 2).sample(key, (512,)))(key_start)
    chains = run_chains(
        algorithm,
        jax.jit(jax.vmap(u.unconstrain))(start),
        lambda z: target.statistics(u.constrain(z)),
        key_run,
        num_iterations=150,
        num_discarded=50,
    )
    truth = target.truth()
    assert_agree(chains.means, truth.mean, spread=truth.spread, max_bias=0.03)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param(t, n, marks=[] if (t, n) in NUTS_FAST else [pytest.mark.slow])
        for t in ("langevin-3x2", "bingham-3x2")
        for n in NUTS_CASES
    ],
)
def test_nuts_in_each_parametrisation(name, target, key):
    """The whole contract: pull-back density in, draws of the target out."""
    check_nuts(NUTS_CASES[name], TARGETS[target], key)
