"""Draws in memory and on disk: joined, cut, guarded by checksums, never mixed between runs."""

import errno
import random
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from geodax.run.draws import MemoryDraws, ZarrDraws, open_draws, to_datatree
from geodax.run.errors import CheckpointError, StorageError

SHAPES = {
    "posterior": {"w": ((3, 2), np.dtype("float32")), "s": ((), np.dtype("float64"))},
    "sample_stats": {"diverging": ((), np.dtype("bool")), "n_steps": ((), np.dtype("int32"))},
}


def values_of(tree):
    """The arrays of a tree by group and name."""
    return {g: {n: v.values for n, v in tree[g].data_vars.items()} for g in tree.children if g != "adaptation"}


def rows(start, stop, num_chains=2, seed=0, shapes=SHAPES):
    """Draws number ``start`` to ``stop`` of a fixed sequence."""
    generator = np.random.default_rng(seed)
    whole = {
        group: {
            name: (100 * generator.normal(size=(num_chains, 50, *shape))).astype(dtype)
            for name, (shape, dtype) in variables.items()
        }
        for group, variables in shapes.items()
    }
    return {g: {n: values[:, start:stop] for n, values in v.items()} for g, v in whole.items()}


def assert_groups(found, expected):
    for group, variables in expected.items():
        assert set(found[group]) == set(variables)
        for name, values in variables.items():
            assert found[group][name].dtype == values.dtype
            np.testing.assert_array_equal(found[group][name], values, err_msg=name)


