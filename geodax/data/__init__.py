"""Named data sets, batches, streams and shards."""

from typing import TYPE_CHECKING

from geodax._lazy import names_from

if TYPE_CHECKING:
    from geodax.data.catalogue import DatasetInfo, available, describe, fetch
    from geodax.data.errors import ChecksumError, DataError, DownloadError, LicenceNotice, TableError
    from geodax.data.loaders import from_loader
    from geodax.data.minibatches import Batches, Stream, batches, stream
    from geodax.data.shard_files import Shards, shards
    from geodax.data.sources import Dataset, load
    from geodax.data.supervised_sets import Standardisation, Supervised, supervised

# Loaded on first access: a list of the data sets needs no arrays.
__getattr__ = names_from(
    __name__,
    {
        "catalogue": ("DatasetInfo", "available", "describe", "fetch"),
        "errors": ("ChecksumError", "DataError", "DownloadError", "LicenceNotice", "TableError"),
        "loaders": ("from_loader",),
        "minibatches": ("Batches", "Stream", "batches", "stream"),
        "shard_files": ("Shards", "shards"),
        "sources": ("Dataset", "load"),
        "supervised_sets": ("Standardisation", "Supervised", "supervised"),
    },
)

__all__ = [
    "Batches",
    "ChecksumError",
    "DataError",
    "Dataset",
    "DatasetInfo",
    "DownloadError",
    "LicenceNotice",
    "Shards",
    "Standardisation",
    "Stream",
    "Supervised",
    "TableError",
    "available",
    "batches",
    "describe",
    "fetch",
    "from_loader",
    "load",
    "shards",
    "stream",
    "supervised",
]
