"""Named data sets: what the registry pins, what is read, and what is refused."""

import gzip
import hashlib
import http.server
import io
import lzma
import tarfile
import threading
import zipfile
from functools import partial

import numpy as np
import pytest

from geodax.data import downloads, readers, registry, stored_files
from geodax.data.catalogue import available, describe, fetch
from geodax.data.errors import ChecksumError, DataError, DownloadError, LicenceNotice
from geodax.data.sources import load

CONTENTS = {"toy/alpha.txt": b"1 2\n3 4\n", "toy/beta.txt": b"5\n6\n"}


def toy(**changes):
    """A registry entry for two small files."""
    entry = registry.Source(
        name="toy",
        title="A toy",
        aliases=["plaything"],
        reader="toy",
        shape="2 x 2",
        licence="CC0",
        terms="",
        citation="Nobody (2000).",
        url="https://publisher.invalid/toy",
        feature_names=["a", "b"],
        class_names=[],
        notes=["A note."],
        either={},
        downloads=[],
        files={p: [f"sha256:{hashlib.sha256(c).hexdigest()}", len(c)] for p, c in CONTENTS.items()},
    )
    return entry._replace(**changes)


def read_toy(source, found, read):
    return {"features": np.loadtxt(io.BytesIO(read("toy/alpha.txt")))}, {}, []


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty GEODAX_DATA and an empty cache; returns a function that registers a toy set."""
    root = tmp_path / "data"
    root.mkdir()
    monkeypatch.setenv("GEODAX_DATA", str(root))
    monkeypatch.setattr(stored_files, "_cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setitem(readers.READERS, "toy", read_toy)

    def register(**changes):
        monkeypatch.setattr(registry, "entries", lambda: {"toy": toy(**changes)})
        return root

    return register


@pytest.fixture
def serve(tmp_path):
    """Serve a folder on this machine; yields the folder and its address."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def put(root, contents=CONTENTS):
    for path, data in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                archive.addfile(info)
            else:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


# --- names and the list


def test_names():
    names = available()
    assert {"wine", "mnist", "movielens-100k", "cifar10", "primary-school", "oil-flow"} <= set(names)
    assert sum(name.startswith("uci/") for name in names) == 9
    assert registry.entry("ml-100k").name == "movielens-100k"
    assert registry.entry("UCI/Yacht").name == registry.entry("yacht").name == "uci/yacht"
    assert registry.entry("primary_school").name == "primary-school"


def test_an_unknown_name_gets_the_nearest_and_the_list():
    with pytest.raises(DataError, match=r"named 'minst'; did you mean 'mnist'\? The sets are wine, mnist, "):
        load("minst")
    with pytest.raises(DataError, match=r"named 'zzzzzz'; The sets are wine"):
        fetch("zzzzzz")


def test_describe():
    rows = {row.name: row for row in describe()}
    assert tuple(rows) == available()
    assert rows["wine"].present
    assert rows["wine"].licence == "CC BY 4.0"
    assert "no redistribution" in rows["movielens-100k"].licence
    assert all(row.shape and row.url.startswith("http") and row.licence for row in rows.values())
    assert describe("wine") == [rows["wine"]]


def test_describe_tells_present_from_absent(place):
    root = place()
    assert [(row.present, row.where) for row in describe()] == [(False, "")]
    put(root)
    assert [(row.present, row.where) for row in describe()] == [(True, str(root / "toy"))]


def test_every_file_has_a_pin_and_a_way_to_it():
    for source in registry.entries().values():
        stand_ins = {path for group in source.either.values() for path in group}
        reachable = {p for item in source.downloads for p in item.get("files") or source.files}
        for path, (pin, size, *stored) in source.files.items():
            algorithm, digest = pin.split(":")
            assert len(digest) == {"sha256": 64, "md5": 32}[algorithm]
            assert size > 0
            assert all(s.startswith("sha256:") for s in stored)
            made = source.reader == "uci" and "data.txt" not in path
            assert path in reachable | stand_ins or made or source.name == "wine"
        assert source.reader in readers.READERS


# --- the shipped set


def test_wine():
    data = load("wine")
    assert data["features"].shape == (178, 13)
    assert data["features"].dtype == np.float64
    np.testing.assert_array_equal(np.bincount(data["labels"]), [59, 71, 48])
    assert len(data.feature_names) == 13
    assert data.class_names == ("cultivar 1", "cultivar 2", "cultivar 3")
    assert "C5PC7J" in data.citation
    np.testing.assert_allclose(data["features"][:, 0].mean(), 13.000618, atol=1e-6)
    assert [path.name for path in fetch("wine")] == ["wine.csv"]
    with pytest.raises(DataError, match="has no array 'feature'; it has features, labels"):
        data["feature"]
    with pytest.raises(DataError, match="no split 0: no splits are published"):
        data.split(0)
    assert "features" in data
    assert "targets" not in data
    assert list(data) == list(dict(data)) == ["features", "labels"]


