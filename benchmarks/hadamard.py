"""The fast Walsh-Hadamard transform of 512 rows of 2 to 16,384 numbers, in units of a copy of the same array.

    python benchmarks/hadamard.py                # writes benchmarks/results/hadamard.json
    python benchmarks/hadamard.py --threads      # all cores, under a key of its own in the same file, as a GPU's
    python benchmarks/hadamard.py --only kronecker      # this row beside the copy; the file keeps the others

Single precision, compiled, one thread unless asked otherwise. For each size all back ends alternate in one process; a
figure is the median over the rounds of the ratio to the copy of the same round, of processor time where there is one
thread. Freed memory stays with the process, so that no row pays for pages of the system's where another has some left.
The copy reads and writes every number
once (it adds a constant, which a compiler cannot leave out). Where the dense product is faster than the transform
chosen by `fwht` lies the break-even point. "forward and backward" is the value and gradient of a sum of squares.
"""

import argparse
import ctypes
import json
import os
import platform
import sys
import time
from pathlib import Path

if "--threads" not in sys.argv:
    import _threads  # noqa: F401  (before JAX)

import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed

from geodax.geometry.hadamard import fwht, is_native

ROWS, BITS = 512, range(1, 15)
ACCELERATOR_ENTRIES = 2**27  # of the array on an accelerator, beyond its caches
LARGEST_DENSE = 2**12
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of mallopt(3)
SECONDS = 0.03  # of one measurement
CLOCK = time.perf_counter if "--threads" in sys.argv else time.process_time
RESULTS = Path(__file__).parent / "results" / "hadamard.json"


def candidates(size):
    def backward(transform):
        return jax.value_and_grad(lambda x: jnp.sum(transform(x) ** 2))

    found = {
        "copy": lambda x: x + 1.0,
        "fwht": fwht,
        "kronecker": lambda x: fwht(x, backend="kronecker"),
        "fwht, forward and backward": backward(fwht),
    }
    if is_native() and jax.default_backend() == "cpu":
        found["native"] = lambda x: fwht(x, backend="native")
    if size <= LARGEST_DENSE:
        found["dense"] = lambda x: fwht(x, backend="dense")
        found["dense, forward and backward"] = backward(lambda x: fwht(x, backend="dense"))
    return {name: jax.jit(f) for name, f in found.items()}


def keep_freed_memory():
    """Of the C library where it can be told so: no pages given back, none asked for anew for each large array."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for parameter, value in ((M_MMAP_MAX, 0), (M_ARENA_MAX, 1), (M_TRIM_THRESHOLD, 2**31 - 1)):
            mallopt(parameter, value)


def rows(size):
    return ROWS if jax.default_backend() == "cpu" else ACCELERATOR_ENTRIES // size


def seconds(f, x, repeats):
    started = CLOCK()
    for _ in range(repeats):
        found = f(x)
    jax.block_until_ready(found)
    return (CLOCK() - started) / repeats


def device():
    found = jax.devices()[0]
    return platform.processor() or platform.machine() if found.platform == "cpu" else found.device_kind


def profile(size, rounds, only):
    x = jax.random.normal(jax.random.key(0), (rows(size), size))
    found = {name: f for name, f in candidates(size).items() if not only or name in ("copy", *only)}
    repeats = {}
    for name, f in found.items():
        jax.block_until_ready(f(x))
        repeats[name] = max(1, int(SECONDS / seconds(f, x, 2)))
    times = {name: np.array([]) for name in found}
    for _ in range(rounds):
        for name, f in found.items():
            times[name] = np.append(times[name], seconds(f, x, repeats[name]))
    return {
        name: {
            "microseconds": float(np.median(values) * 1e6),
            "copies": float(np.median(values / times["copy"])),
            "copies_quartiles": [float(q) for q in np.quantile(values / times["copy"], [0.25, 0.75])],
        }
        for name, values in times.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--largest-bits", type=int, default=max(BITS))
    parser.add_argument("--threads", action="store_true", help="use all cores")
    parser.add_argument("--only", nargs="+", default=[], help="rows to measure; the others of the file are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    keep_freed_memory()
    kind = "all cores" if arguments.threads else "one thread"
    kind = kind if jax.default_backend() == "cpu" else device()
    written = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    sizes = {}
    for bits in BITS:
        if bits > arguments.largest_bits:
            break
        sizes[str(2**bits)] = profile(2**bits, arguments.rounds, arguments.only)
        row = "  ".join(f"{name} {figures['copies']:.2f}" for name, figures in sizes[str(2**bits)].items())
        print(f"D = {2**bits:6d}: {row}", flush=True)
    measured = {
        "rounds": arguments.rounds,
        "clock": "wall time" if arguments.threads else "processor time",
        "load": os.getloadavg()[1],
        "machine": device(),
        "versions": installed("jax", "jaxlib"),
    }
    if arguments.only:
        facts = written[kind]
        for size, rows in sizes.items():
            facts["sizes"][size] |= {name: row for name, row in rows.items() if name != "copy"}
        facts["measured later"] = facts.get("measured later", {}) | dict.fromkeys(arguments.only, measured)
    else:
        slower = [
            int(d) for d, row in sizes.items() if "dense" in row and row["dense"]["copies"] > row["fwht"]["copies"]
        ]
        facts = measured | {
            "rows": ROWS,
            "dtype": "float32",
            "native": is_native(),
            "cores": os.cpu_count() if arguments.threads else 1,
            "dense_is_slower_from": min(slower, default=None),
            "sizes": sizes,
        }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    written[kind] = facts
    arguments.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
