"""Natural-gradient methods of networks that are split over devices: equal fits, nothing whole but in the likelihood."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import geodax as gx
from geodax import nn, vi
from geodax.run.fit_chunks import Keys, build, first_carry
from geodax.run.sharding import everywhere_alike
from geodax.run.split import split_of
from tests.marks import slow
from tests.run.test_split import COLLECTIVE, largest

DATA = np.random.default_rng(8).normal(size=(32, 4))
LIKELIHOOD = nn.GaussianLikelihood()


def network(widths=(8,), dtype=jnp.float64):
    return nn.WithNoise(nn.MLP(4, 3, widths=widths, key=jax.random.key(0), dtype=dtype), 0.0, dtype=dtype)


def noisy_adam(*args, **options):
    return vi.vogn(*args, per_example=False, **options)


def fitted(key, make, start, devices=None):
    algorithm = make(start, LIKELIHOOD, 0.1, num_data=len(DATA))
    fit = vi.fit(
        jax.random.clone(key),
        start,
        LIKELIHOOD,
        (DATA, DATA[:, :3]),
        num_steps=4,
        batch_size=8,
        algorithm=algorithm,
        devices=devices,
        progress=False,
    )
    q = fit.network
    outputs = vi.predict(jax.random.key(2), q, jnp.asarray(DATA[:3]), num_samples=2)
    return q, jax.tree.map(np.asarray, (q.mean, q.sample(jax.random.key(1)), q.kl(), fit.history.elbo, outputs))


@pytest.mark.parametrize("make", [vi.ivon, vi.vogn, slow(noisy_adam)])
def test_a_fit_of_a_split_network_is_that_of_a_whole_one(key, make):
    """Catches other noise, squares of sums in place of sums of squares, and states that are whole."""
    _, one = fitted(key, make, network())
    q, two = fitted(key, make, gx.shard(network(), gx.device_mesh(chain=1, model=2)))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-10, atol=1e-12)
    for name, x in (q.family.mean | q.family.log_scale).items():
        assert (x.size % 2 == 1) == x.sharding.is_fully_replicated, name


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


def test_only_the_likelihood_gathers(key):
    """Every collective of the size of an array is a gather for the likelihood, or the scatter of its gradient."""
    mesh = gx.device_mesh(chain=1, model=2)
    start = gx.shard({str(i): jnp.ones((64, 64), jnp.float32) for i in range(2)}, mesh)

    def log_likelihood(p, x):
        return -jnp.sum(jnp.tanh(x @ p["0"] @ p["1"]) ** 2, axis=-1)

    algorithm = vi.ivon(start, log_likelihood, 0.1, num_data=16)
    split, feed = split_of("test", start, mesh, False), gx.data.batches(np.zeros((16, 64), np.float32), batch_size=8)
    advance, _ = build(algorithm, log_likelihood, feed, 16, False, (), split)
    carry = split.placed(first_carry(start, algorithm.init(start), 1, False))
    keys, fed = jax.device_put((Keys(*jax.random.split(key, 3)), feed), NamedSharding(mesh, PartitionSpec()))
    number = jax.ShapeDtypeStruct((), np.int32)
    unit = everywhere_alike(advance, mesh, PartitionSpec(), split)
    program = jax.jit(unit, donate_argnums=0).lower(carry, keys, fed, number, number).compile()
    found = {
        (kind, "shard_map" in op) for shape, kind, op in COLLECTIVE.findall(program.as_text()) if largest(shape) > 2000
    }
    assert found == {("all-gather", True), ("reduce-scatter", True)}
    state = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(carry.state))
    assert program.memory_analysis().argument_size_in_bytes < 1.1 * state / 2 + feed.data.nbytes


def test_methods_that_keep_whole_arrays_say_so(key):
    mesh = gx.device_mesh(chain=1, model=2)
    for make, start in ((vi.ivon, network()), (vi.noisy_kfac, gx.shard(network(), mesh))):
        with pytest.raises(ValueError, match=r"whole arrays, which cannot be split over \['model'\].*gx\.shard"):
            fitted(key, make, start, mesh)
