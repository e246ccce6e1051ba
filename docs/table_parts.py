"""Numbers and grids of the tables of the documentation."""


def figure(value: float | None) -> str:
    """Three digits, with commas, without an exponent."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1e}"


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
