"""The command line, as a user types it: a whole life of a run, odd tables, and interruptions."""

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from geodax.app import main
from geodax.app.families import PCAOptions
from geodax.app.pca.run import PCARun
from geodax.app.tables.dialect import Dialect

_SMALL = ["--num-warmup", "60", "--num-samples", "80", "--num-chains", "2", "--no-progress"]
_WRITTEN = ["--missing", "k. A.", "--delimiter", ";"]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A table with a header in Latin-1, a text column, a constant one, and missing cells of which one has a sign of its own."""
    generator = np.random.default_rng(0)
    scores = generator.standard_normal((60, 2)) * [2.0, 1.0]
    values = scores @ generator.standard_normal((2, 5)) + 0.3 * generator.standard_normal((60, 5)) + 10
    lines = ["Größe;b;c;d;e;constant;sort"]
    for i, row in enumerate(values):
        cells = [f"{v:.4f}" for v in row]
        if i % 7 == 0:
            cells[i % 5] = "k. A." if i == 14 else "NA"
        lines.append(";".join([*cells, "1.0", "red" if i % 2 else "blue"]))
    path = tmp_path_factory.mktemp("tables") / "data.csv"
    path.write_bytes("\n".join(lines).encode("latin-1"))
    return path


@pytest.fixture(scope="module")
def run(table, tmp_path_factory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "pca"
    assert main(["fit", "pca", str(table), "--out", str(folder), "--seed", "1", *_SMALL, *_WRITTEN]) == 0
    return folder


@pytest.mark.thorough
def test_run_folder_has_everything(run, table):
    """Config, draws, summary, log and checkpoint are there, and the notes say what was left out."""
    config = json.loads((run / "config.json").read_text())
    assert config["columns"] == ["Größe", "b", "c", "d", "e"]
    assert config["seed"] == 1
    assert config["options"]["num_samples"] == 80
    notes = " ".join(config["notes"])
    for word in ("constant", "sort", "Latin-1", "missing"):
        assert word in notes
    summary = (run / "summary.csv").read_text().splitlines()
    assert summary[0].startswith("name,mean,sd")
    assert any(line.startswith("scale[0],") for line in summary)
    assert "finished" in (run / "log").read_text()
    draws = xr.open_datatree(run / "posterior.zarr", engine="zarr", consolidated=False)
    assert draws["posterior"]["components"].shape == (2, 80, 5, 2)


@pytest.mark.thorough
def test_report_is_one_file_that_needs_nothing_else(run, capsys):
    """The report names the data and has no reference to another file or host."""
    assert main(["report", str(run)]) == 0
    assert "report.html" in capsys.readouterr().out
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Größe" in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", page)
    assert "<script" not in page
    assert "--delimiter ';' --missing 'k. A.'" in html.unescape(page)


def test_predict_writes_a_row_for_each_row(run, table, capsys):
    """Scores with intervals, densities and filled cells; columns are matched by name, extra ones ignored."""
    assert main(["predict", str(run), str(table)]) == 0
    lines = (run / "predictions.csv").read_text(encoding="utf-8").splitlines()
    heading = lines[0].split(",")
    assert heading[:2] == ["row", "sort"]
    assert {"score_1", "score_1_5%", "score_2_95%", "log_predictive_density", "Größe_filled"} <= set(heading)
    assert len(lines) == 61
    values = np.array([line.split(",")[2:] for line in lines[1:]], float)
    assert np.isfinite(values).all()
    score = heading.index("score_1") - 2
    assert np.all((values[:, score + 1] < values[:, score]) & (values[:, score] < values[:, score + 2]))


@pytest.mark.thorough
def test_resume_of_a_finished_run_changes_nothing_and_extends_on_request(run, capsys):
    """A finished run stays as it is; with more samples the first draws stay as they are."""
    before = xr.open_datatree(run / "posterior.zarr", engine="zarr", consolidated=False)["posterior"]["scale"].values
    (run / "report.html").write_text("of 80 draws")
    assert main(["resume", str(run), "--no-progress"]) == 0
    assert "newer" not in "".join(capsys.readouterr())
    same = xr.open_datatree(run / "posterior.zarr", engine="zarr", consolidated=False)["posterior"]["scale"].values
    np.testing.assert_array_equal(before, same)
    assert main(["resume", str(run), "--num-samples", "40", "--no-progress"]) == 1
    assert "cannot be reduced" in capsys.readouterr().err
    assert main(["resume", str(run), "--num-samples", "120", "--no-progress"]) == 0
    assert "The draws are newer than report.html" in "".join(capsys.readouterr())
    longer = xr.open_datatree(run / "posterior.zarr", engine="zarr", consolidated=False)["posterior"]["scale"].values
    assert longer.shape[1] == 120
    np.testing.assert_array_equal(before, longer[:, :80])


@pytest.mark.thorough
def test_factor_analysis(table, tmp_path, capsys):
    """Noise of each column is named; a column computed from others is refused by name, before the run."""
    words = [str(table), "--noise", "diagonal", "--seed", "1", *_SMALL, *_WRITTEN]
    assert main(["fit", "pca", *words, "--out", str(tmp_path / "run")]) == 0
    assert "noise of Größe" in capsys.readouterr().out
    lines = (tmp_path / "run" / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("noise") for line in lines) == 5
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Noise of the columns" in page
    assert "--noise diagonal" in page
    assert main(["predict", str(tmp_path / "run"), str(table), "--missing", "k. A.", "--delimiter", ";"]) == 0
    rows = np.random.default_rng(0).standard_normal((20, 3))
    rows = np.column_stack([rows, rows[:, 0] - rows[:, 2]])
    (tmp_path / "sums.csv").write_text("a,b,c,d\n" + "\n".join(",".join(map(str, row)) for row in rows.round(3)))
    capsys.readouterr()
    words = ["fit", "pca", str(tmp_path / "sums.csv"), "--n-components", "2", "--out", str(tmp_path / "sums"), *_SMALL]
    assert main([*words, "--noise", "diagonal"]) == 1
    assert re.search("column '[acd]' is computed from '[ac]', '[cd]', .* --noise diagonal ", capsys.readouterr().err)
    assert not (tmp_path / "sums").exists()


def test_a_run_is_not_overwritten_by_accident(run, table, capsys):
    """A second fit into the same folder is refused, and so is a folder that is no run."""
    assert main(["fit", "pca", str(table), "--out", str(run), *_SMALL, *_WRITTEN]) == 1
    assert "geodax resume" in capsys.readouterr().err
    assert main(["fit", "pca", str(table), "--out", str(table.parent), "--overwrite", *_SMALL, *_WRITTEN]) == 1
    assert "not a run folder" in capsys.readouterr().err
    assert table.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"a,b,c\n", "no rows|header"),
        (b"a,b,c\n1,2,3\n", "row"),
        (b"name,colour\nx,red\ny,blue\n", "numeric"),
        (b"a,b\n1,2\n3,4,5\n", "line 3"),
        (b"a,b\n1,5\n2,5\n3,5\n", "'a' is the only numeric column"),
        (b"PK\x03\x04rest of a zip file", "zip|xlsx"),
    ],
)
def test_unusable_tables_are_explained(tmp_path, capsys, content, message):
    """Each odd table ends with exit code 1, one sentence that says why, and no run folder."""
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    assert main(["fit", "pca", str(path), "--out", str(tmp_path / "run"), *_SMALL]) == 1
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


def test_what_a_file_leaves_open_is_answered_by_an_option(tmp_path, capsys):
    """A sign for missing cells, and a comma that may be either, are asked about; the options named are the answer."""
    path = tmp_path / "open.csv"
    path.write_text("a;b\n1,234;2\n5,678;k. A.\n9,125;4\n2,500;1\n")
    words = ["fit", "pca", str(path), "--out", str(tmp_path / "run"), *_SMALL]
    assert main(words) == 1
    assert "--decimal ," in capsys.readouterr().err
    assert main([*words, "--decimal", ","]) == 1
    assert "--missing" in capsys.readouterr().err
    table, facts = PCARun().read(path, PCAOptions(1), None, Dialect(decimal=",", missing=("k. A.",)))
    np.testing.assert_array_equal(table.values[:, 0], [1.234, 5.678, 9.125, 2.5])
    assert any("1 of 8 cells are missing" in note for note in facts["notes"])


def test_missing_things_are_explained(tmp_path, run, capsys):
    """A file, a run, a column or a method that is not there."""
    assert main(["fit", "pca", str(tmp_path / "none.csv"), "--out", str(tmp_path / "run")]) == 1
    assert "none.csv" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 1
    assert "not a run folder" in capsys.readouterr().err
    other = tmp_path / "other.csv"
    other.write_text("b,c,d\n1,2,3\n4,5,7\n")
    assert main(["predict", str(other), str(run)]) == 1
    assert "is a file. Give the folder that `geodax fit` wrote, and a table after it." in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["predict", str(run), str(other)]) == 1
    assert "--delimiter" in capsys.readouterr().err  # the fit's file had semicolons
    assert main(["predict", str(run), str(other), "--delimiter", ","]) == 1
    assert "Größe" in capsys.readouterr().err
    assert main(["citation", "nothing"]) == 1
    assert "Known names" in capsys.readouterr().err


def test_commands_that_only_print(capsys):
    """Version, citation and data list."""
    assert main(["--version"]) == 0
    assert re.match(r"geodax \d+\.\d+\.\d+", capsys.readouterr().out)
    assert main(["citation", "pca"]) == 0
    assert "@article{tipping1999probabilistic" in capsys.readouterr().out
    assert main(["data", "list"]) == 0
    printed = capsys.readouterr().out
    assert "wine" in printed
    assert "mnist" in printed


def test_the_help_names_the_version(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--version" in capsys.readouterr().out


def test_an_interruption_while_the_command_line_is_loaded_has_no_traceback():
    """The module of the commands is one whose import is interrupted."""
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'geodax.app.commands.commands': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from geodax.app import main\n"
        "sys.exit(main(['--version']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stderr) == (130, "Interrupted.\n")


@pytest.mark.thorough
def test_a_command_that_has_computed_ends_as_a_process_does(tmp_path):
    """It leaves without taking its modules apart: catches functions of `atexit` not called, and output that is lost."""
    (tmp_path / "data.csv").write_text("a,b,c\n" + "".join(f"{i},{i * i % 7},{i % 3}\n" for i in range(20)))
    code = "import atexit, sys; from geodax.app import main; atexit.register(print, 'at exit'); main(); print('never')"
    words = ["fit", "pca", str(tmp_path / "data.csv"), "--out", str(tmp_path / "run"), "--num-samples", "20"]
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "at exit"), ended.stderr
    again = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert again.returncode == 1
    assert "--overwrite" in again.stderr


def test_a_command_has_one_thread_of_blas_unless_another_number_is_asked_for():
    """NumPy reads it when it is imported."""
    code = "import os, sys; sys.argv = ['geodax', '--version']; from geodax.app import main; main(); "
    code += "print(os.environ['OPENBLAS_NUM_THREADS'])"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    for asked in ({}, {"OPENBLAS_NUM_THREADS": "3"}):
        ended = subprocess.run([sys.executable, "-c", code], env=environment | asked, capture_output=True, text=True)
        assert ended.stdout.split()[-1] == (asked or {"": "1"}).popitem()[1]


@pytest.mark.thorough
def test_interrupted_fit_resumes_to_the_same_draws(table, run, tmp_path):
    """SIGTERM in the middle: exit code 130, a checkpoint; `resume` ends with the draws of an uninterrupted run."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "geodax"]
    long = ["--num-warmup", "60", "--num-samples", "200000", "--num-chains", "2", "--no-progress"]
    process = subprocess.Popen(
        [*command, "fit", "pca", str(table), "--out", str(folder), "--seed", "1", *long, *_WRITTEN],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    deadline = time.monotonic() + 240
    while "sampling" not in (log := (folder / "log").read_text() if (folder / "log").exists() else ""):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, log
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130, error
    assert "Stopped by a signal" in error
    assert list((folder / "checkpoint" / "steps").iterdir())
    assert main(["report", str(folder)]) == 0  # of an unfinished run
    interrupted = xr.open_datatree(folder / "posterior.zarr", engine="zarr", consolidated=False)["posterior"][
        "scale"
    ].values
    finished = xr.open_datatree(run / "posterior.zarr", engine="zarr", consolidated=False)["posterior"]["scale"].values
    np.testing.assert_array_equal(interrupted[:, :80], finished[:, :80])
