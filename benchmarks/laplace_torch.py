"""Laplace approximations of the same trained networks beside those of laplace-torch: agreement, and time.

    python benchmarks/laplace_torch.py            # writes benchmarks/results/laplace_torch.json, in a minute

It needs laplace-torch 0.3 and PyTorch. Two networks of double precision are trained by geodax and copied: the digits of
scikit-learn, 1,000 rows, 64-32-10 with tanh; and diabetes, 300 rows, 10-20-1 with the noise 0.7 of standardised
targets. The prior of every parameter has the standard deviation 0.3; all rows are one batch. Compared are the log
marginal likelihood, and the mean and the covariance of the outputs of the linearised network at 100 other rows.
laplace-torch leaves out the correlation of weights and biases in Kronecker form; a second comparison does so too.
Differences of means are relative to the largest output, those of covariances to the largest variance. Seconds are of
the processor, on one thread: medians of rounds in which the libraries take turns, with everything compiled before.
"""

import argparse
import json
import platform
import statistics
import time
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import equinox as eqx
import jax
import numpy as np
import torch
from _versions import installed
from laplace import Laplace
from sklearn.datasets import load_diabetes, load_digits

import geodax as gx

PRIOR, NOISE, ROUNDS = 0.3, 0.7, 5
RESULTS = Path(__file__).parent / "results" / "laplace_torch.json"
CASES = (("last", "full"), ("last", "kronecker"), ("last", "diagonal"), ("all", "kronecker"), ("all", "diagonal"))
CASES += (("all", "full"),)
THEIRS = {"kronecker": "kron", "diagonal": "diag", "full": "full"}


def digits():
    x, y = load_digits(return_X_y=True)
    x = x / 16 - 0.3
    return (x[:1000], y[:1000].astype(np.int32)), x[1000:1100], (32,), 10


def diabetes():
    x, y = load_diabetes(return_X_y=True)
    x, y = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()
    return (x[:300], y[:300, None]), x[300:400], (20,), 1


def trained(train, widths, out_features, likelihood):
    """A network at about the mode, by full-batch descent."""
    start = gx.nn.MLP(
        train[0].shape[1],
        out_features,
        widths=widths,
        activation=jax.numpy.tanh,
        dtype="float64",
        key=jax.random.key(0),
    )
    priors = gx.nn.Priors([("*", gx.nn.Gaussian(PRIOR))])
    posterior = gx.Posterior(log_prior=priors, log_likelihood=likelihood, num_data=len(train[0]))
    batches = gx.data.batches(train, batch_size=len(train[0]))
    draws = gx.train_ensemble(
        jax.random.key(1), posterior, start, batches=batches, num_steps=3000, num_members=1, progress=False
    )
    return jax.tree.map(lambda leaf: leaf[0], gx.last_positions(draws, start))


def copied(network):
    """The same network in PyTorch."""
    layers = []
    for layer in network.layers:
        inner = torch.nn.Linear(layer.in_features, layer.out_features, dtype=torch.float64)
        with torch.no_grad():
            inner.weight.copy_(torch.from_numpy(np.array(layer.weight)))
            inner.bias.copy_(torch.from_numpy(np.array(layer.bias)))
        layers += [inner, torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def of_geodax(network, likelihood, train, rest, layers, structure):
    where = (lambda network: network.layers[-1]) if layers == "last" else None
    clock = time.process_time()
    found = gx.nn.laplace_posterior(
        network, likelihood, train, structure=structure, where=where, prior_variance=PRIOR**2, batch_size=len(train[0])
    )
    evidence = float(found.log_marginal_likelihood())
    fitted = time.process_time()
    outputs = jax.block_until_ready(found.linearised(rest))
    seconds = fitted - clock, time.process_time() - fitted
    return found, evidence, np.asarray(outputs.mean), np.asarray(outputs.covariance), seconds


def without_correlation_of_biases(found):
    """The posterior whose weights and biases are independent blocks, as laplace-torch has them in Kronecker form."""

    def separate(block):
        of_inputs = (block.right * block.values.sum(axis=0)) @ block.right.T
        of_inputs = of_inputs.at[:-1, -1].set(0.0).at[-1, :-1].set(0.0)
        values, right = np.linalg.eigh(of_inputs)
        values = np.outer(block.values.sum(axis=1), values) / block.values.sum()
        return type(block)(jax.numpy.asarray(values), block.left, jax.numpy.asarray(right))

    return eqx.tree_at(lambda node: node.blocks, found, tuple(map(separate, found.blocks)))


def of_laplace_torch(network, is_classes, train, rest, layers, structure):
    x, y = (torch.from_numpy(np.array(part)) for part in train)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y.long() if is_classes else y), batch_size=len(x)
    )
    clock = time.process_time()
    found = Laplace(
        network,
        "classification" if is_classes else "regression",
        subset_of_weights="last_layer" if layers == "last" else "all",
        hessian_structure=THEIRS[structure],
        prior_precision=PRIOR**-2,
        **({} if is_classes else {"sigma_noise": NOISE}),
    )
    found.fit(loader)
    evidence = float(found.log_marginal_likelihood())
    fitted = time.process_time()
    mean, covariance = found._glm_predictive_distribution(torch.from_numpy(np.array(rest)))
    seconds = fitted - clock, time.process_time() - fitted
    return evidence, mean.detach().numpy(), covariance.detach().numpy(), seconds


def relative(one, other):
    """The largest difference, relative to the largest entry."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    rows = []
    for name, data in (("digits", digits), ("diabetes", diabetes)):
        train, rest, widths, out_features = data()
        is_classes = out_features > 1
        likelihood = gx.nn.CategoricalLikelihood() if is_classes else gx.nn.GaussianLikelihood(NOISE)
        network = trained(train, widths, out_features, likelihood)
        other = copied(network)
        for layers, structure in CASES:
            seconds = []
            for _ in range(1 + options.rounds):
                ours = of_geodax(network, likelihood, train, rest, layers, structure)
                theirs = of_laplace_torch(other, is_classes, train, rest, layers, structure)
                seconds.append((*ours[4], *theirs[3]))
            fit, predict, their_fit, their_predict = map(statistics.median, zip(*seconds[1:], strict=True))
            row = {
                "data": name,
                "layers": layers,
                "structure": structure,
                "evidence": ours[1],
                "their_evidence": theirs[0],
                "mean": relative(ours[2], theirs[1]),
                "covariance": relative(ours[3], theirs[2]),
                "seconds": {"fit": fit, "predict": predict, "their_fit": their_fit, "their_predict": their_predict},
            }
            if structure == "kronecker":
                apart = without_correlation_of_biases(ours[0])
                row["evidence_apart"] = float(apart.log_marginal_likelihood())
                row["covariance_apart"] = relative(np.asarray(apart.linearised(rest).covariance), theirs[2])
            rows.append(row)
            print(row, flush=True)
    facts = {
        "rounds": options.rounds,
        "machine": f"{platform.machine()}, one thread",
        "versions": installed("jax", "jaxlib", "torch", "laplace-torch"),
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
