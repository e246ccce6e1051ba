"""What geodax did not write is never replaced, moved or removed, and nothing is written through a link or left half written."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from geodax.app import main
from geodax.app.pca.run import PCARun
from geodax.app.report.html import Report
from geodax.app.run_folder import own as own_files
from geodax.app.run_folder.files import is_run, read_config, write_config
from geodax.models import BayesianMLPRegressor, BayesianPCA
from geodax.run.checkpoint import Checkpointer
from geodax.run.draws import ZarrDraws, open_draws
from geodax.run.errors import StorageError
from geodax.run.locks import exclusive
from geodax.run.progress import Progress
from tests.small_disk import SmallDisk

_PCA_FIT = BayesianPCA.fit


def quick_fit(self, table):
    """Draws from anywhere: it is the files beside them that matter."""
    generator = np.random.default_rng(0)
    width = np.shape(table)[1]
    shape = (2, 20)
    frames = np.linalg.qr(generator.standard_normal((*shape, width, 1)))[0]
    groups = {
        "posterior": {
            "components": frames,
            "scale": 1 + generator.random((*shape, 1)),
            "noise": 1 + generator.random(shape),
            "mean": generator.standard_normal((*shape, width)),
        },
        "sample_stats": {
            **{name: generator.random(shape) for name in ("lp", "energy", "acceptance_rate", "residual", "step_size")},
            "diverging": np.zeros(shape, bool),
            "n_steps": np.ones(shape, np.int32),
        },
    }
    shapes = {g: {k: (v.shape[2:], v.dtype) for k, v in values.items()} for g, values in groups.items()}
    folder = Path(self.checkpoint)
    if self.progress is not None:
        self.progress(Progress(20, 20, 0, None, 0, 1.0, 0.0))
    with exclusive(folder / "checkpoint" / "lock", folder / "checkpoint", "keep checkpoints in"):
        checkpointer = Checkpointer(folder / "checkpoint" / "steps")
        checkpointer.save(20, {"x": np.ones(3)}, {})
        checkpointer.close()
    with exclusive(folder / "posterior.zarr.lock", folder / "posterior.zarr", "write draws to"):
        draws = ZarrDraws(folder / "posterior.zarr", shapes, *shape)
    draws.write(0, groups)
    draws.describe({"sampling_seconds": 1.0, "compile_seconds": 1.0})
    return self.with_posterior(table, posterior=open_draws(folder / "posterior.zarr"))


@pytest.fixture(scope="module", autouse=True)
def _quick():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BayesianPCA, "fit", quick_fit)
        patched.setattr(PCARun, "report", lambda self, *arguments: Report("Quick").write(arguments[-1]))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, and a finished run of it with a report and predictions."""
    folder = tmp_path_factory.mktemp("made")
    rows = np.random.default_rng(0).standard_normal((30, 3))
    (folder / "table.csv").write_text("x,y,z\n" + "".join(",".join(f"{x:.3f}" for x in row) + "\n" for row in rows))
    assert main(fit(folder, folder / "run")) == 0
    assert main(["report", str(folder / "run")]) == 0
    assert main(["predict", str(folder / "run"), str(folder / "table.csv")]) == 0
    return folder


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def fit(made: Path, out: Path, *words: str) -> list[str]:
    table = str(made / "table.csv")
    small = ["--n-components", "1", "--num-samples", "20", "--num-chains", "2", "--no-progress"]
    return ["fit", "pca", table, *small, "--out", str(out), *words]


