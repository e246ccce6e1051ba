"""The page: text stays text, figures are inside, nothing is fetched, a failed write leaves no trace."""

import dataclasses
import html.parser
import io
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from rich.console import Console

from geodax.app.commands.terminal import say, show
from geodax.app.network.report import _about_eigenvalues
from geodax.app.report import drawing, plots
from geodax.app.report.calibration import reliability_plot
from geodax.app.report.html import Report, svg
from geodax.app.report.numbers import rounded, with_error, with_interval
from geodax.app.report.page import SERIES, THEME
from geodax.app.report.parts import RunFacts, end, misfits
from geodax.app.run_folder.actions import RunResult
from geodax.diagnostics.findings import Finding, check, summarize
from geodax.predict.scores import reliability

EVIL = "<script>alert(1)</script>\"'&$x_1$\x00\x1b`b`"


class Elements(html.parser.HTMLParser):
    """Tags, identifiers, attributes and text of a page; every element must be closed where it was opened."""

    VOID = frozenset({"meta", "br", "img", "hr"})

    def __init__(self, page):
        super().__init__()
        self.tags, self.ids, self.attributes, self.texts, self.open = [], [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)
        self.ids.extend(value for name, value in attrs if name == "id")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def draws(num_chains=4, num_draws=60, **shapes):
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal((num_chains, num_draws, *shape)) for name, shape in shapes.items()}


def assert_stands_alone(page):
    elements = Elements(page)
    assert not {"script", "link", "iframe", "img", "object", "embed"} & set(elements.tags)
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    targets = [value for name, value in elements.attributes if name in ("href", "xlink:href", "src")]
    assert all(target.startswith("#") for target in targets)
    assert {target[1:] for target in targets} <= set(elements.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(elements.ids)
    assert len(set(elements.ids)) == len(elements.ids)
    assert "url(http" not in page
    assert "@import" not in page
    return elements


def test_everything_passed_in_is_escaped():
    report = Report(EVIL, subtitle=EVIL)
    report.section(EVIL)
    report.subsection(EVIL)
    report.text(EVIL)
    report.items([EVIL])
    report.code(EVIL)
    report.callout("note", EVIL, EVIL)
    report.warnings([Finding("severe", EVIL, EVIL, EVIL)])
    report.table([[EVIL, EVIL]], [EVIL, EVIL], caption=EVIL)
    report.figure(plots.interval_plot({EVIL: draws(x=())["x"]}), EVIL)
    page = report.html()
    elements = assert_stands_alone(page)
    assert "<script" not in page
    assert not set("\x00\x1b") & set(page)
    assert sum("<script>alert(1)</script>" in text for text in elements.texts) >= 15


def test_contents_name_every_section_and_lead_to_it():
    report = Report("Title")
    report.section("First & foremost")
    report.section("Second")
    elements = assert_stands_alone(report.html())
    assert {"section-1", "section-2"} <= set(elements.ids)
    assert elements.texts.count("First & foremost") == elements.texts.count("Second") == 2


def test_words_between_backquotes_are_code():
    report = Report("t")
    report.text("the `scale` of <b>")
    assert "the <code>scale</code> of &lt;b&gt;" in report.html()


def test_findings_appear_in_words_with_advice():
    report = Report("t")
    findings = check({"x": draws(num_draws=60, x=())["x"] + 5 * np.arange(4)[:, None]})
    report.warnings(findings)
    page = report.html()
    assert findings
    for finding in findings:
        assert finding.title in page
    assert "What to do: " in page
    assert 'class="callout severe"' in page
    report = Report("t")
    report.warnings([])
    assert "No problem was found" in report.html()


def test_an_advice_that_several_findings_have_is_printed_once(capsys):
    """In the page and in the terminal; later findings name the one that has it."""
    titles = ("Chains that disagree", "Few effective draws", "Chains that disagree")
    findings = [Finding("warning", title, f"Found {i}.", "Draw more.") for i, title in enumerate(titles)]
    findings.append(Finding("note", "One chain only", "Found 3.", "Run 4 chains."))
    report = Report("t")
    report.warnings(findings)
    summary = summarize({"x": draws(num_draws=60, x=())["x"]})
    show(RunResult(Path("run"), "pca", summary, findings, (), 1.0, 1.0, ("x",)))
    for text in (report.html(), capsys.readouterr().out):
        assert text.count("Draw more.") == text.count("Run 4 chains.") == 1
        assert all(f"Found {i}." in text for i in range(4))
        assert len(re.findall(r"As for (\"|&#34;)Chains that disagree", text)) == 2


def test_long_tables_are_cut_and_say_so():
    report = Report("t")
    report.table([[str(i), 1.23456] for i in range(100)], ["row", "value"], "c", most_rows=10)
    page = report.html()
    assert page.count("<tr>") == 11
    assert "and 90 more rows" in page
    assert "1.235" in page


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="2 cells per row"):
        Report("t").table([["a"]], ["x", "y"], "c")


