"""Nothing that a user has is lost by a command that is refused, interrupted or killed: runs, tables, earlier outputs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from geodax.app import main
from geodax.app.pca.run import PCARun
from geodax.app.run_folder import earlier as earlier_run
from geodax.app.run_folder import own as own_files
from geodax.app.run_folder.files import write_config
from geodax.models import BayesianPCA
from geodax.run import locks
from geodax.run.draws import ZarrDraws, open_draws
from geodax.run.progress import Progress

_SMALL = ["--num-warmup", "20", "--num-chains", "2", "--no-progress"]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, but for the lock, and empty folders."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.name != "lock"}
    return {name: path.read_bytes() if path.is_file() else b"a folder" for name, path in found.items()}


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, and a finished run of it."""
    folder = tmp_path_factory.mktemp("made")
    rows = np.random.default_rng(0).standard_normal((30, 3))
    lines = [",".join(f"{x:.3f}" for x in row) + f",{'ab'[i % 2]}" for i, row in enumerate(rows)]
    (folder / "table.csv").write_text("\n".join(["x,y,z,kind", *lines]) + "\n")
    words = ["fit", "pca", str(folder / "table.csv"), "--n-components", "1", "--num-samples", "20", *_SMALL]
    assert main([*words, "--out", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run, with a report."""
    shutil.copytree(made / "run", tmp_path / "run")
    (tmp_path / "run" / "report.html").write_text("page")
    return tmp_path / "run"


@pytest.fixture
def quick_fit(made, monkeypatch):
    """A fit that takes the first draws of the finished run for its own, where it is the files beside them that matter."""

    def fit(self, table):
        tree = open_draws(made / "run" / "posterior.zarr").isel(draw=slice(0, self.num_samples))
        drawn = {name: group for name, group in tree.children.items() if "draw" in group.dims}
        groups = {name: {k: v.values for k, v in group.data_vars.items()} for name, group in drawn.items()}
        shapes = {g: {k: (v.shape[2:], v.dtype) for k, v in values.items()} for g, values in groups.items()}
        ZarrDraws(Path(self.checkpoint) / "posterior.zarr", shapes, 2, self.num_samples, is_own=True).write(0, groups)
        return self.with_posterior(table, posterior=tree)

    monkeypatch.setattr(BayesianPCA, "fit", fit)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pca", "--num-samples", "0"], "--num-samples"),
        (["pca", "--n-components", "0"], "--n-components"),
        (["pca", "--target-acceptance-rate", "2"], "--target-acceptance-rate"),
        (["pca", "--noise-prior-scale", "0"], "--noise-prior-scale"),
        (["pca", "--devices", "99"], "devices"),
        (["classifier", "--target", "kind", "--friction", "5"], "friction"),
        (["classifier", "--target", "kind", "--devices", "99"], "devices"),
        (["classifier", "--target", "kind", "--inference", "whvi", "--num-samples", "0"], "--num-samples"),
    ],
)
def test_an_overwriting_fit_that_is_refused_changes_nothing(made, run, words, message, capsys):
    before = contents(run)
    fit = ["fit", words[0], str(made / "table.csv"), *words[1:], *_SMALL, "--out", str(run), "--overwrite"]
    assert main(fit) == 1
    assert message in said(capsys)
    assert contents(run) == before


@pytest.mark.thorough
@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), OSError("no room")])
def test_whatever_ends_it_before_it_begins(made, run, error, monkeypatch):
    def fit(self, table):
        (Path(self.checkpoint) / "posterior.zarr").mkdir()
        raise error

    monkeypatch.setattr(BayesianPCA, "fit", fit)
    before = contents(run)
    assert main(["fit", "pca", str(made / "table.csv"), *_SMALL, "--out", str(run), "--overwrite"]) != 0
    assert contents(run) == before


def test_a_fit_that_has_begun_replaces_the_earlier_run(made, run, monkeypatch):
    """It may fail later: by then it has draws of its own."""
    at_work = []

    def fit(self, table):
        at_work.append((run / earlier_run.EARLIER / "posterior.zarr").is_dir())
        self.progress(Progress(1, 40, 20, None, 0, 1.0, 39.0))
        at_work.append((run / earlier_run.EARLIER).exists())
        raise RuntimeError("later")

    monkeypatch.setattr(BayesianPCA, "fit", fit)
    words = ["fit", "pca", str(made / "table.csv"), *_SMALL, "--out", str(run), "--overwrite", "--seed", "7"]
    assert main(words) != 0
    assert at_work == [True, False]
    assert {path.name for path in run.iterdir()} == {"config.json", "data.npz", "lock", "log"}
    assert json.loads((run / "config.json").read_text())["seed"] == 7


def test_a_fit_that_ends_well_replaces_it_too(made, quick_fit, run):
    words = ["fit", "pca", str(made / "table.csv"), "--n-components", "1", "--num-samples", "8", *_SMALL]
    assert main([*words, "--out", str(run), "--overwrite"]) == 0
    assert json.loads((run / "config.json").read_text())["options"]["num_samples"] == 8
    assert not (run / "report.html").exists()
    assert not list(run.glob("earlier-run*"))
    assert main(["predict", str(run), str(made / "table.csv")]) == 0


class Died(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("stage", ["set_aside", "put_back"])
@pytest.mark.parametrize("last", range(12))
def test_a_run_is_whole_again_wherever_the_process_died(run, stage, last, monkeypatch):
    """After any number of renamings and removals, of either way; what geodax did not write stays where it is."""
    (run / "my notes.txt").write_text("mine")
    before, left = contents(run), [last]

    def dying(function):
        def step(*arguments, **options):
            if left[0] == 0:
                raise Died
            left[0] -= 1
            return function(*arguments, **options)

        return step

    if stage == "put_back":
        earlier_run.set_aside(run)
        for name in ("config.json", "data.npz", "log"):
            (run / name).write_text("new")
        (run / "posterior.zarr").mkdir()
        (run / "posterior.zarr" / "zarr.json").write_text("new")
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(own_files, "_delete", dying(own_files._delete))
        with contextlib.suppress(Died):
            getattr(earlier_run, stage)(run)
    earlier_run.put_back(run)
    assert contents(run) == before


def test_one_that_was_let_go_does_not_come_back(run, monkeypatch):
    earlier_run.set_aside(run)
    (run / "config.json").write_text("new")
    with monkeypatch.context() as patched:
        patched.setattr(earlier_run, "remove", lambda *arguments: None)  # died before it
        earlier_run.forget(run)
    assert (run / earlier_run.REMOVED / "report.html").exists()
    earlier_run.put_back(run)
    assert contents(run) == {"config.json": b"new"}


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["_run", "write_config", "forget"])
def test_a_killed_fit_is_put_right_by_the_next_command(made, run, moment, capsys):
    before = contents(run)
    script = (
        "import os, signal, sys\nfrom geodax.app import main\nfrom geodax.app.run_folder import actions, earlier\n"
        f"setattr(earlier if {moment!r} == 'forget' else actions, {moment!r}, "
        "lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))\nmain(sys.argv[1:])"
    )
    words = ["fit", "pca", str(made / "table.csv"), "--n-components", "1", *_SMALL, "--out", str(run), "--overwrite"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    process = subprocess.run([sys.executable, "-c", script, *words], env=environment, check=False)
    assert process.returncode == -signal.SIGKILL
    assert contents(run) != before
    for reading in (["report", str(run)], ["predict", str(run), str(made / "table.csv")]):
        assert main(reading) == 1
        assert "earlier-run and has not started yet" in said(capsys)
    assert main(words[:-1]) == 1
    assert "It holds a run" in said(capsys)
    assert contents(run) == before


@pytest.mark.thorough
def test_resume_puts_a_run_back_that_a_killed_fit_had_set_aside(run, capsys):
    """But never under a fit that is at work."""
    (run / "my notes.txt").write_text("mine")
    before = contents(run)
    earlier_run.set_aside(run)
    (run / "config.json").write_text("{}")
    with locks.exclusive(run / "lock", run, "make a run in"):
        assert main(["resume", str(run), "--no-progress"]) == 1
        assert "another run is at work there" in said(capsys)
        assert main(["report", str(run)]) == 1
        assert "geodax resume" in said(capsys)
        assert (run / earlier_run.EARLIER / "config.json").exists()
    assert main(["resume", str(run), "--no-progress"]) == 0
    assert "was restored" in " ".join(capsys.readouterr().out.split())
    after = contents(run)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] != before[name]}
    assert not {"config.json", "data.npz", "my notes.txt"} & changed


@pytest.mark.thorough
def test_a_resume_that_is_refused_keeps_the_number_of_draws(run, capsys):
    assert main(["resume", str(run), "--num-samples", "30", "--devices", "99", "--no-progress"]) == 1
    assert "devices" in said(capsys)
    assert json.loads((run / "config.json").read_text())["options"]["num_samples"] == 20
    assert main(["resume", str(run), "--num-samples", "30", "--no-progress"]) == 0
    assert json.loads((run / "config.json").read_text())["options"]["num_samples"] == 30


def test_a_run_that_another_version_would_continue_is_read_here(run, monkeypatch, capsys):
    """Its model differs, as one whose chains start elsewhere: neither the folder nor the arguments are wrong."""
    before = contents(run / "posterior.zarr")
    with monkeypatch.context() as other:
        other.setattr("geodax.run.identity.first_difference", lambda *_: ("log density", [1.0], [2.0]))
        assert main(["resume", str(run), "--num-samples", "30", "--no-progress"]) == 1
    words = said(capsys)
    assert "was made by another version of geodax" in words
    assert "another folder" not in words
    assert json.loads((run / "config.json").read_text())["options"]["num_samples"] == 20
    assert contents(run / "posterior.zarr") == before
    assert main(["show", str(run)]) == 0


def test_predictions_never_replace_a_table(made, run, tmp_path, capsys):
    """Whatever way leads to it: another spelling, a link, or the name of the run's predictions."""
    table = tmp_path / "new.csv"
    shutil.copy(made / "table.csv", table)
    (tmp_path / "link.csv").symlink_to(table)
    (tmp_path / "hard.csv").hardlink_to(table)
    before = table.read_bytes()
    for out in (table, tmp_path / "run" / ".." / "new.csv", tmp_path / "link.csv", tmp_path / "hard.csv"):
        assert main(["predict", str(run), str(table), "--out", str(out)]) == 1
        assert "is the table to predict for and would be overwritten" in said(capsys)
    shutil.copy(table, run / "predictions.csv")
    assert main(["predict", str(run), str(run / "predictions.csv")]) == 1
    fitted = Path(json.loads((run / "config.json").read_text())["file"])
    for words in (["predict", str(run), str(table)], ["report", str(run)]):
        assert main([*words, "--out", str(fitted)]) == 1
        assert "is the table that was fitted" in said(capsys)
    assert table.read_bytes() == before == (run / "predictions.csv").read_bytes() == fitted.read_bytes()


@pytest.mark.thorough
def test_the_fitted_table_is_known_wherever_a_command_is_called(made, quick_fit, tmp_path, monkeypatch, capsys):
    """It was named from another folder, in which there may be another table of that name, and it may be moved."""
    for folder in ("a", "a/sub", "b"):
        (tmp_path / folder).mkdir()
    shutil.copy(made / "table.csv", tmp_path / "a" / "table.csv")
    other = "x,y,z\n1,2,3\n4,5,7\n"
    for name in ("a/new.csv", "b/table.csv", "b/new.csv"):
        (tmp_path / name).write_text(other)
    fitted = (tmp_path / "a" / "table.csv").read_bytes()
    monkeypatch.chdir(tmp_path / "a")
    words = ["fit", "pca", "table.csv", "--n-components", "1", "--num-samples", "20", *_SMALL]
    assert main([*words, "--out", "run"]) == 0
    monkeypatch.chdir(tmp_path / "a" / "sub")
    assert main(["predict", "../run", "../new.csv", "--out", "../table.csv"]) == 1
    assert "../table.csv is the table that was fitted" in said(capsys)
    monkeypatch.chdir(tmp_path / "b")
    capsys.readouterr()
    assert main(["resume", "../a/run", "--no-progress"]) == 0
    assert "has changed" not in capsys.readouterr().out
    assert main(["predict", "../a/run", "new.csv", "--out", "table.csv"]) == 0
    assert (tmp_path / "b" / "table.csv").read_text() != other
    assert main(["report", "../a/run"]) == 0
    assert f"geodax fit pca {tmp_path / 'a' / 'table.csv'} " in (tmp_path / "a" / "run" / "report.html").read_text()
    (tmp_path / "a").rename(tmp_path / "moved")
    assert main(["predict", "../moved/run", "new.csv", "--out", "../moved/table.csv"]) == 1
    assert "is the table that was fitted" in said(capsys)
    assert main(["resume", "../moved/run", "--no-progress"]) == 0
    assert (tmp_path / "moved" / "table.csv").read_bytes() == fitted
    config = json.loads((tmp_path / "moved" / "run" / "config.json").read_text())
    del config["absolute_file"], config["digest"]  # as an earlier version has written it
    write_config(tmp_path / "moved" / "run", config)
    monkeypatch.chdir(tmp_path / "moved")
    (tmp_path / "moved" / "table.csv").write_text(other)
    assert main(["predict", "run", "new.csv", "--out", "table.csv"]) == 1
    assert "is the table that was fitted" in said(capsys)
    assert main(["resume", "run", "--no-progress"]) == 0
    assert "table.csv has changed since the run started" in " ".join(capsys.readouterr().out.split())


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["predict", "report"])
def test_no_output_replaces_another_file_of_the_run(made, run, command, tmp_path, monkeypatch, capsys):
    words = [command, str(run)] + ([str(made / "table.csv")] if command == "predict" else [])
    (run / "report.html").write_text("page")
    (run / "predictions.csv").write_text("rows")
    before = contents(run)
    other = "report.html" if command == "predict" else "predictions.csv"
    names = ["config.json", "data.npz", "log", "lock", "summary.csv", other, "posterior.zarr/zarr.json"]
    monkeypatch.chdir(run)
    for name in names:
        assert main([*words, "--out", name]) == 1
        assert "belongs to the run" in said(capsys)
    for name, message in ((tmp_path, "is a folder. Name a file in it"), (tmp_path / "a" / "b", "there is no folder")):
        assert main([*words, "--out", str(name)]) == 1
        assert message in said(capsys)
    assert contents(run) == before
    assert main([*words, "--out", str(run / "further")]) == 0
    assert contents(run).keys() == before.keys() | {"further"}


@pytest.mark.parametrize("error", [OSError("no room"), KeyboardInterrupt()])
def test_an_interrupted_prediction_leaves_the_earlier_one(made, run, error, monkeypatch):
    predict = PCARun.predict
    words = ["predict", str(run), str(made / "table.csv")]
    assert main(words) == 0
    os.chmod(run / "predictions.csv", 0o640)
    before = contents(run)

    def interrupted(self, data, model, file, path, *dialect):
        path.write_text("half")
        raise error

    monkeypatch.setattr(PCARun, "predict", interrupted)
    assert main(words) != 0
    assert contents(run) == before
    monkeypatch.setattr(PCARun, "predict", predict)
    (run / "predictions.csv").write_text("earlier")
    assert main(words) == 0
    assert contents(run) == before
    assert (run / "predictions.csv").stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_and_not_replaced(made, run, tmp_path, capsys):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    assert main(["predict", str(run), str(made / "table.csv"), "--out", str(pipe)]) == 0
    reader.join(60)
    assert found[0].startswith("row,kind,")
    assert main(["report", str(run), "--out", str(pipe)]) == 1
    assert "must be a regular file" in said(capsys)
    assert pipe.is_fifo()


@pytest.mark.thorough
def test_what_is_open_is_added_to_and_not_replaced(made, run, tmp_path, capsys):
    """As the shell opens it: a file at whose end is written, through a link too, and a pipe."""
    words, log, link = ["predict", str(run), str(made / "table.csv")], tmp_path / "keep.log", tmp_path / "link"
    assert main(words) == 0
    table = (run / "predictions.csv").read_text()
    log.write_text("kept\n")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    link.symlink_to(f"/dev/fd/{descriptor}")
    for out in (f"/dev/fd/{descriptor}", f"/proc/self/fd/{descriptor}", f"/proc/{os.getpid()}/fd/{descriptor}", link):
        assert main([*words, "--out", str(out)]) == 0
    os.close(descriptor)
    assert log.read_text() == "kept\n" + 4 * table
    assert link.is_symlink()
    source, sink = os.pipe()
    assert main([*words, "--out", f"/dev/fd/{sink}"]) == 0
    os.close(sink)
    with open(source) as pipe:
        assert pipe.read() == table


def test_a_reader_that_has_had_enough_is_no_error(made, run, capsys):
    source, sink = os.pipe()
    os.close(source)
    assert main(["predict", str(run), str(made / "table.csv"), "--out", f"/dev/fd/{sink}"]) == 0
    os.close(sink)
    assert said(capsys) == ""


@pytest.mark.thorough
@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_the_standard_output_holds_the_predictions_alone(made, run, capfd, out):
    """Notes are said elsewhere; no file of that name is made."""
    new = made / "further.csv"
    new.write_text("x,y,z,kind,w\n1,2,3,a,5\n")
    assert main(["predict", str(run), str(new)]) == 0
    capfd.readouterr()
    assert main(["predict", str(run), str(new), "--out", out]) == 0
    printed = capfd.readouterr()
    assert printed.out == (run / "predictions.csv").read_bytes().decode()
    assert "the model does not use them: 'w'" in " ".join(printed.err.split())
    if out == "-":
        assert main(["report", str(run), "--out", out]) == 0
        assert capfd.readouterr().out.rstrip().endswith("</html>")
    assert not Path("-").exists()


def test_a_prediction_that_is_terminated_leaves_nothing_half_written(made, run, monkeypatch, capsys):
    def terminated(self, data, model, file, path, *dialect):
        path.write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)

    before = contents(run)
    monkeypatch.setattr(PCARun, "predict", terminated)
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert main(["predict", str(run), str(made / "table.csv")]) == 130
        assert contents(run) == before
    finally:
        signal.signal(signal.SIGTERM, previous)


