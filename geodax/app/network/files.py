"""Reads networks from users' files: adjacency matrices, edge lists, graphs, lists of pairs."""

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from geodax.app.network.graphs import EdgeList, read_graph
from geodax.app.tables.dialect import FOUND, Dialect
from geodax.app.tables.names import as_names, no_column, numbered
from geodax.app.tables.read import Table, notes_on_reading, read_table
from geodax.data.errors import TableError, listed

DOUBLE = "Each {} is listed in both directions and counts once."
_MOST_CELLS = 4  # of a row of an edge list; its lines may end in a delimiter


@dataclass(frozen=True)
class Adjacency:
    """A network.

    Attributes:
        values: Symmetric matrix, NaN where a pair is missing; the diagonal is zero.
        names: The nodes.
        notes: Decisions made while reading the data.
        is_test: Which pairs are held out, symmetric; None for none.
        columns: Names of the columns of the nodes, and of the values, if they were given.
    """

    values: Float[np.ndarray, "n n"]
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    is_test: Bool[np.ndarray, "n n"] | None = None
    columns: tuple[str, ...] = ()

    @property
    def fitted(self) -> Float[np.ndarray, "n n"]:
        """The matrix without the held-out pairs."""
        return self.values if self.is_test is None else np.where(self.is_test, np.nan, self.values)


class Pairs(NamedTuple):
    """Pairs of nodes in a file.

    Attributes:
        names: The nodes; empty where one is missing.
        places: Their indices among the nodes of the network, -1 where a name is missing.
        notes: Decisions made while reading the file.
    """

    names: np.ndarray
    places: Int[np.ndarray, "m 2"]
    notes: tuple[str, ...]


def read_adjacency(
    path: str | Path, *, counts: bool = False, columns: Sequence[str] = (), dialect: Dialect = FOUND
) -> Adjacency:
    """Read a network from an adjacency matrix, an edge list, or a file of a graph (:mod:`geodax.app.network.graphs`).

    A file of two or three columns is an edge list: two nodes, and the pair's value in the third column if there is one,
    1 otherwise. Pairs that are not listed are zero. If each edge is listed in both directions with the same value, it
    counts once. If pairs are listed several times otherwise, the largest value counts; counts are added up. The first
    line holds column names unless one of its nodes also appears below. If ``columns`` names the two node columns and
    perhaps the value column, other columns are ignored.

    Any other file is a matrix, with as many rows as numeric columns. A text column before them holds the row names,
    which may be in another order than the columns.

    Raises TableError if the file is neither, or rows and columns of a matrix have different names.
    """
    graph = read_graph(Path(path), with_values=counts)
    if graph is not None and columns:
        raise TableError(f"{path} is a graph, which has no columns. Leave their names out.")
    if columns:
        named = _from_edges(Path(path), _named_edges(Path(path), tuple(columns), dialect), counts)
        return dataclasses.replace(named, columns=tuple(columns))
    if graph is not None:
        return _from_edges(Path(path), graph, counts)
    edges = _edge_list(Path(path), dialect)
    return _matrix(Path(path), dialect) if edges is None else _from_edges(Path(path), edges, counts)


def hold_out(network: Adjacency, fraction: float, seed: int = 0) -> Adjacency:
    """Hold out pairs as :func:`with_held_out`."""
    return with_held_out(network, network.values, np.triu(~np.isnan(network.values), 1), fraction, "pairs", seed)


