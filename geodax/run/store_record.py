"""The record in a draw store of what has been written to it."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import google_crc32c

CHECKSUM_BYTES = 4


def checksum_of(raw: Any) -> bytes:
    """The CRC-32C of bytes, as Zarr writes it after a chunk."""
    return google_crc32c.value(raw).to_bytes(CHECKSUM_BYTES, "little")


@dataclasses.dataclass(frozen=True)
class Record:
    """Record of what has been written to a store.

    Attributes:
        num_draws: Number of draws of each chain.
        checksums: The CRC-32C of the chunks of each variable, without those that may still change.
        arrays: The CRC-32C of the whole arrays of other groups, by group and name; of an empty array there is none.
    """

    num_draws: int
    checksums: Mapping[str, tuple[str, ...]]
    arrays: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        checksums = {path: " ".join(found) for path, found in self.checksums.items()}
        text = json.dumps({"num_draws": self.num_draws, "checksums": checksums, "arrays": dict(self.arrays)})
        return f"{checksum_of(text.encode()).hex()} {text}"

    @classmethod
    def parse(cls, text: Any) -> "Record":
        """Parse the text of a record; raises ValueError if it was changed."""
        digest, _, rest = str(text).partition(" ")
        if digest != checksum_of(rest.encode()).hex():
            raise ValueError(
                "zarr.json has no record of the draws, or one that was changed: the folder was not written by "
                "geodax, by an earlier version of it, or is damaged"
            )
        found = json.loads(rest)
        checksums = {path: tuple(each.split()) for path, each in found["checksums"].items()}
        return cls(int(found["num_draws"]), checksums, found.get("arrays", {}))
