"""Columns of a table as inputs of a network: categories, dates, codes, and what is said about them."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from geodax.app.families import FAMILIES, run_kind
from geodax.app.mlp.about import write_data
from geodax.app.mlp.inputs import OTHER, found_levels, indicators, parts_of_dates, waves
from geodax.app.mlp.labelled import load_labelled
from geodax.app.mlp.new_rows import read_new
from geodax.app.mlp.results import judged_rows
from geodax.app.mlp.run import _separating
from geodax.app.report.html import Report
from geodax.app.run_folder.files import save_data
from geodax.app.tables.codes import codes
from geodax.data.errors import TableError


@pytest.mark.parametrize(
    ("cells", "levels"),
    [
        (["a"] * 20 + ["b"] * 20, ["a", "b"]),
        (["a"] * 20 + ["b"] * 17 + ["c", "d", "d"], ["a", "b", OTHER]),
        (["a", "a", "b", "b", "b", ""], ["a", "b"]),
        ([f"name {i}" for i in range(40)], []),
        ([f"name {i}" for i in range(21)] + ["a"] * 19, []),  # less than half of the rows
        (["a"] * 40, []),
        ([""] * 40, []),
    ],
)
def test_text_is_categories_where_its_values_repeat(cells, levels):
    assert found_levels(np.array(cells)) == levels


def test_values_of_many_rows_are_categories_however_many():
    assert found_levels(np.repeat(np.arange(300).astype(str), 30)) == []
    assert len(found_levels(np.repeat(np.arange(300).astype(str), 200))) == 300
    found = found_levels(np.repeat(np.arange(2_000).astype(str), 100))
    assert len(found) == 251  # 50 million cells of 200,000 rows
    assert found[-1] == OTHER


def test_unknown_values_are_others_or_missing():
    labels = {"x": np.array(["a", "q", ""]), "y": np.array(["u", "q", "v"])}
    found = indicators(labels, [("x", "a"), ("x", OTHER), ("y", "u"), ("y", "v")], 3)
    nan = np.nan
    np.testing.assert_array_equal(found, [[1, 0, 1, 0], [0, 1, nan, nan], [nan, nan, 0, 1]])


def _days(start, periods, frequency):
    times = pd.date_range(start, periods=periods, freq=frequency)
    return ((times - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(float)


@pytest.mark.parametrize(
    ("days", "parts"),
    [
        (_days("2020-01-01", 900, "D"), ["year", "week"]),
        (_days("2020-01-01", 40, "MS"), ["year"]),
        (_days("2020-01-01", 40, "D"), ["week"]),
        (_days("2020-01-01", 200, "h"), ["day"]),
        (_days("2020-01-01", 40, "YS"), []),
        (_days("2020-01-01", 200, "7D"), ["year"]),
        (np.linspace(0.2, 0.9, 30), ["day"]),  # times
        (np.array([5.0, np.nan]), []),
    ],
)
def test_dates_have_the_periods_that_they_cover(days, parts):
    found = parts_of_dates({"when": days})
    assert found == [("when", part) for part in parts]
    columns = waves({"when": days}, found, len(days))
    assert columns.shape == (len(days), 2 * len(parts))
    np.testing.assert_allclose(columns[:, ::2] ** 2 + columns[:, 1::2] ** 2, 1.0)


def test_integers_that_look_like_codes_are_found():
    values = np.array([[1, 10115, 3, 20240131, 2.5], [2, 80331, 4, 20240229, 1]])
    found = codes(["rooms", "zip", "paid", "day", "id"], values)
    assert found == {"zip": ("codes", "codes"), "day": ("dates", "dates; write 20240131 as 2024-01-31")}


@pytest.mark.parametrize(
    ("numbers", "are_groups"),
    [
        (np.repeat([5, 6, 7], 4), True),
        (np.repeat([308, 309, 310, *range(330, 350, 2)], 4), True),
        (np.repeat(np.arange(0, 120, 10), 4), False),
        (np.repeat([1, 10, 100], 4), False),
        (np.repeat([308, 309, 310, *range(350, 330, -2)], 4), False),
    ],
)
def test_numbers_of_groups_of_adjacent_rows_are_found(numbers, are_groups):
    found = codes(["place"], numbers[:, None].astype(float))
    assert found == ({"place": ("groups", "numbers of groups of 4 adjacent rows")} if are_groups else {})


_SIZES = np.array([3, 5, 1, 4, 4, 2, 6, 3, 3, 5, 2, 4])


@pytest.mark.parametrize(
    ("of_groups", "is_told"),
    [
        (np.arange(12) * 5 % 12, True),  # such as the size of a class
        (np.arange(12) ** 2, False),  # computed from the column by which the table is sorted
        (np.zeros(12), False),
    ],
)
@pytest.mark.parametrize("out_of_order", [(), (7, 8)])
def test_numbers_of_groups_of_several_sizes_have_a_column_of_the_groups(of_groups, is_told, out_of_order):
    """Catches the column of numbers itself as one of the groups, where it is not ascending."""
    numbers = np.array([*range(180, 1200, 100), 1900])
    numbers[list(out_of_order)] = numbers[list(out_of_order[::-1])]
    columns = np.column_stack([numbers, of_groups]).astype(float)
    found = codes(["class", "size"], np.repeat(columns, _SIZES, axis=0))
    assert found == ({"class": ("groups", "numbers of groups of 1 to 6 adjacent rows")} if is_told else {})
    shuffled = np.random.default_rng(0).permutation(_SIZES.sum())
    assert codes(["class", "size"], np.repeat(columns, _SIZES, axis=0)[shuffled]) == {}


@pytest.fixture
def table(tmp_path):
    """Dates, a category with a rare value and holes, names, a customer's number, and a row without target."""
    generator = np.random.default_rng(0)
    days = pd.date_range("2022-01-01", periods=90, freq="9D").strftime("%d.%m.%Y")
    city = generator.choice(["Bari", "Köln", ""], 90)
    city[5] = "Oslo"
    lines = [
        f"{when},{place},n{i},{i * 7},{'NA' if i % 4 else i * i % 11},{'' if i == 2 else i % 5}"
        for i, (when, place) in enumerate(zip(days, city, strict=True))
    ]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["when,city,name,customer_id,size,y", *lines]) + "\n")
    return path


