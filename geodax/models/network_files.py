"""Networks in a user's files: adjacency matrices, lists of edges, lists of pairs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from geodax.data.dialect import FOUND, Dialect
from geodax.data.errors import TableError
from geodax.data.rows import decode, read_bytes, split_rows, take_names
from geodax.data.tables import Table, read_table
from geodax.models.run_files import number_text

_LARGEST_WHOLE = 2**53  # above it floating-point numbers are no longer all whole numbers


@dataclass(frozen=True)
class Adjacency:
    """A network.

    Attributes:
        values: Symmetric matrix, NaN where a pair is missing; the diagonal holds zeros.
        names: The nodes.
        notes: What was decided about the data.
    """

    values: Float[np.ndarray, "n n"]
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_adjacency(path: str | Path, *, counts: bool = False, dialect: Dialect = FOUND) -> Adjacency:
    """Read a network from a matrix or a list of edges.

    A file of two or three columns is a list of edges: two nodes, and the pair's value where there is a third column, 1
    otherwise. Pairs that are not in a list are zero, and what is said of a pair twice is added up for counts. Anything
    else is a matrix, with as many rows as columns of numbers. A list of names without numbers needs a header.

    Args:
        path: The file.
        counts: Whether values are counts.
        dialect: How the file is written.

    Returns:
        The network.

    Raises:
        TableError: If the file is neither.
    """
    listed = _listed(Path(path), dialect)
    return _matrix(Path(path), dialect) if listed is None else _from_list(Path(path), listed, counts, dialect)


def read_pairs(path: str | Path, names: tuple[str, ...], dialect: Dialect = FOUND) -> Int[np.ndarray, "m 2"]:
    """Read pairs of nodes.

    Args:
        path: A file of two or three columns, the first two of which name nodes.
        names: The nodes of the network.
        dialect: How the file is written.

    Returns:
        Positions in ``names``.

    Raises:
        TableError: If a node is not in the network.
    """
    listed = _listed(Path(path), dialect)
    if listed is None:
        raise TableError(f"{path}: expected pairs of nodes, two columns.")
    place = {name: i for i, name in enumerate(names)}
    unknown = next((name for side in listed[:2] for name in side if name not in place), None)
    if unknown is not None:
        raise TableError(f"{path}: node {unknown!r} is not in the network, whose nodes are {', '.join(names[:8])}, ...")
    return np.array([[place[name] for name in side] for side in listed[:2]], dtype=int).T


def _matrix(path: Path, dialect: Dialect) -> Adjacency:
    table = read_table(path, **dialect.options())
    numeric = [name for name in table.file_columns if name not in table.text]
    num_rows = len(table.values)
    if len(numeric) != num_rows:
        raise TableError(
            f"{path} has {num_rows} rows and {len(numeric)} columns of numbers; expected an adjacency matrix, as many "
            "rows as columns, or a list of edges: two nodes, and a value if there is a third column."
        )
    matrix = np.stack([np.asarray(column(table, name), dtype=np.float64) for name in numeric], axis=1)
    names = tuple(numeric) if table.has_header else tuple(str(i + 1) for i in range(num_rows))
    np.fill_diagonal(matrix, 0.0)
    return Adjacency(matrix, names, (f"Read as an adjacency matrix of {num_rows} nodes.",))


def _listed(path: Path, dialect: Dialect) -> list[tuple[str, ...]] | None:
    """The columns of a file of two or three, as text; None for other files."""
    if path.suffix in (".npy", ".npz"):
        return None
    notes: list[str] = []
    text = decode(path, read_bytes(path), dialect.encoding, notes)
    rows, _ = split_rows(path, text, dialect.delimiter)
    names, rows, _ = take_names(path, rows, dialect.header, dialect.blank, notes)
    if len(names) not in (2, 3):
        return None
    return [tuple(row.cells[k].strip() for row in rows) for k in range(len(names))]


def _from_list(path: Path, listed: list[tuple[str, ...]], counts: bool, dialect: Dialect) -> Adjacency:
    num_edges = len(listed[0])
    weights = np.ones(num_edges)
    if len(listed) == 3:
        try:
            weights = np.array([np.nan if cell in dialect.blank else float(cell) for cell in listed[2]])
        except ValueError as error:
            raise TableError(f"{path}: the third column of a list of edges must hold numbers: {error}.") from error
    names, index = np.unique(np.concatenate(listed[:2]), return_inverse=True)
    i, j = index.reshape(2, -1)
    is_loop = i == j
    low, high, weights = np.minimum(i, j)[~is_loop], np.maximum(i, j)[~is_loop], weights[~is_loop]
    matrix = np.zeros((len(names), len(names)))
    (np.add if counts else np.maximum).at(matrix, (low, high), weights)
    repeated = len(low) - len(set(zip(low.tolist(), high.tolist(), strict=True)))
    notes = [f"Read as a list of {num_edges} edges between {len(names)} nodes; pairs that are not listed are zero."]
    if is_loop.any():
        notes.append(f"{int(is_loop.sum())} edges from a node to itself left out.")
    if repeated:
        notes.append(f"{repeated} edges name a pair again; {'added up' if counts else 'the largest value counts'}.")
    return Adjacency(matrix + matrix.T, tuple(names.tolist()), tuple(notes))


def column(table: Table, name: str) -> Any:
    """A column of a table, also one that is constant or text.

    Args:
        table: The table.
        name: The column.

    Returns:
        Its cells.

    Raises:
        TableError: If it could not be read.
    """
    if name in table.names:
        return table.values[:, table.names.index(name)]
    if name in table.set_aside:
        return table.set_aside[name]
    if name in table.text:
        return table.text[name]
    raise TableError(f"{table.path}: column {name} was left out: {table.dropped.get(name, 'no reason is known')}.")


def as_names(values: Any) -> np.ndarray:
    """Cells as names; whole numbers without their decimal point, whatever the other cells are."""
    values = np.asarray(values)
    if values.dtype.kind != "f":
        return values.astype(str)
    if (np.abs(values) < _LARGEST_WHOLE).all() and (values == np.round(values)).all():
        return values.astype(np.int64).astype(str)
    return np.array([number_text(value) or "nan" for value in values.ravel()], str).reshape(values.shape)
