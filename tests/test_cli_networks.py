"""The network models on the command line: a whole life of a run each."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from geodax.cli import main
from geodax.models.network_files import read_adjacency

_SMALL = ["--num-warmup", "40", "--num-samples", "30", "--num-chains", "2", "--no-progress"]


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    """Edges between two groups of nodes, one of them twice, and a loop."""
    generator = np.random.default_rng(0)
    names = [f"n{i}" for i in range(10)]
    edges = [
        f"{names[i]},{names[j]}"
        for i in range(10)
        for j in range(i + 1, 10)
        if generator.random() < (0.8 if i // 5 == j // 5 else 0.2)
    ]
    path = tmp_path_factory.mktemp("networks") / "network.csv"
    path.write_text("\n".join(["from,to", *edges, edges[0], "n3,n3"]) + "\n")
    return path


@pytest.fixture(scope="module")
def contacts(tmp_path_factory) -> Path:
    generator = np.random.default_rng(1)
    lines = ["time,i,j,class_i,class_j"]
    for t in range(400):
        if t // 100 % 2 or generator.random() < 0.1:
            i, j = generator.integers(0, 9, 2)
            lines.append(f"{t},{i},{j},{'ABC'[i // 3]},{'ABC'[j // 3]}")
    path = tmp_path_factory.mktemp("networks") / "contacts.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def _is_whole_page(path: Path, *words: str) -> bool:
    page = path.read_text(encoding="utf-8")
    return all(word in page for word in words) and not re.search(r"""(src|href)\s*=\s*["'](?!#|data:)""", page)


def test_life_of_an_eigenmodel(network, tmp_path, capsys):
    """Fit, extend, report, predict."""
    run = tmp_path / "run"
    assert main(["fit", "eigenmodel", str(network), "--out", str(run), "--rank", "1", "--seed", "1", *_SMALL]) == 0
    assert "eigenvalues[0]" in capsys.readouterr().out
    notes = " ".join(json.loads((run / "config.json").read_text())["notes"])
    assert "list of" in notes
    assert "itself" in notes
    assert "again" in notes
    assert main(["resume", str(run), "--num-samples", "40", "--no-progress"]) == 0
    assert main(["report", str(run)]) == 0
    assert _is_whole_page(run / "report.html", "network.csv", "geodax fit eigenmodel", "--rank 1", "triangles", "n3")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\nn0,n1\nn9,n2\n")
    assert main(["predict", str(run), str(pairs)]) == 0
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0] == "node_1,node_2,probability,probability_5%,probability_95%"
    low, high = (float(lines[1].split(",")[k]) for k in (3, 4))
    assert 0 < low < float(lines[1].split(",")[2]) < high < 1
    assert len(lines) == 3
    pairs.write_text("a,b\nn0,n77\nn9,n2\n")
    assert main(["predict", str(run), str(pairs)]) == 1
    assert "n77" in capsys.readouterr().err


def test_life_of_a_network_of_contacts(contacts, tmp_path, capsys):
    """Fit, report, predict."""
    run = tmp_path / "run"
    options = ["--window", "20", "--n-states", "2", "--rank", "1", "--num-starts", "3"]
    assert main(["fit", "network", str(contacts), "--out", str(run), *options, *_SMALL]) == 0
    assert "transition[0,0]" in capsys.readouterr().out
    assert main(["report", str(run)]) == 0
    assert _is_whole_page(run / "report.html", "contacts.csv", "--n-states 2", "state 2", "share of zeros", "Modes")
    assert main(["predict", str(run), str(contacts)]) == 0
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0] == "start,state,probability_1,probability_2"
    values = np.array([line.split(",") for line in lines[1:]], dtype=float)
    np.testing.assert_allclose(values[:, 2:].sum(axis=1), 1.0, atol=1e-4)
    other = tmp_path / "other.csv"
    other.write_text(contacts.read_text().replace(",A", ",Z"))
    assert main(["predict", str(run), str(other)]) == 1
    assert "'Z'" in capsys.readouterr().err


def test_errors_come_before_the_folder(network, contacts, tmp_path, capsys):
    """What cannot be fitted leaves no folder behind."""
    for words in (
        ["eigenmodel", str(network), "--rank", "30"],
        ["eigenmodel", str(network), "--link", "log-log"],
        ["network", str(contacts), "--window", "1000"],
        ["network", str(contacts), "--window", "20", "--counts", "normal"],
        ["network", str(network)],
    ):
        assert main(["fit", *words, "--out", str(tmp_path / "run"), *_SMALL]) == 1
        assert capsys.readouterr().err.startswith("geodax: ")
        assert not (tmp_path / "run").exists()


def test_matrix_and_list_are_one_network(network, tmp_path):
    """Written as a matrix with a header, the network of the list is the same."""
    listed = read_adjacency(network)
    assert set(np.unique(listed.values)) == {0.0, 1.0}
    assert read_adjacency(network, counts=True).values.max() == 2.0
    path = tmp_path / "matrix.csv"
    rows = [",".join(f"{v:.0f}" for v in row) for row in listed.values]
    path.write_text("\n".join([",".join(listed.names), *rows]) + "\n")
    matrix = read_adjacency(path)
    np.testing.assert_array_equal(matrix.values, listed.values)
    assert matrix.names == listed.names
    path.write_text("a,b,c,d\n1,2,3,4\n2,3,4,7\n")
    with pytest.raises(ValueError, match="expected an adjacency matrix"):
        read_adjacency(path)
