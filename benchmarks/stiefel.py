"""NUTS on the Stiefel manifold against NUTS in the polar parametrisation (BlackJAX, NumPyro), one chain, float64.

The target is a matrix Langevin plus Bingham density, log pi(X) = tr(F^T X) + tr(D X^T B X). The peers sample an unconstrained
matrix whose polar factor is X, under a standard normal prior of that matrix, which leaves X with the density pi. Each sampler is
warmed up by its own rules, then timed over repeats that alternate between the samplers. A speed counts only if the mean log density
agrees with the others' within 4 standard errors.

    python benchmarks/stiefel.py [--sizes 3,2 10,3 50,5 200,10] [--repeats 5] [--draws 1000]

writes benchmarks/results/stiefel.json and prints the table.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax.run.diagnostics import ess

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results"


def target(n: int, p: int) -> Callable:
    """The log density, from a fixed seed for each size."""
    generator = np.random.default_rng([n, p])
    f = jnp.asarray(1.5 * np.sqrt(n) * generator.standard_normal((n, p)))
    b = generator.standard_normal((n, n))
    b = jnp.asarray((b + b.T) / 2)
    d = jnp.asarray(np.arange(1, p + 1) / p)
    return lambda x: jnp.sum(f * x) + jnp.sum(x * (b @ x) * d)


def polar(x):
    """Orthonormal factor by the symmetric inverse root."""
    values, vectors = jnp.linalg.eigh(x.T @ x)
    return x @ ((vectors / jnp.sqrt(values)) @ vectors.T)


class Chain:
    """A warmed-up chain: ``draw(key)`` gives draws of X, log densities, and the number of gradients."""

    def __init__(self, step, state, observe, num_draws: int):
        def run(key, state):
            def iterate(state, key):
                state, info = step(key, state)
                x, num_gradients = observe(state, info)
                return state, (x, num_gradients)

            return jax.lax.scan(iterate, state, jax.random.split(key, num_draws))

        started = time.perf_counter()
        self._run = jax.jit(run).lower(jax.random.key(0), state).compile()
        self.compile_seconds = time.perf_counter() - started
        self._state = state

    def draw(self, key):
        self._state, (x, num_gradients) = jax.block_until_ready(self._run(key, self._state))
        return np.asarray(x), int(num_gradients.sum())


def geodax_chain(logdensity_fn, n: int, p: int, num_draws: int, **options) -> tuple[Chain, float]:
    """Our NUTS on the manifold itself, warmed up for 500 iterations."""
    manifold = gx.Stiefel(**{k: options.pop(k) for k in ("metric", "flow") if k in options})
    algorithm = gx.nuts(logdensity_fn, manifold=manifold, **options)
    adaptation = algorithm.adapt(500)
    started = time.perf_counter()

    @jax.jit
    def warm_up(key, x):
        def iterate(carry, i):
            state, adapted = carry
            state, info = algorithm.step(jax.random.fold_in(key, 2 * i), state)
            adapted, state = adaptation.update(jax.random.fold_in(key, 2 * i + 1), adapted, state, info, i)
            return (state, adapted), None

        state = algorithm.init(x)
        return jax.lax.scan(iterate, (state, adaptation.init(state)), jnp.arange(500))[0][0]

    start = manifold.random_point(jax.random.key(1), jnp.zeros((n, p)))
    state = jax.block_until_ready(warm_up(jax.random.key(2), start))
    seconds = time.perf_counter() - started
    return Chain(algorithm.step, state, lambda s, i: (s.position, i.num_integration_steps), num_draws), seconds


def blackjax_chain(logdensity_fn, n: int, p: int, num_draws: int) -> tuple[Chain, float]:
    """BlackJAX's NUTS with its window adaptation, polar parametrisation."""
    import blackjax

    def unconstrained(x):
        return logdensity_fn(polar(x)) - 0.5 * jnp.sum(x * x)

    started = time.perf_counter()
    warmup = blackjax.window_adaptation(blackjax.nuts, unconstrained)
    start = jax.random.normal(jax.random.key(1), (n, p))
    (state, parameters), _ = warmup.run(jax.random.key(2), start, num_steps=500)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - started
    algorithm = blackjax.nuts(unconstrained, **parameters)
    return Chain(algorithm.step, state, lambda s, i: (polar(s.position), i.num_integration_steps), num_draws), seconds


