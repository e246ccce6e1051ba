"""Every model of the command line reads a table whose writing it has been told, in the fit and in the prediction."""

import csv
import dataclasses
import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from geodax.cli import main
from geodax.data import TableError, read_table
from geodax.data.dialect import BLANK, FOUND, MISSING, Dialect
from geodax.data.tables import match_columns
from geodax.models.folder import KINDS
from geodax.models.mlp.files import read_new
from geodax.models.run_files import number_text
from geodax.run.conformal import PredictionIntervals
from geodax.run.predictive import ClassPredictions, NumberPredictions

_DIALECT = Dialect(delimiter="|", decimal=",", encoding="cp1252", missing=("k. A.",))
_COUNTS = "zeit|a|b\n" + "".join(f"{20 * i},5|{'äöü'[i % 3]}|{'üäö'[i % 3]}\n" for i in range(12))
_ROWS = "gruppe|größe|b|c|d\n" + "".join(
    f"{'xyz'[i % 3]}|{i % 7},{i:03d}|{(3 * i) % 11},125|{(5 * i) % 13},5|{i % 5},250\n" for i in range(40)
)
_RATINGS = "user|item|rating\n" + "".join(f"ä{i % 4}|{i % 5}|{1 + i % 5},500\n" for i in range(20))
_CASES = {
    "pca": (_ROWS, {}),
    "classifier": (_ROWS, {"target": "gruppe"}),
    "regressor": (_ROWS, {"target": "d"}),
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


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_table_is_read_as_it_is_written(name, written):
    kind = KINDS[name]
    text, options = _CASES[name]
    data, facts = kind.read(written(text), kind.options_type(**options), None, _DIALECT)
    assert all(np.size(array) for array in kind.arrays(data))
    assert facts["columns"]
    assert "dialect" in inspect.signature(kind.predict).parameters


@pytest.mark.parametrize("name", ["pca", "classifier", "regressor", "cca", "factorization"])
def test_a_sign_of_missing_cells_counts_in_numbers_and_in_names(name, written):
    """Without it the cell is a mistake, or a class, a group or a user of its own."""
    kind = KINDS[name]
    text, options = _CASES[name]
    lines = text.splitlines()
    cells = lines[3].split("|")
    place = 0 if name in ("classifier", "factorization") else 2
    lines[3] = "|".join("k. A." if k == place else cell for k, cell in enumerate(cells))
    path = written("\n".join(lines))
    data, _ = kind.read(path, kind.options_type(**options), None, _DIALECT)
    found = kind.arrays(data)
    if name == "pca":
        assert np.isnan(found[0]).sum() == 1
    elif name == "cca":
        assert len(found[0]) == 39
    elif name == "factorization":
        assert len(data.ratings) == 19
    else:
        assert len(data.inputs) == 39
    plain = dataclasses.replace(_DIALECT, missing=())
    if place == 2:
        with pytest.raises(TableError, match=r"--missing"):
            kind.read(path, kind.options_type(**options), None, plain)
    else:
        other, _ = kind.read(path, kind.options_type(**options), None, plain)
        names = np.concatenate([np.ravel(other.targets if name == "classifier" else other.pairs)])
        assert "k. A." in names


_DAY = 2459123.7119140625  # sums and means of a few of them are exact


def _days(*shape):
    return np.full(shape, _DAY)


_OF_NUMBERS = {
    "predict": lambda x, return_std: (_days(len(x)), _days(len(x))),
    "predict_draws": lambda x: _days(5, len(x)),
    "predict_quantiles": lambda x: _days(2, len(x)),
    "sample_y": lambda x: _days(5, len(x)),
    "score_samples": lambda x, y=None: _days(len(x)),
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
        "log_predictive": lambda x, y: _days(len(x)),
    },
    "regressor": _OF_NUMBERS
    | {
        "calibration_": (),
        "predict_interval": lambda x, alpha: PredictionIntervals(*_days(2, len(x)), np.inf),
        "log_predictive": lambda x, y: _days(len(x)),
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


@pytest.mark.parametrize("name", sorted(KINDS))
def test_predictions_are_written_without_loss(name, written, tmp_path):
    """Numbers that differ in their ninth digit only, of the model as of the file."""
    kind, (text, options) = KINDS[name], _CASES[name]
    head, *lines = text.splitlines()
    if "observed" in _WRITTEN[name]:
        lines = [f"{line.rsplit('|', 1)[0]}|24591{i:02d},71" for i, line in enumerate(lines)]
    if name == "network":
        lines = [f"{2459100_00 + 30 * i},5|{'äöü'[i % 3]}|{'üäö'[i % 3]}" for i in range(9)]
    data, _ = kind.read(written("\n".join([head, *lines])), kind.options_type(**options), None, _DIALECT)
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
    kind = KINDS["pca"]
    config = {
        "options": dataclasses.asdict(kind.options_type(n_components=3, standardize=False)),
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


def test_nothing_said_is_everything_found():
    assert FOUND.options()["missing"] == MISSING
    assert FOUND.blank == BLANK
    assert {".", "-"} == set(MISSING) - set(BLANK)  # names of classes, but no numbers
    assert Dialect(delimiter="tab").options()["delimiter"] == "\t"


@pytest.mark.parametrize("cell", ["", "NA"])
def test_a_target_may_be_empty_in_every_row_to_predict(cell, tmp_path):
    """As a file has it whose target is to be filled in; for a class as for a number."""
    table = tmp_path / "table.csv"
    table.write_text("a,b,kind,level\n" + "".join(f"{i % 7},{(3 * i) % 11},{'xy'[i % 2]},{i % 5}\n" for i in range(40)))
    new = tmp_path / "new.csv"
    new.write_text("a,b,kind,level\n" + "".join(f"{i},{2 * i % 3},{cell},{cell}\n" for i in range(3)))
    for name, target in (("classifier", "kind"), ("classifier", "level"), ("regressor", "level")):
        kind = KINDS[name]
        data, _ = kind.read(table, kind.options_type(target=target), ("a", "b"), FOUND)
        _, is_whole, targets = read_new(new, data, are_classes=kind.are_classes)
        assert is_whole.all()
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
    kind = KINDS["regressor"]
    return kind.read(path, kind.options_type(target=target), None, FOUND)[1]["notes"]


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
    assert "has 1 row; at least 4 without missing cells are needed" in error
    assert "holes" not in error
    path.write_text("a,b,y\n1,2,3\n2,,1\n3,,1\n4,,3\n5,,1\n")
    assert main(words) == 1
    assert "at least 4 are needed; choose columns with fewer holes" in capsys.readouterr().err
    path.write_text("a,b,y\n" + "".join(f"{i % 7},{(3 * i) % 11},{i % 2}\n" for i in range(50)))
    assert main([*words, "--test-fraction", "0.999"]) == 1
    assert "--test-fraction 0.999 leaves 0 of 50 rows to fit; at least 2 are needed" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
