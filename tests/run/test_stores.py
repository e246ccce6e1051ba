"""Draw stores that were tampered with or have lost files: refused before anything is run, allocated or reported."""

import json
import os
import pickle
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import geodax as gx
from geodax.run import zarr_files
from geodax.run.draws import ZarrDraws, open_draws
from geodax.run.errors import StorageError

SHAPES = {
    "posterior": {"w": ((3, 2), np.dtype("float32")), "count": ((), np.dtype("int32"))},
    "sample_stats": {"diverging": ((), np.dtype("bool"))},
}
DRAWS = 2500  # three chunks of 1000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished store whose integers are all zero, as the flags of a good run are."""
    path = tmp_path_factory.mktemp("whole") / "d"
    write(path, DRAWS)
    return path


@pytest.fixture
def path(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "d"))


def write(path, num_draws):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geodax.run.draws._chunk_draws", lambda *_: 1000)
        store = ZarrDraws(path, SHAPES, 2, DRAWS)
    store.write(
        0,
        {
            group: {name: np.zeros((2, num_draws, *shape), dtype) for name, (shape, dtype) in variables.items()}
            for group, variables in SHAPES.items()
        },
    )
    if num_draws == DRAWS:
        store.describe({})
    return store


def resumed(path):
    return ZarrDraws(path, SHAPES, 2, DRAWS, num_kept=DRAWS)


@pytest.fixture(params=[open_draws, resumed], ids=["open", "resume"])
def use(request):
    return request.param


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def make_format_2(array, touched, num_draws):
    """An array of Zarr format 2 whose filter is pickle."""
    shutil.rmtree(array)
    array.mkdir()
    chunk = pickle.dumps(Payload(touched))
    described = {
        "zarr_format": 2,
        "shape": [2, num_draws],
        "chunks": [2, num_draws],
        "dtype": "|O",
        "fill_value": None,
        "order": "C",
        "compressor": None,
        "filters": [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}],
    }
    (array / ".zarray").write_text(json.dumps(described))
    (array / "0.0").write_bytes(chunk)
    for group in (array.parent.parent, array.parent):
        (group / ".zgroup").write_text('{"zarr_format": 2}')
        (group / "zarr.json").unlink(missing_ok=True)


@pytest.mark.parametrize("keeps_root", [False, True])
def test_a_store_of_format_2_runs_no_code(path, use, tmp_path, keeps_root):
    """Catches object arrays with a pickle filter, alone or beside the description of a store of ours."""
    root = (path / "zarr.json").read_bytes()
    make_format_2(path / "posterior" / "count", tmp_path / "touched", DRAWS)
    if keeps_root:
        (path / "zarr.json").write_bytes(root)
    with pytest.raises(StorageError, match=str(path)):
        use(path)
    assert not (tmp_path / "touched").exists()


def change(file, **changes):
    described = json.loads(file.read_text())
    file.write_text(json.dumps(described | changes))


CHANGES = {
    "pickle": {"codecs": [{"name": "numcodecs.pickle"}, {"name": "crc32c"}]},
    "compressed": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip"}]},
    "unguarded": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]},
    "sharded": {"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1, 1, 1]}}]},
    "object": {"data_type": "object"},
    "text": {"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 4}}},
    "time": {"data_type": "datetime64"},
    "number": {"data_type": 5},
    "beyond numbers": {"shape": [2, 10**30, 3, 2]},
    "negative": {"shape": [2, -1, 3, 2]},
    "fraction": {"shape": [2, 2500.0, 3, 2]},
    "flat": {"shape": [2]},
    "other chunks": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1000, 3, 2]}}},
    "huge chunks": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 10**11, 3, 2]}}},
    "no chunks": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 0, 3, 2]}}},
    "rectilinear": {"chunk_grid": {"name": "rectilinear"}},
    "keys": {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}},
    "scaled": {"attributes": {"scale_factor": 1e9}},
    "transformed": {"storage_transformers": [{"name": "x"}]},
    "format": {"zarr_format": 2},
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_only_descriptions_of_ours_are_read(path, use, name):
    """Catches codecs, types and sizes that a description asks for."""
    change(path / "posterior" / "w" / "zarr.json", **CHANGES[name])
    with pytest.raises(StorageError, match=r"posterior/w/"):
        use(path)


