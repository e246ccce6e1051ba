"""Files of a draw store: the subset of Zarr format 3 that geodax writes, and nothing else.

=====================================  ============================================================================
``zarr.json``                          facts about the run, and the record: number of draws and checksums of the chunks
``posterior/zarr.json``                a group; ``sample_stats`` is the other one that grows during a run
``posterior/NAME/zarr.json``           shape (chain, draw, ...), data type and chunk shape of a variable
``posterior/NAME/c/0/I/0/0``           chunk I: some consecutive draws of all chains, followed by their CRC-32C; with
                                       other numbers for 0 the part of a device, where draws are split over devices
``posterior/chain``, ``.../draw``      coordinates for other programs; not read here
``adaptation/...`` and others          groups of whole arrays, written after the run: :mod:`geodax.run.group_files`
=====================================  ============================================================================

Any Zarr library can open such a folder. geodax reads it without a Zarr library, since the folder may come from someone
else. Descriptions are plain JSON and must be exactly what geodax writes, without other codecs, data types or formats.
The size of a chunk is compared with its description before memory is allocated.
"""

import contextlib
import functools
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geodax.run.blocks import BlockArray
from geodax.run.errors import StorageError
from geodax.run.store_layouts import CHECKSUM_BYTES, Chunked, Layout, Record, array_description, checksum_of

GROUPS = ("posterior", "sample_stats")
_DESCRIPTION = "zarr.json"
_GROUP = {"zarr_format": 3, "node_type": "group"}
_RECORD = "geodax_record"
KINDS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_FORMAT_2 = (".zarray", ".zattrs", ".zgroup", ".zmetadata")
_LARGEST_DESCRIPTION = 64 << 20  # bytes; ten times the record of a store of a terabyte
_LARGEST_LENGTH = 2**40


def read_layouts(folder: Path) -> dict[str, Layout]:
    """Read the layouts of the variables of a store; raises ValueError for what geodax does not write."""
    names = re.compile(rf"({'|'.join(GROUPS)})/(?!(?:chain|draw)/)[^/]+(?=/{re.escape(_DESCRIPTION)}$)")
    paths = [found[0] for file in _files(folder) if (found := names.match(file))]
    return {path: _layout(folder, path) for path in paths}


def read_root(folder: Path) -> tuple[dict[str, Any], Record]:
    """Read the facts about the run, and the record of a store; raises ValueError if they are damaged."""
    if not (folder / _DESCRIPTION).is_file():
        raise ValueError(f"there is no {_DESCRIPTION}, which a store of Zarr format 3 has")
    root = read_json(folder / _DESCRIPTION)
    attributes = root.get("attributes")
    if any(root.get(key) != value for key, value in _GROUP.items()) or not isinstance(attributes, dict):
        raise ValueError(f"{_DESCRIPTION} is not the description of a group of Zarr format 3")
    record = Record.parse(attributes.pop(_RECORD, ""))
    return attributes, record


def write_root(folder: Path, attributes: Mapping[str, Any], record: Record) -> None:
    """Write JSON-compatible facts about the run and the record atomically."""
    write_json(folder / _DESCRIPTION, _GROUP | {"attributes": {**attributes, _RECORD: str(record)}})


def write_layouts(folder: Path, layouts: Mapping[str, Layout], num_draws: int) -> None:
    """Write the descriptions of variables, allocated for ``num_draws`` draws, and of their groups and coordinates."""
    for layout in layouts.values():
        write_json(folder / layout.path / _DESCRIPTION, layout.description(num_draws))
    num_chains = {path.split("/")[0]: layout.num_chains for path, layout in layouts.items()}
    for group, length in num_chains.items():
        for axis, numbers in (("chain", np.arange(length)), ("draw", np.arange(num_draws))):
            described = array_description([numbers.size], numbers.dtype, [numbers.size], [axis])
            _write(folder / group / axis / "c" / "0", _with_checksum(numbers))
            write_json(folder / group / axis / _DESCRIPTION, described)
        write_group(folder / group)


def write_group(folder: Path) -> None:
    """Write the description of a group."""
    write_json(folder / _DESCRIPTION, _GROUP | {"attributes": {}})


