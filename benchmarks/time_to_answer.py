"""Time to the answer: a whole process, from its start to the draws, with imports, compilation and warm-up.

Each program is what a user would write: 4 chains of 500 + 1,000 iterations of NUTS on the same JAX log density, by geodax on the
manifold, by NumPyro and BlackJAX in an unconstrained matrix whose polar factor is the frame; float64, chains side by side. It runs
twice: *cold* with no compiled program on disk, and *again*. Only geodax keeps programs on disk by default.

Targets: a matrix Langevin-Bingham density on 10 x 3 frames; PCA of the wine data with three components; an eigenmodel of a simulated
network of 40 nodes; eight schools without centring. ``z`` is the largest difference of a posterior mean of the observed quantities
from that of a long run, in standard errors.

    python benchmarks/time_to_answer.py [--targets matrix schools] [--programs geodax] [--repeats 3] [--quick]

writes benchmarks/results/time_to_answer.json (rows that are not run are kept) and prints the rows. Seconds are of the processor, and
of the clock; both are medians.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "time_to_answer.json"
CHAINS = 4


class Target(NamedTuple):
    """A log density of ``{"frame": n x p, "x": vector}``, either of which may be missing, and what is observed of it."""

    logdensity: Callable[[dict], Any]
    frame: tuple[int, int] | None
    dim: int
    observe: Callable[[dict], Any]


def matrix() -> Target:
    from _stiefel.target import make_target

    target = make_target(10, 3)
    return Target(lambda q: target.logdensity(q["frame"]), (10, 3), 0, lambda q: q["frame"].ravel())


def pca() -> Target:
    import jax.numpy as jnp
    from sklearn.datasets import load_wine

    table = load_wine().data
    table = (table - table.mean(0)) / table.std(0)
    number, scatter = len(table), jnp.asarray(table.T @ table)

    def logdensity(q):
        variances, noise = jnp.exp(2 * q["x"][:3]), jnp.exp(2 * q["x"][3])
        explained = variances / (noise * (noise + variances))
        logdet = jnp.sum(jnp.log(variances + noise)) + 10 * jnp.log(noise)
        projected = jnp.sum(q["frame"] * (scatter @ q["frame"]), axis=0)
        quadratic = jnp.trace(scatter) / noise - jnp.sum(explained * projected)
        return -0.5 * (number * logdet + quadratic) - 0.5 * jnp.sum(q["x"] ** 2)

    def observe(q):
        return jnp.concatenate([jnp.sum(q["frame"] ** 2 * jnp.exp(2 * q["x"][:3]), axis=1), q["x"][3:]])

    return Target(logdensity, (table.shape[1], 3), 4, observe)


def eigenmodel() -> Target:
    import jax
    import jax.numpy as jnp
    import numpy as np

    generator = np.random.default_rng(0)
    nodes = 40
    true = np.linalg.qr(generator.standard_normal((nodes, 2)))[0]
    logits = true @ np.diag([20.0, -20.0]) @ true.T - 1.0
    first, second = np.triu_indices(nodes, 1)
    edges = jnp.asarray(generator.uniform(size=len(first)) < 1 / (1 + np.exp(-logits[first, second])))

    def predictor(q):
        return ((q["frame"] * q["x"][:2]) @ q["frame"].T)[first, second] + q["x"][2]

    def logdensity(q):
        signed = jnp.where(edges, 1.0, -1.0) * predictor(q)
        return jnp.sum(jax.nn.log_sigmoid(signed)) - 0.5 * jnp.sum(q["x"][:2] ** 2) / nodes - 0.5 * q["x"][2] ** 2 / 100

    return Target(logdensity, (nodes, 2), 3, lambda q: predictor(q)[::40])


def schools() -> Target:
    import jax.numpy as jnp

    effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def logdensity(q):
        mean, log_spread, z = q["x"][0], q["x"][1], q["x"][2:]
        residual = (effects - mean - jnp.exp(log_spread) * z) / errors
        prior = -0.5 * mean**2 / 25 - jnp.log1p(jnp.exp(2 * log_spread) / 25) + log_spread - 0.5 * jnp.sum(z**2)
        return prior - 0.5 * jnp.sum(residual**2)

    return Target(logdensity, None, 10, lambda q: q["x"])


TARGETS = {"matrix": matrix, "pca": pca, "eigenmodel": eigenmodel, "schools": schools}


def start_of(target: Target, key) -> dict:
    import jax

    q = {"x": 0.3 * jax.random.normal(key, (target.dim,))} if target.dim else {}
    return q | ({"frame": jax.random.normal(key, target.frame)} if target.frame else {})


def with_polar_factor(target: Target):
    """The target's functions of an unconstrained matrix in place of the frame."""
    import jax.numpy as jnp
    from _stiefel.jax_samplers import polar

    def inside(q):
        return q | {"frame": polar(q["frame"])} if target.frame else q

    def logdensity(q):
        return target.logdensity(inside(q)) - (0.5 * jnp.sum(q["frame"] ** 2) if target.frame else 0.0)

    return logdensity, lambda q: target.observe(inside(q))


