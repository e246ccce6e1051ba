"""A user's table: every odd file is read rightly or refused with a message that says what to do."""

import gzip
import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geodax.app.tables.dialect import NOTHING_SHOWN, POINT, Separators
from geodax.app.tables.read import if_all_there, match_columns, read_table
from geodax.data.errors import TableError

PLAIN = "name,height,weight\nAnn,1.5,50\nBob,1.75,80\nCy,2.0,90\n"
VALUES = [[1.5, 50], [1.75, 80], [2.0, 90]]


@pytest.fixture
def write(tmp_path):
    """Write text or bytes into a file and return its path."""

    def write(content, name="table.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write


def test_a_plain_table(write):
    table = read_table(write(PLAIN))
    assert table.names == ("height", "weight")
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.values.dtype == np.float64
    assert table.row_labels == ("Ann", "Bob", "Cy")
    assert table.text == {"name": ("Ann", "Bob", "Cy")}
    assert table.dropped == {"name": "text, such as 'Ann' on line 2"}
    assert table.has_header
    assert table.notes == ("Columns left out: 'name' (text, such as 'Ann' on line 2).",)


def test_columns_read_as_text(write):
    """Codes stay what they are, slips among them too; numbers beside them are read as ever, and there may be none."""
    path = write("code,x,part\n01,1.5,2\n2,,2\nx,3,2\n")
    table = read_table(path, text=["code", "part"])
    assert table.text == {"code": ("01", "2", "x"), "part": ("2", "2", "2")}
    assert table.names == ("x",)
    np.testing.assert_array_equal(table.values, [[1.5], [np.nan], [3]])
    assert not any("left out" in note for note in table.notes)
    assert read_table(path, columns=["part", "x"], text=["part"], missing=["x", ""]).names == ("x",)
    bare = read_table(write("code,kind\n1,a\n2,b\n"), text=["code", "kind"])
    assert match_columns(bare, []).values.shape == bare.values.shape == (2, 0)
    with pytest.raises(TableError, match=r"no column 'cod' \(did you mean 'code'\?\)"):
        read_table(path, text=["cod"])
    file = io.BytesIO()
    np.savez(file, code=np.array([1.0, np.nan, 2.5]), x=np.arange(3), kind=np.array(["a", "b", "c"]))
    table = read_table(write(file.getvalue(), "arrays.npz"), text=["code", "kind"])
    assert (table.names, table.text) == (("x",), {"code": ("1", "", "2.5"), "kind": ("a", "b", "c")})


def test_columns_read_as_text_are_chosen_among_those_there(write, tmp_path):
    """Numbers of any length keep all their digits, those of an array of whole numbers too."""
    table = read_table(write("9007199254740993,1\n9007199254740992,2\n"), text=lambda names: names[:1])
    assert table.text == {"column 1": ("9007199254740993", "9007199254740992")}
    path = tmp_path / "whole.npy"
    np.save(path, np.array([[2**53 + 1, 1], [2**53, 2]]))
    assert read_table(path, text=lambda names: names[:1]).text == table.text


def test_new_rows_may_be_all_alike(write):
    """What is no data for a fit is enough to predict for."""
    path = write("a,b,c\n1,2,\n1,2,\n")
    with pytest.raises(TableError, match="no numeric column that varies"):
        read_table(path)
    table = match_columns(read_table(path, keep_constant=True), ["a", "b"])
    np.testing.assert_array_equal(table.values, [[1, 2], [1, 2]])
    assert not any("constant" in note for note in table.notes)
    with pytest.raises(TableError, match="no numeric column: found"):
        read_table(write("a\nx\ny\n"), keep_constant=True)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_delimiters_line_ends_and_encodings(write, delimiter, newline, encoding):
    text = PLAIN.replace(",", delimiter).replace("\n", newline)
    table = read_table(write(text, encoding=encoding))
    assert table.names == ("height", "weight")
    np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("height,weight\n1.5,50\n1.75,80\n2.0,90\n", id="without text"),
        pytest.param("height,weight,\n1.5,50,\n1.75,80,\n2.0,90,\n", id="trailing delimiter"),
        pytest.param("height,weight\n1.5,50,\n1.75,80,\n2.0,90,\n", id="trailing delimiter in the rows alone"),
        pytest.param("  height , weight\n 1.5 ,50\n1.75 , 80 \n2.0,\t90\n", id="blanks around values"),
        pytest.param('"height","weight"\n"1.5","50"\n"1.75","80"\n"2.0","90"', id="quoted, no last line end"),
        pytest.param("height,weight\n\n1.5,50\n1.75,80\n,\n2.0,90\n\n,,\n", id="blank lines"),
        pytest.param("sep=,\nheight,weight\n1.5,50\n1.75,80\n2.0,90\n", id="separator line"),
        pytest.param("height  weight\n1.5 50\n 1.75\t80\n2.0   90\n", id="parted by blanks"),
        pytest.param('height,weight\n1.5e0,+50\n.175E1,8.e1\n"2","9e+01"\n', id="ways to write a number"),
        pytest.param("height;weight\n1,5;50\n1,75;80\n2,0;90\n", id="decimal comma"),
    ],
)
def test_other_ways_to_write_the_same(write, text):
    table = read_table(write(text))
    assert table.names == ("height", "weight")
    np.testing.assert_array_equal(table.values, VALUES)


def test_rows_without_a_value_are_said_to_be_left_out(write):
    """Another program counts them, and a prediction would stand beside the wrong row; those below the table are no rows."""
    table = read_table(write("a,b\n1,2\n,\n3,5\n\n, \n4,4\n,\n,\n"))
    assert table.lines == [2, 4, 7]
    note = "Left out: 2 rows without a value, on line 3 and below. Rows are counted without them."
    assert note in table.notes
    assert not any("without a value" in note for note in read_table(write("a,b\n1,2\n\n3,5\n,\n")).notes)


def test_gzip(write):
    table = read_table(write(gzip.compress(PLAIN.encode()), "table.csv.gz"))
    np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize("end", ["", ",,", "\n\n", "\nsource: register,,\n"])
