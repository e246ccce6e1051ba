"""``python -O`` leaves assert statements out: nothing may hang on them, here or in what is stored by Zarr."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "geodax").rglob("*.py"))
STORE = """
import numpy as np
from geodax.run.draws import ZarrDraws, open_draws
if __debug__:
    raise SystemExit("asserts are there")
shapes = {"posterior": {"x": ((3,), np.dtype(float))}, "sample_stats": {"lp": ((), np.dtype(float))}}
values = {"posterior": {"x": np.ones((2, 5, 3))}, "sample_stats": {"lp": np.zeros((2, 5))}}
ZarrDraws("draws", shapes, 2, 5).write(0, values)
again = ZarrDraws("draws", shapes, 2, 8, num_kept=5)
again.write(5, {g: {k: v[:, :3] for k, v in variables.items()} for g, variables in values.items()})
tree = open_draws("draws")
assert False
print(tree["posterior"]["x"].shape, float(tree["posterior"]["x"].sum()))
"""


def test_no_assert_does_anything():
    """They tell a type checker what a value is, and call nothing that could change something."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert)
        and any(isinstance(part, (ast.Call, ast.NamedExpr, ast.Await)) for part in ast.walk(node.test))
    ]
    assert found == []


def optimised(folder: Path, *words: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONOPTIMIZE": "1"}
    process = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.thorough
def test_draws_are_stored(tmp_path):
    assert optimised(tmp_path, "-c", STORE) == "(2, 8, 3) 48.0\n"


@pytest.mark.slow
def test_a_run(tmp_path):
    rows = "".join(f"{i},{i * i % 7},{i * 5 % 11}\n" for i in range(20))
    (tmp_path / "table.csv").write_text("a,b,c\n" + rows)
    words = [
        "fit",
        "pca",
        "table.csv",
        "--n-components",
        "1",
        "--num-warmup",
        "20",
        "--num-samples",
        "20",
        "--no-progress",
    ]
    for command in (
        [*words, "--num-chains", "2", "--out", "run"],
        ["resume", "run", "--num-samples", "30", "--no-progress"],
        ["report", "run"],
        ["predict", "run", "table.csv"],
    ):
        optimised(tmp_path, "-m", "geodax", *command)
    assert len((tmp_path / "run" / "predictions.csv").read_text().splitlines()) == 21