def contents(folder: Path) -> dict[str, bytes]:
    """All files, links and folders below a folder; a lock may change hands."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"a link to {os.readlink(path)}".encode()
        else:
            found[name] = re.sub(rb"^process \d+ on", b"process", path.read_bytes()) if path.is_file() else b"a folder"
    return found


def said(capsys) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_run_holds_nothing_but_own_files(run):
    found = own_files.contents(run)
    assert found.others == found.links == ()
    assert {*found.own} == {*run.rglob("*")}
    assert found.own[-1] == run / "config.json"
    assert is_run(run)
    assert json.loads((run / "config.json").read_text())["geodax_run"] == 1


@pytest.mark.parametrize(
    "config",
    [
        '{"model_type": "bert", "hidden_size": 768}',
        '{"format": 1, "model": "pca", "options": {}}',
        '{"format": 1, "model": "pca", "digest": "0f"}',
        '{"geodax_run": "1"}',
        "[1]",
        "{",
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("words", [(), ("--overwrite",)])
def test_a_folder_with_a_configuration_of_another_program(made, tmp_path, config, words, capsys):
    folder = tmp_path / "model"
    (folder / "weights").mkdir(parents=True)
    (folder / "config.json").write_text(config)
    (folder / "weights" / "data.npz").write_bytes(b"weights")
    (folder / "log").write_text("mine")
    before = contents(folder)
    assert main(fit(made, folder, *words)) == 1
    assert "It is not a run folder: it has no config.json that geodax wrote" in said(capsys)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("notes.md", "figures/"), "figures/, {run}/notes.md"),
        (("figures/scales.png",), "figures/."),
        (("posterior.zarr/notes.md",), "posterior.zarr/notes.md"),
        (("posterior.zarr/figures/a.png",), "posterior.zarr/figures/a.png"),
        (("checkpoint/steps/20/state/notes.md",), "checkpoint/steps/20/state/notes.md"),
        (("checkpoint/2019/photo.jpg",), "checkpoint/2019/photo.jpg"),
        (("log.old",), "log.old"),
        (("earlier-run.removed/thesis.tex",), "earlier-run.removed/thesis.tex"),
        (tuple(f"note{i}" for i in range(9)), "note4 and 4 more"),
    ],
)
def test_a_run_with_files_of_the_user_is_not_replaced(made, run, names, shown, capsys):
    for name in names:
        path = run / name
        if name.endswith("/"):
            path.mkdir()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    before = contents(run)
    assert main(fit(made, run, "--overwrite")) == 1
    message = said(capsys)
    assert "holds files that geodax did not write" in message
    assert shown.format(run=run) in message
    assert contents(run) == before


def test_a_run_is_replaced(made, run):
    """One of an earlier version, which has no mark, too."""
    config = json.loads((run / "config.json").read_text())
    for name in ("geodax_run", "digest"):
        del config[name]
    whole = config | {"digest": hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()}
    (run / "config.json").write_text(json.dumps(whole))
    (run / ".geodax-4711.partial").write_text("half")
    assert is_run(run)
    assert main(fit(made, run, "--overwrite", "--seed", "7")) == 0
    assert read_config(run, ["pca"])["seed"] == 7
    assert own_files.contents(run).others == ()
    assert {path.name for path in run.iterdir()} == {
        *("config.json", "data.npz", "lock", "log", "summary.csv", "checkpoint", "posterior.zarr"),
        "posterior.zarr.lock",
    }


@pytest.mark.parametrize("lock", ["", "process 12 on a machine\n"])
def test_what_a_killed_fit_left_is_replaced(made, tmp_path, lock):
    out = tmp_path / "run"
    out.mkdir()
    for name, text in {"lock": lock, "data.npz": "half", ".geodax-00ff.json": "{"}.items():
        (out / name).write_text(text)
    assert main(fit(made, out)) == 0
    assert not (out / ".geodax-00ff.json").exists()


def test_a_lock_and_data_of_another_program(made, tmp_path, capsys):
    for names in (("lock",), ("lock", "data.npz")):
        folder = tmp_path / names[-1]
        folder.mkdir()
        for name in names:
            (folder / name).write_text("of another program")
        before = contents(folder)
        assert main(fit(made, folder)) == 1
        assert "It is not a run folder" in said(capsys)
        assert contents(folder) == before


@pytest.mark.parametrize("inside", ["config.json", "thesis.tex"])
@pytest.mark.parametrize("command", ["resume", "fit"])
def test_a_folder_called_like_an_earlier_run(made, tmp_path, inside, command, capsys):
    """What was to be put back from it would have replaced the files beside it."""
    folder = tmp_path / "project"
    (folder / "earlier-run").mkdir(parents=True)
    (folder / "earlier-run" / inside).write_text("{}")
    for name in ("log", "data.npz", "thesis.tex"):
        (folder / name).write_text("mine")
    before = contents(folder)
    assert main(["resume", str(folder)] if command == "resume" else fit(made, folder)) == 1
    assert "does not belong to a run that `--overwrite` has set aside" in said(capsys)
    del before["earlier-run"]
    after = contents(folder)
    assert {name: after[name] for name in before} == before


LINKS = [
    *("lock", "log", "report.html", "predictions.csv", "summary.csv", "config.json", "config.json.partial", "data.npz"),
    *("earlier-run", "earlier-run.removed", "posterior.zarr", "posterior.zarr/posterior", "posterior.zarr.lock"),
    *("posterior.zarr/posterior/noise/zarr.json", "posterior.zarr/posterior/noise/c", "checkpoint", "checkpoint/lock"),
    *("checkpoint/steps", "checkpoint/steps/20", "checkpoint/steps/20/state/manifest.ocdbt"),
]


def link_out(run: Path, name: str, outside: Path) -> None:
    """Put what has a name outside and a link in its place."""
    outside.mkdir()
    target = outside / "target"
    if (run / name).exists():
        shutil.move(run / name, target)
    elif name.startswith("earlier"):
        target.mkdir()
        write_config(target, {"format": 1, "model": "pca"})
        (target / "data.npz").write_text("precious")
    else:
        target.write_text("precious")
    (run / name).symlink_to(target)


@pytest.mark.thorough
@pytest.mark.parametrize("name", LINKS)
def test_no_command_follows_a_link_out_of_a_run_folder(made, run, tmp_path, name, capsys):
    link_out(run, name, tmp_path / "outside")
    before = contents(tmp_path)
    table = str(made / "table.csv")
    for words in (
        fit(made, run),
        fit(made, run, "--overwrite"),
        ["resume", str(run), "--no-progress"],
        ["report", str(run)],
        ["predict", str(run), table],
        ["report", str(run), "--out", str(tmp_path / "page.html")],
    ):
        assert main(words) == 1, words
        message = said(capsys)
        assert f"{run / name}: expected a file or folder that geodax wrote, found a symbolic link" in message, words
        assert "Remove the link" in message
        assert contents(tmp_path) == before, words


@pytest.mark.parametrize("name", ["checkpoint", "posterior.zarr", "posterior.zarr.lock"])
@pytest.mark.parametrize("estimator", [BayesianPCA, BayesianMLPRegressor])
def test_no_estimator_does(run, tmp_path, name, estimator):
    link_out(run, name, tmp_path / "outside")
    before = contents(tmp_path)
    model = estimator(checkpoint=run, random_state=0)
    x = np.random.default_rng(0).standard_normal((20, 2))
    fit_of = _PCA_FIT if estimator is BayesianPCA else BayesianMLPRegressor.fit
    with pytest.raises(StorageError, match="is a symbolic link"):
        fit_of(model, x, *([x[:, 0]] if estimator is BayesianMLPRegressor else []))
    assert contents(tmp_path) == before


def test_nor_does_a_sampler(run, tmp_path):
    """In the folders of its checkpoints and draws; a folder of draws that is itself a link is the user's choice."""
    for name in ("checkpoint/steps/20", "posterior.zarr/posterior/noise"):
        link_out(run, name, tmp_path / name.split("/")[0])
    (run / "posterior.zarr.lock").unlink()
    (run / "posterior.zarr.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match="steps/20 is a symbolic link"):
        Checkpointer(run / "checkpoint" / "steps")
    with pytest.raises(StorageError, match="noise is a symbolic link"):
        ZarrDraws(run / "posterior.zarr", {"posterior": {"noise": ((), np.dtype(float))}}, 2, 20)
    with (
        pytest.raises(StorageError, match="lock is a symbolic link"),
        exclusive(run / "posterior.zarr.lock", run / "posterior.zarr", "write draws to"),
    ):
        pass
    assert not (tmp_path / "precious").exists()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "draws").symlink_to(tmp_path / "elsewhere")
    ZarrDraws(tmp_path / "draws", {"posterior": {"noise": ((), np.dtype(float))}}, 2, 20)
    assert (tmp_path / "elsewhere" / "zarr.json").exists()


