"""Named data sets: found on disk or fetched from their publishers, verified, and read into NumPy arrays.

`registry.json` beside this file holds, for every set, its terms, its addresses and the checksum of every
file. A checksum is of a file's *contents*: `u.data`, `u.data.gz` and `u.data.xz` are one file to this module,
and whichever is found is unpacked and compared with the same pin. Files are looked for in the folder that the
environment variable `GEODAX_DATA` names, then in the cache folder of the user; what is in neither is
downloaded. No pickle is ever opened, and no file is used before its checksum has been compared.
"""

import csv
import difflib
import functools
import gzip
import hashlib
import io
import json
import lzma
import os
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

_HERE = Path(__file__).parent
_SUFFIXES = ("", ".gz", ".xz")
_MAX_UNPACKED = 2**30  # the largest archive of the registry unpacks to 0.2 GiB


class DataError(ValueError):
    """A data set cannot be had: an unknown name, a missing or damaged file."""


class ChecksumError(DataError):
    """A file is not the one that the registry pins."""


class DownloadError(DataError):
    """No address of a publisher gave the file."""


class LicenceNotice(UserWarning):
    """Said once when a set with restrictive terms is downloaded."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """A data set in memory, with its terms.

    Attributes:
        name: the name that `load` takes.
        arrays: the arrays by name; `dataset["features"]` is short for `dataset.arrays["features"]`.
        feature_names: names of the columns of `features`, where the publisher gives them.
        class_names: names of the integer labels, where there are classes.
        licence: licence or terms in a few words.
        citation: what to cite.
        url: the publisher's page.
        notes: what a reader of results should know, one sentence each.
        splits: train and test row numbers by the name or number of the split.
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
        """Return the array of that name."""
        if key not in self.arrays:
            raise DataError(f"{self.name} has no array {key!r}; it has {', '.join(self.arrays)}")
        return self.arrays[key]

    def __repr__(self) -> str:
        """Show the arrays by type and shape."""
        shapes = ", ".join(f"{k}: {v.dtype} {v.shape}" for k, v in self.arrays.items())
        return f"Dataset({self.name!r}, {shapes})"

    def split(self, k: int | str = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return the row numbers of the training and the test part of published split `k`."""
        if k not in self.splits:
            known = ", ".join(repr(s) for s in self.splits)
            hint = f"its splits are {known}" if known else "no splits are published with it"
            raise DataError(f"{self.name} has no split {k!r}: {hint}")
        return self.splits[k]


class DatasetInfo(NamedTuple):
    """One row of the list of data sets."""

    name: str
    title: str
    shape: str
    licence: str
    url: str
    present: bool
    where: str


class _Source(NamedTuple):
    """One entry of the registry; `files`: path to [checksum of contents, size, checksum as compressed]."""

    name: str
    title: str
    aliases: list[str]
    reader: str
    shape: str
    licence: str
    terms: str
    citation: str
    url: str
    feature_names: list[str]
    class_names: list[str]
    notes: list[str]
    either: dict[str, list[str]]
    downloads: list[dict[str, Any]]
    files: dict[str, list[Any]]


# --- names -------------------------------------------------------------------------------------------------


@functools.cache
def _registry() -> dict[str, _Source]:
    entries = json.loads((_HERE / "registry.json").read_text(encoding="utf-8"))
    return {name: _Source(name=name, **entry) for name, entry in entries.items()}


def _source(name: str) -> _Source:
    registry = _registry()
    known = {alias.casefold(): s for s in registry.values() for alias in (s.name, *s.aliases)}
    known |= {s.name.removeprefix("uci/").casefold(): s for s in registry.values()}
    key = str(name).strip().casefold().replace("_", "-")
    if key not in known:
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"; did you mean {known[near[0]].name!r}?" if near else ";"
        raise DataError(f"no data set is named {name!r}{hint} The sets are {', '.join(registry)}")
    return known[key]


def available() -> tuple[str, ...]:
    """Return the names that `load` and `fetch` take."""
    return tuple(_registry())


def describe(name: str | None = None) -> list[DatasetInfo]:
    """Return one row a data set (or the row of one): shape, licence, publisher, whether it is here and where.

    `present` says that the files exist; their checksums are compared when they are loaded or fetched.
    """
    rows = []
    for s in _registry().values() if name is None else [_source(name)]:
        found, missing = _locate(s)
        where = "" if missing else str(next(iter(found.values())).parent)
        rows.append(DatasetInfo(s.name, s.title, s.shape, s.licence, s.url, not missing, where))
    return rows


# --- files on disk -----------------------------------------------------------------------------------------


def _given_folder() -> Path | None:
    value = os.environ.get("GEODAX_DATA", "")
    if not value:
        return None
    root = Path(value).expanduser().resolve()
    if not root.is_dir():
        raise DataError(f"GEODAX_DATA names {value!r}, which is not a folder: create it or unset the variable")
    return root


def _cache_folder() -> Path:
    import pooch

    return Path(pooch.os_cache("geodax"))


def _find(source: _Source, path: str) -> Path | None:
    if source.reader == "wine":
        roots = [_HERE / "files"]
    else:
        roots = [root for root in (_given_folder(), _cache_folder()) if root]
    candidates = (root / (path + suffix) for root in roots for suffix in _SUFFIXES)
    return next((c for c in candidates if c.is_file()), None)


def _locate(source: _Source) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a set that are here, and the paths of those that are not."""
    stand_ins = {p for group in source.either.values() for p in group}
    found: dict[str, Path] = {}
    missing = []
    for path in source.files:
        if path in stand_ins:
            continue
        wanted = [path]
        if path in source.either and not _find(source, path):
            others = source.either[path]
            wanted = others if all(_find(source, p) for p in others) else wanted
        for p in wanted:
            at = _find(source, p)
            if at:
                found[p] = at
            else:
                missing.append(p)
    return found, missing


def _digest_matches(data: bytes, pin: str) -> bool:
    algorithm, _, digest = pin.partition(":")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == digest


def _verified(source: _Source, path: str, raw: bytes, origin: object) -> bytes:
    """Return the contents of a plain or compressed file, or refuse it."""
    pin, size = source.files[path][:2]
    advice = f"delete it and fetch {source.name!r} again; the publisher's page is {source.url}"
    opener: Any = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}.get(raw[:2])
    try:
        data = opener(io.BytesIO(raw)).read(size + 1) if opener else raw
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise ChecksumError(f"{origin} is damaged and cannot be unpacked ({error}): {advice}") from error
    if len(data) != size or not _digest_matches(data, pin):
        length = f"{len(data):,}" if len(data) <= size else f"more than {size:,}"
        found = f"{size:,} other bytes" if len(data) == size else f"{length} bytes"
        raise ChecksumError(
            f"{origin} is not the published {path}: expected {size:,} bytes with {pin}, found {found}. "
            f"It is not used; {advice}"
        )
    return data


