"""The network models on the command line: a whole life of a run each."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from geodax.app import main
from geodax.app.families import FAMILIES, run_kind
from geodax.app.network.contacts import ContactWindows, hold_out_counts, read_contacts
from geodax.app.network.files import hold_out, read_adjacency, read_pairs
from geodax.app.network.scores import contact_scores
from geodax.app.tables.dialect import Dialect
from geodax.data import TableError
from geodax.models.eigenmodel.estimator import Eigenmodel
from geodax.models.network.estimator import NetworkHMM

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


@pytest.mark.thorough
def test_life_of_an_eigenmodel(network, tmp_path, capsys):
    """Fit, extend, predict pairs of a file."""
    run = tmp_path / "run"
    assert main(["fit", "eigenmodel", str(network), "--out", str(run), "--rank", "1", "--seed", "1", *_SMALL]) == 0
    assert "eigenvalues[0]" in capsys.readouterr().out
    notes = " ".join(json.loads((run / "config.json").read_text())["notes"])
    assert "edge list" in notes
    assert "itself" in notes
    assert "repeat a pair" in notes
    assert main(["resume", str(run), "--num-samples", "40", "--no-progress"]) == 0
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\nn0,n1\nn9,n2\nn3,n3\n,n3\n")
    capsys.readouterr()
    assert main(["predict", str(run), str(pairs)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 4 rows name the same node twice and have no prediction." in said
    assert "1 of 4 rows have a missing node" in said
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0] == "node_1,node_2,probability,probability_5%,probability_95%"
    low, high = (float(lines[1].split(",")[k]) for k in (3, 4))
    assert 0 < low < float(lines[1].split(",")[2]) < high < 1
    assert lines[3:] == ["n3,n3,,,", ",n3,,,"]
    pairs.write_text("a,b\nn0,n77\nn9,n2\n")
    assert main(["predict", str(run), str(pairs)]) == 1
    assert "n77" in capsys.readouterr().err


@pytest.mark.thorough
def test_predictions_of_held_out_pairs_have_what_was_observed(network, tmp_path):
    """The area under the ROC curve of the output can be computed from them."""
    run = tmp_path / "run"
    words = ["fit", "eigenmodel", str(network), "--rank", "1", "--test-fraction", "0.3", "--out", str(run), *_SMALL]
    assert main(words) == 0
    assert main(["predict", str(run)]) == 0
    heading, *lines = (run / "predictions.csv").read_text().splitlines()
    assert heading == "node_1,node_2,probability,probability_5%,probability_95%,observed"
    data = run_kind("eigenmodel").load(run / "data.npz")
    held_out = [line.split(",") for line in lines]
    assert len(held_out) == np.triu(data.is_test).sum()
    for first, second, *_, observed in held_out:
        assert data.values[data.names.index(first), data.names.index(second)] == float(observed)
    assert {cells[-1] for cells in held_out} == {"0", "1"}


def test_columns_beside_the_nodes_are_named(tmp_path):
    """A table of several years: the nodes are not its first columns, and the years are not used."""
    path = tmp_path / "years.csv"
    path.write_text("year,from,to\n2019,a,b\n2019,b,c\n2020,a,b\n2020,c,d\n")
    with pytest.raises(TableError, match=r"'to' is text, .* name them by --first-node and --second-node"):
        read_adjacency(path)
    assert "Columns that are not used: 'year'." in read_adjacency(path, columns=("from", "to")).notes


@pytest.mark.thorough
def test_contacts_without_classes_or_with_few_windows_are_pointed_out(tmp_path, capsys):
    path, run = tmp_path / "years.csv", tmp_path / "run"
    years = [f"{year},n{i},n{(i + year) % 5}" for year in (1, 2, 3, 4) for i in range(5)]
    path.write_text("\n".join(["time,from,to", *years]) + "\n")
    words = ["fit", "network", str(path), "--n-states", "2", "--rank", "1", "--num-starts", "2", "--out", str(run)]
    assert main([*words, "--window", "1", *_SMALL]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "each name is a class of its own" in said
    assert "4 windows for 2 states are few" in said
    path.write_text("\n".join(["time,from,to", *years[:5]]) + "\n")
    with pytest.raises(ValueError, match="all contacts have the time 1"):
        read_contacts(path)


def test_life_of_a_network_of_contacts(contacts, tmp_path, capsys):
    """Fit, predict."""
    run = tmp_path / "run"
    options = ["--window", "20", "--n-states", "2", "--rank", "1", "--num-starts", "3"]
    assert main(["fit", "network", str(contacts), "--out", str(run), *options, *_SMALL]) == 0
    assert "transition[0,0]" in capsys.readouterr().out
    assert main(["predict", str(run), str(contacts)]) == 0
    lines = (run / "predictions.csv").read_text().splitlines()
    assert lines[0] == "start,state,probability_1,probability_2"
    values = np.array([line.split(",") for line in lines[1:]], dtype=float)
    np.testing.assert_allclose(values[:, 2:].sum(axis=1), 1.0, atol=1e-4)
    other = tmp_path / "other.csv"
    other.write_text(contacts.read_text().replace(",A", ",Z"))
    assert main(["predict", str(run), str(other)]) == 1
    assert "'Z'" in capsys.readouterr().err


@pytest.mark.thorough
def test_held_out_contacts_are_scored_beside_frequencies(tmp_path, capsys):
    """Classes that meet or not together: the states predict contacts that the frequencies of the pairs do not."""
    generator = np.random.default_rng(4)
    counts = np.triu(generator.poisson(np.where(np.arange(60) // 15 % 2, 3.0, 0.1)[:, None, None], (60, 4, 4)))
    lines = [f"{20 * t + 19 * k / n},{i},{j}" for (t, i, j), n in np.ndenumerate(counts) for k in range(n)]
    path, run = tmp_path / "contacts.csv", tmp_path / "run"
    path.write_text("\n".join(["time,i,j", *lines]) + "\n")
    options = ["--window", "20", "--n-states", "2", "--rank", "1", "--num-starts", "3", "--test-fraction", "0.2"]
    assert main(["fit", "network", str(path), *options, "--start", "0", "--out", str(run), "--json", *_SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    heading, *rows = found["results"]
    assert re.split("  +", heading) == ["held-out counts", "network model", "pair frequency", "pair-window product"]
    scores = {
        name: [float(cell.split(" ± ")[0].replace("−", "-")) for cell in cells]
        for name, *cells in (re.split("  +", row) for row in rows)
    }
    assert list(scores) == ["AUC", "log score (contact)", "log score (count)", "RMSE"]
    assert scores["AUC"][0] > 0.85 > scores["AUC"][1]
    for name in ("log score (contact)", "log score (count)"):
        assert scores[name][0] > max(scores[name][1:])
    assert scores["RMSE"][0] < scores["RMSE"][1]
    data = run_kind("network").load(run / "data.npz")
    assert data.is_test is not None
    chosen = np.triu(data.is_test)
    for part in (data.counts > 0, data.counts == 0):
        assert (chosen & part).sum() == round(0.2 * np.triu(part).sum())
    assert np.array_equal(np.isnan(data.fitted), data.is_test)
    assert f"{chosen.sum()} of {len(data.counts) * 10} counts are held out" in " ".join(found["notes"])
    assert main(["report", str(run)]) == 0
    words = (
        "State 1 holds in",
        "contacts.csv",
        "--n-states 2",
        "state 2",
        "fraction of zeros",
        "Modes",
        "--test-fraction 0.2",
    )
    assert _is_whole_page(run / "report.html", "Held-out counts", rows[0].split()[1], *words)
    assert main(["predict", str(run)]) == 0
    heading, *lines = (run / "predictions.csv").read_text().splitlines()
    assert heading == "start,class_1,class_2,expected,probability,observed"
    assert len(lines) == chosen.sum()
    expected, probability, observed = np.array([line.split(",")[3:] for line in lines], float).T
    assert np.sqrt(np.mean((expected - observed) ** 2)) == pytest.approx(scores["RMSE"][0], abs=0.01)
    assert probability[observed > 0].mean() > probability[observed == 0].mean() + 0.3
    start, one, two, *_ = lines[-1].split(",")
    at = (data.starts.tolist().index(float(start)), data.names.index(one), data.names.index(two))
    assert data.counts[at] == observed[-1]
    assert chosen[at]
    apart = hold_out_counts(data, 0.2, diagonal=False).is_test
    assert apart is not None
    assert not np.diagonal(apart, axis1=1, axis2=2).any()


def test_errors_come_before_the_folder(network, contacts, tmp_path, capsys):
    """What cannot be fitted leaves no folder behind."""
    for words in (
        ["eigenmodel", str(network), "--rank", "30"],
        ["eigenmodel", str(network), "--link", "log-log"],
        ["network", str(contacts), "--window", "1000"],
        ["network", str(contacts), "--window", "20", "--counts", "normal"],
        ["network", str(contacts), "--window", "20", "--test-fraction", "1"],
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
    with pytest.raises(ValueError, match="expected a square adjacency matrix"):
        read_adjacency(path)


def _written(tmp_path, text):
    path = tmp_path / "network.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "names", [("a", "b", "c", "d"), ("1", "2", "3", "10"), ("9007199254740993", "9007199254740992", "x", "007")]
)
@pytest.mark.parametrize("corner", ["", "node"])
def test_rows_of_a_matrix_are_put_in_the_order_of_its_columns(tmp_path, names, corner):
    """A path through the nodes in order, its rows written backwards."""
    matrix = np.eye(4, k=1) + np.eye(4, k=-1)
    rows = [",".join([names[i], *(f"{v:.0f}" for v in matrix[i])]) for i in (3, 2, 1, 0)]
    data = read_adjacency(_written(tmp_path, "\n".join([",".join([corner, *names]), *rows]) + "\n"))
    np.testing.assert_array_equal(data.values, matrix)
    assert data.names == names
    assert any("sorted into the order of the columns" in note for note in data.notes)


def test_counts_without_a_diagonal_are_no_names(tmp_path):
    """Their first row and column are the same different numbers, as names of rows and columns would be."""
    data = read_adjacency(_written(tmp_path, ",5,3,8\n5,,2,1\n3,2,,4\n8,1,4,\n"), counts=True)
    np.testing.assert_array_equal(data.values, [[0, 5, 3, 8], [5, 0, 2, 1], [3, 2, 0, 4], [8, 1, 4, 0]])


def test_names_of_rows_that_are_not_those_of_the_columns_are_refused(tmp_path):
    rows = "x,0,1,1,0\ny,1,0,0,0\nz,1,0,0,1\na,0,0,1,0\n"
    with pytest.raises(TableError, match=r"must name each row exactly once.*'b', 'c', 'd', 'x'"):
        read_adjacency(_written(tmp_path, "node,a,b,c,d\n" + rows))
    twice = rows.replace("y,", "x,")
    with pytest.raises(TableError, match="'x' is not in both or not unique"):
        read_adjacency(_written(tmp_path, twice))
    assert read_adjacency(_written(tmp_path, rows)).names == ("x", "y", "z", "a")


def test_the_first_line_of_a_list_of_names_is_an_edge_if_one_is_a_node_below(tmp_path):
    """The other may have this edge alone, as the Acciaiuoli among the families of Florence."""
    ring = "ann,bob\nbob,cy\ncy,dee\ndee,ann\n"
    for text, first, word in ((ring, "'ann', 'bob'", "a pair"), ("from,to\n" + ring, "'from', 'to'", "the names of")):
        data = read_adjacency(_written(tmp_path, text))
        assert data.values.sum() == 8
        assert data.names == ("ann", "bob", "cy", "dee")
        assert any(f"Line 1 ({first}) was read as {word}" in note for note in data.notes)
    assert read_adjacency(_written(tmp_path, ring), dialect=Dialect(header=True)).values.sum() == 6
    for text in ("eve,bob\n" + ring, "bob,eve\n" + ring):
        data = read_adjacency(_written(tmp_path, text))
        assert data.names == ("ann", "bob", "cy", "dee", "eve")
        assert data.values.sum() == 10
    with pytest.raises(TableError, match="node 'bbo' is not in the network"):
        read_pairs(_written(tmp_path, "ann,bbo\nann,cy\n"), ("ann", "bob", "cy"))


def test_the_first_line_of_new_pairs_is_a_pair_if_both_are_nodes(tmp_path):
    nodes = ("ann", "bob", "cy")
    pairs = read_pairs(_written(tmp_path, "ann,bob\nbob,cy\nann,cy\n"), nodes)
    np.testing.assert_array_equal(pairs.places, [[0, 1], [1, 2], [0, 2]])
    assert len(read_pairs(_written(tmp_path, "ann,bob\n"), nodes).places) == 1
    earlier = read_pairs(_written(tmp_path, "1.0,2.0\n2,1\n"), ("1.0", "2.0"))  # a run of an earlier version
    np.testing.assert_array_equal(earlier.places, [[0, 1], [1, 0]])
    pairs = read_pairs(_written(tmp_path, "from,to\nbob,cy\nann,\n"), nodes)
    np.testing.assert_array_equal(pairs.places, [[1, 2], [0, -1]])
    assert "Line 1 ('from', 'to') was read as the names of the columns." in pairs.notes
    assert "1 of 2 rows have a missing node and no prediction." in pairs.notes


@pytest.mark.parametrize("corner", ["", "Unnamed: 0"])
@pytest.mark.parametrize("value", ["", ",w"])
@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (0, 2, 3, 7)])  # of all rows, or those left by a condition
def test_an_index_is_no_node(tmp_path, corner, value, numbers):
    edges = ((5, 7, 1), (7, 8, 3), (8, 5, 2), (8, 9, 1))
    rows = [",".join(map(str, (k, *edge)[: 3 + bool(value)])) for k, edge in zip(numbers, edges, strict=True)]
    text = "\n".join([f"{corner},from,to{value}", *rows]) + "\n"
    data = read_adjacency(_written(tmp_path, text), counts=True)
    assert data.names == ("5", "7", "8", "9")
    assert data.values[1, 2] == (3 if value else 1)
    assert any("numbers the rows" in note for note in data.notes)
    pairs = read_pairs(_written(tmp_path, text), ("0", "1", "2", "3", *data.names))
    np.testing.assert_array_equal(pairs.places, [[4, 5], [5, 6], [6, 4], [6, 7]])


@pytest.mark.parametrize("counts", [True, False])
def test_edges_listed_in_both_directions_count_once(tmp_path, counts):
    """A list made from a symmetric matrix has each edge twice; edges of a directed network are added up."""
    twice = read_adjacency(_written(tmp_path, "a,b,n\nx,y,3\ny,x,3\ny,z,2\nz,y,2\nx,x,5\n"), counts=counts)
    np.testing.assert_array_equal(twice.values, [[0, 3, 0], [3, 0, 2], [0, 2, 0]])
    assert "Each edge is listed in both directions and counts once." in twice.notes
    directed = read_adjacency(_written(tmp_path, "a,b,n\nx,y,3\ny,x,1\ny,z,2\nz,y,2\n"), counts=counts)
    np.testing.assert_array_equal(directed.values[0, 1], 4 if counts else 3)
    assert not any("counts once" in note for note in directed.notes)
    assert any("Some pairs are listed in both directions. If edges are directed" in note for note in directed.notes)
    repeated = read_adjacency(_written(tmp_path, "a,b,n\nx,y,3\nx,y,1\ny,z,2\n"), counts=counts)
    assert not any("directed" in note for note in repeated.notes)


def test_contacts_listed_in_both_directions_count_once(tmp_path):
    rows = [(0, "p", "q", "A", "A"), (1, "q", "r", "A", "B"), (2, "p", "r", "A", "B"), (3, "p", "q", "A", "A")]
    lines = [",".join(map(str, row)) for t, i, j, a, b in rows for row in ((t, i, j, a, b), (t, j, i, b, a))]
    heading = "time,i,j,class i,class j\n"
    twice = read_contacts(_written(tmp_path, heading + "\n".join(lines) + "\n"), width=2.0)
    once = read_contacts(_written(tmp_path, heading + "\n".join(lines[::2]) + "\n"), width=2.0)
    np.testing.assert_array_equal(twice.counts, once.counts)
    assert "Each contact is listed in both directions and counts once." in twice.notes


def test_edges_between_two_kinds_of_nodes_are_pointed_out(tmp_path):
    """Nobody is a member of another member: those zeros are no data."""
    members = read_adjacency(_written(tmp_path, "who,club\nAnn,golf\nBob,golf\nBob,chess\n"))
    assert any("no node in common" in note for note in members.notes)
    friends = read_adjacency(_written(tmp_path, "a,b\nAnn,Bob\nBob,Cyd\n"))
    assert not any("no node in common" in note for note in friends.notes)


def test_row_names_that_count_are_those_of_a_matrix(tmp_path):
    assert read_adjacency(_written(tmp_path, ",0,1,2\n0,0,1,0\n1,1,0,1\n2,0,1,0\n")).names == ("0", "1", "2")
    plain = read_adjacency(_written(tmp_path, "0,5,1\n1,6,1\n2,7,1\n"))  # nothing has a name
    assert plain.names == ("0", "1", "2", "5", "6", "7")


def test_rows_without_a_node_are_left_out(tmp_path):
    data = read_adjacency(_written(tmp_path, "from,to\na,b\nb,c\nc,\nNA,a\nc,a\n"))
    assert data.names == ("a", "b", "c")
    assert any("2 of 5 rows have a missing node and are left out" in note for note in data.notes)
    with pytest.raises(TableError, match="no row names two nodes"):
        read_adjacency(_written(tmp_path, "from,to\na,\n,b\n"))


def test_values_of_edges(tmp_path):
    """A negative one is kept, so that the model refuses it; NA beside a number is the number, alone a missing pair."""
    data = read_adjacency(_written(tmp_path, "a,b,w\nx,y,-1\ny,z,NA\nz,y,1\nx,z,NA\nu,x,0\nu,x,1\n"))
    u, x, y, z = range(4)
    assert data.names == ("u", "x", "y", "z")
    assert data.values[x, y] == data.values[y, x] == -1
    assert data.values[y, z] == data.values[u, x] == 1
    assert np.isnan(data.values[x, z])
    assert data.values[u, y] == 0
    with pytest.raises(ValueError, match=r"needs 0 and 1 .* found -1.*np.where\(np.isnan\(X\), X, X != 0\) says"):
        Eigenmodel(rank=1).prepare(data.values)
    with pytest.raises(TableError, match="must hold numbers, but 'w' is text, such as 'low' on line 2"):
        read_adjacency(_written(tmp_path, "a,b,w\nx,y,low\ny,z,high\n"))


@pytest.mark.parametrize("header", ["", "source target weight\n"])
def test_nodes_and_values_of_edges_between_blanks(tmp_path, header):
    read = read_adjacency(
        _written(tmp_path, f"{header}Javert Valjean 17\nJavert Fantine 5\nFantine Valjean 9\n"), counts=True
    )
    assert read.names == ("Fantine", "Javert", "Valjean")
    np.testing.assert_array_equal(read.values, [[0, 5, 9], [5, 0, 17], [9, 17, 0]])


@pytest.mark.parametrize("header", ["", "source target\n"])
def test_nodes_between_blanks_need_no_value(tmp_path, header):
    """As networkx.write_edgelist(..., data=False) writes them; lines of other lengths are no edges."""
    lines = f"{header}Javert Valjean\nJavert Fantine\nFantine Valjean\n"
    read = read_adjacency(_written(tmp_path, lines))
    assert read.names == ("Fantine", "Javert", "Valjean")
    np.testing.assert_array_equal(read.values, 1 - np.eye(3))
    pairs = read_pairs(_written(tmp_path, lines), read.names)
    np.testing.assert_array_equal(pairs.places, [[1, 2], [1, 0], [0, 2]])
    with pytest.raises(TableError, match="has no numeric column"):
        read_adjacency(_written(tmp_path, f"{lines}Jean Valjean Javert\n"))


def test_values_of_edges_with_a_decimal_comma(tmp_path):
    text = "a;b;w\nx;y;1,0\ny;z;2,0\nz;x;1.000,0\n"
    data = read_adjacency(_written(tmp_path, text), counts=True, dialect=Dialect(decimal=","))
    np.testing.assert_array_equal(data.values, [[0, 1, 1000], [1, 0, 2], [1000, 2, 0]])


def test_numbered_nodes_are_in_the_order_of_their_numbers(tmp_path):
    data = read_adjacency(_written(tmp_path, "from,to\n10,9\n9,1\n1,10\n"))
    assert data.names == ("1", "9", "10")
    assert data.values[0, 1] == data.values[1, 2] == 1


def test_a_window_of_no_length_is_named_as_it_was_said(contacts, tmp_path, capsys):
    assert main(["fit", "network", str(contacts), "--window", "0", "--out", str(tmp_path / "run"), *_SMALL]) == 1
    assert "--window must be a positive number" in " ".join(capsys.readouterr().err.split())


_THOUSANDS = "Commas in numbers were read as thousands separators, such as in '1,500' (line {}, column {!r})."


def test_how_the_numbers_of_a_network_were_read_is_said(tmp_path):
    """Of a list, of a matrix, and of the times of contacts."""
    path = tmp_path / "network.csv"
    path.write_text('from,to,value\na,b,"1,500"\nb,c,"2,500"\n')
    assert _THOUSANDS.format(2, "value") in read_adjacency(path, counts=True).notes
    assert not any("Commas" in note for note in read_pairs(path, ("a", "b", "c")).notes)  # values do not matter there
    path.write_text('a,b,c,d\n0,"1,500",2,3\n"1,500",0,4,5\n2,4,0,6\n3,5,6,0\n')
    assert _THOUSANDS.format(3, "a") in read_adjacency(path, counts=True).notes
    path.write_text('time,i,j\n"1,500",a,b\n"1,700",b,c\n"2,900",b,c\n')
    windows = read_contacts(path, width=700.0)
    assert windows.starts.tolist() == [1500.0, 2200.0]
    assert _THOUSANDS.format(2, "time") in windows.notes


def test_pairs_are_held_out_in_both_classes_and_never_fitted(network):
    data = hold_out(read_adjacency(network), 0.2)
    above = np.triu(np.ones((10, 10), bool), 1)
    assert data.is_test is not None
    assert np.array_equal(data.is_test, data.is_test.T)
    for value in (0.0, 1.0):
        part = above & (data.values == value)
        assert (data.is_test & part).sum() == round(0.2 * part.sum())
    assert np.array_equal(np.isnan(data.fitted), data.is_test)
    assert np.array_equal(hold_out(read_adjacency(network), 0.2).is_test, data.is_test)
    assert hold_out(read_adjacency(network), 0.0).is_test is None
    for fraction in (-0.1, 1.0, 0.001):
        with pytest.raises(TableError, match="--test-fraction"):
            hold_out(read_adjacency(network), fraction)


@pytest.mark.parametrize("model", ["eigenmodel", "network"])
def test_the_seed_chooses_what_is_held_out(model, request):
    file = request.getfixturevalue("network" if model == "eigenmodel" else "contacts")
    options = FAMILIES[model].options(rank=1, test_fraction=0.2)
    first, again, other = (run_kind(model).read(file, options, None, seed=seed)[0].is_test for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.thorough
def test_held_out_pairs_are_scored_and_predicted_without_a_file(tmp_path, capsys):
    """Two groups of nodes, whose pairs the model predicts better than their mean does."""
    generator = np.random.default_rng(3)
    group = np.arange(24) // 12
    pairs = [(i, j) for i in range(24) for j in range(i + 1, 24)]
    edges = [f"{i},{j}" for i, j in pairs if generator.random() < (0.85 if group[i] == group[j] else 0.1)]
    path, run = tmp_path / "network.csv", tmp_path / "run"
    path.write_text("\n".join(["from,to", *edges]) + "\n")
    options = ["--rank", "1", "--test-fraction", "0.2", "--out", str(run)]
    assert main(["fit", "eigenmodel", str(path), *options, *_SMALL]) == 0
    said = " ".join(capsys.readouterr().out.split())
    found = re.search(
        r"area under the ROC curve ([\d.]+) ± [\d.]+ \(0.500 by the mean alone\), "
        r"mean log probability (\S+) ± [\d.]+ \((\S+)",
        said,
    )
    assert found is not None, said
    assert float(found[1]) > 0.75
    assert float(found[2].replace("−", "-")) > float(found[3].replace("−", "-"))
    assert main(["report", str(run)]) == 0
    words = ("Eigenvalue 1 is", "eigenvalue 1", "network.csv", "geodax fit eigenmodel", "--rank 1", "triangles", "17")
    assert _is_whole_page(run / "report.html", "Held-out pairs", found[1], *words)
    assert main(["predict", str(run)]) == 0
    is_test = hold_out(read_adjacency(path), 0.2).is_test
    assert is_test is not None
    written = [line.split(",")[:2] for line in (run / "predictions.csv").read_text().splitlines()[1:]]
    assert written == [[str(i), str(j)] for i, j in np.argwhere(np.triu(is_test)).tolist()]


def test_edges_are_found_by_the_names_of_their_columns(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("when,a,kind,b,n\n1,x,mail,y,2\n2,y,call,z,3\n3,y,mail,x,4\n4,u,call,x,\n")
    data = read_adjacency(path, columns=("a", "b", "n"), counts=True)
    assert data.names == ("u", "x", "y", "z")
    assert data.values[1, 2] == 6
    assert data.values[2, 3] == 3
    assert np.isnan(data.values[0, 1])
    assert read_pairs(path, data.names, columns=data.columns).places.tolist() == [[1, 2], [2, 3], [2, 1], [0, 1]]
    with pytest.raises(TableError, match=r"no column 'c'.*Its columns are 'when', 'a'"):
        read_adjacency(path, columns=("a", "c"))
    with pytest.raises(TableError, match="use --first-node NAME --second-node NAME"):
        read_adjacency(path)


@pytest.mark.thorough
@pytest.mark.parametrize("rank", [1, 3])
def test_contacts_that_the_rank_cannot_show_are_named(rank, tmp_path, capsys):
    """Classes that meet only themselves: rates of rank 1 cannot have three blocks."""
    counts = np.random.default_rng(5).poisson(np.where(np.eye(4), 6.0, 1.0), (60, 4, 4))
    lines = [f"{20 * t + 19 * k / n},{i},{j}" for (t, i, j), n in np.ndenumerate(np.triu(counts)) for k in range(n)]
    path = tmp_path / "contacts.csv"
    path.write_text("\n".join(["time,i,j", *lines]) + "\n")
    options = ["--window", "20", "--start", "0", "--n-states", "1", "--rank", str(rank), "--num-starts", "3", "--json"]
    assert main(["fit", "network", str(path), *options, "--out", str(tmp_path / "run"), *_SMALL]) == 0
    found = {finding["title"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    misfit = found.get("Data that the fitted model does not reproduce")
    assert (misfit is not None) == (rank == 1)
    if misfit is not None:
        assert "fraction of zeros" in misfit["detail"]


@pytest.mark.parametrize(("rate", "count", "expected"), [(60.0, 0.0, -60.0), (1e-20, 1.0, np.log(1e-20))])
def test_scores_of_contacts_are_finite_where_the_probability_of_none_rounds(rate, count, expected):
    """To 0 or to 1; that of the observed count is known."""

    class Certain(NetworkHMM):
        def log_predictive(self, X, given):
            y = X[:, *np.triu_indices(X.shape[1])]
            return np.log(np.exp(stats.poisson.logpmf(y[~np.isnan(y)], rate)))

        def expected_counts(self, X):
            return np.full(X.shape, rate)

    counts, is_test = np.full((6, 2, 2), 3.0), np.zeros((6, 2, 2), bool)
    counts[2], counts[4], is_test[2] = count, 0.0, True
    found = contact_scores(ContactWindows(counts, ("a", "b"), np.arange(6.0), 1.0, (), is_test), Certain())
    assert found["log score (contact)"]["network model"].value == pytest.approx(expected)
    assert all(np.isfinite(score.value) for row in found.values() for score in row.values())
