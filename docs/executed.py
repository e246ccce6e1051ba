"""Sphinx extension: pages whose Python blocks are run when the documentation is built.

The blocks of a page named in ``executed_pages`` run one after the other, in one process of their own. What a block prints
follows it, and so do the pictures that it draws with pyplot or gives a name. The file itself keeps plain ``python`` blocks, so that it reads
well as it is, and the tests run it as every other page. A block that fails stops the build.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.errors import ExtensionError

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Runs the blocks of standard input; writes what each printed, and the names of its pictures, as JSON.
RUNNER = """
import contextlib, io, json, sys, traceback
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

blocks, prefix = json.load(sys.stdin)
found, names, shown = [], {"__name__": "__main__"}, []
for number, block in enumerate(blocks):
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"block {number + 1}", "exec"), names)
    except Exception:
        sys.exit(f"block {number + 1} failed:\\n{block}\\n{traceback.format_exc()}")
    pictures = []
    figures = list(map(plt.figure, plt.get_fignums()))
    figures += [value for value in names.values() if isinstance(value, Figure) and value not in figures + shown]
    shown += figures
    for figure in figures:
        pictures.append(f"{prefix}-{number + 1}-{len(pictures) + 1}.png")
        figure.savefig(pictures[-1], dpi=150, bbox_inches="tight")
    plt.close("all")
    found.append([printed.getvalue(), pictures])
json.dump(found, sys.stdout)
"""


def run_blocks(app, name: str, blocks: list[str]) -> list:
    """What each block printed, and the paths of its pictures."""
    folder = Path(app.srcdir) / "_build" / "executed"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as elsewhere:  # what the blocks write goes nowhere
        process = subprocess.run(
            [sys.executable, "-c", RUNNER],
            input=json.dumps([blocks, str(folder / name)]),
            cwd=elsewhere,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
    if process.returncode:
        raise ExtensionError(f"{name}: {process.stderr}")
    return json.loads(process.stdout)


def insert_outputs(app, name: str, source: list[str]) -> None:
    """Put outputs and pictures behind the blocks of a page that has just been read."""
    if name not in app.config.executed_pages:
        return
    results = iter(run_blocks(app, name, BLOCK.findall(source[0])))

    def extended(match: re.Match) -> str:
        printed, pictures = next(results)
        pieces = [match[0]]
        if printed.strip():
            pieces.append(f"```text\n{printed.rstrip()}\n```")
        pieces += [f"![]({os.path.relpath(picture, Path(app.srcdir))})" for picture in pictures]
        return "\n\n".join(pieces)

    source[0] = BLOCK.sub(extended, source[0])


def setup(app):
    """Connect to Sphinx."""
    app.add_config_value("executed_pages", [], "env")
    app.connect("source-read", insert_outputs)
    return {"parallel_read_safe": True}