def test_write_replaces_the_file_at_once(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    report = Report("t")
    report.write(path)
    assert path.read_text(encoding="utf-8") == report.html()
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        Report("t").write(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_figures_take_the_colours_of_the_page():
    report = Report("t")
    report.figure(plots.trace_plot(draws(x=())), "c")
    page = report.html()
    assert "var(--plot-1)" in page
    figure = page[page.index("<figure>") :]
    assert not [drawn for drawn, _, _ in THEME if drawn in figure.lower()]
    for i in range(len(THEME)):
        assert page.count(f"--plot-{i}:") == 3


def test_the_same_figure_makes_the_same_page():
    def page():
        report = Report("t")
        report.figure(plots.rank_plot(draws(x=(2,))), "c")
        return report.html()

    assert page() == page()


PLOTS = [
    plots.trace_plot,
    plots.rank_plot,
    plots.interval_plot,
]


@pytest.mark.thorough
@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize(
    "values",
    [
        draws(x=()),
        draws(num_chains=1, x=()),
        draws(num_chains=1, num_draws=1, x=()),
        draws(num_draws=3, x=(2, 2)),
        draws(num_chains=12, x=()),
        {"x": np.zeros((2, 20))},
        {"x": np.full((2, 20), np.nan)},
        {"x": np.where(np.arange(40).reshape(2, 20) == 7, np.inf, 1.0)},
        {"x": np.ones((2, 20), dtype=np.float32), "y": np.zeros((2, 20), dtype=bool)},
    ],
    ids=["usual", "one chain", "one draw", "matrix", "12 chains", "constant", "nan", "inf", "dtypes"],
)
def test_figures_can_be_drawn(plot, values):
    report = Report("t")
    report.figure(plot(values), "c")
    assert_stands_alone(report.html())


@pytest.mark.thorough
@pytest.mark.parametrize("plot", PLOTS)
def test_figures_of_many_variables_are_bounded(plot):
    report = Report("t")
    report.figure(plot(draws(num_draws=2000, x=(300, 10))), "c")
    assert len(report.html()) < 600_000


@pytest.mark.parametrize("energy", [np.zeros((2, 50)), np.full((1, 5), np.nan), np.ones((3, 1))])
def test_energies_of_any_kind_are_drawn(energy):
    report = Report("t")
    report.figure(plots.energy_plot(energy), "c")
    assert_stands_alone(report.html())


@pytest.mark.thorough
def test_rank_lines_of_agreeing_chains_stay_within_their_bounds():
    """In about 95 of 100 runs of independent draws all chains stay within; in a shifted one they do not."""
    generator = np.random.default_rng(1)

    def is_within(values):
        ax = plots.rank_plot({"x": values}).axes[0]
        *lines, low, high, _ = ax.get_lines()[: 4 + 3]
        bound = high.get_ydata()[0]
        assert low.get_ydata()[0] == -bound
        return max(np.abs(line.get_ydata()).max() for line in lines) <= bound

    inside = [is_within(generator.standard_normal((4, 200))) for _ in range(60)]
    assert np.mean(inside) >= 0.85
    assert not is_within(generator.standard_normal((4, 200)) + 0.6 * np.arange(4)[:, None])


def test_names_are_shortened_on_one_line():
    assert drawing.short("a\nb\x00 c") == "a b c"
    cut = drawing.short("x" * 100, 20)
    assert len(cut) <= 20
    assert "…" in cut


def contrast(one, other):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_read_on_their_pages():
    for drawn, light, dark in THEME:
        assert contrast(light, "#ffffff") >= 3
        assert contrast(dark, "#14181e") >= 3
        assert contrast(drawn, "#ffffff") >= 2.5
        assert contrast(drawn, "#14181e") >= 2.5
    assert list(SERIES) == [drawn for drawn, _, _ in THEME[1:]]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1.2345, 1.1, 1.37), "1.23 [1.10, 1.37]"),
        ((0.5, -0.5, 1.6), "0.5 [−0.5, 1.6]"),
        ((1024.4, 636.1, 1394.0), "1,024 [636 to 1,394]"),
        ((0.0, -0.001, 0.001), "0.0000 [−0.0010, 0.0010]"),
        ((float("nan"), 0.0, 1.0), "–"),
        ((2.0, 2.0, 2.0), "2.00 [2.00, 2.00]"),
        ((2.0003e8, 1.9999e8, 2.0007e8), "200,030,000 [199,990,000 to 200,070,000]"),
        ((23412.0, 22087.0, 24851.0), "23,412 [22,087 to 24,851]"),
    ],
)
def test_intervals_are_rounded_by_their_width(numbers, text):
    assert with_interval(*numbers) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (0.001234, "0.00123"),
        (-123.4, "−123"),
        (23412.0, "23,400"),
        (-2.34e7, "−23,400,000"),
        (2.34e12, "2.34e+12"),
        (1e-12, "1.00e−12"),
        (float("nan"), "–"),
    ],
)
def test_numbers_are_rounded(value, text):
    assert rounded(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.8642, 0.0312, "0.864 ± 0.031"),
        (-3.0, 0.5, "−3.00 ± 0.50"),
        (22013.0, 2979.0, "22,000 ± 3,000"),
        (0.5, 0.0, "0.500"),
        (1.1, 4.1e-17, "1.10"),
        (0.5, float("nan"), "0.500"),
        (float("inf"), float("nan"), "∞"),
    ],
)
def test_numbers_are_rounded_by_their_standard_errors(value, error, text):
    assert with_error(value, error) == text


