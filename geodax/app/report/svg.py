"""Converts Matplotlib figures to SVG elements in the colours of the page."""

import io
import re
import warnings
from typing import Any

from markupsafe import Markup, escape

from geodax.app.report.page import THEME

_ENLARGED = 1.5  # largest number of pixels of a point on the page


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
