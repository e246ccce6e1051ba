"""Reads files of graphs: Matrix Market with SciPy, GML, GraphML, GEXF and Pajek with networkx."""

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from geodax.app.tables.names import as_names
from geodax.data.errors import TableError

_READERS = {".gml": "GML", ".graphml": "GraphML", ".gexf": "GEXF", ".net": "Pajek", ".paj": "Pajek"}
_VALUES = ("weight", "value")  # attributes of edges


class EdgeList(NamedTuple):
    """The edges of a network.

    Attributes:
        ends: The nodes of each edge; empty where one is missing.
        values: The values of the edges, if they have any.
        notes: Decisions made while reading the file.
        kind: What the file holds.
        nodes: All nodes; None for those of the edges.
    """

    ends: np.ndarray
    values: Float[np.ndarray, " m"] | None
    notes: tuple[str, ...]
    kind: str = "an edge list"
    nodes: np.ndarray | None = None


def read_graph(path: Path, *, with_values: bool) -> EdgeList | None:
    """Read a graph; None for other files, by their suffix. Raises TableError if the file is damaged."""
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if suffix == ".mtx":
        return _matrix_market(path, with_values)
    return _networkx(path, _READERS[suffix], with_values) if suffix in _READERS else None


def _matrix_market(path: Path, with_values: bool) -> EdgeList:
    """Read the edges of a square matrix: its entries that are not zero, those of a symmetric matrix once."""
    import scipy.io
    import scipy.sparse

    try:
        matrix: Any = scipy.sparse.csr_array(scipy.io.mmread(path))
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise _damaged(path, "Matrix Market", error) from error
    rows, columns = matrix.shape[0], matrix.shape[-1]
    if rows != columns or matrix.dtype.kind == "c":
        raise TableError(
            f"{path}: expected a square real matrix, found {rows} x {columns} {matrix.dtype.name} entries."
        )
    if (matrix != matrix.T).nnz == 0:
        matrix = scipy.sparse.triu(matrix)
    i, j, values = scipy.sparse.find(matrix)
    notes = ["Entries that are not zero are edges."]
    if not with_values and (values != 1).any():
        notes.append("Only --link log reads their values.")
    ends = np.stack([i, j], axis=1) + 1
    nodes = np.arange(1, rows + 1)
    numbers = values.astype(float) if with_values else None
    return EdgeList(ends.astype(str), numbers, tuple(notes), "a matrix in Matrix Market's format", nodes.astype(str))


def _networkx(path: Path, kind: str, with_values: bool) -> EdgeList:
    if importlib.util.find_spec("networkx") is None:
        raise TableError(f"{path} is a graph in {kind}. To read it: pip install 'geodax[networkx]'")
    import networkx as nx

    try:
        graph = _read(nx, path, kind)
    except Exception as error:  # of networkx and XML
        raise _damaged(path, kind, error) from error
    nodes = as_names(map(str, graph.nodes))
    if len(set(nodes.tolist())) < len(nodes):
        raise TableError(f"{path}: several nodes have the same name.")
    name_of = dict(zip(graph.nodes, nodes.tolist(), strict=True))
    edges = list(graph.edges(data=True))
    ends = np.array([(name_of[a], name_of[b]) for a, b, _ in edges], dtype=nodes.dtype).reshape(len(edges), 2)
    name = next((name for name in _VALUES if edges and all(name in facts for *_, facts in edges)), None)
    values, notes = None, []
    if name is not None and with_values:
        try:
            values = np.array([float(facts[name]) for *_, facts in edges])
        except (TypeError, ValueError) as error:
            raise TableError(f"{path}: the values {name!r} of the edges are not all numbers ({error}).") from error
        notes.append(f"The values {name!r} of the edges are read.")
    elif name is not None:
        notes.append(f"The edges have values {name!r}, which only --link log reads.")
    if graph.is_directed():
        notes.append("The edges are directed. That is lost: the model is symmetric.")
    return EdgeList(ends, values, tuple(notes), f"a graph in {kind}", nodes)


def _read(nx: Any, path: Path, kind: str) -> Any:
    if kind == "Pajek":  # which makes every graph one with parallel edges
        return nx.read_pajek(path)
    if kind == "GML":
        try:
            return nx.read_gml(path)
        except nx.NetworkXError as error:
            if "label" not in str(error):
                raise
            return nx.read_gml(path, label="id")
    return (nx.read_graphml if kind == "GraphML" else nx.read_gexf)(path)


def _damaged(path: Path, kind: str, error: Exception) -> TableError:
    return TableError(f"{path} cannot be read as a graph in {kind} ({error}). Write it again, or as an edge list.")
