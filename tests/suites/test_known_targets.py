"""HMC, NUTS and the adjusted microcanonical sampler against targets whose expectations are known, at steps so large that a wrong scheme cannot hide.

At small steps several wrong schemes are nearly right (a wrong sign in the acceptance ratio is off by 0.03 standard
deviations there), so HMC's step sizes are set for an acceptance rate of 0.5 to 0.8, and the tests demand it.
"""

import functools
import itertools
import zlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import iv

import geodax as gx
from tests.marks import slow
from tests.suites import references
from tests.suites.cases import FLOWS, METRICS
from tests.suites.chains import Chains, assert_agree, run_chains
from tests.suites.references import Truth

NUM_CHAINS, NUM_ITERATIONS, NUM_DISCARDED = 512, 200, 30


class Target(NamedTuple):
    """A density on a manifold with statistics whose expectations are known.

    Attributes:
        name: Name in the tests' ids.
        like: A position's shapes and dtypes.
        logdensity: Log density with respect to Haar measure, of one position.
        statistics: From one position to a vector.
        truth: Computes the expectations.
        step_sizes: HMC's step size for each (metric, flow); NUTS runs at half of it.
        geometry: From a Stiefel manifold to the manifold of the position.
        num_iterations: Iterations of each chain.
    """

    name: str
    like: object
    logdensity: Callable
    statistics: Callable
    truth: Callable[[], Truth]
    step_sizes: dict
    geometry: Callable = lambda stiefel: stiefel
    num_iterations: int = NUM_ITERATIONS


def entries(x):
    """The entries and their squares."""
    parts = (x.real, x.imag) if jnp.iscomplexobj(x) else (x,)
    return jnp.concatenate([jnp.concatenate([part.ravel(), part.ravel() ** 2]) for part in parts])


def langevin(f):
    """Log density Re tr(F^H x)."""
    f = np.asarray(f)
    return lambda x: jnp.sum((jnp.conj(jnp.asarray(f, x.dtype)) * x).real)


def bingham(s, d, f=None):
    """Log density tr(D x^T S x) + tr(F^T x) with a diagonal D and a diagonal S."""

    def logdensity(x):
        s_, d_ = jnp.asarray(s, x.dtype)[:, None], jnp.asarray(d, x.dtype)[None, :]
        value = jnp.sum(s_ * d_ * x * x)
        return value if f is None else value + langevin(f)(x)

    return logdensity


def by_quadrature(nodes, logdensity, statistics) -> Truth:
    return references.by_quadrature(
        nodes, lambda x: np.asarray(jax.vmap(logdensity)(x)), lambda x: np.asarray(jax.vmap(statistics)(x))
    )


def by_rejection(shape, logdensity, log_bound, statistics, num=2_000_000, is_complex=False) -> Truth:
    return references.by_rejection(
        np.random.default_rng(3),
        num,
        shape,
        lambda x: np.asarray(jax.vmap(logdensity)(x)),
        log_bound,
        lambda x: np.asarray(jax.vmap(statistics)(x)),
        is_complex,
    )


def frame_target(name, shape, logdensity, step_sizes, log_bound=None, is_complex=False) -> Target:
    """Entries of a frame: truth by quadrature at 3 x 2, by rejection below the bound elsewhere."""
    like = jnp.zeros(shape, jnp.complex128 if is_complex else jnp.float64)

    @functools.cache
    def truth():
        if log_bound is None:
            return by_quadrature(references.givens_frames(*shape, 48), logdensity, entries)
        return by_rejection(shape, logdensity, log_bound, entries, is_complex=is_complex)

    return Target(name, like, logdensity, entries, truth, step_sizes)


