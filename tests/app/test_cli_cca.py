"""Canonical correlation analysis on the command line: a whole life of a run."""

import dataclasses
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from geodax.app import main
from geodax.app.cca.files import read_grouped, read_new_rows
from geodax.app.families import FAMILIES, run_kind
from geodax.data import TableError

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
    said = capsys.readouterr().out
    correlations = dict(re.findall(r"correlation_1\[(\w+)\]\s+([\d.]+)", said))
    assert set(correlations) == {"burn", "crash", "fall"}
    assert "noise_1[burn]" in said
    summary = (run / "summary.csv").read_text()
    assert "shared_scale_1[crash][0]," in summary
    notes = " ".join(json.loads((run / "config.json").read_text())["notes"])
    assert "burn (20)" in notes
    assert "1 of 60 rows have missing cells" in notes
    assert "left out" not in notes
    assert main(["resume", str(run), "--num-samples", "40", "--no-progress"]) == 0
    assert main(["report", str(run)]) == 0
    page = html.unescape((run / "report.html").read_text(encoding="utf-8"))
    assert page.index("The first canonical correlation of the two views is") < page.index("The diagnostics found")
    for word in ("patients.csv", "--first-view 'protein*'", "canonical correlation 1", "crash", "protein b"):
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
        (["--first-view", "blood*"], "has 'blood*', which matches no column. The columns are 'injury', 'protein a'"),
        (["--first-view", "inj*"], "has 'inj*', which matches no numeric column that varies"),
        (["--first-view", "Protein*"], "matches no column (did you mean 'protein a'?)"),
        (["--first-view", "protein*", "--second-view", "clot_a"], "matches no column (did you mean 'clot a'?)"),
        (["--first-view", "protein*", "--second-view", "clot*,protein a"], "cannot belong to both views"),
        (["--first-view", "protein a"], "at least two numeric columns that vary, found 'protein a' for --first-view"),
        (["--first-view", "protein*", "--group", "ward"], "--group must name"),
        (["--first-view", "protein*", "--n-shared", "3"], "--n-shared"),
        (["--first-view", "protein*", "--pooling", "none"], "pooling must be one of"),
    ],
)
def test_errors_come_before_the_folder(table, tmp_path, capsys, words, found):
    """What cannot be fitted leaves no folder behind."""
    assert main(["fit", "cca", str(table), "--out", str(tmp_path / "run"), *words, *_SMALL]) == 1
    assert found in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def _new(tmp_path, text):
    path = tmp_path / "new.csv"
    path.write_text(text)
    return path


def test_a_view_that_is_there_in_part_is_refused(table, tmp_path):
    """A name that is written in another way would leave the whole view out without a word."""
    data = read_grouped(table, group="injury", first="protein*", second="clot a,clot b")
    text = "injury,protein a,protein b,protein c,clot_a,clot b\nburn,3,1,0,1,2\nfall,-3,-1,0,0,1\n"
    words = r"'clot a' of view 2 is not there \(did you mean 'clot_a'\?\), but 'clot b' of that view is\. Rename or add"
    with pytest.raises(TableError, match=words):
        read_new_rows(_new(tmp_path, text), data)
    with pytest.raises(
        TableError, match=r"'protein b' of view 1 is not there.*, but 'protein a', 'protein c' .* are\."
    ):
        read_new_rows(_new(tmp_path, text.replace("protein b,", "protein_2,", 1)), data)
    with pytest.raises(TableError, match=r"'clot a' of view 2 is text"):
        read_new_rows(
            _new(tmp_path, text.replace("clot_a", "clot a").replace("0,1,2", "0,x,2").replace("0,0,1", "0,y,1")), data
        )
    assert set(read_new_rows(_new(tmp_path, text.replace("clot_a", "clot a")), data).parts) == {1, 2}


_COMMAS = "g;p1;p2;q1;q2\n" + "".join(f"{'ab'[i % 2]};{i},5;{i * i % 7},25;{i % 3},5;{i % 5},5\n" for i in range(12))


def test_misspelt_columns_are_named_among_numbers_with_decimal_commas(tmp_path):
    """Where no column counts there is nothing that shows the commas."""
    path = _new(tmp_path, _COMMAS)
    for second in ("Q*", ""):
        with pytest.raises(
            TableError, match=r"'P\*', .* \(did you mean 'p1'\?\)\. The columns are 'g', 'p1', 'p2', 'q1'"
        ):
            read_grouped(path, group="g", first="P*", second=second)
    data = read_grouped(path, group="g", first="p*", second="q*")
    words = r"columns of one view, p1, p2, .*\. The columns are P1, P2, Q1, Q2 \(did you mean 'P1'\?\)"
    with pytest.raises(TableError, match=words):
        read_new_rows(_new(tmp_path, _COMMAS.replace("p", "P").replace("q", "Q")), data)


