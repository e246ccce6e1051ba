"""Text that spreadsheets take for formulas."""

import csv

from geodax.app.run_folder.formulas import about_formulas, formulas_as_text, is_formula

FORMULAS = ["=1+1", '=HYPERLINK("a,b")', "+49 1", "-", "-x", "-1+2", "@user", "\tx", "\rx", "\nx", "\uff1d1", "-infx"]
PLAIN = ["", "a", "-1", "+1", "-1.5e-07", "-.5", "5.", "-inf", "nan", "x=1", " =1", 'a"=1']


def test_formulas(tmp_path):
    assert all(map(is_formula, FORMULAS))
    assert not any(map(is_formula, PLAIN))
    path = tmp_path / "x.csv"
    rows = [["label", "=name"], *([cell, "1"] for cell in FORMULAS + PLAIN), ["x" * 200_000, "-2"]]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    assert f"formulas: {len(FORMULAS) + 1}, such as '=name'" in about_formulas(path)[0]
    limit = csv.field_size_limit()
    formulas_as_text(path)
    assert about_formulas(path) == ()
    assert csv.field_size_limit(10**6) == limit
    with open(path, newline="", encoding="utf-8") as file:
        found = list(csv.reader(file))
    csv.field_size_limit(limit)
    assert found == [[f"'{cell}" if is_formula(cell) else cell for cell in row] for row in rows]
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
