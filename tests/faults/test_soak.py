"""A million steps: memory stays flat, matrices stay orthonormal, checkpoints cost next to nothing."""

import json
import subprocess
import sys

import pytest

from benchmarks import soak
from tests.faults.kills import ROOT


def run(*arguments) -> None:
    process = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "soak.py"), *arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.slow
def test_the_script_runs(tmp_path):
    run("--steps", "3000", "--parts", "sgrld", "cayley", "--out", str(tmp_path / "soak.json"))
    found = json.loads((tmp_path / "soak.json").read_text())["steps"]
    assert set(found) == {"sgrld", "cayley"}
    assert found["cayley"]["worst_residual"] < 1e-6
    soak.record("steps", {"sgrld": "another"}, tmp_path / "soak.json")
    again = json.loads((tmp_path / "soak.json").read_text())["steps"]
    assert again == found | {"sgrld": "another"}


@pytest.mark.soak
@pytest.mark.parametrize("part", soak.SAMPLERS)
def test_a_million_steps(part):
    """Catches leaks of a few bytes a step, and rounding that adds up."""
    run("--parts", part)
    row = json.loads(soak.RESULTS.read_text())["steps"][part]
    assert row["steps"] == 1_000_000
    assert row["is_finite"]
    assert row["growth"] < 0.01
    assert row.get("worst_residual", 0.0) < 1e-5


@pytest.mark.soak
def test_checkpoints_take_little_time():
    run("--parts", "checkpoints")
    rows = json.loads(soak.RESULTS.read_text())["checkpoints"]
    assert rows["4 chains of 500 numbers"]["share_at_one_a_minute"] < 0.02
    assert rows["10 chains of 478,000 numbers"]["share_at_one_a_minute"] < 0.02