def with_held_out(
    data: Any,
    values: Float[np.ndarray, "*axes"],
    is_open: Bool[np.ndarray, "*axes"],
    fraction: float,
    unit: str,
    seed: int,
) -> Any:
    """Hold out values of symmetric matrices that the seed chooses; the result has ``is_test`` and a note.

    The same fraction is chosen of the open entries above zero and of the others; each pair is open once. ``is_test`` is
    symmetric in the last two axes, or None if the fraction is 0. The unit is the name of the entries, in the plural.
    Raises TableError if the fraction is not in [0, 1), or nothing is left on one side.
    """
    if not 0 <= fraction < 1:
        raise TableError(f"--test-fraction must be at least 0 and below 1, found {fraction}.")
    if fraction == 0:
        return data
    places, generator = np.flatnonzero(is_open), np.random.default_rng(seed)
    parts = [generator.permutation(places[part]) for part in (values.flat[places] > 0, values.flat[places] <= 0)]
    found = np.concatenate([part[: round(fraction * len(part))] for part in parts])
    if len(found) in (0, len(places)):
        raise TableError(
            f"--test-fraction {fraction} holds out {len(found)} of {len(places)} {unit}. Choose a fraction that leaves "
            f"{unit} to fit and {unit} to predict."
        )
    is_test = np.zeros(values.shape, bool)
    is_test.flat[found] = True
    note = f"{len(found):,} of {len(places):,} {unit} are held out and predicted in the report."
    return dataclasses.replace(data, notes=(*data.notes, note), is_test=is_test | np.swapaxes(is_test, -1, -2))


def in_both_directions(first: np.ndarray, second: np.ndarray, other: np.ndarray) -> bool:
    """Whether the rows are the same if the sides of each are exchanged, as the edges of a symmetric matrix are."""
    rows = [np.stack([a, b, other])[:, np.lexsort((a, b, other))] for a, b in ((first, second), (second, first))]
    return bool(len(other)) and np.array_equal(*rows, equal_nan=True) and not (first == second).any()


def read_pairs(
    path: str | Path, names: tuple[str, ...], dialect: Dialect = FOUND, columns: Sequence[str] = ()
) -> Pairs:
    """Read pairs of nodes of a network from a file of two or three columns, with nodes in the first two.

    Its first line holds column names unless one of its cells is a node of the network. If the node columns of the fit
    were named, a wider file must have these two. Raises TableError if a node is not in the network.
    """
    written = as_names(names).tolist()  # an earlier version kept 17.0
    place = {name: i for each in (written, names) for i, name in enumerate(each)} | {"": -1}
    edges = _edge_list(Path(path), dialect, place)
    if edges is None and columns:
        edges = _named_edges(Path(path), tuple(columns[:2]), dialect)
    if edges is None:
        raise TableError(f"{path}: expected pairs of nodes in two columns.")
    unknown = next((name for name in edges.ends.ravel().tolist() if name not in place), None)
    if unknown is not None:
        raise TableError(f"{path}: node {unknown!r} is not in the network. Its nodes are {listed(names, 8)}.")
    places = np.array([place[name] for name in edges.ends.ravel().tolist()], dtype=int).reshape(edges.ends.shape)
    lacking, notes = int((places < 0).any(axis=1).sum()), edges.notes
    if lacking:
        notes += (f"{lacking} of {len(places)} rows have a missing node and no prediction.",)
    return Pairs(edges.ends, places, notes)


def _matrix(path: Path, dialect: Dialect) -> Adjacency:
    table, labels = _labelled(path, dialect)
    numeric = [name for name in table.file_columns if name not in table.text]
    num_rows = len(table.values)
    if len(numeric) != num_rows:
        raise TableError(
            f"{path}: expected a square adjacency matrix, or an edge list with two node columns and an optional value "
            f"column. Found {num_rows} rows and {len(numeric)} numeric columns. For an edge list with other columns "
            "use --first-node NAME --second-node NAME, and --value NAME."
        )
    matrix = np.stack([table.numbers(name) for name in numeric], axis=1)
    names = tuple(numeric) if table.has_header else tuple(str(i + 1) for i in range(num_rows))
    notes = []
    if labels is not None:
        names = names if table.has_header else labels
        odd = sorted(set(labels) ^ set(names)) or sorted({name for name in labels if labels.count(name) > 1})
        if odd:
            raise TableError(
                f"{path}: the first column, {table.file_columns[0]!r}, must name each row exactly once, with the names "
                f"in the header, but {listed(odd, 4)} {'is' if len(odd) == 1 else 'are'} not in both or not unique. "
                "Use the same names for rows and columns. If the column holds something else, remove it; rows are "
                "then read in the order of the columns."
            )
        order = [labels.index(name) for name in names]
        if order != list(range(num_rows)):
            matrix = matrix[order]
            notes.append(f"Rows were sorted into the order of the columns by their names in {table.file_columns[0]!r}.")
    notes = [f"Read as an adjacency matrix of {num_rows} nodes, {listed(names, 4)}.", *notes_on_reading(table), *notes]
    np.fill_diagonal(matrix, 0.0)
    return Adjacency(matrix, names, tuple(notes))