def test_a_title_above_the_table_is_left_out(write, end):
    """The names are those below it, and lines are those of the file."""
    text = f"Survey of 2024{end}\nname,x,x\na,1,2.5\nb,3,4.5\n,,6\n"
    table = read_table(write(text))
    assert table.names == ("x", "x (2)")
    np.testing.assert_array_equal(table.values, [[1, 2.5], [3, 4.5], [np.nan, 6]])
    assert table.lines[0] == text[: text.index("a,1")].count("\n") + 1
    assert any("title above the table: 'Survey of 2024'" in note for note in table.notes)


@pytest.mark.parametrize("end", ["", ",", "\n"])
def test_names_with_values_above_a_table_are_left_out(write, end):
    """Catches an error that asks the user to remove the line of the names; R's names beside row names are no pair."""
    text = f"source,census{end}\nyear,2020{end}\nname,x,z\na,1,2.5\nb,3,4.5\nc,5,6.5\n"
    table = read_table(write(text))
    assert table.names == ("x", "z")
    np.testing.assert_array_equal(table.values, [[1, 2.5], [3, 4.5], [5, 6.5]])
    assert any("title above the table: 'source' and 1 more" in note for note in table.notes)
    for text in ("x,z\na,1,2.5\nb,3,4.5\nc,5,6.5\n", "x,z,\n1,2.5,3\n2,4.5,3\n3,5,6\n"):
        assert read_table(write(text)).names[:2] == ("x", "z")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("value\na,1\nb,2\nc,3\n", None),
        ("remark\nyes, of course, it is\nno, never, ever\n", None),
        ("x\n1\n2\n", ("x",)),
        ("2024\nx,y\n1,2\n", None),
    ],
)
def test_a_single_cell_that_is_no_title(write, text, names):
    if names is None:
        with pytest.raises(TableError):
            read_table(write(text))
        return
    table = read_table(write(text))
    assert table.names == names
    assert not any("title" in note for note in table.notes)


def test_an_index_without_a_name_is_left_out(write):
    """R and pandas write the numbers of the rows as a first column; new rows have it again."""
    table = read_table(write(",x,y\n1,3,4\n2,5,1\n3,2,2\n"))
    assert table.names == ("x", "y")
    assert "without a name; it counts the rows" in table.dropped["column 1"]
    new = match_columns(read_table(write(",x,y\n7,3,4\n8,5,1\n"), keep_constant=True), table.names)
    np.testing.assert_array_equal(new.values, [[3, 4], [5, 1]])
    assert read_table(write("Unnamed: 0,x\n0,3\n1,5\n2,2\n")).names == ("x",)  # read and written again by pandas
    assert read_table(write(",x\n4,3\n9,5\n2,2\n")).names == ("column 1", "x")
    assert read_table(write("id,x\n1,3\n2,5\n3,2\n")).names == ("id", "x")


@pytest.mark.parametrize("numbers", [(0, 3, 4, 9), (12, 7, 3, 25, 11, 0, 4, 18, 9, 2)])
def test_the_index_of_some_rows_of_a_table_is_left_out(write, numbers):
    """pandas keeps the numbers of the rows that are left by a condition, or shuffled for a split."""
    rows = [f"{number},{k % 3},{k**2}.5" for k, number in enumerate(numbers)]
    table = read_table(write("\n".join([",x,y", *rows]) + "\n"))
    assert table.names == ("x", "y")
    assert table.dropped["column 1"] == "without a name; it numbers the rows"
    for other in (f"{numbers[1]},0,7.5", "-1,0,7.5", "0.5,0,7.5"):  # a repeated number, and no numbers of rows
        assert read_table(write("\n".join([",x,y", *rows, other]) + "\n")).names == ("column 1", "x", "y")
    assert read_table(write("1,3\n2,5\n3,2\n")).names == ("column 1", "column 2")


def test_signs_of_windows_1252(write):
    table = read_table(write("Preis (€);b\n3,50 €;1\n4,20 €;3\n", encoding="cp1252"))
    assert table.names == ("Preis (€)", "b")
    np.testing.assert_array_equal(table.values, [[3.5, 1], [4.2, 3]])
    undefined = read_table(write(b"a\x81\xe9,b\n1,2\n3,5\n"))
    assert undefined.names == ("a\x81é", "b")


def test_latin_1_is_noted(write):
    table = read_table(write("Größe,b\n1,2\n3,5\n", encoding="latin-1"))
    assert table.names == ("Größe", "b")
    assert any("Latin-1" in note for note in table.notes)


def test_unicode_names_and_minus(write):
    table = read_table(write("温度,Δx\n−1.5,2\n3,5\n"))
    assert table.names == ("温度", "Δx")
    np.testing.assert_array_equal(table.values, [[-1.5, 2], [3, 5]])


def test_quoted_newlines_keep_the_line_numbers(write):
    text = 'note,"a\nb",c\n"one\ntwo",1,2\nx,3,4\ny,oops,6\nz,7,8\nz,9,9\n'
    with pytest.raises(TableError, match=r"line 6, column 'a b': expected a number, found 'oops'"):
        read_table(write(text))
    table = read_table(write(text.replace("oops", "5")))
    assert table.names == ("a b", "c")
    assert table.row_labels[0] == "one\ntwo"


def test_without_header(write):
    table = read_table(write("1,x,2\n3,y,4\n5,z,7\n"))
    assert table.names == ("column 1", "column 3")
    assert not table.has_header
    assert any(
        note.startswith("No header line was found: columns are named by their position.") for note in table.notes
    )
    assert table.row_labels == ("x", "y", "z")


