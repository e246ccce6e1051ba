"""Rules about the source itself: what it may import, and that all of it can be imported."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "geodax"
MODULES = sorted(PACKAGE.rglob("*.py"))
TEXT_SUFFIXES = {".py", ".pyi", ".ipynb", ".md", ".rst", ".sh", ".toml", ".yaml", ".yml"}
HEAVY = {
    "arviz",
    "blackjax",
    "matplotlib",
    "numpyro",
    "optax",
    "orbax",
    "pandas",
    "sklearn",
    "xarray",
    "zarr",
}

PRIVATE_JAX = re.compile(r"\bjax\._src\b|\bfrom\s+jax\s+import\b.*\b_src\b")
EXPERIMENTAL_JAX = re.compile(r"\bjax\.experimental\b|\bfrom\s+jax\s+import\b.*\bexperimental\b")
PICKLE_LOAD = re.compile(
    r"\b(?:pickle|cPickle|cloudpickle|dill|joblib|torch)\s*\.\s*(?:loads?|Unpickler)\b"
    r"|\bfrom\s+(?:pickle|cloudpickle|dill|joblib)\s+import\b.*\b(?:loads?|Unpickler)\b"
    r"|\bread_pickle\s*\("
    r"|\ballow_pickle\s*=\s*True\b"
)


def dotted_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def text_files():
    """Every text file of the project; folders of tools and of outputs are left out."""
    outputs = {"build", "dist", "runs", "_build", "__pycache__"}
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.suffix not in TEXT_SUFFIXES or not outputs.isdisjoint(parts):
            continue
        if any(part.startswith(".") and part != ".ci" for part in parts):
            continue
        if path.is_file():
            yield path


def lines_that_match(pattern: re.Pattern, paths) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


def test_only_public_jax_is_used():
    assert lines_that_match(PRIVATE_JAX, MODULES) == []


def test_experimental_jax_stays_in_the_hadamard_room():
    elsewhere = [path for path in MODULES if path.parent != PACKAGE / "geometry" / "hadamard"]
    assert lines_that_match(EXPERIMENTAL_JAX, elsewhere) == []


def test_no_pickle_is_loaded():
    assert lines_that_match(PICKLE_LOAD, [*text_files(), ROOT / "Makefile", ROOT / ".ci" / "run"]) == []


@pytest.mark.parametrize("name", [dotted_name(path) for path in MODULES if path.name != "__main__.py"])
def test_module_imports(name):
    importlib.import_module(name)


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in MODULES}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_importing_geodax_stays_light():
    report = "import sys, geodax; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", report], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert HEAVY.intersection(process.stdout.split()) == set()


COMMANDS_WITHOUT_ARRAYS = """
import contextlib
import sys

from geodax.app import main

for words in (
    ["--version"], ["--help"], ["fit", "--help"], ["fit", "pca", "--help"], ["fti"], ["data", "--help"], ["data", "list"],
    ["data", "fetch", "nonsense"], ["citation", "nuts"], ["completion", "bash"], ["show", "--help"],
):
    with contextlib.suppress(SystemExit):
        main(words)
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_commands_without_arrays_start_fast():
    process = subprocess.run(
        [sys.executable, "-c", COMMANDS_WITHOUT_ARRAYS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "oil-flow" in process.stdout  # the list of data sets
    assert (HEAVY | {"jax", "numpy"}).intersection(process.stdout.splitlines()[-1].split()) == set()


UNINSTALLED = """
import sys
from importlib import metadata

found = metadata.Distribution.from_name


def from_name(name):
    if name == "geodax":
        raise metadata.PackageNotFoundError(name)
    return found(name)


metadata.Distribution.from_name = from_name
for name in ("arviz", "matplotlib", "mpl_toolkits", "orbax", "pooch", "rich", "sklearn", "tyro", "zarr"):
    sys.modules[name] = None

import geodax as gx
import jax
import jax.numpy as jnp

sampler = gx.hmc(lambda x: -0.5 * jnp.sum(x**2), step_size=0.5, num_integration_steps=2)
draws = gx.sample(jax.random.key(0), sampler, jnp.zeros(2), num_samples=7)
assert draws["posterior"]["position"].shape == (4, 7, 2)
assert draws.attrs["inference_library_version"] == gx.__version__

from experiments.orthogonal_hmc import table_4, table_5, table_6, table_7_figure_3
from experiments.sgrld import figure_2, table_3, tables_1_2
from experiments.walsh_hadamard import cifar10
"""


@pytest.mark.thorough
def test_a_checkout_that_is_not_installed_samples_and_runs_experiments():
    process = subprocess.run([sys.executable, "-c", UNINSTALLED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_there_is_one_version():
    from importlib.metadata import version

    import geodax

    assert geodax.__version__ == version("geodax")
    assert f"\nversion: {geodax.__version__}\n" in (ROOT / "CITATION.cff").read_text()
