"""What a store has beside the draws: what warm-up has learned, other groups, and names and labels of axes."""

import json
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import geodax as gx
from geodax.run import group_files
from geodax.run.draws import ZarrDraws, open_draws
from geodax.run.errors import StorageError
from geodax.run.store_layouts import checksum_of

SCALES = jnp.array([0.1, 1.0, 10.0])
SETTINGS = {"num_warmup": 60, "num_samples": 40, "num_chains": 2, "progress": False}


def run(seed=1, *, sampler=gx.nuts, logdensity=lambda x: -0.5 * jnp.sum((x / SCALES) ** 2), **settings):
    return gx.sample(jax.random.key(seed), sampler(logdensity), jnp.zeros(3), **SETTINGS | settings)


def untuned(logdensity):
    return gx.nuts(logdensity, step_size=0.1)


def assert_identical(found: xr.DataTree, expected: xr.DataTree):
    """The same groups with the same variables, names and labels of axes."""
    assert set(found.children) == set(expected.children)
    for group in expected.children:
        xr.testing.assert_identical(found[group].to_dataset(), expected[group].to_dataset())
    assert found.attrs == expected.attrs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store, and the result in memory."""
    path = tmp_path_factory.mktemp("whole") / "d"
    run(store=path)
    return path, run()


@pytest.fixture
def path(whole, tmp_path):
    return Path(shutil.copytree(whole[0], tmp_path / "d"))


def make_old(path):
    """Make a store as it was before it had further groups."""
    group_files.remove_groups(path)
    change_record(path)


def change_record(path, **changes):
    """Change the record of the whole arrays, with a checksum that fits."""
    root = json.loads((path / "zarr.json").read_text())
    record = json.loads(root["attributes"]["geodax_record"].partition(" ")[2])
    del record["arrays"]
    text = json.dumps(record | changes)
    root["attributes"]["geodax_record"] = f"{checksum_of(text.encode()).hex()} {text}"
    (path / "zarr.json").write_text(json.dumps(root))


# ------------------------------------------------------------------------------------------------- warm starts


@pytest.mark.thorough
def test_a_store_has_what_warm_up_has_learned(tmp_path):
    tree = run(store=tmp_path / "d")
    assert {"step_size", "scale", "correlation.roots"} <= set(tree["adaptation"].data_vars)
    assert_identical(open_draws(tmp_path / "d"), tree)
    with xr.open_datatree(tmp_path / "d", engine="zarr", consolidated=False) as opened:
        xr.testing.assert_equal(opened["adaptation"].to_dataset(), tree["adaptation"].to_dataset())


@pytest.mark.thorough
def test_a_store_begins_another_run(path, whole):
    """The opened store, its group as a tree and as a dataset: the same draws as from the result in memory."""
    expected = run(2, warm_start=whole[1], num_warmup=0)["posterior"]["position"]
    opened = open_draws(path)
    for warm_start in (opened, opened["adaptation"], opened["adaptation"].to_dataset(), whole[1]["adaptation"]):
        np.testing.assert_array_equal(run(2, warm_start=warm_start, num_warmup=0)["posterior"]["position"], expected)


def test_a_group_of_draws_begins_no_run(whole):
    with pytest.raises(ValueError, match=r"no 'step_size', which this sampler tunes"):
        run(2, warm_start=whole[1]["posterior"].to_dataset())


def test_an_old_store_opens_and_begins_no_run(path, whole):
    make_old(path)
    opened = open_draws(path)
    assert set(opened.children) == {"posterior", "sample_stats"}
    np.testing.assert_array_equal(opened["posterior"]["position"], whole[1]["posterior"]["position"])
    with pytest.raises(
        TypeError, match=r"with a group 'adaptation'.* found a tree with the groups \['posterior', 'sam"
    ):
        run(2, warm_start=opened, num_warmup=0)


def test_the_same_call_completes_an_old_store(tmp_path):
    """As the message for an old store says."""
    tree = run(checkpoint=tmp_path)
    make_old(tmp_path / "draws.zarr")
    run(checkpoint=tmp_path)
    xr.testing.assert_identical(
        open_draws(tmp_path / "draws.zarr")["adaptation"].to_dataset(), tree["adaptation"].to_dataset()
    )


# ------------------------------------------------------------------------------------------------- interruptions


class StoppedError(Exception):
    pass


def stop_after(iteration):
    def report(progress):
        if progress.iteration >= iteration:
            raise StoppedError

    return report


@pytest.mark.thorough
@pytest.mark.parametrize("iteration", [10, 70], ids=["warm-up", "draws"])
def test_a_run_that_goes_on_has_the_group_at_its_end(tmp_path, monkeypatch, whole, iteration):
    monkeypatch.setattr("geodax.run.driver._SECONDS_PER_CHUNK", 1e-9)
    options = {"checkpoint": tmp_path / "c", "store": tmp_path / "d"}
    with pytest.raises(StoppedError):
        run(**options, progress=stop_after(iteration))
    assert set(open_draws(tmp_path / "d").children) == {"posterior", "sample_stats"}
    run(**options)
    found, expected = open_draws(tmp_path / "d"), whole[1]
    for group in ("posterior", "adaptation"):
        xr.testing.assert_equal(found[group].to_dataset(), expected[group].to_dataset())


@pytest.mark.thorough
def test_an_extension_has_the_group_again_at_its_end(tmp_path, monkeypatch, whole):
    """Catches a group that is lost where a finished run goes on, and one that describes other draws meanwhile."""
    monkeypatch.setattr("geodax.run.driver._SECONDS_PER_CHUNK", 1e-9)
    run(checkpoint=tmp_path)
    store = tmp_path / "draws.zarr"
    longer = {"checkpoint": tmp_path, "num_samples": 60}
    with pytest.raises(StoppedError):
        run(**longer, progress=stop_after(110))
    assert "adaptation" not in open_draws(store).children
    assert not (store / "adaptation").exists()
    run(**longer)
    assert open_draws(store)["posterior"].sizes["draw"] == 60
    xr.testing.assert_equal(open_draws(store)["adaptation"].to_dataset(), whole[1]["adaptation"].to_dataset())


def test_a_full_disk_leaves_the_draws(tmp_path, monkeypatch):
    def fill_up(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(group_files, "_write_group", fill_up)
        with pytest.raises(StorageError, match=r"could not be added to .*No space left.*make the same call again"):
            run(checkpoint=tmp_path)
    assert open_draws(tmp_path / "draws.zarr")["posterior"].sizes["draw"] == 40
    tree = run(checkpoint=tmp_path)
    assert_identical(open_draws(tmp_path / "draws.zarr"), tree)


# ------------------------------------------------------------------------------------------------- groups and axes


def finished(path, num_draws=7):
    """A store of zeros."""
    shapes = {"posterior": {"w": ((3, 2), np.dtype("float32"))}, "sample_stats": {"lp": ((), np.dtype("float32"))}}
    store = ZarrDraws(path, shapes, 2, num_draws, is_own=True)
    store.write(0, {g: {n: np.zeros((2, num_draws, *s), d) for n, (s, d) in of.items()} for g, of in shapes.items()})
    store.describe({})
    return store


def test_arrays_of_all_shapes(tmp_path):
    like = np.random.default_rng(0).normal(size=(2, 7, 4))
    numbers = {"chain": np.arange(2), "draw": np.arange(7)}
    groups = {
        "observed_data": xr.Dataset({"n": ((), np.int32(3)), "flag": ("row", [True, False])}, {"row": ["a", "b"]}),
        "adaptation": xr.Dataset({"none": (("chain", "k", "m"), np.zeros((2, 3, 0))), "v": ("chain", [1.5, np.nan])}),
        "log_likelihood": xr.Dataset({"y": (("chain", "draw", "row"), like)}, numbers),
    }
    finished(tmp_path).add(groups)
    for name, expected in groups.items():
        xr.testing.assert_identical(open_draws(tmp_path)[name].to_dataset(), expected)
    part = open_draws(tmp_path, 3)["log_likelihood"]
    np.testing.assert_array_equal(part["y"].isel(chain=1, draw=[2, 0]), like[1, [2, 0]])
    assert part.sizes["draw"] == 3
    with xr.open_datatree(tmp_path, engine="zarr", consolidated=False) as opened:
        assert opened["log_likelihood"]["y"].dims == ("chain", "draw", "row")
        assert opened["observed_data"]["n"] == 3


def test_numbers_that_numpy_lacks_are_single_precision(tmp_path):
    values = np.asarray(jnp.asarray([1.5, 2.0], jnp.bfloat16))
    finished(tmp_path).add({"adaptation": xr.Dataset({"v": ("chain", values)})})
    found = open_draws(tmp_path)["adaptation"]["v"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [1.5, 2.0])


LABELS = {
    "strings": ["a", "ä", ""],
    "numbers": np.array([0.5, np.nan, 2.0], np.float32),
    "integers": [3, -1, 2**40],
    "flags": [True, False, True],
    "dates": np.array(["2024-02-29", "NaT", "1969-01-01"], "datetime64[ns]"),
}


@pytest.mark.parametrize("name", LABELS)
def test_axes_have_names_and_labels(tmp_path, name):
    named = xr.Dataset({"w": (("chain", "draw", "row", "column"), np.zeros((2, 7, 3, 2)))}, {"row": LABELS[name]})
    finished(tmp_path).add({"posterior": named})
    found = open_draws(tmp_path)["posterior"]["w"]
    assert found.dims == ("chain", "draw", "row", "column")
    xr.testing.assert_identical(found["row"], named["row"])
    assert open_draws(tmp_path).attrs == {}
    with xr.open_datatree(tmp_path, engine="zarr", consolidated=False) as opened:
        assert opened["posterior"]["w"].dims == found.dims


def test_names_stay_where_the_run_goes_on_and_are_replaced(tmp_path):
    def named(*axes, **labels):
        return {"posterior": xr.Dataset({"w": (("chain", "draw", *axes), np.zeros((2, 7, 3, 2)))}, labels)}

    finished(tmp_path).add(named("row", "column", row=list("abc")))
    shapes = {"posterior": {"w": ((3, 2), np.dtype("float32"))}, "sample_stats": {"lp": ((), np.dtype("float32"))}}
    store = ZarrDraws(tmp_path, shapes, 2, 9, num_kept=7)
    assert open_draws(tmp_path)["posterior"]["w"].sel(row="b").dims == ("chain", "draw", "column")
    store.describe({})
    store.add(named("column", "row"))
    assert open_draws(tmp_path)["posterior"]["w"].dims == ("chain", "draw", "column", "row")
    assert "row" not in open_draws(tmp_path)["posterior"].coords
    finished(tmp_path)
    assert open_draws(tmp_path)["posterior"]["w"].dims == ("chain", "draw", "w_dim_0", "w_dim_1")


# ------------------------------------------------------------------------------------------------- damage


def rewrite(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def replace(path):
    """Other numbers with a checksum that fits."""
    file = path / "adaptation/scale/c/0/0"
    raw = bytes(len(file.read_bytes()) - 4)
    file.write_bytes(raw + checksum_of(raw))


DAMAGE = {
    "lost": (lambda path: (path / "adaptation/scale/c/0/0").unlink(), r"adaptation/scale/c/0/0 is missing"),
    "cut": (lambda path: os.truncate(path / "adaptation/scale/c/0/0", 9), r"has 9 bytes, expected"),
    "replaced": (replace, r"adaptation/scale/c/0/0 is not the array that was written last"),
    "larger": (lambda path: rewrite(path / "adaptation/scale/zarr.json", shape=[2, 10**12]), r"scale/zarr.json is not"),
    "object": (
        lambda path: rewrite(path / "adaptation/scale/zarr.json", data_type="object"),
        r"scale/zarr.json is not",
    ),
    "names": (
        lambda path: rewrite(path / "adaptation/scale/zarr.json", dimension_names=["chain", "chain"]),
        r"2 different names",
    ),
    "elsewhere": (
        lambda path: change_record(path, arrays={"adaptation/../posterior/chain": "0"}),
        r"posterior/chain/zarr.json is not a description",
    ),
    "of draws": (
        lambda path: change_record(path, arrays={"posterior/chain": "0"}),
        r"posterior/chain/zarr.json is not a description",
    ),
    "of another kind": (lambda path: (path / "adaptation/v").symlink_to(path), r"is a link"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_on_opening(path, name):
    damage, message = DAMAGE[name]
    damage(path)
    with pytest.raises(StorageError, match=message):
        open_draws(path)


def test_damaged_numbers_are_found_on_reading(path):
    file = path / "adaptation/scale/c/0/0"
    raw = file.read_bytes()
    file.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])
    with pytest.raises(StorageError, match=r"adaptation/scale/c/0/0 is damaged"):
        run(2, warm_start=open_draws(path))


@pytest.mark.parametrize(
    "labels",
    [
        {"data_type": "object", "values": [1, 2, 3]},
        {"data_type": "string", "values": [1, 2, 3]},
        {"data_type": "int8", "values": [1, 2, 1000]},
        {"data_type": "datetime64[ns]", "values": ["a", "b", "c"]},
        {"data_type": "int64", "values": [1, 2]},
        {"data_type": "float64", "values": [[1.0, 2.0, 3.0]]},
        5,
    ],
)
def test_labels_that_geodax_does_not_write_are_refused(path, labels):
    root = json.loads((path / "zarr.json").read_text())
    root["attributes"]["geodax_labels"] = {"posterior": {"position_dim_0": labels}}
    (path / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(StorageError, match="cannot be read"):
        open_draws(path)
