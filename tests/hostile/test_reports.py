"""HTML reports show what comes from a file as text, whatever it is."""

import re
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from geodax.app import main
from geodax.app.report import drawing, plots
from geodax.app.report.html import Report
from geodax.diagnostics.findings import Finding
from tests.hostile.pages import Page

ROOT = Path(__file__).resolve().parents[2]
NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onload='x",
    "</td></table><h1>x",
    "<!-- x",
    "]]>",
    "<svg/onload=x>",
]
NAMES += [
    "&lt;b&gt;",
    "`<i>`",
    "javascript:x",
    "a\0b\x1b",
    "\u202ex",
    "$x^$",
    "$\\frac{",
    "</title><script>",
    "<?php x ?>",
    "\ud800",
    "</style>",
]

words = st.one_of(
    st.sampled_from(NAMES), st.text(max_size=30), st.lists(st.sampled_from(NAMES), max_size=3).map("".join)
)


@hypothesis.settings(max_examples=100)
@hypothesis.given(title=words, word=words, other=words, severity=st.sampled_from(["fine", "note", "warning", "severe"]))
def test_every_part_of_a_report_escapes(title, word, other, severity):
    """All text that a model can hand over, in each place where it can go."""
    report = Report(title, subtitle=word)
    report.section(word)
    report.subsection(other)
    report.text(word, other)
    report.items([word, other])
    report.code(word)
    report.callout(severity, word, other)
    report.warnings([Finding("note", word, other, word)], fine=other)
    report.table([[word, 1.0, other], [other, float("nan"), word]], [word, other, word], other)
    page = Page(report.html())
    assert page.faults == []
    plain = " ".join(word.replace("`", "").split())
    if plain and plain.isascii() and plain.isprintable():
        assert plain in " ".join(page.text.replace("\u00a0", " ").split())


@pytest.mark.parametrize("name", ["$x^$", "<script>x</script>", '"><img src=x>', "]]>&"])
def test_names_in_figures_are_text(name):
    """In a title, an axis, tick labels, a legend: neither markup nor mathematics."""
    figure, axes = drawing.grid(1, height=1.5)
    axes[0].plot([0, 1], [0, 1], label=name)
    axes[0].set_title(name)
    axes[0].set_xlabel(name)
    axes[0].set_yticks([0, 1], [name, name])
    axes[0].legend()
    report = Report("x")
    report.figure(figure, name)
    report.figure(plots.trace_plot({name: np.random.default_rng(0).standard_normal((2, 9))}), name)
    page = Page(report.html())
    assert page.faults == []
    assert page.text.count(name) >= 5


def test_no_other_module_writes_markup():
    """Reports of all models are made by `Report`; a tag elsewhere would go round its escaping."""
    tag = re.compile(r"</?(?:div|span|table|t[rdh]|p|h[1-6]|a|svg|html|body|script|img|ul|li|b|code|pre)\b[^\n]*>")
    own = {ROOT / "geodax" / "app" / "report" / name for name in ("html.py", "svg.py")}
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "geodax").rglob("*.py"))
        if path not in own
        for line in path.read_text(encoding="utf-8").splitlines()
        if tag.search(line) and ">>>" not in line
    ]
    assert found == []


ODD = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "$x^$", "'a&lt;", "`</td>`", "<!-- x"]
_FEW = ["--num-warmup", "30", "--num-samples", "30", "--num-chains", "2", "--seed", "0", "--no-progress"]


def _rows(names, rows):
    import csv
    import io

    stream = io.StringIO()
    csv.writer(stream).writerows([names, *rows])
    return stream.getvalue()


def _tables():
    """For each kind of run: words of the command, and a table with odd names of columns, classes, people."""
    generator = np.random.default_rng(0)
    x = np.round(generator.standard_normal((24, 5)), 3)
    x[:, 1] += x[:, 0]
    kinds = [ODD[i % 3] for i in range(24)]
    a, b, c, d, e = ODD[:5]
    labelled = _rows([a, b, c, d, "label"], [[*row[:4], k] for row, k in zip(x, kinds, strict=True)])
    times = [[20 * i, f"p{i % 5}", f"p{(i + 1) % 5}", ODD[i % 3], ODD[(i + 1) % 3]] for i in range(200)]
    edges = [[ODD[i], ODD[j]] for i in range(6) for j in range(i) if (i + j) % 3]
    ratings = [[f"{ODD[i % 5]}{i % 7}", f"{ODD[i % 4]}{i % 3}", i % 5] for i in range(60)]
    return {
        "pca": (["--n-components", "1"], labelled),
        "eigenmodel": (["--rank", "1"], _rows(["from", "to"], edges)),
        "network": (["--window", "200", "--n-states", "2", "--rank", "1"], _rows(["time", "i", "j", "a", "b"], times)),
        "unit-network": (["--target", d, "--n-hidden", "2"], _rows([a, b, c, d], x[:, :4].tolist())),
        "cca": (["--group", "label", "--first-view", f"{a},{b}"], labelled),
        "classifier": (["--target", "label", "--widths", "4"], labelled),
        "regressor": (["--target", d, "--widths", "4"], _rows([a, b, c, d, e], x.tolist())),
        "factorization": (["--rank", "1", "--user", a, "--item", b, "--rating", c], _rows([a, b, c], ratings)),
    }


@pytest.mark.slow
@pytest.mark.relaxed
@pytest.mark.parametrize("kind", sorted(_tables()))
def test_reports_of_every_kind_show_names_as_text(kind, tmp_path, capsys):
    """A whole run of each kind, on a file whose own name is odd as well."""
    options, table = _tables()[kind]
    path = tmp_path / "<img src=x onerror=alert(3)> $a^$.csv"
    path.write_text(table, encoding="utf-8")
    assert main(["fit", kind, str(path), "--out", str(tmp_path / "run"), *options, *_FEW]) == 0, capsys.readouterr().err
    assert main(["report", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    page = Page((tmp_path / "run" / "report.html").read_text(encoding="utf-8"))
    assert page.faults == []
    assert "<img src=x onerror=alert(3)>" in page.text
    assert any(name in page.text for name in ODD)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, "run"])