# --- files on disk


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gz", "xz"])
def test_contents_are_verified_in_any_packing(place, pack):
    root = place()
    suffix = {bytes: "", gzip.compress: ".gz", lzma.compress: ".xz"}[pack]
    put(root, {path + suffix: pack(data) for path, data in CONTENTS.items()})
    data = load("plaything")
    np.testing.assert_array_equal(data["features"], [[1, 2], [3, 4]])
    assert data.notes == ("A note.",)
    assert fetch("toy") == [root / (path + suffix) for path in CONTENTS]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "alpha.txt",
            b"1 2\n3 5\n",
            r"expected 8 bytes with sha256:.*, found 8 other bytes\. It is not used; delete",
        ),
        ("alpha.txt", b"1 2\n", r"found 4 bytes"),
        ("alpha.txt", b"1 2\n3 4\n5 6\n", r"found more than 8 bytes|found 12 bytes"),
        ("alpha.txt.gz", gzip.compress(b"0" * 10**6, mtime=0), r"found more than 8 bytes"),
        ("alpha.txt.gz", gzip.compress(b"1 2\n3 4\n", mtime=0)[:-9], r"is damaged and cannot be unpacked"),
        ("alpha.txt.xz", b"\xfd7zXZ\0nonsense", r"is damaged and cannot be unpacked"),
    ],
)
def test_a_tampered_file_is_refused(place, name, content, message):
    root = place()
    put(root, {f"toy/{name}": content, "toy/beta.txt": CONTENTS["toy/beta.txt"]})
    for use in (load, fetch):
        with pytest.raises(ChecksumError, match=message) as caught:
            use("toy")
        assert name in str(caught.value)
        assert "https://publisher.invalid/toy" in str(caught.value)


def test_a_wrong_geodax_data_is_named(place, monkeypatch, tmp_path):
    place()
    monkeypatch.setenv("GEODAX_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"GEODAX_DATA is set to .*nowhere', which is not a folder: create it or unset"):
        load("toy")


def test_a_stand_in_is_used_only_when_the_file_itself_is_not_there(place):
    files = toy().files | {"toy/gamma.txt": toy().files["toy/alpha.txt"]}
    root = place(either={"toy/alpha.txt": ["toy/gamma.txt"]}, files=files)
    put(root, {"toy/gamma.txt": CONTENTS["toy/alpha.txt"], "toy/beta.txt": CONTENTS["toy/beta.txt"]})
    assert fetch("toy") == [root / "toy/gamma.txt", root / "toy/beta.txt"]
    put(root)
    assert fetch("toy") == [root / path for path in CONTENTS]


# --- downloads


@pytest.mark.parametrize(
    ("kind", "name", "make"),
    [
        ("zip", "toy.zip", lambda: zipped({f"deep/{p}": c for p, c in CONTENTS.items()} | {"other": b"x"})),
        (
            "tar",
            "toy.tar.gz",
            lambda: tarred({f"deep/{p}": c for p, c in CONTENTS.items()} | {"other": b"x"}),
        ),
    ],
)
def test_download_of_an_archive(place, serve, kind, name, make):
    folder, address = serve
    (folder / name).write_bytes(make())
    root = place(downloads=[{"kind": kind, "urls": [f"{address}/absent", f"{address}/{name}"]}])
    np.testing.assert_array_equal(load("toy")["features"], [[1, 2], [3, 4]])
    assert sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()) == sorted(CONTENTS)


def test_download_of_files_and_the_notice_of_their_terms(place, serve):
    folder, address = serve
    (folder / "a").write_bytes(gzip.compress(CONTENTS["toy/alpha.txt"]))
    (folder / "b").write_bytes(CONTENTS["toy/beta.txt"])
    digest = hashlib.sha256((folder / "a").read_bytes()).hexdigest()
    items = [
        {"kind": "file", "urls": [f"{address}/a"], "files": ["toy/alpha.txt"], "hash": f"sha256:{digest}"},
        {"kind": "file", "urls": [f"{address}/b"], "files": ["toy/beta.txt"]},
    ]
    root = place(downloads=items, terms="For research only.")
    with pytest.warns(LicenceNotice, match="For research only"):
        assert fetch("toy") == [root / "toy/alpha.txt.gz", root / "toy/beta.txt"]
    assert load("toy").notes == ("A note.", "For research only.")  # and no second warning


