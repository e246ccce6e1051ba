"""Samplers on the Stiefel manifold side by side: ours and the peers', one chain, one thread, float64.

The target is a matrix Langevin plus Bingham density, log pi(X) = tr(F^T X) + tr(D X^T B X). geoopt and mici sample it on the manifold;
BlackJAX, NumPyro and Stan sample an unconstrained matrix whose polar factor is X, under a standard normal prior of that matrix,
which leaves X with the density pi. Each sampler is warmed up by its own rules, then timed over repeats that alternate between the
samplers. A speed counts only if the draws agree with the exact moments and with an identity that holds for every right sampler
(``_stiefel/target.py``): the last columns. Peers that are not installed are left out, and said so; all are in the extra ``bench``.

    python benchmarks/stiefel.py [--sizes 3,2 10,3 50,5 200,10] [--repeats 5] [--draws 1000] [--samplers geodax mici]

writes benchmarks/results/stiefel.json and prints the table.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import numpy as np
from _stiefel.chain import AbstractChain, Draws, PeerMissingError
from _stiefel.jax_samplers import blackjax_chain, geodax_chain, geodax_hmc_chain, numpyro_chain
from _stiefel.python_samplers import GeooptChain, MiciChain
from _stiefel.stan_sampler import StanChain
from _stiefel.target import RESULTS, errors, make_target, read_moments
from _versions import installed

import geodax as gx
from geodax.diagnostics.findings import ess

jax.config.update("jax_enable_x64", True)

VERSIONS = ("jax", "jaxlib", "numpy", "blackjax", "numpyro", "geoopt", "torch", "mici", "pystan", "httpstan")
SAMPLERS = {
    "geodax nuts, Cayley": lambda t, o: geodax_chain(t, o.draws, o.warmup),
    "geodax nuts, embedded geodesic": lambda t, o: geodax_chain(
        t, o.draws, o.warmup, metric="embedded", flow="geodesic"
    ),
    "geodax nuts, Cayley, target 0.65": lambda t, o: geodax_chain(t, o.draws, o.warmup, target_acceptance_rate=0.65),
    "geodax hmc, length from 16 chains": lambda t, o: geodax_hmc_chain(t, o.draws, o.warmup),
    "geodax adjusted_mclmc, length from 16 chains": lambda t, o: geodax_hmc_chain(
        t, o.draws, o.warmup, make=gx.adjusted_mclmc
    ),
    "geodax adjusted_mclmc, length from 4 chains": lambda t, o: geodax_hmc_chain(
        t, o.draws, o.warmup, 4, gx.adjusted_mclmc
    ),
    "BlackJAX nuts, polar": lambda t, o: blackjax_chain(t, o.draws, o.warmup),
    "NumPyro nuts, polar": lambda t, o: numpyro_chain(t, o.draws, o.warmup),
    "Stan nuts, polar": lambda t, o: StanChain(t, o.draws, o.warmup),
    "mici constrained nuts": lambda t, o: MiciChain(t, o.draws, o.warmup, o.seconds),
    "geoopt RHMC": lambda t, o: GeooptChain(t, o.draws, o.warmup, o.seconds),
}


def target(n: int, p: int):
    """The log density of a size, for JAX."""
    return make_target(n, p).logdensity


def smallest_ess(x: np.ndarray) -> float:
    """Smallest bulk ESS of an entry; 0 if one never moved."""
    effective = ess(x.reshape(1, len(x), -1), method="bulk")
    return float(np.where(np.ptp(x.reshape(len(x), -1), axis=0) > 0, effective, 0.0).min())


def build(name: str, n: int, p: int, options) -> AbstractChain | str:
    """A warmed-up chain, or the reason why there is none."""
    try:
        return SAMPLERS[name](make_target(n, p), options)
    except (ImportError, PeerMissingError) as error:
        return f"{error} (pip install 'geodax[bench]')"


def measure(n: int, p: int, options) -> tuple[list[dict], dict[str, str]]:
    """A row for each sampler, and those left out."""
    built = {name: build(name, n, p, options) for name in SAMPLERS if any(s in name for s in options.samplers)}
    left_out = {name: reason for name, reason in built.items() if isinstance(reason, str)}
    chains = {name: chain for name, chain in built.items() if isinstance(chain, AbstractChain)}
    blocks: dict[str, list[Draws]] = {name: [] for name in chains}
    for repeat in range(options.repeats + 1):  # the first is not counted
        for name, chain in chains.items():
            block = chain.draw(100 + repeat)
            if repeat:
                blocks[name].append(block)
    return [row(name, n, p, chain, blocks[name]) for name, chain in chains.items()], left_out


def row(name: str, n: int, p: int, chain: AbstractChain, blocks: list[Draws]) -> dict:
    """Medians over the repeats, and the errors of all draws together."""
    parts = [
        {"seconds": b.seconds, "gradients": b.num_gradients, "draws": len(b.x), "min_ess": smallest_ess(b.x)}
        for b in blocks
    ]
    x = np.stack([b.x for b in blocks])
    found = errors(make_target(n, p), x, read_moments(n, p))

    def spread(f):
        values = [f(part) for part in parts]
        return float(np.median(values)), [min(values), max(values)]

    per_second, per_second_spread = spread(lambda r: r["min_ess"] / r["seconds"])
    return {
        "sampler": name,
        "n": n,
        "p": p,
        "seconds_per_1000_gradients": spread(lambda r: 1000 * r["seconds"] / r["gradients"])[0],
        "min_ess_per_second": per_second,
        "min_ess_per_second_spread": per_second_spread,
        "min_ess_per_second_with_warmup": spread(lambda r: r["min_ess"] / (r["seconds"] + chain.warmup_seconds))[0],
        "min_ess_per_1000_gradients": spread(lambda r: 1000 * r["min_ess"] / r["gradients"])[0],
        "gradients_per_draw": spread(lambda r: r["gradients"] / r["draws"])[0],
        "warmup_seconds": chain.warmup_seconds,
        "compile_seconds": chain.compile_seconds,
        **found._asdict(),
        "verdict": found.verdict,
        "residual": float(np.abs(np.swapaxes(x, -1, -2) @ x - np.eye(p)).max()),
        "repeats": parts,
    }


def line(row: dict) -> str:
    errors_ = [row["entries"], row["logdensity"], row["identity"]]
    verdict = row["verdict"] + (f" (beyond {row['bound']:.1f})" if row["verdict"] == "wrong" else "")
    shown = " ".join("     -" if z is None else f"{z:6.1f}" for z in errors_)
    return (
        f"({row['n']:3d},{row['p']:2d}) {row['sampler']:33} {row['seconds_per_1000_gradients'] * 1e3:9.2f} ms/1,000 gradients "
        f"{row['min_ess_per_second']:9.1f} min ESS/s ({row['min_ess_per_second_with_warmup']:8.1f} with warm-up) "
        f"{row['min_ess_per_1000_gradients']:6.1f} per 1,000 gradients  compile {row['compile_seconds']:5.1f} s  "
        f"residual {row['residual']:.0e}  E log pi {row['mean_log_density']:.3f} +- {row['mean_log_density_error']:.3f}  "
        f"z {shown}  {verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2", "10,3", "50,5", "200,10"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--samplers", nargs="+", default=[""], help="parts of the names of those to run")
    parser.add_argument("--seconds", type=float, default=30.0, help="limit of a repeat of the samplers in Python")
    parser.add_argument("--note", default="", help="a remark to be kept with the figures, for instance on other load")
    parser.add_argument("--out", type=Path, default=RESULTS / "stiefel.json")
    options = parser.parse_args()
    rows, left_out = [], {}
    for size in options.sizes:
        new, missing = measure(*map(int, size.split(",")), options)
        for name, reason in missing.items():
            if name not in left_out:
                print(f"{name}: left out: {reason}", flush=True)
        rows, left_out = rows + new, left_out | missing
        print("\n".join(map(line, new)), flush=True)
        facts = {
            "benchmark": "stiefel",
            "config": {k: v for k, v in vars(options).items() if k != "out"},
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread",
            "versions": installed(*VERSIONS),
            "left_out": left_out,
            "rows": rows,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
