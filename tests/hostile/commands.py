"""Hostile use of the command line: words, options, files and run folders, and what becomes of a command."""

import contextlib
import dataclasses
import io
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from geodax.app import main
from geodax.app.families import FAMILIES, run_kind
from tests.hostile import tables
from tests.hostile.judge import TimeOver, Verdict, time_limit

GOOD_OPTIONS = {
    "pca": {"n_components": 1},
    "eigenmodel": {"rank": 1},
    "network": {"window": 1.0},
    "unit-network": {"target": "y", "n_hidden": 2},
    "cca": {"first_view": "a,b"},
    "classifier": {"target": "y"},
    "regressor": {"target": "y"},
    "factorization": {"rank": 1},
}

ABSURD = [
    "-1",
    "0",
    "1.5",
    "nan",
    "inf",
    "1e300",
    "-1e300",
    "9" * 400,
    "",
    "three",
    "None",
    "../x",
    "<script>",
    "é",
    "\u202e",
    "--",
    "x" * 20_000,
]


class Reading(NamedTuple):
    """A kind of run that reads a file."""

    kind: str
    raw: bytes
    ending: str

    def __call__(self) -> None:
        kind = run_kind(self.kind)
        with tempfile.TemporaryDirectory() as folder:
            path = tables.write(Path(folder), self.raw, self.ending)
            data, facts = kind.read(path, FAMILIES[kind.name].options(**GOOD_OPTIONS[self.kind]), None)
            json.dumps(facts)
            kind.save(Path(folder) / "data.npz", data)
            kind.describe(kind.load(Path(folder) / "data.npz"))

    def __repr__(self) -> str:
        return f"{self.kind} reads {self.raw[:200]!r}{self.ending}"


@st.composite
def readings(draw) -> Reading:
    """A kind of run and a file."""
    return Reading(draw(st.sampled_from(sorted(FAMILIES))), *draw(tables.contents()))


class Command(NamedTuple):
    """Words of the command line; `{folder}` stands for an empty folder, `{table}` for the file in it."""

    words: tuple[str, ...]
    raw: bytes = b"a,b,y\n1,2,0\n2,1,1\n4,3,0\n3,5,1\n5,2,1\n"
    ending: str = ".csv"

    def __call__(self) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            path = tables.write(Path(folder), self.raw, self.ending)
            return run([word.replace("{folder}", folder).replace("{table}", str(path)) for word in self.words])

    def __repr__(self) -> str:
        return f"{' '.join(word[:40] for word in self.words)} on {self.raw[:120]!r}{self.ending}"


def run(words: list[str]) -> Verdict:
    """Run a command in this process and judge what a user sees of it."""
    said, complained = io.StringIO(), io.StringIO()
    try:
        with (
            time_limit(),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(complained),
        ):
            warnings.simplefilter("ignore")
            code = main(words)
    except SystemExit as end:
        code = end.code
    except TimeOver:
        return Verdict("hangs")
    except BaseException as error:
        return Verdict("traceback", type(error).__name__, str(error)[:300])
    return judged(code, said.getvalue(), complained.getvalue())


def judged(code: object, said: str, complained: str) -> Verdict:
    """What an exit code with its words is worth."""
    if "Traceback (most recent call last)" in said + complained:
        return Verdict("traceback", f"exit {code}", complained[-300:])
    if code in (0, None):
        return Verdict("works")
    if code == 3:
        return Verdict("error that is not explained", "exit 3", complained[:400])
    if code not in (1, 2) or len((said + complained).strip()) < 10:
        return Verdict("exit code or message that means nothing", f"exit {code}", complained[:300])
    if "Traced<" in complained or "XlaRuntimeError" in complained:
        return Verdict("message from inside JAX", f"exit {code}", complained[:300])
    return Verdict("refused", f"exit {code}", complained)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


@st.composite
def absurd_fits(draw) -> Command:
    """A fit with an option that cannot be meant, beside few iterations, in case that it is taken."""
    kind = draw(st.sampled_from(sorted(FAMILIES)))
    fields = sorted(field.name for field in dataclasses.fields(FAMILIES[kind].options))
    given = {_option(name): str(value) for name, value in GOOD_OPTIONS[kind].items()}
    for name in ("num_warmup", "num_samples", "num_chains"):
        given[_option(name)] = "2"
    # the first one is refused by every kind: these cases are about words, not about sampling
    given["--num-samples"] = draw(st.sampled_from(["-1", "0", "nan", "1.5", "", "many", "1e300", "9" * 400]))
    for name in draw(st.lists(st.sampled_from([*fields, "seed", "columns", "no_such_option"]), max_size=3)):
        given.setdefault(_option(name), draw(st.sampled_from(ABSURD)))
    words = [
        "fit",
        kind,
        "{table}",
        "--out",
        draw(st.sampled_from(["{folder}/run", "{table}", "{folder}", "{table}/x"])),
    ]
    return Command((*words, *(word for pair in given.items() for word in pair), "--no-progress"))


@st.composite
def odd_words(draw) -> Command:
    """Words that are no command, or a command on something that is not there or not of its kind."""
    path = st.sampled_from(
        [
            "{table}",
            "{folder}",
            "{folder}/none",
            "",
            "/dev/null",
            "/dev/zero",
            "\0",
            "x" * 5000,
            "~",
            "--",
            "-",
            "{table}/x",
            "*",
        ]
    )
    form = draw(st.integers(0, 5))
    if form == 0:
        return Command(
            tuple(
                draw(
                    st.lists(
                        st.sampled_from([*ABSURD, "fit", "report", "predict", "data", "list", "pca", "--out", "-h"]),
                        max_size=4,
                    )
                )
            )
        )
    if form == 1:
        return Command((draw(st.sampled_from(["report", "resume"])), draw(path)))
    if form == 2:
        return Command(("predict", draw(path), draw(path)))
    if form == 3:
        return Command((draw(st.sampled_from(["citation", "data fetch"])).split()[0], draw(st.sampled_from(ABSURD))))
    if form == 4:
        return Command(("data", "fetch", draw(st.sampled_from(ABSURD))))
    kind = draw(st.sampled_from(sorted(FAMILIES)))
    return Command(("fit", kind, draw(path.filter(lambda p: p != "{table}")), "--out", "{folder}/run", "--no-progress"))


@st.composite
def odd_folders(draw) -> Callable[[], Verdict]:
    """A command on a folder whose config.json is not what a fit writes."""
    good = {
        "format": 1,
        "model": "pca",
        "options": {},
        "seed": 0,
        "file": "x",
        "sha256": "",
        "notes": [],
        "columns": ["a"],
        "created": "",
        "versions": {},
    }
    kind = draw(st.integers(0, 3))
    if kind == 0:
        raw = draw(st.binary(max_size=60))
    elif kind == 1:
        raw = json.dumps(
            draw(st.sampled_from([[], 1, "x", None, {}, {"format": 1}, {"format": 2, "model": "pca"}]))
        ).encode()
    elif kind == 2:
        raw = b"[" * 100_000
    else:
        name = draw(st.sampled_from(sorted(good)))
        raw = json.dumps(
            good | {name: draw(st.sampled_from([None, "x", -1, [], {}, {"../x": 1}, "../../etc", 1e300]))}
        ).encode()
    command = draw(st.sampled_from(["report", "resume", "predict"]))
    is_full = draw(st.booleans())

    def case() -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_bytes(raw)
            if is_full:
                (Path(folder) / "data.npz").write_bytes(tables.SPECIAL["npz of odd names"][0])
            words = [command, folder] + ([os.devnull] if command == "predict" else [])
            return run(words)

    return case