def test_room_is_not_taken_for_draws(path, use):
    """Catches memory for as many draws as a description has, where the chunks are not there."""
    change(path / "posterior" / "w" / "zarr.json", shape=[2, 10**12, 3, 2])
    use(path)
    assert open_draws(path)["posterior"].sizes["draw"] == DRAWS


@pytest.mark.parametrize("target", ["zarr.json", "posterior", "posterior/w", "posterior/w/c/0/1/0/0", "sample_stats/x"])
def test_links_are_refused(path, use, target, tmp_path):
    """Catches files of others that are read, or written, through a store."""
    if (path / target).exists():
        shutil.move(path / target, tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").write_text("x")
    (path / target).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"is a (symbolic link|link or a special file)"):
        use(path)


def test_a_pipe_is_not_waited_for(path, use):
    (path / "posterior/w/c/0/1/0/0").unlink()
    os.mkfifo(path / "posterior/w/c/0/1/0/0")
    with pytest.raises(StorageError, match=r"is a link or a special file"):
        use(path)


def test_a_description_without_end_is_not_parsed(path, use, monkeypatch):
    """Catches files that fill the memory, and nesting that ends the interpreter."""
    (path / "posterior/w/zarr.json").write_text('{"a":' * 100_000)
    with pytest.raises(StorageError, match=str(path)):
        use(path)
    monkeypatch.setattr(zarr_files, "_LARGEST_DESCRIPTION", 10)
    with pytest.raises(StorageError, match=r"not a description of at most 10 bytes"):
        use(path)


def test_variables_that_the_run_did_not_write_are_refused(path):
    """Catches a variable that is put beside those of the run, and one that is taken away."""
    shutil.copytree(path / "posterior/count", path / "posterior/other")
    change(path / "posterior/other/zarr.json", dimension_names=["chain", "draw"])
    with pytest.raises(StorageError, match=r"posterior/other is not of this run"):
        open_draws(path)
    shutil.rmtree(path / "posterior/other")
    shutil.rmtree(path / "posterior/count")
    with pytest.raises(StorageError, match=r"posterior/count is missing"):
        open_draws(path)


@pytest.mark.parametrize("variable", ["posterior/w", "posterior/count", "sample_stats/diverging"])
@pytest.mark.parametrize("index", [0, 1, 2])
class TestChunks:
    def test_a_lost_one_is_named(self, path, use, variable, index):
        """Catches NaN, and for integers zeros, in place of draws."""
        name = zarr_files.read_layouts(path)[variable].file(index)
        (path / name).unlink()
        with pytest.raises(StorageError, match=rf"{name} is missing.*Put back a copy"):
            use(path)

    def test_one_of_another_run_is_named(self, path, use, variable, index):
        """Catches a whole chunk with a good checksum that is not the one that was written last."""
        layout = zarr_files.read_layouts(path)[variable]
        zarr_files.write_chunk(path, layout, index, np.ones(layout.chunk_shape, layout.dtype))
        with pytest.raises(StorageError, match=r"is not the chunk that was written last"):
            use(path)

    def test_one_cut_short_is_named(self, path, use, variable, index):
        os.truncate(path / zarr_files.read_layouts(path)[variable].file(index), 100)
        with pytest.raises(StorageError, match=r"has 100 bytes, expected"):
            use(path)


def test_an_unfinished_run_is_read_and_goes_on(tmp_path):
    """Catches draws that are not yet written and count as lost."""
    write(tmp_path, 1500)
    assert open_draws(tmp_path)["posterior"].sizes["draw"] == 1500
    store = ZarrDraws(tmp_path, SHAPES, 2, DRAWS, num_kept=1200)
    assert open_draws(tmp_path)["posterior"].sizes["draw"] == 1200
    store.write(1200, {g: {n: np.ones((2, 400, *s), d) for n, (s, d) in v.items()} for g, v in SHAPES.items()})
    tree = open_draws(tmp_path)
    assert tree["posterior"].sizes["draw"] == 1600
    assert tree["posterior"]["count"].values.sum() == 2 * 400


