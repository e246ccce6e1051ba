"""Every model of the command line reads a table whose writing it has been told, in the fit and in the prediction."""

import dataclasses
import inspect

import numpy as np
import pytest

from geodax.data import TableError
from geodax.data.dialect import BLANK, FOUND, MISSING, Dialect
from geodax.models.folder import KINDS

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
