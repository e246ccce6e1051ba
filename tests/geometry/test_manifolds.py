"""Manifolds: uniform laws, momentum laws, nearest points, reflections, validation, linear algebra."""

import re

import equinox as eqx
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.flatten_util import ravel_pytree

import geodax as gx
from geodax import _tree
from geodax._random import standard_normal
from geodax.geometry import linalg
from geodax.geometry.linalg import sym
from geodax.geometry.manifolds import Noise
from tests.suites.cases import CASES, METRICS, marked, stiefel_case

NUM_DRAWS = 100_000

# flow and metric change neither the set nor its distances
ON_EACH_SHAPE = [c for c in CASES if "geodesic" not in c.name and "embedded" not in c.name]


def assert_means(values, expected, what="") -> None:
    """Averages over independent draws (first axis) within 4 standard errors."""
    values = np.asarray(values, np.float64)
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    z = (values.mean(0) - expected) / np.maximum(error, 1e-12)
    assert np.all(np.abs(z) < 4), f"{what}: {np.round(z, 1)} standard errors"


def uniform_frames(key, shape, dtype=jnp.float64, num=NUM_DRAWS):
    draw = jax.vmap(lambda k: gx.Stiefel().random_point(k, jnp.zeros(shape, dtype)))
    return np.asarray(jax.jit(draw)(jax.random.split(key, num)))


# ------------------------------------------------------------------------------------------ uniform laws


def check_haar(shape, key) -> None:
    """Moments of the Haar measure, odd ones too: column signs that follow the draw do not show in even ones."""
    n, p = shape
    x = uniform_frames(key, shape)
    np.testing.assert_allclose(np.swapaxes(x, 1, 2) @ x, np.broadcast_to(np.eye(p), (len(x), p, p)), atol=1e-13)
    assert_means(x, 0, "E y")
    assert_means(x**2, 1 / n, "E y^2")
    assert_means(x**4, 3 / (n * (n + 2)), "E y^4")
    if p > 1:
        assert_means(x[:, 0, 0] ** 2 * x[:, 1, 1] ** 2, (n + 1) / (n * (n - 1) * (n + 2)), "E y11^2 y22^2")
        mixed = x[:, 0, 0] * x[:, 0, 1] * x[:, 1, 0] * x[:, 1, 1]
        assert_means(mixed, -1 / (n * (n - 1) * (n + 2)), "E y11 y12 y21 y22")
    if n == p:
        assert_means(np.linalg.det(x) > 0, 0.5, "sign of the determinant")


@pytest.mark.parametrize("shape", [(3, 1), (3, 2), (5, 3), (2, 2), (3, 3)], ids=str)
def test_uniform_frames_have_haar_moments(shape, key):
    """A QR factor without its signs, one component of O(n) only."""
    check_haar(shape, key)


@pytest.mark.parametrize("shape", [(3, 2), (2, 2)], ids=str)
def test_uniform_complex_frames_have_haar_moments(shape, key):
    """A QR factor without its phases, a complex normal whose parts differ."""
    n, _ = shape
    x = uniform_frames(key, shape, jnp.complex128)
    assert_means(x.real, 0)
    assert_means(x.imag, 0)
    assert_means((x**2).real, 0)
    assert_means(np.abs(x) ** 2, 1 / n)
    assert_means(np.abs(x) ** 4, 2 / (n * (n + 1)))


def test_uniform_unit_vectors(key):
    """A direction that is not uniform."""
    x = gx.Sphere().random_point(key, jnp.zeros((NUM_DRAWS, 4)))
    assert_means(x, 0)
    assert_means(x**2, 1 / 4)
    assert_means(x**4, 3 / 24)


def test_projections_are_tangent_a_little_off_the_sphere(key):
    keys = jax.random.split(key)
    x = 1.001 * gx.Sphere().random_point(keys[0], jnp.zeros((8, 3)))
    u = gx.Sphere().gradient(x, 50.0 * jax.random.normal(keys[1], x.shape))
    np.testing.assert_allclose(jnp.sum(x * u, axis=-1), 0.0, atol=1e-12)


