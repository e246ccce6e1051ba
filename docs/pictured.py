"""Sphinx extension: pictures that are made when the documentation is built.

Each script of `docs/gallery` writes one picture to the path that it is given. A page shows it where it says
`<!-- picture: NAME -->`. A set that does not ship is read from the folder that `GEODAX_DATA` names; where it is not
there, the page says so and the build goes on. Any other failure stops it. A picture is made again when its script, or a record that
the script reads, has changed.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from sphinx.errors import ExtensionError

PLACE = re.compile(r"^<!-- picture: ([\w-]+) -->$", re.MULTILINE)
RECORD = re.compile(r"^from experiments\.(\w+)\.(\w+) import EXPERIMENT$", re.MULTILINE)
NEEDS_DATA = re.compile(r'gx\.data\.load\("([\w-]+)"\)')
SHIPPED = {"wine"}
ABSENT = re.compile(r"^geodax\.data\.errors\.(DownloadError|LicenceNotice)", re.MULTILINE)


def missing(script: str) -> str | None:
    """Name of the data set that a script needs and that is not on this machine."""
    names = sorted(set(NEEDS_DATA.findall(script)) - SHIPPED)
    return names[0] if names and not os.environ.get("GEODAX_DATA") else None


def picture(app, name: str) -> Path | None:
    """The path of a picture, made if need be; None if its data are not there."""
    root = Path(app.srcdir).parent
    path = Path(app.srcdir) / "gallery" / f"{name}.py"
    script = path.read_text(encoding="utf-8")
    if missing(script):
        return None
    content = script.encode()
    for paper, experiment in RECORD.findall(script):
        content += (root / "experiments" / "results" / paper / f"{experiment}.json").read_bytes()
    folder = Path(app.srcdir) / "_build" / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.png"
    if not made.exists():
        process = subprocess.run(
            [sys.executable, str(path), str(made)],
            cwd=folder,
            env=os.environ | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "agg", "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode and ABSENT.search(process.stderr):
            return None
        if process.returncode:
            raise ExtensionError(f"gallery/{name}.py: {process.stderr}")
    return made


def insert_pictures(app, name: str, source: list[str]) -> None:
    """Put pictures where a page that has just been read wants them."""

    def shown(match: re.Match) -> str:
        made = picture(app, match[1])
        if made is None:
            return "*This copy of the documentation was built without the data of this picture (`GEODAX_DATA`).*"
        return f"![]({os.path.relpath(made, (Path(app.srcdir) / name).parent)})"

    source[0] = PLACE.sub(shown, source[0])


def setup(app):
    """Connect to Sphinx."""
    app.connect("source-read", insert_pictures)
    return {"parallel_read_safe": True}