# --- downloads ---------------------------------------------------------------------------------------------


def _destination() -> Path:
    roots = [root for root in (_given_folder(), _cache_folder()) if root]
    for root in roots:
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root):
                return root
        except OSError:
            continue
    tried = ", ".join(map(str, roots))
    raise DataError(f"no folder can be written to (tried {tried}): set GEODAX_DATA to one that can")


def _store(root: Path, path: str, raw: bytes) -> Path:
    compressed = {b"\x1f\x8b": ".gz", b"\xfd7": ".xz"}.get(raw[:2], "")
    target = root / (path + compressed)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
        part.write(raw)
    os.chmod(part.name, 0o644)
    os.replace(part.name, target)
    return target


def _check_members(members: Iterator[tuple[str, int, bool]], origin: str) -> None:
    total = 0
    for name, size, ordinary in members:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in name[:2] or not ordinary:
            raise ChecksumError(f"refused: the archive from {origin} holds {name!r}, a link or a path outside it")
        total += size
        if total > _MAX_UNPACKED:
            raise ChecksumError(f"refused: the archive from {origin} unpacks to over {_MAX_UNPACKED:,} bytes")


def _unpack(archive: Path, kind: str, wanted: Mapping[str, int], origin: str) -> dict[str, bytes]:
    """Read the wanted members, found by their last name, from a checked archive; extract nothing to disk."""
    by_name = {PurePosixPath(path).name: path for path in wanted}
    out: dict[str, bytes] = {}
    try:
        if kind == "zip":
            with zipfile.ZipFile(archive) as z:
                infos = z.infolist()
                regular = (0, 0o100000, 0o040000)  # no file type stated, a file, a folder
                kinds = ((i.external_attr >> 16) & 0o170000 for i in infos)
                _check_members(
                    ((i.filename, i.file_size, k in regular) for i, k in zip(infos, kinds, strict=True)),
                    origin,
                )
                for info in infos:
                    path = by_name.get(PurePosixPath(info.filename).name)
                    if path and not info.is_dir():
                        with z.open(info) as member:
                            out[path] = member.read(wanted[path] + 1)
        else:
            with tarfile.open(archive, "r:*") as t:
                _check_members(((m.name, m.size, m.isreg() or m.isdir()) for m in t), origin)
                for entry in t.getmembers():
                    path = by_name.get(PurePosixPath(entry.name).name)
                    stream = t.extractfile(entry) if path and entry.isreg() else None
                    if path and stream:
                        out[path] = stream.read(wanted[path] + 1)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, RuntimeError) as error:
        raise ChecksumError(f"{origin} did not give a readable {kind} archive ({error})") from error
    lacking = sorted(set(wanted) - set(out))
    if lacking:
        raise ChecksumError(f"the archive from {origin} does not hold {', '.join(lacking)}")
    return out


