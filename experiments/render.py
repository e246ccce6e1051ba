"""Write every table and picture of the experiments into the documentation, from the committed records alone.

    python -m experiments.render            # rewrites the tables in docs/*.md and the pictures in docs/pictures/
    python -m experiments.render --check    # fails if a table in the documentation is not that of the record

A page holds a table between two comments,

    <!-- table: orthogonal_hmc/table_1_2 settings -->
    <!-- end of table -->

(``reproduction PAPER`` is the list of a paper's tables and figures with the state of each, :mod:`experiments.reproduction`),
and shows a picture as ``pictures/orthogonal_hmc/table_1_2-NAME.png``. A picture that no page shows is not made.
"""

import argparse
import dataclasses
import importlib
import json
import re
import sys
from pathlib import Path

from experiments.common.experiment import RESULTS, Experiment, Record, load, path_of, write_atomically
from experiments.reproduction import overview

ROOT = Path(__file__).resolve().parent
DOCS = ROOT.parent / "docs"
_TABLE = re.compile(r"(<!-- table: (\S+) (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def experiments() -> dict[str, Experiment]:
    """Every experiment, by name: the modules of the papers' folders that hold an ``EXPERIMENT``."""
    found = {}
    for path in sorted(ROOT.glob("*/*.py")):
        if path.parent.name != "common":
            module = importlib.import_module(f"experiments.{path.parent.name}.{path.stem}")
            if hasattr(module, "EXPERIMENT"):
                found[module.EXPERIMENT.name] = module.EXPERIMENT
    return found


def with_tables(page: str, known: dict[str, Experiment], results: Path = RESULTS) -> str:
    """A page with its tables made anew.

    Args:
        page: Markdown with marked places for tables.
        known: Experiments by name.
        results: Folder of the records.

    Returns:
        The page.

    Raises:
        LookupError: If a place names an experiment or a table that does not exist.
    """

    def fill(place: re.Match) -> str:
        opening, name, table, closing = place.groups()
        if name == "reproduction":
            return f"{opening}\n{overview(table, known, results)}\n{closing}"
        if name not in known or table not in known[name].tables:
            tables = sorted(known[name].tables) if name in known else sorted(known)
            raise LookupError(f"render: there is no table {name} {table}; there are {tables}.")
        return f"{opening}\n{known[name].tables[table](_record(known[name], results))}\n{closing}"

    return _TABLE.sub(fill, page)


def _record(experiment: Experiment, results: Path) -> Record:
    """What has been measured, which may be nothing yet."""
    if path_of(experiment, results).exists():
        return load(experiment, results)
    return Record(experiment.name, json.loads(json.dumps(dataclasses.asdict(experiment.config))), [])


def main(arguments: list[str] | None = None) -> int:
    """Render, or check; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the tables only, write nothing")
    options = parser.parse_args(arguments)
    known = experiments()
    stale, pages = [], ""
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text()
        made = with_tables(page, known)
        pages += made
        if made != page:
            stale.append(path.name)
            if not options.check:
                write_atomically(path, made)
    if options.check:
        print(f"tables that differ from their records: {stale}" if stale else "all tables are those of their records")
        return 1 if stale else 0
    for experiment in known.values():
        if path_of(experiment).exists():
            for name, picture in experiment.pictures.items():
                path = DOCS / "pictures" / f"{experiment.name}-{name}.png"
                if str(path.relative_to(DOCS)) not in pages:
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                picture(load(experiment)).savefig(path)
                print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main())