def test_a_column_that_is_named_by_a_number_in_the_header(write):
    path = write("142.24,144.78\n1,2\n3,5\n")
    with pytest.raises(TableError, match=r"has no column '144.78'.*No header line was found.*--header True"):
        read_table(path, columns=["144.78"])
    assert read_table(path, columns=["144.78"], header=True).names == ("144.78",)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("text", "names", "notes"),
    [
        ("# made by hand\nx,y,z\n1,2,3\n4,5,7\n", ("x", "y", "z"), ["than the rows below: '# made by hand'."]),
        ("# by hand\nx,y,z\n1,2,3,\n4,5,7,\n", ("x", "y", "z"), ["'# by hand'."]),
        ("#\n# by hand, in May\n\nx;y;z\n1;2;3\n4;5;7\n", ("x", "y", "z"), ["'#' and 1 more above the table."]),
        ("# two words, a comma\nx,y,z\n1,2,3\n4,5,7\n", ("x", "y", "z"), ["a comma'."]),
        ("# by hand\n1,2,3\n4,5,7\n", ("column 1", "column 2", "column 3"), ["'# by hand'.", "No header"]),
        ("# by hand\n# x,y,z\n1,2,3\n4,5,7\n", ("# x", "y", "z"), ["'# by hand'."]),
        ("# x,y,z\n1,2,3\n4,5,7\n", ("# x", "y", "z"), []),
        ("# by hand in May\n# x y z\n1 2 3\n4 5 7\n", ("x", "y", "z"), ["'# by hand in May'."]),
        ("# y z w\n1 2 3 4\n4 5 7 9\n", ("#", "y", "z", "w"), []),
        ("#y,z\n1,2,3\n4,5,7\n", ("row", "#y", "z"), ["was named 'row'"]),
    ],
)
def test_comments_above_a_table(write, text, names, notes, newline):
    """They are left out, but a line of names stays that begins with their sign, as NumPy writes it."""
    path = write(text.replace("\n", newline))
    table = read_table(path)
    assert table.names == names
    assert table.values[:, -1].tolist() == ([4, 9] if "w" in names else [3, 7])
    assert len(table.notes) == len(notes)
    assert all(words in note for words, note in zip(notes, table.notes, strict=True))


def test_lines_below_comments_keep_their_numbers(write):
    with pytest.raises(TableError, match=r"line 5: expected 2 cells as on line 3, found 3"):
        read_table(write("# by hand\n# in May\nx,y\n1,2\n3,4,5\n6,7\n"))


@pytest.mark.parametrize(("given", "values"), [("tab", [3, 7]), ("\t", [3, 7])])
def test_comments_beside_a_given_delimiter(write, given, values):
    table = read_table(write("# by, hand\nx\ty\n1\t3\n4\t7\n"), delimiter=given)
    assert table.values[:, -1].tolist() == values


def test_a_cell_over_lines_is_no_comment(write):
    table = read_table(write('# x,"y\nz",w\n1,2,3\n4,5,7\n'))
    assert table.names == ("# x", "y z", "w")


def test_header_can_be_forced(write):
    path = write("2019,2020\n1,2\n3,5\n")
    assert len(read_table(path).values) == 3
    table = read_table(path, header=True)
    assert table.names == ("2019", "2020")
    assert len(table.values) == 2


def test_unnamed_first_column_is_a_header_still(write):
    table = read_table(write(",a,b\n7,1,2\n9,3,5\n"))
    assert table.names == ("column 1", "a", "b")
    assert table.has_header


def test_row_names_as_written_by_r(write):
    table = read_table(write('"a","b"\n"r1",1,2\n"r2",3,5\n'))
    assert table.names == ("a", "b")
    assert table.row_labels == ("r1", "r2")
    assert any("named 'row'" in note for note in table.notes)


@pytest.mark.parametrize("delimiter", [" ", "\t", ","])
def test_tables_of_r_with_numbers_as_row_names(write, delimiter):
    """write.table separates by spaces, and its header has no name for the row names, which are no data."""
    lines = ['"len" "kind" "dose"', *(f'"{i}" {i**2}.5 "VC" 0.{i}' for i in range(1, 6))]
    table = read_table(write("\n".join(lines).replace(" ", delimiter) + "\n"))
    assert table.names == ("len", "dose")
    assert table.dropped["row"] == "without a name; it counts the rows"


def test_missing_cells(write):
    table = read_table(write("a,b,c\n1,NA,3\n?,5,-\n7,8,nan\n,9,null\n2,.,1\n3,n/a,#N/A\n4,NULL,6\n"))
    assert np.isnan(table.values).sum() == 10
    assert any("10 of 21 cells are missing ('a' 2, 'b' 4, 'c' 4)" in note for note in table.notes)
    table = read_table(write("a,b\n1,-9\n2,3\n-9,4\n"), missing=["-9"])
    np.testing.assert_array_equal(np.isnan(table.values), [[False, True], [False, False], [True, False]])


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("a,b\n1,-9.00\n2,3.00\n-9.0,4.00\n", ["-9"]),
        ("a;b\n1;-9,00\n2;3,00\n-9;4,00\n", ["-9"]),
        ("a,b\n1,-9\n2,3\n\u22129,4\n", ["-9.0"]),
    ],
)
def test_numbers_that_stand_for_missing_cells_count_however_they_are_written(write, text, missing):
    """As in arrays: programs write -999 with the decimals of its column."""
    table = read_table(write(text), missing=missing)
    np.testing.assert_array_equal(table.values, [[1, np.nan], [2, 3], [np.nan, 4]])


def test_a_first_line_of_numbers_that_are_names_of_the_fit_is_a_header(write):
    path = write("2020,2019,1999\n1,2,3\n")
    table = read_table(path, of_fit=["2019", "2020"], keep_constant=True)
    assert match_columns(table, ["2019", "2020"]).values.tolist() == [[2, 1]]
    assert any(note.startswith("Line 1 was read as names, because it holds those of the fit") for note in table.notes)
    assert read_table(path, of_fit=["2019", "2020"], header=False).values.shape == (2, 3)
    assert read_table(path, of_fit=["2019", "2021"]).values.shape == (2, 3)


def test_constant_and_empty_columns_are_left_out(write):
    table = read_table(write("a,b,c\n1,5,\n2,5,\n3,,NA\n"))
    assert table.names == ("a",)
    assert table.dropped == {"b": "constant, always 5", "c": "all cells are missing"}
    assert set(table.set_aside) == {"b", "c"}