def chunks(folder):
    """The files that hold draws, without coordinates and metadata."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != ".json"
        and not {"chain", "draw"} & {part for part in path.relative_to(folder).parts[1:2]}
    )


@pytest.fixture(params=["memory", "zarr"])
def store(request, tmp_path):
    return MemoryDraws(SHAPES, 2, 50) if request.param == "memory" else ZarrDraws(tmp_path / "d.zarr", SHAPES, 2, 50)


def test_pieces_are_joined_in_order(store):
    """Catches pieces that overwrite each other or lose their last row."""
    for start, stop in ((0, 1), (1, 17), (17, 50)):
        store.write(start, rows(start, stop))
    assert_groups(store.read(50), rows(0, 50))
    assert_groups(store.read(20), rows(0, 20))


def test_a_piece_written_again_replaces_itself(tmp_path):
    """Catches a resumed run that appends what it had written before it was stopped."""
    store = ZarrDraws(tmp_path, SHAPES, 2, 50)
    store.write(0, rows(0, 30))
    store = ZarrDraws(tmp_path, SHAPES, 2, 50, num_kept=12)
    store.write(12, rows(12, 50))
    assert_groups(store.read(50), rows(0, 50))


def test_nothing_written_reads_as_nothing():
    assert_groups(MemoryDraws(SHAPES, 2, 50).read(0), rows(0, 0))


class TestTree:
    def test_dimensions(self):
        tree = to_datatree(rows(0, 7), {"thinning": 3})
        assert tree["posterior"]["w"].dims == ("chain", "draw", "w_dim_0", "w_dim_1")
        assert tree["sample_stats"]["diverging"].dims == ("chain", "draw")
        assert tree.attrs == {"thinning": 3}
        np.testing.assert_array_equal(tree["posterior"]["draw"], np.arange(7))

    def test_a_store_is_opened_whole_or_in_part(self, tmp_path):
        """Catches a cut that forgets one of the groups."""
        store = ZarrDraws(tmp_path / "d", SHAPES, 2, 50)
        store.write(0, rows(0, 50))
        whole, part = open_draws(tmp_path / "d"), open_draws(tmp_path / "d", 9)
        assert_groups(values_of(whole), rows(0, 50))
        assert_groups(values_of(part), rows(0, 9))
        assert part["sample_stats"].sizes["draw"] == 9

    def test_an_unfinished_store_has_the_draws_that_were_written(self, tmp_path):
        """Catches rows of an earlier run, NaN, or zeros for integers, that pass for draws."""
        ZarrDraws(tmp_path / "d", SHAPES, 2, 50).write(0, rows(0, 50, seed=1))
        store = ZarrDraws(tmp_path / "d", SHAPES, 2, 50, is_own=True)
        store.write(0, rows(0, 10))
        assert_groups(values_of(open_draws(tmp_path / "d")), rows(0, 10))
        with pytest.raises(StorageError, match=r"holds 10 draws of each chain, expected 11"):
            open_draws(tmp_path / "d", 11)

    def test_other_programs_read_it(self, tmp_path):
        """Catches descriptions or checksums that Zarr libraries do not take."""
        complex_shapes = {
            "posterior": SHAPES["posterior"]
            | {"z": ((2,), np.dtype("complex64")), "none": ((3, 0), np.dtype("float32"))}
        }
        for folder, shapes in (("d", SHAPES), ("e", complex_shapes)):
            store = ZarrDraws(tmp_path / folder, shapes, 2, 2000)
            store.write(0, rows(0, 50, shapes=shapes))
            store.describe({"thinning": 1})
            with xr.open_datatree(tmp_path / folder, engine="zarr", consolidated=False) as tree:
                found = {g: {n: v[:, :50].values for n, v in tree[g].data_vars.items()} for g in shapes}
            assert_groups(found, rows(0, 50, shapes=shapes))
            assert_groups(values_of(open_draws(tmp_path / folder)), rows(0, 50, shapes=shapes))

    def test_no_folder(self, tmp_path):
        with pytest.raises(StorageError, match=r"There are no draws at .*nowhere"):
            open_draws(tmp_path / "nowhere")


class TestLayout:
    def test_room_is_made_for_more(self, tmp_path):
        ZarrDraws(tmp_path, SHAPES, 2, 20).write(0, rows(0, 20))
        store = ZarrDraws(tmp_path, SHAPES, 2, 50, num_kept=20)
        store.write(20, rows(20, 50))
        assert_groups(store.read(50), rows(0, 50))
        np.testing.assert_array_equal(open_draws(tmp_path)["posterior"]["draw"], np.arange(50))

    def test_draws_that_were_opened_before_a_run_was_extended(self, tmp_path):
        """Catches an error about draws that are still there, and those of another run in their place."""

        def written(start, stop, seed=0):
            store = ZarrDraws(tmp_path, SHAPES, 2, stop, num_kept=start, is_own=True)
            store.write(start, rows(start, stop, seed=seed))
            store.describe({})
            return open_draws(tmp_path)

        before, expected = written(0, 20), rows(0, 20)
        after = written(20, 50)
        for name, values in expected["posterior"].items():
            np.testing.assert_array_equal(before["posterior"][name].values, values)
        written(0, 50, seed=1)
        with pytest.raises(StorageError, match="not the chunk that was written last"):
            _ = after["posterior"]["s"].values

    def test_a_short_run_that_is_extended_has_no_more_files_than_a_long_one(self, tmp_path):
        """Catches chunks of five draws, of which ten thousand have two thousand files a variable."""
        for folder, num_draws in ((tmp_path / "short", 5), (tmp_path / "long", 2000)):
            ZarrDraws(folder, SHAPES, 2, num_draws).write(0, rows(0, 5))
        assert sum(path.stat().st_size for path in chunks(tmp_path / "short")) < 200_000
        store = ZarrDraws(tmp_path / "short", SHAPES, 2, 2000, num_kept=5)
        store.write(5, rows(5, 50))
        assert_groups(store.read(50), rows(0, 50))
        whole = np.zeros((2, 1950))
        for folder in ("short", "long"):
            store = ZarrDraws(tmp_path / folder, SHAPES, 2, 2000, num_kept=5)
            store.write(50, {"posterior": {"s": whole}})
        numbers = [len(chunks(tmp_path / folder / "posterior" / "s")) for folder in ("short", "long")]
        assert numbers[0] <= 2 * numbers[1] == 2

    @pytest.mark.parametrize(("size", "expected"), [(1, 1000), (1000, 32), (40_000, 5), (10**6, 1)])
    def test_what_is_kept_free_is_little(self, tmp_path, size, expected):
        """Catches chunks of a thousand large draws in a run of five."""
        shapes = {"posterior": {"w": ((size,), np.dtype("float32"))}}
        ZarrDraws(tmp_path, shapes, 2, 5)
        assert zarr.open_group(tmp_path, mode="r")["posterior"]["w"].chunks == (2, expected, size)

    def test_a_store_of_small_chunks_is_extended_as_before(self, tmp_path, monkeypatch):
        """As an earlier version has laid it out."""
        with monkeypatch.context() as patched:
            patched.setattr("geodax.run.draws._SPARE_DRAWS", 0)
            ZarrDraws(tmp_path, SHAPES, 2, 5).write(0, rows(0, 5))
        store = ZarrDraws(tmp_path, SHAPES, 2, 50, num_kept=5)
        store.write(5, rows(5, 50))
        assert_groups(store.read(50), rows(0, 50))
        assert_groups(values_of(open_draws(tmp_path)), rows(0, 50))

    def test_a_coordinate_that_was_cut_short_is_mended(self, tmp_path):
        """Catches a process killed between the layout of a coordinate and its contents."""
        ZarrDraws(tmp_path, SHAPES, 2, 50).write(0, rows(0, 50))
        zarr.open_group(tmp_path, mode="a")["posterior"]["draw"][:] = 0
        ZarrDraws(tmp_path, SHAPES, 2, 50, num_kept=50)
        np.testing.assert_array_equal(open_draws(tmp_path)["posterior"]["draw"], np.arange(50))

    @pytest.mark.parametrize(
        "other",
        [
            {"posterior": SHAPES["posterior"] | {"s": ((4,), np.dtype("float64"))}},
            {"posterior": SHAPES["posterior"] | {"s": ((), np.dtype("float32"))}},
            {"posterior": {"w": SHAPES["posterior"]["w"]}},
        ],
    )
    def test_other_variables_are_refused(self, tmp_path, other):
        """Catches two models that write into one store."""
        ZarrDraws(tmp_path, SHAPES, 2, 50).write(0, rows(0, 50))
        with pytest.raises(StorageError, match=r"already holds .*'s'.*use another folder"):
            ZarrDraws(tmp_path, SHAPES | other, 2, 50)
        assert_groups(ZarrDraws(tmp_path, SHAPES, 2, 50, num_kept=50).read(50), rows(0, 50))

    def test_another_number_of_chains_is_refused(self, tmp_path):
        ZarrDraws(tmp_path, SHAPES, 2, 50)
        with pytest.raises(StorageError, match=r"shape \(2, '\.\.\.'"):
            ZarrDraws(tmp_path, SHAPES, 4, 50)

    @pytest.mark.parametrize("num_written", [None, 10])
    def test_draws_that_should_be_there_but_are_not(self, tmp_path, num_written):
        """Catches a run that goes on beside its draws and returns NaN for those before."""
        if num_written is not None:
            ZarrDraws(tmp_path / "d", SHAPES, 2, num_written)
        with pytest.raises(CheckpointError, match=r"goes on after 30 draws, but .*d does not hold them"):
            ZarrDraws(tmp_path / "d", SHAPES, 2, 50, num_kept=30)


class TestDamage:
    @pytest.mark.parametrize("variable", ["posterior/w", "posterior/s", "sample_stats/diverging"])
    def test_a_flipped_bit_is_found(self, tmp_path, variable):
        """Catches chunks without checksums: every bit of the file is guarded."""
        store = ZarrDraws(tmp_path, SHAPES, 2, 50)
        store.write(0, rows(0, 50))
        (path,) = [p for p in chunks(tmp_path) if p.is_relative_to(tmp_path / variable)]
        good = path.read_bytes()
        for position in random.Random(0).sample(range(8 * len(good)), 8):
            bad = bytearray(good)
            bad[position // 8] ^= 1 << position % 8
            path.write_bytes(bytes(bad))
            with pytest.raises(StorageError, match=r"cannot be read"):
                open_draws(tmp_path).load()
            with pytest.raises(StorageError, match=r"cannot be read"):
                values_of(to_datatree(store.read(50)))
        path.write_bytes(good)
        assert_groups(store.read(50), rows(0, 50))

    def test_a_truncated_chunk_is_found(self, tmp_path):
        store = ZarrDraws(tmp_path, SHAPES, 2, 50)
        store.write(0, rows(0, 50))
        for path in chunks(tmp_path):
            good = path.read_bytes()
            path.write_bytes(good[: len(good) // 2])
            with pytest.raises(StorageError, match=r"cannot be read"):
                open_draws(tmp_path)
            path.write_bytes(good)

    def test_a_damaged_chunk_is_not_written_over(self, tmp_path):
        """Catches an error of another kind, or none, when new rows go into a damaged chunk."""
        store = ZarrDraws(tmp_path, SHAPES, 2, 50)
        store.write(0, rows(0, 30))
        path = chunks(tmp_path)[0]
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(StorageError, match=r"Draws from number 30 on could not be written"):
            store.write(30, rows(30, 50))

    def test_damaged_metadata(self, tmp_path):
        ZarrDraws(tmp_path, SHAPES, 2, 50).write(0, rows(0, 50))
        path = tmp_path / "posterior" / "w" / "zarr.json"
        path.write_text(path.read_text()[:40])
        with pytest.raises(StorageError, match=r"Cannot write draws to"):
            ZarrDraws(tmp_path, SHAPES, 2, 50, num_kept=50)
        with pytest.raises(StorageError, match=r"cannot be read"):
            open_draws(tmp_path)


class TestFullDisk:
    def test_the_draws_before_it_stay(self, tmp_path, monkeypatch):
        """Catches a failed write that tears the chunk it was to replace."""
        store = ZarrDraws(tmp_path, SHAPES, 2, 50)
        store.write(0, rows(0, 30))

        def no_room(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", no_room)
            with pytest.raises(StorageError, match=r"number 30 on could not.*The 30 draws before it are there"):
                store.write(30, rows(30, 50))
        assert_groups(store.read(30), rows(0, 30))
        store.write(30, rows(30, 50))
        assert_groups(store.read(50), rows(0, 50))

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        """Catches a run that finds out after warm-up that it cannot write."""
        (tmp_path / "file").write_text("no folder")
        with pytest.raises(StorageError, match=r"Cannot write draws to .*file/draws\.zarr"):
            ZarrDraws(tmp_path / "file" / "draws.zarr", SHAPES, 2, 50)
