"""The list of what the papers print: complete, with the state that the records say."""

import json
import re
from pathlib import Path

import pytest

from experiments import render, reproduction
from experiments.common.experiment import Experiment

DOCS = Path(__file__).resolve().parents[2] / "docs"
OURS = {"orthogonal_hmc/errors_in_print", "orthogonal_hmc/geometry_in_print", "givens/network_choice"}  # in no paper


def test_every_experiment_is_listed_and_every_item_exists():
    listed = {item.experiment for items in reproduction.PAPERS.values() for item in items if item.experiment}
    assert listed | OURS == set(render.experiments())


def test_pages_that_items_name_exist():
    for items in reproduction.PAPERS.values():
        for item in items:
            assert item.subject
            assert item.place is None or (DOCS / item.place.split("#")[0]).is_file(), item


@pytest.fixture
def toy():
    return Experiment(name="paper/table", config={}, smoke={}, pieces=lambda _: [{"seed": s} for s in range(4)])


@pytest.mark.parametrize(
    ("done", "expected"), [(0, r"\*\*not run\*\*; expected: an age"), (1, "1 of 4 .*age"), (4, "run, 8 min")]
)
def test_state_is_that_of_the_record(toy, tmp_path, done, expected):
    item = reproduction.Item("Table 1", "a toy", "paper/table", cost="an age")
    pieces = [{"labels": {"seed": s}, "figures": {}, "wall_time": 120.0} for s in range(done)]
    (tmp_path / "paper").mkdir()
    text = json.dumps({"experiment": "paper/table", "config": {}, "pieces": pieces})
    if done:
        (tmp_path / "paper" / "table.json").write_text(text)
    assert re.match(expected, reproduction.state(item, {"paper/table": toy}, tmp_path))


def test_every_paper_is_on_the_page():
    page = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- table: reproduction (\w+) -->", page)) == set(reproduction.PAPERS)
