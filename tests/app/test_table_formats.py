"""Workbooks, Parquet files, the standard input, cells that are numbers in another form, and large tables."""

import datetime
import gzip
import io
import re
import signal
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from geodax.app.tables import cells, text_files
from geodax.app.tables.dates import dated
from geodax.app.tables.read import match_columns, read_table
from geodax.data.errors import TableError

_VALUES = np.round(np.random.default_rng(0).standard_normal((40, 3)), 9)  # workbooks have fewer digits than floats
_VALUES[3, 1] = np.nan


@pytest.fixture
def write(tmp_path):
    """Write a text and return its path."""

    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def _csv(names, rows):
    return "\n".join([names, *(",".join(map(str, row)) for row in rows)]) + "\n"


# --- forms of numbers


@pytest.mark.parametrize(
    ("found", "numbers", "form"),
    [
        (["71,2%", "45%", "3,05 %"], [71.2, 45, 3.05], "without its %"),
        (["$5", "-$1,250.50", "$ -7"], [5, -1250.5, -7], "without its $"),
        (["5 €", "−1.250,50€", "7,25 €"], [5, -1250.5, 7.25], "without its €"),
        (["£0.5", "£2", ""], [0.5, 2, np.nan], "without its £"),
        (["7.5 kg", "8 kg", "9.25kg"], [7.5, 8, 9.25], "without its kg"),
        (["5,850 sq ft", "70.5 sq ft", "NA"], [5850, 70.5, np.nan], "without its sq ft"),
        (["4 m²", "-5 m²", "6m²"], [4, -5, 6], "without its m²"),
        (["3 °C", "−4,5 °C", ""], [3, -4.5, np.nan], "without its °C"),
        (["CHF 1'200", "CHF 4.50", "CHF 7"], [1200, 4.5, 7], "without its CHF"),
        (["$0.6k", "$1.2k", "-$3k"], [0.6, 1.2, -3], "without its $ and k"),
        (["5,2e3 Hz", "4,1 Hz", "7 Hz"], [5200, 4.1, 7], "without its Hz"),
        (["true", "False", "NA"], [1, 0, np.nan], "true as 1, false as 0"),
        (["Yes", "no", "yes"], [1, 0, 1], "yes as 1, no as 0"),
        (["1970-01-02", "2026-11-25", "1969-12-31"], [1, 20782, -1], "dates as days since 1970-01-01"),
        (["1970-01-01T12:00", "1970-01-03 06:00:00.5Z", ""], [0.5, 2.25 + 0.5 / 86400, np.nan], "dates as days"),
    ],
)
def test_columns_of_one_form_are_numbers(write, found, numbers, form):
    table = read_table(write("name;x\n" + "".join(f"r{i};{cell}\n" for i, cell in enumerate(found))))
    assert table.names == ("x",)
    np.testing.assert_array_equal(table.values[:, 0], numbers)
    assert any(note.startswith(f"Read as numbers: 'x' ({form}") for note in table.notes)
    assert table.row_labels == ("r0", "r1", "r2")


@pytest.mark.parametrize(
    "found",
    [
        ["5%", "$5", "7"],
        ["5%", "6", "x%"],
        ["yes", "no", "maybe"],
        ["true", "yes", "no"],
        ["1 year", "2 years", "5 years"],
        ["7 kg", "900 g", "8 kg"],
        ["P001", "P002", "P003"],
        ["4-9", "10-9", "12-9"],
        ["5/5/2024", "6/5/2024", "7/5/2024"],
        ["<=50", ">50", "<=50"],
        ["2024-W04", "2024-W05", "2024-W06"],
        ["1st", "2nd", "3rd"],
    ],
)
def test_columns_of_several_forms_are_text(write, found):
    table = read_table(write(_csv("a,x", enumerate(found))), columns=["a"], text=["x"])
    assert table.text["x"] == tuple(found)
    assert "x" not in read_table(write(_csv("a,x", enumerate(found)))).names


