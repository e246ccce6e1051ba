"""A report as one self-contained HTML file: no network, no script, figures as inline SVG.

    report = Report("Bayesian PCA of wine.csv")
    report.section("Scales")
    report.text("The first `scale` is clearly above the noise.")
    report.table([["1", "2.1 [1.9, 2.3]"]], ["component", "scale"], caption="Scales of the components.")
    report.figure(interval_plot(draws), caption="Medians and intervals.")
    report.write("report.html")

All arguments are plain text: the template escapes them, and text between backquotes becomes code.
The page follows the reader's light or dark setting and can be printed.
"""

import functools
import io
import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import jinja2
from markupsafe import Markup, escape

from geodax._files import replaced
from geodax.app.report.advice import with_each_advice_once
from geodax.app.report.drawing import is_wide, narrowed
from geodax.app.report.numbers import rounded
from geodax.app.report.page import STYLE, THEME
from geodax.diagnostics.findings import Finding

Severity = Literal["fine", "note", "warning", "severe"]

_SIGNS = {"fine": "✓", "note": "i", "warning": "!", "severe": "✕"}
_ENLARGED = 1.5  # largest number of pixels of a point on the page


class Report:
    """A page that is written from top to bottom; the sections make the table of contents."""

    def __init__(self, title: str, *, subtitle: str = ""):
        """Begin a page with a title and a line below it."""
        self._title = title
        self._subtitle = subtitle
        self._blocks: list[tuple[str, dict[str, Any]]] = []
        self._sections: list[str] = []

    def section(self, title: str) -> None:
        """Begin a section and add it to the table of contents."""
        self._sections.append(title)
        self._add("section", title=title, number=len(self._sections))

    def subsection(self, title: str) -> None:
        """Write a smaller heading."""
        self._add("subsection", title=title)

    def text(self, *paragraphs: str) -> None:
        """Write paragraphs of plain text; text between backquotes becomes code."""
        for paragraph in paragraphs:
            self._add("text", text=paragraph)

    def items(self, lines: Iterable[str]) -> None:
        """Write a bulleted list of plain text, as in :meth:`text`."""
        self._add("items", lines=list(lines))

    def code(self, text: str) -> None:
        """Write unchanged lines in a fixed-width font, such as a command or a formula."""
        self._add("code", text=_printable(text, kept="\n\t"))

    def callout(self, severity: Severity, title: str, *paragraphs: str) -> None:
        """Write a highlighted box, whose colour and sign show the severity."""
        words = {"severity": severity, "sign": _SIGNS[severity], "word": severity.capitalize()}
        self._add("callout", title=title, paragraphs=paragraphs, **words)

    def warnings(self, findings: Sequence[Finding], *, fine: str = "No problem was found.") -> None:
        """Write a box for every finding, with its advice, once if several have it; ``fine`` if there are none."""
        if not findings:
            self.callout("fine", fine)
        for finding in with_each_advice_once(findings):
            self.callout(finding.severity, f"{finding.title}.", finding.detail, f"What to do: {finding.advice}")

    def table(
        self, rows: Sequence[Sequence[object]], header: Sequence[str], caption: str, *, most_rows: int = 60
    ) -> None:
        """Write a table; the first column names the rows, floats are rounded to four digits.

        If there are more rows than ``most_rows``, a line says how many were left out. Raises ValueError if a row has
        another number of cells than the header.
        """
        for row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"Report.table: expected {len(header)} cells per row, as in the header, found "
                    f"{len(row)} in {list(row)!r:.80}. Pad the row with empty strings."
                )
        shown = [[rounded(x, 4) if isinstance(x, float) else str(x) for x in row] for row in rows[:most_rows]]
        self._add(
            "table",
            number=self._count("table") + 1,
            header=header,
            rows=shown,
            words=[i == 0 or any(_reads_as_text(row[i]) for row in shown) for i in range(len(header))],
            is_long=any(len(cell) > 24 for row in shown for cell in row[:1]),
            left_out=len(rows) - len(shown),
            caption=caption,
        )

    def figure(self, figure: Any, caption: str) -> None:
        """Write a matplotlib figure; one that is too wide for a phone is drawn a second time for narrow pages.

        The figure has the style of :mod:`geodax.app.report.drawing`; the call changes its size and layout. The caption
        says what it shows and how to read it, and is its alternative text.
        """
        number, words = self._count("figure") + 1, _printable(caption)
        pictures = [svg(figure, f"{number}", words, kind="wide" if is_wide(figure) else "")]
        if is_wide(figure):
            pictures.append(svg(narrowed(figure), f"{number} narrow", words, kind="narrow"))
        self._add("figure", number=number, svgs=pictures, caption=caption)

    def html(self) -> str:
        """Return the page as an HTML document."""
        return _template().render(
            title=_printable(self._title),
            subtitle=self._subtitle,
            sections=self._sections,
            blocks=self._blocks,
            style=Markup(STYLE),
        )

    def write(self, path: str | Path) -> None:
        """Write the page atomically."""
        with replaced(Path(path)) as partial:
            partial.write_text(self.html(), encoding="utf-8")

    def _add(self, kind: str, **block: Any) -> None:
        self._blocks.append((kind, block))

    def _count(self, kind: str) -> int:
        return sum(kind == other for other, _ in self._blocks)


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("geodax.app", "report")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["inline"] = _inline
    return environment.get_template("page.html")


