"""A scale for each pair of columns: the flow, the units, and that samplers keep their distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import geodax as gx
from geodax.mcmc.mass_matrix import MassMatrix

SHAPES = {"low rank": (7, 3), "dense": (5, 3), "square": (3, 3), "copies": (2, 7, 3)}
FLOWS = ("cayley", "geodesic")


def scales(shape: tuple[int, ...]) -> jax.Array:
    """Symmetric, and different in all parts and copies."""
    s = jnp.exp(jnp.sin(1.0 + jnp.arange(float(np.prod(shape[:-2]) * 9)))).reshape(*shape[:-2], 3, 3)
    return 0.5 * (s + jnp.swapaxes(s, -1, -2))


def start(manifold, shape, key):
    key_point, key_momentum = jax.random.split(key)
    x = manifold.random_point(key_point, jnp.zeros(shape))
    return x, manifold.sample_momentum(key_momentum, x)


def expected_flow(x: np.ndarray, r: np.ndarray, s: np.ndarray, flow: str):
    """The rotation that takes the columns along their scaled velocity, of n x n matrices, from the definition."""
    n, p = x.shape
    basis = np.concatenate([x, scipy.linalg.null_space(x.T)], axis=1)
    inner = basis.T @ r
    generator = np.zeros((n, n))
    generator[:p, :p] = 2.0 * s * inner[:p]  # r = x A + ..., and the velocity is twice A
    generator[p:, :p] = inner[p:] * np.diag(s)
    generator[:p, p:] = -generator[p:, :p].T
    if flow == "geodesic":
        rotation = scipy.linalg.expm(generator)
    else:
        rotation = np.linalg.solve(np.eye(n) - generator / 2, np.eye(n) + generator / 2)
    rotation = basis @ rotation @ basis.T
    return rotation @ x, rotation @ r


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", SHAPES)
def test_the_frame_turns_with_its_momentum(name, flow, key):
    """Catches scales of another pair or copy, and a momentum that the rotation does not take along."""
    manifold, shape = gx.Stiefel(flow=flow), SHAPES[name]
    x, r = start(manifold, shape, key)
    time = 0.3 * scales(shape)
    moved = jax.jit(manifold.flow)(x, r, time)
    triples = zip(*(np.asarray(a).reshape(-1, *a.shape[-2:]) for a in (x, r, time)), strict=True)
    expected = [expected_flow(*triple, flow) for triple in triples]
    for found, parts in zip(moved, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(found, np.stack(parts).reshape(shape), atol=1e-12)
    back = manifold.flow(moved[0], -moved[1], time)
    for there, here in zip(back, (x, -r), strict=True):
        np.testing.assert_allclose(there, here, atol=1e-12)
    np.testing.assert_allclose(manifold.kinetic_energy(*moved), manifold.kinetic_energy(x, r), rtol=1e-12)


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", SHAPES)
def test_equal_scales_are_one_number(name, flow, key):
    """Catches scales that count a column with itself, in the flow, in a kick and in the bound of a step."""
    manifold, shape = gx.Stiefel(flow=flow), SHAPES[name]
    x, r = start(manifold, shape, key)
    one, number = jnp.ones((*shape[:-2], 3, 3)), jnp.asarray(0.4)
    for found, expected in zip(manifold.flow(x, r, 0.4 * one), manifold.flow(x, r, number), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(manifold.scaled(x, r, 0.4 * one), 0.4 * r, atol=1e-14)
    if name != "square":  # which has no directions outside
        np.testing.assert_allclose(manifold.max_time(x, 0.4 * one), manifold.max_time(x, number), rtol=1e-12)


def test_scaled_multiplies_parts(key):
    check_scaled_parts(key)


def check_scaled_parts(key) -> None:
    """Turns of two columns and moves of one out of the span, one by one."""
    x, _ = start(gx.Stiefel(), (6, 3), key)
    s, outside = scales((6, 3)), jnp.asarray(scipy.linalg.null_space(np.asarray(x).T))
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        turn = x @ jnp.zeros((3, 3)).at[i, j].set(1.0).at[j, i].set(-1.0)
        np.testing.assert_allclose(gx.Stiefel().scaled(x, turn, s), s[i, j] * turn, atol=1e-14)
    for j in range(3):
        move = jnp.zeros((6, 3)).at[:, j].set(outside[:, 0])
        np.testing.assert_allclose(gx.Stiefel().scaled(x, move, s), s[j, j] * move, atol=1e-14)


@pytest.mark.parametrize("manifold", [gx.Stiefel(metric="embedded"), gx.Stiefel(metric="literal"), gx.Sphere()])
def test_other_spaces_have_one_scale(manifold):
    like = jnp.zeros((5, 2)) if isinstance(manifold, gx.Stiefel) else jnp.zeros(5)
    assert manifold.initial_scale(like).shape == ()
    assert gx.Stiefel().initial_scale(jnp.zeros((5, 2), complex)).shape == ()


CONCENTRATED = jnp.array([[30.0, 0.0], [2.0, 5.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


@pytest.mark.thorough
@pytest.mark.parametrize("shape", [(5, 2), (3, 2)])
@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", ["hmc", "nuts", "adjusted_mclmc"])
def test_samplers_with_unequal_scales_keep_the_distribution(name, flow, shape, key):
    check_distribution(name, flow, shape, key)


def check_distribution(name: str, flow: str, shape: tuple[int, int], key) -> None:
    """Exact draws stay exact draws: moments before and after some iterations, whose differences have small errors."""
    f = CONCENTRATED[: shape[0]]
    manifold = gx.Stiefel(flow=flow)
    options = {"nuts": {}}.get(name, {"num_integration_steps": 3})
    algorithm = getattr(gx, name)(lambda x: jnp.sum(f * x), manifold=manifold, step_size=0.9, **options)
    unequal = MassMatrix(jnp.array([[0.15, 0.3], [0.3, 0.45]]))
    key_draw, key_run = jax.random.split(key)
    exact = gx.distributions.MatrixLangevin(f).sample(key_draw, 20_000)

    @jax.jit
    @jax.vmap
    def run(key, x):
        state = algorithm.init(x)._replace(scale=unequal.scale)
        for k in jax.random.split(key, 3):
            state, info = algorithm.step(k, state)
        return state.position, info.acceptance_rate

    after, acceptance = run(jax.random.split(key_run, len(exact)), exact)
    assert 0.3 < float(acceptance.mean()) < 0.97  # so that errors of the energy matter

    def statistics(x):
        x = np.asarray(x)
        return np.concatenate([x.reshape(len(x), -1), (x**2).reshape(len(x), -1), (x[:, 0] * x[:, 1])], axis=1)

    change = statistics(after) - statistics(exact)
    z = change.mean(0) / (change.std(0, ddof=1) / np.sqrt(len(change)))
    assert np.abs(z).max() < 4, np.round(z, 1)
    assert (np.abs(np.asarray(after - exact)).mean((0, 1)) > 0.02).all()  # and the draws have moved