_OPTIONS = FAMILIES["regressor"].options(target=("y",))


def _read(path, columns=None, **options):
    return run_kind("regressor").read(path, dataclasses.replace(_OPTIONS, **options), columns)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_groups_are_held_out_together(tmp_path, fraction):
    """Rows of 30 patients, of one to five visits in any order: nobody is in both parts, and about a fifth is held out."""
    random = np.random.default_rng(5)
    patient = random.permutation(np.repeat(np.arange(30), 1 + np.arange(30) % 5))
    path, rows = tmp_path / "visits.csv", random.standard_normal((len(patient), 2))
    lines = [f"{x:.6f},p{who},{y:.6f}" for who, (x, y) in zip(patient, rows, strict=True)]
    path.write_text("\n".join(["x,patient,y", *lines]) + "\n")
    data, facts = _read(path, groups="patient", test_fraction=fraction)
    held, fitted = (set(patient[rows]) for rows in (data.is_test, ~data.is_test))
    assert not held & fitted
    assert data.names == ("x",)
    assert abs(data.is_test.sum() - fraction * len(patient)) <= 2.5
    told = f"{data.is_test.sum()} of 90 rows, those of {len(held)} of 30 groups by 'patient', are held out"
    assert any(told in note for note in facts["notes"])
    save_data(tmp_path / "data.npz", data)
    judged = judged_rows(None, load_labelled(tmp_path / "data.npz"))
    assert judged.words == f"{data.is_test.sum()} held-out rows of {len(held)} groups"
    assert f"only {judged.words} could" in judged.caution
    assert [len(set(judged.groups[patient[data.is_test] == who])) for who in held] == [1] * len(held)
    assert not _read(path, groups="patient", test_fraction=0.0)[0].is_test.any()
    assert _read(path, groups="patient", test_fraction=0.01)[0].is_test.any()
    with pytest.raises(TableError, match="--groups 'y' is also the target"):
        _read(path, groups="y")
    path.write_text(path.read_text().replace("p7", ""))
    with pytest.raises(TableError, match=r"--groups 'patient' has no group in row \d+ \(3 such rows\)"):
        _read(path, groups="patient")


def test_the_latest_rows_are_held_out(tmp_path):
    """Three rows of each month, in any order: no month is in both parts."""
    month = np.random.default_rng(6).permutation(np.repeat(np.arange(20), 3))
    path = tmp_path / "series.csv"
    lines = [f"{2001 + m // 12}-{1 + m % 12:02d},{i * i % 7},{i * i % 11}" for i, m in enumerate(month)]
    path.write_text("\n".join(["month,x,y", *lines]) + "\n")
    hint = "--time month holds out the latest rows"
    data, facts = _read(path, time="month")
    assert (data.is_test == (month >= 16)).all()
    assert {"month", "x"} <= set(data.names)
    assert "12 of 60 rows, the latest by 'month', are held out and predicted in the report." in facts["notes"]
    assert not any(hint in note for note in facts["notes"])
    assert any(hint in note for note in _read(path)[1]["notes"])
    assert not any(hint in note for note in _read(path, test_fraction=0.0)[1]["notes"])
    alone = _read(path, time="month", drop=("month",))[0]
    assert alone.names == ("x",)
    assert (alone.is_test == data.is_test).all()
    with pytest.raises(TableError, match="--time 'y' is also the target"):
        _read(path, time="y")
    with pytest.raises(TableError, match="Use one of them"):
        _read(path, time="month", groups="x")
    path.write_text(path.read_text().replace("2001-03", ""))
    with pytest.raises(TableError, match=r"--time 'month' has no time in row \d+ \(3 such rows\)"):
        _read(path, time="month")