# ----------------------------------------------------------------------------------------- momentum laws


def check_momentum_energy(case, key) -> None:
    """Twice the energy has a chi-square law with as many degrees of freedom as the manifold: mean and variance."""
    manifold, like = case.manifold, case.like(jnp.float64)

    @jax.jit
    def energies_at_one_point(key):
        key_point, key_momentum = jax.random.split(key)
        x = manifold.random_point(key_point, like)
        momenta = jax.vmap(lambda k: manifold.sample_momentum(k, x))(jax.random.split(key_momentum, 20_000))
        return jax.vmap(lambda r: manifold.kinetic_energy(x, r))(momenta)

    energies = np.asarray(energies_at_one_point(key))
    freedom = manifold.dim(like)
    assert_means(energies, freedom / 2, case.name)
    assert_means((energies - freedom / 2) ** 2, freedom / 2, f"variance, {case.name}")


@pytest.mark.thorough
@pytest.mark.parametrize("case", marked(c for c in CASES if "geodesic" not in c.name))
def test_momentum_energy_is_chi_square(case, key):
    """A draw that does not belong to the energy: a wrong distribution at a healthy acceptance rate."""
    check_momentum_energy(case, key)


def check_momentum_law(metric, shape, is_complex, key) -> None:
    """Variances of the entries of A = x^T r and of the normal part; tangency."""
    manifold, (n, p) = gx.Stiefel(metric=metric), shape
    like = jnp.zeros(shape, jnp.complex128 if is_complex else jnp.float64)
    key_point, key_momentum = jax.random.split(key)
    x = jax.jit(lambda key: manifold.random_point(key, like))(key_point)
    r = jax.jit(jax.vmap(lambda k: manifold.sample_momentum(k, x)))(jax.random.split(key_momentum, NUM_DRAWS))
    x, r = np.asarray(x), np.asarray(r)
    a = x.conj().T @ r
    np.testing.assert_allclose(a + np.swapaxes(a.conj(), 1, 2), 0, atol=1e-12)
    above = np.triu_indices(p, 1)
    variance = 0.25 if metric == "canonical" else 0.5
    assert_means(a.real[:, *above], 0)
    assert_means(a.real[:, *above] ** 2, variance, "real part of A")
    if is_complex:
        assert_means(a.imag[:, *above] ** 2, variance, "imaginary part of A")
        assert_means(np.diagonal(a.imag, axis1=1, axis2=2) ** 2, 2 * variance, "diagonal of A")
    if n > p:
        normal = scipy.linalg.null_space(x.conj().T)
        b = normal.conj().T @ r
        assert_means(b.real**2, 1.0, "normal part")
        assert_means(b.real[:, 0, 0] * a.real[:, 0, -1], 0, "independence of the parts")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shape", "is_complex"), [((5, 3), False), ((3, 3), False), ((4, 2), True)], ids=["5x3", "3x3", "unitary-4x2"]
)
@pytest.mark.parametrize("metric", METRICS)
def test_momentum_law(metric, shape, is_complex, key):
    """The skew part's variance doubled, or that of the other metric."""
    check_momentum_law(metric, shape, is_complex, key)


@pytest.mark.thorough
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_kicks_of_the_metrics(is_complex, key):
    """The literal kick's skew part is 2 skew(x^T g), so that it is no projection; the metrics' own is one."""
    like = stiefel_case("canonical", "cayley", (5, 3), is_complex).like(jnp.float64)
    x, g = gx.Stiefel().random_point(key, like), gx.Stiefel().random_point(jax.random.fold_in(key, 1), 3.0 * like)
    a = x.conj().T @ g
    normal = g - x @ a
    literal = gx.Stiefel(metric="literal")
    np.testing.assert_allclose(literal.gradient(x, g), normal + x @ (a - a.conj().T), atol=1e-13)
    assert np.max(np.abs(literal.gradient(x, literal.gradient(x, g)) - literal.gradient(x, g))) > 0.1
    for metric in ("canonical", "embedded"):
        np.testing.assert_array_equal(gx.Stiefel(metric=metric).gradient(x, g), gx.Stiefel(metric=metric).project(x, g))