def numpyro_chain(logdensity_fn, n: int, p: int, num_draws: int) -> tuple[Chain, float]:
    """NumPyro's NUTS with its own warm-up, polar parametrisation; its kernel is then run in the same loop as the others."""
    from numpyro.infer import MCMC, NUTS

    def potential(x):
        return 0.5 * jnp.sum(x * x) - logdensity_fn(polar(x))

    kernel = NUTS(potential_fn=potential)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=1, progress_bar=False)
    started = time.perf_counter()
    mcmc.warmup(jax.random.key(2), init_params=jax.random.normal(jax.random.key(1), (n, p)))
    jax.block_until_ready(mcmc.last_state.z)
    seconds = time.perf_counter() - started

    def step(key, state):
        return kernel.sample(state._replace(rng_key=key), (), {}), None

    return Chain(step, mcmc.last_state, lambda s, _: (polar(s.z), s.num_steps), num_draws), seconds


SAMPLERS = {
    "geodax nuts, Cayley": geodax_chain,
    "geodax nuts, embedded geodesic": lambda *a: geodax_chain(*a, metric="embedded", flow="geodesic"),
    "geodax nuts, Cayley, target 0.65": lambda *a: geodax_chain(*a, target_acceptance_rate=0.65),
    "BlackJAX nuts, polar": blackjax_chain,
    "NumPyro nuts, polar": numpyro_chain,
}


def measure(n: int, p: int, num_draws: int, repeats: int) -> list[dict]:
    """One row for each sampler."""
    logdensity_fn = target(n, p)
    chains, rows = {}, {}
    for name, build in SAMPLERS.items():
        try:
            chains[name], warmup_seconds = build(logdensity_fn, n, p, num_draws)
        except ModuleNotFoundError as error:
            print(f"{name}: left out ({error})")
            continue
        rows[name] = {
            "sampler": name,
            "n": n,
            "p": p,
            "warmup_and_compile_seconds": warmup_seconds,
            "compile_seconds": chains[name].compile_seconds,
            "repeats": [],
        }
    evaluate = jax.jit(jax.vmap(logdensity_fn))
    for repeat in range(repeats + 1):  # the first is not counted
        for name, chain in chains.items():
            started = time.perf_counter()
            draws, num_gradients = chain.draw(jax.random.key(100 + repeat))
            seconds = time.perf_counter() - started
            if repeat == 0:
                continue
            smallest = float(ess(draws[None].reshape(1, num_draws, -1), method="bulk").min())
            values = np.asarray(evaluate(draws))
            rows[name]["repeats"].append(
                {
                    "seconds": seconds,
                    "gradients": num_gradients,
                    "min_ess": smallest,
                    "mean_log_density": float(values.mean()),
                    "mcse": float(values.std() / np.sqrt(ess(values[None], method="mean"))),
                    "residual": float(np.abs(np.swapaxes(draws, 1, 2) @ draws - np.eye(p)).max()),
                }
            )
    return [summarise(row) for row in rows.values()]


def summarise(row: dict) -> dict:
    """Medians over the repeats."""
    parts = row["repeats"]

    def median(f):
        return float(np.median([f(r) for r in parts]))

    return row | {
        "seconds_per_1000_gradients": median(lambda r: 1000 * r["seconds"] / r["gradients"]),
        "min_ess_per_second": median(lambda r: r["min_ess"] / r["seconds"]),
        "min_ess_per_1000_gradients": median(lambda r: 1000 * r["min_ess"] / r["gradients"]),
        "mean_log_density": float(np.mean([r["mean_log_density"] for r in parts])),
        "mcse": float(np.sqrt(np.sum([r["mcse"] ** 2 for r in parts])) / len(parts)),
        "residual": max(r["residual"] for r in parts),
    }


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2", "10,3", "50,5", "200,10"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    rows = []
    for size in options.sizes:
        n, p = map(int, size.split(","))
        new = measure(n, p, options.draws, options.repeats)
        rows += new
        for row in new:
            print(
                f"({n:3d},{p:2d}) {row['sampler']:34} {row['seconds_per_1000_gradients'] * 1e3:8.2f} ms/1,000 gradients  "
                f"{row['min_ess_per_second']:9.1f} min ESS/s  {row['min_ess_per_1000_gradients']:6.1f} per 1,000 gradients  "
                f"E log pi {row['mean_log_density']:.3f} +- {row['mcse']:.3f}  "
                f"warm-up and compile {row['warmup_and_compile_seconds'] + row['compile_seconds']:.1f} s",
                flush=True,
            )
    facts = {
        "benchmark": "stiefel",
        "config": vars(options),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
        "versions": {name: installed(name) for name in ("geodax", "jax", "blackjax", "numpyro")},
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "stiefel.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
