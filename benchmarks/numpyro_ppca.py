"""Probabilistic PCA as a NumPyro model, its loadings an orthonormal matrix: NumPyro's NUTS in coordinates beside ours.

    x_i ~ N(0, W diag(scale^2) W^T + noise^2 I),  i = 1, ..., N,   W uniform on the Stiefel manifold (n, p)

The same model runs in all rows: NumPyro's NUTS in the Givens chart of `stiefel(n, p)`, with the rotations in a plain loop (what a
user would write), and with the polar and Householder reparametrisers; our NUTS in the Givens chart and on the manifold. The columns
of W are known up to sign and order only, so effective sample sizes are those of what does not see them: entries of the covariance
matrix, and the noise. Each sampler is warmed up by its own rules, then timed over repeats that alternate between the samplers. `z`
is the largest difference of a posterior mean from the average of the other samplers' means, in standard errors.

    python benchmarks/numpyro_ppca.py [--sizes 3,2,15 50,3,200] [--repeats 5] [--draws 1000] [--samplers manifold polar]

writes benchmarks/results/numpyro_ppca.json and prints the table.
"""

import argparse
import functools
import json
import os
import platform
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from _stiefel.jax_samplers import compiled
from _stiefel.target import RESULTS
from numpyro import distributions as dist
from numpyro.infer import NUTS
from numpyro.infer.util import initialize_model
from stiefel import installed

import geodax as gx
from geodax.interop import numpyro as gxn
from geodax.run.diagnostics import ess

jax.config.update("jax_enable_x64", True)

VERSIONS = ("geodax", "jax", "jaxlib", "numpy", "numpyro")


class LoopGivens(gx.transforms.Givens):
    """The same chart with one rotation after the other, differentiated by JAX."""

    def forward_and_log_volume(self, z):
        theta = self.angles(z)
        i, j = (jnp.asarray(x) for x in np.triu_indices(self.p, 1, self.n))

        def rotate(q, rotation):
            i, j, angle = rotation
            c, s = jnp.cos(angle), jnp.sin(angle)
            upper, lower = q[i], q[j]
            return q.at[i].set(c * upper - s * lower).at[j].set(s * upper + c * lower), None

        q, _ = jax.lax.scan(rotate, jnp.eye(self.n, self.p), (i, j, theta), reverse=True)
        return q, super().log_volume(z)


def simulate(n: int, p: int, num_rows: int) -> jax.Array:
    """Rows in and around a plane; for (3, 2) the paper's example."""
    rng = np.random.default_rng(0)
    scale = np.ones(p) if n == 3 else np.linspace(5.0, 2.0, p)
    noise = 1.0 if n == 3 else 0.5
    w = np.eye(n, p) if n == 3 else np.linalg.qr(rng.standard_normal((n, p)))[0]
    z = rng.standard_normal((num_rows, p))
    return jnp.asarray((z * scale) @ w.T + noise * rng.standard_normal((num_rows, n)))


