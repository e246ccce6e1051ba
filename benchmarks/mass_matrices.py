"""Gradients per effective draw with each mass matrix, beside NumPyro's NUTS; float64.

Targets: independent and equally correlated normals, a factor model, regressions with collinear inputs on real tables, an autoregression,
eight schools, independent t distributions. NUTS has 4 chains of 1,000 + 1,000 iterations, tuned one by one; HMC has 64 chains of 300 + 300,
tuned together. The figure is the number of gradients after warm-up over the smallest bulk ESS of all entries; it does not depend on the
machine.

    python benchmarks/mass_matrices.py [--targets diabetes ...] [--samplers nuts hmc numpyro] [--kinds low_rank]

writes benchmarks/results/mass_matrices.json (targets and samplers that are not run keep their rows) and prints the rows.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed
from sklearn.datasets import load_breast_cancer, load_diabetes

import geodax as gx
from geodax.diagnostics.convergence import ess

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results" / "mass_matrices.json"
KINDS = ("diagonal", "dense", "low_rank")
SAMPLERS = ("nuts", "hmc", "numpyro")
Target = tuple[Callable, int]


def normal(covariance: np.ndarray) -> Target:
    root = jnp.asarray(np.linalg.cholesky(np.linalg.inv(covariance)).T)
    return (lambda x: -0.5 * jnp.sum((root @ x) ** 2)), len(covariance)


def factors(dim: int, num_factors: int) -> Target:
    loadings = np.random.default_rng(0).normal(size=(dim, num_factors))
    return normal(np.eye(dim) + 3.0 * loadings @ loadings.T)


def linear_regression(x: np.ndarray, y: np.ndarray) -> Target:
    """Coefficients with a wide prior, and the logarithm of the noise."""
    x, y = jnp.asarray(np.column_stack([np.ones(len(x)), x])), jnp.asarray(y)

    def logdensity(theta):
        coefficients, log_noise = theta[:-1], theta[-1]
        residual = y - x @ coefficients
        likelihood = -0.5 * jnp.sum(residual**2) * jnp.exp(-2 * log_noise) - len(y) * log_noise
        return likelihood - 0.5 * jnp.sum(coefficients**2) / 100 - 0.5 * log_noise**2

    return logdensity, x.shape[1] + 1


def diabetes() -> Target:
    x, y = load_diabetes(return_X_y=True)
    return linear_regression(20 * x, (y - y.mean()) / y.std())


def uncentred() -> Target:
    """46 rows of inputs far from zero, as in posteriordb's mesquite, so that intercept and slopes are correlated."""
    generator = np.random.default_rng(0)
    x = np.array([3.0, 5.0, 2.0, 4.0, 1.0]) + 0.3 * generator.normal(size=(46, 5))
    return linear_regression(x, x @ generator.normal(size=5) + 0.3 * generator.normal(size=46))


def autoregression() -> Target:
    generator = np.random.default_rng(0)
    series = 0.3 * generator.normal(size=220)
    for t in range(5, 220):
        series[t] += 0.2 + series[t - 5 : t][::-1] @ [0.5, 0.2, 0.1, -0.1, 0.1]
    return linear_regression(np.stack([series[4 - k : -1 - k] for k in range(5)], axis=1), series[5:])


def logistic_regression() -> Target:
    x, y = load_breast_cancer(return_X_y=True)
    x, y = jnp.asarray(np.column_stack([np.ones(len(x)), (x - x.mean(0)) / x.std(0)])), jnp.asarray(y, float)

    def logdensity(coefficients):
        logits = x @ coefficients
        return jnp.sum(y * logits - jnp.logaddexp(0.0, logits)) - 0.5 * jnp.sum(coefficients**2) / 25

    return logdensity, x.shape[1]


def eight_schools() -> Target:
    """Without centring."""
    effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def logdensity(theta):
        mean, log_spread, z = theta[0], theta[1], theta[2:]
        residual = (effects - mean - jnp.exp(log_spread) * z) / errors
        prior = -0.5 * mean**2 / 25 - jnp.log1p(jnp.exp(2 * log_spread) / 25) + log_spread - 0.5 * jnp.sum(z**2)
        return prior - 0.5 * jnp.sum(residual**2)

    return logdensity, 10


TARGETS: dict[str, Callable[[], Target]] = {
    "normal, 100 independent": lambda: normal(np.eye(100)),
    "normal, 20 correlated by 0.98": lambda: normal(0.98 + 0.02 * np.eye(20)),
    "normal, 300 with 8 factors": lambda: factors(300, 8),
    "linear regression, diabetes": diabetes,
    "linear regression, uncentred": uncentred,
    "autoregression": autoregression,
    "logistic regression, breast cancer": logistic_regression,
    "eight schools": eight_schools,
    "t, 30 independent": lambda: ((lambda x: -2.0 * jnp.sum(jnp.log1p(x**2 / 3))), 30),
}


def figures(draws: np.ndarray, num_gradients: float) -> dict[str, float]:
    smallest = float(ess(draws).min())
    return {"ess": smallest, "gradients": num_gradients, "gradients_per_draw": num_gradients / smallest}


def ours(sampler: str, kind: str, target: Target) -> dict[str, float]:
    logdensity, dim = target
    num_chains, length = (4, 1000) if sampler == "nuts" else (64, 300)
    tree = gx.sample(
        jax.random.key(1),
        getattr(gx, sampler)(logdensity, mass_matrix=kind),
        lambda key: jax.random.normal(key, (dim,)),
        num_samples=length,
        num_warmup=length,
        num_chains=num_chains,
        progress=False,
    )
    found = figures(tree["posterior"]["position"].values, float(tree["sample_stats"]["n_steps"].sum()))
    return found | {"divergences": int(tree["sample_stats"]["diverging"].sum())}


def numpyro_nuts(kind: str, target: Target) -> dict[str, float]:
    from numpyro.infer import MCMC, NUTS

    logdensity, dim = target
    sampler = NUTS(potential_fn=lambda x: -logdensity(x), dense_mass=kind == "dense")
    mcmc = MCMC(sampler, num_warmup=1000, num_samples=1000, num_chains=4, chain_method="vectorized", progress_bar=False)
    start = jax.random.normal(jax.random.key(2), (4, dim))
    mcmc.run(jax.random.key(1), init_params=start, extra_fields=("num_steps", "diverging"))
    extra = mcmc.get_extra_fields()
    found = figures(np.asarray(mcmc.get_samples(group_by_chain=True)), float(extra["num_steps"].sum()))
    return found | {"divergences": int(extra["diverging"].sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", help="parts of their names")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = json.loads(options.out.read_text()) if options.out.exists() else {"benchmark": "mass_matrices", "rows": []}
    for name, build in TARGETS.items():
        if options.targets and not any(part in name for part in options.targets):
            continue
        for sampler in options.samplers:
            for kind in options.kinds if sampler != "numpyro" else KINDS[:2]:
                target = build()
                found = numpyro_nuts(kind, target) if sampler == "numpyro" else ours(sampler, kind, target)
                row = {"target": name, "sampler": sampler, "mass_matrix": kind} | found
                facts["rows"] = [old for old in facts["rows"] if any(old[k] != row[k] for k in list(row)[:3])] + [row]
                print(json.dumps(row), flush=True)
        facts["versions"] = installed("jax", "numpy", "numpyro")
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