def orthogonal_target(n: int, concentration: float, step_sizes) -> Target:
    """Density exp(k tr x) on O(n), with the probability of the sheet det = 1."""
    like = jnp.zeros((n, n))

    def statistics(x):
        is_positive = (jnp.linalg.det(x) > 0).astype(x.dtype)
        trace = jnp.trace(x)
        return jnp.stack(
            [is_positive, is_positive * trace, trace, x[0, 1], x[0, 0] ** 2, (1 - is_positive) * x[0, 0] ** 2]
        )

    logdensity = langevin(concentration * np.eye(n))

    @functools.cache
    def truth():
        return by_quadrature(references.orthogonal_frames(n, 48), logdensity, statistics)

    return Target(f"orthogonal-{n}", like, logdensity, statistics, truth, step_sizes)


def product_target(name, f, step_sizes) -> Target:
    """A frame x and a normal vector v with a mean of (m + c) l given x, where c = Re tr(F^H x).

    Its first entry, of variance 1, couples it to the frame: with the density exp(v_0 c - (v_0 - m)^2 / 2), x has the
    marginal density exp(m c + c^2 / 2). The others are l_i v_0 and noise. Beside a real frame v is a real leaf of two
    entries; beside a complex one there is a complex number too, whose parts are correlated and differ in variance.
    """
    is_complex, m = np.iscomplexobj(f), 0.5
    size = 4 if is_complex else 2
    loads = np.array([1.0, 1.0, 0.7, -0.5])[:size]
    noise = np.array([[0.25, 0.0, 0.0], [0.0, 1.2, 0.4], [0.0, 0.4, 0.7]])[: size - 1, : size - 1]
    like = {"frame": jnp.zeros(f.shape, f.dtype), "s": jnp.zeros(2)}
    if is_complex:
        like["z"] = jnp.zeros((), complex)
    covariance = np.outer(loads, loads)
    covariance[1:, 1:] += noise
    i, j = np.triu_indices(size)

    def vector(position):
        numbers = [position["z"].real, position["z"].imag] if is_complex else []
        return jnp.stack([*position["s"], *numbers])

    def logdensity(position):
        c, v = langevin(f)(position["frame"]), vector(position)
        rest = v[1:] - v[0] * loads[1:]
        return v[0] * c - 0.5 * (v[0] - m) ** 2 - 0.5 * rest @ jnp.asarray(np.linalg.inv(noise)) @ rest

    def statistics(position):
        c, v = langevin(f)(position["frame"]), vector(position)
        return jnp.concatenate([entries(position["frame"]), v, v[i] * v[j], v[:1] * c])

    def expected(x):
        """Means and variances of the statistics given the frame."""
        c = langevin(f)(x)
        mean, own, cross = (m + c) * loads, jnp.asarray(np.diag(covariance)), jnp.asarray(covariance[i, j])
        products = mean[i] * mean[j]
        spread = own[i] * own[j] + cross**2 + mean[i] ** 2 * own[j] + mean[j] ** 2 * own[i] + 2 * products * cross
        means = [entries(x), mean, products + cross, mean[:1] * c]
        return jnp.concatenate([*means, jnp.zeros(means[0].shape), own, spread, c[None] ** 2])

    def marginal(x):
        c = langevin(f)(x)
        return m * c + 0.5 * c**2

    @functools.cache
    def truth():
        if is_complex:
            most = np.linalg.svd(f, compute_uv=False).sum()
            both = by_rejection(f.shape, marginal, m * most + 0.5 * most**2, expected, 300_000, True)
        else:
            both = by_quadrature(references.givens_frames(*f.shape, 48), marginal, expected)
        (mean, within), (error, _), (between, _) = (np.split(part, 2) for part in both)
        return Truth(mean, error, np.sqrt(between**2 + within))

    return Target(
        name,
        like,
        logdensity,
        statistics,
        truth,
        step_sizes,
        geometry=lambda stiefel: gx.Product({"frame": stiefel}),
        num_iterations=1000,  # the vector is slow to move
    )


def padded(diagonal, shape):
    f = np.zeros(shape)
    np.fill_diagonal(f, diagonal)
    return f