def _download(source: _Source, item: Mapping[str, Any], root: Path) -> None:
    """Fetch one file or archive from the first address that gives it, verify it, put its files under root."""
    import pooch

    paths = item.get("files") or list(source.files)
    failures = []
    for url in item["urls"]:
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as folder:
            try:
                get: Any = pooch.HTTPDownloader(chunk_size=2**16, timeout=(10, 60))
                pin = item.get("hash")
                at = Path(pooch.retrieve(url, pin, fname="download", path=folder, downloader=get))
                if item["kind"] == "file":
                    contents = {paths[0]: at.read_bytes()}
                else:
                    contents = _unpack(at, item["kind"], {p: source.files[p][1] for p in paths}, url)
                for path, raw in contents.items():
                    _verified(source, path, raw, f"what {url} gave for {path}")
                for path, raw in contents.items():
                    _store(root, path, raw)
                return
            except DataError as error:
                failures.append(str(error))
            except (OSError, ValueError) as error:  # no connection, an HTTP error, a wrong checksum
                failures.append(f"{url}: {error}")
    places = ", ".join(paths[:4]) + (f" and {len(paths) - 4} more" if len(paths) > 4 else "")
    raise DownloadError(
        f"{source.name} could not be downloaded.\n  " + "\n  ".join(failures) + f"\nGet it by hand from {source.url} "
        f"and put {places} (plain, .gz or .xz) under {root} or under a folder that GEODAX_DATA names."
    )


def _remade_splits(rows: int, splits: int) -> dict[str, bytes]:
    """Remake the published split files: one seeded stream of permutations, 90 per cent for training."""
    stream = np.random.RandomState(1)
    out = {}
    for k in range(splits):
        order = stream.choice(range(rows), rows, replace=False)
        cut = round(0.9 * rows)
        for part, index in (("train", order[:cut]), ("test", order[cut:])):
            out[f"index_{part}_{k}.txt"] = "".join(f"{i}\n" for i in index).encode()
    return out


def _complete_uci(source: _Source, missing: list[str], root: Path) -> None:
    """Write the small files beside `data.txt`, which follow from it; each is compared with its checksum."""
    data = _find(source, f"{source.name}/data.txt")
    assert data is not None
    width = len(source.feature_names)
    text = _verified(source, f"{source.name}/data.txt", data.read_bytes(), data)
    splits = sum("index_train" in path for path in source.files)
    files = _remade_splits(sum(bool(line.strip()) for line in text.splitlines()), splits)
    files["index_features.txt"] = "".join(f"{i}\n" for i in range(width)).encode()
    files["index_target.txt"] = f"{width}\n".encode()
    files["n_splits.txt"] = f"{splits}\n".encode()
    for path in missing:
        raw = files[PurePosixPath(path).name]
        _store(root, path, _verified(source, path, raw, f"the remade {path}"))


