"""Effective draws a gradient of nuts on manifolds for several target acceptance rates, relative to the target 0.8.

The densities are those of benchmarks/stiefel.py at seven sizes, once as they are and once ten times as concentrated, von Mises-Fisher
densities on spheres, the posteriors of BayesianPCA for tables of scikit-learn, and those of Eigenmodel for simulated networks. Four
chains, 500 iterations of warm-up, 1,000 draws, the mean over two seeds. Nothing is timed, so other work beside it does no harm.

    python benchmarks/acceptance_rates.py

writes benchmarks/results/acceptance_rates.json, from which docs/tables.py writes the table of docs/nuts.md.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.datasets
from _stiefel.target import make_target
from _versions import installed

import geodax as gx
from geodax.diagnostics.alignment import invariant_draws
from geodax.diagnostics.findings import ess
from geodax.models import BayesianPCA, Eigenmodel

RESULTS = Path(__file__).parent / "results"
TARGETS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.9)
SEEDS = (1, 2)
SIZES = ((3, 2), (5, 2), (10, 3), (20, 2), (20, 10), (50, 5), (100, 3))
SPHERES = ((3, 5.0), (3, 500.0), (50, 20.0))
TABLES = (("iris", 2), ("diabetes", 2), ("wine", 3), ("breast_cancer", 5), ("digits", 8))
OPTIONS = {"num_samples": 1000, "num_warmup": 500, "progress": False}


def run(logdensity: Callable, manifold, like, target: float, seed: int) -> dict[str, float]:
    """Effective draws per 1,000 gradients: the smallest of the entries, of their squares, and of the log density."""
    sampler = gx.nuts(logdensity, manifold=manifold, target_acceptance_rate=target)
    found = gx.sample(
        jax.random.key(seed), sampler, lambda key: manifold.random_point(key, like), num_chains=4, **OPTIONS
    )
    x = np.asarray(found["posterior"]["position"])
    return per_gradient(found["sample_stats"], {"entries": [x], "squares": [x**2]})


def fit(table: np.ndarray, num_components: int, target: float, seed: int) -> dict[str, float]:
    """The same of a posterior of BayesianPCA, with components up to their signs; squares of scales have their ranks."""
    model = BayesianPCA(num_components, target_acceptance_rate=target, random_state=seed, **OPTIONS).fit(table)
    draws = {name: np.asarray(values) for name, values in model.posterior_["posterior"].data_vars.items()}
    components = invariant_draws(draws.pop("components"), name="components", up_to="signs")
    return per_gradient(model.posterior_["sample_stats"], {"entries": [*draws.values(), *components.values()]})


def fit_network(matrix: np.ndarray, rank: int, link: str, target: float, seed: int) -> dict[str, float]:
    """The same of the eigenvalues and the intercept of Eigenmodel."""
    model = Eigenmodel(rank, link=link, target_acceptance_rate=target, random_state=seed, **OPTIONS).fit(matrix)
    draws = model.posterior_["posterior"]
    entries = [np.asarray(draws[name]) for name in ("eigenvalues", "intercept")]
    return per_gradient(model.posterior_["sample_stats"], {"entries": entries})


def per_gradient(stats, quantities: dict[str, list[np.ndarray]]) -> dict[str, float]:
    num_gradients = int(stats["n_steps"].sum())
    quantities |= {"log density": [np.asarray(stats["lp"])]}
    found = {name: 1000 * min(float(np.min(ess(x))) for x in many) / num_gradients for name, many in quantities.items()}
    return found | {"steps": float(stats["n_steps"].mean()), "divergences": int(stats["diverging"].sum())}


def langevin_bingham(f, b, weights, factor: float, x):
    return factor * (jnp.sum(f * x) + jnp.sum(x * (b @ x) * weights))


def von_mises_fisher(kappa: float, x):
    return kappa * x[0]


def densities() -> Iterator[tuple[str, str, Callable[[float, int], dict[str, float]]]]:
    """Kind, name, and the function of target and seed that runs one."""
    for n, p in SIZES:
        matrices = map(jnp.asarray, make_target(n, p))
        density = partial(langevin_bingham, *matrices)
        for factor in (1, 10):
            ours = partial(density, factor)
            yield "frames", f"({n}, {p}), concentration {factor}", partial(run, ours, gx.Stiefel(), jnp.zeros((n, p)))
    for n, kappa in SPHERES:
        ours = partial(von_mises_fisher, kappa)
        yield "spheres", f"dimension {n - 1}, concentration {kappa:g}", partial(run, ours, gx.Sphere(), jnp.zeros(n))
    for name, num_components in TABLES:
        table = getattr(sklearn.datasets, f"load_{name}")().data
        yield "BayesianPCA", name, partial(fit, table[:, table.std(0) > 0], num_components)
    for name, rank, link, log_rates in networks():
        generator = np.random.default_rng(0)
        drawn = np.triu(generator.poisson(np.exp(log_rates)), 1)
        matrix = drawn + drawn.T
        yield "Eigenmodel", name, partial(fit_network, matrix if link == "log" else np.minimum(matrix, 1), rank, link)


def networks() -> Iterator[tuple[str, int, str, np.ndarray]]:
    """Name, rank and link of a model, and logarithms of the expected counts of edges."""
    blocks = np.repeat(np.eye(4), 12, axis=0)
    yield "four blocks, probit", 3, "probit", np.log(0.08 + 0.6 * blocks @ blocks.T)
    axes = np.linalg.qr(np.random.default_rng(1).standard_normal((40, 2)))[0]
    similarity = axes @ np.diag([40.0, -25.0]) @ axes.T
    yield "40 nodes, logit", 2, "logit", similarity - 1.0
    yield "40 nodes, counts", 2, "log", similarity


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    rows = []
    for kind, name, make in densities():
        for target in TARGETS:
            found = [make(target, seed) for seed in SEEDS]
            means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
            rows.append({"kind": kind, "density": name, "target": target, **means})
            print(rows[-1], flush=True)
    facts = {
        "benchmark": "acceptance_rates",
        "config": {"targets": TARGETS, "seeds": SEEDS, **OPTIONS},
        "versions": installed("jax", "jaxlib", "numpy"),
        "rows": rows,
    }
    (RESULTS / "acceptance_rates.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
