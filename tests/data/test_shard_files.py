"""Batches from shards on disk."""

import numpy as np
import pytest

import geodax as gx
from geodax.data.errors import DataError

ROWS = np.arange(50).reshape(25, 2).astype(np.float32)


def write(folder, rows, cuts):
    folder.mkdir(parents=True)
    for k, piece in enumerate(np.split(rows, cuts)):
        np.save(folder / f"{k:03d}.npy", piece)
    return folder


def test_a_pass_holds_every_row_once(tmp_path):
    """Catches rows that are read from the wrong file, and an order that repeats."""
    fed = gx.data.shards(write(tmp_path / "x", ROWS, [3, 4, 20]), batch_size=5)
    first, second = fed.read(0, 5), fed.read(5, 5)
    for one in (first, second):
        assert one.shape == (5, 5, 2)
        np.testing.assert_array_equal(np.sort(one.reshape(25, 2), axis=0), ROWS)
    assert (first != second).any()


def test_any_batch_can_be_read_at_any_time(tmp_path):
    """Catches a position that is kept from read to read, which a resumed run has not."""
    folder = write(tmp_path / "x", ROWS, [10])
    long = gx.data.shards(folder, batch_size=4, order="independent", seed=3).read(0, 9)
    np.testing.assert_array_equal(
        gx.data.shards(folder, batch_size=4, order="independent", seed=3).read(6, 3), long[6:]
    )


def test_a_part_of_each_batch_is_that_part(tmp_path):
    fed = gx.data.shards(write(tmp_path / "x", ROWS, [10]), batch_size=6)
    np.testing.assert_array_equal(fed.read(2, 3, slice(2, 4)), fed.read(2, 3)[:, 2:4])


def test_folders_are_arrays_of_one_batch(tmp_path):
    write(tmp_path / "both" / "x", ROWS, [7])
    write(tmp_path / "both" / "y", ROWS[:, 0] * 10, [20])
    batch = gx.data.shards(tmp_path / "both", batch_size=5).read(0, 1)
    assert batch.keys() == {"x", "y"}
    np.testing.assert_array_equal(batch["y"], batch["x"][..., 0] * 10)


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a folder"):
        gx.data.shards(tmp_path / "nothing", batch_size=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"contains no \.npy files"):
        gx.data.shards(tmp_path / "empty", batch_size=1)
    folder = write(tmp_path / "x", ROWS, [10])
    with pytest.raises(ValueError, match="batch_size"):
        gx.data.shards(folder, batch_size=26)
    np.save(folder / "zzz.npy", np.zeros((3, 3), np.float32))
    with pytest.raises(DataError, match=r"zzz.npy holds an array of shape \(3, 3\)"):
        gx.data.shards(folder, batch_size=2)
    np.save(folder / "zzz.npy", np.array([{}], dtype=object))
    with pytest.raises(DataError, match="expected plain NumPy arrays"):
        gx.data.shards(folder, batch_size=2)
    write(tmp_path / "both" / "x", ROWS, [7])
    write(tmp_path / "both" / "y", ROWS[:9], [])
    with pytest.raises(DataError, match="equal numbers of rows"):
        gx.data.shards(tmp_path / "both", batch_size=2)
