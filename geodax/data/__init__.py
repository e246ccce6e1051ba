"""Named data sets, batches, streams and shards."""

from geodax.data.batches import Batches, Stream, batches, stream
from geodax.data.errors import ChecksumError, DataError, DownloadError, LicenceNotice, TableError
from geodax.data.loaders import from_loader
from geodax.data.shards import Shards, shards
from geodax.data.sources import Dataset, DatasetInfo, available, describe, fetch, load
from geodax.data.supervised import Standardisation, Supervised, supervised

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