_F_UNITARY = np.array([[1.8, 0.5j], [0.0, 1.2], [0.4j, 0.0]])
_UNITARY_BOUND = float(np.linalg.svd(_F_UNITARY, compute_uv=False).sum())


def steps(*sizes: float) -> dict:
    """Step sizes for canonical, embedded and literal, each with the Cayley and the geodesic flow."""
    return dict(zip([(metric, flow) for metric in METRICS for flow in FLOWS], sizes, strict=True))


TARGETS = {
    target.name: target
    for target in (
        frame_target(
            "langevin-3x2", (3, 2), langevin([[2.0, 0.3], [0, 1], [0.5, 0]]), steps(1.7, 1.05, 1.2, 1.2, 1.15, 0.8)
        ),
        frame_target("bingham-3x2", (3, 2), bingham([3, 1, -1], [1, 0.5]), steps(0.8, 0.7, 0.8, 0.7, 0.75, 0.6)),
        frame_target(
            "langevin-5x3", (5, 3), langevin(padded([1.5, 1, 0.5], (5, 3))), steps(2.4, 1.05, 1.0, 1.15, 1.5, 0.8), 3.0
        ),
        frame_target(
            "bingham-5x3", (5, 3), bingham([2, 1, 0, 0, -1], [1, 0.7, 0.3]), steps(1.0, 0.7, 1.0, 0.7, 0.85, 0.6), 2.7
        ),
        frame_target(
            "both-5x2",
            (5, 2),
            bingham([2, 1, 0, 0, -1], [1, 0.5], padded([1, 0.5], (5, 2))),
            steps(0.9, 0.65, 0.85, 0.65, 0.85, 0.6),
            4.0,
        ),
        frame_target(
            "unitary-3x2", (3, 2), langevin(_F_UNITARY), steps(1.8, 0.8, 0.7, 1.0, 1.2, 0.6), _UNITARY_BOUND, True
        ),
        orthogonal_target(2, 2.0, steps(1.15, 0.95, 1.5, 1.35, 0.8, 0.65)),
        orthogonal_target(3, 1.2, steps(1.9, 1.1, 1.15, 1.5, 1.3, 0.75)),
        product_target("product", np.array([[1.0, 0.2], [0.0, 0.7], [0.3, 0.0]]), steps(0.6, 0.6, 0.6, 0.6, 0.6, 0.6)),
        product_target(
            "product-complex",
            np.array([[0.6 + 0.3j, 0.2j], [0.1, 0.4 - 0.3j], [0.3j, 0.2]]),
            steps(0.55, 0.55, 0.55, 0.55, 0.55, 0.5),
        ),
    )
}


def sampler(name: str, logdensity_fn, manifold, step_size: float):
    """HMC, or its form of constant speed, with trajectories of 2 to 4 steps, or NUTS."""
    if name in ("hmc", "adjusted_mclmc"):
        build = getattr(gx, name)
        return build(logdensity_fn, manifold=manifold, step_size=step_size, num_integration_steps=3, length_jitter=0.3)
    return gx.nuts(logdensity_fn, manifold=manifold, step_size=step_size, max_num_doublings=6)


def run_target(name: str, metric: str, flow: str, target: Target, *, number: int = 0) -> Chains:
    """Chains from uniform points; those of another number are independent."""
    manifold = target.geometry(gx.Stiefel(metric=metric, flow=flow))
    step_size = target.step_sizes[metric, flow] * (0.5 if name == "nuts" else 1.0)
    algorithm = sampler(name, target.logdensity, manifold, step_size)
    key = jax.random.key(zlib.crc32(f"{name} {metric} {flow} {target.name}".encode()))
    key_start, key_run = jax.random.split(jax.random.fold_in(key, number) if number else key)
    start = jax.vmap(lambda k: manifold.random_point(k, target.like))(jax.random.split(key_start, NUM_CHAINS))
    return run_chains(
        algorithm,
        start,
        target.statistics,
        key_run,
        num_iterations=min(target.num_iterations, NUM_ITERATIONS) if name == "nuts" else target.num_iterations,
        num_discarded=NUM_DISCARDED,
    )