def _ensure(source: _Source) -> dict[str, Path]:
    found, missing = _locate(source)
    if missing:
        root = _destination()
        wanted = [item for item in source.downloads if set(item.get("files") or source.files) & set(missing)]
        if wanted and source.terms:
            warnings.warn(source.terms, LicenceNotice, stacklevel=3)
        for item in wanted:
            _download(source, item, root)
        if source.reader == "uci":
            _complete_uci(source, _locate(source)[1], root)
        found, missing = _locate(source)
    if missing:
        raise DataError(f"{source.name} lacks {', '.join(missing)}: reinstall geodax, or see {source.url}")
    return found


def fetch(name: str) -> list[Path]:
    """Make sure that every file of a set is on disk and is the published one, downloading what is missing.

    Args:
        name: one of `available()`, or an alias such as `"ml-100k"`.

    Returns:
        The paths of the files.

    Raises:
        DataError: the name is unknown, no address gave a file, or a file is not the published one.
    """
    source = _source(name)
    found = _ensure(source)
    for path, at in found.items():
        raw = at.read_bytes()
        pins = source.files[path]
        if len(pins) < 3 or not _digest_matches(raw, pins[2]):
            _verified(source, path, raw, at)
    return list(found.values())


def load(name: str) -> Dataset:
    """Read a data set, downloading it when it is not on disk.

    Args:
        name: one of `available()`, or an alias such as `"ml-100k"`.

    Returns:
        The arrays with their names, splits, terms and notes.

    Raises:
        DataError: the name is unknown, no address gave a file, or a file is not the published one.
    """
    source = _source(name)
    found = _ensure(source)

    def read(path: str) -> bytes:
        return _verified(source, path, found[path].read_bytes(), found[path])

    arrays, splits, notes = _READERS[source.reader](source, found, read)
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


# --- readers -----------------------------------------------------------------------------------------------

_Read = Callable[[str], bytes]
_Parts = tuple[dict[str, np.ndarray], dict[int | str, tuple[np.ndarray, np.ndarray]], list[str]]


def _numbers(data: bytes, dtype: Any = np.float64, delimiter: str | None = None) -> np.ndarray:
    return np.loadtxt(io.BytesIO(data), dtype=dtype, delimiter=delimiter)


def _rows(data: bytes, delimiter: str = ",") -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(data.decode("latin-1")), delimiter=delimiter) if row]


def _read_wine(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    rows = _rows(read("wine.csv"))[1:]
    labels = np.array([source.class_names.index(row[0]) for row in rows], dtype=np.int32)
    return {"features": np.array([row[1:] for row in rows], dtype=np.float64), "labels": labels}, {}, []


def _read_mnist(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    arrays = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = read(f"mnist/{prefix}-images-idx3-ubyte")
        labels = read(f"mnist/{prefix}-labels-idx1-ubyte")
        arrays[f"{part}_images"] = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28).copy()
        arrays[f"{part}_labels"] = np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)
    return arrays, {}, []


