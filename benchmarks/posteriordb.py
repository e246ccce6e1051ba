"""Ten posteriors of posteriordb with geodax's samplers at their defaults, beside NumPyro's NUTS; float64.

Each sampler has 4 chains of 1,000 + 1,000 iterations from starts that are uniform in (-1, 1) on the unconstrained scale. (From Stan's
(-2, 2) chains of all samplers here can start far outside arma11, where errors grow like theta^200; see docs/hmc.md.) Means, and sds
where the reference draws are in the checkout, are compared with the reference in standard errors of both; the largest difference is
within the bound in 999 of 1,000 runs of an exact sampler. The other figure is the number of gradients after warm-up over the smallest
bulk ESS. Neither depends on the machine.

    git clone https://github.com/stan-dev/posteriordb
    python benchmarks/posteriordb.py --data posteriordb [--posteriors eight arK ...] [--samplers nuts hmc ...]

writes benchmarks/results/posteriordb.json (posteriors and samplers that are not run keep their rows) and prints the rows.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import numpy as np
from _posteriordb import HOW_TO_GET, MODELS, Model, Reference, errors, read
from _versions import installed
from scipy.stats import norm

import geodax as gx
from geodax.diagnostics.convergence import ess, rhat
from geodax.diagnostics.findings import check

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results" / "posteriordb.json"
NUM_CHAINS, LENGTH = 4, 1000


def start(key: jax.Array, dim: int) -> jax.Array:
    return jax.random.uniform(key, (dim,), minval=-1.0, maxval=1.0)


def ours(sampler: str, model: Model, seed: int) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    """Unconstrained draws (chain, draw, dim) and statistics (chain, draw)."""
    tree = gx.sample(
        jax.random.key(seed),
        getattr(gx, sampler)(model.unconstrained),
        lambda key: start(key, model.dim),
        num_samples=LENGTH,
        num_warmup=LENGTH,
        num_chains=NUM_CHAINS,
        progress=False,
    )
    return np.asarray(tree["posterior"]["position"]), {k: np.asarray(v) for k, v in tree["sample_stats"].items()}


def numpyro_nuts(is_dense: bool, model: Model, seed: int) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    from numpyro.infer import MCMC, NUTS

    sampler = NUTS(potential_fn=lambda z: -model.unconstrained(z), dense_mass=is_dense)
    mcmc = MCMC(
        sampler,
        num_warmup=LENGTH,
        num_samples=LENGTH,
        num_chains=NUM_CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    key_run, key_start = jax.random.split(jax.random.key(seed))
    starts = jax.vmap(lambda key: start(key, model.dim))(jax.random.split(key_start, NUM_CHAINS))
    mcmc.run(key_run, init_params=starts, extra_fields=("num_steps", "diverging", "energy"))
    extra = mcmc.get_extra_fields(group_by_chain=True)
    stats = {"n_steps": extra["num_steps"], "diverging": extra["diverging"], "energy": extra["energy"]}
    return np.asarray(mcmc.get_samples(group_by_chain=True)), {k: np.asarray(v) for k, v in stats.items()}


SAMPLERS: dict[str, Callable[[Model, int], tuple[np.ndarray, Mapping[str, np.ndarray]]]] = {
    "nuts": lambda model, seed: ours("nuts", model, seed),
    "hmc": lambda model, seed: ours("hmc", model, seed),
    "numpyro, diagonal": lambda model, seed: numpyro_nuts(False, model, seed),
    "numpyro, dense": lambda model, seed: numpyro_nuts(True, model, seed),
}


def figures(model: Model, reference: Reference, z: np.ndarray, stats: Mapping[str, np.ndarray]) -> dict:
    draws = model.named(z)
    found = errors(draws, reference)
    worst = max(found, key=lambda name: abs(found[name]))
    smallest = min(float(ess(draws[name])) for name in reference.mean)
    return {
        "largest_error": {"of": worst, "in_standard_errors": found[worst]},
        "bound": float(norm.isf(0.0005 / len(found))),
        "reference": reference.source,
        "ess": smallest,
        "gradients_per_draw": float(stats["n_steps"].sum()) / smallest,
        "rhat": max(float(rhat(draws[name])) for name in reference.mean),
        "divergences": int(stats["diverging"].sum()),
        "findings": [finding.title for finding in check({"z": z, **draws}, stats)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a checkout of posteriordb")
    parser.add_argument("--posteriors", nargs="+", help="parts of their names")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not (options.data / "posterior_database").is_dir():
        parser.error(f"{options.data} has no folder posterior_database. {HOW_TO_GET}.")
    facts = json.loads(options.out.read_text()) if options.out.exists() else {"benchmark": "posteriordb", "rows": []}
    for name in MODELS:
        if options.posteriors and not any(part in name for part in options.posteriors):
            continue
        try:
            model, reference = read(options.data, name)
        except FileNotFoundError as error:
            print(f"{name}: left out: {error}", flush=True)
            continue
        for sampler in options.samplers:
            row = {"posterior": name, "dim": model.dim, "sampler": sampler}
            row |= figures(model, reference, *SAMPLERS[sampler](model, options.seed))
            rows = {(old["posterior"], old["sampler"]): old for old in facts["rows"]} | {(name, sampler): row}
            facts["rows"] = [rows[m, s] for m in MODELS for s in SAMPLERS if (m, s) in rows]
            print(json.dumps(row), flush=True)
        facts["versions"] = installed("jax", "numpy", "numpyro")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