def test_an_output_that_the_user_names(made, run, tmp_path, capsys):
    """A link outside of the run folder is followed, one in it is not."""
    (tmp_path / "page.html").write_text("earlier")
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    assert main(["report", str(run), "--out", str(tmp_path / "link.html")]) == 0
    assert (tmp_path / "link.html").is_symlink()
    assert "</html>" in (tmp_path / "page.html").read_text()
    (run / "figures").symlink_to(tmp_path)
    (run / "mine.csv").symlink_to(tmp_path / "page.html")
    before = (tmp_path / "page.html").read_bytes()
    assert main(["predict", str(run), str(made / "table.csv"), "--out", str(run / "mine.csv")]) == 1
    assert "is a symbolic link in the run folder" in said(capsys)
    assert (tmp_path / "page.html").read_bytes() == before


def test_a_run_folder_may_be_reached_through_a_link(made, run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    assert main(["report", str(tmp_path / "latest")]) == 0
    assert main(fit(made, tmp_path / "latest", "--overwrite")) == 0
    assert (tmp_path / "latest").is_symlink()


def test_predictions_for_a_spreadsheet(made, run, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("who,x,y,z\n=1+1,1,2,3\n-5,1,-2,3\n@a,1,1,1\n")
    words = ["predict", str(run), str(new)]
    assert main(words) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Text cells that a spreadsheet takes for formulas: 2, such as '=1+1'" in printed
    assert "--spreadsheet" in printed
    plain = (run / "predictions.csv").read_text()
    assert [line.split(",")[1] for line in plain.splitlines()] == ["who", "=1+1", "-5", "@a"]
    assert main([*words, "--spreadsheet"]) == 0
    assert "formulas" not in capsys.readouterr().out
    assert (run / "predictions.csv").read_text() == plain.replace("=1+1", "'=1+1").replace("@a", "'@a")


@pytest.mark.parametrize("name", ["report.html", "predictions.csv", "data.npz", "further"])
def test_an_output_for_which_there_is_no_room_is_named(made, run, tmp_path, name, capsys):
    table = str(made / "table.csv")
    words = {
        "report.html": ["report", str(run)],
        "predictions.csv": ["predict", str(run), table],
        "data.npz": fit(made, run, "--overwrite"),
        "further": ["predict", str(run), table, "--out", str(run / "further")],
    }[name]
    before = contents(run)
    with SmallDisk(300):
        code = main(words)
    assert code == 1
    assert f"File too large: '{run / name}'" in said(capsys)
    assert contents(run) == before
