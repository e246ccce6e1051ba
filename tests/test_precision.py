"""Products of matrices keep single precision where an accelerator would round them, but for the likelihoods of batches."""

import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import geodax as gx
from geodax.geometry import transforms
from geodax.run.programs import compiled

HIGHEST = jax.lax.Precision.HIGHEST
STIEFEL = [
    gx.Stiefel(),
    gx.Stiefel(metric="embedded"),
    gx.Stiefel(flow="geodesic"),
    gx.Stiefel(metric="embedded", flow="polar"),
]
TRANSFORMS = [
    kind(6, 2) for kind in (transforms.Givens, transforms.Polar, transforms.Householder, transforms.CayleyChart)
]
BATCH = 7  # no other axis has this size


def precisions(function, *args):
    """Shapes of the factors and precision of every product in a traced function."""

    def walk(program):
        for equation in (program.jaxpr if isinstance(program, ClosedJaxpr) else program).eqns:
            if equation.primitive.name == "dot_general":
                shapes = [factor.aval.shape for factor in equation.invars]
                yield shapes, equation.params["precision"] or (None, None)
            inner = jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr))
            for part in inner:
                if isinstance(part, ClosedJaxpr | Jaxpr):
                    yield from walk(part)

    found = list(walk(jax.make_jaxpr(function)(*args)))
    assert found
    return found


def rounded(found):
    return [shapes for shapes, precision in found if precision != (HIGHEST, HIGHEST)]


@pytest.mark.parametrize("manifold", STIEFEL, ids=lambda m: f"{m.metric}-{type(m.motion).__name__}")
def test_moves_on_frames(manifold, key):
    """A frame that loses its orthonormality on a GPU, by a flow, a draw, a projection or a derivative of them."""
    x = manifold.random_point(key, jnp.zeros((6, 3), jnp.float32))

    def moves(x, z):
        r = manifold.momentum(x, z)
        y, s = manifold.flow(x, manifold.kick(x, r, g=z), jnp.float32(0.1))
        return jnp.sum(manifold.nearest(y)) + manifold.kinetic_energy(y, s) + manifold.residual(manifold.renormalize(y))

    assert not rounded(precisions(moves, x, x))
    assert not rounded(precisions(lambda x, z: jax.jvp(moves, (x, z), (z, x)), x, x))
    if type(manifold.motion).__name__ == "Cayley":
        assert not rounded(precisions(jax.grad(moves), x, x))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: type(t).__name__)
def test_transforms(transform):
    """Coordinates whose matrices are orthonormal on a processor only."""
    z = jnp.linspace(-1.0, 1.0, transform.num_unconstrained, dtype=jnp.float32)

    def value(z):
        q, log_volume = transform.forward_and_log_volume(z)
        return jnp.sum(q**3) + log_volume

    programs = [jax.make_jaxpr(f)(z) for f in (value, jax.grad(value))]
    assert all("precision=None" not in str(program) for program in programs)


def log_likelihood(w, batch):
    return -jnp.sum((batch["y"] - batch["x"] @ w) ** 2, axis=1)


POSTERIOR = gx.Posterior(log_prior=lambda w: -jnp.sum(w**2), log_likelihood=log_likelihood, num_data=BATCH)
DATA = {"x": jnp.ones((BATCH, 6), jnp.float32), "y": jnp.ones((BATCH, 3), jnp.float32)}


@pytest.mark.parametrize(
    "algorithm",
    [
        gx.sgrld(POSTERIOR, step_size=1e-3, metric=gx.metrics.Shampoo()),
        gx.sghmc(POSTERIOR, step_size=1e-3, manifold=gx.Stiefel()),
    ],
    ids=["sgrld", "sghmc"],
)
def test_only_likelihoods_of_batches_are_rounded(algorithm, key):
    """A metric or a flow in low precision; a network that is slowed down; a setting of the user's that is overruled."""
    w = gx.Stiefel().random_point(key, jnp.zeros((6, 3), jnp.float32))

    def step(key, w):
        return algorithm.step(key, algorithm.init(w), DATA)[0].position

    found = precisions(step, key, w)
    of_batches = [shapes for shapes, _ in found if any(BATCH in shape for shape in shapes)]
    assert rounded(found) == of_batches
    assert len(of_batches) < len(found)
    with jax.default_matmul_precision("tensorfloat32"):
        again = precisions(step, key, w)
    assert {precision for shapes, precision in again if shapes in of_batches} == {(jax.lax.Precision.HIGH,) * 2}


def test_exact_samplers_and_programs(key):
    """Energies whose errors are the rounding of the density; a program that is compiled in low precision."""
    algorithm = gx.hmc(POSTERIOR.full(DATA), manifold=gx.Stiefel(), step_size=0.1, num_integration_steps=2)
    w = gx.Stiefel().random_point(key, jnp.zeros((6, 3), jnp.float32))
    assert not rounded(precisions(lambda key, w: algorithm.step(key, algorithm.init(w))[0].position, key, w))
    seen = []

    def product(w):
        seen.append(jax.config.jax_default_matmul_precision)
        return w.T @ w

    compiled(product, w)
    compiled(product, w, is_exact=False)
    assert seen == ["highest", None]