def test_one_row_is_enough_to_predict(write):
    table = read_table(write("a,b\n1,2\n"))
    np.testing.assert_array_equal(table.values, [[1, 2]])
    assert any("only one row" in note for note in table.notes)


def test_duplicate_names_are_made_unique(write):
    table = read_table(write("a,a,a (2),a\n1,2,3,4\n5,6,7,9\n"))
    assert len(set(table.names)) == 4
    assert table.names[0] == "a"
    assert table.names[2] == "a (2)"
    assert sum("repeats the name 'a'" in note for note in table.notes) == 2


def test_row_counter_and_huge_numbers_are_noted(write):
    table = read_table(write("id,x\n1,1e300\n2,-1e300\n3,0\n"))
    np.testing.assert_array_equal(table.values[:, 1], [1e300, -1e300, 0])
    assert any("'id' counts the rows" in note for note in table.notes)
    assert any("'x' has values above 1e18" in note for note in table.notes)


def test_chosen_columns(write):
    path = write("a,b,c\n1,2,4\n3,4,4\n5,7,4\n")
    table = read_table(path, columns=["c", "a"])
    assert table.names == ("c", "a")
    np.testing.assert_array_equal(table.values, [[4, 1], [4, 3], [4, 5]])
    assert table.dropped == {"b": "not asked for"}
    assert any("'c' was requested and is kept: constant, always 4" in note for note in table.notes)


def test_chosen_columns_pass_by_mistakes_in_others(write):
    path = write("a,b,c\n1,2,inf\n3,oops,4\n5,7,6\n6,8,9\n")
    assert read_table(path, columns=["a"]).names == ("a",)


@pytest.mark.parametrize(
    ("cells", "code"),
    [
        ([4, 7, -999, 9, -999, 5], "-999"),
        ([4.5, 7, 99.9, 9, 99.9, 5], "99.9"),
        ([31, 45, 9999, 52, 9999, 28], "9999"),
        ([4, 7, -9, -9, -3, 5], None),  # one of many negative numbers
        ([98, 99, 99, 97, 95, 90], None),
        ([4, 7, 5, 6, -999, 5], None),  # once: a typo or an outlier
        ([1, 999, 1, 999, 1, 999], None),  # two values
    ],
)
def test_codes_for_missing_cells_are_named(write, cells, code):
    table = read_table(write("a,x\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells))))
    assert table.values[:, 1].tolist() == cells
    found = [note for note in table.notes if "--missing" in note]
    assert found == [
        f"Column 'x' has {code} in 2 rows, far from its other values. If it means a missing cell, use --missing={code}."
    ] * (code is not None)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name,kg,cm\n,mass,height\na,70,180\nb,60,170\nc,65,175\n", 2),
        ("kg,cm\n70,180\n60,170\n65,175\nSource: own,\n", 5),
    ],
)
def test_lines_that_are_no_rows_are_to_be_removed(write, text, line):
    with pytest.raises(
        TableError, match=f"line {line}, .*If the line is a second header, a total or a note, remove it"
    ):
        read_table(write(text))
    with pytest.raises(TableError) as raised:
        read_table(write("kg,cm\n70,180\n60,170\nx,175\n61,171\n62,172\n63,173\n"))
    assert "second header" not in str(raised.value)


def test_a_column_that_is_chosen_twice_counts_once(write):
    table = read_table(write("a,b,c\n1,2,4\n3,4,4\n5,7,4\n"), columns=["a", "b", "a"])
    assert table.names == ("a", "b")
    assert table.values.shape == (3, 2)
    assert "Column 'a' was requested more than once and counts once." in table.notes


_ODD = "a;b;slip;big;comma\n1.5;2;1;1e400;2,5\n3;oops;oops;4;1,5\n5;7;6;5;2,5\n6;8;9;6;2,5\n"


@pytest.mark.parametrize("needed", [["a"], lambda names: names[:1]])
def test_columns_that_do_not_count_may_hold_anything(write, needed):
    """Slips, infinite numbers and other signs of decimals; what is no text is not kept as text."""
    table = read_table(write(_ODD), needed=needed)
    assert table.names == ("a",)
    assert table.values[:, 0].tolist() == [1.5, 3, 5, 6]
    assert table.dropped["slip"].startswith("line 3, column 'slip': expected a number, found 'oops'")
    assert table.dropped["big"] == "line 2, column 'big': expected a finite number, found '1e400'"
    assert set(table.text) == {"comma"}


@pytest.mark.parametrize(
    ("column", "words"),
    [("slip", "expected a number, found 'oops'"), ("big", "a finite number"), ("comma", "'2,5' .* has a decimal com")],
)
def test_columns_that_count_must_hold_numbers(write, column, words):
    """Without an advice to leave them out."""
    with pytest.raises(TableError, match=words) as caught:
        read_table(write(_ODD), needed=["a", column])
    assert "--columns" not in str(caught.value)


def test_infinite_numbers_of_arrays_where_they_do_not_count(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(3.0), b=np.array([1.0, np.inf, 2.0]))
    assert read_table(path, columns=["a"]).names == ("a",)
    table = read_table(path, text=["b"])
    assert table.text["b"] == ("1.0", "inf", "2.0")
    with pytest.raises(TableError, match="row 2, column 'b': expected a finite number, found inf"):
        read_table(path, columns=["b"])


def test_columns_of_a_model_count_where_all_of_them_are_there():
    needed = if_all_there(["a", "b"], ["y"])
    assert needed(["x", "b", "a"]) == ["a", "b"]
    assert needed(["y", "b", "a"]) == ["a", "b", "y"]
    assert needed(["column 1", "column 2"]) == ["column 1", "column 2"]  # places decide
    assert needed(["a", "B", "note", "y"]) == ["a", "B", "y"]
    assert needed(["p", "q"]) == ["p", "q"]
    assert if_all_there(["column 1", "column 2"])(["u", "column 2"]) == ["u", "column 2"]