def _printable(text: str, kept: str = "") -> str:
    return "".join(c if c in kept or unicodedata.category(c) not in ("Cc", "Cs") else " " for c in text)


def _inline(text: str) -> Markup:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_printable(text))))
    # no line break within an interval or before a percent sign
    text = re.sub(r"(?<=\d) (\[[−\d.]+,) ([−\d.]+\])", "\u00a0\\1\u00a0\\2", text)
    return Markup(re.sub(r"(?<=[\d\]]) (?=%)|(?<=±) (?=\d)|(?<=&[gl]t;) (?=\d)", "\u00a0", text))


def _reads_as_text(cell: str) -> bool:
    return re.search(r"[^\W\d_]{3}", cell) is not None


def _with_two_decimals(attribute: re.Match) -> str:
    numbers = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(attribute[2].split()))
    return f'{attribute[1]}="{numbers}"'


def svg(figure: Any, name: str, alt: str, *, kind: str = "") -> Markup:
    """Convert a matplotlib figure to an SVG element without prologue and unused identifiers.

    Its name is unique on the page; ``kind`` is its class in the style sheet: ``wide``, ``narrow``, or empty.
    """
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if "$" in text.get_text():  # a dollar sign in a name is not math
            text.set_parse_math(False)
    stream = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": f"figure {name}"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # the reader's fonts draw the text, so glyphs missing here do not matter
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(?<= )(d|x|y)="([^"]*)"', _with_two_decimals, text)
    text = re.sub(r'(?<=style=")[^"]*', lambda m: m[0].replace(": ", ":").replace("; ", ";"), text)
    text = re.sub(r"font-family:[^;\"]*;", "", text)  # the page's font is used
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    text = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", text)
    for index, (drawn, _, _) in enumerate(THEME):
        text = re.sub(rf"(?<=[:\s]){drawn}(?=[;\"])", f"var(--plot-{index})", text, flags=re.IGNORECASE)
    text = re.sub(r">\s*\n\s*<", ">\n<", text)
    opening, rest = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    width = re.search(r'width="([\d.]+)pt"', opening)
    style = f' style="max-width:{float(width[1]) * _ENLARGED:.0f}px"' if width else ""
    style = f' class="{kind}"{style}' if kind else style
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{box[0] if box else ""} role="img" aria-label="{escape(alt)}"{style}>{rest.strip()}'
    )
