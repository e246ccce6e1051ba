"""Canonical correlation analysis on the command line: a whole life of a run."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from geodax.cli import main
from geodax.data import TableError
from geodax.models.cca_files import read_grouped, read_new_rows

_SMALL = ["--num-warmup", "60", "--num-samples", "30", "--num-chains", "2", "--no-progress"]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """Three groups; what is shared is in the first columns of both views; one cell is missing."""
    generator = np.random.default_rng(0)
    lines = ["injury,protein a,protein b,protein c,clot a,clot b,age"]
    for i in range(60):
        z = generator.standard_normal()
        row = generator.standard_normal(6) + z * np.array([2.0, 1.0, 0.0, 2.0, 0.5, 0.0])
        cells = [f"{x:.4f}" for x in row]
        lines.append(",".join([("burn", "fall", "crash")[i % 3], *(cells if i else ["", *cells[1:]])]))
    path = tmp_path_factory.mktemp("cca") / "patients.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_life_of_a_run(table, tmp_path, capsys):
    """Fit, extend, report, predict scores, predict one view from the other."""
    run = tmp_path / "run"
    views = ["--first-view", "protein*", "--second-view", "clot a,clot b"]
    words = ["fit", "cca", str(table), *views, "--pooling", "separate", "--out", str(run), "--seed", "1", *_SMALL]
    assert main(words) == 0
    assert "shared_scale_1[0,0]" in capsys.readouterr().out
    notes = " ".join(json.loads((run / "config.json").read_text())["notes"])
    assert "burn (19)" in notes
    assert "1 of 60 rows left out" in notes
    assert main(["resume", str(run), "--num-samples", "40", "--no-progress"]) == 0
    assert main(["report", str(run)]) == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    for word in ("patients.csv", "--first-view &#x27;protein*&#x27;", "canonical correlation 1", "crash", "protein b"):
        assert word in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", page)
    new = tmp_path / "new.csv"
    new.write_text("\n".join([table.read_text().splitlines()[0], *table.read_text().splitlines()[2:6]]) + "\n")
    assert main(["predict", str(run), str(new)]) == 0
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0] == "row,injury,shared_1,first_view_1,second_view_1,log_predictive_density"
    assert len(lines) == 5
    new.write_text("injury,protein a,protein b,protein c\nburn,3,1,0\nfall,-3,-1,0\n")
    assert main(["predict", str(run), str(new)]) == 0
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0] == "row,injury,clot a,clot a_5%,clot a_95%,clot b,clot b_5%,clot b_95%"
    high, low = (np.array(line.split(",")[2:5], dtype=float) for line in lines[1:])
    assert high[1] < high[0] < high[2]
    assert high[0] > low[0]
    new.write_text("injury,protein a,protein b,protein c\nfrost,3,1,0\nfall,-3,-1,0\n")
    assert main(["predict", str(run), str(new)]) == 1
    assert "'frost'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "--first-view must name"),
        (["--first-view", "blood*"], "fits no numeric column"),
        (["--first-view", "protein*", "--second-view", "clot*,protein a"], "cannot belong to both views"),
        (["--first-view", "protein*", "--group", "ward"], "--group must name"),
        (["--first-view", "protein*", "--n-shared", "3"], "n_shared"),
        (["--first-view", "protein*", "--pooling", "none"], "pooling must be one of"),
    ],
)
def test_errors_come_before_the_folder(table, tmp_path, capsys, words, found):
    """What cannot be fitted leaves no folder behind."""
    assert main(["fit", "cca", str(table), "--out", str(tmp_path / "run"), *words, *_SMALL]) == 1
    assert found in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("groups", [["9007199254740992", "9007199254740993"], ["01", "1"], ["01", "02", "03", "A"]])
def test_groups_are_named_as_they_are_written(tmp_path, groups):
    """Long numbers, zeros in front and a letter among digits; rows without a group are left out with a note."""
    path = tmp_path / "table.csv"
    numbers = np.random.default_rng(0).standard_normal((40, 4))
    names = [groups[i % len(groups)] for i in range(38)] + ["", "NA"]
    lines = [",".join([name, *(f"{x:.3f}" for x in row)]) for name, row in zip(names, numbers, strict=True)]
    path.write_text("\n".join(["group,a,b,c,d", *lines]) + "\n")
    data = read_grouped(path, group="group", first="a,b", second="")
    assert set(data.groups.tolist()) == set(groups)
    assert "2 of 40 rows left out: cells are missing." in data.notes
    new = read_new_rows(path, data)
    assert new.groups.tolist() == [*names[:38], "", ""]
    assert new.is_whole.sum() == 38
    assert new.notes == ("2 of 40 rows lack their group or a cell and have no prediction.",)
    path.write_text("\n".join(["group,a,b", *(f"{groups[0]},1,2" for _ in range(3))]) + "\n")
    assert set(read_new_rows(path, data).parts) == {1}  # all alike
    path.write_text("\n".join(["group,a,b,c,d", *(line[line.index(",") :] for line in lines)]) + "\n")
    with pytest.raises(TableError, match="every row lacks its group or a cell"):
        read_grouped(path, group="group", first="a,b", second="")