def test_a_changed_record_is_refused(path, use):
    """Catches fewer draws than there are, by a digit that is changed."""
    root = (path / "zarr.json").read_text()
    assert '\\"num_draws\\": 2500' in root
    (path / "zarr.json").write_text(root.replace('\\"num_draws\\": 2500', '\\"num_draws\\": 1500'))
    with pytest.raises(StorageError, match=r"record of the draws, or one that was changed"):
        use(path)


class TestLazy:
    def test_nothing_is_read_before_it_is_used(self, path, monkeypatch):
        """Catches a tree that is read into memory where it is opened, cut, copied or assigned to."""
        read = []
        monkeypatch.setattr(zarr_files, "read_chunk", lambda *args: read.append(args) or 1 / 0)
        tree = open_draws(path)
        cut = tree.copy().isel(draw=slice(10, 20))["posterior"].to_dataset().assign(x=3)
        assert cut["w"].shape == (2, 10, 3, 2)
        assert read == []

    @pytest.mark.parametrize(
        "key",
        [
            (),
            (0,),
            (slice(None), 7),
            (slice(None), -1),
            (1, slice(990, 1010)),
            (slice(None, None, -1), slice(2400, 100, -300), slice(0, 2), 1),
            ([1], [2400, 3, 3, 1000], [2, 0], [1]),
            (slice(None), slice(5, 5)),
            (slice(None), []),
        ],
    )
    def test_entries_are_those_of_the_array(self, tmp_path, key, monkeypatch):
        """Catches chunks that are put together in the wrong order or place."""
        monkeypatch.setattr("geodax.run.draws._chunk_draws", lambda *_: 1000)
        values = np.random.default_rng(0).normal(size=(2, DRAWS, 3, 2)).astype(np.float32)
        store = ZarrDraws(tmp_path, {"posterior": {"w": SHAPES["posterior"]["w"]}}, 2, DRAWS)
        store.write(0, {"posterior": {"w": values}})
        expected = xr.DataArray(values)[key]
        found = open_draws(tmp_path)["posterior"]["w"][key]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.values, expected.values)

    def test_a_tree_can_be_changed_in_memory(self, path):
        tree = open_draws(path)
        tree["posterior"]["w"][0, 0] = 1.0
        assert tree["posterior"]["w"].values.sum() == 6
        assert open_draws(path)["posterior"]["w"].values.sum() == 0

    def test_a_chunk_that_is_replaced_later_is_found_where_it_is_read(self, path):
        """Catches the draws of another run in a tree that was opened before."""
        tree = open_draws(path)
        layout = zarr_files.read_layouts(path)["posterior/w"]
        zarr_files.write_chunk(path, layout, 1, np.ones(layout.chunk_shape, layout.dtype))
        assert np.isfinite(tree["posterior"]["w"][:, :1000].values).all()
        with pytest.raises(StorageError, match=r"posterior/w/c/0/1/0/0 is not the chunk"):
            tree["posterior"]["w"].values  # noqa: B018


def test_draws_that_do_not_fit_on_the_disk_are_refused_before_any_is_written(tmp_path):
    shapes = {"posterior": {"x": ((3,), np.dtype(np.float32))}, "sample_stats": {}}
    with pytest.raises(
        ValueError,
        match=r"sample: 1,000,000,000,000 draws of each chain need up to [\d,.]+ MB, and [\d,.]+ MB are free",
    ):
        ZarrDraws(tmp_path / "draws.zarr", shapes, 4, 10**12)
    assert list(tmp_path.iterdir()) == []
    ZarrDraws(tmp_path / "draws.zarr", shapes, 4, 100)


@pytest.mark.thorough
def test_a_relative_path_is_that_of_the_start(tmp_path, monkeypatch):
    """Catches draws that are looked for in a folder that the program changed to, during the run or after it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    run = gx.sample(
        jax.random.key(0),
        gx.hmc(lambda x: -0.5 * jnp.sum(x**2), step_size=0.5),
        jnp.zeros(2),
        num_samples=700,
        store="draws",
        checkpoint="run",
        progress=lambda _: os.chdir(tmp_path / "elsewhere"),
    )
    assert run["posterior"]["position"].values.any(axis=(0, 2)).all()
    os.chdir(tmp_path)
    opened = open_draws("draws")
    os.chdir("elsewhere")
    np.testing.assert_array_equal(opened["posterior"]["position"], run["posterior"]["position"])
    assert not list((tmp_path / "elsewhere").iterdir())
