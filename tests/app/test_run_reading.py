"""Every model of the command line reads a table whose writing it has been told, in the fit and in the prediction."""

import contextlib
import csv
import dataclasses
import inspect
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from geodax.app import main
from geodax.app.cca.files import read_grouped
from geodax.app.families import FAMILIES, run_kind
from geodax.app.mlp.labelled import load_labelled
from geodax.app.mlp.new_rows import read_new
from geodax.app.pca import run as pca_run
from geodax.app.run_folder import actions as folder
from geodax.app.run_folder.actions import fit_run, predict_run, report_run
from geodax.app.run_folder.files import number_text, save_data
from geodax.app.tables.dialect import BLANK, FOUND, MISSING, Dialect, RunDialect, Separators
from geodax.app.tables.read import match_columns, read_table
from geodax.data import TableError
from geodax.predict.conformal import PredictionIntervals
from geodax.predict.predictive import ClassPredictions, NumberPredictions

_DIALECT = Dialect(delimiter="|", decimal=",", encoding="cp1252", missing=("k. A.",))
_COUNTS = "zeit|a|b\n" + "".join(f"{20 * i},5|{'äöü'[i % 3]}|{'üäö'[i % 3]}\n" for i in range(12))
_ROWS = "gruppe|größe|b|c|d\n" + "".join(
    f"{'xyz'[i % 3]}|{i % 7},{i:03d}|{(3 * i) % 11},125|{(5 * i) % 13},5|{i % 5},250\n" for i in range(40)
)
_RATINGS = "user|item|rating\n" + "".join(f"ä{i % 4}|{i % 5}|{1 + i % 5},500\n" for i in range(20))
_CASES = {
    "pca": (_ROWS, {}),
    "classifier": (_ROWS, {"target": "gruppe"}),
    "regressor": (_ROWS, {"target": ("d",)}),
    "unit-network": (_ROWS, {"target": "d"}),
    "cca": (_ROWS, {"group": "gruppe", "first_view": "größe,b"}),
    "factorization": (_RATINGS, {"rank": 2}),
    "network": (_COUNTS, {"window": 60.0}),
    "eigenmodel": ("a|b\n" + "".join(f"ä{i % 6}|{(i * i) % 5}\n" for i in range(20)), {}),
}


@pytest.fixture
def written(tmp_path):
    """Write a text as Windows would."""

    def write(text):
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode("cp1252"))
        return path

    return write


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_table_is_read_as_it_is_written(name, written):
    kind = run_kind(name)
    text, options = _CASES[name]
    data, facts = kind.read(written(text), FAMILIES[kind.name].options(**options), None, _DIALECT)
    assert all(np.size(array) for array in kind.arrays(data))
    assert facts["columns"]
    assert "dialect" in inspect.signature(kind.predict).parameters


@pytest.mark.parametrize("name", ["pca", "classifier", "regressor", "cca", "factorization"])
def test_a_sign_of_missing_cells_counts_in_numbers_and_in_names(name, written):
    """Without it the cell is a mistake, or a class, a group or a user of its own."""
    kind = run_kind(name)
    text, options = _CASES[name]
    lines = text.splitlines()
    cells = lines[3].split("|")
    place = 0 if name in ("classifier", "factorization") else 2
    lines[3] = "|".join("k. A." if k == place else cell for k, cell in enumerate(cells))
    path = written("\n".join(lines))
    data, _ = kind.read(path, FAMILIES[kind.name].options(**options), None, _DIALECT)
    found = kind.arrays(data)
    if name in ("pca", "cca"):
        assert np.isnan(found[0]).sum() == 1
    elif name == "factorization":
        assert len(data.ratings) == 19
    else:
        assert len(data.inputs) == (39 if name == "classifier" else 40)
        assert np.isnan(data.inputs).sum() == (name == "regressor")
    plain = dataclasses.replace(_DIALECT, missing=())
    if place == 2:
        with pytest.raises(TableError, match=r"--missing"):
            kind.read(path, FAMILIES[kind.name].options(**options), None, plain)
    else:
        other, _ = kind.read(path, FAMILIES[kind.name].options(**options), None, plain)
        names = np.concatenate([np.ravel(other.targets if name == "classifier" else other.pairs)])
        assert "k. A." in names


_DAY = 2459123.7119140625  # sums and means of a few of them are exact


def _days(*shape):
    return np.full(shape, _DAY)


def _mixture_of_days(x):
    """A predictive distribution of one draw, all of whose numbers are days."""
    days = _days(1, len(x))
    component = SimpleNamespace(mean=lambda: days, var=lambda: days**2, logpdf=lambda values: days)
    return SimpleNamespace(components=component, quantiles=lambda levels: _days(len(levels), len(x)))