@pytest.mark.parametrize("option", ["groups", "time"])
def test_rows_that_calibrate_are_chosen_as_held_out_rows_are(tmp_path, option):
    """Whole groups, or the latest rows: else conformal intervals are those of known groups and of the past."""
    random = np.random.default_rng(9)
    which, path = random.permutation(np.repeat(np.arange(30), 1 + np.arange(30) % 5)), tmp_path / "table.csv"
    rows = zip(which, random.standard_normal((len(which), 2)), strict=True)
    path.write_text("\n".join(["x,which,y", *(f"{x:.6f},{who},{y:.6f}" for who, (x, y) in rows)]) + "\n")
    data, facts = _read(path, **{option: "which"}, calibration_fraction=0.25)
    save_data(tmp_path / "data.npz", data)
    kind, kept = run_kind("regressor"), load_labelled(tmp_path / "data.npz")
    options = dataclasses.replace(_OPTIONS, calibration_fraction=0.25)
    model = kind.estimator({"options": dataclasses.asdict(options), "seed": 0})
    *_, (inputs, _) = model.prepare(*kind.arrays(kept))
    rows = np.isin(data.train[0][:, 0], inputs[:, 0])
    calibrating, fitted = (which[~data.is_test][each] for each in (rows, ~rows))
    assert abs(len(calibrating) - 0.25 * 72) <= 4.5
    assert not set(calibrating) & set(fitted)
    if option == "time":
        assert fitted.max() < calibrating.min() <= calibrating.max() < which[data.is_test].min()
    what = {"groups": "whole groups", "time": "the latest"}[option]
    told = f"{len(calibrating)} of the other {(~data.is_test).sum()} rows, {what}, calibrate"
    assert any(told in note for note in facts["notes"])
    assert not len(_read(path, **{option: "which"})[0].calibrates)
    with pytest.raises(ValueError, match=r"calibration.fraction.0.999 leaves \d of \d+ rows to fit"):
        _read(path, **{option: "which"}, calibration_fraction=0.999)


@pytest.mark.parametrize(("copies", "values", "is_told"), [(40, 10**6, True), (1, 10**6, False), (40, 3, False)])
def test_held_out_copies_of_fitted_rows_are_counted(tmp_path, copies, values, is_told):
    """Not a few of them, and not where rows of few values are equal by chance."""
    random = np.random.default_rng(7)
    rows = [f"{random.integers(values) or '-0.0'},{random.integers(3)}," for _ in range(200)]
    path = tmp_path / "copies.csv"
    path.write_text("\n".join(["x,y,z", *rows, *rows[:copies]]) + "\n")
    data, facts = _read(path)
    told = [note for note in facts["notes"] if "of a fitted row" in note]
    fitted = {tuple(row) for row in np.column_stack(data.train).tolist()}
    number = sum(tuple(row) in fitted for row in np.column_stack(data.test).tolist())
    assert len(told) == is_told
    assert all(note.startswith(f"{number} of {len(data.test[1])} held-out rows have") for note in told)


@pytest.mark.parametrize(("size", "is_told"), [(1, False), (4, True), (20, False)])
def test_numbers_of_adjacent_rows_are_pointed_out(tmp_path, size, is_told):
    path, lines = tmp_path / "choices.csv", [f"{3 + i // size},{i * i % 7},{i * i % 11}" for i in range(40)]
    path.write_text("\n".join(["person,x,y", *lines]) + "\n")
    told = "'person' holds integers that look like numbers of groups of 4 adjacent rows; with --groups person whole"
    assert any(told in note for note in _read(path)[1]["notes"]) == is_told
    assert not any("adjacent" in note for note in _read(path, groups="person")[1]["notes"])