@pytest.mark.parametrize(
    ("found", "example"),
    [
        (["7 kg", "900 g", "8 kg"], "'8 kg' and '900 g'"),
        (["$5", "€6", "€7"], "'$5' and '€7'"),
        (["5", "6 lb", "7 lb"], "'5' and '7 lb'"),
        (["1 a", "2 b", "3 c", "4 d"], None),  # flats, streets
        (["12 kg", "about 7 kg", "many"], None),
    ],
)
def test_numbers_with_different_units_are_called_so(write, found, example):
    """Catches the words that such a column is text, with a cell that is in order, and names to a network."""
    path = write(_csv("a,x,y", ((k, cell, k % 3) for k, cell in enumerate(4 * found))))
    reason = read_table(path).dropped["x"]
    assert reason == (f"numbers with different units, {example}: write all in one" if example else reason)
    assert reason.startswith("numbers with") == (example is not None)


def test_new_rows_have_the_form_that_they_are_written_in(write):
    """Not every cell has to have its sign in both files."""
    new = read_table(write("share,b\n71.2%,1\n70%,2\n"), needed=["share", "b"], keep_constant=True)
    np.testing.assert_array_equal(match_columns(new, ["share", "b"]).values, [[71.2, 1], [70, 2]])


def test_a_column_that_is_asked_for_as_text_has_no_form(write):
    table = read_table(write("a,kind\n1,yes\n2,no\n4,yes\n"), text=["kind"])
    assert table.text == {"kind": ("yes", "no", "yes")}
    assert not any("Read as numbers" in note for note in table.notes)


# --- other files


def test_a_workbook_is_read_as_its_sheet_is_written(tmp_path):
    """Numbers exactly; dates, truth values and text as in CSV; lines are rows of the sheet."""
    openpyxl = pytest.importorskip("openpyxl")
    book, path = openpyxl.Workbook(), tmp_path / "table.xlsx"
    book.active.append(["name", "x", "n", "day", "is"])
    book.active.append([])
    for i, x in enumerate(_VALUES[:, 0].tolist()):
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=i)
        book.active.append([f"r{i}", None if i == 3 else x, i * i, day, i % 2 == 0])
    book.create_sheet("second")
    book.save(path)
    table = read_table(path)
    assert table.names == ("x", "n", "day", "is")
    expected = _VALUES[:, 0].copy()
    expected[3] = np.nan
    np.testing.assert_array_equal(table.values[:, 0], expected)
    np.testing.assert_array_equal(table.values[:, 1:], [[i * i, i, i % 2 == 0] for i in range(40)])
    assert table.row_labels[:2] == ("r0", "r1")
    assert table.lines[0] == 3
    assert any("sheet 'Sheet' of the workbook was read" in note and "'second'" in note for note in table.notes)
    assert read_table(path, sheet="Sheet").names == table.names
    with pytest.raises(TableError, match=r"no sheet 'sheet' \(did you mean 'Sheet'\?\)"):
        read_table(path, sheet="sheet")
    book.create_sheet("about", 0).append(["Read this first"])
    book.save(path)
    behind = read_table(path)
    np.testing.assert_array_equal(behind.values, table.values)
    assert any("sheet 'Sheet' of the workbook was read. The others are 'about'" in note for note in behind.notes)
    book.active = book["Sheet"]
    book.active["C9"] = "oops"
    book.save(path)
    with pytest.raises(TableError, match="line 9, column 'n': expected a number, found 'oops'"):
        read_table(path)


