"""Support Zarr under ``python -O``.

Zarr 3.1 removes ``node_type`` from the metadata of a group inside an assert statement, so no group can be opened when
Python disables asserts. This module removes it beforehand, and is imported only in that case.
"""

from typing import Any

from zarr.core.group import GroupMetadata

_from_dict = GroupMetadata.from_dict.__func__


def _without_node_type(cls: type[GroupMetadata], data: dict[str, Any], **options: Any) -> GroupMetadata:
    return _from_dict(cls, {name: value for name, value in data.items() if name != "node_type"}, **options)


GroupMetadata.from_dict = classmethod(_without_node_type)  # pyright: ignore[reportAttributeAccessIssue]