def check_parts_are_independent(key) -> None:
    """Two equal parts of a product have uncorrelated momenta and points."""
    manifold = gx.Product({"a": gx.Euclidean(), "b": gx.Euclidean()})
    like = {"a": jnp.zeros(()), "b": jnp.zeros(())}

    def draw(k):
        key_point, key_momentum = jax.random.split(k)
        x = manifold.random_point(key_point, like)
        r = manifold.sample_momentum(key_momentum, x)
        return x["a"] * x["b"], r["a"] * r["b"], x["a"] * r["a"]

    for products in jax.jit(jax.vmap(draw))(jax.random.split(key, 10_000)):
        assert_means(products, 0)


POLAR = gx.Stiefel(metric="embedded", flow="polar")


@pytest.mark.thorough
@pytest.mark.parametrize("case", marked([*CASES, stiefel_case("embedded", "polar", (5, 3))]))
def test_kick_is_friction_gradient_and_noise(case, key):
    """Catches parts that the joint projection leaves out, or takes twice."""
    manifold = case.manifold

    @jax.jit
    def moves(key):
        keys = jax.random.split(key, 4)
        x = manifold.random_point(keys[0], case.like(jnp.float64))
        r = manifold.sample_momentum(keys[1], x)
        g, z = standard_normal(keys[2], x), standard_normal(keys[3], x)
        noise = Noise(z, jnp.asarray(2.0), jnp.asarray(0.3))
        found = [
            manifold.kick(x, r),
            manifold.kick(x, r, kept=0.7),
            manifold.kick(x, r, g=g),
            manifold.kick(x, r, kept=0.7, noise=noise),
            manifold.kick(x, r, kept=0.7, g=g, noise=noise),
        ]
        kept = jax.tree.map(lambda leaf: 0.7 * leaf, r)
        forced, noisy = manifold.gradient(x, g), manifold.noise(x, *noise)
        added = _tree.add
        return found, [r, kept, added(r, forced), added(kept, noisy), added(added(kept, forced), noisy)]

    for found, expected in zip(*moves(key), strict=True):
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


@pytest.mark.thorough
def test_a_kick_makes_the_momentum_of_the_polar_flow_tangent(key):
    """With nothing to add, too."""
    key_point, key_momentum = jax.random.split(key)
    x = POLAR.random_point(key_point, jnp.zeros((5, 3)))
    x, r = POLAR.flow(x, POLAR.sample_momentum(key_momentum, x), jnp.asarray(0.1))
    assert float(jnp.max(jnp.abs(sym(x.T @ r)))) > 0.01
    kicked = POLAR.kick(x, r, kept=0.5)
    np.testing.assert_allclose(kicked, 0.5 * POLAR.project(x, r), rtol=0, atol=1e-15)


@pytest.mark.parametrize("metric", ["canonical", "literal"])
def test_the_polar_flow_is_that_of_the_embedded_metric(metric):
    with pytest.raises(ValueError, match=f"use metric=\"embedded\", found '{metric}'"):
        gx.Stiefel(metric=metric, flow="polar")


def test_parts_of_a_product_are_independent(key):
    """One key for all the parts."""
    check_parts_are_independent(key)


@pytest.mark.thorough
@pytest.mark.parametrize("case", ON_EACH_SHAPE, ids=lambda c: c.name)
def test_dim_counts_tangent_directions(case, key):
    """A wrong number of degrees of freedom: the rank of the projection is the truth."""
    check_dim(case, key)