_OF_NUMBERS = {
    "predict": lambda x, return_std: (_days(len(x)), _days(len(x))),
    "predict_draws": lambda x: _days(5, len(x)),
    "predict_quantiles": lambda x: _days(2, len(x)),
    "sample_y": lambda x: _days(5, len(x)),
    "score_samples": lambda x: _days(len(x)),
    "log_predictive": lambda x, y: _days(len(x)),
}
_ANSWERS = {
    "pca": _OF_NUMBERS
    | {
        "transform": lambda x: _days(len(x), 2),
        "score_quantiles": lambda x: _days(2, len(x), 2),
        "fill": lambda x: _days(*x.shape),
    },
    "classifier": {
        "classes_": np.array(["x", "y", "z"]),
        "predict_parts": lambda x: ClassPredictions(np.full((len(x), 3), 1 / 3), *_days(3, len(x)), 1),
        "log_of": lambda probabilities, y: _days(len(probabilities)),
    },
    "regressor": {
        "calibration_": (),
        "likelihood": "gaussian",
        "predict_distribution": _mixture_of_days,
        "predict_interval": lambda x, alpha: PredictionIntervals(*_days(2, len(x)), np.inf),
    },
    "unit-network": _OF_NUMBERS | {"target_spread_": 1.0, "draws": lambda: SimpleNamespace(noise=np.ones(5))},
    "cca": {
        **{"n_shared": 1, "n_view_1": 1, "n_view_2": 0, "score_samples": lambda x, groups: _days(len(x))},
        "transform": lambda x, groups: _days(len(x), 2),
    },
    "factorization": _OF_NUMBERS
    | {
        "predict_parts": lambda x, y=None: NumberPredictions(*_days(4, len(x)), 1),
        "is_known": lambda x: np.ones((len(x), 2), bool),
    },
    "network": {"predict_proba": lambda counts: np.full((len(counts), 3), 1 / 3)},
    "eigenmodel": {"link": "log", "predict_draws": lambda pairs: _days(5, len(pairs))},
}
_FIRST = {"classifier": "predict_parts", "regressor": "predict_distribution", "pca": "transform"}
_TEXT = {repr(_DAY)}
_DAYS_OF_THE_FILE = {"observed": {f"24591{i:02d}.71" for i in range(40)}}
_THIRD = {repr(1 / 3)}
_WRITTEN = {
    "pca": dict.fromkeys(["score_1", "score_2", "score_2_95%", "log_predictive_density", "b_filled"], _TEXT),
    "classifier": {"p(x)": _THIRD, "entropy": _TEXT, "epistemic": _TEXT, "log_probability": _TEXT},
    "regressor": dict.fromkeys(["d", "sd", "5%", "mean_95%", "conformal_90%_upper", "log_predictive_density"], _TEXT)
    | _DAYS_OF_THE_FILE,
    "unit-network": dict.fromkeys(["d", "sd", "mean_5%", "mean_95%", "log_predictive_density"], _TEXT),
    "cca": dict.fromkeys(["shared_1", "first_view_1", "log_predictive_density"], _TEXT),
    "factorization": dict.fromkeys(["rating", "5%", "95%", "log_predictive_density"], _TEXT)
    | {"sd": {repr(np.sqrt(2 * _DAY).item())}}
    | _DAYS_OF_THE_FILE,
    "network": {"start": {f"245910{k:03d}.5" for k in (0, 60, 120, 180)}, "probability_2": _THIRD},
    "eigenmodel": dict.fromkeys(["rate", "rate_5%", "rate_95%"], _TEXT),
}


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_predictions_are_written_without_loss(name, written, tmp_path):
    """Numbers that differ in their ninth digit only, of the model as of the file."""
    kind, (text, options) = run_kind(name), _CASES[name]
    head, *lines = text.splitlines()
    if "observed" in _WRITTEN[name]:
        lines = [f"{line.rsplit('|', 1)[0]}|24591{i:02d},71" for i, line in enumerate(lines)]
    if name == "network":
        lines = [f"{2459100_00 + 30 * i},5|{'äöü'[i % 3]}|{'üäö'[i % 3]}" for i in range(9)]
    data, _ = kind.read(written("\n".join([head, *lines])), FAMILIES[kind.name].options(**options), None, _DIALECT)
    if name == "pca":
        lines[3] = lines[3].rsplit("|", 1)[0] + "|k. A."
    new, out = written("\n".join([head, *lines])), tmp_path / "predictions.csv"
    kind.predict(data, SimpleNamespace(**_ANSWERS[name]), new, out, _DIALECT)
    with open(out, newline="", encoding="utf-8") as file:
        found, *rows = csv.reader(file)
    for column, expected in _WRITTEN[name].items():
        assert {row[found.index(column)] for row in rows} <= expected, column
    assert len(rows) > 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.1 + 0.2, "0.30000000000000004"), (2459123.71, "2459123.71"), (-3.0, "-3"), (1e22, "1e+22")),
        *((np.float32(0.1), "0.1"), (np.int64(7), "7"), (np.nan, ""), (-np.inf, "-inf"), (5e-324, "5e-324")),
    ],
)
def test_numbers_as_text(value, text):
    """As few digits as will do to read the same number again."""
    assert number_text(value) == text
    assert not text or type(value)(text) == value


def test_what_was_asked_is_in_the_command(tmp_path):
    """Options that differ from the defaults, columns and the writing of the file, each word quoted."""
    kind = run_kind("pca")
    config = {
        "options": dataclasses.asdict(FAMILIES[kind.name].options(n_components=3, standardize=False)),
        "dialect": {**dataclasses.asdict(_DIALECT), "missing": ["k. A.", "-9"], "header": False},
        "asked_columns": ["a b", "c"],
        "file": "my file.csv",
        "seed": 4,
    }
    assert kind.command(config, tmp_path).split(" --seed")[0] == (
        "geodax fit pca 'my file.csv' --n-components 3 --no-standardize --delimiter '|' --decimal , --encoding cp1252 "
        "--header False --missing 'k. A.' -9 --columns 'a b' c"
    )
    earlier = {k: v for k, v in config.items() if k not in ("dialect", "asked_columns")}
    assert "--columns" not in kind.command(earlier, tmp_path)
    assert kind.command({**config, "absolute_file": "/a b/c.csv"}, tmp_path).startswith("geodax fit pca '/a b/c.csv' ")


@pytest.mark.parametrize(
    ("columns", "target", "out"),
    [(["-a", "b"], "-y", "run"), (["-a b", "c"], "y y", "-run"), (["a", "b"], "y", "-my run"), ([], "y", "run")],
)
def test_the_command_can_be_pasted(columns, target, out, monkeypatch):
    """Names that begin with a sign of options, or hold blanks, are what they were."""
    kind, asked = run_kind("regressor"), []
    config = {
        "options": dataclasses.asdict(FAMILIES[kind.name].options(target=(target,))) | {"target": [target]},
        "asked_columns": columns,
        **{"file": "t.csv", "absolute_file": "/t.csv", "seed": 4},
    }

    def fit(file, options, run, *, columns, seed, **others):
        asked.append((str(file), options.target, columns, seed, str(run)))
        raise ValueError("enough")

    monkeypatch.setattr(folder, "fit_run", fit)
    main(shlex.split(kind.command(config, Path(out)))[1:])
    assert asked == [("/t.csv", (target,), tuple(columns), 4, out)]


def test_nothing_said_is_everything_found():
    assert FOUND.options()["missing"] == MISSING
    assert FOUND.blank == BLANK
    assert {".", "-"} == set(MISSING) - set(BLANK)  # names of classes, but no numbers
    assert Dialect(delimiter="tab").options()["delimiter"] == "\t"


