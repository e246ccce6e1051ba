"""What is cited for what: every model and method has entries, and the entries are BibTeX."""

import re
from pathlib import Path

import pytest

import geodax as gx
from geodax.app import citations
from geodax.app.families import FAMILIES

METHOD_PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "methods").glob("*.md"))


def kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def test_every_model_of_the_command_line_is_cited():
    assert set(FAMILIES) <= set(citations.methods())


@pytest.mark.parametrize(
    "names",
    [
        ("hmc", "nuts", "sgrld", "sghmc", "ohmc", "osghmc", "geodesic"),
        [kebab(name) for name in gx.transforms.__all__ if name in ("Polar", "Givens", "Householder", "CayleyChart")],
        [
            name.lower()
            for name in gx.metrics.__all__
            if name not in ("AbstractMetric", "Curvature", "Frozen", "check_metric")
        ],
        ("whvi", "mean-field", "mc-dropout", "vogn", "ivon", "noisy-kfac", "laplace"),
    ],
    ids=["samplers", "transforms", "metrics", "variational"],
)
def test_every_method_is_cited(names):
    assert len(names) >= 4
    assert set(names) <= set(citations.methods())


@pytest.mark.parametrize("method", citations.methods())
def test_entries_are_bibtex(method):
    text = citations.citation(method.upper())
    entries = text.split("\n\n")
    assert len(entries) == text.count("@")
    for entry in entries:
        assert re.match(r"@(article|inproceedings|misc|phdthesis)\{[a-z0-9]+,\n", entry)
        assert entry.count("{") == entry.count("}")
        assert entry.endswith("\n}")
        assert all(f"  {field} = {{" in entry for field in ("title", "author"))
        assert re.search(r"year = \{(19|20)\d\d\}", entry)
        assert "article{" not in entry or "journal = {" in entry
        assert "inproceedings{" not in entry or "booktitle = {" in entry


def test_keys_are_unique():
    keys = re.findall(r"^@\w+\{(\w+),", "\n".join(text for _, text in citations._entries()), re.MULTILINE)
    assert len(keys) == len(set(keys)) == len(citations._entries())


@pytest.mark.parametrize("page", METHOD_PAGES, ids=lambda page: page.stem)
def test_pages_of_methods_name_their_citation(page):
    named = re.findall(r"geodax citation ([\w-]+)", page.read_text(encoding="utf-8"))
    assert named, f"{page.name} does not say what to cite: a line with `geodax citation METHOD`"
    assert set(named) <= set(citations.methods())