def check_dim(case, key) -> None:
    manifold, like = case.manifold, case.like(jnp.float64)
    x = jax.jit(lambda key: manifold.random_point(key, like))(key)
    parts = jax.tree.map(lambda leaf: (leaf.real, leaf.imag) if jnp.iscomplexobj(leaf) else (leaf,), like)
    flat, unravel = ravel_pytree(parts)

    def project(u):
        u = jax.tree.map(lambda _, part: jax.lax.complex(*part) if len(part) > 1 else part[0], like, unravel(u))
        return _tree.flatten(manifold.project(x, u), jnp.float64)

    matrix = np.asarray(jax.jit(jax.vmap(project))(jnp.eye(flat.size)))
    assert np.linalg.matrix_rank(matrix, tol=1e-8) == manifold.dim(like)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-13)  # an orthogonal projection
    np.testing.assert_allclose(matrix @ matrix, matrix, atol=1e-13)


# -------------------------------------------------------------------------------------- scales and times


def check_squares_of_a_momentum(case, key) -> None:
    """The velocity of a new momentum has as many squares as degrees of freedom for each scale."""
    manifold, like = case.manifold, case.like(jnp.float64)

    @jax.jit
    def compared(key):
        key_point, key_noise = jax.random.split(key)
        x = manifold.random_point(key_point, like)
        many = standard_normal(key_noise, jax.tree.map(lambda leaf: jnp.zeros((20_000, *leaf.shape), leaf.dtype), like))
        squares = jax.vmap(lambda z: manifold.squares(x, manifold.velocity(x, manifold.momentum(x, z))))(many)
        return jax.tree.map(lambda s: jnp.mean(s, axis=0), squares), manifold.degrees_of_freedom(x)

    found, degrees = compared(key)
    assert jax.tree.structure(found) == jax.tree.structure(degrees)
    for squares, expected in zip(jax.tree.leaves(found), jax.tree.leaves(degrees), strict=True):
        np.testing.assert_allclose(squares, expected, rtol=0.05, atol=1e-12)
    assert sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(degrees)) == manifold.dim(like)


@pytest.mark.thorough
@pytest.mark.parametrize("case", [c for c in ON_EACH_SHAPE if "literal" not in c.name], ids=lambda c: c.name)
def test_squares_and_degrees_of_freedom_belong_together(case, key):
    """Catches the freedom of real arrays counted for complex ones, which mis-scales a leaf beside others."""
    check_squares_of_a_momentum(case, key)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.complex128])
@pytest.mark.parametrize("name", ["sphere", "stiefel"])
def test_the_longest_step_turns_a_momentum_by_a_quarter_of_a_circle(name, dtype, key):
    """Catches momenta of complex columns taken for shorter than they are, and scales that do not shorten a step."""
    if name == "sphere" and dtype == jnp.complex128:
        pytest.skip("unit vectors are real")
    manifold, shape = {"sphere": (gx.Sphere(), (2, 900)), "stiefel": (gx.Stiefel(), (2, 900, 1))}[name]
    key_point, key_momentum = jax.random.split(key)
    x = manifold.random_point(key_point, jnp.zeros(shape, dtype))
    r = manifold.sample_momentum(key_momentum, x)
    scale = manifold.initial_scale(x)
    angle = np.linalg.norm(np.asarray(r).reshape(2, 900), axis=1) * manifold.max_time(x, scale)
    np.testing.assert_allclose(angle, np.pi / 2, rtol=0.1)
    np.testing.assert_allclose(manifold.max_time(x, 4 * scale), manifold.max_time(x, scale) / 4)


@pytest.mark.parametrize("strictest", ["a", "b", "c"])
def test_a_product_is_bound_by_its_strictest_part(strictest):
    """Catches bounds of the first, the last or the loosest part, under which another part turns many times a step."""
    check_strictest_part(strictest)


def check_strictest_part(strictest: str) -> None:
    usual, strict = gx.Stiefel(metric="embedded"), gx.Stiefel(metric="literal")
    tree = dict.fromkeys("abc", usual) | {strictest: strict, "free": gx.Euclidean()}
    x = dict.fromkeys("abc", jnp.zeros((5, 2))) | {"free": jnp.zeros(3)}
    product = gx.Product({"inner": gx.Product(tree), "unit": gx.Sphere()})
    x = {"inner": x, "unit": jnp.zeros(3)}
    scale = product.initial_scale(x)
    scale["inner"][strictest] = jnp.asarray(7.0)
    np.testing.assert_allclose(product.max_time(x, scale), strict.max_time(jnp.zeros((5, 2)), jnp.asarray(7.0)))
    assert product.noise_capacity(x) == strict.noise_capacity(jnp.zeros((5, 2))) < 1
    assert product.properties == strict.properties != usual.properties