def _read_cifar(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    test = "test_batch.bin" if "cifar10/test_batch.bin" in found else "test_batch_9980.bin"
    arrays = {}
    for part, names in (("train", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("test", [test])):
        raw = b"".join(read(f"cifar10/{name}") for name in names)
        records = np.frombuffer(raw, np.uint8).reshape(-1, 3073)
        planes = records[:, 1:].reshape(-1, 3, 32, 32)
        arrays[f"{part}_images"] = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        arrays[f"{part}_labels"] = records[:, 0].astype(np.int32)
    notes = []
    if test != "test_batch.bin":
        arrays["test_missing"] = _numbers(read("cifar10/test_batch_9980.missing.txt"), np.int64)
        notes.append(
            "The test set has 9,980 of the 10,000 published images: 19 ships and 1 horse are missing, whose "
            "positions are in test_missing. Say '9,980 test images' in a table; accuracy differs by at most "
            "0.2 percentage points."
        )
    return arrays, {}, notes


def _read_movielens(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    data = _numbers(read("ml-100k/u.data"), np.int64)
    keys = data[:, 0] * 10_000 + data[:, 1]
    order = np.argsort(keys)

    def positions(path: str) -> np.ndarray:
        part = _numbers(read(path), np.int64)
        return order[np.searchsorted(keys, part[:, 0] * 10_000 + part[:, 1], sorter=order)]

    films = _rows(read("ml-100k/u.item"), "|")
    people = _rows(read("ml-100k/u.user"), "|")
    arrays = {
        "users": (data[:, 0] - 1).astype(np.int32),
        "items": (data[:, 1] - 1).astype(np.int32),
        "ratings": data[:, 2].astype(np.float64),
        "timestamps": data[:, 3],
        "item_titles": np.array([film[1] for film in films]),
        "item_genres": np.array([film[5:] for film in films], dtype=np.int32),
        "genre_names": np.array([row[0] for row in _rows(read("ml-100k/u.genre"), "|")]),
        "user_ages": np.array([row[1] for row in people], dtype=np.int32),
        "user_genders": np.array([row[2] for row in people]),
        "user_occupations": np.array([row[3] for row in people]),
    }
    names = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
    splits: dict[int | str, tuple[np.ndarray, np.ndarray]] = {
        k: (positions(f"ml-100k/{k}.base"), positions(f"ml-100k/{k}.test")) for k in names
    }
    return arrays, splits, ["Users and items are counted from 0; the publisher's files count them from 1."]


def _read_uci(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    data = _numbers(read(f"{source.name}/data.txt"))
    width = len(source.feature_names)
    number = sum("index_train" in path for path in source.files)
    splits: dict[int | str, tuple[np.ndarray, np.ndarray]] = {}
    for k in range(number):
        names = (f"{source.name}/index_{part}_{k}.txt" for part in ("train", "test"))
        train, test = (_numbers(read(path), np.int64) for path in names)
        splits[k] = (train, test)
    return {"features": data[:, :width], "targets": data[:, width]}, splits, []


def _read_labelled(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    path = next(p for p in source.files if p.endswith((".data", ".arff")))
    rows = [row for row in _rows(read(path)) if not row[0].startswith("@")]
    at = 0 if source.name == "letter" else -1
    codes = sorted({row[at] for row in rows})
    labels = np.array([codes.index(row[at]) for row in rows], dtype=np.int32)
    cells = [row[1:] if at == 0 else row[:-1] for row in rows]
    return {"features": np.array(cells, dtype=np.float64), "labels": labels}, {}, []


def _read_primary_school(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    rows = _rows(read("primary-school/primaryschool.csv"), "\t")
    group = {int(row[k]): row[k + 2] for row in rows for k in (1, 2)}
    people = np.array(sorted(group), dtype=np.int64)
    pairs = np.searchsorted(people, np.array([row[1:3] for row in rows], dtype=np.int64))
    counts = np.zeros((len(people), len(people)), dtype=np.int32)
    np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1)
    arrays = {
        "adjacency": counts + counts.T,
        "times": np.array([row[0] for row in rows], dtype=np.int64),
        "pairs": pairs.astype(np.int32),
        "people": people,
        "groups": np.array([group[int(p)] for p in people]),
    }
    note = "adjacency counts the contacts of 20 seconds of each pair; pairs holds positions in people."
    return arrays, {}, [note]


def _read_oil_flow(source: _Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    arrays = {}
    for part, stem in (("train", "DataTrn"), ("validation", "DataVdn"), ("test", "DataTst")):
        arrays[f"{part}_features"] = _numbers(read(f"oil-flow/{stem}.txt"))
        arrays[f"{part}_labels"] = _numbers(read(f"oil-flow/{stem}Lbls.txt")).argmax(axis=1).astype(np.int32)
        arrays[f"{part}_fractions"] = _numbers(read(f"oil-flow/{stem}Frctns.txt"))
    return arrays, {}, []


_READERS: dict[str, Callable[[_Source, Mapping[str, Path], _Read], _Parts]] = {
    "wine": _read_wine,
    "mnist": _read_mnist,
    "cifar": _read_cifar,
    "movielens": _read_movielens,
    "uci": _read_uci,
    "labelled": _read_labelled,
    "primary_school": _read_primary_school,
    "oil_flow": _read_oil_flow,
}