def check_target(name: str, metric: str, flow: str, target: Target, *, seed: int = 0) -> Chains:
    """Averages within 4 standard errors, those of twice the chains if one is not, and 0.02 standard deviations of the truth."""
    chains = run_target(name, metric, flow, target, number=2 * seed)
    truth = target.truth()
    assert_agree(
        chains.means,
        truth.mean,
        spread=np.maximum(truth.spread, 1e-9),
        truth_error=truth.error,
        max_bias=0.02,
        again=lambda: run_target(name, metric, flow, target, number=2 * seed + 1).means,
    )
    return chains


FAST = {
    *(("hmc", metric, "cayley", "langevin-3x2") for metric in METRICS),
    ("hmc", "canonical", "cayley", "bingham-5x3"),
    ("hmc", "embedded", "geodesic", "both-5x2"),
    ("hmc", "canonical", "cayley", "unitary-3x2"),
    ("hmc", "canonical", "cayley", "orthogonal-2"),
    ("hmc", "canonical", "cayley", "product"),
    ("hmc", "literal", "cayley", "both-5x2"),
    ("nuts", "canonical", "cayley", "langevin-3x2"),
    ("adjusted_mclmc", "canonical", "cayley", "langevin-3x2"),
    ("adjusted_mclmc", "embedded", "geodesic", "both-5x2"),
    ("adjusted_mclmc", "canonical", "cayley", "product"),
    ("adjusted_mclmc", "canonical", "cayley", "unitary-3x2"),
}
# motion at constant speed needs two dimensions and a symplectic scheme
ADJUSTED = [
    ("adjusted_mclmc", m, f, t)
    for m in METRICS
    if m != "literal"
    for f in FLOWS
    for t in TARGETS
    if t != "orthogonal-2"
]
# trees on the product are deep: half a minute for each scheme, so that two of the six stand for all
LEFT_OUT = {("nuts", m, f, "product-complex") for m in METRICS for f in FLOWS if m == "literal" or f == "geodesic"}
COMBINATIONS = [
    combination
    for combination in itertools.product(("hmc", "nuts"), METRICS, FLOWS, TARGETS)
    if combination not in LEFT_OUT
] + ADJUSTED


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "metric", "flow", "target"),
    [pytest.param(*c, id="-".join(c), marks=[] if c in FAST else [pytest.mark.slow]) for c in COMBINATIONS],
)
def test_expectations_on_frames(name, metric, flow, target, seed):
    """Any scheme with a wrong stationary law: momentum, energy, kick, flow, acceptance, tree or reflection."""
    chains = check_target(name, metric, flow, TARGETS[target], seed=seed)
    assert chains.num_divergent == 0
    if name == "hmc":
        assert 0.5 < chains.acceptance_rate < 0.8
    if name == "adjusted_mclmc":
        assert 0.4 < chains.acceptance_rate < 0.9


@pytest.mark.thorough
@pytest.mark.parametrize(("target", "step_size"), [("langevin-3x2", 0.65), slow("bingham-3x2", 0.5)])
def test_expectations_in_the_polar_parametrisation(target, step_size, key):
    """HMC in the polar parametrisation, a scheme of paper 1's comparison: catches a pull-back without the law of X."""
    found = TARGETS[target]
    u = gx.transforms.unconstrain(found.logdensity, gx.transforms.Polar(3, 2))
    key_start, key_run = jax.random.split(key)
    chains = run_chains(
        sampler("hmc", u.logdensity, None, step_size),
        jax.random.normal(key_start, (NUM_CHAINS, 6)),
        lambda z: found.statistics(u.constrain(z)),
        key_run,
        num_iterations=NUM_ITERATIONS,
        num_discarded=NUM_DISCARDED,
    )
    assert 0.5 < chains.acceptance_rate < 0.8
    assert_agree(chains.means, found.truth().mean, spread=found.truth().spread, max_bias=0.03)


