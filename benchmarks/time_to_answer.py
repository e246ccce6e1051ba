"""Time to the answer: a whole process, from its start to the draws, with imports, compilation and warm-up.

Each program is what a user would write: 4 chains of 500 + 1,000 iterations of NUTS in float64, by geodax on the manifold, by NumPyro,
BlackJAX and Stan in an unconstrained matrix whose polar factor is the frame, by PyMC with nutpie through a Cholesky factor. It runs
twice: *cold* with no compiled program on disk, and *again* with what the program itself left there. Programs that are not installed
are left out; all need ``pip install -e '.[bench]'``.

Targets: a matrix Langevin-Bingham density on 10 x 3 frames; PCA of the wine data with three components; an eigenmodel of a simulated
network of 40 nodes; eight schools without centring. ``z`` is the largest difference of a posterior mean of the observed quantities
from that of a long run, in standard errors.

    python benchmarks/time_to_answer.py [--targets matrix schools] [--programs geodax] [--repeats 3] [--quick]

writes benchmarks/results/time_to_answer.json (rows that are not run are kept) and prints the rows. Seconds are of the processor, and
of the clock; both are medians.
"""

import argparse
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "time_to_answer.json"
CHAINS, WARMUP = 4, 500
TARGETS = ("matrix", "pca", "eigenmodel", "schools")
# The library of each program, and the module of its function.
PROGRAMS = {
    "geodax": ("geodax", "jax_programs"),
    "numpyro": ("numpyro", "jax_programs"),
    "blackjax": ("blackjax", "jax_programs"),
    "nutpie": ("nutpie", "pymc_programs"),
    "stan": ("stan", "stan_programs"),
}


def child(options) -> None:
    """One program on one target; the observed draws go to a file."""
    import numpy as np

    (program,) = options.programs
    run = getattr(importlib.import_module(f"_answers.{PROGRAMS[program][1]}"), f"by_{program}")
    np.save(options.out, np.asarray(run(options.targets[0], CHAINS, WARMUP, options.draws)))


def timed(name: str, program: str, folder: Path, options) -> tuple[float, float, Path]:
    """Seconds of the processor and of the clock of a new process, and its file."""
    out = folder / f"{name}-{program}.npy"
    words = ["--child", "--targets", name, "--programs", program, "--draws", str(options.draws), "--out", str(out)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(folder), "PYTENSOR_FLAGS": f"base_compiledir={folder}"}
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, *words], env=environment, stderr=subprocess.PIPE)
    error = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise RuntimeError(f"{program} on {name}: {error.decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, seconds, out


def reference(name: str, quick: bool) -> dict[str, list[float]]:
    """Means of a long run of 64 chains of our HMC, with their standard errors."""
    import numpy as np
    from _answers.jax_programs import sampled, target_of

    from geodax.diagnostics.convergence import ess

    draws = sampled(target_of(name), "hmc", 7, 64, WARMUP, 200 if quick else 3000)
    error = draws.std((0, 1)) / np.sqrt(ess(draws, method="mean"))
    return {"mean": draws.mean((0, 1)).tolist(), "standard_error": error.tolist()}


def row_of(name: str, program: str, truth: dict, options) -> dict:
    import numpy as np

    from geodax.diagnostics.convergence import ess

    cold, again = [], []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(timed(name, program, Path(folder), options)[:2])
            *seconds, out = timed(name, program, Path(folder), options)
            again.append(seconds)
            draws = np.load(out)
    error = draws.std((0, 1)) / np.sqrt(ess(draws, method="mean"))
    z = np.abs(draws.mean((0, 1)) - truth["mean"]) / np.hypot(error, truth["standard_error"])
    found = {"target": name, "program": program, "min_ess": float(ess(draws).min()), "z": float(z.max())}
    for when, pairs in (("cold", cold), ("again", again)):
        for kind, values in zip(("processor", "clock"), zip(*pairs, strict=True), strict=True):
            found[f"{when}_{kind}_seconds"] = statistics.median(values)
            found[f"{when}_{kind}_spread"] = [min(values), max(values)]
    return found | {"repeats": options.repeats, "load_average": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--draws", type=int, default=1000, help="of a chain")
    parser.add_argument("--quick", action="store_true", help="one short repeat: whether everything runs, not how fast")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    if options.quick:
        options.repeats, options.draws = 1, 200
    from _versions import installed

    old = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows, references = old.get("rows", []), old.get("references", {})
    for name in options.targets:
        if name not in references:
            references[name] = reference(name, options.quick)
        for program in options.programs:
            if importlib.util.find_spec(PROGRAMS[program][0]) is None:
                print(f"{program} is not installed")
                continue
            row = row_of(name, program, references[name], options)
            print(json.dumps(row), flush=True)
            rows = [r for r in rows if (r["target"], r["program"]) != (name, program)] + [row]
            facts = {
                "benchmark": "time_to_answer",
                "config": {"chains": CHAINS, "warmup": WARMUP, "draws": options.draws},
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "versions": old.get("versions", {})
                | installed("jax", "jaxlib", "numpy", "numpyro", "blackjax", "pymc", "nutpie", "pystan"),
                "references": references,
                "rows": rows,
            }
            options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
