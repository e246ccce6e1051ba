"""Many chains side by side (vmap); float64, one thread. The target is that of benchmarks/stiefel.py.

Three tables. *Gradients per second* of many chains relative to one chain: HMC takes 16 steps an iteration in every chain, so that all
chains do the same work; NUTS chains wait for the longest trajectory of an iteration, which is part of the figure. *Total smallest bulk
ESS per second* of 64 chains that are tuned together, HMC with adapted lengths against NUTS, with the warm-up's time left out and
counted; a figure counts only where both samplers' mean log densities agree. Seconds are of processor time, which other programs on the
machine disturb less than the clock's.

*Methods*: seconds of `gx.sample` with 4 and 64 chains of NUTS one after the other, relative to side by side, in turn.

    python benchmarks/many_chains.py [--sizes 3,2 10,3 50,5 200,10] [--chains 1 4 16 64] [--repeats 5]
        [--parts gradients ess methods]

writes benchmarks/results/many_chains.json (parts and sizes that are not run keep their rows) and prints the tables.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import jax.numpy as jnp
import numpy as np
from _stiefel.target import make_target
from _versions import installed

import geodax as gx
from geodax.diagnostics.findings import ess

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"
PARTS = {"gradients": "rows", "ess": "ess_rows", "methods": "method_rows"}  # and what the record calls them


def build(sampler: str, n: int, p: int, num_chains: int, num_iterations: int):
    """A compiled function that runs all chains, and its first states."""
    manifold = gx.Stiefel()
    step_size = 0.3 / np.sqrt(n)
    options = {"num_integration_steps": 16} if sampler == "hmc" else {}
    algorithm = getattr(gx, sampler)(
        make_target(n, p).logdensity, manifold=manifold, step_size=float(step_size), **options
    )
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
            started = time.process_time()
            states, gradients = jax.block_until_ready(run(jax.random.key(repeat), states))
            seconds = time.process_time() - started
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
            "load_average": os.getloadavg()[0],
        }
        for c, r in rates.items()
    ]


class Tuned:
    """64 chains of a sampler, compiled: a warm-up of all at once, and draws after it."""

    def __init__(self, sampler: str, n: int, p: int, num_chains: int, num_warmup: int, num_draws: int):
        manifold = gx.Stiefel()
        algorithm = getattr(gx, sampler)(make_target(n, p).logdensity, manifold=manifold)
        adaptation = algorithm.adapt_jointly(num_warmup)
        keys = jax.random.split(jax.random.key(0), num_chains)
        self._starts = jax.vmap(lambda k: manifold.random_point(k, jnp.zeros((n, p))))(keys)

        def warm_up(key, starts):
            def iterate(carry, i):
                states, adapted = carry
                key_step, key_adapt = jax.random.split(jax.random.fold_in(key, i))
                states, infos = jax.vmap(algorithm.step)(jax.random.split(key_step, num_chains), states)
                keys = jax.random.split(key_adapt, num_chains)
                adapted, states = adaptation.update(keys, adapted, states, infos, i)
                return (states, adapted), None

            states = adaptation.begin(jax.vmap(algorithm.init)(starts))
            return jax.lax.scan(iterate, (states, adaptation.init(states)), jnp.arange(num_warmup))[0][0]

        def draw(key, states):
            def iterate(states, key):
                states, infos = jax.vmap(algorithm.step)(jax.random.split(key, num_chains), states)
                return states, (states.position, states.logdensity, infos.num_integration_steps.sum())

            return jax.lax.scan(iterate, states, jax.random.split(key, num_draws))[1]

        started = time.process_time()
        self._warm_up = jax.jit(warm_up).lower(jax.random.key(0), self._starts).compile()
        states = jax.eval_shape(warm_up, jax.random.key(0), self._starts)
        self._draw = jax.jit(draw).lower(jax.random.key(0), states).compile()
        self.compile_seconds = time.process_time() - started

    def measure(self, key) -> dict:
        """Warm-up from the starts and draws, each timed."""
        key_warmup, key_draw = jax.random.split(key)
        started = time.process_time()
        states = jax.block_until_ready(self._warm_up(key_warmup, self._starts))
        warmup_seconds = time.process_time() - started
        started = time.process_time()
        positions, logdensities, gradients = jax.block_until_ready(self._draw(key_draw, states))
        seconds = time.process_time() - started
        draws = np.asarray(positions).swapaxes(0, 1)
        values = np.asarray(logdensities).T
        return {
            "seconds": seconds,
            "warmup_seconds": warmup_seconds,
            "gradients": int(gradients.sum()),
            "min_ess": float(ess(draws).min()),
            "ess_log_density": float(ess(values)),
            "mean_log_density": float(values.mean()),
            "mcse": float(values.std() / np.sqrt(ess(values, method="mean"))),
        }


def measure_ess(n: int, p: int, num_chains: int, repeats: int) -> list[dict]:
    """A row for each sampler, timed in turn."""
    num_warmup, num_draws = 200, max(50, min(200, 10_000 // n))
    tuned = {name: Tuned(name, n, p, num_chains, num_warmup, num_draws) for name in ("hmc", "nuts")}
    parts = {name: [] for name in tuned}
    for repeat in range(repeats):
        for name, chains in tuned.items():
            parts[name].append(chains.measure(jax.random.key(repeat)))

    def median(name, f):
        return float(np.median([f(r) for r in parts[name]]))

    return [
        {
            "sampler": name,
            "n": n,
            "p": p,
            "chains": num_chains,
            "num_warmup": num_warmup,
            "num_draws": num_draws,
            "min_ess_per_second": median(name, lambda r: r["min_ess"] / r["seconds"]),
            "min_ess_per_second_with_warmup": median(
                name, lambda r: r["min_ess"] / (r["seconds"] + r["warmup_seconds"])
            ),
            "min_ess_per_1000_gradients": median(name, lambda r: 1000 * r["min_ess"] / r["gradients"]),
            "ess_log_density_per_1000_gradients": median(name, lambda r: 1000 * r["ess_log_density"] / r["gradients"]),
            "gradients_per_draw": median(name, lambda r: r["gradients"] / (num_chains * num_draws)),
            "mean_log_density": float(np.mean([r["mean_log_density"] for r in parts[name]])),
            "mcse": float(np.sqrt(np.sum([r["mcse"] ** 2 for r in parts[name]])) / repeats),
            "compile_seconds": tuned[name].compile_seconds,
            "load_average": os.getloadavg()[0],
            "repeats": parts[name],
        }
        for name in tuned
    ]


def measure_methods(n: int, p: int, repeats: int) -> list[dict]:
    """Rows for 4 and 64 chains of NUTS with their warm-up, about as much work for each size."""
    manifold = gx.Stiefel()
    algorithm = gx.nuts(make_target(n, p).logdensity, manifold=manifold)
    rows = []
    for chains in (4, 64):
        count = max(20, 6000 // (n * p) // (1 if chains == 4 else 8) + 20)
        seconds = {"vectorized": [], "sequential": []}
        for _ in range(repeats):
            for method, found in seconds.items():
                tree = gx.sample(
                    jax.random.key(0),
                    algorithm,
                    lambda key: manifold.random_point(key, jnp.zeros((n, p))),
                    num_samples=count,
                    num_warmup=count,
                    num_chains=chains,
                    chain_method=method,
                    progress=False,
                )
                found.append(tree.attrs["sampling_seconds"])
        ratio = float(np.median(np.divide(seconds["sequential"], seconds["vectorized"])))
        medians = {method: float(np.median(found)) for method, found in seconds.items()}
        rows.append(
            {"n": n, "p": p, "sampler": "nuts", "chains": chains, "seconds": medians, "sequential_ratio": ratio}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2", "10,3", "50,5", "200,10"])
    parser.add_argument("--chains", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS / "many_chains.json")
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split(","))) for size in options.sizes]
    rows = {part: [] for part in PARTS}
    for part in options.parts:
        for n, p in sizes:
            if part == "ess":
                new = measure_ess(n, p, 64, options.repeats)
            elif part == "methods":
                new = measure_methods(n, p, options.repeats)
            else:
                new = [row for s in ("hmc", "nuts") for row in measure(s, n, p, options.chains, options.repeats)]
            rows[part] += new
            for row in new:
                print(f"({n:3d},{p:2d}) {row['sampler']:4} {row['chains']:3d} chains  {printed(row)}", flush=True)
    old = json.loads(options.out.read_text()) if options.out.exists() else {}
    for part, name in PARTS.items():
        measured = {(row["n"], row["p"]) for row in rows[part]}
        rows[part] += [row for row in old.get(name, []) if (row["n"], row["p"]) not in measured]
    facts = {
        "benchmark": "many_chains",
        "config": vars(options) | {"out": None},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread, processor time",
        "versions": installed("jax"),
        **{name: sorted(rows[part], key=lambda row: row["n"]) for part, name in PARTS.items()},
    }
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(facts, indent=1) + "\n")


def printed(row: dict) -> str:
    if "sequential_ratio" in row:
        return f"one after the other {row['sequential_ratio']:.2f} times the seconds of side by side"
    if "gradients_per_second" in row:
        return f"{row['gradients_per_second']:10.0f} gradients/s  {row['relative_to_first']:5.2f} times one chain"
    return (
        f"{row['min_ess_per_second']:9.0f} min ESS/s  {row['min_ess_per_second_with_warmup']:9.0f} with warm-up  "
        f"{row['min_ess_per_1000_gradients']:6.1f} per 1,000 gradients  {row['gradients_per_draw']:5.1f} gradients a draw  "
        f"E log pi {row['mean_log_density']:.3f} +- {row['mcse']:.3f}  compile {row['compile_seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