# ------------------------------------------------------------------------ nearest, residual, reflections


@pytest.mark.thorough
@pytest.mark.parametrize("case", marked(c for c in ON_EACH_SHAPE if not c.name.startswith("euclidean")))
def test_nearest_point_and_renormalization(case, key):
    """A point that is not the nearest one, a residual that misses a leaf, a step that does not square the distance."""
    manifold, like = case.manifold, case.like(jnp.float64)
    key_point, key_noise, key_other = jax.random.split(key, 3)

    @jax.jit
    def draw(key_point, key_noise):
        return manifold.random_point(key_point, like), standard_normal(key_noise, like)

    x, noise = draw(key_point, key_noise)
    residual, nearest = eqx.filter_jit(manifold.residual), eqx.filter_jit(manifold.nearest)

    def shifted(size):
        return jax.tree.map(lambda a, b: a + size * b, x, noise)

    def distance(a, b):
        return sum(float(jnp.sum(jnp.abs(u - v) ** 2)) for u, v in zip(*map(jax.tree.leaves, (a, b)), strict=True))

    assert residual(x) < 1e-14
    for leaf_index, leaf in enumerate(jax.tree.leaves(x)):
        leaves, structure = jax.tree.flatten(x)
        leaves[leaf_index] = 1.01 * leaf
        is_free = jax.tree.leaves(manifold.is_flat(x))[leaf_index]
        assert (residual(structure.unflatten(leaves)) > 1e-3) != is_free
    point = nearest(shifted(0.3))
    assert residual(point) < 1e-14
    # Euclidean parts are where they were; other points of the manifold, far and near, are farther away
    momentum = eqx.filter_jit(manifold.sample_momentum)(key_other, point)
    flow = jax.jit(lambda x, r, t: manifold.flow(x, r, t))
    for time in (-1.0, -1e-3, 1e-3, 1.0):
        other, _ = flow(point, momentum, jnp.asarray(time))
        assert distance(shifted(0.3), other) > distance(shifted(0.3), point)
    before = residual(shifted(1e-4))
    assert residual(eqx.filter_jit(manifold.renormalize)(shifted(1e-4))) < 10 * before**2


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (3, 2, 2)], ids=str)
def test_reflection_flips_one_determinant_and_undoes_itself(shape, key):
    """A reflection of no copy or of several, or one that is not its own inverse: its Metropolis step would be wrong."""
    check_reflection(shape, key)


def check_reflection(shape: tuple, key) -> None:
    manifold = gx.Stiefel()
    assert not manifold.is_connected(jnp.zeros(shape))
    chosen = []
    draw, reflect = jax.jit(lambda key: manifold.random_point(key, jnp.zeros(shape))), eqx.filter_jit(manifold.reflect)
    for k in jax.random.split(key, 16):
        key_point, key_move = jax.random.split(k)
        x = draw(key_point)
        moved = reflect(key_move, x)
        back = reflect(jax.random.clone(key_move), moved)
        assert manifold.residual(moved) < 1e-13
        flipped = np.linalg.det(moved) * np.linalg.det(x) < 0
        assert np.sum(flipped) == 1
        chosen.append(int(np.argmax(flipped)))
        np.testing.assert_allclose(back, x, rtol=0, atol=1e-14)
    assert set(chosen) == set(range(flipped.size))