@pytest.mark.parametrize(
    ("said", "fitted", "decimal", "thousands"),
    [
        ({"decimal": "."}, {"decimal": ",", "thousands": "."}, ".", None),
        ({"decimal": "."}, {"decimal": ","}, ".", None),
        ({"decimal": ","}, {"thousands": ","}, ",", None),
        ({"thousands": ","}, {"decimal": ","}, None, ","),
        ({"decimal": ".", "thousands": ","}, {"decimal": ",", "thousands": "."}, ".", ","),
        ({}, {"decimal": ",", "thousands": "."}, ",", "."),
    ],
)
def test_what_is_said_goes_before_what_was_said(said, fitted, decimal, thousands):
    """A decimal point too, which is the usual one."""
    both = Dialect(**said, missing=("k. A.",)).over(RunDialect(**fitted, delimiter="|", earlier=Separators(",")))
    assert (both.decimal, both.thousands, both.delimiter, both.missing) == (decimal, thousands, "|", ("k. A.",))
    assert both.options()["earlier"] == Separators(",")


class _BegunError(Exception):
    """The folder of a run is there."""


@pytest.fixture
def run_of(tmp_path, monkeypatch):
    """Begin a run of PCA on a text without drawing, with what its configuration would have been in earlier versions."""
    values = []

    def transform(x):
        values.append(x)
        return _days(len(x), 2)

    model = SimpleNamespace(**_ANSWERS["pca"] | {"transform": transform})

    def stop(*args):
        raise _BegunError

    monkeypatch.setattr(folder, "_run", stop)
    monkeypatch.setattr(folder, "_fitted", lambda *args: model)
    table, new, run = tmp_path / "table.csv", tmp_path / "new.csv", tmp_path / "run"

    def begin(text, dialect=FOUND, *, is_earlier=False):
        table.write_text(text)
        with pytest.raises(_BegunError):
            fit_run(table, FAMILIES["pca"].options(n_components=1), run, dialect=dialect)
        if is_earlier:
            config = json.loads((run / "config.json").read_text())
            del config["separators"], config["digest"]
            config["dialect"]["decimal"] = "."
            (run / "config.json").write_text(json.dumps(config))

        def predict(text, said=FOUND):
            """The numbers that the model is asked about, and the notes."""
            new.write_text(text)
            _, notes = predict_run(run, new, dialect=said)
            return values[-1][:, 0].tolist(), " ".join(notes)

        return run, predict

    return begin


_COMMAS = "a;b\n" + "".join(f"{i},5;{i * i % 7}\n" for i in range(9))
_POINTS = _COMMAS.replace(",", ".")


def test_decimal_commas_that_a_fit_found_are_found_again(run_of):
    """A number that alone may be a thousand or a fraction is what it would have been in the fit."""
    _, predict = run_of(_COMMAS)
    found, notes = predict("a;b\n3,415;2\n2,125;1\n")
    assert found == [3.415, 2.125]
    assert "decimal comma, as in the fit" in notes
    found, notes = predict("a;b\n3.5;2\n2.125;1\n")
    assert found == [3.5, 2.125]
    assert "unlike those of the fit" in notes
    with pytest.raises(TableError, match="is ambiguous"):
        predict("a;b\n3.415;2\n2.125;1\n")
    assert predict("a;b\n3.415;2\n2.125;1\n", Dialect(decimal="."))[0] == [3.415, 2.125]


def test_a_decimal_point_can_be_said_after_a_comma(run_of):
    _, predict = run_of(_COMMAS, Dialect(decimal=","))
    assert predict("a;b\n3.415;2\n2.125;1\n")[0] == [3415, 2125]
    assert predict("a;b\n3.415;2\n2.125;1\n", Dialect(decimal="."))[0] == [3.415, 2.125]
    assert predict("a;b\n3,415;2\n2,125;1\n", Dialect(decimal="."))[0] == [3415, 2125]


def test_a_decimal_point_that_a_fit_found_is_found_again(run_of):
    _, predict = run_of(_POINTS)
    found, notes = predict("a;b\n3,5;2\n2,125;1\n")
    assert found == [3.5, 2.125]
    assert "unlike those of the fit" in notes
    found, notes = predict("a;b\n3,415;2\n2,125;1\n")
    assert found == [3415, 2125]
    assert "thousands separators, such as in '3,415'" in notes


def test_a_fit_of_whole_numbers_leaves_all_to_the_new_table(run_of):
    _, predict = run_of(_COMMAS.replace(",5", ""))
    found, notes = predict("a;b\n3,5;2\n2,125;1\n")
    assert found == [3.5, 2.125]
    assert "unlike" not in notes
    with pytest.raises(TableError, match="is ambiguous"):
        predict("a;b\n3,415;2\n2,125;1\n")


@pytest.mark.parametrize("text", ["b,a\n3.5,2.1\n1.5,2.2\n", "b;a\n1;2.5\n2;3.5\n"])
def test_a_decimal_comma_that_the_fit_was_told_is_named_where_it_is_wrong(run_of, text):
    _, predict = run_of(_COMMAS, Dialect(decimal=","))
    with pytest.raises(TableError, match=r"'[0-9]\.5' on line 2; numbers were read with .* use --decimal"):
        predict(text)
    assert len(predict(text, Dialect(decimal="."))[0]) == 2


def test_a_run_of_an_earlier_version_has_said_no_decimal_point(run_of, monkeypatch):
    """Its configuration holds one in any case; neither its predictions nor its command do."""
    run, predict = run_of(_COMMAS, is_earlier=True)
    assert predict("a;b\n3,5;2\n2,125;1\n")[0] == [3.5, 2.125]
    commands = []
    monkeypatch.setattr(type(run_kind("pca")), "report", lambda self, c, d, m, command, path: commands.append(command))
    monkeypatch.setattr(folder, "replaced_at_the_end", contextlib.nullcontext)
    report_run(run)
    assert "--decimal" not in commands[0]