@pytest.mark.thorough
def test_an_interruption_before_the_first_draw_says_how_to_go_on(made, tmp_path, monkeypatch, capsys):
    def interrupted(self, *arrays):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    words = ["fit", "pca", str(made / "table.csv"), "--n-components", "1", "--num-samples", "20", *_SMALL]
    with monkeypatch.context() as patched:
        patched.setattr(BayesianPCA, "fit", interrupted)
        assert main([*words, "--out", str(out)]) == 130
        assert f"`geodax resume {out}` continues" in said(capsys)
        assert main(["report", str(out)]) == 1
        assert f"has no draws yet. Resume it first with `geodax resume {out}`." in said(capsys)
        assert main([*words, "--out", str(made / "run"), "--overwrite"]) == 130
        assert "the earlier one is still in" in said(capsys)
    assert main(["resume", str(out), "--no-progress"]) == 0
    assert main(["resume", str(made / "run"), "--no-progress"]) == 0


@pytest.mark.thorough
def test_an_interruption_after_the_last_draw_says_how_to_go_on(run, monkeypatch, capsys):
    """The summary would be that of fewer draws, and nothing had said so."""

    def interrupted(self, data, model):
        raise KeyboardInterrupt

    words = ["resume", str(run), "--num-samples", "25", "--no-progress"]
    with monkeypatch.context() as patched:
        patched.setattr(PCARun, "summarized", interrupted)
        assert main(words) == 130
    assert f"all draws were made. `geodax resume {run}` writes the summary" in said(capsys)
    before = contents(run)["summary.csv"]
    assert main(["resume", str(run), "--no-progress"]) == 0
    assert contents(run)["summary.csv"] != before


