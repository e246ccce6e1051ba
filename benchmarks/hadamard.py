"""The fast Walsh-Hadamard transform of 512 rows of 2 to 16,384 numbers, in units of a copy of the same array.

    python benchmarks/hadamard.py                # writes benchmarks/results/hadamard.json
    python benchmarks/hadamard.py --threads      # all cores, under a key of its own in the same file

Single precision, compiled, one thread unless asked otherwise. For each size all back ends alternate in one process; a
figure is the median over the rounds of the ratio to the copy of the same round. The copy reads and writes every number
once (it adds a constant, which a compiler cannot leave out). Where the dense product is faster than the transform
chosen by `fwht` lies the break-even point. "forward and backward" is the value and gradient of a sum of squares.
"""

import argparse
import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

if "--threads" not in sys.argv:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from geodax.geometry.hadamard import fwht, is_native

ROWS, BITS = 512, range(1, 15)
LARGEST_DENSE = 2**12
SECONDS = 0.03  # of one measurement
RESULTS = Path(__file__).parent / "results" / "hadamard.json"


def candidates(size):
    def backward(transform):
        return jax.value_and_grad(lambda x: jnp.sum(transform(x) ** 2))

    found = {
        "copy": lambda x: x + 1.0,
        "fwht": fwht,
        "kronecker": lambda x: fwht(x, backend="kronecker"),
        "butterfly": lambda x: fwht(x, backend="butterfly"),
        "fwht, forward and backward": backward(fwht),
    }
    if is_native():
        found["native"] = lambda x: fwht(x, backend="native")
    if size <= LARGEST_DENSE:
        found["dense"] = lambda x: fwht(x, backend="dense")
        found["dense, forward and backward"] = backward(lambda x: fwht(x, backend="dense"))
    return {name: jax.jit(f) for name, f in found.items()}


def seconds(f, x, repeats):
    started = time.perf_counter()
    for _ in range(repeats):
        found = f(x)
    jax.block_until_ready(found)
    return (time.perf_counter() - started) / repeats


def profile(size, rounds):
    x = jax.random.normal(jax.random.key(0), (ROWS, size))
    found = candidates(size)
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
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    sizes = {}
    for bits in BITS:
        if bits > arguments.largest_bits:
            break
        sizes[str(2**bits)] = profile(2**bits, arguments.rounds)
        row = "  ".join(f"{name} {figures['copies']:.2f}" for name, figures in sizes[str(2**bits)].items())
        print(f"D = {2**bits:6d}: {row}", flush=True)
    slower = [int(d) for d, row in sizes.items() if "dense" in row and row["dense"]["copies"] > row["fwht"]["copies"]]
    facts = {
        "rows": ROWS,
        "rounds": arguments.rounds,
        "dtype": "float32",
        "native": is_native(),
        "cores": os.cpu_count() if arguments.threads else 1,
        "dense_is_slower_from": min(slower, default=None),
        "machine": platform.processor() or platform.machine(),
        "versions": {name: version(name) for name in ("geodax", "jax", "jaxlib")},
        "sizes": sizes,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    written = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    written["all cores" if arguments.threads else "one thread"] = facts
    arguments.out.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