def test_ticks_of_dates_and_years_and_black_texts():
    """A phone and a dark page show the same."""
    figure = drawing.new_figure(6.0, 2.0)
    for i, (low, high, expected) in enumerate(((19000, 19700, "2023-01-01"), (19783.0, 19783.5, "2024-03-01 12:00"))):
        ax = drawing.styled(figure.add_subplot(1, 2, i + 1))
        ax.plot([low, high], [0, 1])
        drawing.as_dates(ax)
        ax.set_title("black")
        drawing.finish(figure).canvas.draw()
        assert expected in [label.get_text() for label in ax.get_xticklabels()]
    assert {str(text.get_color()) for text in figure.findobj(Text)} & {"black", "k"} == set()
    ax = drawing.styled(drawing.new_figure(3.0, 2.0).add_subplot())
    ax.plot([1940, 2020], [900, 12000])
    ax.figure.canvas.draw()
    assert "1960" in [label.get_text() for label in ax.get_xticklabels()]
    assert "10,000" in [label.get_text() for label in ax.get_yticklabels()]


def test_ticks_of_axes_have_commas():
    figure = drawing.new_figure()
    ax = drawing.styled(figure.add_subplot())
    ax.plot([57_800, 231_545], [-1.5e6, 1.5e6])
    page = svg(figure, "1", "salaries")
    for text in (">100,000<", ">1,000,000<", ">−1,000,000<"):
        assert text in page


def test_figures_can_be_read_on_a_phone():
    """At 400 pixels, less the margins of the page, all text of the version that is shown has 11 pixels."""
    report = Report("t")
    report.figure(plots.trace_plot(draws(x=(4,))), "c")
    report.figure(plots.interval_plot(draws(x=(4,))), "c")
    report.figure(reliability_plot(reliability(np.full((9, 2), 0.5), np.zeros(9, int))), "c")
    page = report.html()
    pictures = re.findall(r"<svg [^>]*>.*?</svg>", page, re.DOTALL)
    wide = [picture for picture in pictures if 'class="wide"' in picture]
    shown = [picture for picture in pictures if 'class="wide"' not in picture]
    assert (len(wide), len(shown)) == (2, 3)
    for picture in shown:
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', picture)[1])
        sizes = [float(size) for size in re.findall(r"font(?:-size)?:([\d.]+)px", picture)]
        assert sizes
        assert min(sizes) * 371 / width >= 11
    columns = [len(set(re.findall(r'<text style="[^"]*" x="([\d.]+)"[^>]*>\s*x\[', p))) for p in (wide[0], shown[0])]
    assert columns == [2, 1]


def test_captions_of_tables_do_not_scroll_with_them():
    report = Report("t")
    report.table([["a", 1.0]], ["x", "y"], "what it shows")
    page = report.html()
    assert page.index("what it shows") < page.index('<div class="table"')