def check_chunks(folder: Path, layouts: Mapping[str, Layout], record: Record, num_draws: int) -> None:
    """Check that all chunks of the first draws exist, with the expected size and the contents of the last write.

    Raises ValueError if a chunk is missing or replaced, or the record is of other variables.
    """
    if layouts.keys() != record.checksums.keys():
        wrong = sorted(layouts.keys() ^ record.checksums.keys())[0]
        raise ValueError(f"{wrong} is {'not of this run' if wrong in layouts else 'missing'}")
    if num_draws > record.num_draws:
        raise ValueError(f"it holds {record.num_draws} draws of each chain, expected {num_draws}")
    for path, layout in layouts.items():
        for index in range(layout.num_chunks(num_draws)):
            _check_checksum(layout, index, last_checksum(folder, layout, index), record.checksums[path])


def last_checksum(folder: Path, layout: Chunked, index: int) -> str:
    """The checksum at the end of a chunk, as in the record; raises ValueError if the chunk is missing or truncated."""
    with _opened(folder, layout, index) as file:
        file.seek(-CHECKSUM_BYTES, os.SEEK_END)
        return file.read().hex()


def read_chunk(folder: Path, layout: Chunked, index: int, checksums: tuple[str, ...] = ()) -> np.ndarray:
    """Read a whole chunk, including entries after the last written draw.

    Raises ValueError if the chunk is missing or damaged, or not the one with the checksum, where these are known.
    """
    with _opened(folder, layout, index) as file:
        numbers, checksum = file.read(layout.chunk_bytes - CHECKSUM_BYTES), file.read(CHECKSUM_BYTES)
    if checksum != checksum_of(numbers):
        raise ValueError(f"{layout.file(index)} is damaged: its contents do not match their checksum")
    _check_checksum(layout, index, checksum.hex(), checksums)
    return np.frombuffer(numbers, layout.dtype.newbyteorder("<")).reshape(layout.chunk_shape)


