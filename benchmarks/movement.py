"""Which measures tell chains that hardly move from chains that explore, where the posterior is known?

    python benchmarks/movement.py             # writes benchmarks/results/movement.json; some minutes
    python benchmarks/movement.py --runs 4    # fewer runs of each kind

**Regression**: the diabetes table of scikit-learn, 442 rows, fifteen random features and a constant, a normal prior and known noise, so the
posterior is normal and known. Langevin chains with exact gradients start at its mode, four a run, with 100 draws a chain: steps h times
the largest curvature, and iterations between draws. ``variance`` is the true measure: the variance of the draws about the
posterior mean, relative to the posterior's, on average over its principal directions.

**Network**: the yacht table, 6-10-1 with tanh units. The no-U-turn sampler is the reference; chains of ``sgrld`` and ``sghmc`` start at
trainings of their own. For each: the log density of held-out rows, the epistemic share of the predictive variance, and the measures.

Measures: the configurational temperature; the share of the variance within quarters, of parameters and of functions (means at 50 rows);
R-hat of functions, its median over rows. A run is flagged if ``check`` says that its chains hardly move, or move too little.
"""

import argparse
import json
import platform
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed
from sklearn.datasets import load_diabetes

import geodax as gx
from geodax.diagnostics.movement import SLOW, STUCK, share_of_quarters
from geodax.predict.evaluation import evaluate

RESULTS = Path(__file__).parent / "results" / "movement.json"
NOISE, PRIOR, DRAWS = 0.7, 0.3, 100
SETTINGS = (  # step times curvature, iterations between draws
    (1e-5, 20),
    (5e-6, 40),
    (1e-4, 20),
    (1e-3, 20),
    (1e-2, 20),
    (0.1, 20),
    (0.1, 100),
    (0.1, 400),
)


def measures(draws, logdensity, like, functions):
    """The measures of a run and what ``check`` says, with and without the log density."""
    temperature = gx.diagnostics.configurational_temperature(draws, logdensity, like)
    group, stats = draws["posterior"], draws["sample_stats"]

    def is_flagged(draws, **options):
        return any(finding.title in (STUCK, SLOW) for finding in gx.diagnostics.check(draws, stats, **options))

    return {
        "temperature": float(np.mean(temperature)),
        "share of parameters": share_of_quarters({name: group[name].values for name in group.data_vars}),
        "share of functions": share_of_quarters({"f": functions}),
        "rhat of functions": float(np.median(gx.diagnostics.rhat(functions))),
        "flagged by temperature": is_flagged(group, configurational_temperature=temperature),
        "flagged by parameters": is_flagged(group),
        "flagged by functions": is_flagged({"f": functions}),
    }


def regression(num_runs):
    x, y = load_diabetes(return_X_y=True)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    weights = np.random.default_rng(0).normal(size=(x.shape[1], 15)) / x.shape[1] ** 0.5
    features = np.column_stack([np.tanh(x @ weights), np.ones(len(x))])
    precision = features.T @ features / NOISE**2 + np.eye(16) / PRIOR**2
    mode = np.linalg.solve(precision, features.T @ y / NOISE**2)
    curvatures, directions = np.linalg.eigh(precision)
    print(f"curvatures from {curvatures[0]:.0f} to {curvatures[-1]:.0f}")
    exact, center = jnp.asarray(precision, jnp.float32), jnp.asarray(mode, jnp.float32)

    def logdensity(w):
        return -0.5 * (w - center) @ exact @ (w - center)

    for step, thinning in SETTINGS:
        algorithm = gx.sgrld(logdensity, step_size=step / float(curvatures[-1]))
        found = gx.sample(
            jax.random.key(0),
            algorithm,
            center,
            num_samples=DRAWS,
            thinning=thinning,
            num_chains=4 * num_runs,
            progress=False,
        )
        for run in range(num_runs):
            draws = found.isel(chain=slice(4 * run, 4 * run + 4))
            w = draws["posterior"]["position"].values.astype(np.float64)
            variance = float(((((w - mode) @ directions) ** 2).mean((0, 1)) * curvatures).mean())
            row = {"run": run, "step": step, "thinning": thinning, "variance": variance}
            yield row | measures(draws, logdensity, center, w @ features[:50].T)


def network(num_seeds):
    data = gx.data.supervised("uci/yacht")
    (x, y), (x_test, y_test) = ((np.asarray(v, np.float32) for v in part) for part in (data.train, data.test))
    y, y_test = y.ravel(), y_test.ravel()
    noise = 0.1
    like = gx.nn.MLP(x.shape[1], "scalar", widths=(10,), activation=jnp.tanh, key=jax.random.key(0))
    priors = gx.nn.Priors([("*", gx.nn.Gaussian(1.0))])
    posterior = gx.Posterior(log_prior=priors, log_likelihood=gx.nn.GaussianLikelihood(noise), num_data=len(x))
    batches, full = gx.data.batches((x, y), batch_size=len(x)), posterior.full((x, y))
    for seed in range(num_seeds):
        key = jax.random.key(seed)
        trained = gx.train_ensemble(
            key,
            posterior,
            lambda k: priors.sample(k, like),
            batches=batches,
            num_steps=2000,
            num_members=4,
            progress=False,
        )
        starts = gx.last_positions(trained, like)
        runs = {
            "optima": (None, {}),
            "sgrld, h = 2e-8": (gx.sgrld(posterior, step_size=2e-8), {"thinning": 20, "batches": batches}),
            "sgrld, h = 1e-8": (gx.sgrld(posterior, step_size=1e-8), {"thinning": 40, "batches": batches}),
            "sgrld": (gx.sgrld(posterior), {"thinning": 20, "num_warmup": 1000, "batches": batches}),
            "sghmc": (gx.sghmc(posterior), {"thinning": 20, "num_warmup": 1000, "batches": batches}),
            "sghmc, longer": (gx.sghmc(posterior), {"thinning": 500, "num_warmup": 2000, "batches": batches}),
            "nuts": (gx.nuts(full, max_num_doublings=8), {"thinning": 5, "num_warmup": 500}),
        }
        for name, (algorithm, options) in runs.items():
            draws = trained
            if algorithm is not None:
                options = {"num_samples": DRAWS, "num_chains": 4, "stacked": True, "progress": False} | options
                draws = gx.sample(key, algorithm, starts, **options)
            found = gx.predictive.predict_numbers(draws, like, x_test, targets=y_test, noise=noise)
            row = {
                "sampler": name,
                "seed": seed,
                "log density": float(found.log_density.mean()),
                "epistemic": float((found.epistemic / found.variance).mean()),
            }
            if algorithm is not None:
                blocks = np.concatenate(list(evaluate(draws, like, x_test[:50])))
                functions = blocks.reshape(DRAWS, 4, -1).swapaxes(0, 1)
                row |= measures(draws, full, like, functions)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {
        "draws": DRAWS,
        "machine": f"{platform.machine()}, one thread",
        "versions": installed("jax", "jaxlib"),
        "regression": [],
        "network": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for part, rows in (("regression", regression(options.runs)), ("network", network(options.seeds))):
        for row in rows:
            if part == "network" or row["run"] == 0:
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            facts[part].append(row)
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
