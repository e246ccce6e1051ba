"""Zarr under ``python -O``.

Zarr takes ``node_type`` out of the metadata of a group in an assert statement, so that no group can be opened where
Python leaves asserts out. This module, which is imported there alone, takes it out before.
"""

from typing import Any

from zarr.core.group import GroupMetadata

_from_dict = GroupMetadata.from_dict.__func__


def _without_node_type(cls: type[GroupMetadata], data: dict[str, Any]) -> GroupMetadata:
    return _from_dict(cls, {name: value for name, value in data.items() if name != "node_type"})


GroupMetadata.from_dict = classmethod(_without_node_type)  # pyright: ignore[reportAttributeAccessIssue]