def test_a_parquet_file_is_read_by_its_types(tmp_path):
    pytest.importorskip("pyarrow")

    path = tmp_path / "table.parquet"
    days = pd.Timestamp(1970, 1, 1) + pd.to_timedelta(np.arange(40) / 2, unit="D")
    kinds = ["a", None, "c", "d"] * 10
    pd.DataFrame(
        {"x": _VALUES[:, 1], "n": pd.array([2**53 + 1, None] * 20, "Int64"), "k": kinds, "t": days}
    ).to_parquet(path)
    table = read_table(path)
    assert table.names == ("x", "t")
    np.testing.assert_array_equal(table.values[:, 0], _VALUES[:, 1])
    np.testing.assert_array_equal(table.values[:, 1], np.arange(40) / 2)
    np.testing.assert_array_equal(table.set_aside["n"], [2.0**53, np.nan] * 20)
    assert table.text["k"][:3] == ("a", "", "c")
    assert table.row_labels == table.text["k"]
    frame = pd.DataFrame({"x": [1.0, np.inf, 2.0], "n": [2**53 + 1, 5, 7]})
    frame.to_parquet(path)
    assert read_table(path, columns=[], text=["n"]).text["n"] == (str(2**53 + 1), "5", "7")
    with pytest.raises(TableError, match="row 2, column 'x': expected a finite number, found inf"):
        read_table(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TableError, match="a damaged Parquet file"):
        read_table(path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"PK\x03\x04" + b"xl/workbook.xml", r"an Excel workbook. .* needs openpyxl, .* 'geodax\[excel\]'"),
        (b"PAR1xx", r"a Parquet file. .* needs pyarrow, .* 'geodax\[parquet\]'"),
    ],
)
def test_the_extra_for_a_file_is_named(write, monkeypatch, raw, message):
    monkeypatch.setattr("geodax.app.tables.frames.find_spec", lambda name: None)
    with pytest.raises(TableError, match=message):
        read_table(write(raw, "table.bin"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_standard_input_can_be_read_again(monkeypatch, pack):
    """As commands do that look at a table twice."""
    raw = pack(b"a,b\n1,2\n3,5\n")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
    text_files.read_standard_input.cache_clear()
    try:
        for _ in range(2):
            np.testing.assert_array_equal(read_table("-").values, [[1, 2], [3, 5]])
    finally:
        text_files.read_standard_input.cache_clear()


# --- large tables


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(cells, "_CHUNK", 64)


@pytest.mark.parametrize("late", ["oops", "inf", "1 234", "5%", "true", "12345678901234567890123"])
def test_a_cell_far_below_is_read_as_one_above(write, small_chunks, late):
    """Whether or not pandas has read the rows above as plain numbers."""
    rows = [(i, i * i % 7) for i in range(300)]
    low, high = [*rows, (300, late)], [(300, late), *rows]
    found = []
    for each in (low, high):
        try:
            values = read_table(write(_csv("a,b", each))).values
            found.append(values[np.argsort(values[:, 0])].tolist())
        except TableError as error:
            found.append(str(error).replace("line 302", "line 2"))
    assert found[0] == found[1]


def test_decimal_commas_far_below_count(write, small_chunks):
    rows = [f"{i};{i % 7}" for i in range(300)]
    table = read_table(write("\n".join(["a;b", *rows, "300;2,5", "301;3,125"])))
    assert table.values[-2:].tolist() == [[300, 2.5], [301, 3.125]]
    assert any("decimal comma, such as '2,5' (line 302, column 'b')" in note for note in table.notes)
    with pytest.raises(TableError, match=r"'2,5' \(line 302, .*'1\.75' \(line 303"):
        read_table(write("\n".join(["a;b", *rows, "300;2,5", "1.75;3"])))


def test_rows_keep_their_lines_in_every_chunk(write, small_chunks):
    """Empty rows and cells over two lines between them."""
    text = "a,b,c\n" + "".join(f'{i},"x\ny",{i * i}\n\n' if i % 5 == 0 else f"{i},z,{i * i}\n,,\n" for i in range(200))
    table = read_table(write(text))
    np.testing.assert_array_equal(table.values, [[i, i * i] for i in range(200)])
    lines = text.splitlines()
    assert [lines[line - 1].split(",")[0] for line in table.lines] == [str(i) for i in range(200)]
    assert table.text["b"][:2] == ("x\ny", "z")


@pytest.mark.thorough
def test_a_wide_table(write):
    """Its first lines alone are longer than what is looked at to find a layout."""
    values = np.random.default_rng(1).standard_normal((3, 10_000))
    text = _csv(",".join(f"gene{i}" for i in range(10_000)), values.tolist())
    np.testing.assert_array_equal(read_table(write(text)).values, values)


def test_a_large_table_is_not_held_as_text(write, monkeypatch):
    monkeypatch.setattr(cells, "_CHUNK", 2**13)
    values = np.random.default_rng(2).standard_normal((5_000, 20))
    path = write(_csv(",".join(map(str, "abcdefghijklmnopqrst")), values.tolist()))
    read_table(path)
    tracemalloc.start()
    try:
        table = read_table(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(table.values, values)
    assert peak < 3 * values.nbytes + 2**22  # and the lines and labels of the rows


@pytest.mark.parametrize("after", [0.02, 0.1, 0.2])
def test_reading_can_be_interrupted(write, after):
    path = write("a,b\n" + "1.25,2.5\n3.5,4.75\n" * 300_000)

    def interrupt(*_):
        raise KeyboardInterrupt

    def read_for_ever():
        while True:
            read_table(path)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        with pytest.raises(KeyboardInterrupt):
            read_for_ever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["31.12.2024", "1.1.2025"], [20088, 20089]),
        (["12/31/2024", "01/01/2025"], [20088, 20089]),
        (["31/12/2024 06:00", "01/01/2025 18:00"], [20088.25, 20089.75]),
        (["Dec 31, 2024", "Jan 1, 2025"], [20088, 20089]),
        (["2024/12/31", "2025/01/01"], [20088, 20089]),
        (["2024-12", "2025-01"], [20058, 20089]),
        (["Dec 2024", "Jan 2025"], [20058, 20089]),
        (["2024Q4", "2025-Q1", "q2 2025"], [19997, 20089, 20179]),
        (["6:00", "18:30"], [0.25, 18.5 / 24]),
        (["6:00 AM", "6:30 PM"], [0.25, 18.5 / 24]),
    ],
)
def test_dates_and_times_are_days(cells, numbers):
    found = dated(cells)
    assert found is not None
    np.testing.assert_allclose(found[0], numbers, rtol=1e-12)


