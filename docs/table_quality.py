"""Tables of docs/quality.md: methods on open tables, compared with geodax in pairs of held-out rows."""

import numpy as np
from table_parts import figure, grid

from geodax.predict import held_out
from geodax.predict.held_out import Score

OURS = "geodax"
PREFIX = "geodax, "  # of other options
LEAST_ERRORS = 2.0  # standard errors of a difference that is marked


def rmse(rows: list[dict]) -> Score:
    squares = joined(rows, "squared_errors")
    return held_out.root_mean_squared_error(np.sqrt(squares), np.zeros(len(squares)))


def log_score(rows: list[dict]) -> Score:
    return held_out.mean(joined(rows, "log_scores"))


def coverage(rows: list[dict]) -> Score:
    return held_out.proportion(joined(rows, "is_covered"))


def accuracy(rows: list[dict]) -> Score:
    return held_out.proportion(joined(rows, "is_right"))


def joined(rows: list[dict], key: str) -> np.ndarray:
    """A score of all held-out rows, in the order of the splits, so that methods can be compared in pairs."""
    return np.concatenate([row[key] for row in sorted(rows, key=lambda row: row["split"])])


def quality(score, key: str, *, sign: int = 1, scale: float = 1.0, digits: int = 3, is_compared: bool = True):
    """A renderer of one score for the tables that have it; sign is -1 if less is better."""

    def cell(rows: list[dict], ours: list[dict]) -> str:
        if not rows:
            return "–"
        found = score(rows)
        text = f"{scale * found.value:.{digits}f}"
        if rows is ours or not is_compared:
            return f"{text} ± {scale * found.error:.{digits}f}"
        splits = {row["split"] for row in rows} & {row["split"] for row in ours}
        pair = [score([row for row in side if row["split"] in splits]) for side in (rows, ours)]
        gap = pair[0].minus(pair[1])
        if abs(gap.value) <= LEAST_ERRORS * gap.error:
            return text
        return f"**{text}**" if sign * gap.value > 0 else f"{text} ↓"

    def render(facts: dict) -> list[str]:
        names = names_of(facts, key)
        found = grouped(facts, names)
        models = [m for m in models_of(facts) if not is_variant(m) and any(found[name, m] for name in names)]
        cells = {label(found[name, OURS]): [cell(found[name, m], found[name, OURS]) for m in models] for name in names}
        return grid("table: rows fitted x columns", models, cells)

    return render


def seconds(facts: dict) -> list[str]:
    names = names_of(facts, "seconds")
    found, models = grouped(facts, names), [m for m in models_of(facts) if not is_variant(m)]
    cells = {
        label(found[name, OURS]): [
            figure(float(np.mean([row["seconds"] for row in found[name, m]]))) if found[name, m] else "–"
            for m in models
        ]
        for name in names
    }
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return [*grid("seconds", models, cells), "", f"Seconds of the processor ({facts['machine']}; {versions})."]


def variants(facts: dict) -> list[str]:
    """Other options of geodax, as differences from the defaults on the same rows."""
    found, rows = grouped(facts, names_of(facts, "seconds")), {}
    for (name, model), theirs in found.items():
        if not is_variant(model) or not theirs:
            continue
        ours = [row for row in found[name, OURS] if row["split"] in {row["split"] for row in theirs}]
        score, scale = (rmse, 1) if "squared_errors" in theirs[0] else (accuracy, 100)
        gaps = [(scale, score(theirs).minus(score(ours))), (1, log_score(theirs).minus(log_score(ours)))]
        times = [figure(float(np.mean([row["seconds"] for row in side]))) for side in (theirs, ours)]
        cells = [f"{unit * gap.value:+.3f} ± {unit * gap.error:.3f}" for unit, gap in gaps]
        rows[f"{name}: {model.removeprefix(PREFIX)}"] = [*cells, f"{times[0]} ({times[1]})"]
    header = ["RMSE or % correct", "log score", "seconds (defaults)"]
    return grid("less the defaults", header, rows)


def is_variant(model: str) -> bool:
    return model.startswith(PREFIX)


def grouped(facts: dict, names: list[str]) -> dict:
    return {
        (name, m): [row for row in facts["rows"] if (row["table"], row["model"]) == (name, m)]
        for name in names
        for m in models_of(facts)
    }


def models_of(facts: dict) -> list[str]:
    return sorted({row["model"] for row in facts["rows"]}, key=lambda model: (not model.startswith(OURS), model))


def names_of(facts: dict, key: str) -> list[str]:
    """Tables with this score that geodax was fitted to, the smallest first."""
    rows = [row for row in facts["rows"] if row["model"] == OURS and key in row]
    return list(dict.fromkeys(row["table"] for row in sorted(rows, key=lambda row: row["fitted"])))


def label(rows: list[dict]) -> str:
    row = rows[0]
    splits = f", {len(rows)} splits" if len(rows) > 1 else ""
    return f"{row['table']}: {row['fitted']:,} x {row['columns']}{splits}"


TABLES = {
    "quality-rmse": ("tables_quality", quality(rmse, "squared_errors", sign=-1)),
    "quality-density": ("tables_quality", quality(log_score, "squared_errors", digits=2)),
    "quality-coverage": ("tables_quality", quality(coverage, "is_covered", scale=100, digits=0, is_compared=False)),
    "quality-accuracy": ("tables_quality", quality(accuracy, "is_right", scale=100, digits=1)),
    "quality-probability": ("tables_quality", quality(log_score, "is_right")),
    "quality-seconds": ("tables_quality", seconds),
    "quality-variants": ("tables_quality", variants),
}
