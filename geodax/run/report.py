"""A report as one HTML file that stands alone: no network, no script, figures inside as SVG.

    report = Report("Bayesian PCA of wine.csv")
    report.section("Scales")
    report.text("The first `scale` is clearly above the noise.")
    report.table([["1", "2.1 [1.9, 2.3]"]], ["component", "scale"], caption="Scales of the components.")
    report.figure(interval_plot(draws), caption="Medians and intervals.")
    report.write("report.html")

Everything that is passed in is text: it is escaped, and two backquotes around a word make it code, no more.
The page follows the reader's light or dark setting and can be printed.
"""

import html
import io
import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from geodax._files import replaced
from geodax.run.diagnostics import Finding
from geodax.run.page import STYLE, THEME

Severity = Literal["fine", "note", "warning", "severe"]

_WORDS = {"fine": "Fine", "note": "Note", "warning": "Warning", "severe": "Severe"}
_SIGNS = {"fine": "✓", "note": "i", "warning": "!", "severe": "✕"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Report:
    """A page that grows from top to bottom; sections make the table of contents."""

    def __init__(self, title: str, *, subtitle: str = ""):
        """Begin a page.

        Args:
            title: Its heading.
            subtitle: A line below it.
        """
        self._title = title
        self._subtitle = subtitle
        self._body: list[str] = []
        self._sections: list[str] = []
        self._num_figures = 0
        self._num_tables = 0

    def section(self, title: str) -> None:
        """Begin a section; the table of contents names it.

        Args:
            title: Its heading.
        """
        if self._sections:
            self._body.append("</section>")
        self._sections.append(title)
        number = len(self._sections)
        self._body.append(f'<section id="section-{number}"><h2>{_inline(title)}</h2>')

    def subsection(self, title: str) -> None:
        """Write a smaller heading.

        Args:
            title: The heading.
        """
        self._body.append(f"<h3>{_inline(title)}</h3>")

    def text(self, *paragraphs: str) -> None:
        """Write paragraphs.

        Args:
            *paragraphs: Plain text; words between backquotes become code.
        """
        self._body.extend(f"<p>{_inline(paragraph)}</p>" for paragraph in paragraphs)

    def items(self, lines: Iterable[str]) -> None:
        """Write a list with a dot before every line.

        Args:
            lines: Plain text, as in :meth:`text`.
        """
        self._body.append("<ul>" + "".join(f"<li>{_inline(line)}</li>" for line in lines) + "</ul>")

    def code(self, text: str) -> None:
        """Write lines as they are, in a fixed-width font: a command, a formula.

        Args:
            text: The lines.
        """
        self._body.append(f"<pre><code>{_escape(text, keep_lines=True)}</code></pre>")

    def callout(self, severity: Severity, title: str, *paragraphs: str) -> None:
        """Write a box that is seen first.

        Args:
            severity: Its colour and sign.
            title: Its first line.
            *paragraphs: What follows.
        """
        inside = "".join(f"<p>{_inline(paragraph)}</p>" for paragraph in paragraphs if paragraph)
        self._body.append(
            f'<div class="callout {severity}" role="note"><span class="sign" aria-hidden="true">'
            f'{_SIGNS[severity]}</span><div><p class="lead"><span class="word">{_WORDS[severity]}:</span> '
            f"{_inline(title)}</p>{inside}</div></div>"
        )

    def warnings(self, findings: Sequence[Finding], *, fine: str = "No problem was found.") -> None:
        """Write a box for every finding, with what to do about it.

        Args:
            findings: From :func:`geodax.run.diagnostics.check`; the order is kept.
            fine: What to say where there are none.
        """
        if not findings:
            self.callout("fine", fine)
        for finding in findings:
            self.callout(finding.severity, f"{finding.title}.", finding.detail, f"What to do: {finding.advice}")

    def table(
        self,
        rows: Sequence[Sequence[object]],
        header: Sequence[str],
        caption: str,
        *,
        most_rows: int = 60,
    ) -> None:
        """Write a table; the first column names the rows.

        Args:
            rows: Cells; floats are rounded to four digits, everything else is written as it is.
            header: The columns' names.
            caption: What the table shows.
            most_rows: Rows written; a line says how many were left out.
        """
        self._num_tables += 1
        name = f"table-{self._num_tables}"
        for row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"Report.table expects {len(header)} cells a row, as many as the header has, and found "
                    f"{len(row)} in {list(row)!r:.80}. Pad the row with empty strings."
                )
        shown = [[_cell(cell) for cell in row] for row in rows[:most_rows]]
        is_text = [any(_reads_as_text(row[i]) for row in shown) for i in range(len(header))]
        kinds = [' class="words"' if i == 0 or is_text[i] else "" for i in range(len(header))]
        head = "".join(f'<th scope="col"{k}>{_inline(h)}</th>' for k, h in zip(kinds, header, strict=True))
        body = "".join(
            "<tr>"
            + "".join(
                f'<th scope="row" class="words">{_inline(cell)}</th>'
                if i == 0
                else f"<td{kinds[i]}>{_inline(cell)}</td>"
                for i, cell in enumerate(row)
            )
            + "</tr>"
            for row in shown
        )
        is_long = " long" if any(len(cell) > 24 for row in shown for cell in row[:1]) else ""
        left_out = len(rows) - len(shown)
        more = f'<p class="more">and {left_out} more rows</p>' if left_out > 0 else ""
        self._body.append(
            f'<div class="table{is_long}" role="region" tabindex="0" aria-labelledby="{name}"><table>'
            f'<caption id="{name}"><b>Table {self._num_tables}.</b> {_inline(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}"
        )

    def figure(self, figure: Any, caption: str, *, alt: str = "") -> None:
        """Write a matplotlib figure.

        Args:
            figure: A :class:`matplotlib.figure.Figure`.
            caption: What it shows and how to read it.
            alt: What it shows, for those who do not see it; the caption where empty.
        """
        self._num_figures += 1
        svg = _svg(figure, self._num_figures, alt or caption)
        self._body.append(
            f"<figure>{svg}<figcaption><b>Figure {self._num_figures}.</b> {_inline(caption)}</figcaption></figure>"
        )

    def html(self) -> str:
        """The page.

        Returns:
            A whole HTML document.
        """
        contents = "".join(
            f'<li><a href="#section-{i}">{_inline(title)}</a></li>' for i, title in enumerate(self._sections, 1)
        )
        title = _escape(self._title)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark"><meta name="generator" content="geodax">'
            f"<title>{title}</title><style>{STYLE}</style></head>\n<body><main>"
            f"<header><h1>{title}</h1>"
            + (f'<p class="subtitle">{_inline(self._subtitle)}</p>' if self._subtitle else "")
            + "</header>"
            + (f'<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>' if contents else "")
            + "\n".join(self._body)
            + ("</section>" if self._sections else "")
            + "</main></body></html>\n"
        )

    def write(self, path: str | Path) -> None:
        """Write the page; a file that is there stays whole until the new one replaces it.

        Args:
            path: The file.
        """
        with replaced(Path(path)) as partial:
            partial.write_text(self.html(), encoding="utf-8")