def _labelled(path: Path, dialect: Dialect) -> tuple[Table, tuple[str, ...] | None]:
    """Read the table of a matrix, and its row names if it has one more column than rows."""
    table = read_table(path, text=lambda names: names[:1], keep_constant=True, **dialect.options())
    if len(table.file_columns) - len(table.text) == len(table.values):
        return table, tuple(" ".join(cell.split()) for cell in table.text[table.file_columns[0]])
    table = read_table(path, keep_constant=True, **dialect.options())
    if dialect.header is None and not table.has_header and _has_numbers_for_names(table):
        return _labelled(path, dataclasses.replace(dialect, header=True))
    return table, None


def _has_numbers_for_names(table: Table) -> bool:
    """Whether a matrix begins with an empty cell, and its first row and column hold the same unique names.

    Counts without a diagonal also begin with an empty cell, but have no other diagonal entry either.
    """
    values = table.values
    if table.text or values.shape[0] != values.shape[1]:
        return False
    if np.flatnonzero(np.isnan(np.diag(values))).tolist() != [0]:
        return False
    return len(set(values[0, 1:])) == len(values) - 1 and set(values[0, 1:]) == set(values[1:, 0])


def _edge_list(path: Path, dialect: Dialect, nodes: Collection[str] | None = None) -> EdgeList | None:
    """Read a file of two or three columns; None for other files. By default nodes are those below the first line."""
    if path.suffix in (".npy", ".npz"):
        return None
    whole = read_table(
        path,
        text=lambda names: names[: _MOST_CELLS if len(names) <= _MOST_CELLS else 1],
        needed=(),
        **dataclasses.replace(dialect, header=False).options(),
    )
    if len(whole.file_columns) == 1 and dialect.delimiter is None and _are_pairs_of_words(whole):
        return _edge_list(path, dataclasses.replace(dialect, delimiter=" "), nodes)
    if len(whole.file_columns) > _MOST_CELLS:
        return None
    cells = list(whole.text.values())
    if dialect.header is None:
        below = nodes if nodes is not None else as_names(cell for side in cells[:2] for cell in side[1:]).tolist()
        first = set(as_names(side[0] for side in cells[:2]).tolist()) - {""}
        if first & set(below):
            dialect = dataclasses.replace(dialect, header=False)
    asked = None if nodes is None else ()  # of new pairs only the nodes matter
    table = read_table(path, columns=asked, text=lambda names: names[:2], keep_constant=True, **dialect.options())
    first, *others = table.file_columns
    if table.has_index and len(others) > 1 and others != list(table.text[first]):  # which would be a matrix
        edges = _named_edges(path, tuple(others if nodes is None else others[:2]), dialect)
        note = f"Column {first!r} is left out: it has no name and numbers the rows."
        return edges._replace(notes=(*edges.notes, note))
    if len(table.file_columns) not in (2, 3):
        return None
    ends = np.stack([as_names(table.text[name], dialect) for name in table.file_columns[:2]], axis=1)
    line = f"Line {whole.lines[0]} ({listed([side[0] for side in cells])})"
    notes = [f"{line} was read as {'the names of the columns' if table.has_header else 'a pair: there is no header'}."]
    notes += notes_on_reading(table)
    if len(table.file_columns) == 2 or nodes is not None:
        return EdgeList(ends, None, tuple(notes))
    return EdgeList(ends, _values(table, table.file_columns[2]), tuple(notes))


