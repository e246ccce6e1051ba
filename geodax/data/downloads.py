"""Downloads of named data sets: files and archives from their publishers, verified before they are kept."""

import lzma
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from geodax.data.errors import ChecksumError, DataError, DownloadError, LicenceNotice
from geodax.data.registry import Source
from geodax.data.stored_files import destination, find_file, locate, store, verified

_MAX_UNPACKED = 2**30  # the largest archive of the registry unpacks to 0.2 GiB


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


def _download(source: Source, item: Mapping[str, Any], root: Path) -> None:
    """Fetch one file or archive from the first address that gives it, verify it, put its files under root."""
    paths = item.get("files") or list(source.files)
    if find_spec("pooch") is None:
        raise DownloadError(f"{source.name} is not under {root}, and pooch, which downloads it, is not installed.")
    import pooch

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
                    verified(source, path, raw, f"what {url} gave for {path}")
                for path, raw in contents.items():
                    store(root, path, raw)
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


def _complete_uci(source: Source, missing: list[str], root: Path) -> None:
    """Write the small files beside `data.txt`, which follow from it; each is compared with its checksum."""
    data = find_file(source, f"{source.name}/data.txt")
    assert data is not None
    width = len(source.feature_names)
    text = verified(source, f"{source.name}/data.txt", data.read_bytes(), data)
    splits = sum("index_train" in path for path in source.files)
    files = _remade_splits(sum(bool(line.strip()) for line in text.splitlines()), splits)
    files["index_features.txt"] = "".join(f"{i}\n" for i in range(width)).encode()
    files["index_target.txt"] = f"{width}\n".encode()
    files["n_splits.txt"] = f"{splits}\n".encode()
    for path in missing:
        raw = files[PurePosixPath(path).name]
        store(root, path, verified(source, path, raw, f"the remade {path}"))


def ensure(source: Source) -> dict[str, Path]:
    """Return the files of a set by their paths in the registry, downloading or remaking those that are not here."""
    found, missing = locate(source)
    if missing:
        root = destination()
        wanted = [item for item in source.downloads if set(item.get("files") or source.files) & set(missing)]
        if wanted and source.terms:
            warnings.warn(source.terms, LicenceNotice, stacklevel=3)
        for item in wanted:
            _download(source, item, root)
        if source.reader == "uci":
            _complete_uci(source, locate(source)[1], root)
        found, missing = locate(source)
    if missing:
        raise DataError(f"{source.name} lacks {', '.join(missing)}: reinstall geodax, or see {source.url}")
    return found