def test_dates_that_can_mean_two_days_are_not_read(write):
    table = read_table(write("x;when\n1;01/02/2024\n2;03/04/2024\n"))
    assert table.dropped["when"].startswith("dates whose day and month cannot be told apart, such as '01/02/2024'")
    assert dated(["Chevy 1500", "Ford 20"]) is None
    assert dated(["1.2.3", "4.5.6"]) is None
    assert dated(["2009-10", "2010-11"]) is None  # seasons
    assert read_table(write("x,season\n" + "".join(f"{k},20{k}-{k + 1}\n" for k in range(10, 30)))).text
    assert read_table(write("x,part\n1,4711-01\n2,4711-02\n3,4711-99\n")).text


def test_a_cell_that_is_no_date_among_dates_is_named(write):
    """The column is read as dates, so the cell to correct is not the first one; few dates among words are words."""
    cells = ["01.02.2024", "13.02.2024", "31.13.2024", "14.02.2024"]
    path = write("x,when\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(cells)))
    expected = "line 4, column 'when': expected a date or time like '01.02.2024', found '31.13.2024' (1 such cell of 4)"
    with pytest.raises(TableError, match=re.escape(expected)):
        read_table(path)
    assert read_table(path, missing=("31.13.2024",)).dates == ("when",)
    words = write("x,when\n" + "".join(f"{k},{cell}\n" for k, cell in enumerate(["May 2024", *"abc"])))
    assert read_table(words).dropped["when"].startswith("text, such as 'May 2024'")


def test_dates_of_each_day_are_no_counter(write):
    table = read_table(write("id,when\n" + "".join(f"{k},2024-01-{k:02d}\n" for k in range(1, 12))))
    assert [note for note in table.notes if "counts the rows" in note] == [
        "Column 'id' counts the rows. To leave it out, name the other columns with --columns."
    ]


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (["12", "13", "(5)", "(8)", "(9)"], "'\\(5\\)' .3 such cells of 5"),
        (["12k", "1.2M", "300k"], "'12k' .3 such cells of 3"),
        (["900", "12k", "15k"], "'12k' .2 such cells of 3"),
        (["4-", "7-", "3"], "'4-' .2 such cells of 3"),
        (["<0.5", "<0.5", "0.7"], "'<0.5' .2 such cells of 3"),
        (["4*", "5", "6**"], "'4\\*' .2 such cells of 3"),
    ],
)
def test_numbers_with_an_open_sign_ask_the_user(write, cells, found):
    """They may be negative or unreliable, thousands or units: neither numbers nor categories without a word."""
    with pytest.raises(TableError, match=rf"expected a number, found {found}.*Write plain numbers, such as -12 for"):
        read_table(write(_csv("a,x", enumerate(cells))))


