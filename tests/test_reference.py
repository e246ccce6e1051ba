"""The reference in docs/api.md: it has every public name, and nothing that is not there."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import geodax as gx

API = Path(__file__).resolve().parents[1] / "docs" / "api.md"
DIRECTIVE = re.compile(
    r"^\.\. (?P<kind>autoclass|autofunction|autoexception|autodata|automodule|function):: (?P<path>[\w.]+)\n"
    r"(?P<options>(?:   :.*\n)*)",
    re.MULTILINE,
)
OPTIONAL = {"geodax.interop.pymc": "pymc"}  # rooms that need a companion which may not be installed


def resolve(path: str):
    """What a dotted path names."""
    first, *names = path.split(".")
    found, so_far = importlib.import_module(first), first
    for name in names:
        so_far = f"{so_far}.{name}"
        found = getattr(found, name) if hasattr(found, name) else importlib.import_module(so_far)
    return found


def is_missing(path: str) -> bool:
    return any(path.startswith(room) and not importlib.util.find_spec(needed) for room, needed in OPTIONAL.items())


def documented() -> dict[str, object]:
    """Every object of the page, by its path."""
    found = {}
    for match in DIRECTIVE.finditer(API.read_text(encoding="utf-8")):
        kind, path, options = match["kind"], match["path"], match["options"]
        if is_missing(path):
            continue
        found[path] = importlib.import_module(path) if kind == "automodule" else resolve(path)
        members = re.search(r":members:(.*)", options)
        if kind == "automodule" and members:
            room = found[path]
            names = [name.strip() for name in members[1].split(",") if name.strip()]
            if not names:
                names = [n for n in getattr(room, "__all__", vars(room)) if not n.startswith("_")]
            for name in names:
                found[f"{path}.{name}"] = getattr(room, name)
    return found


@pytest.fixture(scope="module")
def page():
    return documented()


ROOMS = ["", ".nn", ".vi", ".metrics", ".transforms", ".distributions", ".models", ".data"]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_in_the_reference(room, page):
    module = getattr(gx, room[1:]) if room else gx
    there = {id(thing) for thing in page.values()}
    missing = [name for name in public(module) if id(getattr(module, name)) not in there]
    assert not missing, f"docs/api.md lacks gx{room}: {', '.join(missing)}"


def public(module) -> list[str]:
    """Names that a room offers, but for other rooms and what another library made."""
    if hasattr(module, "__all__"):
        things = {name: getattr(module, name) for name in module.__all__}
    else:
        things = {name: thing for name, thing in vars(module).items() if not name.startswith("_")}
        things = {name: thing for name, thing in things.items() if thing_is_of(thing, module.__name__)}
    return [name for name, thing in things.items() if not inspect.ismodule(thing) and thing_is_of(thing, "geodax")]


def thing_is_of(thing, room: str) -> bool:
    return getattr(thing, "__module__", "geodax").startswith(room)


def test_the_page_was_understood(page):
    assert len(page) > 150
    assert page["geodax.hmc"] is gx.hmc
