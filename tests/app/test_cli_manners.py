"""What the command line says: mistyped words, the library's errors, closed pipes, folders without a name, JSON."""

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from geodax._wording import named_by
from geodax.app import main
from geodax.app.commands.entry import COMMANDS, as_option, mistyped, plain_warnings, without_owner
from geodax.app.families import FAMILIES, unused
from geodax.app.run_folder.going_on import way_out
from geodax.app.run_folder.own import new_folder

_SMALL = ["--num-warmup", "60", "--num-samples", "40", "--num-chains", "2", "--no-progress"]
_ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a table that has a column of text, so that there is a note on its reading."""
    folder = tmp_path_factory.mktemp("manners")
    generator = np.random.default_rng(0)
    values = generator.standard_normal((40, 1)) * [1.0, 2.0, -1.0] + 0.3 * generator.standard_normal((40, 3))
    lines = ["a,b,c,who", *(",".join([*(f"{v:.3f}" for v in row), f"p{i}"]) for i, row in enumerate(values))]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def printed(place) -> dict:
    """What ``fit --json`` without ``--out`` prints, in a process of its own with a bar of progress."""
    words = ["fit", "pca", "table.csv", "--n-components", "1", *_SMALL[:-1], "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "geodax", *words],
        cwd=place,
        env=_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Columns left out: 'who'" in ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["fit", "clasifier", "x.csv"], "did you mean `geodax fit classifier`?"),
        (["reprot", "runs/x"], "did you mean `geodax report`?"),
        (["data", "lst"], "did you mean `geodax data list`?"),
        (["pca", "x.csv"], "did you mean `geodax fit pca`?"),
        (["xyzzy"], "Its commands are fit,"),
    ],
)
def test_mistyped_commands_are_answered_with_the_nearest(words, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert meant in " ".join(capsys.readouterr().err.split())


def test_every_command_of_the_help_is_known(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = re.search(r"\{(.*)\}", capsys.readouterr().out)
    assert shown is not None
    assert set(shown[1].split(",")) == set(COMMANDS)
    assert [mistyped(words) for words in (["fit", "pca", "pcaa"], ["show", "runs"], ["--help"], [])] == [""] * 4


def test_mistyped_options_are_answered_with_the_nearest(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "pca", "x.csv", "--n-componnts", "3"])
    assert re.search(r"Perhaps you meant:\W*--n-components", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("sample: the position holds no array.", "the position holds no array."),
        ("BayesianMLPClassifier.fit: y has one class.", "y has one class."),
        ("Several processes: give the rank of this one.", "Several processes: give the rank of this one."),
    ],
)
def test_errors_do_not_name_the_class_that_raised_them(said, expected):
    assert without_owner(said) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["regressor", "--target", "a", "--num-warmup", "0"], "--num-warmup must be at least 1"),
        (["pca", "--num-warmup", "0"], "--num-warmup is 0; 500 to 1,000 is usual"),
        (["regressor", "--target", "a", "--prior", "flat"], "--prior must be one of"),
        (["regressor", "--target", "a", "--metric", "flat"], "--metric must be one of"),
        (["regressor", "--target", "a", "--inference", "flat"], "--inference must be one of"),
        (
            ["regressor", "--target", "a", "--sampler", "sgrld", "--rank", "2"],
            "but --orthogonal and --rank put them on Stiefel manifolds; use --sampler sghmc.",
        ),
    ],
)
def test_no_error_speaks_of_python(options, expected, place, tmp_path, capsys):
    model, *rest = options
    assert main(["fit", model, str(place / "table.csv"), "--out", str(tmp_path / "run"), *rest, "--no-progress"]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert expected in error
    assert not re.search(r"\bgx\.|construct|\w+\(\.\.\.|[a-z]_[a-z]|=\w", error.replace(str(place), "")), error


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("regressor", {"thinning": 5}, []),
        ("regressor", {"thinning": 5, "inference": "swag"}, ["--thinning 5 has no effect with --inference swag."]),
        ("classifier", {"friction": 0.2, "sampler": "sgrld"}, ["--friction 0.2 has no effect with --sampler sgrld."]),
        ("factorization", {"offset_scale": 1.0, "friction": 0.2}, []),
        (
            "factorization",
            {"offset_scale": 1.0, "offsets": False},
            ["--offset-scale 1.0 has no effect with --no-offsets."],
        ),
        ("eigenmodel", {"intercept_scale": 1.0}, []),
        ("network", {"intercept_scale": 1.0}, ["--intercept-scale 1.0 has no effect with --no-intercept."]),
    ],
)
def test_options_without_effect_are_named(model, given, expected):
    with named_by(as_option):
        assert unused(FAMILIES[model].options(**given)) == expected


def test_warnings_have_no_line_of_code(capsys):
    with warnings.catch_warnings(), plain_warnings():
        warnings.simplefilter("always")
        warnings.warn("vi.fit: the fit diverged.", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: the fit diverged.\n"


def test_an_interruption_names_the_command_that_continues(tmp_path):
    run = tmp_path / "my run"
    assert way_out(run).startswith(f"`geodax resume '{run}'` continues")


def test_a_closed_pipe_is_silent():
    for words in (["citation", "pca"], ["fit", "pca", "--help"], ["--version"]):
        read, write = os.pipe()
        os.close(read)
        ended = subprocess.run(
            [sys.executable, "-m", "geodax", *words],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            env=_ENVIRONMENT,
            check=False,
        )
        os.close(write)
        assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.thorough
@pytest.mark.parametrize("platform", ["cuda", "nonsense"])
def test_a_device_that_is_not_there_is_named(platform, place, tmp_path):
    """As on a node of a cluster without a GPU."""
    words = [sys.executable, "-m", "geodax", "fit", "pca", str(place / "table.csv"), "--out", str(tmp_path / "run")]
    environment = _ENVIRONMENT | {"JAX_PLATFORMS": platform}
    ended = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 1
    assert f"no device for JAX_PLATFORMS={platform}" in ended.stderr
    assert "bug" not in ended.stderr


def test_a_closed_standard_output_is_no_error():
    """As under a daemon."""
    words = f"exec {shlex.quote(sys.executable)} -m geodax --version >&-"
    ended = subprocess.run(["/bin/sh", "-c", words], capture_output=True, text=True, env=_ENVIRONMENT, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.thorough
def test_a_run_without_a_name_is_named_after_model_and_table(place, printed, tmp_path, monkeypatch):
    assert printed["run"] == "runs/pca-table"
    assert (place / "runs" / "pca-table" / "summary.csv").exists()
    monkeypatch.chdir(tmp_path)
    names = [str(new_folder("pca", file)) for file in ("a/my table.csv.gz", "my table.csv", "-", "my table.csv")]
    assert names == ["runs/pca-my table", "runs/pca-my table-2", "runs/pca-table", "runs/pca-my table-3"]


def test_a_fit_that_does_not_start_leaves_no_named_folder(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "pca", str(place / "table.csv"), "--num-samples", "0", "--no-progress"]) == 1
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.thorough
def test_json_holds_what_show_prints_again(place, printed, capsys):
    run = place / printed["run"]
    assert main(["show", str(run), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again == printed | {"run": str(run)}
    assert (again["model"], again["num_chains"], again["num_draws"]) == ("pca", 2, 40)
    assert again["summary"]["scale[0]"]["is_shown"]
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert f"{again['summary']['scale[0]']['mean']:.3g}" in shown
    assert all(finding["title"].lower() in shown.lower() for finding in again["findings"])


@pytest.mark.thorough
def test_a_run_that_was_killed_shows_its_draws(place, printed, tmp_path, capsys):
    """Facts such as the sampling time are written at the end."""
    run = tmp_path / "killed"
    shutil.copytree(place / printed["run"], run)
    root = json.loads((run / "posterior.zarr" / "zarr.json").read_text())
    for name in ("sampling_seconds", "compile_seconds"):
        del root["attributes"][name]
    (run / "posterior.zarr" / "zarr.json").write_text(json.dumps(root))
    assert main(["show", str(run)]) == 0
    assert "2 chains of 40 draws so far." in capsys.readouterr().out
    assert main(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sampling_seconds"] is None
    assert main(["report", str(run)]) == 0


@pytest.mark.thorough
def test_json_of_reports_and_predictions_names_their_files(place, printed, capsys):
    run, table = str(place / printed["run"]), str(place / "table.csv")
    assert main(["report", run, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["report"]).exists()
    assert told["summary"] == printed["summary"]
    assert main(["predict", run, table, "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["predictions"]).exists()
    assert main(["predict", run, table, "--json", "--out", "-"]) == 1
    assert main(["predict", run]) == 1
    assert "geodax predict RUN FILE" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("factorization", "completion", "n-components"))


_TABLES = {
    "eigenmodel": ["network.csv"],
    "network": ["contacts.csv"],
    "factorization": ["ratings.csv", "--rank", "2"],
    "unit-network": ["table.csv", "--target", "a"],
    "regressor": ["table.csv", "--target", "a"],
    "classifier": ["table.csv", "--target", "half"],
    "cca": ["table.csv", "--first-view", "a,b", "--group", "half"],
    "pca": ["table.csv"],
}
_HAVE_NO_BOUND = {"start"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A small table for every model."""
    folder = tmp_path_factory.mktemp("tables")
    rows = np.random.default_rng(0).standard_normal((20, 4)).round(3).tolist()
    lines = {
        "table": ["a,b,c,d,half", *(",".join([*map(str, row), "xy"[i % 2]]) for i, row in enumerate(rows))],
        "network": [",".join("01"[i != j and (i * j) % 3 != 1] for j in range(6)) for i in range(6)],
        "contacts": ["time,a,b", *(f"{t},p{i},p{(i + 1 + t % 3) % 5}" for t in range(20) for i in range(5))],
        "ratings": ["user,item,rating", *(f"u{i},i{j},{1 + i * j % 5}" for i in range(6) for j in range(6))],
    }
    for name, those in lines.items():
        (folder / f"{name}.csv").write_text("\n".join(those) + "\n")
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("model", FAMILIES)
def test_every_number_out_of_range_is_named_as_an_option(model, tables, tmp_path, capsys):
    """No check of the library, whatever it is called there, speaks of an argument of Python."""
    numbers = [
        field.name
        for field in dataclasses.fields(FAMILIES[model].options)
        if re.search(r"\b(int|float)\b", str(field.type)) and field.name not in _HAVE_NO_BOUND
    ]
    assert len(numbers) >= 5
    file, *rest = _TABLES[model]
    for name in numbers:
        option = f"--{name.replace('_', '-')}"
        words = ["fit", model, str(tables / file), *rest, "--out", str(tmp_path / "run"), "--no-progress"]
        assert main([*words, f"{option}=-1"]) == 1, option
        error = " ".join(capsys.readouterr().err.split())
        assert error.startswith(f"geodax: {option} must be "), error
        assert "found -1" in error