@pytest.mark.parametrize("shape", [(3,), ()])
def test_the_residual_of_a_product_has_the_digits_of_its_curved_parts(shape):
    """Catches the rounding of single precision measured by that of double, which no frame in float32 ever passes."""
    product = gx.Product({"frame": gx.Stiefel(), "direction": gx.Sphere()})
    position = {
        "frame": jnp.eye(3, 2, dtype=jnp.float32),
        "direction": jnp.eye(3)[0],
        "scale": jnp.zeros(shape, jnp.float16),
        "level": jnp.zeros(()),
    }
    assert product.residual(position).dtype == jnp.float32
    assert product.residual(position | {"frame": jnp.eye(3, 2)}).dtype == jnp.float64


def test_reflection_of_a_product_moves_one_part(key):
    """Two parts at once: both determinants would keep their product."""
    manifold = gx.Product({"a": gx.Stiefel(), "b": gx.Stiefel(), "c": gx.Sphere()})
    like = {"a": jnp.zeros((2, 2)), "b": jnp.zeros((3, 3)), "c": jnp.zeros(3)}
    seen = []
    draw, reflect = jax.jit(lambda key: manifold.random_point(key, like)), eqx.filter_jit(manifold.reflect)
    for k in jax.random.split(key, 16):
        key_point, key_move = jax.random.split(k)
        x = draw(key_point)
        moved = reflect(key_move, x)
        np.testing.assert_array_equal(moved["c"], x["c"])
        seen.append([bool(np.linalg.det(moved[n]) * np.linalg.det(x[n]) < 0) for n in "ab"])
    assert sorted({tuple(s) for s in seen}) == [(False, True), (True, False)]


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [((3, 3), jnp.float64, False), ((3, 2), jnp.float64, True), ((3, 3), jnp.complex128, True)],
)
def test_is_connected(shape, dtype, expected):
    """Only real square frames have two components."""
    assert gx.Stiefel().is_connected(jnp.zeros(shape, dtype)) is expected


# ----------------------------------------------------------------------------- validation and products


@pytest.mark.parametrize(
    ("manifold", "position", "error", "message"),
    [
        (gx.Stiefel(), jnp.zeros((2, 3)), ValueError, "w: Stiefel() expects n x p matrices .* shape (2, 3).*transpose"),
        (gx.Stiefel(), jnp.zeros(3), ValueError, "w: Stiefel() expects n x p matrices .* shape (3,)"),
        (gx.Stiefel(), jnp.zeros((3, 0)), ValueError, "p >= 1"),
        (
            gx.Stiefel(),
            jnp.zeros((3, 2), int),
            TypeError,
            "w: Stiefel() expects a floating-point or complex array, found dtype int",
        ),
        (
            gx.Stiefel(),
            {"a": jnp.zeros((3, 2))},
            TypeError,
            "w: Stiefel() governs one array, but the position there is a dict",
        ),
        (gx.Sphere(), jnp.zeros(1), ValueError, "at least 2 entries, found shape (1,)"),
        (gx.Sphere(), jnp.zeros(3, complex), ValueError, "use Stiefel() for complex unit vectors"),
        (
            gx.Sphere(),
            [0.0, 0.0, 1.0],
            TypeError,
            "w: Sphere() governs one array, .* is a list; make it one by jnp.asarray",
        ),
        (gx.Euclidean(), {"n": jnp.zeros(3, int)}, TypeError, "w.n: expected a floating-point array, found int"),
        (gx.Product({"a": gx.Stiefel()}), {"a": jnp.zeros((2, 3))}, ValueError, "w.a: Stiefel() expects"),
        (
            gx.Product({"a": gx.Stiefel()}),
            {"b": jnp.zeros(3)},
            ValueError,
            "names ['a'], which the position does not have; it has ['b']",
        ),
        (gx.Product({"a": gx.Stiefel()}), jnp.zeros((3, 2)), ValueError, "not a dict"),
        (
            gx.Product({"a": {"b": gx.Stiefel()}}),
            {"a": {"c": jnp.zeros(3)}},
            ValueError,
            "names ['b'], which a does not have",
        ),
        (
            gx.Product([gx.Sphere()]),
            [jnp.zeros(3), jnp.zeros(3)],
            ValueError,
            "a list of 1 entries, but the position is a list of 2",
        ),
        (
            gx.Product((gx.Sphere(),)),
            [jnp.zeros(3)],
            ValueError,
            "a tuple of 1 entries, but the position is a list of 1",
        ),
        (
            gx.Product({"a": "sphere"}),
            {"a": jnp.zeros(3)},
            TypeError,
            "expected a pytree of manifolds at a, found a str",
        ),
        (
            gx.Product({"a": gx.Sphere}),
            {"a": jnp.zeros(3)},
            TypeError,
            "expected a pytree of manifolds at a, found the class Sphere itself",
        ),
    ],
)
def test_wrong_positions_are_named(manifold, position, error, message):
    """A message that does not name the leaf, what was expected and what was found."""
    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    with pytest.raises(error, match=pattern):
        manifold.validate(position, "w")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "canonic"}, "Stiefel: metric must be one of ['canonical', 'embedded', 'literal'], found 'canonic'"),
        ({"flow": "qr"}, "Stiefel: flow must be one of ['cayley', 'geodesic', 'polar'] or an AbstractFlow, found 'qr'"),
    ],
)
def test_unknown_names_are_refused(arguments, message):
    """A misspelt name that falls back on a default."""
    with pytest.raises(ValueError, match=re.escape(message)):
        gx.Stiefel(**arguments)