def test_exponents_are_no_units(write):
    table = read_table(write("a;x\n1;5.2e3\n2;−4.1e3\n3;7.3e3\n"))
    assert table.values[:, 1].tolist() == [5200, -4100, 7300]


def test_words_beside_numbers_with_a_unit_are_mistakes(write):
    path = write(_csv("a,x", enumerate(["7 kg", "8 kg", "9 kg", "unknown"])))
    with pytest.raises(TableError, match=r"line 5, column 'x': expected a number, found 'unknown' .1 such cell of 4"):
        read_table(path)
    table = read_table(path, missing=["unknown"])
    np.testing.assert_array_equal(table.values[:, 1], [7, 8, 9, np.nan])


@pytest.mark.parametrize(
    ("cells", "odd"),
    [(["2024-01-05", "2024-02-30", "2024-03-01"], "'2024-02-30'"), (["0:4", "0:1x", "0:15", "0:25", "0:35"], "'0:1x'")],
)
def test_dates_that_do_not_exist_are_no_missing_cells(write, cells, odd):
    with pytest.raises(TableError, match=rf"line 3, column 'x': expected a date or time like .*, found {odd}"):
        read_table(write(_csv("a,x", enumerate(cells))))


def test_times_whose_first_is_short_are_times(write):
    table = read_table(write(_csv("a,x", enumerate(["0:4", "0:15", "0:25"]))))
    np.testing.assert_allclose(table.values[:, 1] * 24 * 60, [4, 15, 25])


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (
            ["63.7%", "5%"],
            ["0.637", "0.05"],
            "'x' had the unit % in the fit and has none here: 0.637 counts as 0.637 %.",
        ),
        (
            ["0.637", "0.05"],
            ["63.7%", "5%"],
            "'x' has the unit % here, but had none in the fit: only the numbers count.",
        ),
        (["63.7%", "5%"], ["5%", ""], ""),
        (["yes", "no"], ["1", "0"], ""),
        (["yes", "no"], ["TRUE", "TRUE"], ""),
        (["5 kg", "6 kg"], ["5000 g", "6000 g"], TableError),
        (["2024-01-05", "2024-02-05"], ["45296", "45327"], TableError),
    ],
)
def test_units_of_the_fit_count(write, old, new, note):
    forms: dict[str, str] = {}
    read_table(write(_csv("a,x", enumerate(old))), forms=forms)
    again = {"earlier_forms": forms, "keep_constant": True, "needed": ["a", "x"]}
    path = write(_csv("a,x", enumerate(new)))
    if note is TableError:
        with pytest.raises(
            TableError, match=r"column 'x' was read as .* in the fit, found .*Write it as in the fitted"
        ):
            read_table(path, **again)
    else:
        found = [note for note in read_table(path, **again).notes if "the fit" in note]
        assert found == [f"Column {note}"] * bool(note)