VON_MISES_FISHER = {  # manifold, shape, step size of HMC
    "sphere": (gx.Sphere(), (5,), 0.95),
    "canonical-cayley": (gx.Stiefel(), (5, 1), 1.6),
    "canonical-geodesic": (gx.Stiefel(flow="geodesic"), (5, 1), 0.95),
    "embedded-cayley": (gx.Stiefel(metric="embedded"), (5, 1), 1.6),
    "literal-cayley": (gx.Stiefel(metric="literal"), (5, 1), 1.6),
}


@pytest.mark.thorough
@pytest.mark.parametrize("geometry", VON_MISES_FISHER)
@pytest.mark.parametrize("name", ["hmc", slow("nuts"), slow("adjusted_mclmc")])
def test_mean_direction_of_von_mises_fisher(name, geometry, key):
    """A quotient of Bessel functions, independent of everything else here."""
    manifold, shape, step_size = VON_MISES_FISHER[geometry]
    if name == "adjusted_mclmc" and geometry == "literal-cayley":
        pytest.skip("motion at constant speed refuses this scheme")
    concentration, n = 3.0, 5
    truth = iv(n / 2, concentration) / iv(n / 2 - 1, concentration)
    assert abs(truth - 0.488901) < 1e-6
    step_size = step_size * {"hmc": 1.0, "adjusted_mclmc": 1.0, "nuts": 0.5}[name]
    algorithm = sampler(name, lambda x: concentration * x.ravel()[0], manifold, step_size)
    key_start, key_run = jax.random.split(key)
    like = jnp.zeros(shape)
    start = jax.vmap(lambda k: manifold.random_point(k, like))(jax.random.split(key_start, NUM_CHAINS))
    chains = run_chains(
        algorithm,
        start,
        lambda x: jnp.concatenate([x.ravel(), x.ravel()[:1] ** 2]),
        key_run,
        num_iterations=NUM_ITERATIONS,
        num_discarded=NUM_DISCARDED,
    )
    if name == "hmc":
        assert 0.5 < chains.acceptance_rate < 0.8
    # E x_1^2 = 1 - (n - 1) E x_1 / k
    square = 1 - (n - 1) * truth / concentration
    spread = np.sqrt([square - truth**2, *[(1 - square) / (n - 1)] * (n - 1), 0.3**2])
    assert_agree(chains.means, [truth, 0, 0, 0, 0, square], spread=spread, max_bias=0.02)


def test_sheet_probability_in_closed_form():
    """The quadrature itself on O(2): P(det > 0) = I0(2k) / (I0(2k) + 1), E(cos | det > 0) = I1(2k) / I0(2k)."""
    for k in (0.65, 2.0):
        mean = orthogonal_target(2, k, {}).truth().mean
        positive = iv(0, 2 * k) / (iv(0, 2 * k) + 1)
        np.testing.assert_allclose(mean[:2], [positive, positive * 2 * iv(1, 2 * k) / iv(0, 2 * k)], rtol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "p"), [(3, 1), (3, 2), (4, 2), (3, 3)])
def test_quadrature_integrates_haar_moments(n, p):
    """A wrong Jacobian or range of the angles."""
    frames, weight = references.givens_frames(n, p, 16)
    np.testing.assert_allclose(
        np.swapaxes(frames, 1, 2) @ frames, np.broadcast_to(np.eye(p), (len(weight), p, p)), atol=1e-13
    )
    np.testing.assert_allclose(np.tensordot(weight, frames**2, 1), 1 / n, atol=1e-10)
    np.testing.assert_allclose(np.tensordot(weight, frames**4, 1), 3 / (n * (n + 2)), atol=1e-10)
    if p > 1:
        mixed = weight @ (frames[:, 0, 0] ** 2 * frames[:, 1, 1] ** 2)
        np.testing.assert_allclose(mixed, (n + 1) / (n * (n - 1) * (n + 2)), atol=1e-10)
