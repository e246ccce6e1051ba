"""Rows of sums and means below a table are left out with a note, and rows of data never are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geodax.app.tables.read import read_table

_ROWS = [("a", 3.5, 410), ("b", 1.25, 38), ("c", 2, 77), ("d", 8.1, 205), ("e", 4.75, 99), ("f", 6, 512)]
_VALUES = np.array([row[1:] for row in _ROWS], float)
_SUMS, _MEANS = _VALUES.sum(axis=0), _VALUES.mean(axis=0)


def _read(path, *below, **options):
    rows = [*_ROWS, *below]
    path.write_text("name,x,n\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return read_table(path, **options)


@pytest.mark.parametrize(
    ("below", "found"),
    [
        ([("Total", *_SUMS)], "line 8 ('Total')"),
        ([("Summe", f"{_SUMS[0]:.0f}", "")], "line 8 ('Summe')"),
        ([("Mean", *_MEANS)], "line 8 ('Mean')"),
        (
            [("Total", *_SUMS), ("Mean", *_MEANS.round(1)), ("Source: a survey", "", "")],
            "line 8 ('Total') and the lines",
        ),
        ([("Mean", *_MEANS.round(2)), ("Total", *_SUMS)], "line 8 ('Mean') and the lines below it"),
    ],
)
def test_sums_and_means_are_left_out(tmp_path, below, found):
    table = _read(tmp_path / "x.csv", *below)
    np.testing.assert_array_equal(table.values, _VALUES)
    assert list(table.lines) == [2, 3, 4, 5, 6, 7]
    assert table.text["name"] == tuple("abcdef")
    assert any(note.startswith(f"Left out as sums or means of the rows above: {found}") for note in table.notes)


_GROUPS = [("a", 3.5, 410), ("b", 1.25, 38), ("Subtotal", 4.75, 448), ("c", 2, 77), ("d", 8, 20), ("e", 4, 99)]


@pytest.mark.parametrize("second", ["Subtotal", "North, total", "Summe Nord"])
@pytest.mark.parametrize("grand", [[], [("Total", 18.75, 644)]])
def test_totals_of_groups_are_left_out(tmp_path, second, grand):
    path = tmp_path / "x.csv"
    rows = [*_GROUPS, (second, 14, 196), *grand, ("f", 1, 7)]
    path.write_text("name;x;n\n" + "".join(f"{';'.join(map(str, row))}\n" for row in rows))
    table = read_table(path)
    assert table.text["name"] == tuple("abcdef")
    np.testing.assert_array_equal(table.values[:, 1], [410, 38, 77, 20, 99, 7])
    assert list(table.lines) == [2, 3, 5, 6, 7, 9 + len(grand)]
    others = f"{1 + len(grand)} other{'s' * len(grand)}."
    assert f"Left out as sums of groups of rows above: line 4 ('Subtotal') and {others}" in table.notes


@pytest.mark.parametrize("row", [("Total", 9.25, 300), ("b2", 4.75, 448), ("Total Gas", 900, 9)])
def test_rows_that_are_only_called_totals_or_only_are_sums_stay(tmp_path, row):
    path = tmp_path / "x.csv"
    rows = [*_GROUPS[:2], row, *_GROUPS[3:]]
    path.write_text("name,x,n\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    assert len(read_table(path).values) == 6


def test_totals_among_categories_stay(tmp_path):
    path = tmp_path / "x.csv"
    rows = [
        (kind, year, x)
        for year in (2001, 2002, 2003)
        for kind, x in (("f", year % 7), ("m", 3), ("total", 3 + year % 7))
    ]
    path.write_text("sex,year,x\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    assert len(read_table(path).values) == 9


@pytest.mark.parametrize(
    "row",
    [
        ("World", 3.9, 210),  # near the means
        ("g", _SUMS[0] * 1.01, 1200),  # near the sums
        ("g", 4.3, 224),  # the means as far as such digits tell, which happens by chance
        ("g", _MEANS[0], 300),  # imputed
        ("g", "", ""),
    ],
)
def test_data_stay(tmp_path, row):
    table = _read(tmp_path / "x.csv", row)
    assert len(table.values) == 7
    assert not any("sums or means" in note for note in table.notes)


def test_rare_counts_are_no_sums(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("visits\n0\n0\n1\n0\n1\n0\n2\n")
    assert len(read_table(path).values) == 7


def test_new_rows_all_get_a_prediction(tmp_path):
    assert len(_read(tmp_path / "x.csv", ("Total", *_SUMS), keep_constant=True).values) == 7


@pytest.mark.thorough
@given(st.integers(0, 2**32 - 1), st.integers(6, 40), st.sampled_from(["normal", "poisson", "binary", "prices"]))
def test_random_rows_are_data(tmp_path_factory, seed, num_rows, kind):
    rng = np.random.default_rng(seed)
    draw = {
        "normal": lambda: rng.normal(size=num_rows).round(3),
        "poisson": lambda: rng.poisson(0.3, num_rows),
        "binary": lambda: rng.integers(0, 2, num_rows),
        "prices": lambda: rng.lognormal(5, 1, num_rows).round(2),
    }[kind]
    path = tmp_path_factory.mktemp("table") / "x.csv"
    np.savetxt(path, np.column_stack([draw(), draw()]), delimiter=",", header="a,b", comments="", fmt="%g")
    assert not any("sums or means" in note for note in read_table(path, missing=["none"]).notes)
