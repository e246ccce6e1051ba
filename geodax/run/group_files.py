"""What a draw store gains at the end of a run: further groups, and names and labels of the axes of its draws.

====================================  =============================================================================
``adaptation/NAME/zarr.json``         shape, data type and names of the axes of an array
``adaptation/NAME/c/0/0``             the whole array as one chunk, followed by its CRC-32C
``posterior/NAME/zarr.json``          names of the axes (``dimension_names``), here those of plates
``zarr.json``, ``geodax_labels``      labels of axes: group -> axis -> data type and list
====================================  =============================================================================

The checksums are in the record of the store. When a run goes on, it removes these groups and writes them again at its
end, so that they never describe other draws. Names and labels of axes stay.
"""

import dataclasses
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from geodax.run import hosts, zarr_files
from geodax.run.blocks import BlockArray, lazy
from geodax.run.errors import StorageError
from geodax.run.locks import beside, exclusive
from geodax.run.store_layouts import Chunked, Layout, array_description

GROUPS = ("adaptation", "observed_data", "log_likelihood")
LABELS = "geodax_labels"
_NUMBERS = tuple(kind for kind in zarr_files.KINDS if not kind.startswith("complex"))
_DATES = re.compile(r"datetime64\[(Y|M|W|D|h|m|s|ms|us|ns)\]")


@dataclasses.dataclass(frozen=True)
class Whole(Chunked):
    """Layout of an array that is one chunk."""

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    dimensions: tuple[str, ...]

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return self.shape

    def file(self, index: int) -> str:
        return "/".join([self.path, "c", *(str(index) for _ in self.shape)])

    def description(self) -> dict[str, Any]:
        """The contents of ``zarr.json`` of the array."""
        return array_description(self.shape, self.dtype, self.shape, self.dimensions)


def add_groups(folder: Path, groups: Mapping[str, xr.Dataset]) -> None:
    """Add groups to the store of a finished run; for its draws, add names and labels of their axes.

    Raises StorageError if they cannot be written; the draws are not changed.
    """
    try:
        facts, record = zarr_files.read_root(folder)
        layouts = zarr_files.read_layouts(folder)
        arrays = dict(record.arrays)
        for group in groups.keys() - set(zarr_files.GROUPS):
            arrays |= _write_group(folder, group, groups[group])
        named = {path: _with_axes(layout, groups) for path, layout in layouts.items()}
        if named != layouts:
            zarr_files.write_layouts(folder, named, record.num_draws)
        others = {group: labels for group, labels in facts.pop(LABELS, {}).items() if group not in groups}
        labels = others | labels_of(groups)
        facts |= {LABELS: labels} if labels else {}
        zarr_files.write_root(folder, facts, dataclasses.replace(record, arrays=arrays))
    except Exception as error:  # OSError of the disk, anything of damaged descriptions
        raise StorageError(
            f"The groups {sorted(groups)} could not be added to {folder}: {error}. The draws are there; make room and "
            "make the same call again, which resumes from its checkpoint."
        ) from error


def complete_store(store: str | Path | None, checkpoint: str | Path | None, groups: Mapping[str, xr.Dataset]) -> None:
    """Add groups to the store of a run of :func:`geodax.sample` that has ended; do nothing if it has none.

    ``store`` and ``checkpoint`` are the arguments of the run. Raises FolderInUseError if another run uses the folder,
    and StorageError if the groups cannot be written.
    """
    if store is not None:
        path = Path(store)
        lock = beside(path)
    elif checkpoint is not None:
        path, lock = Path(checkpoint) / "draws.zarr", Path(checkpoint) / "lock"
    else:
        return
    with exclusive(lock, path, "write draws to"):
        hosts.first_does(lambda: add_groups(path, groups), "add groups to the draws")


def read_groups(folder: Path, arrays: Mapping[str, str], num_draws: int | None) -> dict[str, xr.Dataset]:
    """Read the groups beside the draws, without labels; raises ValueError for arrays that geodax has not written.

    ``arrays`` are their checksums from the record. Of groups that have draws, the first ``num_draws`` are taken, by
    default all. The arrays are read on access.
    """
    variables: dict[str, dict[str, Any]] = {}
    for path, checksum in arrays.items():
        layout = _whole(folder, path)
        values: Any = np.zeros(layout.shape, layout.dtype)
        if math.prod(layout.shape):
            if zarr_files.last_checksum(folder, layout, 0) != checksum:
                raise ValueError(f"{layout.file(0)} is not the array that was written last")

            def whole(numbers: Any, layout: Whole = layout, checksum: str = checksum) -> np.ndarray:
                return zarr_files.checked_chunk(folder, layout, (checksum,), 0)

            values = lazy(BlockArray(layout.shape, layout.dtype, layout.shape, whole))
        group, _, name = path.partition("/")
        variables.setdefault(group, {})[name] = (layout.dimensions, values)
    return {group: _numbered(xr.Dataset(found), num_draws) for group, found in variables.items()}