@pytest.mark.thorough
@hypothesis.given(shape=st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple))
def test_stiefel_accepts_exactly_tall_matrices(shape):
    """A shape rule with a hole in it."""
    is_valid = len(shape) >= 2 and shape[-2] >= shape[-1] >= 1
    position = np.zeros(shape)
    if is_valid:
        gx.Stiefel().validate(position, "w")
    else:
        with pytest.raises(ValueError, match="n >= p >= 1"):
            gx.Stiefel().validate(position, "w")


POSITIONS = st.recursive(
    st.builds(lambda: jnp.zeros(3)),
    lambda children: st.one_of(
        st.dictionaries(st.sampled_from("abc"), children, min_size=1, max_size=3),
        st.lists(children, min_size=1, max_size=3),
        st.tuples(children, children),
    ),
    max_leaves=8,
)


@st.composite
def prefixes(draw, position):
    """A prefix of the position, and the number of entries that it puts on spheres."""
    kind = draw(st.integers(0, 3))
    if isinstance(position, jax.Array):
        return (gx.Sphere(), 1) if kind % 2 else (None, 0)
    if kind == 0:
        return None, 0
    if kind == 1:
        return gx.Euclidean(), 0
    if isinstance(position, dict):
        named = {k: draw(prefixes(v)) for k, v in position.items() if draw(st.booleans())}
        return {k: m for k, (m, _) in named.items()}, sum(count for _, count in named.values())
    parts = [draw(prefixes(v)) for v in position]
    return type(position)(m for m, _ in parts), sum(count for _, count in parts)


@pytest.mark.thorough
@hypothesis.given(data=st.data())
def test_what_a_prefix_does_not_name_is_euclidean(data):
    """A prefix that reaches too far or not far enough: each sphere costs one degree of freedom, nothing else does."""
    position = data.draw(POSITIONS)
    prefix, num_spheres = data.draw(prefixes(position))
    manifold = gx.Product(prefix)
    size = sum(leaf.size for leaf in jax.tree.leaves(position))
    manifold.validate(position, "x")
    assert manifold.dim(position) == size - num_spheres
    nested = gx.Product({"inner": manifold})
    assert nested.dim({"inner": position, "more": jnp.zeros(2)}) == size - num_spheres + 2


# ---------------------------------------------------------------------------------------- linear algebra