@pytest.mark.parametrize("cell", ["", "NA"])
def test_a_target_may_be_empty_in_every_row_to_predict(cell, tmp_path):
    """As a file has it whose target is to be filled in; for a class as for a number."""
    table = tmp_path / "table.csv"
    table.write_text("a,b,kind,level\n" + "".join(f"{i % 7},{(3 * i) % 11},{'xy'[i % 2]},{i % 5}\n" for i in range(40)))
    new = tmp_path / "new.csv"
    new.write_text("a,b,kind,level\n" + "".join(f"{i},{2 * i % 3},{cell},{cell}\n" for i in range(3)))
    for name, target in (("classifier", "kind"), ("classifier", "level"), ("regressor", ("level",))):
        kind = run_kind(name)
        data, _ = kind.read(table, FAMILIES[kind.name].options(target=target), ("a", "b"), FOUND)
        inputs, targets = read_new(new, data, are_classes=kind.are_classes)
        assert not np.isnan(inputs.values).any()
        assert targets is not None
        assert (targets == "").all() if kind.are_classes else np.isnan(targets).all()


@pytest.mark.slow
def test_classes_of_rows_without_a_class(tmp_path):
    """The column of what was observed is there and empty."""
    table, run, new = tmp_path / "table.csv", tmp_path / "run", tmp_path / "new.csv"
    table.write_text("a,b,kind\n" + "".join(f"{i % 7},{(3 * i) % 11},{'xy'[i % 7 > 3]}\n" for i in range(40)))
    new.write_text("a,b,kind\n1,2,\n6,3,\n")
    small = ["--widths", "4", "--num-warmup", "50", "--num-samples", "5", "--thinning", "2", "--num-chains", "2"]
    assert main(["fit", "classifier", str(table), "--target", "kind", *small, "--no-progress", "--out", str(run)]) == 0
    assert main(["predict", str(run), str(new)]) == 0
    lines = [line.split(",") for line in (run / "predictions.csv").read_text().splitlines()]
    assert lines[0][-2:] == ["observed", "log_probability"]
    assert all(line[1] in ("x", "y") and line[-2:] == ["", ""] for line in lines[1:])


def _notes(path, target):
    kind = run_kind("regressor")
    return kind.read(path, FAMILIES[kind.name].options(target=(target,)), None, FOUND)[1]["notes"]