@pytest.mark.parametrize("pinned", [True, False], ids=["download pinned", "contents pinned"])
def test_a_download_with_a_wrong_checksum_is_refused(place, serve, pinned):
    folder, address = serve
    (folder / "toy.zip").write_bytes(zipped({"alpha.txt": b"1 2\n3 5\n", "beta.txt": b"5\n6\n"}))
    item = {"kind": "zip", "urls": [f"{address}/toy.zip"]} | ({"hash": "sha256:" + "0" * 64} if pinned else {})
    root = place(downloads=[item])
    with pytest.raises(DownloadError, match=r"hash|expected 8 bytes") as caught:
        load("toy")
    message = str(caught.value)
    assert f"{address}/toy.zip" in message
    assert "Get it by hand from https://publisher.invalid/toy and put toy/alpha.txt, toy/beta.txt" in message
    assert str(root) in message
    assert not list(root.iterdir())


def test_without_network_the_way_out_is_said(place):
    place(downloads=[{"kind": "zip", "urls": ["http://127.0.0.1:9/toy.zip"]}])
    with pytest.raises(DownloadError, match=r"(?s)could not be downloaded.*127\.0\.0\.1:9/toy\.zip.*Get it by hand"):
        load("toy")


@pytest.mark.parametrize(
    ("kind", "members", "message"),
    [
        ("tar", {"../alpha.txt": b"x"}, r"contains '\.\./alpha\.txt', a link or a path outside it"),
        ("tar", {"/etc/alpha.txt": b"x"}, r"contains '/etc/alpha\.txt'"),
        ("tar", {"alpha.txt": "/etc/passwd"}, r"contains 'alpha\.txt', a link"),
        ("zip", {"a/../../alpha.txt": b"x"}, r"a path outside it"),
        ("zip", {"..\\alpha.txt": b"x"}, r"a path outside it"),
        ("zip", {"C:alpha.txt": b"x"}, r"a path outside it"),
        ("zip", {"gamma.txt": b"x"}, r"does not contain toy/alpha\.txt, toy/beta\.txt"),
        ("tar", None, r"did not return a readable tar archive"),
        ("zip", None, r"did not return a readable zip archive"),
    ],
)
def test_a_bad_archive_is_refused(place, serve, kind, members, message):
    folder, address = serve
    data = b"<html>moved</html>" if members is None else (tarred if kind == "tar" else zipped)(members)
    (folder / "toy").write_bytes(data)
    root = place(downloads=[{"kind": kind, "urls": [f"{address}/toy"]}])
    with pytest.raises(DownloadError, match=message):
        fetch("toy")
    assert not list(root.iterdir())


def test_a_zip_link_and_a_huge_archive_are_refused(tmp_path, monkeypatch):
    info = zipfile.ZipInfo("alpha.txt")
    info.external_attr = 0o120777 << 16
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(ChecksumError, match="a link"):
        downloads._unpack(path, "zip", {"alpha.txt": 4}, "here")
    monkeypatch.setattr(downloads, "_MAX_UNPACKED", 10)
    for kind, make in (("zip", zipped), ("tar", tarred)):
        path.write_bytes(make({"alpha.txt": b"0" * 11}))
        with pytest.raises(ChecksumError, match="unpacks to more than 10 bytes"):
            downloads._unpack(path, kind, {"alpha.txt": 11}, "here")


def test_the_cache_is_used_when_geodax_data_is_unset(place, serve, monkeypatch, tmp_path):
    folder, address = serve
    (folder / "toy.zip").write_bytes(zipped(CONTENTS))
    place(downloads=[{"kind": "zip", "urls": [f"{address}/toy.zip"]}])
    monkeypatch.delenv("GEODAX_DATA")
    assert fetch("toy") == [tmp_path / "cache" / path for path in CONTENTS]


# --- the real files


@pytest.mark.usefixtures("geodax_data")
@pytest.mark.parametrize("name", available())
def test_every_real_file_is_the_published_one(name):
    assert len(fetch(name)) >= 1


def test_the_registry_agrees_with_the_checksums_beside_the_files(geodax_data):
    listing = geodax_data / "SHA256SUMS"
    if not listing.is_file():
        pytest.skip(f"{listing} does not exist")
    pins = {line[66:]: "sha256:" + line[:64] for line in listing.read_text().splitlines()}
    known = {}
    for source in registry.entries().values():
        known |= source.files
    for path, pin in pins.items():
        base = path.removesuffix(".gz").removesuffix(".xz")
        assert known[base][0 if base == path else 2] == pin


