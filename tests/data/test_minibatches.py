"""Minibatches: their law, that they are a function of key and number alone, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.data.minibatches import _permuted


def rows(batches, key, count):
    return np.asarray(jax.jit(jax.vmap(lambda k, i: batches.rows(k, i), (None, 0)))(key, jnp.arange(count)))


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 1000])
def test_permutations_are_permutations(size):
    places = jnp.arange(size, dtype=jnp.uint32)
    for seed in range(5):
        words = jax.random.bits(jax.random.key(seed), (6,), jnp.uint32)
        assert sorted(np.asarray(_permuted(words, places, size)).tolist()) == list(range(size))


@pytest.mark.thorough
def test_permutations_are_uniform():
    """All 24 orders of 4 examples, and where an example of 50 goes, with the frequencies of chance."""
    words = jax.random.bits(jax.random.key(1), (24_000, 6), jnp.uint32)
    found = np.asarray(jax.vmap(lambda w: _permuted(w, jnp.arange(4, dtype=jnp.uint32), 4))(words))
    codes, counts = np.unique(found @ np.array([64, 16, 4, 1]), return_counts=True)
    assert len(codes) == 24
    assert abs(np.sum((counts - 1000) ** 2 / 1000) - 23) < 4 * np.sqrt(46)
    found = np.asarray(jax.vmap(lambda w: _permuted(w, jnp.arange(50, dtype=jnp.uint32), 50))(words))
    for place in (0, 1, 24, 49):
        counts = np.bincount(found[:, place], minlength=50)
        assert abs(np.sum((counts - 480) ** 2 / 480) - 49) < 4 * np.sqrt(98)
    # neighbours in the pass are not neighbours in the data
    near = np.mean(np.abs(found[:, 1:] - found[:, :-1]) == 1)
    assert abs(near - 2 / 50) < 0.002


@pytest.mark.thorough
@pytest.mark.parametrize("size", [3, 5, 6, 7, 9, 16])
def test_few_examples_are_left_out_equally_often(size):
    """Catches weights of single examples that are wrong by two per cent in the long run."""
    batches = gx.data.batches(jnp.arange(float(size)), batch_size=size - 1, order="epochs")
    epochs = jax.random.split(jax.random.key(1), 100_000)
    seen = np.asarray(jax.jit(jax.vmap(lambda key: batches.rows(key, jnp.zeros((), jnp.int32))))(epochs))
    left = len(seen) - np.bincount(seen.ravel(), minlength=size)
    expected = len(seen) / size
    assert np.sum((left - expected) ** 2 / expected) - (size - 1) < 4 * np.sqrt(2 * (size - 1))


def test_an_epoch_sees_each_example_once(key):
    batches = gx.data.batches(jnp.arange(103.0), batch_size=10, order="epochs")
    assert batches.num_an_epoch == batches.cycle.num_batches == 10
    np.testing.assert_allclose(batches.cycle.left_out, 3 / 103)
    seen = rows(batches, key, 30).reshape(3, 100)
    assert all(len(set(epoch)) == 100 for epoch in seen.tolist())
    assert (seen[0] != seen[1]).any()
    assert len(set(seen.ravel().tolist())) == 103, "those left over take their turn in another pass"


def test_symmetric_passes_turn_back(key):
    batches = gx.data.batches(jnp.arange(103.0), batch_size=10, order="symmetric")
    seen = rows(batches, key, 40).reshape(4, 10, 10)
    np.testing.assert_array_equal(seen[1], seen[0, ::-1])
    np.testing.assert_array_equal(seen[3], seen[2, ::-1])
    assert (seen[0] != seen[2]).any()
    assert len(set(seen[0].ravel().tolist())) == 100


def test_independent_batches_are_uniform(key):
    batches = gx.data.batches(jnp.arange(20.0), batch_size=10)
    counts = np.bincount(rows(batches, key, 10_000).ravel(), minlength=20)
    assert abs(np.sum((counts - 5000) ** 2 / 5000) - 19) < 4 * np.sqrt(38)


@pytest.mark.parametrize("order", ["independent", "epochs", "symmetric"])
def test_a_batch_of_all_examples_has_each_of_them_once(key, order):
    batches = gx.data.batches(jnp.arange(20.0), batch_size=20, order=order)
    np.testing.assert_array_equal(np.sort(rows(batches, key, 3)), np.broadcast_to(np.arange(20), (3, 20)))


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["independent", "epochs", "symmetric"])
def test_a_batch_is_a_function_of_key_and_number(key, order):
    data = {"x": jnp.arange(60.0).reshape(30, 2), "y": jnp.arange(30)}
    batches = gx.data.batches(data, batch_size=7, order=order)
    first = batches.draw(key, jnp.int32(11))
    again = jax.jit(lambda k: batches.draw(k, jnp.int32(11)))(jax.random.clone(key))
    other = batches.draw(jax.random.fold_in(key, 1), jnp.int32(11))
    np.testing.assert_array_equal(first["y"], again["y"])
    np.testing.assert_array_equal(first["x"][:, 0], 2 * np.asarray(first["y"]))
    assert (first["y"] != other["y"]).any()


@pytest.mark.parametrize(
    ("data", "settings", "error", "message"),
    [
        ({"x": jnp.zeros((5, 2)), "y": jnp.zeros(4)}, {"batch_size": 2}, ValueError, "x: 5, y: 4"),
        (jnp.zeros(5), {"batch_size": 6}, ValueError, "between 1 and 5"),
        (jnp.zeros(5), {"batch_size": 0}, ValueError, "between 1 and 5"),
        (jnp.zeros(()), {"batch_size": 1}, ValueError, "is a scalar"),
        ({}, {"batch_size": 1}, ValueError, "no array"),
        (jnp.zeros(5), {"batch_size": 2, "order": "sorted"}, ValueError, "order must be one of"),
    ],
)
def test_arguments_are_checked(data, settings, error, message):
    with pytest.raises(error, match=message):
        gx.data.batches(data, **settings)


class TestStream:
    def counted(self, first):
        while True:
            yield {"x": np.full((3, 2), float(first))}
            first += 1

    def test_it_goes_on_and_goes_back(self):
        stream = gx.data.stream(self.counted)
        np.testing.assert_array_equal(stream.read(0, 4)["x"][:, 0, 0], [0, 1, 2, 3])
        np.testing.assert_array_equal(stream.read(4, 2)["x"][:, 0, 0], [4, 5])
        np.testing.assert_array_equal(stream.read(2, 2)["x"][:, 0, 0], [2, 3])

    def test_a_start_that_takes_no_number_is_refused(self):
        with pytest.raises(TypeError, match="start must be a function from the number of a batch"):
            gx.data.stream(lambda: iter([]))
        assert gx.data.stream(lambda number, size=3: iter([])).position == 0

    def test_an_end_is_reported(self):
        stream = gx.data.stream(lambda first: iter([np.zeros(2), np.zeros(2)][first:]))
        with pytest.raises(ValueError, match="ended before batch 2"):
            stream.read(0, 3)

    def test_a_last_batch_that_is_short_is_reported(self):
        stream = gx.data.stream(lambda first: iter([np.zeros(2), np.zeros(1)][first:]))
        with pytest.raises(ValueError, match="2 kinds"):
            stream.read(0, 2)


@pytest.mark.parametrize("shift", [0, 1])
def test_arrays_are_copied(shift):
    room = np.zeros(2**23 + 32, np.float32)
    first = -(room.ctypes.data // 4) % 16 + shift  # JAX may share memory that begins at a multiple of 64 bytes
    data = room[first : first + 2**23, None]
    held = gx.data.batches(data, batch_size=8).data
    data += 1.0
    assert not np.asarray(held).any()
