"""What users copy runs as printed: the blocks of the README and of the documentation, and the examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Blocks of the documentation follow each other; those of the README stand alone.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDED = {"flax.md": ("flax", "haiku")}  # packages of pages that are left out without them
LONG = {"network-hmm.md"}  # sampling takes minutes: 6 of the processor in an optimised program, 16 in another
METHODS = sorted((ROOT / "docs" / "methods").glob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def run(command: list[str], folder: Path, text: str | None = None, *, is_long: bool = False) -> str:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if not is_long:  # compiling takes most of the time, and the programs do not deserve to be optimised
        environment["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    process = subprocess.run(
        command, cwd=folder, env=environment, input=text, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    return process.stdout


def contacts() -> str:
    """Windows of eleven minutes in which three classes meet each other, or mostly among themselves."""
    generator = np.random.default_rng(0)
    lines = ["time,one,other,class of one,class of other"]
    for time in np.sort(generator.uniform(0, 24 * 660, 1500)):
        one = generator.integers(12)
        other = generator.integers(12) if time % (12 * 660) > 6 * 660 else one // 4 * 4 + generator.integers(4)
        if one != other:
            lines.append(f"{time:.0f},{one},{other},{'ABC'[one // 4]},{'ABC'[other // 4]}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path):
    """An empty folder in which the shipped data have the path they have in a checkout."""
    (tmp_path / "geodax").mkdir()
    (tmp_path / "geodax" / "data").symlink_to(ROOT / "geodax" / "data")
    return tmp_path


def python_pages() -> list:
    """The pages with Python blocks; those that compile several models are slow."""
    slow = {"first-steps.md", "diagnostics.md", "numpyro.md", "cca.md", "networks.md", "walsh-hadamard.md"}
    slow |= {
        "migrating.md",
        "model-comparison.md",
        "network-hmm.md",
        "estimators.md",
        "unit-networks.md",
        "first-steps-methods.md",
        "first-steps-networks.md",
        "equinox.md",
        "flax.md",
        "likelihoods.md",
        "data.md",
        "adapters.md",
    }
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if page.name in slow else [])
        for page in PAGES
        if blocks(page, "python")
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("page", python_pages())
def test_python_blocks_run(page, tmp_path):
    pieces = blocks(page, "python")
    for package in NEEDED.get(page.name, ()):
        pytest.importorskip(package, reason=f"the page needs {package}")
    separate = page.name == "README.md"
    program = [
        f"for text in {pieces!r}:",
        "    " + ("exec(text, {})" if separate else "exec(text, globals())"),
    ]
    run([sys.executable, "-"], tmp_path, "\n".join(program), is_long=page.name in LONG)


@pytest.mark.thorough
def test_python_blocks_of_the_methods_run(tmp_path):
    """Short ones: all pages in one process, each with names of its own."""
    pieces = {page.name: blocks(page, "python") for page in METHODS}
    assert sum(map(len, pieces.values())) >= 9
    program = [
        f"for page, texts in {pieces!r}.items():",
        "    names = {}",
        "    for text in texts: exec(compile(text, page, 'exec'), names)",
    ]
    printed = run([sys.executable, "-"], tmp_path, "\n".join(program))
    assert "False" not in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "bash")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_run(page, folder):
    for name in ("contacts.csv", "more-contacts.csv"):  # a user's own files
        (folder / name).write_text(contacts())
    run(["bash", "-e"], folder, "\n".join(blocks(page, "bash")))


def test_readme_examples_are_short():
    for language in ("python", "bash"):
        for block in blocks(ROOT / "README.md", language):
            assert sum(1 for line in block.splitlines() if line.strip()) <= 15


@pytest.mark.thorough
def test_matrix_langevin(tmp_path):
    printed = run([sys.executable, str(ROOT / "examples" / "matrix_langevin.py"), "--num-samples", "500"], tmp_path)
    assert abs(float(re.search(r"standard errors: (\S+)", printed)[1])) < 4.5


@pytest.mark.slow
def test_data_on_devices(tmp_path, monkeypatch):
    """The two devices of the tests have half of the rows each, and near the truth is where the draws are."""
    monkeypatch.setenv("JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS", "1")
    printed = run([sys.executable, str(ROOT / "examples" / "data_on_devices.py"), "--num-samples", "50"], tmp_path)
    assert "all-reduces of a gradient: 1\n" in printed
    assert "rows on a device: 10000\n" in printed
    means = re.search(r"mean: \[(.*?)\]", printed)[1].split()
    assert all(abs(float(mean) - truth) < 0.1 for mean, truth in zip(means, (-1, -0.5, 0, 0.5, 1), strict=True))


@pytest.mark.slow
def test_pca_missing_cells(tmp_path):
    out = tmp_path / "cells.png"
    script = str(ROOT / "examples" / "pca_missing_cells.py")
    printed = run([sys.executable, script, "--num-samples", "100", "--out", str(out)], tmp_path)
    assert 80 <= int(re.search(r"cover (\d+) %", printed)[1]) <= 98
    assert out.stat().st_size > 10_000


@pytest.mark.slow
def test_low_rank_matrix(tmp_path):
    script = str(ROOT / "examples" / "low_rank_matrix.py")
    printed = run([sys.executable, script, "--num-samples", "200"], tmp_path)
    assert 80 <= int(re.search(r"cover (\d+) %", printed)[1]) <= 100
    assert "divergences: 0" in printed


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))
CLOSED = ("digits", "movielens")  # their data are in the folder that GEODAX_DATA names, or nowhere


def test_gallery_shows_every_script():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"^<!-- picture: (\w+) -->$", page, re.MULTILINE) == re.findall(r"gallery/(\w+)\.py", page)
    assert sorted(re.findall(r"gallery/(\w+)\.py", page)) == [path.stem for path in GALLERY]
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 80 for path in GALLERY)


@pytest.mark.slow
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_gallery_scripts_make_pictures(path, tmp_path, monkeypatch):
    if path.stem in CLOSED and "GEODAX_DATA" not in os.environ:
        pytest.skip("needs data that do not ship")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    run([sys.executable, str(path), str(tmp_path / "picture.png")], tmp_path)
    assert (tmp_path / "picture.png").stat().st_size > 20_000