@pytest.mark.parametrize(("first", "days"), [("31/12/2024", [20181, 20241]), ("12/31/2024", [20151, 20125])])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_order_of_day_and_month_is_that_of_the_fit(write, tmp_path, suffix, first, days):
    """Unless the table itself shows another one."""
    forms: dict[str, str] = {}
    order = "day first" if first.startswith("31") else "month first"
    fitted = read_table(write(_csv("a,x", enumerate([first, "02/02/2024"]))), forms=forms)
    assert f"Read as numbers: 'x' (dates as days since 1970-01-01, {order})." in fitted.notes
    again = {"earlier_forms": forms, "keep_constant": True, "needed": ["a", "x"]}

    def read(cells):
        path = write(_csv("a,x", enumerate(cells)))
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
            pd.read_csv(path).to_parquet(path := tmp_path / "new.parquet")
        return read_table(path, **again)

    assert read(["03/04/2025", "02/06/2025"]).values[:, 1].tolist() == days
    assert read(["2025-04-03", "2025-06-02"]).values[:, 1].tolist() == [20181, 20241]
    other = "12/31/2024" if order == "day first" else "31/12/2024"
    found = read([other, "02/02/2024"])
    assert found.values[:, 1].tolist() == [20088, 19755]
    assert any(f"; the fitted table had dates as days since 1970-01-01, {order}." in note for note in found.notes)
    with pytest.raises(TableError, match=r"as numbers with kg|as dates .* found numbers with"):
        read(["5 kg", "6 kg"])


def test_an_index_of_a_parquet_file_is_a_column_unless_it_counts_rows(tmp_path):
    pytest.importorskip("pyarrow")
    path, frame = tmp_path / "table.parquet", pd.DataFrame({"x": [1.5, 2.5, 4.5], "y": [3, 1, 2]})
    for index, names in [
        (pd.date_range("2020-01-01", periods=3, name="when"), ("when", "x", "y")),
        (pd.date_range("2020-01-01", periods=3), ("index", "x", "y")),
        (pd.MultiIndex.from_tuples([("a", 1), ("b", 2), ("b", 4)], names=["g", "t"]), ("t", "x", "y")),
        (pd.Index([7, 3, 9], name="id"), ("id", "x", "y")),
        (pd.Index([7, 3, 9]), ("x", "y")),
        (pd.RangeIndex(3), ("x", "y")),
    ]:
        frame.set_index(index).to_parquet(path)
        assert read_table(path).names == names
    frame.set_index(pd.Index(list("abc"), name="key")).to_parquet(path)
    assert read_table(path).row_labels == ("a", "b", "c")


def test_points_in_amounts_of_money_are_groups(write):
    """Nothing has three decimals of a euro; beside a decimal comma the point alone would be ambiguous."""
    table = read_table(write("price;share\n1.234 €;71,2%\n12.500 €;3,5%\n"))
    assert table.values.tolist() == [[1234, 71.2], [12500, 3.5]]
    table = read_table(write('price|share\n"$1,234"|1\n"$12,500"|2\n'))
    assert table.values[:, 0].tolist() == [1234, 12500]


def test_strings_of_a_parquet_file_are_numbers_only_with_a_form(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.parquet"
    pd.DataFrame({"a": [1, 2], "share": ["5%", "7%"], "zip": ["01067", "10115"]}).to_parquet(path)
    table = read_table(path)
    assert table.names == ("a", "share")
    assert table.text["zip"] == ("01067", "10115")
    assert read_table(path, text=["share"]).text["share"] == ("5%", "7%")


def test_missing_cells_of_many_columns_add_up(write):
    names = [f"c{i}" for i in range(15)]
    rows = [[str((i * (j + 1)) % 17) for j in range(15)] for i in range(20)]
    for j in range(15):
        rows[j][j] = ""
    table = read_table(write("\n".join(";".join(row) for row in [names, *rows])))
    note = next(note for note in table.notes if "cells are missing" in note)
    assert re.findall(r"'c\d+' (\d+)", note) == ["1"] * 12
    assert note.startswith("15 of 300 cells are missing")
    assert "and 3 in 3 other columns" in note
