"""Natural-gradient methods of networks that are split over devices: equal fits, nothing whole but in the likelihood."""

import textwrap

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import geodax as gx
from geodax import nn, vi
from geodax.run.feeding import make_step_feed
from geodax.run.fit_chunks import Keys, build, first_carry
from geodax.run.sharding import everywhere_alike
from geodax.run.split import split_of
from geodax.vi.eigenbases import on_devices_in_turn
from tests.marks import slow
from tests.run.test_devices import on_eight_devices
from tests.run.test_split import COLLECTIVE, largest

DATA = np.random.default_rng(8).normal(size=(32, 4))
LIKELIHOOD = nn.GaussianLikelihood()


def network(widths=(8,), dtype=jnp.float64):
    return nn.WithNoise(nn.MLP(4, 3, widths=widths, key=jax.random.key(0), dtype=dtype), 0.0, dtype=dtype)


def noisy_adam(*args, **options):
    return vi.vogn(*args, per_example=False, **options)


def fitted(key, make, start, devices=None, **settings):
    algorithm = make(start, LIKELIHOOD, 0.1, num_data=len(DATA))
    fit = vi.fit(
        jax.random.clone(key),
        start,
        LIKELIHOOD,
        (DATA, DATA[:, :3]),
        algorithm=algorithm,
        devices=devices,
        **({"num_steps": 4, "batch_size": 8, "progress": False} | settings),
    )
    q = fit.network
    outputs = vi.predict(jax.random.key(2), q, jnp.asarray(DATA[:3]), num_samples=2)
    return q, jax.tree.map(np.asarray, (q.mean, q.sample(jax.random.key(1)), q.kl(), fit.history.elbo, outputs))


@pytest.mark.thorough
@pytest.mark.parametrize("make", [vi.ivon, vi.vogn, slow(noisy_adam)])
def test_a_fit_of_a_split_network_is_that_of_a_whole_one(key, make):
    """Catches other noise, squares of sums in place of sums of squares, and states that are whole."""
    _, one = fitted(key, make, network())
    q, two = fitted(key, make, gx.shard(network(), gx.device_mesh(chain=1, model=2)))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-10, atol=1e-12)
    for name, x in (q.family.mean | q.family.log_scale).items():
        assert (x.size % 2 == 1) == x.sharding.is_fully_replicated, name


@pytest.mark.thorough
@pytest.mark.parametrize("widths", [(8,), slow((80, 80))])
def test_noisy_kfac_of_a_split_network(key, widths):
    """Beyond the first eigenvectors, after 8 steps; catches other targets or noise, and factors that are whole."""
    mesh, start = gx.device_mesh(chain=1, model=2), network(widths)
    settings = {"num_steps": 10, "batch_size": 32}  # enough examples for eigenvectors that rounding does not choose
    _, one = fitted(key, vi.noisy_kfac, start, **settings)
    q, two = fitted(key, vi.noisy_kfac, gx.shard(start, mesh), **settings)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-10)
    if widths == (8,):  # the examples of a data axis have the same targets, too
        _, two = fitted(key, vi.noisy_kfac, start, gx.device_mesh(chain=1, data=2), **settings)
        for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-10)
    for x in jax.tree.leaves(q.layers):
        assert (len(x) % 2 == 1) == x.sharding.is_fully_replicated, x.shape
    for x, y in zip(jax.tree.leaves(q.mean), jax.tree.leaves(gx.shard(start, mesh)), strict=True):
        assert x.sharding.is_fully_replicated == y.sharding.is_fully_replicated, x.shape


@pytest.mark.thorough
def test_draws_of_split_arrays_are_those_of_the_vector(key):
    """Catches counters of the generator that begin anew in each array, and densities without an array."""
    plain = network(widths=(64,), dtype=jnp.float32)
    whole = vi.GaussianOver(plain, points=["*log_noise"])
    split = vi.GaussianOver(gx.shard(plain, gx.device_mesh(chain=1, model=2)), points=["*log_noise"])
    assert not isinstance(split.family, vi.DiagonalGaussian)
    draw = whole.sample(key)
    for x, y in zip(jax.tree.leaves(draw), jax.tree.leaves(split.sample(jax.random.clone(key))), strict=True):
        np.testing.assert_allclose(np.asarray(y), np.asarray(x), rtol=1e-6)
    np.testing.assert_allclose(split.log_prob(draw), whole.log_prob(draw), rtol=1e-5)
    np.testing.assert_allclose(split.kl(), whole.kl(), rtol=1e-5)


def program_of(algorithm, likelihood, start, mesh, feed, num_data):
    """The program of a chunk of steps, the size of the state, and that of the arguments beside it."""
    split = split_of("test", eqx.filter(start, eqx.is_inexact_array), mesh, False)
    advance, _ = build(algorithm, likelihood, make_step_feed(feed, None, None).draw, num_data, False, (), split)
    carry = split.placed(first_carry(start, algorithm.init(start), 1, False))
    keys = Keys(*jax.random.split(jax.random.key(0), 3))
    keys, fed = jax.device_put((keys, feed), NamedSharding(mesh, PartitionSpec()))
    number = jax.ShapeDtypeStruct((), np.int32)
    unit = everywhere_alike(advance, mesh, PartitionSpec(), split)
    program = jax.jit(unit, donate_argnums=0).lower(carry, keys, fed, number, number).compile()
    return program, sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(carry.state)), feed.data.nbytes


