"""Time and memory of fit, report and predict as tables grow in rows and in columns.

Each case is a run folder of its own, made by the functions behind `geodax fit`, `report` and `predict` from a .npy file, each step in a
process of its own with a fixed, small number of iterations: the figures are about growth, not about the time of a whole fit.
*Seconds* are those of the processor, without the imports; *memory* is the peak of the resident set. The table in docs/costs.md also has
the slope of log seconds over log size between the two largest sizes; 1 is linear. A case that is on file is left as it is.

    python benchmarks/growth.py [--models pca regressor ...] [--most-rows 1000000] [--most-columns 3000] [--seconds 900] [--again]

writes benchmarks/results/growth.json after each case; --again measures what is on file once more.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _versions import installed

RESULTS = Path(__file__).parent / "results" / "growth.json"
ROWS, COLUMNS = (1_000, 10_000, 100_000, 1_000_000), (10, 100, 1_000, 3_000)
FEW_COLUMNS, FEW_ROWS = 10, 1_000
MODELS = ("pca", "classifier", "regressor", "factorization")
STEPS = ("fit", "report", "predict")
ITERATIONS = {"num_warmup": 50, "num_samples": 50, "num_chains": 2}


def cases(model: str, most_rows: int, most_columns: int) -> list[tuple[int, int]]:
    """Sizes: rows grow with few columns, then columns with few rows; ratings have no more columns than three."""
    sizes = [(rows, FEW_COLUMNS) for rows in ROWS if rows <= most_rows]
    if model != "factorization":
        sizes += [(FEW_ROWS, columns) for columns in COLUMNS[1:] if columns <= most_columns]
    return sizes


def table(model: str, rows: int, columns: int) -> np.ndarray:
    """Two components and noise; the last column is the target. Of ratings, a hundred a user."""
    generator = np.random.default_rng(0)
    if model == "factorization":
        users, items = max(rows // 100, 10), 500
        pairs = np.unique(np.stack([generator.integers(0, users, rows), generator.integers(0, items, rows)], 1), axis=0)
        effects = generator.standard_normal(users)[pairs[:, 0]] + generator.standard_normal(items)[pairs[:, 1]]
        ratings = np.clip(np.round(3 + 0.7 * effects + 0.5 * generator.standard_normal(len(pairs))), 1, 5)
        return np.column_stack([pairs, ratings])
    scores = generator.standard_normal((rows, 2)) * [2.0, 1.2]
    values = scores @ generator.standard_normal((2, columns)) + generator.standard_normal((rows, columns))
    if model == "classifier":
        values[:, -1] = values[:, -1] > 0
    return values


def step(what: str, model: str, folder: Path) -> dict[str, float]:
    """One step, in this process."""
    import resource

    from geodax.app.families import FAMILIES
    from geodax.app.run_folder import actions as folders

    target = {"target": "y"} if model in ("classifier", "regressor") else {}
    given = {"n_components": 2} if model == "pca" else {"thinning": 1} | target
    if model == "factorization":
        given = {"thinning": 1, "user": "user", "item": "item", "rating": "rating"}
    options = FAMILIES[model].options(**given, **ITERATIONS)
    wall, processor = time.perf_counter(), time.process_time()
    if what == "fit":
        folders.fit_run(folder / "table.npz", options, folder / "run", progress=False)
    elif what == "report":
        folders.report_run(folder / "run")
    else:
        folders.predict_run(folder / "run", folder / "table.npz")
    return {
        "seconds": time.process_time() - processor,
        "wall_seconds": time.perf_counter() - wall,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def write_table(model: str, rows: int, columns: int, path: Path) -> None:
    values = table(model, rows, columns)
    if model == "factorization":
        named = dict(zip(("user", "item", "rating"), values.T.astype(int), strict=True))
    else:
        named = {f"x{j}": column for j, column in enumerate(values.T)}
        if model in ("classifier", "regressor"):
            named["y"] = named.pop(f"x{columns - 1}")
            named["y"] = named["y"].astype(int) if model == "classifier" else named["y"]
    np.savez(path, **named)


def measure(model: str, rows: int, columns: int, seconds: float) -> dict:
    """All steps of one size, each in a process of its own."""
    found: dict = {"model": model, "rows": rows, "columns": columns}
    with tempfile.TemporaryDirectory() as name:
        write_table(model, rows, columns, Path(name) / "table.npz")
        for what in STEPS:
            command = [sys.executable, __file__, "--step", what, model, name]
            try:
                process = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
            except subprocess.TimeoutExpired:
                found[what] = {"stopped_after": seconds}
                break
            if process.returncode:
                found[what] = {"error": process.stderr.strip().splitlines()[-1]}
                break
            found[what] = json.loads(process.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--most-rows", type=int, default=ROWS[-1])
    parser.add_argument("--most-columns", type=int, default=COLUMNS[-1])
    parser.add_argument("--seconds", type=float, default=900.0, help="after which a step is stopped")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--step", nargs=3, metavar=("WHAT", "MODEL", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        what, model, folder = options.step
        print(json.dumps(step(what, model, Path(folder))))
        return
    facts = json.loads(options.out.read_text()) if options.out.exists() else {"benchmark": "growth", "rows": []}
    for model in options.models:
        for rows, columns in cases(model, options.most_rows, options.most_columns):
            key = (model, rows, columns)
            known = [row for row in facts["rows"] if (row["model"], row["rows"], row["columns"]) == key]
            if known and not options.again:
                continue
            found = measure(model, rows, columns, options.seconds)
            found["load"] = round(os.getloadavg()[0], 1)
            facts["rows"] = [row for row in facts["rows"] if row not in known] + [found]
            facts["config"] = ITERATIONS
            facts["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
            facts["versions"] = installed("jax", "numpy")
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