@pytest.mark.parametrize("start", [0, 1, 1000, -3])
def test_a_column_that_counts_the_rows_is_noted_but_not_as_the_target(start, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,a,half\n" + "".join(f"{start + i},{i * i % 7},{start + i}.5\n" for i in range(20)))
    assert any("'id' counts the rows" in note for note in _notes(path, "a"))
    assert not any("counts the rows" in note for note in _notes(path, "id"))
    table = read_table(path)
    assert not any("'half' counts" in note for note in table.notes)
    assert not any("counts" in note for note in match_columns(table, ["id", "a"]).notes)  # nothing is left to choose


def test_a_column_that_nearly_counts_the_rows_is_not_noted(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,c\n5,-1e308,1\n6,1e308,\n8,0,3\n")
    assert not any("counts" in note for note in read_table(path).notes)


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_too_few_rows_are_told_from_too_many_holes(name, tmp_path, capsys):
    path = tmp_path / "table.csv"
    words = ["fit", name, str(path), "--target", "y", "--columns", "a", "b", "--out", str(tmp_path / "run")]
    path.write_text("a,b,y\n1,2,3\n")
    assert main(words) == 1
    error = capsys.readouterr().err
    assert "has 1 row. A fit needs at least 4." in error
    path.write_text("a,b,y\n1,2,3\n2,2,1\n3,,\n4,,\n5,,1\n")
    assert main(words) == 1
    assert "3 of 5 rows have a value of the target 'y'. At least 4 are needed." in capsys.readouterr().err
    path.write_text("a,b,y\n" + "".join(f"{i % 7},{(3 * i) % 11},{i % 2}\n" for i in range(50)))
    assert main([*words, "--test-fraction", "0.999"]) == 1
    assert "--test-fraction 0.999 leaves 0 of 50 rows to fit. At least 2 are needed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def _read(name, path, columns=None, **options):
    kind = run_kind(name)
    if name == "regressor":
        options["target"] = (options["target"],)
    return kind.read(path, FAMILIES[kind.name].options(**options), columns, FOUND)[0]


def _table(path, head, *rows):
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


_CLASSES = ["007", "7", "00501", "1e3", "1000", "9007199254740993", "9007199254740992", "1", "1.0"]
_NAMES = [*_CLASSES[:-1], "1"]


def test_classes_are_named_as_they_are_written(tmp_path):
    """Zeros in front and long numbers keep classes apart, in the fit as in what a prediction finds observed."""
    rows = [(i, i * i % 7, name) for i, name in enumerate(_CLASSES * 3)]
    path = _table(tmp_path / "table.csv", "a,b,kind", *rows, (1, 2, ""), (1, 3, "."))
    data = _read("classifier", path, target="kind", test_fraction=0.0)
    assert data.targets.tolist() == _NAMES * 3
    assert "2 of 29 rows have no 'kind' and are left out." in data.notes
    _, targets = read_new(path, data, are_classes=True)
    assert targets is not None
    assert targets.tolist() == [*_NAMES * 3, "", ""]
    few = _table(tmp_path / "new.csv", "b,a,kind", (2, 1, "1000"), (2, 3, "007"), (2, 3, "1.0"))
    _, targets = read_new(few, data, are_classes=True)
    assert targets is not None
    assert targets.tolist() == ["1000", "007", "1"]


def test_classes_in_arrays_keep_their_digits(tmp_path):
    path = tmp_path / "table.npz"
    whole = np.array([9007199254740993, 9007199254740992] * 4)
    np.savez(path, a=np.arange(8.0) ** 2, kind=whole, level=np.array([1.0, 2.0] * 4))
    assert (
        _read("classifier", path, ("a",), target="kind", test_fraction=0.0).targets.tolist()
        == whole.astype(str).tolist()
    )
    assert set(_read("classifier", path, ("a",), target="level").targets.tolist()) == {"1", "2"}


@pytest.mark.parametrize("cells", [["1.5", "2"], ["1,5", "2"], ["1", "inf"], ["0.123", "1"], ["1e-3", "4"]])
def test_numbers_that_are_not_whole_are_no_classes(cells, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;kind\n" + "".join(f"{i};{cells[i % 2]}\n" for i in range(12)))
    with pytest.raises(TableError, match=r"holds numbers that are not integers, such as .* `geodax fit regressor`"):
        _read("classifier", path, target="kind")


def test_names_among_whole_numbers_are_classes(tmp_path):
    path = _table(tmp_path / "table.csv", "a,kind", *((i, ["1", "2", "x", "inf", "y", "z"][i % 6]) for i in range(18)))
    data = _read("classifier", path, target="kind")
    assert set(data.targets.tolist()) == {"1", "2", "x", "inf", "y", "z"}
    _, targets = read_new(_table(tmp_path / "new.csv", "a,kind", (1, "2"), (2, "1")), data, are_classes=True)
    assert targets is not None
    assert targets.tolist() == ["2", "1"]  # no other names in this file


_SLIP = r"line 8, column 'y': expected a number, found 'O' \(1 such cell of 24\).*--missing"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([*"010101", "O", *"01010101010101010"], _SLIP),
        ([*"010101", "O", *"1234567890", "2,0", "3.0", "2.", *"0101"], _SLIP),
        ([*"010101", "O", "", "NA", "?", *"01010101", "O", *"01010"], r"line 8, .* found 'O' \(2 such cells of 21\)"),
        ([*(f"3.{217 + i}" for i in range(23)), "n.d."], "numbers that are not integers, such as 3.217"),
        ([*(str(i) for i in range(23)), "n.d."], "line 25, column 'y': expected a number, found 'n.d.'"),
        ([*"abcabcabcabcabcab", *"121212", "2.5"], "numbers that are not integers, such as 2.5"),
    ],
)
def test_a_slip_in_the_target_is_no_class(cells, words, tmp_path):
    """By the rule of columns of numbers: mostly numbers."""
    path = tmp_path / "table.csv"
    path.write_text("a;b;y\n" + "".join(f"{i};{i * i % 7};{cell}\n" for i, cell in enumerate(cells)))
    with pytest.raises(TableError, match=words):
        _read("classifier", path, target="y")


def test_a_slip_in_the_target_can_be_missing(tmp_path):
    rows = [(i, i * i % 7, "O" if i == 6 else i % 2) for i in range(24)]
    path = _table(tmp_path / "table.csv", "a,b,y", *rows)
    data = run_kind("classifier").read(path, FAMILIES["classifier"].options(target="y"), None, Dialect(missing=("O",)))[
        0
    ]
    assert "Classes: 0 (11), 1 (12)." in data.notes


def test_a_slip_in_a_target_of_an_array_is_in_a_row(tmp_path):
    np.savez(tmp_path / "table.npz", a=np.arange(9.0) ** 2, y=np.array([*"01010O010"]))
    with pytest.raises(TableError, match=r"row 6, column 'y': expected a number, found 'O'"):
        _read("classifier", tmp_path / "table.npz", target="y")


@pytest.mark.parametrize(
    ("name", "cells", "note"),
    [
        ("classifier", ["b", "10", "9", "b"], "Classes: 9 (15), 10 (15), b (30)."),
        ("classifier", ["-", "0", "+", "-", "0"], "Classes: 0 (24), + (12), - (24)."),  # names, and no sign of a hole
        ("classifier", [str(i) for i in range(20)], "Classes: 0 (3), 1 (3), 2 (3),"),
        ("classifier", [str(i) for i in range(20)], ", 11 (3) and 8 more, 20 in all."),
        ("regressor", ["1", "2", "3", "4"], ""),
    ],
)
def test_classes_are_noted_with_their_rows(name, cells, note, tmp_path):
    path = _table(tmp_path / "table.csv", "a,b,y", *((i, i * i % 7, cells[i % len(cells)]) for i in range(60)))
    found = [each for each in _read(name, path, target="y").notes if each.startswith("Classes: ")]
    assert all(note in each for each in found)
    assert len(found) == bool(note)


_LONG = "9007199254740993"


@pytest.mark.parametrize(
    ("fitted", "cells", "observed"),
    [
        (["1", "2"], ["2.00", "2.", "2,0", "+1", "1e0", "2.5"], ["2", "2", "2", "1", "1", "2.5"]),
        (["1,0", "2,0"], ["2", "2.0", "1"], ["2,0", "2,0", "1,0"]),
        (["007", "8"], ["7", "8.000"], ["007", "8"]),
        (["007", "7", "8"], ["7.00", "+7", "8"], ["7", "+7", "8"]),  # of two alike none is meant
        (["9007199254740992", "5"], [_LONG, "5"], [_LONG, "5"]),  # the same as floating-point numbers
        (["a", "b"], ["a", "c"], ["a", "c"]),
        (["+", "-", "0"], ["0", "-", "."], ["0", "-", ""]),
    ],
)
def test_a_class_that_is_written_in_another_way_is_the_class(fitted, cells, observed, tmp_path):
    path, new = tmp_path / "table.csv", tmp_path / "new.csv"
    path.write_text("a;b;c\n" + "".join(f"{i};{i * i % 7};{fitted[i % len(fitted)]}\n" for i in range(24)))
    data = _read("classifier", path, target="c", test_fraction=0.0)
    new.write_text("a;b;c\n" + "".join(f"{i};2;{cell}\n" for i, cell in enumerate(cells)))
    _, targets = read_new(new, data, are_classes=True)
    assert targets is not None
    assert targets.tolist() == observed


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["x", "y"], ""),
        (["x", "q", ""], "1 row holds a class that the fit did not have, such as 'q'. Its log probability is -inf."),
        (["x", "q", "r"], "2 rows hold classes that the fit did not have, such as 'q'. Their log probability is -inf."),
        (["2.5", "x", "3"], "2 rows hold classes that the fit did not have, such as '2.5'. Their"),
    ],
)
def test_classes_that_a_fit_has_not_seen_are_noted(cells, note, tmp_path):
    path = _table(tmp_path / "table.csv", "a,b,c", *((i, i * i % 7, "xyz"[i % 3]) for i in range(24)))
    new = _table(tmp_path / "new.csv", "a,b,c", *((i, 3, cell) for i, cell in enumerate(cells)))
    notes = run_kind("classifier").predict(
        _read("classifier", path, target="c"), _model("classifier"), new, tmp_path / "out.csv"
    )
    found = [each for each in notes if "the fit did not have" in each]
    assert len(found) == bool(note)
    assert all(each.startswith(note) for each in found)