def test_a_misspelt_column_is_named_before_slips_in_others(write):
    path = write("a,B,note\n1.5,2,x\n2.5,3,7\n3,4,8\n9,4,8\n")
    table = read_table(path, needed=if_all_there(["a", "b"]), keep_constant=True)
    with pytest.raises(TableError, match=r"'b' is missing \(did you mean 'B'\?\)"):
        match_columns(table, ["a", "b"])
    path = write("a;B\n1;2,5\n2;x\n3;4\n4;y\n")
    table = read_table(path, needed=["a"], keep_constant=True)
    with pytest.raises(TableError, match=r"'b' is missing \(did you mean 'B'\?\)"):  # though it holds text
        match_columns(table, ["a", "b"])


@pytest.mark.parametrize(
    ("text", "said", "words"),
    [
        (
            "b;a\n3.5;2.1\n1.5;2.2\n",
            ",",
            r"'3\.5' on line 2; numbers .* --decimal ,. For a point use --decimal \.",
        ),
        ("b;a\n3,5;2,1\n1,5;2,2\n", ".", r"'3,5' on line 2; numbers .* --decimal \.. For a comma use --decimal ,"),
    ],
)
def test_a_decimal_sign_that_was_said_and_is_wrong_is_named(write, text, said, words):
    """In place of the advice to say it, also of one column or one cell that has the other one."""
    with pytest.raises(TableError, match=words) as caught:
        read_table(write(text), decimal=said, keep_constant=True)
    assert "If numbers have" not in str(caught.value)
    path = write(text.replace(";2.", ";2").replace(";2,", ";2"))
    with pytest.raises(TableError, match=rf"column 'b' must be numeric, but is text, such as {words}"):
        match_columns(read_table(path, decimal=said, keep_constant=True), ["b"])
    with pytest.raises(TableError, match=words.replace(" on line 2", ".*")):
        read_table(write(text + "1;3\n2;4\n7;4\n"), decimal=said)


def test_text_is_no_wrong_decimal_sign(write):
    with pytest.raises(TableError, match="no numeric column") as caught:
        read_table(write("a;b\nx;y\nz;y\n"), decimal=",")
    assert "--decimal" not in str(caught.value)


@pytest.mark.parametrize("cell", ["inf", "oops"])
@pytest.mark.parametrize(("options", "others"), [({}, "--columns"), ({"needed": ["a"], "others": "say so"}, "say so")])
def test_a_cell_that_is_refused_has_every_way_out(write, cell, options, others):
    with pytest.raises(TableError, match=rf"found '{cell}'.*Correct the cell, count it as missing .*, or .*{others}"):
        read_table(write(f"a,b\n1,2\n{cell},3\n4,5\n6,7\n"), **options)


def test_a_refusal_of_unlike_numbers_has_the_way_out_of_the_caller(write):
    with pytest.raises(TableError, match="Write all numbers the same way, or say so"):
        read_table(write("a;b\n1,5;2.5\n2,5;3.5\n"), needed=["a", "b"], others="say so")


# --- commas and points in numbers


def test_decimal_commas_are_noted(write):
    table = read_table(write("a;b\n1,5;1.234,5\n2,25;10\n"))
    np.testing.assert_array_equal(table.values, [[1.5, 1234.5], [2.25, 10]])
    assert any("decimal comma, such as '1,5' (line 2, column 'a')" in note for note in table.notes)


def test_decimal_commas_without_header(write):
    np.testing.assert_array_equal(read_table(write("1,5;2,7\n2,5;3,9\n")).values, [[1.5, 2.7], [2.5, 3.9]])


def test_one_column_with_decimal_commas(write):
    np.testing.assert_array_equal(read_table(write("x\n1,5\n2,7\n3,9\n")).values[:, 0], [1.5, 2.7, 3.9])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('a,b\n"1,234",2\n"5,678",3\n', [1234, 5678]),
        ("a;b\n1,234,567;2\n5,678;3\n", [1234567, 5678]),
        ("a;b\n1,234.5;2\n5,678;3\n", [1234.5, 5678]),
        ("a;b\n1,234;2.5\n5,678;3.25\n", [1234, 5678]),
        ("a;b\n1 234;2\n5'678;3\n", [1234, 5678]),
        ("a;b\n1\u202f234,5;2\n5\u00a0678,0;3\n", [1234.5, 5678]),
    ],
)
def test_thousands_separators(write, text, values):
    np.testing.assert_array_equal(read_table(write(text)).values[:, 0], values)


@pytest.mark.parametrize(("given", "values"), [({"decimal": ","}, [1.234, 5.678]), ({"thousands": ","}, [1234, 5678])])
def test_a_comma_that_may_be_either_is_not_guessed(write, given, values):
    path = write("a;b\n1,234;2\n5,678;3\n")
    with pytest.raises(TableError, match=r"the comma in '1,234' \(line 2, column 'a'\) is ambiguous\. Use"):
        read_table(path)
    np.testing.assert_array_equal(read_table(path, **given).values[:, 0], values)


def test_a_point_beside_decimal_commas_is_not_guessed(write):
    path = write("a;b\n1,5;1.234\n2,5;5.678\n")
    with pytest.raises(TableError, match=r"so the point in '1\.234' \(line 2, column 'b'\) is ambiguous"):
        read_table(path)
    np.testing.assert_array_equal(read_table(path, decimal=",").values[:, 1], [1234, 5678])


@pytest.mark.parametrize(
    ("text", "said", "value"),
    [
        ("a;b\n1,234;2\n5,678;3\n", {"decimal": "."}, 1234),
        ("a;b\n1.234;2\n5.678;3\n", {"decimal": "."}, 1.234),
        ("a;b\n1.234;2\n5.678;3\n", {"thousands": "."}, 1234),
        ("a;b\n1.234;2\n5.678;3\n", {"decimal": ","}, 1234),
        ("a;b\n1,234;2\n5,678;3\n", {"decimal": ",", "thousands": "."}, 1.234),
    ],
)
def test_one_sign_that_is_said_says_the_other_one(write, text, said, value):
    table = read_table(write(text), **said)
    assert table.values[0, 0] == value
    assert table.separators == ((".", ",") if ("," in text) == (value > 2) else (",", "."))