@pytest.mark.parametrize(("other", "found"), [("1.5", "Write all numbers the same way"), ("oops", "Correct the cell")])
def test_a_column_of_neither_view_can_be_left_out(tmp_path, other, found):
    lines = _COMMAS.splitlines()
    rows = [f"{line};{other if i == 3 else 2 * i}" for i, line in enumerate(lines[1:])]
    path = _new(tmp_path, "\n".join([lines[0] + ";x", *rows]) + "\n")
    with pytest.raises(TableError, match=rf"{found}.*, or name the columns of the second view too \(--second-view\)"):
        read_grouped(path, group="g", first="p*", second="")
    assert read_grouped(path, group="g", first="p*", second="q*").second == ("q1", "q2")


def test_what_was_decided_about_new_rows_is_said(table, tmp_path):
    """Also what was left out: of a view of which no name is right there is no other sign."""
    data = read_grouped(table, group="injury", first="protein*", second="clot*")
    text = "age;injury;protein c;protein a;protein b;clot_a\n50;burn;0,5;3,25;1,5;1\n51;fall;0,25;-3,5;-1,5;7\n"
    new = read_new_rows(_new(tmp_path, text), data)
    np.testing.assert_array_equal(new.parts[1], [[3.25, 1.5, 0.5], [-3.5, -1.5, 0.25]])
    assert set(new.parts) == {1}
    notes = " ".join(new.notes)
    assert "decimal" in notes
    assert "the model does not use them: 'age', 'clot_a'" in notes
    fitted = read_grouped(_new(tmp_path, text), group="injury", first="protein*", second="clot_a,age")
    assert any("decimal" in note for note in fitted.notes)


@pytest.mark.parametrize("group", ["", "ward"])
def test_one_group_has_nothing_to_pool(table, tmp_path, group):
    """Without a column of groups, and with one that says the same of every row."""
    path, lines = tmp_path / "patients.csv", table.read_text().splitlines()
    path.write_text(
        "\n".join(["ward," + lines[0].split(",", 1)[1], *("B3," + x.split(",", 1)[1] for x in lines[1:])]) + "\n"
    )
    options = FAMILIES["cca"].options()
    options = dataclasses.replace(options, group=group, first_view="protein*", second_view="clot*")
    data, facts = run_kind("cca").read(path, options, None)
    assert facts["pooling"] == "separate"
    assert len(set(data.groups.tolist())) == 1


@pytest.mark.thorough
def test_rows_without_groups_are_one_group(table, tmp_path, capsys):
    """The first column differs in every row, so it names the rows."""
    path, run, new = tmp_path / "patients.csv", tmp_path / "run", tmp_path / "new.csv"
    lines = [line.split(",", 1)[1] for line in table.read_text().splitlines()]
    path.write_text(
        "\n".join(["name," + lines[0], *(f"patient {i},{line}" for i, line in enumerate(lines[1:]))]) + "\n"
    )
    words = ["fit", "cca", str(path), "--first-view", "protein*", "--second-view", "clot*"]
    assert main([*words, "--out", str(run), *_SMALL]) == 0
    assert "All rows are one group" in (said := capsys.readouterr().out)
    assert "correlation_1[all]" in said
    assert main(["report", str(run)]) == 0
    page = html.unescape((run / "report.html").read_text(encoding="utf-8"))
    assert "60 rows, 1 group, 1 shared" in page
    assert "<h2>Shrinkage</h2>" not in page
    new.write_text("protein a,protein b,protein c\n3,1,0\n-3,-1,0\n")
    assert main(["predict", str(run), str(new)]) == 0
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0].startswith("row,group,clot a,")
    assert float(lines[1].split(",")[2]) > float(lines[2].split(",")[2])


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
    assert "2 of 40 rows left out: they lack their group or all cells." in data.notes
    new = read_new_rows(path, data)
    assert new.groups.tolist() == [*names[:38], "", ""]
    assert new.is_known.sum() == 38
    assert new.notes == ("2 of 40 rows lack their group or all cells and have no prediction.",)
    path.write_text("\n".join(["group,a,b", *(f"{groups[0]},1,2" for _ in range(3))]) + "\n")
    assert set(read_new_rows(path, data).parts) == {1}  # all alike
    path.write_text("\n".join(["group,a,b,c,d", *(line[line.index(",") :] for line in lines)]) + "\n")
    with pytest.raises(TableError, match="every row lacks its group or all cells"):
        read_grouped(path, group="group", first="a,b", second="")