def test_only_the_likelihood_gathers():
    """Every collective of the size of an array is a gather for the likelihood, or the scatter of its gradient."""
    mesh = gx.device_mesh(chain=1, model=2)
    start = gx.shard({str(i): jnp.ones((64, 64), jnp.float32) for i in range(2)}, mesh)

    def log_likelihood(p, x):
        return -jnp.sum(jnp.tanh(x @ p["0"] @ p["1"]) ** 2, axis=-1)

    algorithm, feed = vi.ivon(start, log_likelihood, 0.1, num_data=16), of_zeros(64)
    program, state, others = program_of(algorithm, log_likelihood, start, mesh, feed, 16)
    found = {
        (kind, "shard_map" in op) for shape, kind, op in COLLECTIVE.findall(program.as_text()) if largest(shape) > 2000
    }
    assert found == {("all-gather", True), ("reduce-scatter", True)}
    assert program.memory_analysis().argument_size_in_bytes < 1.1 * state / 2 + others


@pytest.mark.thorough
def test_noisy_kfac_gathers_for_the_likelihood_and_for_new_eigenvectors():
    """Catches factors that are whole between steps, means that are products of gathered factors in each step."""
    mesh, likelihood = gx.device_mesh(chain=1, model=2), lambda f, x: -jnp.sum(jax.vmap(f)(x) ** 2, axis=-1)
    start = gx.shard(nn.MLP(96, 96, widths=(96,), key=jax.random.key(0), dtype=jnp.float32), mesh)
    algorithm = vi.noisy_kfac(start, likelihood, 0.1, num_data=16)
    program, state, others = program_of(algorithm, likelihood, start, mesh, of_zeros(96), 16)
    found = [(k, op) for shape, k, op in COLLECTIVE.findall(program.as_text()) if largest(shape) > 2000]
    often = {(kind, "shard_map" in op) for kind, op in found if "/cond/" not in op}
    assert often == {("all-gather", True), ("reduce-scatter", True)}
    assert [kind for kind, op in found if "/cond/" not in op].count("reduce-scatter") == 6
    assert program.memory_analysis().argument_size_in_bytes < 1.1 * state / 2 + others


def test_each_matrix_is_decomposed_on_one_device():
    calls = []

    def function(matrix):
        jax.debug.callback(lambda x: calls.append(float(x)), matrix[0, 0])
        return 2.0 * matrix

    def within(matrices):
        return on_devices_in_turn(function, matrices)

    matrices = [jnp.full((3, 3), i + 1.0) for i in range(3)]
    mesh, everywhere = gx.device_mesh(chain=1, model=2), PartitionSpec()
    over = jax.shard_map(
        within, mesh=mesh, in_specs=everywhere, out_specs=everywhere, axis_names={"chain"}, check_vma=False
    )
    found = jax.block_until_ready(jax.jit(over)(matrices))
    jax.effects_barrier()
    assert sorted(calls) == [1.0, 2.0, 3.0]
    for x, y in zip(found, matrices, strict=True):
        np.testing.assert_array_equal(x, 2.0 * y)


def of_zeros(size):
    return gx.data.batches(np.zeros((16, size), np.float32), batch_size=8)


def test_methods_made_with_a_whole_network_say_so(key):
    mesh = gx.device_mesh(chain=1, model=2)
    for make in (vi.ivon, vi.noisy_kfac):
        with pytest.raises(ValueError, match=r"whole arrays, which cannot be split over \['model'\].*gx\.shard"):
            fitted(key, make, network(), mesh)


SCRIPT = textwrap.dedent(
    """
    import sys, tempfile
    import jax, numpy as np
    jax.config.update("jax_enable_x64", True)
    import geodax as gx
    from geodax import vi
    from tests.vi.test_split_networks import fitted, network

    class EnoughError(Exception):
        pass

    def stop(progress):
        if progress.iteration >= 9:
            raise EnoughError

    settings = {"num_steps": 12, "batch_size": 32, "window": 3}
    found = lambda start, mesh=None, **more: fitted(jax.random.key(3), vi.noisy_kfac, start, mesh, **settings, **more)[1]
    start = network((80, 80))
    one = found(start)

    def check(mesh, name, **more):
        both = zip(jax.tree.leaves(one), jax.tree.leaves(found(gx.shard(start, mesh), **more)), strict=True)
        for x, y in both:
            np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-8, err_msg=name)

    meshes = [(2, 4), (1, 8), (1, 4), (1, 2)]
    meshes = [gx.device_mesh(chain=1, data=d, model=m, devices=jax.devices()[: d * m]) for d, m in meshes]
    for mesh in meshes:
        check(mesh, str(mesh))
    with tempfile.TemporaryDirectory() as folder:
        try:
            found(gx.shard(start, meshes[0]), checkpoint=folder, progress=stop)
        except EnoughError:
            check(meshes[1], "resumed", checkpoint=folder)
            print("finished")
    """
)


@pytest.mark.slow
def test_noisy_kfac_on_eight_devices():
    """As model=8 and data=2, model=4, interrupted on one mesh after new eigenvectors and resumed on another."""
    on_eight_devices(SCRIPT, 900)
