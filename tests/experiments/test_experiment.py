"""Records that resume, and tables that are made from them."""

import dataclasses
import json
import os
import re

import numpy as np
import pytest

from experiments import render
from experiments.common import experiment as common
from experiments.common import rendering


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: tuple[int, ...] = (0, 1)
    size: int = 3


class Counted:
    """An experiment that remembers what it has measured."""

    def __init__(self):
        self.measured = []
        self.fails_at = None
        self.experiment = common.Experiment(
            name="paper/table",
            config=Config(),
            smoke=Config(seeds=(0,)),
            pieces=lambda config: [{"method": m, "seed": s} for s in config.seeds for m in ("a", "b")],
            measure=self.measure,
            tables={"all": lambda record: rendering.table(["method"], [[row["method"]] for row in record.rows()])},
        )

    def measure(self, config, labels):
        if labels == self.fails_at:
            raise KeyboardInterrupt
        self.measured.append(labels)
        return {"draws": np.arange(config.size) / 2, "infinite": float("inf"), "count": np.int64(4)}


def run(counted, config, folder):
    return common.run(counted.experiment, config, results=folder, report=lambda _: None)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    """Pieces run twice, or lost because the file is written at the end."""
    counted = Counted()
    counted.fails_at = {"method": "a", "seed": 1}
    with pytest.raises(KeyboardInterrupt):
        run(counted, Config(), tmp_path)
    assert len(common.load(counted.experiment, tmp_path).pieces) == 2
    counted.fails_at = None
    record = run(counted, Config(), tmp_path)
    assert counted.measured == [piece["labels"] for piece in record.pieces]
    assert len(counted.measured) == 4
    assert record.row(method="b", seed=1)["draws"] == [0.0, 0.5, 1.0]
    assert record.row(method="b", seed=1)["infinite"] is None
    np.testing.assert_array_equal(record.values("count", method="a"), [4, 4])


def test_the_time_of_interrupted_processes_counts_up_to_their_checkpoints(tmp_path, monkeypatch):
    """A piece of two hours that was resumed for its last minutes, recorded with these alone."""
    clock = {"now": 1000.0}
    monkeypatch.setattr(common.time, "time", lambda: clock["now"])
    monkeypatch.setattr(common.time, "perf_counter", lambda: clock["now"])

    def measure_seeds(config, labels, seeds, folder):
        checkpoint = folder / "chains" / "leaf.npz"
        checkpoint.parent.mkdir(exist_ok=True)
        if clock["now"] < 9000.0:
            checkpoint.write_text("half way")
            os.utime(checkpoint, (clock["now"] + 300.0, clock["now"] + 300.0))
            clock["now"] += 5000.0  # of which all but 300 seconds are lost
            raise KeyboardInterrupt
        clock["now"] += 40.0
        return [{"draws": 1.0} for _ in seeds]

    counted = Counted()
    long = dataclasses.replace(
        counted.experiment,
        measure=None,
        measure_seeds=measure_seeds,
        pieces=lambda config: [{"method": "a", "seed": 0}],
    )
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            common.run(long, Config(), results=tmp_path, report=lambda _: None)
    record = common.run(long, Config(), results=tmp_path, report=lambda _: None)
    assert [piece["wall_time"] for piece in record.pieces] == [640.0]


def test_seeds_are_added_and_other_changes_refused(tmp_path):
    """Figures of two configurations in one table."""
    counted = Counted()
    run(counted, Config(), tmp_path)
    record = run(counted, Config(seeds=(0, 1, 2)), tmp_path)
    assert len(counted.measured) == len(record.pieces) == 6
    with pytest.raises(common.ConfigError, match=r"size is 3 there, 4 here.*Remove the file"):
        run(counted, Config(size=4), tmp_path)


def test_a_record_says_what_made_it(tmp_path):
    """A figure that nobody can trace."""
    counted = Counted()
    run(counted, Config(), tmp_path)
    (path,) = tmp_path.rglob("*.json")
    assert path == tmp_path / "paper" / "table.json"
    stored = json.loads(path.read_text())
    assert stored["config"] == {"seeds": [0, 1], "size": 3}
    piece = stored["pieces"][0]
    assert piece["versions"].keys() >= {"geodax", "jax", "python"}
    assert piece["wall_time"] >= 0
    assert piece["machine"]


def test_a_crash_while_writing_leaves_the_old_file(tmp_path):
    """Half a file, or a temporary one left behind."""
    path = tmp_path / "record.json"
    common.write_atomically(path, "old")
    with pytest.raises(TypeError):
        common.write_atomically(path, b"not text")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_and_ambiguous_rows_are_named():
    record = common.Record("paper/table", {}, [{"labels": {"seed": 0}, "figures": {}}] * 2)
    for labels, count in (({"seed": 0}, 2), ({"seed": 1}, 0)):
        with pytest.raises(LookupError, match=f"{count} pieces carry the labels"):
            record.row(**labels)


def test_pages_show_the_tables_of_the_records(tmp_path):
    """Text around a table that is lost, a table that is appended instead of replaced, a name that nobody knows."""
    counted = Counted()
    run(counted, Config(), tmp_path)
    known = {"paper/table": counted.experiment}
    page = "Before.\n\n<!-- table: paper/table all -->\nstale\n<!-- end of table -->\n\nAfter.\n"
    made = render.with_tables(page, known, tmp_path)
    assert made.startswith("Before.\n")
    assert made.endswith("\nAfter.\n")
    assert made.count("| a |") == 2
    assert "stale" not in made
    assert render.with_tables(made, known, tmp_path) == made
    with pytest.raises(LookupError, match=re.escape("there is no table paper/table some; there are ['all']")):
        render.with_tables(page.replace(" all ", " some "), known, tmp_path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345.6, "12,346"),
        (999.7, "1,000"),
        (3.14159, "3.14"),
        (0.00271828, "0.00272"),
        (2.2e-16, "2.20e-16"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert rendering.number(value) == text


def test_tables_are_rectangular():
    assert rendering.table(["name", "value"], [["a|b", 1.5], ["c", None]]).splitlines() == [
        "| name | value |",
        "| :--- | ---: |",
        "| a\\|b | 1.50 |",
        "| c |  |",
    ]
    with pytest.raises(ValueError, match="2 columns"):
        rendering.table(["name", "value"], [["a"]])


def test_errors_set_the_digits():
    assert rendering.with_error(0.12345, 0.0021) == "+0.1235 ± 0.0021"
    assert rendering.spread([1.0, 2.0, 3.0]) == "2.00 ± 1.0"
