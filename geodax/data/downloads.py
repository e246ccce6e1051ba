"""Download named data sets from their publishers and verify them before storing."""

import lzma
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from geodax.data.errors import ChecksumError, DataError, DownloadError, LicenceNotice
from geodax.data.registry import Source
from geodax.data.stored_files import destination, find_file, locate, store, verified

_MAX_UNPACKED = 2**30  # the largest archive in the registry unpacks to 0.2 GiB


def _check_members(members: Iterator[tuple[str, int, bool]], origin: str) -> None:
    total = 0
    for name, size, ordinary in members:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in name[:2] or not ordinary:
            raise ChecksumError(f"rejected: the archive from {origin} contains {name!r}, a link or a path outside it")
        total += size
        if total > _MAX_UNPACKED:
            raise ChecksumError(f"rejected: the archive from {origin} unpacks to more than {_MAX_UNPACKED:,} bytes")


def _unpack(archive: Path, kind: str, wanted: Mapping[str, int], origin: str) -> dict[str, bytes]:
    """Read the wanted members of a verified archive, matched by base name; nothing is extracted to disk."""
    by_name = {PurePosixPath(path).name: path for path in wanted}
    out: dict[str, bytes] = {}
    try:
        if kind == "zip":
            with zipfile.ZipFile(archive) as z:
                infos = z.infolist()
                regular = (0, 0o100000, 0o040000)  # unspecified, regular file, folder
                kinds = ((i.external_attr >> 16) & 0o170000 for i in infos)
                _check_members(
                    ((i.filename, i.file_size, k in regular) for i, k in zip(infos, kinds, strict=True)), origin
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
        raise ChecksumError(f"{origin} did not return a readable {kind} archive ({error})") from error
    lacking = sorted(set(wanted) - set(out))
    if lacking:
        raise ChecksumError(f"the archive from {origin} does not contain {', '.join(lacking)}")
    return out


def _download(source: Source, item: Mapping[str, Any], root: Path) -> None:
    """Download one file or archive from the first working address, verify it, and store its files under root."""
    paths = item.get("files") or list(source.files)
    if find_spec("pooch") is None:
        raise DownloadError(
            f"{source.name} is not under {root}, and pooch, which downloads it, is not installed: pip install pooch."
        )
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
        f"and put {places} (plain, .gz or .xz) under {root} or under the folder set in GEODAX_DATA."
    )


def _remade_splits(rows: int, splits: int) -> dict[str, bytes]:
    """Recompute the published split files: one seeded stream of permutations, 90 % for training."""
    import numpy as np  # a list of the data sets goes without

    stream = np.random.RandomState(1)
    out = {}
    for k in range(splits):
        order = stream.choice(range(rows), rows, replace=False)
        cut = round(0.9 * rows)
        for part, index in (("train", order[:cut]), ("test", order[cut:])):
            out[f"index_{part}_{k}.txt"] = "".join(f"{i}\n" for i in index).encode()
    return out


def _complete_uci(source: Source, missing: list[str], root: Path) -> None:
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
    """Return a set's files by registry path, downloading or recomputing missing ones."""
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
        raise DataError(f"{source.name}: missing {', '.join(missing)}. Reinstall geodax, or see {source.url}")
    return found