def sampled(target: Target, sampler: str, seed: int, num_draws: int, num_chains: int):
    """Draws of what is observed, by geodax on the manifold."""
    import jax
    import jax.numpy as jnp

    import geodax as gx

    def start(key):
        q = start_of(target, key)
        return q | ({"frame": jnp.linalg.qr(q["frame"])[0]} if target.frame else {})

    manifold = gx.Product({"frame": gx.Stiefel()}) if target.frame else None
    tree = gx.sample(
        jax.random.key(seed),
        getattr(gx, sampler)(target.logdensity, manifold=manifold),
        start,
        keep=lambda q: {"observed": target.observe(q)},
        num_warmup=500,
        num_samples=num_draws,
        num_chains=num_chains,
        progress=False,
    )
    return tree["posterior"]["observed"].values


def by_geodax(target: Target, num_draws: int):
    return sampled(target, "nuts", 0, num_draws, CHAINS)


def by_numpyro(target: Target, num_draws: int):
    import jax
    from numpyro.infer import MCMC, NUTS

    logdensity, observe = with_polar_factor(target)
    starts = jax.vmap(lambda key: start_of(target, key))(jax.random.split(jax.random.key(1), CHAINS))
    mcmc = MCMC(
        NUTS(potential_fn=lambda q: -logdensity(q)),
        num_warmup=500,
        num_samples=num_draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), init_params=starts)
    return jax.vmap(jax.vmap(observe))(mcmc.get_samples(group_by_chain=True))


def by_blackjax(target: Target, num_draws: int):
    import blackjax
    import jax

    logdensity, observe = with_polar_factor(target)

    def run(key):
        keys = jax.random.split(key, 3)
        warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
        (state, parameters), _ = warmup.run(keys[0], start_of(target, keys[1]), num_steps=500)
        step = blackjax.nuts(logdensity, **parameters).step

        def iterate(state, key):
            state, _ = step(key, state)
            return state, observe(state.position)

        return jax.lax.scan(iterate, state, jax.random.split(keys[2], num_draws))[1]

    return jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), CHAINS))


PROGRAMS = {"geodax": by_geodax, "numpyro": by_numpyro, "blackjax": by_blackjax}


def child(options) -> None:
    """One program on one target; the observed draws go to a file."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    target = TARGETS[options.targets[0]]()
    np.save(options.out, np.asarray(PROGRAMS[options.programs[0]](target, options.draws)))


def timed(name: str, program: str, folder: Path, options) -> tuple[float, float, Path]:
    """Seconds of the processor and of the clock of a new process, and its file."""
    out = folder / f"{name}-{program}.npy"
    words = ["--child", "--targets", name, "--programs", program, "--draws", str(options.draws), "--out", str(out)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"XDG_CACHE_HOME": str(folder)}
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
    import jax
    import numpy as np

    from geodax.diagnostics.convergence import ess

    jax.config.update("jax_enable_x64", True)
    draws = sampled(TARGETS[name](), "hmc", 7, 200 if quick else 3000, 64)
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
    return found | {"load_average": os.getloadavg()[0]}


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
            row = row_of(name, program, references[name], options)
            print(json.dumps(row), flush=True)
            rows = [r for r in rows if (r["target"], r["program"]) != (name, program)] + [row]
            facts = {
                "benchmark": "time_to_answer",
                "config": {"chains": CHAINS, "warmup": 500, "draws": options.draws, "repeats": options.repeats},
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "versions": installed("jax", "jaxlib", "numpy", "numpyro", "blackjax"),
                "references": references,
                "rows": rows,
            }
            options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
