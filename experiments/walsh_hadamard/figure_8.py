"""Figure 8 of Rossi, Marmin and Filippone (2020), supplement: time of the fast transform against the dense product.

The times are those of ``benchmarks/hadamard.py`` (512 rows of D numbers, single precision), which is run by itself on a
quiet machine; here its figures are read and drawn.

    python benchmarks/hadamard.py
    python -m experiments.walsh_hadamard.figure_8
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments.common.command import main
from experiments.common.experiment import Experiment, Figures, Labels, Record
from experiments.common.rendering import INK, SERIES, panels, table

ROOT = Path(__file__).resolve().parents[2]
SHOWN = {"fwht": "fwht", "dense": "dense product", "copy": "copy of the array"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Where the times come from.

    Attributes:
        seeds: One reading.
        source: The benchmark's figures; empty to run it for the smallest sizes.
        threads: Which of its runs.
    """

    seeds: tuple[int, ...] = (0,)
    source: str = "benchmarks/results/hadamard.json"
    threads: tuple[str, ...] = ("one thread",)


def pieces(config: Config) -> list[Labels]:
    """Each run of the benchmark."""
    return [{"threads": threads} for threads in config.threads]


def measure(config: Config, labels: Labels) -> Figures:
    """Read the benchmark's figures."""
    if config.source:
        path = ROOT / config.source
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there; run python benchmarks/hadamard.py on a quiet machine first.")
        return json.loads(path.read_text())[labels["threads"]]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "hadamard.json"
        script = [sys.executable, str(ROOT / "benchmarks" / "hadamard.py"), "--rounds", "1", "--largest-bits", "3"]
        subprocess.run([*script, "--out", str(out)], cwd=ROOT, check=True, capture_output=True)
        return json.loads(out.read_text())[labels["threads"]]


def times(record: Record) -> str:
    """Microseconds of every size, and the break-even point."""
    facts = record.row(threads=record.config["threads"][0])
    rows = []
    for size, row in facts["sizes"].items():
        copies = row["fwht"]["copies"]
        rows.append([size, *(row[name]["microseconds"] if name in row else None for name in SHOWN), copies])
    return table(["D", *(f"{name}, µs" for name in SHOWN.values()), "fwht in copies"], rows)


def picture(record: Record):
    """Time against size, both axes logarithmic."""
    facts = record.row(threads=record.config["threads"][0])
    figure, axes = panels(1, 1, width=5.2, height=3.4)
    ax = axes[0, 0]
    for (name, label), colour in zip(SHOWN.items(), SERIES, strict=False):
        points = [(int(d), row[name]["microseconds"]) for d, row in facts["sizes"].items() if name in row]
        ax.plot(*np.transpose(points), "o-", color=colour, markersize=3, linewidth=1.1, label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel("D", color=INK, fontsize=9)
    ax.set_ylabel(f"µs for {facts['rows']} rows", color=INK, fontsize=9)
    ax.legend(frameon=False, fontsize=8)
    return figure


EXPERIMENT = Experiment(
    name="walsh_hadamard/figure_8",
    config=Config(),
    smoke=Config(source=""),
    pieces=pieces,
    measure=measure,
    tables={"times": times},
    pictures={"times": picture},
)

if __name__ == "__main__":
    main(EXPERIMENT)
