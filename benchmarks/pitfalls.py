"""What the pages on HMC and on traps say happens: resonance, momenta of another metric, reflections, rounding; float32 as by default.

*Resonance*: HMC of fixed lengths on exp(100 (x11 + x22)), 10 x 2, whose periods are near 2 pi / 10. *Momentum*: the energy and the flow of
the canonical metric with momenta drawn for the embedded one, against exact draws of the matrix Langevin law. *Reflections*: the share
of positive determinants on O(2) under exp(0.8 tr x), against I_0(1.6) / (1 + I_0(1.6)). *Rounding*: variances of a normal law in
three dimensions to whose log density a constant is added.

    python benchmarks/pitfalls.py

writes benchmarks/results/pitfalls.json, from which docs/tables.py writes its tables.
"""

import argparse
import json
import platform
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _versions import installed
from scipy.special import i0

import geodax as gx
from geodax.diagnostics.findings import ess

RESULTS = Path(__file__).parent / "results"
STEP = 0.02
CONSTANTS = (0.0, 1e6, 5e6, 1e7, 2e7, 1e8)
LENGTHS = ((5, 0.0), (16, 0.0), (16, 0.3), (31, 0.0), (31, 0.3))


def draw(sampler, start, num_samples: int, num_warmup: int = 500):
    """Draws (chain, draw, n, p) and statistics of four chains."""
    run = gx.sample(jax.random.key(0), sampler, start, num_samples=num_samples, num_warmup=num_warmup, progress=False)
    return np.asarray(run["posterior"]["position"].values, np.float64), run["sample_stats"]


def resonance() -> list[dict]:
    """A row for each length, with and without jitter, and one for NUTS."""
    manifold, peak = gx.Stiefel(), jnp.eye(10, 2)
    samplers = {
        (steps, jitter): gx.hmc(
            lambda x: 100 * jnp.sum(peak * x),
            manifold=manifold,
            step_size=STEP,
            num_integration_steps=steps,
            length_jitter=jitter,
        )
        for steps, jitter in LENGTHS
    } | {("nuts", 0.0): gx.nuts(lambda x: 100 * jnp.sum(peak * x), manifold=manifold)}
    rows = []
    for (steps, jitter), sampler in samplers.items():
        draws, stats = draw(sampler, lambda key: manifold.random_point(key, peak), 2000)
        rows.append(
            {
                "steps": steps,
                "length": None if steps == "nuts" else steps * STEP,
                "jitter": jitter,
                "mean_steps": float(stats["n_steps"].mean()),
                "acceptance": float(stats["acceptance_rate"].mean()),
                "min_bulk_ess": min(float(ess(draws[..., i, j])) for i in range(10) for j in range(2)),
                "worst_residual": float(stats["residual"].max()),
            }
        )
        print(rows[-1])
    return rows


class Mixed(gx.Stiefel):
    """The mistake: momenta of the embedded metric under the energy of the canonical one."""

    def momentum(self, x, z):
        """The embedded metric's."""
        return gx.Stiefel("embedded", "geodesic").momentum(x, z)


def momentum() -> dict:
    """The mean of tr x under exp(2 tr x), 5 x 3, with momenta that belong to the metric and with others."""
    law = gx.distributions.MatrixLangevin(2.0 * jnp.eye(5, 3))
    exact = np.trace(np.asarray(law.sample(jax.random.key(1), (100_000,)), np.float64), axis1=-2, axis2=-1)
    found = {"exact": exact.mean(), "exact_error": exact.std() / len(exact) ** 0.5, "sd": exact.std()}
    for name, manifold in (("right", gx.Stiefel()), ("mixed", Mixed())):
        sampler = gx.hmc(law.log_prob, manifold=manifold, step_size=0.2, num_integration_steps=8, length_jitter=0.3)
        draws, stats = draw(sampler, lambda key, m=manifold: m.random_point(key, jnp.zeros((5, 3))), 20_000)
        traces = np.trace(draws, axis1=-2, axis2=-1)
        size = float(ess(traces))
        found[name] = {
            "mean": float(traces.mean()),
            "error": float(traces.std() / size**0.5),
            "ess": size,
            "acceptance": float(stats["acceptance_rate"].mean()),
        }
        print(name, found[name])
    return {name: float(value) if np.isscalar(value) else value for name, value in found.items()}


def reflections() -> dict:
    """The share of positive determinants on O(2)."""
    manifold = gx.Stiefel()
    sampler = gx.hmc(lambda x: 0.8 * jnp.trace(x), manifold=manifold, step_size=0.5, num_integration_steps=4)
    draws, _ = draw(sampler, lambda key: manifold.random_point(key, jnp.zeros((2, 2))), 10_000)
    positive = (np.linalg.det(draws) > 0).astype(float)
    size = float(ess(positive))
    share = float(positive.mean())
    return {"share": share, "error": (share * (1 - share) / size) ** 0.5, "exact": float(i0(1.6) / (1 + i0(1.6)))}


def rounding() -> list[dict]:
    """Mean variance over the exact one, by the constant in the log density, of two seeds."""
    variances = jnp.array([1.0, 4.0, 9.0])
    rows = []
    for constant in CONSTANTS:
        row = {"constant": constant, "rounded_to": float(np.finfo(np.float32).eps) * constant}
        for make in (gx.hmc, gx.nuts):
            row[make.__name__] = [
                float(
                    np.mean(
                        gx.sample(
                            jax.random.key(seed),
                            make(lambda x, c: -0.5 * jnp.sum(x**2 / variances) - c),
                            lambda key: jax.random.normal(key, (3,)),
                            num_samples=10_000,
                            num_warmup=500,
                            num_chains=8,
                            logdensity_args=(jnp.float32(constant),),
                            progress=False,
                        )["posterior"]["position"].values.astype(float)
                        ** 2
                        / np.asarray(variances)
                    )
                )
                for seed in (0, 1)
            ]
        rows.append(row)
        print(row)
    return rows


def main() -> None:
    """Measure all four."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    facts = {
        "machine": platform.machine(),
        "versions": installed("jax", "jaxlib"),
        "step_size": STEP,
        "reflections": reflections(),
        "momentum": momentum(),
        "resonance": resonance(),
        "rounding": rounding(),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "pitfalls.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