def test_results_come_first_on_the_terminal(capsys):
    summary = summarize({"noise": 23412.3 + np.random.default_rng(0).standard_normal((2, 200))}, {})
    findings = [Finding("warning", "A problem", "Detail.", "Advice.")]
    result = RunResult(Path("run"), "pca", summary, findings, ("a note",), 1.0, 1.0, ("noise",), ("a remark",))
    show(dataclasses.replace(result, results=("R² 0.9",)))
    printed = capsys.readouterr().out
    places = [printed.index(text) for text in ("R² 0.9", "23,412", "a remark", "warning: A problem")]
    assert places == sorted(places)


def test_a_long_summary_is_cut_on_the_terminal(capsys):
    summary = summarize({"noise": np.random.default_rng(0).standard_normal((2, 200, 45))}, {})
    show(RunResult(Path("run"), "pca", summary, [], (), 1.0, 1.0, ("noise",)))
    printed = capsys.readouterr().out
    assert len(re.findall(r"noise\[\d+\]", printed)) == 40
    assert f"5 more rows are in {Path('run') / 'summary.csv'}." in printed


def test_terminals_wrap_lines_between_words():
    line = "the chains have not reached the same distribution, see /a/folder/with/a/name-that-is-longer-than-a-line"
    terminal = Console(file=io.StringIO(), force_terminal=True, width=40)
    say(line, to=terminal)
    lines = terminal.file.getvalue().splitlines()
    assert len(lines) >= 3
    assert " ".join(text.strip() for text in lines).split() == line.split()
    pipe = Console(file=io.StringIO(), width=40)
    say(line, to=pipe)
    assert pipe.file.getvalue() == line + "\n"


def test_numbers_far_from_zero_are_told_apart(capsys):
    """On the terminal and in the table of what was judged: 3 or 4 digits of all of them were the same."""
    draws = {"fit": 1.2345e6 + 100 * np.random.default_rng(0).standard_normal((2, 200))}
    stats = {"diverging": np.zeros((2, 200), bool)}
    summary = summarize(draws, stats)
    show(RunResult(Path("run"), "pca", summary, [], (), 1.0, 1.0, ("fit",)))
    low, high = re.search(r"fit +1,234,\d+ +(\S+) to (\S+)", capsys.readouterr().out).groups()
    assert abs(float(low.replace(",", "")) - summary.rows[0].quantile_5) <= 10
    assert abs(float(high.replace(",", "")) - summary.rows[0].quantile_95) <= 10
    report = Report("title")
    config = {"versions": {}, "file": "", "sha256": "", "created": ""}
    end(report, draws, stats, RunFacts([], config, "command"))
    row = re.search(r"<tr>\s*<t[dh][^>]*>fit</t[dh]>.*?</tr>", report.html(), re.DOTALL)[0]
    mean, _, low, high = (float(cell.replace(",", "")) for cell in re.findall(r">([\d.,]+)</td>", row)[:4])
    assert low < mean < high


def test_what_eigenvalues_show_is_said():
    """Catches signs that are confused, and a claim where the interval includes zero."""
    draws = np.random.default_rng(0).standard_normal((2, 200, 3)) + np.array([9.0, 0.0, -9.0])
    first, second, third = _about_eigenvalues(draws).split("Eigenvalue ")[1:]
    assert "the same sign connect more" in first
    assert "not clearly different from zero" in second
    assert "opposite signs connect more" in third


def test_data_far_from_all_replicates_are_named():
    """Not those within them, nor those just beyond the last of a few."""
    drawn = np.random.default_rng(0).normal(100.0, 3.0, 400)
    checks = {"total": (130.0, drawn), "spread": (drawn[3], drawn), "largest": (drawn.max() + 0.1, drawn)}
    (found,) = misfits(checks, "Use a higher --rank.")
    assert found.severity == "note"
    assert found.detail.startswith("total: 130.0 in the data, 99.8 [")
    assert not re.search("spread|largest", found.detail)
    assert found.advice == "Use a higher --rank."
    assert misfits({"constant": (3.0, np.full(400, 3.0))}, "") == []
    skewed = np.random.default_rng(1).pareto(1.5, 400)
    assert skewed.max() > skewed.mean() + 4 * skewed.std()
    assert misfits({"long tail": (skewed.max(), skewed)}, "") == []
