"""Probabilistic PCA as a NumPyro model, its loadings an orthonormal matrix: NumPyro's NUTS and Stan's in coordinates beside ours.

    x_i ~ N(0, W diag(scale^2) W^T + noise^2 I),  i = 1, ..., N,   W uniform on the Stiefel manifold (n, p)

Two forms of the one density. *As written*: a row of data is an observation of a normal law of low rank, as a user of NumPyro writes
it (Stan: the covariance matrix is built and solved against the sample covariance, as the program of Pourzanjani et al. does).
*Statistics*: all samplers have the same function of the scatter matrix. The columns of W are known up to sign and order only, so
effective sample sizes are those of what does not see them: entries of the covariance matrix, and the noise. All chains begin near the
classical solution. NUTS chains run one after the other, HMC chains of adapted length side by side; the row "chains side by side" gives
NumPyro's NUTS the same. Sizes are of all chains together, times of the processor (Stan: of the clock).

`z` is the largest difference of a posterior mean from that of a long run of our HMC (64 chains), in standard errors; those of a
row come from its effective sample sizes and from the spread between its chains, whichever is larger. `z_of_chains` takes each chain by
itself, with the error that its own effective sample size claims.

    python benchmarks/numpyro_ppca.py [--sizes 3,2,15 50,3,200] [--repeats 3] [--draws 500] [--samplers manifold polar] [--quick]

writes benchmarks/results/numpyro_ppca.json after each row, keeps the rows that are not run, and prints the table.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import numpy as np
from _ppca.jax_samplers import in_a_chart, numpyro_nuts, on_the_manifold
from _ppca.model import FORMS, LoopGivens, Problem, simulate
from _ppca.stan_sampler import StanChains
from _stiefel.chain import PeerMissingError
from _stiefel.target import RESULTS
from _versions import installed

import geodax as gx
from geodax.diagnostics.findings import ess, rhat
from geodax.interop import numpyro as gxn

jax.config.update("jax_enable_x64", True)

VERSIONS = ("jax", "jaxlib", "numpy", "numpyro", "pystan", "httpstan")
NAMES = ("n", "p", "num_rows", "form", "sampler")


def centered(problem: Problem):
    """The Givens chart with the classical solution in its middle."""
    return gx.transforms.Givens(problem.n, problem.p, center=problem.w)


def numpyro_with(chart=lambda problem: None, reparam=None, **settings):
    return lambda problem, form, options: numpyro_nuts(
        problem, form, options, chart=chart(problem), reparam=reparam, **settings
    )


SAMPLERS = {
    "geodax hmc, manifold": lambda *a: on_the_manifold(*a, sampler="hmc"),
    "geodax nuts, manifold": lambda *a: on_the_manifold(*a, sampler="nuts"),
    "geodax hmc, Givens centered": lambda *a: in_a_chart(*a, sampler="hmc", chart=centered(a[0])),
    "geodax nuts, Givens centered": lambda *a: in_a_chart(*a, sampler="nuts", chart=centered(a[0])),
    "geodax nuts, Givens": lambda *a: in_a_chart(*a, sampler="nuts"),
    "NumPyro nuts, polar": numpyro_with(reparam=gxn.PolarReparam()),
    "NumPyro nuts, polar, chains side by side": numpyro_with(reparam=gxn.PolarReparam(), is_together=True),
    "NumPyro nuts, Householder": numpyro_with(reparam=gxn.HouseholderReparam()),
    "NumPyro nuts, Givens": numpyro_with(),
    "NumPyro nuts, Givens centered": numpyro_with(chart=centered),
    "NumPyro nuts, loop of rotations": numpyro_with(chart=lambda problem: LoopGivens(problem.n, problem.p)),
    "Stan nuts, Givens": StanChains,
}


def spread(values: np.ndarray) -> np.ndarray:
    """Standard errors of the means, from the effective sizes or from the chains, whichever are larger."""
    within = values.std((0, 1)) / np.sqrt(ess(values, method="mean"))
    return np.maximum(within, values.mean(1).std(0, ddof=1) / np.sqrt(len(values)))


def chain_error(values: np.ndarray, truth: dict) -> float:
    """What one chain alone would be taken for: its largest error in its own standard errors."""
    error = values.std(0) / np.sqrt(ess(values[None], method="mean"))
    return float(np.max(np.abs(values.mean(0) - truth["mean"]) / np.hypot(error, truth["standard_error"])))


def reference(problem: Problem, options) -> dict:
    """Means of a long run of many chains on the manifold."""
    chosen = argparse.Namespace(**vars(options) | {"many": 64, "warmup": 500, "draws": 500 if options.quick else 3000})
    block = on_the_manifold(problem, "statistics", chosen, sampler="hmc").draw(1)
    return {
        "chains": chosen.many,
        "draws": chosen.draws,
        "mean": block.values.mean((0, 1)).tolist(),
        "standard_error": spread(block.values).tolist(),
        "min_ess": float(ess(block.values).min()),
        "max_rhat": float(rhat(block.values).max()),
        "divergences": block.divergences,
    }


def measure(name: str, problem: Problem, form: str, options, truth: dict) -> dict:
    """A row."""
    chains = SAMPLERS[name](problem, form, options)
    blocks = [chains.draw(100 + repeat) for repeat in range(options.repeats)]
    sizes = [float(ess(b.values, method="bulk").min()) for b in blocks]
    speeds = [size / b.seconds for size, b in zip(sizes, blocks, strict=True)]
    values = np.concatenate([b.values for b in blocks], axis=1)
    mean, error = values.mean((0, 1)), spread(values)
    differences = np.abs(mean - truth["mean"]) / np.hypot(error, truth["standard_error"])
    return {
        **dict(zip(NAMES, (problem.n, problem.p, len(problem.x), form, name), strict=True)),
        "chains": chains.num_chains,
        "draws": options.draws,
        "warmup": options.warmup,
        "min_ess_per_second": float(np.median(speeds)),
        "min_ess_per_second_spread": [min(speeds), max(speeds)],
        "min_ess_per_second_with_warmup": float(sum(sizes) / (sum(b.seconds for b in blocks) + chains.warmup_seconds)),
        "min_ess_per_1000_gradients": 1000 * sum(sizes) / sum(b.gradients for b in blocks),
        "microseconds_per_gradient": 1e6 * sum(b.seconds for b in blocks) / sum(b.gradients for b in blocks),
        "gradients_per_draw": sum(b.gradients for b in blocks) / values[..., 0].size,
        "divergences": sum(b.divergences for b in blocks),
        "max_rhat": float(rhat(values).max()),
        "warmup_seconds": chains.warmup_seconds,
        "compile_seconds": chains.compile_seconds,
        "z": float(differences.max()),
        "z_of_chains": [chain_error(chain, truth) for chain in values],
        "mean": mean.tolist(),
        "standard_error": error.tolist(),
        "repeats": [
            {"seconds": b.seconds, "gradients": b.gradients, "min_ess": size}
            for size, b in zip(sizes, blocks, strict=True)
        ],
        "load_average": os.getloadavg()[0],
    }


def line(row: dict) -> str:
    size = ",".join(str(row[name]) for name in NAMES[:3])
    return (
        f"({size:8}) {row['form']:10} {row['sampler']:40} {row['chains']:2d} chains "
        f"{row['min_ess_per_second']:8.1f} min ESS/s ({row['min_ess_per_second_with_warmup']:7.1f} with warm-up) "
        f"{row['min_ess_per_1000_gradients']:6.2f} per 1,000 gradients of {row['microseconds_per_gradient']:6.1f} us, "
        f"{row['gradients_per_draw']:5.1f} a draw  {row['divergences']:3d} divergences  R-hat {row['max_rhat']:.3f}  "
        f"z {row['z']:4.1f}  compile {row['compile_seconds']:4.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2,15", "50,3,200"])
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS)
    parser.add_argument("--samplers", nargs="+", default=[""], help="parts of the names of those to run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--draws", type=int, default=500, help="of a chain, in a repeat")
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--chains", type=int, default=4, help="that run one after the other")
    parser.add_argument("--many", type=int, default=16, help="chains that run side by side")
    parser.add_argument("--missing", action="store_true", help="leave the rows that are on file as they are")
    parser.add_argument("--quick", action="store_true", help="one short repeat: whether everything runs, not how fast")
    parser.add_argument("--note", default="", help="a remark to be kept with the figures, for instance on other load")
    parser.add_argument("--out", type=Path, default=RESULTS / "numpyro_ppca.json")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.draws, options.warmup, options.chains = 1, 100, 100, 2
    old = json.loads(options.out.read_text()) if options.out.exists() else {}
    rows = {tuple(row[name] for name in NAMES): row for row in old.get("rows", [])}
    references, left_out = old.get("references", {}), old.get("left_out", {})
    for size in options.sizes:
        problem = simulate(*map(int, size.split(",")))
        for form in options.forms:
            for name in SAMPLERS:
                key = (*map(int, size.split(",")), form, name)
                if not any(part in name for part in options.samplers) or (options.missing and key in rows):
                    continue
                if size not in references:
                    references[size] = reference(problem, options)
                try:
                    rows[key] = measure(name, problem, form, options, references[size])
                except PeerMissingError as reason:
                    left_out[name] = str(reason)
                    print(f"{name}: left out: {reason}", flush=True)
                    continue
                left_out.pop(name, None)
                print(line(rows[key]), flush=True)
                keep(options, rows, references, left_out)


def keep(options, rows: dict, references: dict, left_out: dict) -> None:
    order = {name: place for place, name in enumerate(SAMPLERS)}
    facts = {
        "benchmark": "numpyro_ppca",
        "config": {k: v for k, v in vars(options).items() if k not in ("out", "missing", "samplers", "forms")},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread, processor time",
        "versions": installed(*VERSIONS),
        "left_out": left_out,
        "references": references,
        "rows": sorted(rows.values(), key=lambda row: (*(row[n] for n in NAMES[:4]), order[row["sampler"]])),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    scratch = options.out.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(facts, indent=1) + "\n")
    scratch.replace(options.out)


if __name__ == "__main__":
    main()
