"""Sampling, deep ensembles, SWAG and multi-SWAG at equal cost: log score and calibration on rows that were not fitted.

    python benchmarks/equal_cost.py            # writes benchmarks/results/equal_cost.json; stopped, it goes on where it was
    python benchmarks/equal_cost.py --effort 0.02 --seeds 1 --out /tmp/x.json    # some minutes, mostly of compilation

Three tables of the UCI repository on their published splits, and the handwritten digits of scikit-learn, 1,000 of them fitted, read by the
network estimators with two layers of 50 units and their default prior. Each method may compute the same number of gradients of a row:
what the four chains of ``inference="mcmc"``, each step on all rows, take for 1,200 iterations of warm-up and 1,600 of sampling. In the last
quarter of that warm-up an iteration counts three gradients, one of 300 that find SWAG's learning rate four, any other step one. Seconds are of the
processor, compilation included, the least of the seeds. Nothing was tuned on the rows held out.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import numpy as np
from _versions import installed, rows_so_far
from sklearn.datasets import load_digits

import geodax as gx
from geodax.models import BayesianMLPClassifier, BayesianMLPRegressor
from geodax.run.swag import NUM_TUNING

RESULTS = Path(__file__).parent / "results" / "equal_cost.json"
BATCH, CHAINS, COLLECTED, TUNING = 100, 4, 40, 4
WARMUP, DRAWS, THINNING = 1200, 50, 32
PER_CHAIN = WARMUP * 3 // 4 + WARMUP // 4 * 3 + DRAWS * THINNING  # gradients on all rows
DATA = ("uci/yacht", "digits", "uci/energy", "uci/concrete")


def rows_of(name, seed):
    """Training and test rows, and whether the targets are classes."""
    if name != "digits":
        data = gx.data.supervised(name, split=seed, standardize=False, dtype=np.float64)
        return [(np.asarray(x), np.ravel(y)) for x, y in (data.train, data.test)], False
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return [(x[rows], y[rows]) for rows in (order[:1000], order[1000:])], True


def settings_of(method, num_rows, effort):
    """Options of the estimator, and the gradients of a row that it takes, in millions."""
    budget = int(PER_CHAIN * effort) * num_rows // BATCH  # steps of a batch for each chain
    epoch = -(-num_rows // BATCH)
    descent = NUM_TUNING * TUNING + COLLECTED * epoch
    few = {"num_samples": DRAWS, "batch_size": BATCH}
    chosen = {
        "one network": ({"inference": "ensemble", "num_chains": 1, "num_warmup": budget}, budget),
        "ensemble": ({"inference": "ensemble", "num_warmup": budget}, CHAINS * budget),
        "SWAG": ({"inference": "swag", "num_warmup": max(epoch, CHAINS * budget - descent)}, CHAINS * budget),
        "multi-SWAG": ({"inference": "multi-swag", "num_warmup": max(epoch, budget - descent)}, CHAINS * budget),
        "mcmc": (
            {
                "num_warmup": max(16, int(WARMUP * effort)),
                "thinning": max(1, int(THINNING * effort)),
                "batch_size": num_rows,
            },
            CHAINS * budget,
        ),
    }
    options, steps = chosen[method.partition(",")[0]]
    options |= {"temperature_scaling": False} if method == UNSCALED else {}
    return few | {"num_chains": CHAINS} | options, steps * BATCH / 1e6


UNSCALED = "mcmc, not scaled"  # without temperature scaling, which classifiers have
METHODS = ("one network", "ensemble", "SWAG", "multi-SWAG", "mcmc", UNSCALED)


def scored(method, name, seed, effort):
    ((x, y), (x_test, y_test)), are_classes = rows_of(name, seed)
    options, gradients = settings_of(method, len(y), effort)
    make = BayesianMLPClassifier if are_classes else BayesianMLPRegressor
    started = time.process_time()
    model = make(**options, random_state=seed).fit(x, y)
    seconds = time.process_time() - started
    row = {"log_score": float(model.log_predictive(x_test, y_test).mean())}
    if are_classes:
        p = model.predict_proba(x_test)
        row |= {"error": 1 - float(gx.scores.accuracy(p, y_test)), "calibration": float(gx.scores.ece(p, y_test))}
    else:
        inside = np.abs(model.predict_cdf(x_test, y_test) - 0.5) <= 0.45
        row |= {"error": float(gx.scores.rmse(model.predict(x_test), y_test)), "calibration": float(inside.mean())}
    return row | {"millions of gradients": gradients, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {
        "effort": options.effort,
        "machine": f"{platform.machine()}, one thread",
        "versions": installed("jax", "jaxlib"),
        "rows": [],
    }
    facts["rows"] = rows_so_far(options.out, facts)
    done = {(row["data"], row["method"], row["seed"]) for row in facts["rows"]}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.data:
        for seed in range(options.seeds):
            apt = METHODS if name == "digits" else METHODS[:-1]
            for method in (method for method in apt if (name, method, seed) not in done):
                row = {"data": name, "method": method, "seed": seed, **scored(method, name, seed, options.effort)}
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
                facts["rows"].append(row)
                options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