@pytest.mark.parametrize(
    ("name", "target", "cells", "why"),
    [
        ("classifier", "kind", ["1.5", "2.25"], "it holds numbers that are not integers, such as 1.5, and no class"),
        ("classifier", "kind", [str(i) for i in range(300)], "it has 300 different values, but there are at most 200"),
        ("regressor", "level", ["low", "high"], "it is text, such as 'low' on line 2"),
        ("regressor", "level", ["low", "3"], "it is text, such as 'low' on line 2"),
    ],
)
def test_a_target_of_another_kind_does_not_stop_a_prediction(name, target, cells, why, tmp_path):
    path = _table(tmp_path / "table.csv", "a,b,kind,level", *((i, i * i % 7, "xyz"[i % 3], i % 5) for i in range(24)))
    new, out = tmp_path / "new.csv", tmp_path / "out.csv"
    _table(new, f"a,b,{target}", *((i, i * i % 7, cells[i % len(cells)]) for i in range(300)))
    notes = run_kind(name).predict(_read(name, path, ("a", "b"), target=target), _model(name), new, out)
    assert any(note.startswith(f"The target {target!r} was left out: {why}") for note in notes)
    with open(out, newline="", encoding="utf-8") as file:
        heading, *lines = csv.reader(file)
    assert not {"observed", "log_probability", "log_predictive_density"} & set(heading)
    assert len(lines) == 300


def test_a_class_beside_text_alone_is_explained(tmp_path):
    path = _table(tmp_path / "table.csv", "city,kind", *((f"c{i}", i % 2) for i in range(12)))
    words = "a numeric column that varies besides the target 'kind', found 'city': text, .*--categories NAME"
    with pytest.raises(TableError, match=words):
        _read("classifier", path, target="kind")