def test_a_point_that_is_said_refuses_decimal_commas(write):
    with pytest.raises(TableError, match=r"column 'a' is text, such as '1,5' on line 2"):
        read_table(write("a;b\n1,5;2\n2,5;3\n"), columns=["a"], decimal=".")


_COMMA, _GROUPED_COMMA = Separators(","), Separators(",", ".")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a;b\n1,5;2\n2,5;3\n", _COMMA),
        ("a;b\n1,5;1.234,5\n2,5;3\n", _GROUPED_COMMA),
        ("a;b\n1,234.5;2\n2.5;3\n", Separators(".", ",")),
        ("a;b\n1.5;2\n2.5;3\n", POINT),
        ("a;b\n1;2\n2.5;3\n", POINT),
        ("a;b\n1;u.v\n2;3\n", NOTHING_SHOWN),
        ("a;b\n1.250;u.v\n2;2.5 m\n", NOTHING_SHOWN),
        ("a;b\n1;2\n2;3\n", NOTHING_SHOWN),
    ],
)
def test_what_a_table_shows_of_its_separators(write, text, shown):
    found = []
    read_table(write(text), shown=found)
    assert found == [shown]


@pytest.mark.parametrize(
    ("numbers", "earlier", "values", "note"),
    [
        (["3,415", "2,125"], _COMMA, [3.415, 2.125], "decimal comma, as in the fit, such as '3,415'"),
        (["3,415", "1.250"], _GROUPED_COMMA, [3.415, 1250], "decimal comma, as in the fit"),
        (
            ["1.250", "2.500"],
            _GROUPED_COMMA,
            [1250, 2500],
            "'1.250' (line 2, column 'a') was read as 1250, as in the fit",
        ),
        (["−1.250", "2"], _GROUPED_COMMA, [-1250, 2], "was read as −1250, as in the fit"),
        (["1,5", "1.250"], _GROUPED_COMMA, [1.5, 1250], "'1.250' (line 3, column 'a') was read as 1250, as in the fit"),
        (
            ["3,415", "2,125"],
            POINT,
            [3415, 2125],
            "such as in '3,415' (line 2, column 'a'): numbers of the fitted table",
        ),
        (["2.5", "1.250"], _COMMA, [2.5, 1.25], "decimal point, such as '2.5' (line 2, column 'a'), unlike those"),
        (["2.5", "1,250"], _COMMA, [2.5, 1250], "decimal point, such as '2.5'"),
        (["3,415", "2,125"], Separators(".", ","), [3415, 2125], "thousands"),
        (["3,5", "2,125"], Separators(".", ","), [3.5, 2.125], "unlike those of the fit"),
        (["3", "4"], _COMMA, [3, 4], ""),
    ],
)
def test_an_earlier_table_says_what_numbers_leave_open(write, numbers, earlier, values, note):
    """What the numbers show themselves goes before, with a note."""
    table = read_table(write("a;b\n" + "".join(f"{number};{i}\n" for i, number in enumerate(numbers))), earlier=earlier)
    assert table.values[:, 0].tolist() == values
    assert any(note in each for each in table.notes) or not note


def test_a_point_after_a_fit_with_decimal_commas_is_not_guessed(write):
    path = write("a;b\n1.234;2\n5.678;3\n")
    words = (
        r"fitted table have a decimal ',', so the point in '1\.234' \(line 2, column 'a'\) is ambiguous.* --decimal \."
    )
    with pytest.raises(TableError, match=words):
        read_table(path, earlier=_COMMA)
    assert read_table(path, earlier=_COMMA, decimal=".").values[0, 0] == 1.234
    assert read_table(path, earlier=_COMMA, decimal=",").values[0, 0] == 1234


def test_points_between_commas_are_not_thousands_because_of_the_fit(write):
    """A program that has decimal commas seldom parts cells by commas."""
    with pytest.raises(TableError, match=r"'1\.500' \(line 2, column 'a'\) is ambiguous"):
        read_table(write("a,b\n1.500,2.125\n3.250,1.001\n"), earlier=_GROUPED_COMMA)
    table = read_table(write("a,b\n1.500,2.12\n3.250,1.001\n"), earlier=_GROUPED_COMMA)
    assert table.values[:, 0].tolist() == [1.5, 3.25]


def test_decimal_comma_and_point_together_are_refused(write):
    with pytest.raises(TableError, match=r"'1,5' .* has a decimal comma, but '2\.5' .* has not"):
        read_table(write("a;b\n1,5;2.5\n2,5;3.5\n"))