def remove_groups(folder: Path) -> None:
    """Remove the groups beside the draws of a store, whose record must not name them any more."""
    for group in GROUPS:
        if (folder / group / "zarr.json").is_file():
            shutil.rmtree(folder / group)


def labels_of(groups: Mapping[str, xr.Dataset]) -> dict[str, Any]:
    """The labels of axes other than chain and draw as JSON: group -> axis -> data type and list.

    Raises TypeError for labels other than numbers, strings and dates.
    """
    found = {
        group: {str(axis): _encoded(axis, np.asarray(of[axis])) for axis in of.indexes if axis not in ("chain", "draw")}
        for group, of in groups.items()
    }
    return {group: labels for group, labels in found.items() if labels}


def with_labels(groups: Mapping[str, xr.Dataset], labels: Any) -> dict[str, xr.Dataset]:
    """Label the axes of datasets by the result of :func:`labels_of`; those of axes that a dataset lacks are left out.

    Raises ValueError, TypeError or OverflowError if they are not labels of these axes.
    """
    return {
        group: of.assign_coords(
            {axis: (axis, _decoded(each)) for axis, each in labels.get(group, {}).items() if axis in of.sizes}
        )
        for group, of in groups.items()
    }


def _write_group(folder: Path, group: str, contents: xr.Dataset) -> dict[str, str]:
    checksums = {}
    for name, variable in contents.data_vars.items():
        values = np.asarray(variable)
        if values.dtype.name not in zarr_files.KINDS:  # bfloat16, which NumPy lacks
            values = values.astype(np.float32)
        layout = Whole(f"{group}/{name}", values.shape, values.dtype, tuple(map(str, variable.dims)))
        checksums[layout.path] = zarr_files.write_chunk(folder, layout, 0, values) if values.size else ""
        zarr_files.write_json(folder / layout.path / "zarr.json", layout.description())
    zarr_files.write_group(folder / group)
    return checksums


def _with_axes(layout: Layout, groups: Mapping[str, xr.Dataset]) -> Layout:
    """The layout with the names of axes of the variable in a dataset, if that has it."""
    group, _, name = layout.path.partition("/")
    if group not in groups or name not in groups[group]:
        return layout
    return dataclasses.replace(layout, axes=tuple(map(str, groups[group][name].dims[2:])))


def _whole(folder: Path, path: str) -> Whole:
    """The layout of an array; its description must be one that geodax writes."""
    group, _, name = path.partition("/")
    if group in GROUPS and "/" not in name and name not in ("", ".", ".."):
        found = zarr_files.read_json(folder / path / "zarr.json")
        shape: Any = found.get("shape")
        is_shape = isinstance(shape, list) and all(type(k) is int and k >= 0 for k in shape)
        if is_shape and found.get("data_type") in zarr_files.KINDS:
            names = zarr_files.require_names(found.get("dimension_names"), len(shape))
            layout = Whole(path, tuple(shape), np.dtype(found["data_type"]), names)
            if found == layout.description():
                return layout
    raise ValueError(f"{path}/zarr.json is not a description that geodax writes: expected plain numbers in one chunk")


def _numbered(group: xr.Dataset, num_draws: int | None) -> xr.Dataset:
    if "draw" not in group.sizes:
        return group
    group = group.isel(draw=slice(num_draws))
    return group.assign_coords({axis: np.arange(group.sizes[axis]) for axis in ("chain", "draw")})


def _encoded(axis: Any, labels: np.ndarray) -> dict[str, Any]:
    kind, values = labels.dtype.name, labels.tolist()
    if kind in _NUMBERS:
        return {"data_type": kind, "values": values}
    if _DATES.fullmatch(kind):
        return {"data_type": kind, "values": labels.astype(np.int64).tolist()}
    if all(isinstance(each, str) for each in values):
        return {"data_type": "string", "values": values}
    raise TypeError(
        f"the labels of the axis {axis!r} are of type {kind}; a store holds numbers, strings and dates without a time "
        "zone. Convert them to strings, or leave out the store and the checkpoint."
    )


def _decoded(found: Mapping[str, Any]) -> np.ndarray:
    kind, values = found["data_type"], found["values"]
    if kind in _NUMBERS:
        return np.asarray(values, kind)
    if _DATES.fullmatch(kind):
        return np.asarray(values, np.int64).astype(kind)
    if kind == "string" and all(isinstance(each, str) for each in values):
        return np.asarray(values, str)
    raise ValueError(f"labels of type {kind!r} are not labels that geodax writes")
