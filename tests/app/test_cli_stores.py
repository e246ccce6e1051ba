"""Run folders that have lost draws, or come from somebody with bad intentions: commands refuse them and name the file."""

import io
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from geodax.app import main
from geodax.app.run_folder.files import file_digest, kept_arrays, write_config
from geodax.run.draws import ZarrDraws
from geodax.run.errors import StorageError
from tests.run.test_stores import make_format_2


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, and a finished run of it."""
    folder = tmp_path_factory.mktemp("made")
    rows = np.random.default_rng(0).standard_normal((30, 3))
    (folder / "table.csv").write_text("\n".join(["x,y,z", *(",".join(f"{x:.3f}" for x in row) for row in rows)]) + "\n")
    options = ["--n-components", "1", "--num-samples", "20", "--num-warmup", "20", "--num-chains", "2", "--no-progress"]
    assert main(["fit", "pca", str(folder / "table.csv"), *options, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def run(made, tmp_path):
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture(params=["report", "predict", "resume"])
def command(request, made, run):
    """A command on the run; returns its exit status."""
    words = {"report": [], "predict": [str(made / "table.csv")], "resume": ["--num-samples", "30", "--no-progress"]}
    return lambda: main([request.param, str(run), *words[request.param]])


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "file", ["posterior/noise/c/0/0", "sample_stats/diverging/c/0/0", "sample_stats/n_steps/c/0/0"]
)
def test_a_lost_chunk_is_named(run, command, file, capsys):
    """Catches empty cells, and zeros for integers, at exit status 0."""
    (run / "posterior.zarr" / file).unlink()
    assert command() == 1
    message = said(capsys)
    assert f"{file} is missing" in message
    assert str(run / "posterior.zarr") in message
    assert "geodax fit --overwrite" in message
    assert not (run / "report.html").exists()
    assert not (run / "predictions.csv").exists()


@pytest.mark.thorough
def test_a_chunk_of_another_run_is_named(made, run, command, capsys):
    """Catches draws with a good checksum of their own that are not those of the run."""
    store = run / "posterior.zarr"
    shutil.copy(store / "sample_stats/residual/c/0/0", store / "sample_stats/energy/c/0/0")
    assert command() == 1
    assert "sample_stats/energy/c/0/0 is not the chunk that was written last" in said(capsys)


def test_a_crafted_store_runs_no_code(run, command, tmp_path, capsys):
    """Catches pickle, as a filter of an array of Zarr format 2."""
    make_format_2(run / "posterior.zarr" / "posterior" / "noise", tmp_path / "touched", 20)
    assert command() == 1
    assert "format 3" in said(capsys)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(("num_chains", "message"), [(4, "draws of 4 chains"), (2, "other variables than the model")])
def test_a_store_of_another_run_is_refused(run, num_chains, message, capsys):
    shutil.rmtree(run / "posterior.zarr")
    shapes = {"posterior": {"x": ((3,), np.dtype("float64"))}, "sample_stats": {"lp": ((), np.dtype("float64"))}}
    store = ZarrDraws(run / "posterior.zarr", shapes, num_chains, 20)
    store.write(0, {g: {n: np.zeros((num_chains, 20, *s), d) for n, (s, d) in v.items()} for g, v in shapes.items()})
    assert main(["report", str(run)]) == 1
    assert message in said(capsys)


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, contents in members.items():
            file.writestr(f"{name}.npy", contents)
    return stream.getvalue()


def header(shape, descr="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


BOMBS = {
    "inflates": (archive(values=header((2**17,)) + bytes(2**20)), r"unpacks to 1,048,704 bytes: expected at most"),
    "in parts": (archive(**{f"x{i}": header((2**13,)) + bytes(2**16) for i in range(16)}), r"unpacks to"),
    "says that it is huge": (archive(values=header((10**13,)) + bytes(80)), r"says that it is an array of shape"),
    "says that it is endless": (archive(values=header((10**30,)) + bytes(80)), r"says that it is an array of shape"),
    "objects": (archive(values=header((10,), "|O") + bytes(80)), r"and type object"),
    "no array": (archive(values=b"text"), r"cannot be read"),
    "no archive": (b"text", r"cannot be read"),
}


@pytest.mark.parametrize("name", sorted(BOMBS))
def test_arrays_are_measured_before_they_are_unpacked(name, tmp_path, monkeypatch):
    """Catches twelve megabytes that take six gigabytes, here on a small scale; nothing is given to NumPy."""
    contents, message = BOMBS[name]
    (tmp_path / "data.npz").write_bytes(contents)
    monkeypatch.setattr("geodax.app.run_folder.files.LARGEST_UNPACKED", 10_000)
    monkeypatch.setattr("geodax.app.run_folder.files.np.load", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(StorageError, match=message), kept_arrays(tmp_path / "data.npz"):
        pass


def test_a_run_with_such_data_is_refused(run, command, capsys):
    """Catches a loader of a run folder that does not measure; the checksums of the folder are right."""
    (run / "data.npz").write_bytes(BOMBS["says that it is huge"][0])
    config = json.loads((run / "config.json").read_text())
    del config["digest"]
    write_config(run, config | {"data_sha256": file_digest(run / "data.npz")})
    assert command() == 1
    assert "says that it is an array of shape" in said(capsys)
