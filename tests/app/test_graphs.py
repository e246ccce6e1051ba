"""Files of graphs, against the matrices of the libraries that wrote them."""

import gzip
import importlib.util

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from geodax.app.network.files import read_adjacency
from geodax.data.errors import TableError

networkx = pytest.importorskip("networkx", reason="needs networkx: pip install 'geodax[networkx]'")

WRITERS = {
    "gml": networkx.write_gml,
    "gml.gz": networkx.write_gml,
    "graphml": networkx.write_graphml,
    "gexf": networkx.write_gexf,
    "net": networkx.write_pajek,
}


def graph_of(kind=networkx.Graph):
    """A graph of counts with an isolated node and a loop."""
    graph = kind()
    graph.add_nodes_from(["a", "b", "c", "d", "alone"])
    graph.add_weighted_edges_from([("a", "b", 2.0), ("b", "c", 5.0), ("d", "a", 1.0), ("c", "c", 7.0)])
    return graph


def expected(graph, names, weight):
    matrix = networkx.to_numpy_array(graph, nodelist=names, weight=weight)
    np.fill_diagonal(matrix, 0.0)
    return matrix


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("suffix", WRITERS)
def test_graphs_of_networkx(tmp_path, suffix, counts):
    graph, path = graph_of(), tmp_path / f"graph.{suffix}"
    WRITERS[suffix](graph, path)
    found = read_adjacency(path, counts=counts)
    assert found.names == ("a", "alone", "b", "c", "d")
    np.testing.assert_array_equal(found.values, expected(graph, found.names, "weight" if counts else None))
    assert any("--link log" in note for note in found.notes) is not counts
    assert any("1 edges from a node to itself" in note for note in found.notes)


def test_nodes_without_labels_have_their_numbers_and_values_may_be_called_so(tmp_path):
    path = tmp_path / "ids.gml"
    edge = "edge [ source {} target {} value {} ]"
    nodes = "".join(f"node [ id {i} ] " for i in (1, 2, 10))
    path.write_text(f"graph [ {nodes} {edge.format(1, 10, 3)} {edge.format(2, 1, 4)} ]\n")
    found = read_adjacency(path, counts=True)
    assert found.names == ("1", "2", "10")
    np.testing.assert_array_equal(found.values, [[0, 4, 3], [4, 0, 0], [3, 0, 0]])


def test_directed_edges_are_pointed_out(tmp_path):
    graph = graph_of(networkx.DiGraph)
    graph.add_edge("b", "a", weight=3.0)
    networkx.write_graphml(graph, tmp_path / "directed.graphml")
    found = read_adjacency(tmp_path / "directed.graphml", counts=True)
    assert any("The edges are directed" in note for note in found.notes)
    directed = expected(graph, found.names, "weight")
    np.testing.assert_array_equal(found.values, directed + directed.T)


@pytest.mark.parametrize("symmetry", ["symmetric", "general"])
def test_matrix_market(tmp_path, symmetry):
    matrix = expected(graph_of(), ["a", "alone", "b", "c", "d"], "weight")
    scipy.io.mmwrite(tmp_path / "matrix.mtx", scipy.sparse.coo_array(matrix), symmetry=symmetry)
    found = read_adjacency(tmp_path / "matrix.mtx", counts=True)
    assert found.names == tuple("12345")
    assert found.notes[0] == "Read as a matrix in Matrix Market's format: 3 edges between 5 nodes."
    np.testing.assert_array_equal(found.values, matrix)
    links = read_adjacency(tmp_path / "matrix.mtx")
    np.testing.assert_array_equal(links.values, matrix > 0)
    assert any("--link log" in note for note in links.notes)


def test_a_pattern_in_matrix_market(tmp_path):
    pattern = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n3 1\n"
    (tmp_path / "pattern.mtx").write_bytes(pattern.encode())
    with gzip.open(tmp_path / "packed.mtx.gz", "wb") as file:
        file.write(pattern.encode())
    for name in ("pattern.mtx", "packed.mtx.gz"):
        np.testing.assert_array_equal(read_adjacency(tmp_path / name).values, [[0, 0, 1], [0, 0, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("broken.gml", "graph [ node [ id 1 ]", "cannot be read as a graph in GML"),
        ("broken.graphml", "<graphml><graph>", "cannot be read as a graph in GraphML"),
        ("broken.mtx", "%%MatrixMarket matrix\n1\n", "cannot be read as a graph in Matrix Market"),
        ("wide.mtx", "%%MatrixMarket matrix array real general\n1 2\n1\n2\n", "square real matrix, found 1 x 2"),
        ("empty.gml", "graph [ node [ id 1 label \"a\" ] ]", "the graph has no edges"),
        (
            "text.gml",
            'graph [ node [ id 1 label "a" ] node [ id 2 label "b" ] edge [ source 1 target 2 weight "x" ] ]',
            "the values 'weight' of the edges are not all numbers",
        ),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_used(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(TableError, match=words):
        read_adjacency(tmp_path / name, counts=True)


def test_a_graph_has_no_columns(tmp_path):
    networkx.write_gml(graph_of(), tmp_path / "graph.gml")
    with pytest.raises(TableError, match="which has no columns"):
        read_adjacency(tmp_path / "graph.gml", columns=("source", "target"))


def test_without_networkx(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    networkx.write_gml(graph_of(), tmp_path / "graph.gml")
    with pytest.raises(TableError, match=r"pip install 'geodax\[networkx\]'"):
        read_adjacency(tmp_path / "graph.gml")
