"""Programs of PyMC with nutpie's sampler; a frame is an unconstrained matrix times the inverse Cholesky factor of its Gram matrix.

The Cholesky factor, since PyTensor's numba backend has no compiled gradient of eigenvalues.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from .data import DATA


def frame(n: int, p: int):
    z = pm.Normal("z", shape=(n, p))
    return pt.linalg.solve_triangular(pt.linalg.cholesky(z.T @ z), z.T, lower=True).T


def matrix(data: dict) -> None:
    x = frame(data["n"], data["p"])
    pm.Potential("target", (data["f"] * x).sum() + (x * (data["b"] @ x) * data["weights"]).sum())
    pm.Deterministic("observed", x.flatten())


def pca(data: dict) -> None:
    n, p, rows, scatter = data["n"], data["p"], data["rows"], data["scatter"]
    w, x = frame(n, p), pm.Normal("x", shape=p + 1)
    variances, noise = pt.exp(2 * x[:p]), pt.exp(2 * x[p])
    explained = variances / (noise * (noise + variances))
    logdet = pt.log(variances + noise).sum() + (n - p) * pt.log(noise)
    projected = (w * (scatter @ w)).sum(axis=0)
    pm.Potential("target", -0.5 * (rows * logdet + np.trace(scatter) / noise - (explained * projected).sum()))
    pm.Deterministic("observed", pt.concatenate([(w**2 * variances).sum(axis=1), x[p:]]))


def eigenmodel(data: dict) -> None:
    w, x = frame(data["n"], 2), pm.Normal("x", sigma=np.sqrt(data["n"]), shape=2)
    intercept = pm.Normal("intercept", sigma=10.0)
    predictor = ((w * x) @ w.T)[data["first"], data["second"]] + intercept
    pm.Bernoulli("edges", logit_p=predictor, observed=data["edges"])
    pm.Deterministic("observed", predictor[::40])


def schools(data: dict) -> None:
    mean, spread = pm.Normal("mean", sigma=5.0), pm.HalfCauchy("spread", beta=5.0)
    standard = pm.Normal("standard", shape=8)
    pm.Normal("effects", mean + spread * standard, data["errors"], observed=data["effects"])
    pm.Deterministic("observed", pt.concatenate([pt.stack([mean, pt.log(spread)]), standard]))


MODELS = {"matrix": matrix, "pca": pca, "eigenmodel": eigenmodel, "schools": schools}


def by_nutpie(name: str, chains: int, warmup: int, draws: int):
    import nutpie

    with pm.Model() as model:
        MODELS[name](DATA[name]())
    compiled = nutpie.compile_pymc_model(model)
    trace = nutpie.sample(compiled, draws=draws, tune=warmup, chains=chains, seed=1, progress_bar=False)
    return trace.posterior["observed"].values