def write_chunk(folder: Path, layout: Chunked, index: int, numbers: np.ndarray) -> str:
    """Write a chunk atomically and return its checksum, as in the record."""
    raw = _with_checksum(numbers)
    _write(folder / layout.file(index), raw)
    return raw[-CHECKSUM_BYTES:].hex()


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of a process that was killed while writing."""
    for file in _files(folder):
        if re.search(r"\.[0-9a-f]{32}\.partial$", file):
            (folder / file).unlink()


class Stored(NamedTuple):
    """The variables of a store by group and name, facts about its run, names of axes, and arrays of other groups."""

    groups: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    dimensions: dict[str, list[str]]
    arrays: Mapping[str, str]


def opened(path: Path, num_draws: int | None) -> Stored:
    """Open the first draws of a store, or all; raises StorageError if chunks of them are missing."""
    try:
        facts, record = read_root(path)  # first, since a running process may write more
        layouts = read_layouts(path)
        num_draws = record.num_draws if num_draws is None else num_draws
        check_chunks(path, layouts, record, num_draws)
    except Exception as error:
        raise unreadable(path, error) from error
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for name, checksums in record.checksums.items():
        layout = layouts[name]
        groups[name.split("/")[0]][layout.name] = BlockArray(
            (layout.num_chains, num_draws, *layout.shape),
            layout.dtype,
            layout.chunk_shape,
            functools.partial(_chunk_at, path, layout, checksums, record.num_draws),
        )
    return Stored(groups, facts, {name: layout.dimensions for name, layout in layouts.items()}, record.arrays)


def _chunk_at(
    path: Path, layout: Layout, checksums: tuple[str, ...], num_draws: int, numbers: tuple[int, ...]
) -> np.ndarray:
    """Read a chunk as it was when the store was opened; its run may have written more draws since."""
    index = layout.index(numbers)
    try:
        return checked_chunk(path, layout, checksums, index)
    except StorageError:
        with contextlib.suppress(OSError, ValueError):
            chunk = read_chunk(path, layout, index).copy()
            chunk[:, max(num_draws - numbers[1] * layout.chunk_draws, 0) :] = layout.fill
            if checksum_of(chunk.tobytes()).hex() in checksums[index : index + 1]:
                return chunk
        raise


def checked_chunk(path: Path, layout: Chunked, checksums: tuple[str, ...], index: int) -> np.ndarray:
    """Read a chunk; raises StorageError if it is not the one with the checksum."""
    try:
        return read_chunk(path, layout, index, checksums)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> StorageError:
    """The error for a store that cannot be read."""
    return StorageError(
        f"The draws at {path} cannot be read: {reason_of(error)}. Put back a copy of this folder, or make the draws "
        "again: a new run with the same arguments (`geodax fit --overwrite` for a run folder) gives the same ones."
    )


def reason_of(error: Exception) -> str:
    """The message of an error, with its type unless it is a ValueError."""
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


def store_in(folder: Path) -> Path:
    """The store in the folder of a run, that is of checkpoints or of the command line; else the path itself."""
    inside = [folder / name for name in ("draws.zarr", "posterior.zarr") if (folder / name).is_dir()]
    return inside[0] if inside and not (folder / "zarr.json").exists() else folder


def require_no_draws(path: Path) -> None:
    """Raise StorageError if a store holds draws."""
    num_draws = read_root(path)[1].num_draws
    if num_draws:
        raise StorageError(
            f"{path} already holds {num_draws} draws of each chain. Use another folder or remove this one; "
            "only a run with a checkpoint can go on in its store."
        )


def _layout(folder: Path, path: str) -> Layout:
    """The layout of a variable; its description must be one that geodax writes."""
    found = read_json(folder / path / _DESCRIPTION)
    try:
        shape, chunk_shape = found["shape"], found["chunk_grid"]["configuration"]["chunk_shape"]
        is_known = found["data_type"] in KINDS
        are_lengths = all(type(k) is int and 0 <= k < _LARGEST_LENGTH for k in (*shape, *chunk_shape))
        if is_known and are_lengths and min(len(shape), len(chunk_shape)) >= 2 and min(shape[0], chunk_shape[1]) >= 1:
            axes = require_names(found["dimension_names"], len(shape))[2:]
            pairs = [pair for axis, pair in enumerate(zip(shape, chunk_shape, strict=True)) if axis != 1]
            parts = tuple(n // k if n and k else 1 for n, k in pairs)
            known = (path, shape[0], tuple(shape[2:]), np.dtype(found["data_type"]), chunk_shape[1], axes)
            layout = Layout(*known, parts if any(n > 1 for n in parts) else ())
            if found == layout.description(shape[1]):
                return layout
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f"{path}/{_DESCRIPTION} is not a description that geodax writes: expected plain numbers, the codecs bytes and "
        "crc32c, and chunks of equal size"
    )


def require_names(found: Any, number: int) -> tuple[str, ...]:
    """Require a list of this number of different names of axes; raises TypeError for anything else."""
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise TypeError("expected a list of names")
    if not len(set(found)) == len(found) == number:
        raise TypeError(f"expected {number} different names")
    return tuple(found)


def _files(folder: Path) -> list[str]:
    """The files of a store; raises ValueError for links, special files or other formats."""
    found = []
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            file = Path(at, name)
            with contextlib.suppress(FileNotFoundError):  # another process has just renamed it
                mode = file.lstat().st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                    raise ValueError(f"{file} is a link or a special file; expected files and folders only")
                if name in _FORMAT_2:
                    raise ValueError(f"{file} is of Zarr format 2; expected format 3")
                if stat.S_ISREG(mode):
                    found.append(file.relative_to(folder).as_posix())
    return found


@contextlib.contextmanager
def _opened(folder: Path, layout: Chunked, index: int) -> Iterator[Any]:
    try:
        with open(folder / layout.file(index), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != layout.chunk_bytes:
                raise ValueError(f"{layout.file(index)} has {size:,} bytes, expected {layout.chunk_bytes:,}")
            yield file
    except FileNotFoundError:
        raise ValueError(f"{layout.file(index)} is missing") from None


def _check_checksum(layout: Chunked, index: int, checksum: str, checksums: tuple[str, ...]) -> None:
    if index < len(checksums) and checksum != checksums[index]:
        raise ValueError(f"{layout.file(index)} is not the chunk that was written last")


def _with_checksum(numbers: np.ndarray) -> bytes:
    raw = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).tobytes()
    return raw + checksum_of(raw)


def read_json(path: Path) -> dict[str, Any]:
    """Read a description; raises ValueError if it is too large or no JSON object."""
    found = json.loads(path.read_bytes()) if path.stat().st_size <= _LARGEST_DESCRIPTION else None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not a description of at most {_LARGEST_DESCRIPTION:,} bytes")
    return found


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a description atomically; raises ValueError if it is too large."""
    raw = json.dumps(contents, indent=2).encode()
    if len(raw) > _LARGEST_DESCRIPTION:
        raise ValueError(f"{path} would have {len(raw):,} bytes, more than the {_LARGEST_DESCRIPTION:,} that are read")
    _write(path, raw)


def _write(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(raw)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