def _are_pairs_of_words(table: Table) -> bool:
    """Whether each row of the only column is two words, as ``networkx.write_edgelist(..., data=False)`` writes them."""
    (cells,) = table.text.values()
    return all(len(cell.split()) == 2 for cell in cells)


def _named_edges(path: Path, columns: tuple[str, ...], dialect: Dialect) -> EdgeList:
    def known(names: Sequence[str]) -> Sequence[str]:
        for name in columns:
            if name not in names:
                raise no_column(path, name, names)
        return columns

    table = read_table(path, text=lambda names: known(names)[:2], needed=known, keep_constant=True, **dialect.options())
    ends = np.stack([as_names(table.text[name], dialect) for name in columns[:2]], axis=1)
    notes = notes_on_reading(table)
    if others := [name for name in table.file_columns if name not in columns]:
        notes.append(f"Columns that are not used: {listed(others)}.")
    return EdgeList(ends, _values(table, columns[2]) if len(columns) == 3 else None, tuple(notes))


def _values(table: Table, name: str) -> np.ndarray:
    if name in table.text or name in table.dropped:
        raise TableError(
            f"{table.path}: the value column of an edge list must hold numbers, but {name!r} is "
            f"{table.dropped.get(name, 'text')}. If the nodes are in other columns, name them by --first-node and "
            "--second-node."
        )
    return table.numbers(name)


def _from_edges(path: Path, edges: EdgeList, counts: bool) -> Adjacency:
    is_whole = (edges.ends != "").all(axis=1)
    num_edges = int(is_whole.sum())
    if not num_edges:
        raise TableError(f"{path}: {'no row names two nodes' if edges.nodes is None else 'the graph has no edges'}.")
    weights = np.ones(num_edges) if edges.values is None else edges.values[is_whole]
    ends = edges.ends[is_whole].ravel()
    names, index = numbered(ends if edges.nodes is None else np.append(ends, edges.nodes))
    i, j = index[: 2 * num_edges].reshape(num_edges, 2).T
    is_loop = i == j
    i, j, weights = i[~is_loop], j[~is_loop], weights[~is_loop]
    sides_differ, is_double = not set(i) & set(j), in_both_directions(i, j, weights)
    if is_double:
        i, j, weights = i[i < j], j[i < j], weights[i < j]
    low, high = np.minimum(i, j), np.maximum(i, j)
    matrix = np.full((len(names), len(names)), np.nan)
    if counts:
        matrix[low, high] = 0.0
    (np.add if counts else np.fmax).at(matrix, (low, high), weights)
    is_listed = np.zeros(matrix.shape, bool)
    is_listed[low, high] = True
    matrix[~is_listed] = 0.0
    repeated = len(low) - int(is_listed.sum())
    read = f"Read as {edges.kind}: {num_edges:,} edges between {len(names):,} nodes."
    if edges.nodes is None:
        read += " Pairs that are not listed are zero."
    notes = [read, *edges.notes]
    if num_edges < len(is_whole):
        notes.append(f"{len(is_whole) - num_edges} of {len(is_whole)} rows have a missing node and are left out.")
    if is_loop.any():
        notes.append(f"{int(is_loop.sum())} edges from a node to itself were left out.")
    if is_double:
        notes.append(DOUBLE.format("edge"))
    if sides_differ and len(names) > 2:
        notes.append(
            "The two columns have no node in common. Pairs within a column are read as zeros: if they are impossible, "
            "as between members of clubs, probabilities and held-out scores are mostly about them."
        )
    if repeated:
        rule = "their counts are added up" if counts else "the largest value counts"
        notes.append(f"{repeated:,} edges repeat a pair: {rule}.")
        if np.isin(i * len(names) + j, j * len(names) + i).any():
            notes.append(
                "Some pairs are listed in both directions. If edges are directed, that is lost: the model is symmetric."
            )
    return Adjacency(np.triu(matrix, 1) + np.triu(matrix, 1).T, tuple(names.tolist()), tuple(notes))