def ppca(x, p, chart=None):
    n = x.shape[1]
    w = numpyro.sample("w", gxn.StiefelUniform(n, p, chart=chart))
    scale = numpyro.sample("scale", dist.HalfNormal(5.0).expand([p]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(2.0))
    with numpyro.plate("rows", len(x)):
        covariance = dist.LowRankMultivariateNormal(jnp.zeros(n), w * scale, noise**2 * jnp.ones(n))
        numpyro.sample("x", covariance, obs=x)


def seen(values):
    """Entries of the covariance matrix and the noise."""
    w, scale, noise = values["w"], values["scale"], values["noise"]
    covariance = (w * scale**2) @ w.T
    n = len(covariance)
    entries = covariance[np.triu_indices(n)] if n < 10 else jnp.concatenate([jnp.diagonal(covariance), covariance[0]])
    return jnp.concatenate([entries, noise[None]])


class Kernel(NamedTuple):
    """A warmed-up kernel: ``step(key, state) -> state``, and ``observe(state) -> (values, gradients, is_divergent)``."""

    step: object
    observe: object
    state: object
    compile_seconds: float
    warmup_seconds: float


def numpyro_kernel(model, x, num_warmup: int) -> Kernel:
    """NumPyro's NUTS on a model, in the same loop as ours."""
    info = initialize_model(jax.random.key(1), model, model_args=(x,))
    kernel = NUTS(potential_fn=info.potential_fn)
    started = time.perf_counter()
    state = jax.block_until_ready(kernel.init(jax.random.key(2), num_warmup, info.param_info.z))
    init_seconds = time.perf_counter() - started

    def warm_up(state):
        return jax.lax.fori_loop(0, num_warmup, lambda i, s: kernel.sample(s, (), {}), state)

    state, compile_seconds, seconds = compiled(warm_up, state)
    return Kernel(
        lambda key, state: kernel.sample(state._replace(rng_key=key), (), {}),
        lambda state: (seen(info.postprocess_fn(state.z)), state.num_steps, state.diverging),
        state,
        init_seconds + compile_seconds,
        seconds,
    )


def geodax_kernel(log_density, manifold, start, constrain, num_warmup: int) -> Kernel:
    """Our NUTS on a log density."""
    algorithm = gx.nuts(log_density, manifold=manifold)
    adaptation = algorithm.adapt(num_warmup)

    def warm_up(key, position):
        def iterate(carry, i):
            (state, _), adapted = carry
            state, info = algorithm.step(jax.random.fold_in(key, 2 * i), state)
            adapted, state = adaptation.update(jax.random.fold_in(key, 2 * i + 1), adapted, state, info, i)
            return ((state, info), adapted), None

        state = algorithm.init(position)
        first = algorithm.step(key, state)[1]
        return jax.lax.scan(iterate, ((state, first), adaptation.init(state)), jnp.arange(num_warmup))[0][0]

    state, compile_seconds, seconds = compiled(warm_up, jax.random.key(2), start)
    return Kernel(
        lambda key, pair: algorithm.step(key, pair[0]),
        lambda pair: (seen(constrain(pair[0].position)), pair[1].num_integration_steps, pair[1].is_divergent),
        state,
        compile_seconds,
        seconds,
    )


def on_the_manifold(x, p, num_warmup):
    translated = gxn.to_geodax(ppca, model_args=(x, p), rng_key=1)
    manifold, start = translated.manifold, translated.position
    return geodax_kernel(translated.log_density, manifold, start, translated.constrain, num_warmup)


def in_the_chart(x, p, num_warmup):
    info = initialize_model(jax.random.key(1), ppca, model_args=(x, p))
    return geodax_kernel(lambda z: -info.potential_fn(z), None, info.param_info.z, info.postprocess_fn, num_warmup)


def numpyro_with(chart=None, reparam=None):
    def build(x, p, num_warmup):
        model = functools.partial(ppca, p=p, chart=None if chart is None else chart(x.shape[1], p))
        if reparam is not None:
            model = numpyro.handlers.reparam(model, config={"w": reparam})
        return numpyro_kernel(model, x, num_warmup)

    return build


SAMPLERS = {
    "geodax nuts, manifold": on_the_manifold,
    "geodax nuts, Givens": in_the_chart,
    "NumPyro nuts, Givens": numpyro_with(),
    "NumPyro nuts, loop of rotations": numpyro_with(chart=LoopGivens),
    "NumPyro nuts, polar": numpyro_with(reparam=gxn.PolarReparam()),
    "NumPyro nuts, Householder": numpyro_with(reparam=gxn.HouseholderReparam()),
}


class Chain:
    """A chain that goes on block by block."""

    def __init__(self, kernel: Kernel, num_draws: int):
        def run(key, state):
            def iterate(state, key):
                state = kernel.step(key, state)
                return state, kernel.observe(state)

            return jax.lax.scan(iterate, state, jax.random.split(key, num_draws))

        started = time.perf_counter()
        self._run = jax.jit(run).lower(jax.random.key(0), kernel.state).compile()
        self.compile_seconds = kernel.compile_seconds + time.perf_counter() - started
        self.warmup_seconds, self._state = kernel.warmup_seconds, kernel.state

    def draw(self, seed: int) -> dict:
        started = time.perf_counter()
        self._state, (values, steps, divergent) = jax.block_until_ready(self._run(jax.random.key(seed), self._state))
        seconds = time.perf_counter() - started
        values = np.asarray(values)
        smallest = float(ess(values[None], method="bulk").min())
        part = {"seconds": seconds, "gradients": int(steps.sum()), "divergences": int(divergent.sum())}
        return part | {"min_ess": smallest, "draws": len(values), "values": values}


def row(name: str, size: tuple[int, int, int], chain: Chain, parts: list[dict]) -> dict:
    speeds = [r["min_ess"] / r["seconds"] for r in parts]
    values = np.stack([r["values"] for r in parts])
    effective = ess(values.reshape(1, -1, values.shape[-1]), method="mean")
    return {
        "sampler": name,
        **dict(zip(("n", "p", "num_rows"), size, strict=True)),
        "min_ess_per_second": float(np.median(speeds)),
        "min_ess_per_second_spread": [min(speeds), max(speeds)],
        "min_ess_per_second_with_warmup": float(
            np.median([r["min_ess"] / (r["seconds"] + chain.warmup_seconds) for r in parts])
        ),
        "min_ess_per_1000_gradients": float(np.median([1000 * r["min_ess"] / r["gradients"] for r in parts])),
        "gradients_per_draw": float(np.median([r["gradients"] / r["draws"] for r in parts])),
        "divergences": sum(r["divergences"] for r in parts),
        "warmup_seconds": chain.warmup_seconds,
        "compile_seconds": chain.compile_seconds,
        "mean": values.mean((0, 1)).tolist(),
        "standard_error": (values.reshape(-1, values.shape[-1]).std(0) / np.sqrt(effective)).tolist(),
        "repeats": [{k: v for k, v in r.items() if k != "values"} for r in parts],
    }


def compare(rows: list[dict]) -> None:
    """Write into each row how far its posterior means are from the others' weighted average."""
    means, errors = (np.array([r[k] for r in rows]) for k in ("mean", "standard_error"))
    for i, found in enumerate(rows):
        others = np.arange(len(rows)) != i
        if not others.any():
            continue
        weight = 1 / errors[others] ** 2
        average = (weight * means[others]).sum(0) / weight.sum(0)
        found["z"] = float(np.max(np.abs(means[i] - average) / np.hypot(errors[i], weight.sum(0) ** -0.5)))


def measure(size: tuple[int, int, int], options) -> list[dict]:
    n, p, num_rows = size
    x = simulate(n, p, num_rows)
    chosen = {name: build for name, build in SAMPLERS.items() if any(s in name for s in options.samplers)}
    chains = {name: Chain(build(x, p, options.warmup), options.draws) for name, build in chosen.items()}
    parts: dict[str, list[dict]] = {name: [] for name in chains}
    for repeat in range(options.repeats + 1):  # the first is not counted
        for name, chain in chains.items():
            part = chain.draw(100 + repeat)
            if repeat:
                parts[name].append(part)
    rows = [row(name, size, chain, parts[name]) for name, chain in chains.items()]
    compare(rows)
    return rows


def line(row: dict) -> str:
    return (
        f"({row['n']:3d},{row['p']:2d},{row['num_rows']:4d}) {row['sampler']:32} "
        f"{row['min_ess_per_second']:9.1f} min ESS/s ({row['min_ess_per_second_with_warmup']:8.1f} with warm-up) "
        f"{row['min_ess_per_1000_gradients']:7.2f} per 1,000 gradients, {row['gradients_per_draw']:6.1f} a draw  "
        f"{row['divergences']:4d} divergences  compile {row['compile_seconds']:5.1f} s  z {row.get('z', 0):4.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2,15", "50,3,200"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--samplers", nargs="+", default=[""], help="parts of the names of those to run")
    parser.add_argument("--note", default="", help="a remark to be kept with the figures, for instance on other load")
    parser.add_argument("--out", type=Path, default=RESULTS / "numpyro_ppca.json")
    options = parser.parse_args()
    rows: list[dict] = []
    for size in options.sizes:
        new = measure(tuple(map(int, size.split(","))), options)
        rows += new
        print("\n".join(map(line, new)), flush=True)
        facts = {
            "benchmark": "numpyro_ppca",
            "config": {k: v for k, v in vars(options).items() if k != "out"},
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
            "versions": {name: installed(name) for name in VERSIONS},
            "rows": rows,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
