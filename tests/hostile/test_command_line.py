"""The command line on files, words and folders that nobody means: exit code 0, 1 or 2, plain words, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

from geodax.app import main
from geodax.app.run_folder.files import write_config
from tests.hostile import commands, judge, tables
from tests.hostile.surface import SCIKIT_LEARN

MANY = hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck), deadline=None)


def _fine(verdict, case):
    assert verdict.is_fine, f"{case!r}: {verdict.outcome}: {verdict.error}: {verdict.message}"


@pytest.mark.thorough
@hypothesis.settings(MANY, max_examples=120)
@hypothesis.given(case=commands.readings())
def test_odd_tables_are_read_or_refused(case):
    """By every kind of run, until what a run folder keeps of them is read again."""
    _fine(judge.judged(case, validators=SCIKIT_LEARN), case)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(tables.SPECIAL))
def test_files_that_are_no_tables(name):
    for kind in ("pca", "eigenmodel", "factorization"):
        case = commands.Reading(kind, *tables.SPECIAL[name])
        _fine(judge.judged(case, validators=SCIKIT_LEARN), case)


@pytest.mark.thorough
@hypothesis.settings(MANY, max_examples=25)
@hypothesis.given(case=commands.absurd_fits())
def test_absurd_options(case):
    _fine(case(), case)


@hypothesis.settings(MANY, max_examples=30)
@hypothesis.given(case=commands.odd_words())
def test_odd_words(case):
    _fine(case(), case)


@hypothesis.settings(MANY, max_examples=25)
@hypothesis.given(case=commands.odd_folders())
def test_odd_run_folders(case):
    _fine(case(), case)


def test_options_that_are_refused_leave_no_run(tmp_path, capsys):
    """A fit that did not begin does not keep its folder for itself."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n2,5\n3,1\n")
    for _ in range(2):
        assert (
            main(["fit", "pca", str(path), "--out", str(tmp_path / "run"), "--num-samples", "0", "--no-progress"]) == 1
        )
        error = capsys.readouterr().err
        assert "--num-samples" in error
        assert "exists already" not in error


def test_overwriting_never_removes_the_table(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    write_config(folder, {"format": 1, "model": "pca"})
    for name, message in (("x.csv", "files that geodax did not write"), ("predictions.csv", "which a fit would empty")):
        table = folder / name
        table.write_text("a,b\n1,2\n2,5\n3,1\n")
        assert main(["fit", "pca", str(table), "--out", str(folder), "--overwrite", "--no-progress"]) == 1
        assert message in " ".join(capsys.readouterr().err.split())
        assert table.exists()
        table.unlink()


def test_an_error_that_was_not_foreseen_has_an_exit_code_of_its_own(tmp_path, monkeypatch, capsys):
    """One line that names it, no traceback; the traceback where it is asked for."""

    def broken(*arguments, **options):
        raise IndexError("list index out of range")

    monkeypatch.setattr("geodax.app.run_folder.actions.report_run", broken)
    assert main(["report", str(tmp_path)]) == 3
    error = capsys.readouterr().err
    assert "IndexError" in error
    assert "Traceback" not in error
    monkeypatch.setenv("GEODAX_TRACEBACK", "1")
    with pytest.raises(IndexError):
        main(["report", str(tmp_path)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fit", "pca", "none.csv", "--out", "run"], 1),
        (["fit", "pca", "odd.csv", "--out", "run"], 1),
        (["fit", "pca", "pipe", "--out", "run"], 1),
        (["no-such-command"], 2),
        (["fit", "pca"], 2),
        (["report", "."], 1),
        (["citation", "<script>"], 1),
    ],
)
def test_in_a_process_of_its_own(words, code, tmp_path):
    (tmp_path / "odd.csv").write_bytes(b"a,b\n1,\xff\0\n")
    os.mkfifo(tmp_path / "pipe")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "JAX_PLATFORMS": "cpu"}
    process = subprocess.run(
        [sys.executable, "-m", "geodax", *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == code, process.stderr
    _fine(commands.judged(process.returncode, process.stdout, process.stderr), words)
    assert not (tmp_path / "run").exists() or not (tmp_path / "run" / "config.json").exists()
