"""Data: named sets for benchmarks and tests, and the reading of a user's own tables."""

from geodax.data.batches import Batches, Stream, batches, stream
from geodax.data.errors import ChecksumError, DataError, DownloadError, LicenceNotice, TableError
from geodax.data.shards import Shards, shards
from geodax.data.sources import Dataset, DatasetInfo, available, describe, fetch, load
from geodax.data.supervised import Standardisation, Supervised, supervised
from geodax.data.tables import Table, match_columns, read_table

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
    "Table",
    "TableError",
    "available",
    "batches",
    "describe",
    "fetch",
    "load",
    "match_columns",
    "read_table",
    "shards",
    "stream",
    "supervised",
]
