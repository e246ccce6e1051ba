"""Names of users, items, nodes, classes and groups are what cells hold, and in an order that a reader expects."""

import csv

import pytest

from geodax.app.tables.dialect import Dialect
from geodax.app.tables.names import apart, as_names, in_one_cell, in_order


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["9007199254740993", "9007199254740992"], ["9007199254740993", "9007199254740992"]),
        (["007", "7", "1e3", "1000", "+1"], ["007", "7", "1e3", "1000", "+1"]),
        (["080442957X", "0061120081", " a "], ["080442957X", "0061120081", "a"]),
        (
            ["17.0", "-3.0", "0.0", "17.5", "17.50", "007.0", "1.", "1.00", "1.000000", ".0", "1.000"],
            ["17", "-3", "0", "17.5", "17.50", "007.0", "1", "1", "1", ".0", "1.000"],
        ),
        (["", "NA", "nan", "NULL", "x"], ["", "", "", "", "x"]),
        (["1", ".", "-", "2"], ["1", "", "", "2"]),  # signs of missing numbers
        (["+", "-", "."], ["+", "-", "."]),  # strands of a genome
        (["-"], ["-"]),
        (
            ["Jose\u0301", "Jos\u00e9", "e\u0301.0"],
            ["Jos\u00e9", "Jos\u00e9", "\u00e9.0"],
        ),  # as macOS writes them, and others
    ],
)
def test_names_of_cells(cells, names):
    assert as_names(cells).tolist() == names


def test_a_name_does_not_depend_on_the_other_cells():
    """So that the file of a prediction, which has other rows, names the same things."""
    cells = ["17.0", "007", "1e3", "12345678901234567890", "x"]
    assert [as_names([cell]).item() for cell in cells] == as_names(cells).tolist()


@pytest.mark.parametrize(
    ("cells", "known", "names"),
    [
        (["0", "-"], ["+", "-", "0"], ["0", "-"]),
        (["0", "-", "."], ["0", "."], ["0", "", "."]),
        (["+", "-"], ["+", "0"], ["+", ""]),
        (["NA", "x"], ["x", "NA"], ["", "x"]),
        (
            ["Jose\u0301", "Jos\u00e9", "Zoe\u0301"],
            ["Jose\u0301", "Zo\u00e9"],
            ["Jose\u0301", "Jose\u0301", "Zo\u00e9"],
        ),
    ],
)
def test_a_sign_that_is_a_name_elsewhere_is_one_here(cells, known, names):
    """Whatever the other cells of this file are."""
    assert as_names(cells, known=known).tolist() == names


def test_a_sign_that_is_said_to_be_missing_is_no_name():
    assert as_names(["0", "-"], Dialect(missing=("-",)), ["0", "-"]).tolist() == ["0", ""]


def test_a_sign_of_missing_cells_is_no_name():
    assert as_names(["k. A.", "a"], Dialect(missing=("k. A.",))).tolist() == ["", "a"]
    assert as_names(["-9.0", "-9", "1.0"], Dialect(missing=("-9",))).tolist() == ["", "", "1"]


def test_numbers_come_by_their_size_before_the_other_names():
    names = ["b", "10", "9", "-1", "1B", "010", "100000000000000000001"]
    assert [names[i] for i in in_order(names)] == ["-1", "9", "10", "100000000000000000001", "010", "1B", "b"]


def test_no_two_headings_are_alike():
    assert apart(["a", "row", "row (2)", "b", "b"], ["row", "y"]) == ["a", "row (2)", "row (2) (2)", "b", "b (2)"]


@pytest.mark.parametrize("names", [["a b", "c"], ["x; y", "z"], ['5" pipe', "x;y", "u, v"], ["a"], []])
def test_names_in_one_cell_can_be_parted(names):
    cell = in_one_cell(names)
    assert next(csv.reader([cell], delimiter=";", skipinitialspace=True), []) == names


def test_plain_names_in_one_cell_stand_without_quotation_marks():
    assert in_one_cell(["very high", "low"]) == "very high; low"
