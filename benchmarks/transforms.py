"""Transforms between unconstrained vectors and orthonormal matrices: what they cost, and which one to sample in.

Cost: forward, value and gradient (log volume included), inverse and compile time of each transform, and of the Givens rotations
carried out one after the other by a scan; at small size by an unrolled loop too. Rounds alternate between them all. All times are
of the processor, not of the clock, so that a busy machine changes them little; programs run on one thread.

Sampling: the library's NUTS on the pull-back of each transform against its NUTS on the manifold itself, on matrix Langevin and Bingham
targets. Several chains from exact draws, after a warm-up as long as the run; the smallest effective sample size over entries, per second and
per 1,000 gradients,
and the largest deviation of the mean entries and their squares from exact draws, in standard errors.

    python benchmarks/transforms.py [--part cost sampling] [--rounds 30] [--sizes 3,2 10,3 50,5] [--targets pole Bingham] [--chains 16]
        [--draws 1000]

writes benchmarks/results/transforms.json and prints the tables.
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
from _versions import installed

import geodax as gx
from geodax.diagnostics.findings import ess

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results" / "transforms.json"
COST_SIZES = [(50, 5), (1000, 10)]
NUM_EXACT = 2000


def scan_of_rotations(n: int, p: int):
    """The matrix of Givens angles, one rotation after the other."""
    i, j = np.triu_indices(p, 1, n)
    pairs = jnp.asarray(np.stack([i, j], 1)[::-1].copy())

    def compose(theta):
        def rotate(q, pair_and_angle):
            pair, angle = pair_and_angle
            rows, c, s = q[pair], jnp.cos(angle), jnp.sin(angle)
            return q.at[pair].set(jnp.stack([c * rows[0] - s * rows[1], s * rows[0] + c * rows[1]])), None

        return jax.lax.scan(rotate, jnp.eye(n, p), (pairs, theta[::-1]))[0]

    return compose


def unrolled_rotations(n: int, p: int):
    """The same as a loop in Python."""
    pairs = list(zip(*np.triu_indices(p, 1, n), strict=True))

    def compose(theta):
        q = jnp.eye(n, p)
        for k in reversed(range(len(pairs))):
            i, j = pairs[k]
            c, s = jnp.cos(theta[k]), jnp.sin(theta[k])
            upper, lower = c * q[i] - s * q[j], s * q[i] + c * q[j]
            q = q.at[i].set(upper).at[j].set(lower)
        return q

    return compose


def with_chart(transform, compose):
    """Another way of multiplying rotations out, with the angles and the log volume of the transform."""

    def forward_and_log_volume(z):
        return compose(transform.angles(z)), transform.log_volume(z)

    return forward_and_log_volume


def compiled(function, *arguments):
    started = time.process_time()
    program = jax.jit(function).lower(*arguments).compile()
    return program, time.process_time() - started


def cost(n: int, p: int, rounds: int, unroll: bool) -> list[dict]:
    """One row for each way."""
    t, generator = gx.transforms, np.random.default_rng([n, p])
    weights = jnp.asarray(generator.standard_normal((n, p)))
    givens = t.Givens(n, p)
    ways = {
        "Givens": (givens.forward_and_log_volume, givens),
        "Givens, circle": (None, t.Givens(n, p, wrap="circle")),
        "Polar": (None, t.Polar(n, p)),
        "Householder": (None, t.Householder(n, p)),
        "CayleyChart": (None, t.CayleyChart(n, p)),
        "scan over rotations": (with_chart(givens, scan_of_rotations(n, p)), None),
    }
    if unroll:
        ways["unrolled loop over rotations"] = (with_chart(givens, unrolled_rotations(n, p)), None)
    q = gx.distributions.StiefelUniform(n, p).sample(jax.random.key(0))
    programs, rows = {}, {}
    for name, (both, transform) in ways.items():
        both = both or transform.forward_and_log_volume
        z = (transform or givens).inverse(q)

        def value(z, both=both):
            matrix, log_volume = both(z)
            return jnp.sum(weights * matrix) + log_volume

        rows[name] = {"transform": name, "n": n, "p": p}
        tasks = {"forward": (lambda z, both=both: both(z)[0], z), "value_and_gradient": (jax.value_and_grad(value), z)}
        if transform is not None:
            tasks["inverse"] = (transform.inverse, q)
        for task, (function, argument) in tasks.items():
            program, seconds = compiled(function, argument)
            rows[name][f"{task}_compile_seconds"] = seconds
            rows[name][f"{task}_us"] = []
            programs[name, task] = program, argument
    for _ in range(rounds):
        for (name, task), (program, argument) in programs.items():
            jax.block_until_ready(program(argument))
            repeats = 1 if name.endswith("rotations") and n > 100 else 10
            started = time.process_time()
            for _ in range(repeats):
                result = program(argument)
            jax.block_until_ready(result)
            rows[name][f"{task}_us"].append(1e6 * (time.process_time() - started) / repeats)
    return [
        {
            k: {"min": min(v), "median": float(np.median(v)), "max": max(v)} if isinstance(v, list) else v
            for k, v in row.items()
        }
        for row in rows.values()
    ]


def targets(n: int, p: int) -> dict:
    """Distributions that can be drawn from exactly."""
    d = gx.distributions
    generator = np.random.default_rng([n, p])
    f = np.sqrt(n) * generator.standard_normal((n, p)) / np.sqrt(p)
    pole = np.zeros((n, p))  # mode with one column at the last axis: a pole of the angles; the others spread
    pole[n - 1, 0], pole[0, -1] = 6.0 * np.sqrt(n), 2.0 * np.sqrt(n)
    axes = np.linspace(0, 1, n) ** 2
    return {
        "Langevin, weak": d.MatrixLangevin(jnp.asarray(f)),
        "Langevin, strong": d.MatrixLangevin(jnp.asarray(6 * f)),
        "Langevin, near a pole": d.MatrixLangevin(jnp.asarray(pole)),
        "Bingham": d.MatrixBingham(jnp.asarray(np.diag(n * axes / 2)), jnp.asarray(np.linspace(1, 0.5, p))),
    }


def logdensity(distribution):
    """Without the normalising constant, which costs more than all the rest."""
    if isinstance(distribution, gx.distributions.MatrixLangevin):
        return lambda x: jnp.sum(distribution.f * x)
    return distribution.log_prob


def samplers(logdensity_fn, n: int, p: int, center) -> dict:
    """Name to (algorithm, from a frame to a start, from a position to a frame)."""
    t = gx.transforms
    made = {"intrinsic": (gx.nuts(logdensity_fn, manifold=gx.Stiefel()), lambda q: q, lambda q: q)}
    for name, transform in {
        "Polar": t.Polar(n, p),
        "Householder": t.Householder(n, p),
        "Givens": t.Givens(n, p),
        "Givens, circle": t.Givens(n, p, wrap="circle"),
        "Givens, centered": t.Givens(n, p, center=center),
        "CayleyChart, centered": t.CayleyChart(n, p, center=center),
    }.items():
        u = t.unconstrain(logdensity_fn, transform)
        made[name] = gx.nuts(u.logdensity), u.unconstrain, u.constrain
    return made


def moments(q: np.ndarray) -> np.ndarray:
    """Entries and squares."""
    q = q.reshape(*q.shape[:-2], -1)
    return np.concatenate([q, q**2], axis=-1)


def run(sampler, starts, num_draws: int) -> dict:
    """Chains side by side from the same starts; warm-up apart, the draws timed."""
    algorithm, to_start, to_frame = sampler
    adaptation = algorithm.adapt(num_draws)

    def warm_up(key, q):
        def iterate(carry, i):
            state, adapted = carry
            state, info = algorithm.step(jax.random.fold_in(key, 2 * i), state)
            adapted, state = adaptation.update(jax.random.fold_in(key, 2 * i + 1), adapted, state, info, i)
            return (state, adapted), info.num_integration_steps

        state = adaptation.begin(algorithm.init(to_start(q)))
        (state, _), _ = jax.lax.scan(iterate, (state, adaptation.init(state)), jnp.arange(num_draws))
        return state

    def draw(key, state):
        def iterate(state, i):
            state, info = algorithm.step(jax.random.fold_in(key, i), state)
            return state, (to_frame(state.position), info.num_integration_steps, info.is_divergent)

        return jax.lax.scan(iterate, state, jnp.arange(num_draws))[1]

    keys = jax.random.split(jax.random.key(1), len(starts))
    started = time.process_time()
    # one chain after the other, as on its own: side by side all would wait for the longest trajectory
    states = jax.block_until_ready(jax.jit(lambda k, q: jax.lax.map(lambda x: warm_up(*x), (k, q)))(keys, starts))
    warm_up_seconds = time.process_time() - started
    keys = jax.random.split(jax.random.key(2), len(starts))
    program, compile_seconds = compiled(lambda k, s: jax.lax.map(lambda x: draw(*x), (k, s)), keys, states)
    seconds = []
    while len(seconds) < 6 and sum(seconds) < 60:  # the same draws again: only the time differs
        started = time.process_time()
        q, steps, divergent = jax.block_until_ready(program(keys, states))
        seconds.append(time.process_time() - started)
    seconds = float(np.median(seconds[1:] or seconds))  # the first is not counted where there are others
    q = np.asarray(q)
    sizes = ess(q.reshape(*q.shape[:2], -1), method="bulk")
    return {
        "draws": q,
        "min_ess_per_second": float(np.min(sizes)) / seconds,
        "min_ess_per_1000_gradients": 1000 * float(np.min(sizes)) / int(steps.sum()),
        "seconds_per_1000_gradients": 1000 * seconds / int(steps.sum()),
        "divergent": float(np.mean(divergent)),
        "warm_up_and_compile_seconds": warm_up_seconds + compile_seconds,
    }


def sampling(n: int, p: int, num_chains: int, num_draws: int, chosen: list[str]):
    """One row for each target and sampler."""
    for target, distribution in targets(n, p).items():
        if not any(part in target for part in chosen):
            continue
        key_exact = jax.random.key(0)
        try:
            exact = np.asarray(distribution.sample(key_exact, (NUM_EXACT,)))
            kind = "rejection"
        except ValueError:
            number, sweeps = (NUM_EXACT, 100) if n < 50 else (300, 40)  # large ones take seconds a sweep
            exact = np.asarray(distribution.gibbs_sample(key_exact, (number,), num_sweeps=sweeps))
            kind = f"Gibbs, {sweeps} sweeps"
        truth = moments(exact)
        mean = exact.mean(0)
        u, _, v = np.linalg.svd(mean, full_matrices=False)
        center = jnp.asarray(u @ v)
        starts = jnp.asarray(exact[:num_chains])
        for name, sampler in samplers(logdensity(distribution), n, p, center).items():
            row = {"n": n, "p": p, "target": target, "parametrisation": name, "exact_draws": kind}
            row |= run(sampler, starts, num_draws)
            chains = moments(row.pop("draws")).mean(1)
            error = np.sqrt(chains.var(0, ddof=1) / len(chains) + truth.var(0, ddof=1) / len(truth))
            z = (chains.mean(0) - truth.mean(0)) / error
            row["max_abs_z"], row["root_mean_square_z"] = float(np.abs(z).max()), float(np.sqrt(np.mean(z**2)))
            print(
                f"({n:3d},{p:2d}) {target:22} {name:22} {row['min_ess_per_second']:9.1f} min ESS/s "
                f"{row['min_ess_per_1000_gradients']:7.1f} per 1,000 gradients  max |z| {row['max_abs_z']:4.1f} "
                f"rms {row['root_mean_square_z']:.2f}  divergent {row['divergent']:.4f}",
                flush=True,
            )
            yield row


def record(**changes) -> dict:
    """Change the file of results; rows of the sampling part replace those of the same name."""
    facts = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"benchmark": "transforms"}
    new = changes.pop("row", None)
    facts |= changes
    if new is not None:
        names = ("n", "p", "target", "parametrisation")
        rows = {tuple(row[k] for k in names): row for row in [*facts.get("sampling", {}).get("rows", []), new]}
        facts["sampling"] = {"rows": sorted(rows.values(), key=lambda row: (row["n"], row["target"]))}
    RESULTS.parent.mkdir(exist_ok=True)
    scratch = RESULTS.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(facts, indent=1) + "\n")
    scratch.replace(RESULTS)
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=["cost", "sampling"], choices=["cost", "sampling"])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--unroll", action="store_true", help="time the unrolled loop at (10, 3) too")
    parser.add_argument("--sizes", nargs="+", default=["3,2", "10,3", "50,5"])
    parser.add_argument("--targets", nargs="+", default=[""], help="parts of the names of those to sample from")
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--draws", type=int, default=1000)
    options = parser.parse_args()
    record(
        machine=f"{platform.machine()}, {os.cpu_count()} cores, one thread",
        load_average=os.getloadavg(),
        versions=installed("jax"),
    )
    if "cost" in options.part:
        rows = [row for n, p in COST_SIZES for row in cost(n, p, options.rounds, unroll=False)]
        if options.unroll:
            rows += cost(10, 3, options.rounds, unroll=True)
        record(cost={"rounds": options.rounds, "rows": rows})
        for row in rows:
            times = "  ".join(f"{k[:-3]} {v['median']:.0f} us" for k, v in row.items() if k.endswith("_us"))
            compile_seconds = max(v for k, v in row.items() if k.endswith("_compile_seconds"))
            print(f"({row['n']:4d},{row['p']:2d}) {row['transform']:28} {times}  compile {compile_seconds:.1f} s")
    if "sampling" in options.part:
        for size in options.sizes:
            for row in sampling(*map(int, size.split(",")), options.chains, options.draws, options.targets):
                record(row=row | {"chains": options.chains, "draws": options.draws})


if __name__ == "__main__":
    main()
