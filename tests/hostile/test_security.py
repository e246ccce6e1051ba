"""No pickle, no code from data, no path from a file, and archives that are checked before they are unpacked."""

import ast
import io
import tarfile
import tempfile
import zipfile
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from geodax.app.report.drawing import short
from geodax.app.tables.read import read_table
from geodax.data import ChecksumError, TableError, downloads
from tests.hostile import tables

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "geodax").rglob("*.py"))
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "shelve",
    "marshal",
    "subprocess",
    "pty",
    "code",
    "codeop",
    "runpy",
}
UNPACKING = {"read_pickle", "to_pickle", "extractall", "extract", "unpack_archive"}
ALLOWED = {("geometry/hadamard/native.py", "subprocess")}
"""The compiler that builds the Walsh-Hadamard kernel, on a source that ships with the package."""


def faults(path: Path) -> list[str]:
    """Calls and imports of a module that would run code from data."""
    name = path.relative_to(ROOT / "geodax").as_posix()
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            found.append(f"{name}:{node.lineno}: {node.func.id}(...)")
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module.split(".")[0] in FORBIDDEN_MODULES and (name, module) not in ALLOWED:
                found.append(f"{name}:{node.lineno}: import {module}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            if node.func.attr in UNPACKING or (of == "os" and node.func.attr in ("system", "popen")):
                found.append(f"{name}:{node.lineno}: {of}.{node.func.attr}(...)")
            if node.func.attr == "load" and of == "np":
                allows = {k.arg: k.value for k in node.keywords}.get("allow_pickle")
                if not (isinstance(allows, ast.Constant) and allows.value is False):
                    found.append(f"{name}:{node.lineno}: np.load without allow_pickle=False")
        is_switch = isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell")
        if is_switch and not (isinstance(node.value, ast.Constant) and node.value.value is False):
            found.append(f"{name}:{node.value.lineno}: {node.arg}")
    return found


def test_no_module_runs_code_from_data():
    assert [fault for path in MODULES for fault in faults(path)] == []


def test_the_search_finds_what_it_should(tmp_path, monkeypatch):
    """A search that cannot find anything finds nothing."""
    (tmp_path / "geodax").mkdir()
    path = tmp_path / "geodax" / "x.py"
    path.write_text(
        "import pickle\nfrom dill import loads\neval('1')\nnp.load(f)\nnp.load(f, allow_pickle="
        "True)\nz.extractall('.')\n"
    )
    monkeypatch.setattr("tests.hostile.test_security.ROOT", tmp_path)
    assert len(faults(path)) == 7


def _zip(*members: tuple[str, bytes, int]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, contents, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, contents)
    return stream.getvalue()


def _tar(*members: tuple[str, bytes, bytes, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, contents, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, len(contents)
            archive.addfile(info, io.BytesIO(contents))
    return stream.getvalue()


ARCHIVES = {
    "parent": ("zip", _zip(("../x", b"1", 0))),
    "parent in the middle": ("zip", _zip(("a/../../x", b"1", 0))),
    "absolute": ("zip", _zip(("/etc/x", b"1", 0))),
    "drive": ("zip", _zip(("C:/x", b"1", 0))),
    "backslashes": ("zip", _zip(("..\\x", b"1", 0))),
    "link": ("zip", _zip(("x", b"/etc/passwd", 0o120777))),
    "device": ("zip", _zip(("x", b"", 0o020666))),
    "bomb": ("zip", tables.bomb()),
    "tar: parent": ("tar", _tar(("../x", b"1", tarfile.REGTYPE, ""))),
    "tar: absolute": ("tar", _tar(("/x", b"1", tarfile.REGTYPE, ""))),
    "tar: symbolic link": ("tar", _tar(("x", b"", tarfile.SYMTYPE, "/etc/passwd"))),
    "tar: hard link": ("tar", _tar(("x", b"", tarfile.LNKTYPE, "../x"))),
    "tar: device": ("tar", _tar(("x", b"", tarfile.CHRTYPE, ""))),
    "tar: pipe": ("tar", _tar(("x", b"", tarfile.FIFOTYPE, ""))),
    "rubbish": ("zip", b"PK\x03\x04" + bytes(100)),
    "tar: rubbish": ("tar", b"\x1f\x8b" + bytes(100)),
    "empty": ("tar", b""),
}


@pytest.mark.parametrize("name", sorted(ARCHIVES))
def test_archives_are_checked_before_they_are_unpacked(name, tmp_path):
    """One bad member refuses the whole archive, and nothing is written."""
    kind, raw = ARCHIVES[name]
    archive = tmp_path / "archive"
    archive.write_bytes(raw)
    with pytest.raises(ChecksumError, match=r"rejected|readable|does not contain"):
        downloads._unpack(archive, kind, {"set/x": 10}, "a publisher")
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@hypothesis.settings(max_examples=25)
@hypothesis.given(
    name=st.one_of(st.sampled_from(tables.NAMES), st.text(min_size=1, max_size=30)), size=st.integers(0, 40)
)
def test_members_of_archives_are_read_and_never_placed(name, size):
    """Whatever a member is called: it is read into memory under the name of the registry, or refused."""
    try:
        raw = _zip((name, b"1" * size, 0), ("x", b"12", 0))
    except (ValueError, UnicodeEncodeError):
        hypothesis.reject()
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        archive.write_bytes(raw)
        try:
            found = downloads._unpack(archive, "zip", {"set/x": 10}, "a publisher")
        except ChecksumError:
            found = {"set/x": b""}
        assert set(found) == {"set/x"}
        assert len(found["set/x"]) <= 11
        assert [path.name for path in Path(folder).iterdir()] == ["archive"]


def test_a_packed_table_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("geodax.app.tables.text_files.LARGEST_UNPACKED", 10_000)
    import gzip

    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10_000))
    with pytest.raises(TableError, match="unpacks to more than"):
        read_table(path)


def test_an_archive_of_arrays_is_measured_by_its_directory(tmp_path):
    path = tmp_path / "x.npz"
    path.write_bytes(tables.bomb())
    with pytest.raises(TableError, match=r"unpacks to|damaged"):
        read_table(path)


@pytest.mark.parametrize("make", ["fifo", "device", "folder", "socket"])
def test_only_ordinary_files_are_read(make, tmp_path):
    """A pipe would be waited for, a device read for ever."""
    import os
    import socket

    path = tmp_path / "x.csv"
    if make == "fifo":
        os.mkfifo(path)
    elif make == "folder":
        path.mkdir()
    elif make == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(tmp_path) if len(str(path)) > 100 else None
            listening.bind(str(path))
    path = Path("/dev/zero") if make == "device" else path
    with pytest.raises(TableError, match=r"not a regular file|is a folder"):
        read_table(path)


def test_names_of_arrays_in_a_file_become_no_paths(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{"../y": np.arange(4.0), "/tmp/z": np.arange(4.0) ** 2})
    assert read_table(path).names == ("../y", "/tmp/z")
    assert [p.name for p in tmp_path.iterdir()] == ["x.npz"]


def test_names_beside_axes_have_no_control_characters():
    assert short("a\0b\x1b[31m\u202e") == "a b [31m"
