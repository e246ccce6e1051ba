"""Named data sets, verified and read into NumPy arrays.

Every file's checksum is verified before use.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from geodax import _checks
from geodax.data import registry
from geodax.data.downloads import ensure
from geodax.data.errors import DataError
from geodax.data.readers import READERS
from geodax.data.stored_files import verified


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """A data set in memory, with its terms.

    Attributes:
        name: the name passed to `load`.
        arrays: the arrays by name; `dataset["features"]` is short for `dataset.arrays["features"]`.
        feature_names: names of the columns of `features`, where the publisher gives them.
        class_names: names of the integer labels, where there are classes.
        licence: the licence or terms, briefly.
        citation: what to cite.
        url: the publisher's page.
        notes: caveats for interpreting results, one sentence each.
        splits: train and test row indices by split name or number.
    """

    name: str
    arrays: Mapping[str, np.ndarray]
    feature_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    licence: str = ""
    citation: str = ""
    url: str = ""
    notes: tuple[str, ...] = ()
    splits: Mapping[int | str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def __getitem__(self, key: str) -> np.ndarray:
        if not isinstance(key, str) or key not in self.arrays:
            raise DataError(f"{self.name} has no array {_checks.described(key)}; it has {', '.join(self.arrays)}")
        return self.arrays[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def keys(self) -> Iterable[str]:
        """Names of the arrays, as those of a dictionary."""
        return self.arrays.keys()

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k}: {v.dtype} {v.shape}" for k, v in self.arrays.items())
        return f"Dataset({self.name!r}, {shapes})"

    def split(self, k: int | str = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the train and test row indices of published split `k`."""
        if not isinstance(k, int | str | np.integer) or k not in self.splits:
            known = ", ".join(repr(s) for s in self.splits)
            hint = f"its splits are {known}" if known else "no splits are published with it"
            raise DataError(f"{self.name} has no split {_checks.described(k)}: {hint}")
        return self.splits[k]


def load(name: str) -> Dataset:
    """Load a data set, downloading it if it is not on disk.

    Args:
        name: one of `available()`, or an alias such as `"ml-100k"`.

    Returns:
        The arrays with their names, splits, terms and notes.

    Raises:
        DataError: the name is unknown, no address returned a file, or a checksum differs.
    """
    source = registry.entry(name)
    found = ensure(source)

    def read(path: str) -> bytes:
        return verified(source, path, found[path].read_bytes(), found[path])

    arrays, splits, notes = READERS[source.reader](source, found, read)
    return Dataset(
        name=source.name,
        arrays=arrays,
        feature_names=tuple(source.feature_names),
        class_names=tuple(source.class_names),
        licence=source.licence,
        citation=source.citation,
        url=source.url,
        notes=(*source.notes, *notes, *([source.terms] if source.terms else [])),
        splits=splits,
    )