def test_a_run_of_an_earlier_version_names_classes_and_categories_as_it_did(tmp_path):
    """By the values of numbers, and categories by their cells."""
    rows = [(i, ["2", "2.0"][i % 2], ["007", "501"][i % 2]) for i in range(12)]
    path = _table(tmp_path / "table.csv", "a,code,kind", *rows)
    data = dataclasses.replace(
        _read("classifier", path, ("a",), target="kind"),
        targets=np.array(["7", "501"] * 6),
        names=("a", "code=2", "code=2.0"),
        categories=(("code", "2"), ("code", "2.0")),
    )
    save_data(tmp_path / "data.npz", data)
    assert load_labelled(tmp_path / "data.npz").is_as_written
    with np.load(tmp_path / "data.npz") as file:
        kept = {name: file[name] for name in file if name != "is_as_written"}
    np.savez(tmp_path / "data.npz", **kept)
    earlier = load_labelled(tmp_path / "data.npz")
    table, targets = read_new(path, earlier, are_classes=True)
    assert targets is not None
    assert targets.tolist() == ["7", "501"] * 6
    assert table.values[:2].tolist() == [[0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize("kept", [None, True, False])
def test_a_run_of_an_earlier_version_predicts_as_it_did(kept):
    """It has no option for the temperature of its probabilities, which are the mean over the draws."""
    options = dataclasses.asdict(FAMILIES["classifier"].options())
    assert options.pop("temperature_scaling")
    options |= {} if kept is None else {"temperature_scaling": kept}
    config = {"options": options, "seed": 0}
    assert run_kind("classifier").estimator(config).temperature_scaling is bool(kept)


def test_categories_are_named_as_classes_are(tmp_path):
    """A column of codes in which a number is missing is written with points by some programs."""
    rows = [(i, ["1", "2", "01"][i % 3], i * i % 7) for i in range(30)]
    data = _read("regressor", _table(tmp_path / "table.csv", "a,code,y", *rows), target="y", categories=("code",))
    assert data.names == ("a", "code=01", "code=1", "code=2")
    rows = [(1, "2.0"), (2, "1.0"), (3, ""), (4, "01"), (5, "3.0")]
    table, _ = read_new(_table(tmp_path / "new.csv", "a,code", *rows), data, are_classes=False)
    assert np.isnan(table.values[:, 1:]).all(axis=1).tolist() == [False, False, True, False, True]
    assert table.values[[0, 1, 3]].tolist() == [[1, 0, 0, 1], [2, 0, 1, 0], [4, 1, 0, 0]]
    assert "1 of 5 rows have new values of 'code', such as '3'; they count as missing." in table.notes
    assert any(note.startswith("2 of 5 rows have missing inputs ('code' 2);") for note in table.notes)


def test_ends_of_lines_in_a_category_are_alike(tmp_path):
    """A cell of two lines is the same category in a file of another system."""
    rows, path = ['1,"on\ntop",3', "2,below,1"] * 6, tmp_path / "table.csv"
    path.write_bytes("\r\n".join(["a,k,y", *(row.replace("\n", "\r\n") for row in rows)]).encode())
    data = _read("regressor", path, target="y", categories=("k",))
    assert data.names == ("a", "k=below", "k=on\ntop")
    new = tmp_path / "new.csv"
    new.write_bytes(b'a,k\n1,"on\ntop"\n2,"on\rtop"\n3,below\n')
    table, _ = read_new(new, data, are_classes=False)
    assert table.values.tolist() == [[1, 0, 1], [2, 0, 1], [3, 1, 0]]


def test_a_sign_of_missing_cells_that_is_a_category_stays_one(tmp_path):
    """Also in a file in which the others are numbers."""
    rows = [(i, "-0+"[i % 3], i * i % 7) for i in range(30)]
    data = _read("regressor", _table(tmp_path / "table.csv", "a,k,y", *rows), target="y", categories=("k",))
    new = _table(tmp_path / "new.csv", "a,k", (1, "-"), (2, "0"), (3, "."))
    table, _ = read_new(new, data, are_classes=False)
    assert np.isnan(table.values[2, 1:]).all()
    assert table.values[:2].tolist() == [[1, 0, 1, 0], [2, 0, 0, 1]]


@pytest.mark.parametrize("name", ["classifier", "regressor", "unit-network"])
def test_a_file_whose_columns_have_no_names_has_no_target(name, tmp_path):
    """Its first column has the place of the target and is an input."""
    rows = [(i % 2, i % 7, i * i % 11) for i in range(20)]
    path, new, out = tmp_path / "table.csv", tmp_path / "new.csv", tmp_path / "out.csv"
    path.write_text("".join(f"{y},{a},{b}\n" for y, a, b in rows))
    new.write_text("".join(f"{a},{b}\n" for _, a, b in rows))
    data, model = _read(name, path, target="column 1"), _model(name)
    notes = run_kind(name).predict(data, model, new, out)
    assert any("matched by position: column 2, column 3" in note for note in notes)
    with open(out, newline="", encoding="utf-8") as file:
        heading = next(csv.reader(file))
    assert heading[1] == "column 1"
    assert not {"observed", "log_probability", "log_predictive_density"} & set(heading)
    assert model.asked[0].tolist() == [[a, b] for _, a, b in rows]
    run_kind(name).predict(data, model, path, out)
    assert model.asked[-1].tolist() == [[a, b] for _, a, b in rows]
    with open(out, newline="", encoding="utf-8") as file:
        assert next(csv.reader(file))[-1].startswith("log_p")


@pytest.mark.parametrize("name", ["classifier", "regressor", "unit-network", "pca"])
def test_columns_that_are_called_by_numbers_are_found_by_their_names(name, tmp_path):
    """Without the target the first line has numbers alone; it was a row, and the columns were taken by their places."""
    rows = [(i % 7, i * i % 11, i % 2) for i in range(20)]
    path, new, out = _table(tmp_path / "table.csv", "2019,2020,y", *rows), tmp_path / "new.csv", tmp_path / "out.csv"
    options = {"n_components": 1} if name == "pca" else {"target": "y"}
    data = _read(name, path, ("2019", "2020"), **options)
    _table(new, "2020,2019", (1, 2), (3, 5))
    asked = []
    first = _FIRST.get(name, "predict")
    answer = _ANSWERS[name][first]
    model = SimpleNamespace(**_ANSWERS[name] | {first: lambda x, *a, **o: asked.append(x) or answer(x, *a, **o)})
    notes = run_kind(name).predict(data, model, new, out)
    assert asked[0].tolist() == [[2, 1], [5, 3]]
    assert any(note.startswith("Line 1 was read as names") for note in notes)
    with open(out, newline="", encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == 3


def _model(name, **answers):
    """A model with the answers of a kind, which keeps what it is asked about."""
    known, asked = _ANSWERS[name] | answers, []
    first = _FIRST.get(name, "predict")

    def answer(x, *args, **options):
        asked.append(x)
        return known[first](x, *args, **options)

    return SimpleNamespace(**known | {first: answer, "asked": asked})


def test_columns_are_not_matched_by_their_places_beside_categories(tmp_path):
    path, new = tmp_path / "table.csv", tmp_path / "new.csv"
    path.write_text("".join(f"{i % 5}.5,{i % 2},{i}\n" for i in range(20)))
    data = _read("regressor", path, target="column 1", categories=("column 2",))
    new.write_text("1,2\n2,3\n")
    with pytest.raises(TableError, match="expected the columns 'column 3', 'column 2', found 'column 1', 'column 2'"):
        read_new(new, data, are_classes=False)


@pytest.mark.parametrize("odd", ["1e400", "oops"])
@pytest.mark.parametrize(
    ("name", "columns", "options"),
    [
        ("pca", ("a", "b"), {"n_components": 1}),
        ("regressor", ("a",), {"target": "b"}),
        ("classifier", ("a", "b"), {"target": "kind"}),
        ("unit-network", ("a",), {"target": "b"}),
        ("factorization", None, {"user": "kind", "item": "a", "rating": "b", "rank": 1}),
        ("cca", None, {"group": "kind", "first_view": "a,c*", "second_view": "b,d"}),
    ],
)
def test_a_table_can_be_predicted_for_that_was_fitted(name, columns, options, odd, tmp_path):
    """A column that neither the fit nor the prediction needs may hold a slip, or an infinite number."""
    rows = [(i % 7, i * i % 11, i % 3, i % 5, "xyz"[i // 2 % 3], odd if i == 3 else i) for i in range(20)]
    path, out = _table(tmp_path / "table.csv", "a,b,c,d,kind,remark", *rows), tmp_path / "out.csv"
    data = _read(name, path, columns, **options)
    answers = _ANSWERS[name]
    if name == "cca":
        answers = answers | {"transform": lambda x, groups: _days(len(x), 2)}
    run_kind(name).predict(data, SimpleNamespace(**answers), path, out)
    with open(out, newline="", encoding="utf-8") as file:
        heading, *lines = csv.reader(file)
    assert "remark" not in heading
    assert len(lines) == 20


@pytest.mark.parametrize("name", ["pca", "regressor", "unit-network", "factorization", "cca"])
def test_a_slip_that_counts_is_refused_with_a_way_out_that_there_is(name, tmp_path):
    rows = [(i % 7, i * i % 11, i % 3, i % 5, "xyz"[i // 2 % 3]) for i in range(20)]
    path, new = _table(tmp_path / "table.csv", "a,b,c,d,kind", *rows), tmp_path / "new.csv"
    options = {
        "pca": {},
        "regressor": {"target": "b"},
        "unit-network": {"target": "b"},
        "factorization": {"user": "kind", "item": "a", "rating": "b", "rank": 1},
        "cca": {"group": "kind", "first_view": "a,c", "second_view": "b,d"},
    }[name]
    data = _read(name, path, **options)
    _table(new, "a,b,c,d,kind", *rows[:9], (1, "oops", 3, 4, "x"))
    with pytest.raises(TableError, match=r"line 11, column 'b': expected a number, found 'oops'.*--missing") as caught:
        run_kind(name).predict(data, SimpleNamespace(**_ANSWERS[name]), new, tmp_path / "out.csv")
    assert "--columns" not in str(caught.value)


def test_the_target_shows_how_numbers_are_written(tmp_path):
    """Though it is not among the columns that are asked for."""
    path = tmp_path / "table.csv"
    path.write_text("a;b;y\n" + "".join(f"{i};{i * i % 7};0,{10 + i}\n" for i in range(12)))
    data = _read("regressor", path, ("a", "b"), target="y", test_fraction=0.0)
    np.testing.assert_array_equal(data.targets, [(10 + i) / 100 for i in range(12)])


@pytest.mark.parametrize("name", ["classifier", "regressor", "unit-network", "pca"])
def test_a_column_that_is_asked_for_twice_counts_once(name, tmp_path):
    rows = [(i % 7, i * i % 11, i % 2) for i in range(20)]
    path = _table(tmp_path / "table.csv", "a,b,y", *rows)
    kind = run_kind(name)
    options = {"pca": {}, "regressor": {"target": ("y",)}}.get(name, {"target": "y"})
    _, facts = kind.read(path, FAMILIES[kind.name].options(**options), ("a", "b", "a", "y", "y"), FOUND)
    assert facts["columns"] == ["a", "b", "y"]
    assert "Column 'a' was requested more than once and counts once." in facts["notes"]


def test_sets_of_classes_with_blanks_can_be_parted(tmp_path):
    """And no two columns are called alike, whatever the table's are."""
    rows = [(i % 7, i * i % 11, ["very high", "low", "a; b"][i % 3], f"r{i}", f"e{i}") for i in range(30)]
    path, out = _table(tmp_path / "table.csv", "a,b,kind,row,entropy", *rows), tmp_path / "out.csv"
    data = _read("classifier", path, target="kind")
    sets = {"calibration_": (np.tile([0.9998, 1e-4, 1e-4], (30, 1)), np.full(30, 2))}  # all classes are in the sets
    names = {"classes_": np.array(["a; b", "low", "very high"])}
    run_kind("classifier").predict(data, _model("classifier", **sets, **names), path, out)
    with open(out, newline="", encoding="utf-8") as file:
        heading, *lines = csv.reader(file)
    assert heading[:3] == ["row", "row (2)", "entropy (2)"]
    assert len(set(heading)) == len(heading)
    assert lines[1][:3] == ["2", "r1", "e1"]
    assert {line[heading.index("set_90%")] for line in lines} == {'"a; b"; low; very high'}


@pytest.mark.parametrize("name", ["pca", "unit-network", "regressor"])
def test_headings_of_text_columns_are_set_apart(name, tmp_path):
    head = "a,sd,b,row,5%,score_1"
    rows = [(i % 7, i * i % 11, i * i % 5, f"r{i}", f"e{i}", f"s{i}") for i in range(30)]
    path, out = _table(tmp_path / "table.csv", head, *rows), tmp_path / "out.csv"
    data = _read(name, path, **({} if name == "pca" else {"target": "sd"}))
    run_kind(name).predict(data, SimpleNamespace(**_ANSWERS[name]), path, out)
    with open(out, newline="", encoding="utf-8") as file:
        heading, first, *_ = csv.reader(file)
    assert len(set(heading)) == len(heading)
    assert (heading[:2], first[1]) == (["row", "row (2)"], "r0")
    assert heading[2:5] == (["5%", "score_1 (2)", "score_1"] if name == "pca" else ["5% (2)", "score_1", "sd (2)"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_dates_are_no_variables_of_a_matrix_but_name_its_rows(suffix, tmp_path):
    """Unless they are asked for; times of a day are variables."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=12, freq="MS"), "time": "06:30"})
    frame.loc[::2, "time"] = "18:00"
    frame[["a", "b"]] = np.random.default_rng(3).standard_normal((12, 2))
    path = tmp_path / f"table{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    kind, options = run_kind("pca"), FAMILIES["pca"].options(n_components=1)
    table, facts = kind.read(path, options, None)
    assert table.names == ("time", "a", "b")
    assert table.row_labels[:2] == ("2020-01-01", "2020-02-01")
    assert "Dates are left out: 'when'. To take them as numbers, name all columns with --columns." in facts["notes"]
    assert kind.read(path, options, ("when", "a"))[0].names == ("when", "a")
    frame["g"] = [*"xy"] * 6
    frame.to_csv(tmp_path / "views.csv", index=False)
    data = read_grouped(tmp_path / "views.csv", group="g", first="a,b", second="time,when")
    assert data.second == ("time", "when")
    with pytest.raises(TableError, match="at least two numeric columns that vary, found 'time' for --second-view"):
        read_grouped(tmp_path / "views.csv", group="g", first="a,b", second="")


@pytest.mark.parametrize(("share", "is_told"), [(0.2, True), (0.0, False)])
def test_the_cost_of_many_patterns_of_missing_cells_is_told(tmp_path, monkeypatch, share, is_told):
    """Rows of few patterns, such as those of one column with holes, cost nothing."""
    monkeypatch.setattr(pca_run, "_MANY_CELLS", 5 * 60)
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.standard_normal((400, 5)), columns=list("abcde"))
    frame = frame.mask(generator.random(frame.shape) < share)
    frame.loc[::3, "a"] = np.nan
    frame.to_csv(path := tmp_path / "table.csv", index=False)
    notes = run_kind("pca").read(path, FAMILIES["pca"].options(n_components=1), None)[1]["notes"]
    incomplete = frame.isna().any(axis=1).sum()
    told = [note for note in notes if note.startswith(f"{incomplete} of 400 rows have missing cells, in ")]
    assert len(told) == is_told


def test_a_column_of_codes_is_pointed_out_in_a_matrix(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("county,a,b\n" + "".join(f"{1 + 2 * (k // 3)},{k * k % 7},{k * k % 11}\n" for k in range(30)))
    notes = run_kind("pca").read(path, FAMILIES["pca"].options(n_components=1), None)[1]["notes"]
    assert not any("look like" in note for note in notes)  # even steps
    path.write_text(path.read_text().replace("county", "county_id"))
    notes = run_kind("pca").read(path, FAMILIES["pca"].options(n_components=1), None)[1]["notes"]
    told = "Column 'county_id' holds integers that look like codes. To leave it out, name the other columns with --columns."
    assert told in notes
    assert (
        told not in run_kind("pca").read(path, FAMILIES["pca"].options(n_components=1), ("county_id", "a"))[1]["notes"]
    )
