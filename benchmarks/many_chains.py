"""Gradients per second of many chains side by side (vmap), relative to one chain; float64, one thread.

The target is that of benchmarks/stiefel.py. HMC takes 16 steps an iteration in every chain, so that all chains do the same work; NUTS
chains wait for the longest trajectory of an iteration, which is part of the figure.

    python benchmarks/many_chains.py [--sizes 3,2 10,3 50,5] [--chains 1 4 16 64] [--repeats 5]

writes benchmarks/results/many_chains.json and prints the table.
"""

import argparse
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from stiefel import target

import geodax as gx

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"


def build(sampler: str, n: int, p: int, num_chains: int, num_iterations: int):
    """A compiled function that runs all chains, and its first states."""
    manifold = gx.Stiefel()
    step_size = 0.3 / np.sqrt(n)
    options = {"num_integration_steps": 16} if sampler == "hmc" else {}
    algorithm = getattr(gx, sampler)(target(n, p), manifold=manifold, step_size=float(step_size), **options)
    keys = jax.random.split(jax.random.key(0), num_chains)
    states = jax.vmap(lambda k: algorithm.init(manifold.random_point(k, jnp.zeros((n, p)))))(keys)

    def run(key, states):
        def iterate(states, key):
            states, infos = jax.vmap(algorithm.step)(jax.random.split(key, num_chains), states)
            return states, infos.num_integration_steps.sum()

        return jax.lax.scan(iterate, states, jax.random.split(key, num_iterations))

    return jax.jit(run).lower(jax.random.key(1), states).compile(), states


def measure(sampler: str, n: int, p: int, chains: list[int], repeats: int) -> list[dict]:
    """Rows for each number of chains, timed in turn."""
    runs = {c: build(sampler, n, p, c, max(20, 2000 // c)) for c in chains}
    rates = {c: [] for c in chains}
    for repeat in range(repeats + 1):  # the first is not counted
        for c, (run, states) in runs.items():
            started = time.perf_counter()
            states, gradients = jax.block_until_ready(run(jax.random.key(repeat), states))
            seconds = time.perf_counter() - started
            runs[c] = (run, states)
            if repeat:
                rates[c].append(float(gradients.sum()) / seconds)
    alone = np.median(rates[chains[0]])
    return [
        {
            "sampler": sampler,
            "n": n,
            "p": p,
            "chains": c,
            "gradients_per_second": float(np.median(r)),
            "spread": [min(r), max(r)],
            "relative_to_first": float(np.median(r) / alone),
        }
        for c, r in rates.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2", "10,3", "50,5"])
    parser.add_argument("--chains", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "many_chains.json")
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        n, p = map(int, size.split(","))
        for sampler in ("hmc", "nuts"):
            new = measure(sampler, n, p, options.chains, options.repeats)
            rows += new
            for row in new:
                print(
                    f"({n:3d},{p:2d}) {sampler:4} {row['chains']:3d} chains {row['gradients_per_second']:10.0f} gradients/s  "
                    f"{row['relative_to_first']:5.2f} times one chain",
                    flush=True,
                )
    facts = {
        "benchmark": "many_chains",
        "config": {k: v for k, v in vars(options).items() if k != "out"},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
        "versions": {name: version(name) for name in ("geodax", "jax")},
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
