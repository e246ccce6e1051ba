"""Sharded data on disk, for data larger than memory. Each process reads only the rows it needs.

A folder holds either files ``NAME.npy`` (one array) or folders ``x/``, ``y/`` of such files (a dict of arrays with
equal numbers of rows). The files of an array have equal dtypes and numbers of axes and are concatenated along the first
axis in the order of their names. They are memory-mapped and read row by row, so memory holds only the batches of one
chunk.

The rows of batch number i depend only on the seed and on i. No position has to be saved: a resumed run finds its
batches again, and all processes draw the same ones.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._types import PyTree
from geodax.data.errors import DataError
from geodax.data.minibatches import Batches, Stream


class Column:
    """One array in several ``.npy`` files, in their order; DataError if one cannot be read, or they do not match."""

    def __init__(self, files: list[Path]):
        try:
            self.pieces = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{files[0].parent}: expected plain NumPy arrays: {error}") from error
        for file, piece in zip(files, self.pieces, strict=True):
            first = self.pieces[0]
            if piece.ndim == 0 or piece.shape[1:] != first.shape[1:] or piece.dtype != first.dtype:
                raise DataError(
                    f"{file} holds an array of shape {piece.shape} and dtype {piece.dtype}; expected rows of shape "
                    f"{first.shape[1:]} and dtype {first.dtype}, as in {files[0].name}."
                )
        self.ends = np.cumsum([len(piece) for piece in self.pieces])
        self.row_shape, self.dtype = self.pieces[0].shape[1:], self.pieces[0].dtype

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows with these indices, shape (len(rows), ...)."""
        found = np.empty((len(rows), *self.row_shape), self.dtype)
        shard = np.searchsorted(self.ends, rows, side="right")
        for k in np.unique(shard):
            # in file order: disks read neighbouring rows faster
            here = np.flatnonzero(shard == k)
            here = here[np.argsort(rows[here], kind="stable")]
            start = 0 if k == 0 else self.ends[k - 1]
            found[here] = self.pieces[k][rows[here] - start]
        return found


class Shards(Stream):
    """Batches read from shards on disk; created by :func:`shards`.

    Attributes:
        columns: The arrays by name; a single unnamed array is the batch itself.
        batch_size: Number of examples per batch.
        num_data: Number of examples.
    """

    def __init__(self, columns: dict[str, Column], batch_size: int, order: str, seed: int):
        self.columns, self.batch_size, self.position = columns, batch_size, 0
        self.num_data = len(next(iter(columns.values())))
        plan = Batches(jax.ShapeDtypeStruct((self.num_data,), np.int8), batch_size, order)
        key = jax.random.key(seed)
        self._rows = jax.jit(jax.vmap(lambda index: plan.rows(key, index)))

    def rewind(self) -> None:
        """No-op: batches can be read in any order."""

    def read(self, first: int, count: int, part: slice = slice(None)) -> PyTree:
        """Return the batches ``first, ..., first + count - 1``, stacked along a new first axis.

        Args:
            first: Index of the first batch.
            count: Number of batches.
            part: Examples to read from each batch.

        Raises:
            DataError: If a file can no longer be read.
        """
        rows = np.asarray(self._rows(jnp.arange(first, first + count, dtype=jnp.int32)))[:, part]
        self.position = first + count
        found = {}
        for name, column in self.columns.items():
            try:
                values = column.read(rows.ravel())
            except (OSError, IndexError) as error:
                raise DataError(f"The shards of {name or 'the data'} can no longer be read: {error}") from error
            found[name] = values.reshape((*rows.shape, *column.row_shape))
        return found[""] if list(found) == [""] else found


def shards(folder: str | Path, *, batch_size: int, order: str = "epochs", seed: int = 0) -> Shards:
    """Create batches from a folder of ``.npy`` files, for data larger than memory.

    All chains of a run see the same batch in each iteration. With several devices or hosts each process reads only the
    examples assigned to its own devices.

    Args:
        folder: A folder of ``.npy`` files, or of folders of them, one for each array (``x/000.npy``, ``y/000.npy``).
        batch_size: Number of examples per batch.
        order: ``"epochs"`` visits every example once per pass, in a new random order each pass. ``"independent"`` draws
            each batch afresh, with replacement.
        seed: Seed of the order.

    Returns:
        A stream for ``sample(..., batches=...)``.

    Raises:
        DataError: If the folder is missing or its files do not match.
        ValueError: If ``batch_size`` or ``order`` is invalid.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"shards: {root} is not a folder.")
    files = {"": sorted(root.glob("*.npy"))} if any(root.glob("*.npy")) else {}
    files = files or {path.name: sorted(path.glob("*.npy")) for path in sorted(root.iterdir()) if path.is_dir()}
    if not files or not all(files.values()):
        raise DataError(
            f"shards: {root} contains no .npy files, and no folders of them; write each shard with numpy.save."
        )
    columns = {name: Column(paths) for name, paths in files.items()}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"shards: the arrays in {root} must have equal numbers of rows, found {sizes}.")
    num_data = next(iter(sizes.values()))
    size = _checks.whole("shards", "batch_size", batch_size, least=1, most=num_data)
    _checks.chosen("shards", "order", order, ("independent", "epochs"))
    return Shards(columns, size, order, _checks.whole("shards", "seed", seed, least=0, most=2**32 - 1))


def own_part(stream: Stream, first: int, count: int, part: slice) -> Any:
    """Read some examples of the given batches; only shards can skip reading the others."""
    if isinstance(stream, Shards):
        return stream.read(first, count, part)
    return jax.tree.map(lambda leaf: leaf[:, part] if leaf.ndim > 1 else leaf, stream.read(first, count))
