"""Locate, verify and store the files of named data sets on disk.

Checksums apply to *contents*: `u.data`, `u.data.gz` and `u.data.xz` count as the same file, and the one found is
decompressed and compared with the same checksum. Files are looked up in the folder set by the environment variable
`GEODAX_DATA`, then in the user's cache folder.
"""

import gzip
import hashlib
import io
import lzma
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from geodax._files import replaced
from geodax.data.errors import ChecksumError, DataError
from geodax.data.registry import Source

_SHIPPED = Path(__file__).parent / "files"
_SUFFIXES = ("", ".gz", ".xz")


def _cache_folder() -> Path | None:
    if find_spec("pooch") is None:  # without pooch nothing can have been downloaded
        return None
    import pooch

    return Path(pooch.os_cache("geodax"))


def _roots() -> list[Path]:
    value = os.environ.get("GEODAX_DATA", "")
    given = Path(value).expanduser().resolve() if value else None
    if given is not None and not given.is_dir():
        raise DataError(f"GEODAX_DATA is set to {value!r}, which is not a folder: create it or unset the variable")
    return [root for root in (given, _cache_folder()) if root]


def find_file(source: Source, path: str) -> Path | None:
    """Return the path of a file of a set, plain or compressed, or None when it is not on disk."""
    roots = [_SHIPPED] if source.reader == "wine" else _roots()
    candidates = (root / (path + suffix) for root in roots for suffix in _SUFFIXES)
    return next((c for c in candidates if c.is_file()), None)


def locate(source: Source) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a set that are on disk, and the paths of the missing ones."""
    stand_ins = {p for group in source.either.values() for p in group}
    found: dict[str, Path] = {}
    missing = []
    for path in source.files:
        if path in stand_ins:
            continue
        wanted = [path]
        if path in source.either and not find_file(source, path):
            others = source.either[path]
            wanted = others if all(find_file(source, p) for p in others) else wanted
        for p in wanted:
            at = find_file(source, p)
            if at:
                found[p] = at
            else:
                missing.append(p)
    return found, missing


def digest_matches(data: bytes, pin: str) -> bool:
    """Return whether the bytes match the checksum in the registry."""
    algorithm, _, digest = pin.partition(":")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == digest


def verified(source: Source, path: str, raw: bytes, origin: object) -> bytes:
    """Return the contents of a plain or compressed file, or raise ChecksumError."""
    pin, size = source.files[path][:2]
    advice = f"delete it and fetch {source.name!r} again; the publisher's page is {source.url}"
    opener: Any = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open}.get(raw[:2])
    try:
        data = opener(io.BytesIO(raw)).read(size + 1) if opener else raw
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise ChecksumError(f"{origin} is damaged and cannot be unpacked ({error}): {advice}") from error
    if len(data) != size or not digest_matches(data, pin):
        length = f"{len(data):,}" if len(data) <= size else f"more than {size:,}"
        found = f"{size:,} other bytes" if len(data) == size else f"{length} bytes"
        raise ChecksumError(
            f"{origin} is not the published {path}: expected {size:,} bytes with {pin}, found {found}. "
            f"It is not used; {advice}"
        )
    return data


def destination() -> Path:
    """Return the first writable folder: that of `GEODAX_DATA`, or the cache."""
    roots = _roots()
    for root in roots:
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=root):
                return root
        except OSError:
            continue
    tried = ", ".join(map(str, roots)) or "none: the cache folder needs pooch, which is not installed"
    raise DataError(f"no writable folder found (tried {tried}): set GEODAX_DATA to a writable one")


def store(root: Path, path: str, raw: bytes) -> Path:
    """Write a file of a set under root atomically, with the suffix of its compression."""
    compressed = {b"\x1f\x8b": ".gz", b"\xfd7": ".xz"}.get(raw[:2], "")
    target = root / (path + compressed)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replaced(target) as partial:
        partial.write_bytes(raw)
    return target