# --- refusals


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", r"is empty: expected a line of column names", id="empty"),
        pytest.param("\ufeff \n\n", r"is empty", id="blank"),
        pytest.param(",,\n,,\n", r"is empty", id="delimiters only"),
        pytest.param("a,b,c\n", r"has a header and no rows: .* below line 1", id="header only"),
        pytest.param("a,b\nx,y\nz,w\n", r"no numeric column that varies: found 'a': text", id="no numbers"),
        pytest.param("a,b\n1,2\n1,2\n", r"no numeric column that varies: found 'a': constant", id="constant"),
        pytest.param("a,b\n1,2\n3\n", r"line 3: expected 2 cells as on line 1, found 1", id="short row"),
        pytest.param("a,b\n1,2\n3,4,5\n6,7\n", r"line 3: expected 2 cells as on line 1, found 3", id="long row"),
        pytest.param(
            "a,b\n1,2\n3,four\n5,6\n",
            r"line 3, column 'b': expected a number, found 'four' \(1 such cell of 3\).*with --missing",
            id="one text cell",
        ),
        pytest.param("a,b\n1,2\n3,-inf\n", r"line 3, column 'b': expected a finite .*'-inf'", id="infinite"),
        pytest.param("a,b\n1,2\n3,1e999\n", r"line 3, column 'b': expected a finite .*'1e999'", id="overflow"),
        pytest.param("a,b\n1_0,2\n3_0,4\n5,6\n7,8\n9,1\n", r"column 'a'.*found '1_0'", id="underscores"),
        pytest.param('a,b\n1,2\n"3,4\n5,6\n', r"line 3: a quotation mark opens here", id="open quote"),
        pytest.param(b"a,b\n1,2\0\n", r"NUL bytes.*utf-16-le", id="nul"),
        pytest.param("a,b\n1,2\n".encode("utf-16-le"), r"UTF-16 without a byte order mark", id="utf-16 without mark"),
        pytest.param(b"\xd0\xcf\x11\xe0rest", r"old Excel workbook", id="xls"),
        pytest.param(b"\x89HDF\r\n", r"an HDF5 file", id="hdf5"),
        pytest.param(b'[{"a": 1}, {"a": 2}]', r"JSON. Write it as CSV", id="json"),
        pytest.param(b"<table><tr><td>1</td></tr></table>\n", r"HTML or XML, whatever .* as .xlsx or CSV", id="html"),
        pytest.param(
            b"a b {'weight': 3}\nb c {'weight': 1}\n",
            r"write_edgelist does. Write it with data=\['weight'\]",
            id="networkx",
        ),
        pytest.param(b"ARROW1", r"an Arrow file", id="arrow"),
        pytest.param(b"\x80\x04\x95rest", r"a Python pickle, which is never opened", id="pickle"),
        pytest.param(b"\x1f\x8bnot really", r"a damaged gzip file", id="damaged gzip"),
    ],
)
def test_refused_with_a_reason(write, content, message):
    path = write(content)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert "table.csv" in str(caught.value)


@pytest.mark.parametrize("name", ["{x}", "[x]", "{x_1}_[m]"])
def test_brackets_in_names_are_no_json(write, name):
    assert read_table(write(f"{name},y\n1,2\n3,4\n")).names == (name, "y")


@pytest.mark.parametrize(
    ("member", "message"), [("xl/workbook.xml", "Excel workbook.*as CSV"), ("a.csv", "a zip archive. Unpack it")]
)
def test_workbooks_and_archives_are_told_apart(write, member, message):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, "x")
    with pytest.raises(TableError, match=message):
        read_table(write(buffer.getvalue(), "table.xlsx"))


def test_missing_file_names_its_neighbour(write):
    path = write(PLAIN, "wine.csv")
    with pytest.raises(TableError, match=r"no file .*wines\.csv \(did you mean 'wine\.csv'\?\)"):
        read_table(path.with_name("wines.csv"))
    with pytest.raises(TableError, match="is a folder"):
        read_table(path.parent)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": ["hieght"]}, r"no column 'hieght' \(did you mean 'height'\?\)\. Its columns are 'name', 'height'"),
        ({"columns": ["name"]}, r"column 'name' is text, such as 'Ann' on line 2"),
        ({"delimiter": "::"}, r"delimiter must be one ASCII character"),
        ({"encoding": "utf-99"}, r"unknown encoding 'utf-99'"),
        ({"decimal": "x"}, r"decimal must be"),
        ({"delimiter": ";"}, r"no numeric column .* use --delimiter"),
    ],
)
def test_wrong_options_are_refused(write, given, message):
    with pytest.raises(TableError, match=message):
        read_table(write(PLAIN), **given)


def test_wrong_encoding_says_where(write):
    with pytest.raises(TableError, match=r"line 3: not utf-8"):
        read_table(write("a,b\n1,2\né,3\n", encoding="latin-1"), encoding="utf-8")


# --- new data for a fitted model


def test_matching_by_name(write):
    new = read_table(write("extra,weight,height,name\n1,50,1.5,Di\n2,50,1.75,Ed\n"))
    assert "weight" not in new.names  # it does not vary here, but the model knows it
    table = match_columns(new, ["height", "weight"])
    assert table.names == ("height", "weight")
    np.testing.assert_array_equal(table.values, [[1.5, 50], [1.75, 50]])
    assert table.dropped["extra"] == "not in the model"
    assert "weight" not in table.dropped
    assert any("Left out, because the model does not use them: 'extra'" in note for note in table.notes)


def test_matching_by_position(write):
    new = read_table(write("Di,1.5,50\nEd,1.75,60\n"))
    table = match_columns(new, ["height", "weight"])
    np.testing.assert_array_equal(table.values, [[1.5, 50], [1.75, 60]])
    assert any("matched by position" in note for note in table.notes)
    table = match_columns(read_table(write(PLAIN)), ["column 1", "column 2"])
    np.testing.assert_array_equal(table.values, VALUES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "Height,weight\n1,2\n3,5\n",
            r"'height' is missing \(did you mean 'Height'\?\). Its numeric columns are",
        ),
        (
            "height,weight\nlow,2\nhigh,5\n",
            r"column 'height' must be numeric, but is text, such as 'low' on line 2",
        ),
        ("1,2,3\n4,5,6\n", r"expected the columns 'height', 'weight', but 'height', 'weight' are missing"),
    ],
)
def test_matching_refuses(write, text, message):
    with pytest.raises(TableError, match=message):
        match_columns(read_table(write(text)), ["height", "weight"])


@pytest.mark.parametrize("below", ["Source: own", "Source: own\n\n* per head", '"Source: us, 1975"'])
def test_texts_below_a_table_are_left_out(write, below):
    table = read_table(write(f"a,b\n1,2\n3,4\n5,6\n\n{below}\n"))
    assert table.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert list(table.lines) == [2, 3, 4]
    assert any(note.startswith("Left out below the table: 'Source: ") for note in table.notes)


