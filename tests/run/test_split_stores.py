"""Draws of split positions in a store: chunks of one device each, equal draws, resumes on other meshes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.sharding import NamedSharding, PartitionSpec

import geodax as gx
from geodax.predict.evaluation import evaluate
from geodax.run import zarr_files
from geodax.run.draws import open_draws
from geodax.run.shards import Shards, first_with, joined, sender
from tests.run.test_split import COLLECTIVE, DATA, assert_equal, draws, largest, posterior, start


def run(key, position, path, num_samples=6, devices=None, **settings):
    algorithm = gx.sgrld(posterior(), metric=gx.metrics.RMSProp(), step_size=1e-3)
    given = {"store": path / "draws", "checkpoint": path / "run", "num_samples": num_samples} | settings
    return draws(key, algorithm, position, devices, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(jax.random.key(3), start(), tmp_path_factory.mktemp("whole"), devices=jax.devices()[:1])


def split():
    return gx.shard(start(), gx.device_mesh(chain=1, model=2))


@pytest.mark.thorough
def test_chunks_are_those_of_devices_and_draws_those_of_one_device(whole, tmp_path, monkeypatch):
    """Catches draws that are gathered before they are written, and parts that are put together in another order."""
    written, write = [], zarr_files.write_chunk
    monkeypatch.setattr(
        zarr_files,
        "write_chunk",
        lambda folder, layout, index, x: written.append(x.shape) or write(folder, layout, index, x),
    )
    found = run(jax.random.key(3), split(), tmp_path)
    assert_equal(found, whole)
    assert {shape[2:] for shape in written if len(shape) == 4} == {(4, 4), (4, 3)}
    layouts = zarr_files.read_layouts(tmp_path / "draws")
    assert {name.split("/")[1]: layout.parts for name, layout in layouts.items() if layout.parts} == {
        "w": (1, 1, 2),
        "v": (1, 2, 1),
    }
    for tree in (
        open_draws(tmp_path / "draws"),
        xr.open_datatree(tmp_path / "draws", engine="zarr", consolidated=False),
    ):
        assert_equal({name: tree["posterior"][name].values for name in whole}, whole)
    some = open_draws(tmp_path / "draws")["posterior"]["w"][[1], ::-2, 1:, [7, 0, 3]].values
    np.testing.assert_array_equal(some, found["w"][[1], ::-2][:, :, 1:, [7, 0, 3]])
    # each device reads its own chunks
    read, reading = [], zarr_files.read_chunk
    monkeypatch.setattr(zarr_files, "read_chunk", lambda *args: read.append(args[1].file(args[2])) or reading(*args))
    (values,) = evaluate(
        tmp_path / "draws", split(), DATA[:3], apply=lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"] + p["b"][None]
    )
    assert sorted(name for name in read if "/w/" in name) == ["posterior/w/c/0/0/0/0", "posterior/w/c/0/0/0/1"]
    expected = np.tanh(DATA[:3] @ whole["w"]) @ whole["v"] + whole["b"][:, :, None]
    np.testing.assert_allclose(values, expected.swapaxes(0, 1).reshape(-1, 3, 3), rtol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "after"), [("split", "one"), ("one", "split")])
def test_a_store_goes_on_on_another_mesh(whole, tmp_path, before, after):
    """Catches chunks that are written in the shape of other devices than those of the store."""
    places = {"split": (split(), None), "one": (start(), jax.devices()[:1])}
    for name, num_samples in ((before, 3), (after, 6)):
        position, devices = places[name]
        found = run(jax.random.key(3), position, tmp_path, num_samples, devices)
    assert_equal(found, whole)


def test_the_writer_of_a_chunk_is_the_first_process_that_has_it():
    """Catches chunks without a writer, and with two."""

    boxes = {0: {((0, 3), (0, 2)), ((0, 3), (2, 4))}, 1: {((0, 3), (4, 6)), ((0, 3), (6, 8)), ((0, 3), (0, 2))}}
    regions = {(0, 2): 0, (2, 4): 0, (1, 3): 0, (4, 8): 1, (0, 8): None, (3, 5): None}
    assert {region: first_with(boxes, ((0, 3), region)) for region in regions} == regions


def test_regions_are_put_together_from_devices():
    mesh = gx.device_mesh(chain=1, model=2)
    values = np.arange(4 * 2 * 3 * 8.0).reshape(4, 2, 3, 8)
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, None, None, "model"))
    rows = Shards(jax.device_put(values, place), 3)
    assert rows.shape == (2, 3, 3, 8)
    region = (slice(0, 2), slice(1, 3), slice(0, 3), slice(3, 6))
    np.testing.assert_array_equal(rows[region], values.swapaxes(0, 1)[region])


def test_what_warm_up_learns_reaches_hosts_by_shard():
    """Catches arrays that are whole on a device on their way, and shards that are put together in another order."""
    mesh = gx.device_mesh(chain=1, model=2)
    x = jnp.asarray(np.random.default_rng(2).normal(size=(3, 8, 32)))
    for spec in (
        PartitionSpec(None, "model"),
        PartitionSpec("chain", None, "model"),
        PartitionSpec(None, ("chain", "model")),
    ):
        split = jax.device_put(x, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(joined(split), x)
        text = sender(split.sharding).lower(split, np.int32(0)).compile().as_text()
        assert max(largest(shape) for shape, *_ in COLLECTIVE.findall(text)) == x.size // 2
