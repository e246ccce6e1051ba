"""The public check of manifolds: the library's own pass, and each planted fault is named."""

import re

import jax
import jax.numpy as jnp
import pytest

import geodax as gx
from geodax.geometry.manifolds import AbstractManifold, FlowProperties
from tests.suites.cases import named_case


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "euclidean-complex",
        "sphere-batch",
        "product-complex",
        "stiefel-literal-cayley-3x2",
        "stiefel-embedded-geodesic-4x4",
        "unitary-canonical-cayley-3x2",
    ],
)
def test_manifolds_of_the_library(name, dtype):
    case = named_case(name)
    gx.check_manifold(case.manifold, case.like(dtype))


def symmetric(a):
    return 0.5 * (a + a.T)


class Positive(gx.Euclidean):
    """Positive definite matrices with the affine-invariant metric: the kinetic energy is tr(r x r x) / 2."""

    def project(self, x, u):
        return symmetric(u)

    def gradient(self, x, g):
        return symmetric(g)

    def momentum(self, x, z):
        inverse = jnp.linalg.inv(jnp.linalg.cholesky(x))
        return inverse.T @ symmetric(z) @ inverse

    def noise(self, x, z, variance, deducted):
        return jnp.sqrt(variance) * self.momentum(x, z)

    def noise_capacity(self, x):
        return 0.0

    def is_flat(self, x):
        return False

    def kinetic_energy(self, x, r):
        return 0.5 * jnp.trace(r @ x @ r @ x)

    def velocity(self, x, r):
        return x @ r @ x

    def flow(self, x, r, t):
        root = jnp.linalg.cholesky(x)
        inverse = jnp.linalg.inv(root)
        values, vectors = jnp.linalg.eigh(symmetric(root.T @ r @ root))

        def between(left, values, right):
            return symmetric(left @ (vectors * values[None]) @ vectors.T @ right)

        factor = jnp.exp(t * values)
        return between(root, factor, root.T), between(inverse.T, values / factor, inverse)

    def random_point(self, key, like):
        z = jax.random.normal(key, like.shape, like.dtype)
        return jnp.eye(len(z)) + z @ z.T

    def nearest(self, x):
        return symmetric(x)

    def residual(self, x):
        return jnp.where(jnp.linalg.eigvalsh(symmetric(x))[0] > 0, jnp.max(jnp.abs(x - x.T)), jnp.inf)

    def dim(self, x):
        return len(x) * (len(x) + 1) // 2

    degrees_of_freedom, squares = AbstractManifold.degrees_of_freedom, AbstractManifold.squares  # one scale


def moved(self, x, r, t):
    """The exact flow of the class above."""
    return Positive.flow(self, x, r, t)


def sheared(self, x, r, t):
    """Reversible, on the manifold and of the right speed, but volume is not preserved."""
    y, s = moved(self, x, r, t)
    return y, s * jnp.sqrt(jnp.linalg.det(x) / jnp.linalg.det(y))


FAULTS = {
    "momentum gives tangent": {"momentum": lambda self, x, z: z},
    "momentum draws from": {"kinetic_energy": lambda self, x, r: 0.5 * jnp.sum(r * r)},
    "velocity is the gradient": {"kinetic_energy": lambda self, x, r: 0.25 * jnp.trace(r @ x @ r @ x)},
    "gradient(x, g) and g": {"gradient": lambda self, x, g: 2.0 * symmetric(g)},
    "of dimension dim": {"dim": lambda self, x: x.size},
    "give points of residual 0": {"random_point": lambda self, key, like: jax.random.normal(key, like.shape)},
    "noise has covariance": {"noise": lambda self, x, z, variance, deducted: variance * symmetric(z)},
    "starts with velocity": {"flow": lambda self, x, r, t: moved(self, x, r, 2.0 * t)},
    "stays on the manifold": {"flow": lambda self, x, r, t: (moved(self, x, r, t)[0] + 0.1 * t * jnp.eye(2, k=1), r)},
    "with the momentum reversed": {"flow": lambda self, x, r, t: (moved(self, x, r, t)[0], r)},
    "preserves the symplectic form": {"flow": sheared},
    "two flows in a row": {"flow": lambda self, x, r, t: moved(self, x, r, t + t**3)},
}
WRONG_TYPES = {
    "flow: expected .*found .*1, 2, 2": {"flow": lambda self, x, r, t: (x[None], r)},
    r"residual: expected float64\[\], found the number 0.0": {"residual": lambda self, x: 0.0},
    "degrees_of_freedom: expected .*found the number 3.0": {"degrees_of_freedom": lambda self, x: 3.0},
    "squares: expected": {"squares": lambda self, x, u: u},
    "scaled: expected": {"scaled": lambda self, x, u, scale: scale},
    "properties: expected FlowProperties, found None": {"properties": property(lambda self: None)},
    "is_flat: expected a bool": {"is_flat": lambda self, x: jnp.asarray(False)},
}


@pytest.mark.thorough
def test_a_manifold_of_ones_own():
    gx.check_manifold(Positive(), jnp.eye(2))
    gx.check_manifold(gx.Product({"x": Positive()}), {"x": jnp.eye(2), "y": jnp.zeros(2)}, jax.random.key(1))


@pytest.mark.thorough
@pytest.mark.parametrize("law", FAULTS)
def test_faults_are_named(law):
    with pytest.raises(ValueError, match=re.escape(law)):
        gx.check_manifold(type("Faulty", (Positive,), FAULTS[law])(), jnp.eye(2))


@pytest.mark.parametrize("message", WRONG_TYPES)
def test_wrong_types_are_named(message):
    with pytest.raises(TypeError, match=f"Faulty.{message}"):
        gx.check_manifold(type("Faulty", (Positive,), WRONG_TYPES[message])(), jnp.eye(2))


def test_what_is_not_claimed_is_not_checked():
    """A flow for stochastic gradients alone: its momentum is only projected."""
    properties = FlowProperties(is_reversible=False, is_volume_preserving=False, is_symplectic=False, order=1.0)
    changes = {"properties": property(lambda self: properties), "flow": FAULTS["with the momentum reversed"]["flow"]}
    gx.check_manifold(type("Rough", (Positive,), changes)(), jnp.eye(2))


@pytest.mark.thorough
def test_sghmc_where_no_noise_can_be_deducted():
    """Catches 0 / 0 in the search for a step size on a manifold whose noise_capacity is 0."""
    scale = jnp.linalg.inv(jnp.array([[1.0, 0.4], [0.4, 0.5]]))

    def logdensity(x):  # Wishart with 5 degrees of freedom, with respect to the volume of the metric
        return 2.5 * jnp.linalg.slogdet(x)[1] - 0.5 * jnp.trace(scale @ x)

    run = gx.sample(
        jax.random.key(0),
        gx.sghmc(logdensity, manifold=Positive(), friction=0.1),
        lambda key: Positive().random_point(key, jnp.eye(2)),
        num_warmup=300,
        num_samples=1000,
        thinning=5,
        num_chains=8,
        progress=False,
    )["posterior"]["position"].values
    means = run.mean(axis=1)
    error = abs(means.mean(axis=0) - 5.0 * jnp.array([[1.0, 0.4], [0.4, 0.5]]))
    assert (error < 4 * means.std(axis=0, ddof=1) / 8**0.5 + 0.1).all()  # the bias of the step size is below 0.1