def test_years_beside_texts_are_names(write):
    """As the World Bank writes: rows of numbers below would otherwise be no reason for a header."""
    text = "Country,Code,1960,1961,1962\nAruba,ABW,4.8,4.7,4.5\nChad,TCD,6.2,6.3,\nPeru,PER,6.9,6.8,6.7\n"
    table = read_table(write(text))
    assert table.names == ("1960", "1961", "1962")
    assert len(table.values) == 3
    assert "Line 1 was read as names, because it holds years. If it is a row, use --header False." in table.notes
    assert not read_table(write(text), header=False).has_header
    for first in ("a,b,1960,1961,1965", "a,b,1960,1960,1960", "a,b,1960,1961,7.5"):
        assert not read_table(write(text.replace("Country,Code,1960,1961,1962", first))).has_header
    cohorts = "a,2001,2002,2003\nb,1999,2000,2001\nc,2004,2005,2006\n"
    assert len(read_table(write(cohorts)).values) == 3


def test_commas_in_a_later_text_below_a_table_part_no_cells(write):
    table = read_table(write("a,b,c\n1,2,3\n4,5,7\n7,8,8\n9,8,1\nSource: own\nper 100,000\n"))
    assert len(table.values) == 4
    assert "Left out below the table: 'Source: own' on line 6 and 1 more." in table.notes


@pytest.mark.parametrize(
    ("text", "line"), [("a,b\n1,2\nx\n3,4\n", 3), ("a,b\n1,2\n3\n", 3), ("a,b\n1,2\nx\n3\n5,6\n7,8\n", 3)]
)
def test_short_lines_inside_a_table_are_no_notes(write, text, line):
    with pytest.raises(TableError, match=f"line {line}: expected 2 cells as on line 1, found 1.*no row, remove it"):
        read_table(write(text))


def test_missing_columns_are_named_before_text(write):
    new = read_table(write("a,b\n1,yes\n2,maybe\n3,no\n"), keep_constant=True)
    with pytest.raises(TableError, match="expected the columns 'a', 'b', 'c', but 'c' is missing"):
        match_columns(new, ["a", "b", "c"])
    with pytest.raises(TableError, match="column 'b' must be numeric, but is text"):
        match_columns(new, ["a", "b"])


# --- NumPy files


def test_npy(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([[1, 2, 3], [4, 5, 3]], dtype=np.int32))
    table = read_table(path)
    assert table.names == ("column 1", "column 2")
    assert table.dropped == {"column 3": "constant, always 3"}
    assert not table.has_header
    np.save(path, np.array([("u", 1.5), ("v", np.nan), ("w", 2)], dtype=[("who", "U3"), ("x", "f4")]))
    table = read_table(path)
    assert table.names == ("x",)
    assert table.row_labels == ("u", "v", "w")
    assert np.isnan(table.values[1, 0])


def test_npz(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(3.0) ** 2, b=np.array(["x", "y", "z"]), c=np.array([True, False, True]))
    table = read_table(path)
    assert table.names == ("a", "c")
    assert table.has_header
    np.testing.assert_array_equal(table.values, [[0, 1], [1, 0], [4, 1]])


@pytest.mark.parametrize(
    ("missing", "hole"), [(("inf",), np.inf), (("-Inf",), -np.inf), (("-9",), -9.0), (("1e400", "x"), np.inf)]
)
def test_numbers_of_arrays_can_be_missing(tmp_path, missing, hole):
    path = tmp_path / "x.npy"
    np.save(path, np.array([[1.0, 2.0], [3.0, hole], [5.0, 7.0]]))
    np.testing.assert_array_equal(read_table(path, missing=missing).values, [[1, 2], [3, np.nan], [5, 7]])


def test_whole_numbers_of_arrays_can_be_missing(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.array([[2**53 + 1, 1], [-9, 2]]))
    assert read_table(path, missing=["-9"], text=lambda names: names[:1]).text == {"column 1": (str(2**53 + 1), "")}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2, 2)), r"arrays with one or two axes .* found array float64 \(2, 2, 2\)"),
        (np.float64(3), r"found array float64 \(\)"),
        (np.zeros((0, 3)), r"the same number of rows"),
        (np.array([1 + 2j, 3]), r"must hold real numbers or text, found complex128"),
        (
            np.array([[1.0, 2.0], [3.0, np.inf]]),
            r"row 2, column 'column 2': expected a finite number, found inf",
        ),
        (np.array([{}, {}], dtype=object), r"Object arrays are not read"),
    ],
)
def test_npy_refusals(tmp_path, array, message):
    path = tmp_path / "x.npy"
    np.save(path, array)
    with pytest.raises(TableError, match=message):
        read_table(path)


def test_npz_of_unequal_lengths_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(4))
    with pytest.raises(TableError, match=r"found a float64 \(3,\), b float64 \(4,\)"):
        read_table(path)


# --- properties

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64)


@pytest.mark.thorough
@given(
    st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=2, max_size=8, unique_by=lambda r: r[0]),
    st.sampled_from([",", ";", "\t", "|"]),
    st.booleans(),
)
def test_numbers_come_back_exactly(tmp_path_factory, rows, delimiter, header):
    lines = [delimiter.join(map(repr, row)) for row in rows]
    path = tmp_path_factory.mktemp("table") / "x.csv"
    path.write_text("\n".join(["alpha" + delimiter + "beta" + delimiter + "gamma"] * header + lines) + "\n")
    expected = np.array(rows)
    varies = ~np.all(expected == expected[0], axis=0)
    table = read_table(path)
    np.testing.assert_array_equal(table.values, expected[:, varies])
    assert table.has_header == header


@given(st.binary(max_size=300))
def test_any_bytes_give_a_table_or_a_table_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bytes") / "x.csv"
    path.write_bytes(content)
    try:
        table = read_table(path)
    except TableError:
        return
    assert np.all(np.isfinite(table.values) | np.isnan(table.values))
    assert table.values.shape == (len(table.row_labels), len(table.names))


@given(st.text(alphabet="ab1290#.,;|-+e\"\n\r\t '−?", max_size=120))
def test_any_text_gives_a_table_or_a_table_error(tmp_path_factory, content):
    test_any_bytes_give_a_table_or_a_table_error.hypothesis.inner_test(tmp_path_factory, content.encode())
