"""The benchmark of the Walsh-Hadamard layer runs, and counts parameters right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_whvi_layer(tmp_path):
    out = tmp_path / "figures.json"
    command = [sys.executable, "benchmarks/whvi_layer.py", "--size", "16", "--rounds", "1", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, env=os.environ)
    rows = json.loads(out.read_text())["rows"]
    assert rows["WHVI"]["parameters"] == 4 * 16
    assert rows["mean-field"]["parameters"] == 2 * 16**2
    assert all(row["microseconds"] > 0 for row in rows.values())
