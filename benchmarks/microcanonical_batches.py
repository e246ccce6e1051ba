"""Microcanonical Langevin steps with the gradients of batches beside `sghmc` and `sgnht`: bias of variances, effective draws.

    python benchmarks/microcanonical_batches.py

writes benchmarks/results/microcanonical_batches.json, from which docs/tables.py writes its table.

Linear regression with N = 1,000 rows, 20 inputs, unit noise and a normal prior, whose posterior is normal and known. The singular values of
the inputs differ by 10, and so do the deviations of the posterior. "raw" coordinates have them, in units of the smallest; in "posterior"
coordinates the posterior is standard normal, and so the noise of the gradients isotropic, which is what the preconditioning of Sommer et al.
(2026, arXiv:2602.06500) is for. A step is half a drift, a kick by the gradient of a batch, half a drift and a partly new momentum. Batches
are independent from step to step. All samplers forget a momentum over the same time, and a step costs one gradient.
"""

import argparse
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed

import geodax as gx
from geodax.geometry.manifolds import Euclidean
from geodax.mcmc.isokinetic import Isokinetic, IsokineticMomentum

RESULTS = Path(__file__).parent / "results"
N, D, CHAINS, STEPS = 1000, 20, 300, 4000
RNG = np.random.default_rng(0)
left, _ = np.linalg.qr(RNG.standard_normal((N, D)))
right, _ = np.linalg.qr(RNG.standard_normal((D, D)))
X = left * np.geomspace(1.0, 0.1, D) * np.sqrt(N) @ right.T
Y = X @ RNG.standard_normal(D) + RNG.standard_normal(N)
PRECISION = X.T @ X + np.eye(D)
COVARIANCE = np.linalg.inv(PRECISION)
MEAN = COVARIANCE @ X.T @ Y
VALUES, VECTORS = np.linalg.eigh(COVARIANCE)
ROOTS = {  # in raw coordinates the stiffest direction has deviation 1
    "posterior": VECTORS * np.sqrt(VALUES),
    "raw": np.eye(D) * np.sqrt(VALUES[0]),
}


def model(coordinates):
    """The posterior of z, with position MEAN + root @ z."""
    root = jnp.asarray(ROOTS[coordinates])
    to = lambda z: jnp.asarray(MEAN) + root @ z  # noqa: E731
    return gx.Posterior(
        log_prior=lambda z: -0.5 * jnp.sum(to(z) ** 2),
        log_likelihood=lambda z, batch: -0.5 * (batch[1] - batch[0] @ to(z)) ** 2,
        num_data=N,
    )


def microcanonical(posterior, step, length):
    """Half a drift, a kick by the gradient of the batch, half a drift, a partly new momentum."""
    space = Isokinetic(Euclidean())
    gradient = jax.grad(posterior.logdensity)

    def init(z):
        return z, jnp.zeros_like(z)

    def advance(key, state, batch):
        z, r = state
        r = space.refresh(key, z, r, jnp.where(jnp.any(r != 0), step / length, 30.0))
        z = z + 0.5 * step * r
        r = space.turn(z, IsokineticMomentum(r, jnp.zeros(())), step * gradient(z, batch)).direction
        return (z + 0.5 * step * r, r), None

    return init, advance, lambda state: state[0]


def ours(algorithm):
    return algorithm.init, algorithm.step, lambda state: state.position


def measured(algorithm, coordinates, batch_size):
    """Relative bias of the variances along the principal directions, mean and largest, and effective draws of squares.

    The latter are those of the slowest direction in 1,000 gradients.
    """
    init, step, position = algorithm
    batches = gx.data.batches((jnp.asarray(X), jnp.asarray(Y)), batch_size=batch_size, order="independent")
    # principal directions in units of their exact deviations
    whiten = jnp.asarray((VECTORS / np.sqrt(VALUES)).T @ ROOTS[coordinates])

    def chain(key):
        keys = jax.random.split(key, 3)
        start = jnp.linalg.solve(whiten, jax.random.normal(keys[0], (D,)))  # an exact draw

        def one(carry, i):
            state, total = carry
            state, _ = step(jax.random.fold_in(keys[1], i), state, batches.draw(keys[2], i))
            return (state, total + jnp.where(i >= STEPS // 6, (whiten @ position(state)) ** 2, 0.0)), None

        (_, total), _ = jax.lax.scan(one, (init(start), jnp.zeros(D)), jnp.arange(STEPS))
        return total / (STEPS - STEPS // 6)

    means = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), CHAINS)))
    ratio, variance = means.mean(0), means.var(0, ddof=1)
    ess = 2 * ratio**2 / variance / (STEPS - STEPS // 6) * 1000
    found = {"bias": ratio.mean() - 1, "largest": np.abs(ratio - 1).max(), "error": np.sqrt(variance / CHAINS).max()}
    return {name: float(value) for name, value in (found | {"ess": ess.min()}).items()}


def candidates(coordinates, size, step, length):
    """The samplers; the size of the noise is one number in "posterior" coordinates only."""
    posterior, friction, noise = model(coordinates), 1 - math.exp(-step / length), N / size - 1
    found = {
        "microcanonical": microcanonical(posterior, step, length),
        "sghmc": ours(gx.sghmc(posterior, step_size=step, friction=friction, ordering="baoab")),
        "sgnht": ours(gx.sgnht(posterior, step_size=step, friction=friction)),
    }
    if coordinates == "posterior" and 2 * friction - friction**2 > (1 - friction / 2) ** 2 * step**2 * noise:
        options = {"step_size": step, "friction": friction, "ordering": "baoab"}
        found["sghmc, noise known"] = ours(gx.sghmc(posterior, gradient_noise=noise**0.5, **options))
    return found


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    jax.config.update("jax_enable_x64", True)
    begun, rows = time.perf_counter(), []
    for coordinates, size in (("posterior", 100), ("raw", 100), ("posterior", 10)):
        for step in (0.05, 0.1, 0.2) if size == 100 else (0.02, 0.05, 0.1):
            for length in (1.0, 3.0) if coordinates == "posterior" else (3.0, 10.0):
                for name, algorithm in candidates(coordinates, size, step, length).items():
                    case = {"coordinates": coordinates, "batch": size, "step": step, "length": length, "sampler": name}
                    rows.append(case | measured(algorithm, coordinates, size))
                    print(rows[-1], flush=True)
    facts = {"versions": installed("jax", "jaxlib"), "seconds": time.perf_counter() - begun, "rows": rows}
    path = RESULTS / "microcanonical_batches.json"
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
