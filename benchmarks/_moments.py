"""Moments of the benchmark's targets: E[X] and E[log pi], from draws that owe nothing to the samplers that are measured.

Exact draws where Hoff's rejection is feasible. At the larger sizes its acceptance is below 1e-11, and the moments are means over many
chains of samplers of different kinds: geodesic HMC on the manifold (embedded metric), and BlackJAX's HMC on an unconstrained
matrix whose polar factor is X; up to 50 rows Hoff's Gibbs sampler as well. The file says by how many standard errors they differ. Run it again
only if the target changes: it takes about half an hour.

    python benchmarks/_moments.py [--sizes 3,2 10,3 50,5 200,10]

writes benchmarks/results/stiefel_moments.json.
"""

import argparse
import json
import time

import _threads  # noqa: F401  (before JAX)
import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from _polar import polar
from _stiefel.target import MOMENTS, Target, make_target
from _versions import installed
from scipy.stats import t as student

import geodax as gx

jax.config.update("jax_enable_x64", True)

NUM_CHAINS = 32


def summary(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over independent chains (rows) of the entries of X and the log density, and its standard error."""
    rows = np.concatenate([x.reshape(len(x), -1), values.reshape(len(x), 1)], axis=1)
    return rows.mean(0), rows.std(0, ddof=1) / np.sqrt(len(rows))


def exact(target: Target, num_draws: int, batch: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Rejection, the proposals made in batches."""
    distribution = gx.distributions.BinghamVonMisesFisher(*map(jnp.asarray, target))

    @jax.jit
    def propose(key):
        key_proposal, key_uniform = jax.random.split(key)
        x, log_probability = jax.vmap(distribution.proposal())(jax.random.split(key_proposal, batch))
        return x, jnp.log(jax.random.uniform(key_uniform, (batch,))) < log_probability

    kept, count, round_ = [], 0, 0
    while count < num_draws:
        x, is_accepted = propose(jax.random.fold_in(jax.random.key(0), round_))
        kept.append(np.asarray(x)[np.asarray(is_accepted)])
        count, round_ = count + len(kept[-1]), round_ + 1
    x = np.concatenate(kept)[:num_draws]
    return summary(x, target.values(x))


def chains(target: Target, step, states, position, num_draws: int, num_discarded: int):
    """Means of each of many chains, computed along the way."""

    def run(state, key):
        def iterate(carry, i):
            state, total, total_value = carry
            state = step(jax.random.fold_in(key, i), state, i < num_discarded)
            x = position(state)
            weight = jnp.where(i < num_discarded, 0.0, 1.0 / num_draws)
            return (state, total + weight * x, total_value + weight * target.logdensity(x)), None

        start = (state, jnp.zeros(target.shape), jnp.asarray(0.0))
        return jax.lax.scan(iterate, start, jnp.arange(num_discarded + num_draws))[0][1:]

    x, values = jax.jit(jax.vmap(run))(states, jax.random.split(jax.random.key(3), NUM_CHAINS))
    return summary(np.asarray(x), np.asarray(values))


def starts(target: Target):
    key = jax.random.split(jax.random.key(2), NUM_CHAINS)
    return jax.vmap(lambda k: gx.Stiefel().random_point(k, jnp.zeros(target.shape)))(key)


def geodesic(target: Target, num_draws: int):
    """Geodesic HMC in the embedded metric, trajectories about as long as the mode is wide."""
    manifold = gx.Stiefel(metric="embedded", flow="geodesic")
    n, _ = target.shape
    algorithm = gx.hmc(
        target.logdensity, manifold=manifold, step_size=0.28 / n**0.5, num_integration_steps=8, length_jitter=0.5
    )
    states = jax.vmap(algorithm.init)(starts(target))
    return chains(target, lambda k, s, _: algorithm.step(k, s)[0], states, lambda s: s.position, num_draws, 200)


def unconstrained(target: Target, num_draws: int):
    """BlackJAX's HMC of a matrix Z with a standard normal prior, X = Z (Z^T Z)^(-1/2)."""

    def logdensity(z):
        return target.logdensity(polar(z)) - 0.5 * jnp.sum(z * z)

    n, p = target.shape

    def algorithm(step_size):
        # the number of steps is drawn afresh in each iteration, whatever the position is
        return blackjax.dynamic_hmc(
            logdensity, step_size, jnp.ones(n * p), integration_steps_fn=lambda key: jax.random.randint(key, (), 4, 13)
        )

    def step(key, state, is_discarded):
        # far from the mode the larger step is rejected for ever
        return algorithm(jnp.where(is_discarded, 0.05, 0.25)).step(key, state)[0]

    keys = jax.random.split(jax.random.key(4), NUM_CHAINS)
    # not orthonormal: equal singular values have no derivative
    first = jax.random.normal(jax.random.key(5), (NUM_CHAINS, n, p))
    states = jax.vmap(algorithm(0.25).init)(first, keys)
    return chains(target, step, states, lambda s: polar(s.position), num_draws, 500)


def gibbs(target: Target, num_draws: int):
    """Sweeps over the columns, each drawn exactly from its conditional distribution."""
    distribution = gx.distributions.BinghamVonMisesFisher(*map(jnp.asarray, target))
    return chains(target, lambda k, x, _: distribution.sweep(k, x), starts(target), lambda x: x, num_draws, 50)


def moments(n: int, p: int, scale: float) -> dict:
    """One entry of the file."""
    target = make_target(n, p)
    if n <= 10:
        found = {"exact": exact(target, int(scale * (1_000_000 if n == 3 else 10_000)))}
        source = "exact draws by rejection"
    else:
        found = {
            "geodesic HMC": geodesic(target, int(scale * (6_000 if n <= 50 else 2_000))),
            "BlackJAX HMC, polar": unconstrained(target, int(scale * (6_000 if n <= 50 else 2_000))),
        }
        if n <= 50:
            found["Gibbs"] = gibbs(target, int(scale * 500))
        source = "pooled chains of " + ", ".join(found)
    weights = {name: 1 / error**2 for name, (_, error) in found.items()}
    total = sum(weights.values())
    mean, error = sum(weights[name] * found[name][0] for name in found) / total, total**-0.5
    names = list(found)
    differences = {
        f"{a} and {b}": float(np.max(np.abs(found[a][0] - found[b][0]) / np.hypot(found[a][1], found[b][1])))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    }
    bound = float(student.isf(0.0005 / (n * p + 1), 2 * NUM_CHAINS - 2))
    if any(z > bound for z in differences.values()):
        raise SystemExit(f"({n}, {p}): the samplers differ, nothing is written: {differences}, bound {bound:.1f}")
    return {
        "source": source,
        "largest_differences_in_standard_errors": differences,
        "bound": bound,
        "mean_log_densities": {name: [float(m[-1]), float(e[-1])] for name, (m, e) in found.items()},
        "mean": np.round(mean[:-1].reshape(n, p), 8).tolist(),
        "mean_error": [[float(f"{v:.3g}") for v in row] for row in error[:-1].reshape(n, p)],
        "mean_log_density": float(mean[-1]),
        "mean_log_density_error": float(error[-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["3,2", "10,3", "50,5", "200,10"])
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of draws")
    options = parser.parse_args()
    for size in options.sizes:
        started = time.perf_counter()
        entry = moments(*map(int, size.split(",")), options.scale)
        facts = json.loads(MOMENTS.read_text()) if MOMENTS.exists() else {"sizes": {}}
        facts["versions"] = installed("jax", "blackjax")
        facts["sizes"][size] = entry
        MOMENTS.write_text(json.dumps(facts) + "\n")
        shown = {k: v for k, v in entry.items() if k not in ("mean", "mean_error")}
        print(size, f"{time.perf_counter() - started:.0f} s", shown, flush=True)


if __name__ == "__main__":
    main()
