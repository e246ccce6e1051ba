"""Predictions at positions that are split over devices: equal numbers, nothing whole on a device outside the function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import nn
from geodax._tree import leaf_names
from geodax.predict import evaluation
from geodax.predict.predictive import predict_classes, predict_numbers
from geodax.run.draws import to_datatree
from geodax.run.positions import position_variables, split_positions_at
from geodax.run.split import split_of
from tests.run.test_devices import on_eight_devices
from tests.run.test_split import COLLECTIVE, largest

X = np.random.default_rng(1).normal(size=(6, 3))


def network():
    return nn.MLP(3, 4, widths=(8,), dtype=jnp.float64, key=jax.random.key(0))


def positions():
    """Draws with the axes chain and draw."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(2, 5, *leaf.shape))), network())


def tree_of(draws):
    return to_datatree({"posterior": dict(zip(leaf_names(draws), jax.tree.leaves(draws), strict=True))})


def split_draws(draws, like):
    """Each array of the draws is split like that of the position."""

    def place(x, one):
        spec = jax.sharding.PartitionSpec(None, None, *one.sharding.spec)
        return jax.device_put(x, jax.sharding.NamedSharding(one.sharding.mesh, spec))

    return jax.tree.map(place, draws, like)


def compare(mesh):
    like, draws = gx.shard(network(), mesh), positions()
    (expected,) = evaluation.evaluate(draws, network(), X)
    for given, options in (
        (jax.tree.map(np.asarray, draws), {"batch_size": 4}),
        (split_draws(draws, like), {"block_bytes": 1}),
        (tree_of(split_draws(draws, like)), {}),
    ):
        found = np.concatenate(list(evaluation.evaluate(given, like, X, **options)))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    classes = predict_classes(split_draws(draws, like), like, X)
    np.testing.assert_allclose(classes.epistemic, predict_classes(draws, network(), X).epistemic, rtol=1e-7, atol=1e-12)
    options = {"noise": 0.5, "apply": lambda p, x: jax.vmap(p)(x)[:, 0], "first": 1, "every": 3}
    numbers = predict_numbers(split_draws(draws, like), like, X, **options)
    np.testing.assert_allclose(numbers.mean, predict_numbers(draws, network(), X, **options).mean, rtol=1e-10)


@pytest.mark.thorough
def test_predictions_at_split_positions_are_those_at_whole_ones():
    """Catches chains taken for draws, blocks that lose a draw, and entries read into another's place."""
    compare(gx.device_mesh(chain=1, model=2))


def test_no_device_and_no_read_has_a_whole_array(monkeypatch):
    """Catches draws that are read or placed whole, and a function that gathers weights where outputs do."""
    mesh = gx.device_mesh(chain=1, model=2)
    like = gx.shard({"w": jnp.ones((64, 64)), "v": jnp.ones((64, 64))}, mesh)
    draws = {name: np.ones((2, 3, 64, 64)) for name in like}
    variables = position_variables("test", to_datatree({"posterior": draws}), like)
    made, make = [], jax.make_array_from_callback
    monkeypatch.setattr(
        jax, "make_array_from_callback", lambda s, p, f: make(s, p, lambda i: made.append(f(i).size) or f(i))
    )
    placed = split_positions_at(variables, like, slice(0, 3), split_of("test", like, mesh, False))
    assert set(made) == {2 * 3 * 64 * 32}
    assert all(x.addressable_shards[0].data.size == 2 * 3 * 64 * 32 for x in jax.tree.leaves(placed))
    seen, compiled = [], evaluation.compiled

    def kept(function, *args, **options):
        seen.append(jax.jit(function).lower(*args).compile().as_text())
        return compiled(function, *args, **options)

    monkeypatch.setattr(evaluation, "compiled", kept)
    (found,) = evaluation.evaluate(draws, like, np.ones((4, 64)), apply=lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"])
    assert found.shape == (6, 4, 64)
    assert max(largest(shape) for shape, *_ in COLLECTIVE.findall(seen[0])) <= 6 * 4 * 64


def test_draws_that_are_split_otherwise_are_refused():
    draws = split_draws(positions(), gx.shard(network(), gx.device_mesh(chain=1, model=2)))
    with pytest.raises(ValueError, match=r"the draws are split over the mesh .* but like= is whole"):
        predict_classes(draws, network(), X)
    with pytest.raises(
        ValueError, match=r"with the leading axes chain and draw, found layers\.0\.bias of shape \(8,\)"
    ):
        predict_classes(network(), network(), X)


SCRIPT = """
import jax
jax.config.update("jax_enable_x64", True)
import geodax as gx
from tests.predict.test_split_predictions import compare

for chain, data, model in ((1, 1, 2), (1, 1, 4), (1, 1, 8), (2, 2, 2), (1, 2, 4)):
    compare(gx.device_mesh(chain=chain, data=data, model=model, devices=jax.devices()[: chain * data * model]))
print("finished")
"""


@pytest.mark.slow
def test_up_to_eight_devices():
    on_eight_devices(SCRIPT, 600)