def rounded(value: float, digits: int = 3) -> str:
    """A number to some significant digits, without powers of ten where it reads better so.

    Args:
        value: The number.
        digits: Its significant digits.

    Returns:
        The number, or a dash where it is not one.
    """
    if not math.isfinite(value):
        return "∞" if value == math.inf else "–"
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if -4 <= decimals <= digits + 4:
        return f"{round(value, decimals):.{max(decimals, 0)}f}".replace("-", "−")
    return f"{value:.{digits - 1}e}".replace("-", "−")


def digits_between(low: float, high: float, least: int) -> int:
    """Significant digits with which numbers between two ends can be told apart, as two digits of their distance need.

    Args:
        low: The lower end.
        high: The upper end.
        least: Digits where the ends are not near each other, or no numbers.

    Returns:
        The digits, 15 at most.
    """
    largest, width = max(abs(low), abs(high)), high - low
    if not (math.isfinite(largest) and width > 0):
        return least
    return min(max(least, math.floor(math.log10(largest)) - math.floor(math.log10(width)) + 2), 15)


def with_interval(median: float, low: float, high: float, *, unit: str = "", decimals: int | None = None) -> str:
    """A number with its interval, rounded to two digits of the interval's width.

    Args:
        median: The number.
        low: The interval's lower end.
        high: Its upper end.
        unit: Written after the interval.
        decimals: Rounds to so many instead.

    Returns:
        Text such as ``1.23 [1.10, 1.37]``.
    """
    width = high - low
    if not (math.isfinite(median) and math.isfinite(width)):
        return "–"
    if decimals is None:
        if max(abs(low), abs(high)) >= 1e7 or width < 1e-6:
            digits = digits_between(low, high, 3)
            median_, low_, high_ = (rounded(value, digits) for value in (median, low, high))
            return f"{median_} [{low_}, {high_}]{unit}"
        decimals = max(0, 1 - math.floor(math.log10(width)))
    median, low, high = (round(value, decimals) + 0.0 for value in (median, low, high))
    text = f"{median:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]{unit}"
    return text.replace("-", "−")


def _escape(text: str, *, keep_lines: bool = False) -> str:
    kept = "\n\t" if keep_lines else ""
    text = "".join(c if c in kept or unicodedata.category(c) not in ("Cc", "Cs") else " " for c in text)
    return html.escape(text, quote=True)


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", _escape(text))
    # no line ends within an interval or before a per cent sign
    text = re.sub(r"(?<=\d) (\[[−\d.]+,) ([−\d.]+\])", "\u00a0\\1\u00a0\\2", text)
    return re.sub(r"(?<=[\d\]]) (?=%)|(?<=&[gl]t;) (?=\d)", "\u00a0", text)


def _cell(cell: object) -> str:
    if isinstance(cell, float):
        return rounded(cell, 4)
    return str(cell)


def _reads_as_text(cell: str) -> bool:
    return re.search(r"[^\W\d_]{3}", cell) is not None


def _with_two_decimals(attribute: re.Match) -> str:
    numbers = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(attribute[2].split()))
    return f'{attribute[1]}="{numbers}"'


def _svg(figure: Any, number: int, alt: str) -> str:
    """The figure as an element of the page: no prologue, only identifiers it needs, the page's colours."""
    import matplotlib
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if "$" in text.get_text():  # a dollar sign in a name is no mathematics
            text.set_parse_math(False)
    stream = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": f"figure {number}"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # the reader's fonts draw the text, whatever signs the font here lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(?<= )(d|x|y)="([^"]*)"', _with_two_decimals, svg)
    svg = re.sub(r'(?<=style=")[^"]*', lambda m: m[0].replace(": ", ":").replace("; ", ";"), svg)
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg)
    for index, (drawn, _, _) in enumerate(THEME):
        svg = re.sub(rf"(?<=[:\s]){drawn}(?=[;\"])", f"var(--plot-{index})", svg, flags=re.IGNORECASE)
    svg = re.sub(r">\s*\n\s*<", ">\n<", svg)
    opening, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', opening)
    width = re.search(r'width="([\d.]+)pt"', opening)
    style = f' style="max-width:{float(width[1]) * 1.5:.0f}px"' if width else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{box[0] if box else ""} role="img" aria-label="{_escape(alt)}"{style}>{rest.strip()}'
    )
