"""Writes the tables of the documentation from the figures in benchmarks/results, so that none is typed by hand.

    python docs/tables.py            rewrites the blocks between <!-- table: NAME --> and <!-- end of table --> in docs/*.md
    python docs/tables.py --check    changes nothing; fails if a block is not what the figures say

Run it after a benchmark. A figure that is not on file yet is a dash.
"""

import argparse
import json
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def figure(value: float | None) -> str:
    """Three digits, with commas, without an exponent."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.1e}"


def grid(corner: str, columns: list[str], rows: dict[str, list[str]]) -> list[str]:
    return [
        f"| {corner} | {' | '.join(columns)} |",
        f"|{'---|' * (len(columns) + 1)}",
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()),
    ]


def by_size(facts: dict, corner: str, cell) -> list[str]:
    """A table of samplers and sizes."""
    sizes = list(dict.fromkeys((row["n"], row["p"]) for row in facts["rows"]))
    names = list(dict.fromkeys(row["sampler"] for row in facts["rows"]))
    found = {(row["sampler"], row["n"], row["p"]): cell(row) for row in facts["rows"]}
    return grid(corner, [str(s) for s in sizes], {m: [found.get((m, *s), "–") for s in sizes] for m in names})


def conditions(facts: dict) -> list[str]:
    """How the figures were taken."""
    config = facts["config"]
    versions = ", ".join(f"{name} {found}" for name, found in facts["versions"].items() if found)
    left_out = facts.get("left_out", {})
    return [
        "",
        f"Medians of {config['repeats']} repeats of {config['draws']:,} draws ({facts['machine']}; {versions})."
        + "".join(f" Left out: {name} ({reason})." for name, reason in left_out.items())
        + (f" {config['note']}" if config.get("note") else ""),
    ]


def stiefel_speed(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        text = f"{figure(row['min_ess_per_second'])} ({figure(row['min_ess_per_1000_gradients'])})"
        return text if row.get("agrees", True) else f"~~{text}~~ wrong"

    corner = "smallest bulk ESS a second (per 1,000 gradients)"
    return by_size(facts, corner, cell) + conditions(facts)


def stiefel_with_warmup(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        return f"{figure(row.get('min_ess_per_second_with_warmup'))} ({figure(row['compile_seconds'])})"

    return by_size(facts, "smallest bulk ESS a second, warm-up included (seconds to compile)", cell)


def stiefel_cost(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        return figure(1000 * row["seconds_per_1000_gradients"])

    return by_size(facts, "microseconds a gradient", cell)


def stiefel_truth(facts: dict) -> list[str]:
    def cell(row: dict) -> str:
        if "agrees" not in row:
            return "–"
        numbers = " / ".join(
            "–" if row[k] is None else f"{abs(row[k]):.1f}" for k in ("entries", "logdensity", "identity")
        )
        return numbers if row["agrees"] else f"**{numbers}**"

    return by_size(facts, "errors in standard errors: E[X] / E[log π] / identity", cell)


def many_chains(facts: dict) -> list[str]:
    numbers = list(dict.fromkeys(row["chains"] for row in facts["rows"]))
    rows: dict[str, list[str]] = {}
    for row in facts["rows"]:
        name = f"`{row['sampler']}`, ({row['n']}, {row['p']})"
        rows.setdefault(name, []).append(figure(row["relative_to_first"]))
    return grid("gradients a second, relative to one chain", [f"{c} chain{'s' * (c > 1)}" for c in numbers], rows)


def many_chains_ess(facts: dict) -> list[str]:
    rows = facts.get("ess_rows", [])
    sizes = list(dict.fromkeys((row["n"], row["p"]) for row in rows))
    found = {(row["sampler"], row["n"], row["p"]): row for row in rows}

    def cells(sampler: str, key: str) -> list[str]:
        return [figure(found[sampler, *size][key]) for size in sizes]

    def ratio(key: str) -> list[str]:
        return [figure(found["hmc", *size][key] / found["nuts", *size][key]) for size in sizes]

    def columns(key: str, name: str) -> dict[str, list[str]]:
        return {f"`{s}`, {name}": cells(s, key) for s in ("hmc", "nuts")} | {f"ratio, {name}": ratio(key)}

    lines = (
        columns("min_ess_per_second", "a second")
        | columns("min_ess_per_second_with_warmup", "a second, warm-up counted")
        | columns("min_ess_per_1000_gradients", "per 1,000 gradients")
    )
    return grid("smallest bulk ESS of 64 chains in all", [str(s) for s in sizes], lines)


TABLES = {
    "stiefel-speed": ("stiefel", stiefel_speed),
    "stiefel-with-warmup": ("stiefel", stiefel_with_warmup),
    "stiefel-cost": ("stiefel", stiefel_cost),
    "stiefel-truth": ("stiefel", stiefel_truth),
    "many-chains": ("many_chains", many_chains),
    "many-chains-ess": ("many_chains", many_chains_ess),
}


def rendered(text: str) -> str:
    """A page with its tables as the figures say."""

    def block(found: re.Match) -> str:
        name = found[2]
        if name not in TABLES:
            raise SystemExit(f"tables.py: no table is called {name!r}; there are {', '.join(TABLES)}.")
        source, render = TABLES[name]
        lines = render(json.loads((RESULTS / f"{source}.json").read_text(encoding="utf-8")))
        return "\n".join([found[1], *lines, "", found[3]])

    return BLOCK.sub(block, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = rendered(text)
        if new != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    if options.check and stale:
        raise SystemExit(f"Tables differ from benchmarks/results in {', '.join(stale)}; run python docs/tables.py.")


if __name__ == "__main__":
    main()