def test_inputs_of_a_table_and_what_is_said(table, tmp_path):
    data, facts = _read(table)
    waves = ["when (year sin)", "when (year cos)"]
    assert data.names == ("when", "customer_id", "size", *waves, "city=Bari", "city=Köln", "city=(other)")
    rows, cells = np.isnan(data.inputs).any(axis=1).sum(), np.isnan(data.inputs[:, [2, 5]]).sum(axis=0)
    for note in (
        "Read as numbers: 'when' (dates as days since 1970-01-01).",
        "Left out: 'name' (text whose values hardly repeat, like names).",
        "Categories: 'city' (3 with rare ones as (other)).",
        "The place of a date in a period is an input: 'when' (year).",
        "1 of 90 rows have no 'y' and are left out.",
    ):
        assert note in facts["notes"]
    assert any(
        "'customer_id' holds integers that look like codes; with --categories customer_id they are" in note
        for note in facts["notes"]
    )
    missing = next(note for note in facts["notes"] if "missing inputs" in note)
    assert missing.startswith(f"{rows} of 89 rows have missing inputs ('size' {cells[0]}, 'city' {cells[1]}).")
    assert "Whether 'size', 'city' are missing is an input too." in missing
    save_data(tmp_path / "data.npz", data)
    again = load_labelled(tmp_path / "data.npz")
    assert (again.dates, again.categories, again.names) == (data.dates, data.categories, data.names)
    assert again.days == data.days == ("when",)
    kept = dataclasses.replace(
        data, inputs=np.hstack([data.inputs, np.full((89, 1), 1999.0)]), names=(*data.names, "year")
    )
    kept.inputs[0, -1] = 2004.0
    report = Report("Data")
    write_data(report, kept, [])
    page = report.html()
    assert "2022-01-01" in page  # not 18,993
    assert ">1999<" in page  # not 1,999
    new = tmp_path / "new.csv"
    new.write_text("city,when,customer_id,size\nRome,01.01.2022,7,\n,13.06.2023,8,2\n")
    found, _ = read_new(new, again, are_classes=False)
    np.testing.assert_array_equal(found.values[0, -3:], [0, 0, 1])
    assert np.isnan(found.values[1, -3:]).all()
    assert any("'Rome'; they count as (other)" in note for note in found.notes)
    assert any("2 of 2 rows have missing inputs ('size' 1, 'city' 1);" in note for note in found.notes)


def test_signs_in_text_are_named_and_units_are_read(tmp_path):
    path = tmp_path / "table.csv"
    signs = ["a", "-", "b", "a"]
    path.write_text("x,c,w,y\n" + "".join(f"{k},{signs[k % 4]},{k % 7}.{k} kg,{k % 3}\n" for k in range(40)))
    data, facts = _read(path)
    assert data.names == ("x", "w", "c=-", "c=a", "c=b")
    assert "'-' is a category of 'c'. If it means a missing cell, use --missing=-." in facts["notes"]
    assert "Read as numbers: 'w' (without its kg)." in facts["notes"]


def test_an_input_with_two_units_is_left_out_with_a_reason(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,w,y\n" + "".join(f"{k},{k} {'lb' if k == 7 else 'kg'},{k % 3}\n" for k in range(40)))
    _, facts = _read(path)
    assert "Left out: 'w' (numbers with different units, '39 kg' and '7 lb': write all in one)." in facts["notes"]


def test_options_overrule_what_is_found(table):
    data, facts = _read(table, drop=("customer_id", "when"), test_fraction=0.0)
    assert data.names == ("size", "city=Bari", "city=Köln", "city=(other)")
    assert not any("customer_id" in note for note in facts["notes"])
    data, facts = _read(table, ("city", "size"))
    assert data.names == ("size", "city=Bari", "city=Köln", "city=(other)")
    assert not any(note.startswith("Left out") for note in facts["notes"])
    with pytest.raises(TableError, match=r"column 'name' is text whose values hardly repeat.*--categories NAME"):
        _read(table, ("name", "size"))


_NAMES = np.array(["ox", "ant", "elk"])


@pytest.mark.parametrize(
    ("given", "is_named"),
    [
        (lambda y, noise: y + 0.1 * noise, True),
        (lambda y, noise: np.where(np.arange(120) == 4, np.nan, y), True),
        (lambda y, noise: np.where(noise > 1, np.nan, y), False),  # missing in several classes
        (lambda y, noise: y + noise, False),
        (lambda y, noise: np.abs(y - 1), False),  # two values for three classes
        (lambda y, noise: _NAMES[y][:, None] == _NAMES, True),
        (lambda y, noise: _NAMES[np.where(noise > 2, 0, y)][:, None] == _NAMES, False),
        (lambda y, noise: np.eye(120), False),  # a category for each row
    ],
)
def test_columns_that_give_the_class_away_are_found(given, is_named):
    """Catches a note on honest inputs, and none on codes of the class."""
    generator = np.random.default_rng(0)
    y = np.arange(120) % 3
    column = np.asarray(given(y, generator.standard_normal(120)), float).reshape(120, -1)
    inputs = np.column_stack([y + generator.standard_normal(120), column])
    found = _separating(inputs, np.array(["a", "b", "c"])[y], ["x", *["given"] * column.shape[1]])
    assert found == ["given"] * is_named