@pytest.mark.thorough
def test_a_finished_run_of_few_draws_is_told_how_to_get_more(made, quick_fit, tmp_path, capsys):
    """And never to go on with it, which would change nothing; four draws of all chains together are enough."""
    out = tmp_path / "my run"
    words = ["fit", "pca", str(made / "table.csv"), "--n-components", "1", "--num-samples", "1", *_SMALL]
    extension = f"geodax resume '{out}' --num-samples 2"
    assert main([*words, "--out", str(out)]) == 0
    ended = capsys.readouterr().out
    assert f"Too few draws for a report. Add draws with: {extension}" in " ".join(ended.split())
    assert "Report:" not in ended
    for reading in (["report", str(out)], ["predict", str(out), str(made / "table.csv")]):
        assert main(reading) == 1
        assert "finished with 2 draws in total, but a report or a prediction needs at least 4. " in (
            told := said(capsys)
        )
        assert f"`{extension}`" in told
    assert main(["resume", str(out), "--num-samples", "2", "--no-progress"]) == 0
    assert f"Report: geodax report '{out}'" in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(out)]) == 0
    assert "Too few draws for any diagnostic" in (out / "report.html").read_text(encoding="utf-8")
    assert main(["predict", str(out), str(made / "table.csv")]) == 0


def test_commands_that_are_named_can_be_typed(made, tmp_path, monkeypatch, capsys):
    """Names of folders with spaces are in quotation marks."""
    out = tmp_path / "my run"
    words = ["fit", "pca", str(made / "table.csv"), "--n-components", "1", "--num-samples", "20", *_SMALL]
    assert main(["report", str(out)]) == 1
    assert f"--out '{out}'`" in said(capsys)

    def interrupted(self, *arrays):
        raise KeyboardInterrupt

    monkeypatch.setattr(BayesianPCA, "fit", interrupted)
    assert main([*words, "--out", str(out)]) == 130
    assert f"`geodax resume '{out}'` continues" in said(capsys)
    assert main([*words, "--out", str(out)]) == 1
    assert f"continue with `geodax resume '{out}'`, replace" in said(capsys)
    shutil.copytree(made / "run", tmp_path / "a run")
    assert main(["report", str(tmp_path / "a run"), "--out", str(tmp_path / "a run")]) == 1
    assert f"such as --out '{tmp_path / 'a run' / 'report.html'}'" in said(capsys)


def test_a_refused_fit_leaves_no_folder_behind(made, tmp_path):
    """Options are refused after the folder was made; one that was there before stays."""
    words = ["fit", "pca", str(made / "table.csv"), "--num-samples", "0", *_SMALL]
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    assert (tmp_path / "run").is_dir()