@pytest.mark.usefixtures("geodax_data")
@pytest.mark.parametrize("name", [n for n in available() if n.startswith("uci/")])
def test_uci(name):
    data = load(name)
    rows, width = data["features"].shape
    assert len(data.feature_names) == width
    assert data["targets"].shape == (rows,)
    assert f"{rows:,} x {width}" in describe(name)[0].shape
    for k in data.splits:
        train, test = data.split(k)
        assert len(train) == round(0.9 * rows)
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(rows))
    with pytest.raises(DataError, match=r"has no split 99: its splits are 0, 1"):
        data.split(99)


def test_uci_splits_are_remade_when_only_the_data_are_there(geodax_data, monkeypatch, tmp_path):
    expected = load("uci/yacht")
    root = tmp_path / "data"
    monkeypatch.setattr(stored_files, "_cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setenv("GEODAX_DATA", str(root))
    put(root, {"uci/yacht/data.txt": (geodax_data / "uci/yacht/data.txt").read_bytes()})
    data = load("uci/yacht")
    for k, (train, test) in expected.splits.items():
        np.testing.assert_array_equal(data.split(k)[0], train)
        np.testing.assert_array_equal(data.split(k)[1], test)
    assert (root / "uci/yacht/index_train_19.txt").is_file()


@pytest.mark.usefixtures("geodax_data")
def test_mnist():
    data = load("mnist")
    assert data["train_images"].shape == (60_000, 28, 28)
    assert data["test_images"].shape == (10_000, 28, 28)
    assert data["train_images"].dtype == np.uint8
    np.testing.assert_array_equal(data["train_labels"][:5], [5, 0, 4, 1, 9])
    np.testing.assert_allclose(data["train_images"].mean() / 255, 0.1307, atol=5e-5)


@pytest.mark.usefixtures("geodax_data")
def test_movielens():
    data = load("ml-100k")
    assert data["ratings"].shape == (100_000,)
    assert (data["users"].min(), data["users"].max()) == (0, 942)
    assert (data["items"].min(), data["items"].max()) == (0, 1681)
    assert data["item_titles"][0] == "Toy Story (1995)"
    assert data["item_genres"].shape == (1682, 19)
    for k, size in (("u1", 80_000), ("u5", 80_000), ("ua", 90_570)):
        train, test = data.split(k)
        assert len(train) == size
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(100_000))
    assert any("no redistribution" in note for note in data.notes)


@pytest.mark.slow
@pytest.mark.usefixtures("geodax_data")
def test_cifar10():
    data = load("cifar10")
    means = data["train_images"].mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.49139968, 0.48215841, 0.44653091], atol=1e-8)
    np.testing.assert_array_equal(np.bincount(data["train_labels"]), np.full(10, 5000))
    if len(data["test_labels"]) == 9980:
        assert any("9,980" in note for note in data.notes)
        assert data["test_missing"].shape == (20,)
    else:
        assert data["test_images"].shape == (10_000, 32, 32, 3)


@pytest.mark.usefixtures("geodax_data")
def test_primary_school():
    data = load("primary-school")
    counts = data["adjacency"]
    np.testing.assert_array_equal(counts, counts.T)
    assert counts.shape == (242, 242)
    assert np.triu(counts).sum() == 125_773
    assert (np.triu(counts) > 0).sum() == 8_317
    assert dict(zip(*np.unique(data["groups"], return_counts=True), strict=True))["Teachers"] == 10


@pytest.mark.usefixtures("geodax_data")
@pytest.mark.parametrize(
    ("name", "shape", "counts"),
    [
        ("eeg-eye-state", (14_980, 14), [8257, 6723]),
        ("magic", (19_020, 10), [12_332, 6688]),
        ("letter", (20_000, 16), None),
    ],
)
def test_labelled_sets(name, shape, counts):
    data = load(name)
    assert data["features"].shape == shape
    assert len(data.feature_names) == shape[1]
    found = np.bincount(data["labels"])
    assert len(found) == len(data.class_names)
    if counts:
        np.testing.assert_array_equal(found, counts)


@pytest.mark.usefixtures("geodax_data")
def test_oil_flow():
    data = load("oil-flow")
    for part in ("train", "validation", "test"):
        assert data[f"{part}_features"].shape == (1000, 12)
        assert data[f"{part}_fractions"].shape == (1000, 2)
        assert len(np.bincount(data[f"{part}_labels"])) == 3