_expm_skew = jax.jit(linalg.expm_skew)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("size", [1, 2, 5, 12])
@pytest.mark.parametrize("norm", [0.0, 1e-8, 0.3, 2.0, 40.0, 3000.0])
def test_expm_skew_agrees_with_scipy(norm, size, is_complex):
    """Too few squarings; rounding errors grow with the norm, orthogonality does not go."""
    rng = np.random.default_rng(size)
    s = rng.normal(size=(size, size)) + (1j * rng.normal(size=(size, size)) if is_complex else 0)
    s = s - s.conj().T
    s = s * norm / max(np.linalg.norm(s, 2), 1e-300)
    found = np.asarray(_expm_skew(jnp.asarray(s)))
    if size == 1 and not is_complex:
        s = np.zeros((1, 1))
    tolerance = 1e-14 * (size + 10 * norm)
    np.testing.assert_allclose(found, scipy.linalg.expm(s), rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.conj().T @ found, np.eye(size), rtol=0, atol=tolerance)


def test_expm_skew_of_what_is_not_finite():
    """A failure that returns something plausible, or never returns."""
    for bad in (jnp.nan, jnp.inf):
        assert not np.any(np.isfinite(linalg.expm_skew(jnp.array([[0.0, bad], [-bad, 0.0]]))))


MATRICES = st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans(), st.integers(0, 2**31)).map(
    lambda drawn: _matrix(*drawn)
)


def _matrix(p, more, is_complex, seed):
    rng = np.random.default_rng(seed)
    shape = (p + more, p)
    return rng.normal(size=shape) + (1j * rng.normal(size=shape) if is_complex else 0)


@pytest.mark.thorough
@hypothesis.settings(max_examples=15)
@hypothesis.given(x=MATRICES)
def test_factors_of_a_matrix(x):
    """An R whose diagonal is not positive, a factor that is not the nearest, a step that does not converge."""
    q = np.asarray(linalg.qr_positive(jnp.asarray(x)))
    identity = np.eye(x.shape[1])
    np.testing.assert_allclose(q.conj().T @ q, identity, atol=1e-12)
    r = q.conj().T @ x
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-12)
    assert np.all(np.diagonal(r).real > 0)
    np.testing.assert_allclose(np.diagonal(r).imag, 0, atol=1e-12)
    u = np.asarray(linalg.polar_factor(jnp.asarray(x)))
    h = u.conj().T @ x
    np.testing.assert_allclose(h, h.conj().T, atol=1e-10)
    assert np.linalg.eigvalsh(h)[0] > 0
    near = q + 1e-5 * x / np.linalg.norm(x)
    better = np.asarray(linalg.newton_schulz(jnp.asarray(near)))
    np.testing.assert_allclose(better.conj().T @ better, identity, atol=1e-9)
    np.testing.assert_allclose(better, np.asarray(linalg.polar_factor(jnp.asarray(near))), atol=1e-9)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("size", [1, 3, 8, 14])
def test_cayley_skew(size, is_complex):
    """The inverse transform, or one of twice the argument: against eigenvalues (1 + s/2) / (1 - s/2)."""
    rng = np.random.default_rng(size)
    s = rng.normal(size=(2, size, size)) + (1j * rng.normal(size=(2, size, size)) if is_complex else 0)
    s = s - np.swapaxes(s.conj(), 1, 2)
    values, vectors = np.linalg.eigh(-1j * s)
    expected = (vectors * ((1 + 0.5j * values) / (1 - 0.5j * values))[:, None]) @ np.swapaxes(vectors.conj(), 1, 2)
    np.testing.assert_allclose(jax.jit(linalg.cayley_skew)(jnp.asarray(s)), expected, rtol=0, atol=1e-12)


def test_energies_of_leaves_of_several_dtypes_add_up():
    """Also where JAX promotes no dtype by itself, as in these tests: in the widest of them."""
    x = {"a": jnp.ones(2, jnp.float32), "b": jnp.ones(3, jnp.float64), "c": jnp.ones(1, jnp.bfloat16)}
    for manifold in (gx.Euclidean(), gx.Product({"a": gx.Sphere()})):
        energy = manifold.kinetic_energy(x, x)
        assert (energy.dtype, float(energy)) == (jnp.float64, 3.0)
    half = {"a": jnp.ones(2, jnp.float16), "b": jnp.ones(2, jnp.bfloat16)}
    assert gx.Euclidean().kinetic_energy(half, half).dtype == jnp.float32
