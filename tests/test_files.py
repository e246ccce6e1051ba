"""Writing files: in full or not at all, with errors that name them."""

import numpy as np
import pytest

from geodax._files import replaced
from geodax.app.run_folder.files import write_config
from geodax.data.stored_files import store
from geodax.diagnostics.summary import summarize
from tests.small_disk import SmallDisk


def test_a_file_for_which_there_is_no_room_is_named_and_stays(tmp_path):
    write_config(tmp_path, {"model": "pca"})
    summary = summarize({"x": np.random.default_rng(0).standard_normal((2, 20, 10))})
    before = (tmp_path / "config.json").read_bytes()
    with SmallDisk(300):
        for path, write in {
            tmp_path / "config.json": lambda: write_config(tmp_path, {"model": "pca" * 100}),
            tmp_path / "summary.csv": lambda: summary.to_csv(tmp_path / "summary.csv"),
            tmp_path / "set" / "data.txt": lambda: store(tmp_path, "set/data.txt", bytes(1000)),
        }.items():
            with pytest.raises(OSError, match=f"File too large: '{path}'"):
                write()
    assert (tmp_path / "config.json").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "summary.csv", "set"}
    assert not list((tmp_path / "set").iterdir())


def test_errors_of_other_files_keep_their_names(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"), replaced(tmp_path / "x"):
        (tmp_path / "none").read_bytes()
    assert not list(tmp_path.iterdir())
