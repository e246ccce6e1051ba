"""One small network, fifteen ways to its posterior: quality on rows that were not fitted, and what each costs.

    python benchmarks/inferences.py            # writes benchmarks/results/inferences.json; stopped, it goes on where it was
    python benchmarks/inferences.py --splits 1 --effort 0.02 --out /tmp/x.json    # some minutes, mostly of compilation

The handwritten digits of scikit-learn, 1,000 of them fitted and 797 held out, read by a network 64-20-10 with a normal
prior of one standard deviation for all weights (Walsh-Hadamard layers have a prior of their own vectors instead). The
no-U-turn sampler is exact, so its ensemble is what the others approximate. Seconds are of the processor, those of the
first split with compilation; ``--effort`` scales the iterations of all inferences. Nothing was tuned on the rows held out.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()  # no programs of earlier runs

import _threads  # noqa: F401  (before JAX)
import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed, rows_so_far
from sklearn.datasets import load_digits

import geodax as gx
from geodax.sgmcmc.schedules import polynomial

PRIOR = 0.3  # standard deviation of every weight
WIDTHS, CHAINS, TEST_DRAWS = (20,), 4, 64
LIKELIHOOD = gx.nn.CategoricalLikelihood()
NATURAL = {"ivon": gx.vi.ivon, "noisy-kfac": gx.vi.noisy_kfac}
RESULTS = Path(__file__).parent / "results" / "inferences.json"


def digits(split):
    """Inputs and labels of the rows that are fitted and of the others."""
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16 - 0.3).astype(np.float32), y.astype(np.int32)
    order = np.random.default_rng(split).permutation(len(y))
    return tuple((x[rows], y[rows]) for rows in (order[:1000], order[1000:]))


def plain(key):
    return gx.nn.MLP(64, 10, widths=WIDTHS, key=key)


def posterior_of(train):
    priors = gx.nn.Priors([("*", gx.nn.Gaussian(PRIOR))])
    return gx.Posterior(log_prior=priors, log_likelihood=LIKELIHOOD, num_data=len(train[0])), priors


def ensemble(draws, network, x):
    return gx.predictive.predict_classes(draws, network, x).probabilities


def exact(key, train, x, effort):
    posterior, priors = posterior_of(train)
    network = plain(key)
    draws = gx.sample(
        key,
        gx.nuts(posterior.full(train), max_num_doublings=7),
        lambda k: priors.sample(k, network),
        num_samples=max(2, int(250 * effort)),
        num_warmup=max(20, int(250 * effort)),
        num_chains=CHAINS,
        progress=False,
    )
    return ensemble(draws, network, x)


def stochastic(make, *, temperature=1.0, num_chains=CHAINS, num_samples=100):
    """An ensemble of a stochastic-gradient sampler; at temperature 0 the optima that it comes to."""

    def run(key, train, x, effort):
        posterior, _ = posterior_of(train)
        network = plain(key)
        draws = gx.sample(
            key,
            make(posterior, temperature),
            plain,  # trained from initialisations of their own
            batches=gx.data.batches(train, batch_size=100),
            num_samples=num_samples,
            num_warmup=max(1, int(4000 * effort)),
            thinning=max(1, int(100 * effort)),
            num_chains=num_chains,
            progress=False,
        )
        return ensemble(draws, network, x)

    return run


def fitted(kind, **options):
    def run(key, train, x, effort):
        keys = jax.random.split(key, 3)
        network = plain(keys[0])
        num_steps = max(10, int(10_000 * effort))
        if kind in NATURAL:
            rate = polynomial(0.03, offset=num_steps / 10, power=0.5)  # as the estimators
            algorithm = NATURAL[kind](
                network, LIKELIHOOD, rate, num_data=len(train[0]), prior_variance=PRIOR**2, points=()
            )
            more = {"algorithm": algorithm}
        elif kind == "vogn":
            algorithm = gx.vi.vogn(
                network, LIKELIHOOD, 0.01, num_data=len(train[0]), prior_variance=PRIOR**2, points=()
            )
            more = {"algorithm": algorithm}
        else:
            network = gx.nn.variational(network, kind, key=keys[1], **options)
            more = {"learning_rate": 3e-3}
        fit = gx.vi.fit(
            keys[1],
            network,
            LIKELIHOOD,
            train,
            num_steps=num_steps,
            batch_size=100,
            progress=False,
            **more,
        )
        return averaged(keys[2], fit.network, x)

    return run


def averaged(key, network, x):
    logits = gx.vi.predict(key, network, jnp.asarray(x), num_samples=TEST_DRAWS)
    return np.asarray(jax.nn.softmax(logits).mean(0))


def optimum(key, train, effort):
    posterior, _ = posterior_of(train)
    draws = gx.sample(
        key,
        momentum(posterior, 0.0),
        plain,
        batches=gx.data.batches(train, batch_size=len(train[0])),  # to the optimum, without noise of batches
        num_samples=1,
        num_warmup=max(1, int(10_000 * effort)),
        num_chains=1,
        progress=False,
    )
    group = draws["posterior"]
    like = plain(key)
    leaves, structure = jax.tree.flatten(like)
    paths = [
        jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in jax.tree_util.tree_leaves_with_path(like)
    ]
    assert len(leaves) == len(paths)
    return structure.unflatten([jnp.asarray(group[path].values[0, -1]) for path in paths])


def laplace(key, train, x, effort):
    trained = optimum(key, train, effort)
    network = gx.nn.last_layer_laplace(
        trained, LIKELIHOOD, train, where=lambda network: network.layers[-1], prior_variance=PRIOR**2
    )
    return averaged(key, network, x)


def linearised(by_evidence):
    """All layers in Kronecker form, with the prior of the others or that of highest evidence."""

    def run(key, train, x, effort):
        trained = optimum(key, train, effort)
        found = gx.nn.laplace_posterior(trained, LIKELIHOOD, train, prior_variance=PRIOR**2)
        found = found.maximised() if by_evidence else found
        logits = found.sample_linearised(key, x, num_samples=TEST_DRAWS)
        return np.asarray(jax.nn.softmax(logits).mean(0))

    return run


def momentum(posterior, temperature):
    return gx.sghmc(posterior, step_size=0.003, friction=0.05, temperature=temperature)


def langevin(posterior, temperature):
    return gx.sgrld(posterior, step_size=2e-5, temperature=temperature)


def preconditioned(posterior, temperature):
    return gx.sgrld(posterior, metric=gx.metrics.RMSProp(epsilon=1e-3), step_size=2e-7, temperature=temperature)


INFERENCES = {
    "one optimum": stochastic(momentum, temperature=0.0, num_chains=1, num_samples=1),
    "ensemble of 8 optima": stochastic(momentum, temperature=0.0, num_chains=8, num_samples=1),
    "last-layer Laplace": laplace,
    "linearised Laplace": linearised(by_evidence=False),
    "linearised Laplace, prior by evidence": linearised(by_evidence=True),
    "MC dropout": fitted("mc-dropout", prior_variance=PRIOR**2, rate=0.05),
    "WHVI": fitted("whvi"),
    "mean-field": fitted("mean-field", prior_variance=PRIOR**2),
    "VOGN": fitted("vogn"),
    "IVON": fitted("ivon"),
    "noisy K-FAC": fitted("noisy-kfac"),
    "sgrld, identity": stochastic(langevin),
    "sgrld, RMSProp": stochastic(preconditioned),
    "sghmc": stochastic(momentum),
    "nuts": exact,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=INFERENCES, default=list(INFERENCES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    facts = {
        "effort": options.effort,
        "fitted": 1000,
        "held_out": 797,
        "network": "64-20-10",
        "machine": f"{platform.machine()}, one thread",
        "versions": installed("jax", "jaxlib"),
        "rows": [],
    }
    facts["rows"] = rows_so_far(options.out, facts)
    done = {(row["inference"], row["split"]) for row in facts["rows"]}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        for split in (split for split in range(options.splits) if (name, split) not in done):
            train, (x, y) = digits(split)
            started = time.process_time()
            p = INFERENCES[name](jax.random.key(split), train, x, options.effort)
            seconds = time.process_time() - started
            figures = {
                "accuracy": float(gx.scores.accuracy(p, y)),
                "log_probability": float(gx.scores.log_probability(p, y)),
                "ece": float(gx.scores.ece(p, y)),
            }
            print(
                f"{name:22s} {split}  {seconds:6.1f} s  " + "  ".join(f"{k} {v:.4f}" for k, v in figures.items()),
                flush=True,
            )
            facts["rows"].append({"inference": name, "split": split, "seconds": seconds, **figures})
            options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
