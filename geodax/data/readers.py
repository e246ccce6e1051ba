"""Readers for the publishers' formats: from the verified bytes of a named set to arrays, splits and notes.

A reader takes the registry entry, the located files, and a function that returns the contents of a path.
Pickle files are never loaded.
"""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from geodax.data.registry import Source

_Read = Callable[[str], bytes]
_Splits = dict[int | str, tuple[np.ndarray, np.ndarray]]
_Parts = tuple[dict[str, np.ndarray], _Splits, list[str]]


def _numbers(data: bytes, dtype: Any = np.float64, delimiter: str | None = None) -> np.ndarray:
    return np.loadtxt(io.BytesIO(data), dtype=dtype, delimiter=delimiter)


def _rows(data: bytes, delimiter: str = ",") -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(data.decode("latin-1")), delimiter=delimiter) if row]


def _read_wine(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    rows = _rows(read("wine.csv"))[1:]
    labels = np.array([source.class_names.index(row[0]) for row in rows], dtype=np.int32)
    return {"features": np.array([row[1:] for row in rows], dtype=np.float64), "labels": labels}, {}, []


def _read_mnist(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    arrays = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images = read(f"mnist/{prefix}-images-idx3-ubyte")
        labels = read(f"mnist/{prefix}-labels-idx1-ubyte")
        arrays[f"{part}_images"] = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28).copy()
        arrays[f"{part}_labels"] = np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)
    return arrays, {}, []


def _read_cifar(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
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
            "The test set has 9,980 of the 10,000 published images: 19 ships and 1 horse are missing; their "
            "positions are in test_missing. Report '9,980 test images'; the effect on accuracy is at most "
            "0.2 percentage points."
        )
    return arrays, {}, notes


def _read_movielens(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
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
    splits: _Splits = {k: (positions(f"ml-100k/{k}.base"), positions(f"ml-100k/{k}.test")) for k in names}
    return arrays, splits, ["Users and items are numbered from 0; the publisher's files number them from 1."]


def _read_uci(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    data = _numbers(read(f"{source.name}/data.txt"))
    width = len(source.feature_names)
    number = sum("index_train" in path for path in source.files)
    splits: _Splits = {}
    for k in range(number):
        names = (f"{source.name}/index_{part}_{k}.txt" for part in ("train", "test"))
        train, test = (_numbers(read(path), np.int64) for path in names)
        splits[k] = (train, test)
    return {"features": data[:, :width], "targets": data[:, width]}, splits, []


def _read_labelled(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    path = next(p for p in source.files if p.endswith((".data", ".arff")))
    rows = [row for row in _rows(read(path)) if not row[0].startswith("@")]
    at = 0 if source.name == "letter" else -1
    codes = sorted({row[at] for row in rows})
    labels = np.array([codes.index(row[at]) for row in rows], dtype=np.int32)
    cells = [row[1:] if at == 0 else row[:-1] for row in rows]
    return {"features": np.array(cells, dtype=np.float64), "labels": labels}, {}, []


def _read_primary_school(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
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
    note = "adjacency counts the 20-second contacts of each pair; pairs holds indices into people."
    return arrays, {}, [note]


def _read_oil_flow(source: Source, found: Mapping[str, Path], read: _Read) -> _Parts:
    arrays = {}
    for part, stem in (("train", "DataTrn"), ("validation", "DataVdn"), ("test", "DataTst")):
        arrays[f"{part}_features"] = _numbers(read(f"oil-flow/{stem}.txt"))
        arrays[f"{part}_labels"] = _numbers(read(f"oil-flow/{stem}Lbls.txt")).argmax(axis=1).astype(np.int32)
        arrays[f"{part}_fractions"] = _numbers(read(f"oil-flow/{stem}Frctns.txt"))
    return arrays, {}, []


READERS: dict[str, Callable[[Source, Mapping[str, Path], _Read], _Parts]] = {
    "wine": _read_wine,
    "mnist": _read_mnist,
    "cifar": _read_cifar,
    "movielens": _read_movielens,
    "uci": _read_uci,
    "labelled": _read_labelled,
    "primary_school": _read_primary_school,
    "oil_flow": _read_oil_flow,
}
