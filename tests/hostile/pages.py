"""Reading an HTML report as a browser would, to see whether anything of a file has become part of the page."""

from html.parser import HTMLParser

ELEMENTS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "header",
    "h1",
    "h2",
    "h3",
    "p",
    "nav",
    "ol",
    "ul",
    "li",
    "a",
    "section",
}
ELEMENTS |= {
    "div",
    "span",
    "b",
    "code",
    "pre",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "figure",
    "figcaption",
}
ELEMENTS |= {
    "svg",
    "g",
    "defs",
    "path",
    "use",
    "clippath",
    "rect",
    "text",
    "tspan",
    "style",
    "image",
    "title",
    "desc",
    "circle",
    "line",
    "marker",
}
ADDRESSES = {"href", "xlink:href", "src"}
VOID = {"meta"}


class Page(HTMLParser):
    """The elements, texts and faults of a page."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        if self.open:
            self.faults.append(f"never closed: {self.open}")

    @property
    def text(self) -> str:
        """What a reader sees."""
        return "".join(self.words)

    def handle_starttag(self, tag, attrs):
        if tag not in ELEMENTS:
            self.faults.append(f"element {tag}")
        for name, value in attrs:
            if name.startswith("on"):
                self.faults.append(f"attribute {name}")
            if name in ADDRESSES and not (value or "").startswith(("#", "data:image/png")):
                self.faults.append(f"address {value}")
            if name == "style" and "url(" in (value or "").replace("url(#", ""):
                self.faults.append(f"style {value}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"{tag} closed within {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    def handle_comment(self, data):
        self.faults.append(f"comment {data[:40]}")

    def handle_pi(self, data):
        self.faults.append(f"instruction {data[:40]}")
