"""Adapters of a network trained on the digits 0 to 4, fitted to a few of the digits 5 to 9: quality on the others.

    python benchmarks/adapters.py            # writes benchmarks/results/adapters.json; stopped, it goes on where it was
    python benchmarks/adapters.py --seeds 1 --tuning 1 --widths 8 --effort 0.01 --out /tmp/x.json    # minutes, of compilation

A network 64-50-50-5 learns the digits 0 to 4 of scikit-learn; adapters of rank 4 beside its three layers learn the
digits 5 to 9 from ten examples each, and the other images of these digits are the test set. A seed chooses the first
network, the examples and the chains. All priors have one width: the expected squared norm of a layer's update is the
rank times its square (for a product of free matrices A of r x n and B of m x r, entries of variances 1/n and width²/m).
Each method has the width of the highest log probability of test labels over seeds of their own, ``--tuning`` of them,
where samplers take a quarter of the iterations. Seconds are of the processor, compilation included; ``--effort`` scales
all iterations.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed, rows_so_far
from sklearn.datasets import load_digits

import geodax as gx
from geodax.predict.evaluation import evaluate
from geodax.run.errors import NonFiniteError

RANK, EXAMPLES, WIDTHS, CHAINS, DRAWS = 4, 10, (50, 50), 4, 100
FIRST_TUNING = 1000  # their seeds differ from those that are reported
SMALL_STEP = 0.001  # after a chain that diverged with the step of its warm-up, about 0.002; with twice the iterations
LIKELIHOOD = gx.nn.CategoricalLikelihood()
CURVED = gx.Stiefel(metric="embedded", flow="polar")
RESULTS = Path(__file__).parent / "results" / "adapters.json"


def trained(seed):
    """A network of the first five digits."""
    x, y = digits()
    rows = y < 5
    start = gx.nn.MLP(64, 5, widths=WIDTHS, key=jax.random.key(seed))
    posterior = gx.Posterior(log_prior=gx.nn.Priors(), log_likelihood=LIKELIHOOD, num_data=len(x[rows]))
    batches = gx.data.batches((x[rows], y[rows]), batch_size=100)
    return optimised(jax.random.key(seed), posterior, start, batches, 2000, None)


def digits():
    x, y = load_digits(return_X_y=True)
    return (x / 16 - 0.3).astype(np.float32), y.astype(np.int32)


def other_half(seed):
    """A few examples of the other five digits, and the rest of them."""
    x, y = digits()
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(y >= 5))
    few = np.concatenate([rows[y[rows] == digit][:EXAMPLES] for digit in range(5, 10)])
    rest = np.setdiff1d(rows, few)
    return (x[few], y[few] - 5), (x[rest], y[rest] - 5)


def optimised(key, posterior, start, batches, num_steps, manifold):
    fitted = gx.train_ensemble(
        key,
        posterior,
        start,
        batches=batches,
        num_steps=num_steps,
        num_members=1,
        manifold=manifold,
        progress=False,
    )
    return jax.tree.map(lambda leaf: leaf[0], gx.last_positions(fitted, start))


class Problem:
    """Adapters of one kind, their prior and posterior."""

    def __init__(self, network, train, factorization, width, seed, effort):
        self.key, self.train, self.width, self.effort = jax.random.key(seed), train, width, effort
        self.make = lambda key: gx.nn.adapt(network, rank=RANK, factorization=factorization, key=key)
        self.start = self.make(jax.random.key(seed))
        self.manifold = gx.nn.geometry(self.start, stiefel=CURVED) if factorization == "svd" else None
        rules = {
            "svd": [("*.scales", gx.nn.Gaussian(width))],
            "polar": [("*", gx.nn.Gaussian(width))],
            "bottleneck": [
                ("*.down.weight", gx.nn.Gaussian(lambda shape: shape[1] ** -0.5)),
                ("*.up.weight", gx.nn.Gaussian(lambda shape: width * shape[0] ** -0.5)),
            ],
        }
        self.posterior = gx.Posterior(
            log_prior=gx.nn.Priors(rules[factorization]), log_likelihood=LIKELIHOOD, num_data=len(train[0])
        )
        self.batches = gx.data.batches(train, batch_size=len(train[0]))

    def steps(self, number):
        return max(4, int(number * self.effort))

    def optimum(self):
        return optimised(self.key, self.posterior, self.start, self.batches, self.steps(4000), self.manifold)

    def sizes(self):
        """Stored numbers, and dimensions of the space they lie in."""
        number = sum(leaf.size for leaf in jax.tree.leaves(self.start))
        return {"parameters": number, "dimensions": self.manifold.dim(self.start) if self.manifold else number}


def sampled(problem, x):
    def run(step_size, longer=1):
        return gx.sample(
            problem.key,
            gx.sghmc(
                problem.posterior, manifold=problem.manifold, step_size=step_size, friction=0.01, ordering="baoab"
            ),
            problem.make,
            batches=problem.batches,
            num_samples=DRAWS,
            num_warmup=longer * max(300, problem.steps(4000)),
            thinning=longer * problem.steps(80),
            num_chains=CHAINS,
            progress=False,
        )

    diverged = False
    try:
        draws = run(None)
    except NonFiniteError:
        draws, diverged = run(SMALL_STEP, longer=2), True
    logits = np.concatenate(list(evaluate(draws, problem.start, x)))
    log_p = jax.nn.log_softmax(logits.astype(np.float64)).reshape(DRAWS, CHAINS, len(x), -1)
    every = np.asarray(log_p)[:, :, :: max(1, len(x) // 40), 0].transpose(1, 0, 2)
    rhat = [float(gx.diagnostics.rhat(np.ascontiguousarray(every[..., i]))) for i in range(every.shape[-1])]
    return gx.predictive.classes_from_logits(logits).probabilities, {"rhat": max(rhat), "diverged": diverged}


def at_optimum(problem, x):
    return np.asarray(jax.nn.softmax(jax.vmap(problem.optimum())(jnp.asarray(x)))), {}


def laplace(problem, x, *, maximised=False):
    network = problem.optimum()
    sides = [(weight.shape[1], weight.shape[0]) for _, weight in pairs(network)]
    variances = [v for n, m in sides for v in (1 / n, problem.width**2 / m)]  # of down and up
    found = gx.nn.laplace_posterior(network, LIKELIHOOD, problem.train, prior_variance=variances)
    found = found.maximised() if maximised else found
    return np.asarray(found.linearised(jnp.asarray(x)).probabilities()), {}


def pairs(network):
    return [(name, adapter.matrix) for name, adapter in network.adapters.items()]


def variational(problem, x):
    start = jax.tree.map(lambda leaf: problem.width * leaf, problem.start)
    over = gx.vi.GaussianOver(start, scale=0.1 * problem.width, prior_variance=problem.width**2)
    fit = gx.vi.fit(
        problem.key,
        over,
        LIKELIHOOD,
        problem.train,
        num_steps=problem.steps(8000),
        batch_size=len(problem.train[0]),
        learning_rate=3e-3 * problem.width,
        progress=False,
    )
    logits = gx.vi.predict(problem.key, fit.network, jnp.asarray(x), num_samples=CHAINS * DRAWS)
    return np.asarray(jax.nn.softmax(logits).mean(0)), {}


METHODS = {  # kind of adapter, function, share of the iterations while the width is chosen
    "orthonormal factors, sampled": ("svd", sampled, 0.25),
    "LoRA, sampled": ("bottleneck", sampled, 0.25),
    "orthonormal factors, variational": ("polar", variational, 0.5),
    "LoRA, Laplace": ("bottleneck", laplace, 1.0),
    "LoRA, Laplace, prior by marginal likelihood": (
        "bottleneck",
        lambda problem, x: laplace(problem, x, maximised=True),
        1.0,
    ),
    "orthonormal factors, optimised": ("svd", at_optimum, 1.0),
    "LoRA, optimised": ("bottleneck", at_optimum, 1.0),
}


def best_width(rows, name):
    """The width with the highest mean log probability over the seeds for tuning."""
    own = [row for row in rows if row["method"] == name and row["seed"] >= FIRST_TUNING]
    means = {
        width: np.mean([row["log_probability"] for row in own if row["width"] == width])
        for width in dict.fromkeys(row["width"] for row in own)
    }
    return max(means, key=means.__getitem__)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tuning", type=int, default=1)
    parser.add_argument("--widths", type=float, nargs="+", default=[4, 16, 64])
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {
        "effort": options.effort,
        "first_tuning": FIRST_TUNING,
        "rank": RANK,
        "examples": 5 * EXAMPLES,
        "network": "64-50-50-5",
        "machine": f"{platform.machine()}, one thread",
        "versions": installed("jax", "jaxlib"),
        "rows": [],
    }
    facts["rows"] = rows_so_far(options.out, facts)
    networks = {}
    options.out.parent.mkdir(parents=True, exist_ok=True)

    def measure(name, seed, width):
        if any((row["method"], row["seed"], row["width"]) == (name, seed, width) for row in facts["rows"]):
            return
        if seed not in networks:
            networks[seed] = trained(seed)
        train, (x, y) = other_half(seed)
        factorization, method, share = METHODS[name]
        effort = options.effort * (share if seed >= FIRST_TUNING else 1.0)
        started = time.process_time()
        problem = Problem(networks[seed], train, factorization, width, seed, effort)
        p, more = method(problem, x)
        row = {
            "method": name,
            "seed": seed,
            "width": width,
            **problem.sizes(),
            "seconds": time.process_time() - started,
            "accuracy": float(gx.scores.accuracy(p, y)),
            "log_probability": float(gx.scores.log_probability(p, y)),
            "ece": float(gx.scores.ece(p, y)),
            **more,
        }
        print(*(f"{v:.3f}" if isinstance(v, float) else v for v in row.values()), sep="  ", flush=True)
        facts["rows"].append(row)
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    for name in options.only:
        for seed in range(FIRST_TUNING, FIRST_TUNING + options.tuning):
            for width in options.widths:
                measure(name, seed, width)
    for seed in range(options.seeds):
        for name in options.only:
            measure(name, seed, best_width(facts["rows"], name))


if __name__ == "__main__":
    main()
