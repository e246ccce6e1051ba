"""Peak memory of a run and of what is made of its draws, relative to the size of the draws.

Each part runs in a process of its own, with the draws asked for and with 200 of them; the difference of the two peaks
(resident set) over the bytes of the draws is the figure. *memory*: `gx.sample` without `store=`. *store*: with it. *stopped*: with it,
and an error in the middle. *summarize*: table and findings of the stored draws. *fit*, *report*, *predict*: the end of a fit of
`BayesianPCA`, and the commands, on a run folder of 200 columns and 4 components with draws put in its store.

    python benchmarks/memory.py [--draws 20000] [--numbers 1000] [--parts memory store stopped summarize fit report predict]

writes benchmarks/results/memory.json and prints the table.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
PARTS = ("memory", "store", "stopped", "summarize", "fit", "report", "predict")
CHAINS, FEW = 4, 200
COLUMNS, COMPONENTS = 200, 4


def sample(folder: Path, numbers: int, draws: int, *, is_stored: bool, is_stopped: bool = False):
    """Independent normal draws; their mean, so that something reads them."""
    from typing import Any, NamedTuple

    import jax
    import numpy as np

    import geodax as gx

    jax.config.update("jax_enable_x64", True)

    class State(NamedTuple):
        position: Any

    class Info(NamedTuple):
        potential: Any

    class Normal(NamedTuple):
        def init(self, position):
            return State(position)

        def step(self, rng_key, state):
            position = jax.random.normal(rng_key, state.position.shape, state.position.dtype)
            return State(position), Info((position**2).sum() / 2)

    def progress(news):
        if is_stopped and news.iteration > 0.9 * news.num_iterations:
            raise InterruptedError

    try:
        tree = gx.sample(
            jax.random.key(0),
            Normal(),
            np.zeros(numbers),
            num_samples=draws,
            num_chains=CHAINS,
            store=folder / "draws.zarr" if is_stored else None,
            progress=progress,
        )
    except InterruptedError as error:
        tree = error.draws  # type: ignore[attr-defined]
    variable = tree["posterior"]["position"]
    assert variable[:, -10:].values.std() > 0.9


def summarize(folder: Path):
    """The table and the findings of the stored draws."""
    from geodax.diagnostics.findings import check, summarize
    from geodax.run.draws import open_draws

    tree = open_draws(folder / "draws.zarr")
    summary = summarize(tree["posterior"], tree["sample_stats"])
    check(tree["posterior"], tree["sample_stats"], summary=summary)


def make_run(folder: Path, draws: int):
    """A run folder of a principal component analysis with draws that were not sampled."""
    import shutil

    import numpy as np

    from geodax.app.run_folder.actions import fit_run
    from geodax.models.pca.options import PCAOptions
    from geodax.run.draws import ZarrDraws

    generator = np.random.default_rng(0)
    np.save(folder / "table.npy", generator.normal(size=(200, COLUMNS)))
    fit_run(
        folder / "table.npy",
        PCAOptions(n_components=COMPONENTS, num_warmup=20, num_samples=10),
        folder / "run",
        progress=False,
    )
    store = folder / "run" / "posterior.zarr"
    shutil.rmtree(store)
    double = np.dtype("float64")
    shapes = {
        "posterior": {
            "mean": ((COLUMNS,), double),
            "scale": ((COMPONENTS,), double),
            "noise": ((), double),
            "components": ((COLUMNS, COMPONENTS), double),
        },
        "sample_stats": {"lp": ((), double), "diverging": ((), np.dtype("bool"))},
    }
    kept = ZarrDraws(store, shapes, CHAINS, draws)
    frame = np.linalg.qr(generator.normal(size=(COLUMNS, COMPONENTS)))[0]
    for start in range(0, draws, 500):
        size = (CHAINS, min(500, draws - start))
        near = frame + 0.02 * generator.normal(size=(*size, COLUMNS, COMPONENTS))
        posterior = {
            "mean": 0.1 * generator.normal(size=(*size, COLUMNS)),
            "scale": np.arange(COMPONENTS, 0, -1) + 0.1 * generator.normal(size=(*size, COMPONENTS)),
            "noise": 1 + 0.1 * generator.random(size),
            "components": np.linalg.qr(near)[0],
        }
        stats = {"lp": generator.normal(size=size), "diverging": np.zeros(size, bool)}
        kept.write(start, {"posterior": posterior, "sample_stats": stats})
    kept.describe({"sampling_seconds": 1.0, "compile_seconds": 1.0})


def of_run(folder: Path, part: str):
    """What the commands make of the run folder."""
    from geodax.app.families import FAMILIES, run_kind
    from geodax.app.run_folder import actions as folders
    from geodax.app.run_folder.files import read_config

    run = folder / "run"
    if part == "report":
        folders.report_run(run)
    elif part == "predict":
        folders.predict_run(run, folder / "table.npy")
    else:
        config = read_config(run, FAMILIES)
        kind = run_kind(config["model"])
        data = folders._data(run, kind, config)
        folders._result(run, config, data, folders._fitted(run, kind, config, data), ())


def child(part: str, folder: Path, numbers: int, draws: int) -> None:
    """One part; prints its peak memory in bytes."""
    if part in ("memory", "store", "stopped"):
        sample(folder, numbers, draws, is_stored=part != "memory", is_stopped=part == "stopped")
    elif part == "make":
        make_run(folder, draws)
    elif part == "summarize":
        summarize(folder)
    else:
        of_run(folder, part)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measured(part: str, folder: Path, numbers: int, draws: int) -> tuple[int, float]:
    """Peak memory and seconds of one part in a process of its own."""
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--child", part, str(folder), str(numbers), str(draws)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(found.stdout.split()[-1]), time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--numbers", type=int, default=1000)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--out", type=Path, default=RESULTS / "memory.json")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        part, folder, numbers, draws = args.child
        child(part, Path(folder), int(numbers), int(draws))
        return
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        few, many = (Path(temporary) / name for name in ("few", "many"))
        for folder, draws in ((few, FEW), (many, args.draws)):
            folder.mkdir()
            if set(args.parts) & {"fit", "report", "predict"}:
                measured("make", folder, args.numbers, draws)
            if "summarize" in args.parts and "store" not in args.parts:
                measured("store", folder, args.numbers, draws)
        for part in args.parts:
            numbers = (
                COLUMNS * (COMPONENTS + 1) + COMPONENTS + 1 if part in ("fit", "report", "predict") else args.numbers
            )
            size = CHAINS * args.draws * numbers * 8
            baseline, _ = measured(part, few, args.numbers, FEW)
            peak, seconds = measured(part, many, args.numbers, args.draws)
            rows.append(
                {
                    "part": part,
                    "chains": CHAINS,
                    "draws": args.draws,
                    "numbers": numbers,
                    "draw_bytes": size,
                    "peak_bytes": peak,
                    "baseline_bytes": baseline,
                    "relative": (peak - baseline) / size,
                    "seconds": seconds,
                    "load_average": os.getloadavg()[0],
                }
            )
            print(
                f"{part:10} {size / 1e6:8.0f} MB of draws  {(peak - baseline) / 1e6:8.0f} MB more at the peak  "
                f"{(peak - baseline) / size:6.2f}  {seconds:7.1f} s",
                flush=True,
            )
    from _versions import installed

    record = {
        "benchmark": "memory",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": installed("geodax", "jax", "numpy", "xarray"),
        "rows": rows,
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
