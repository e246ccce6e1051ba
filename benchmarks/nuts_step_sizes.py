"""Gradients per effective draw of NUTS over a grid of step sizes; the figures do not depend on the machine.

Doubling makes the cost a saw-tooth of the step size, and a trajectory near a whole period of the motion must be found to have turned.
Targets: 100 independent normals, and the target of ``benchmarks/stiefel.py`` on frames of 50 x 5; 4 chains of 1,500 draws, after 200 that
are left out. The figure is the number of gradients over the smallest bulk ESS of an entry.

    python benchmarks/nuts_step_sizes.py

writes benchmarks/results/nuts_step_sizes.json and prints the rows.
"""

import json
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import jax.numpy as jnp
import numpy as np
from _stiefel.target import make_target
from _versions import installed

import geodax as gx
from geodax.diagnostics.findings import ess

jax.config.update("jax_enable_x64", True)

RESULTS = Path(__file__).parent / "results" / "nuts_step_sizes.json"
NUM_CHAINS, NUM_DRAWS, NUM_LEFT_OUT = 4, 1500, 200
TARGETS = {
    "normal, 100 independent": (lambda x: -0.5 * jnp.sum(x * x), gx.Euclidean(), (100,), (0.36, 0.42, 0.48, 0.6, 0.68)),
    "frames, 50 x 5": (make_target(50, 5).logdensity, gx.Stiefel(), (50, 5), (0.038, 0.043, 0.05, 0.06, 0.068)),
}


def measure(name: str) -> list[dict]:
    """A row for each step size."""
    logdensity, manifold, shape, step_sizes = TARGETS[name]
    algorithm = gx.nuts(logdensity, manifold=manifold, step_size=1.0)

    @jax.jit
    def run(key, step_size):
        start = manifold.random_point(key, jnp.zeros(shape))

        def iterate(state, key):
            state, info = algorithm.step(key, state)
            return state, (state.position, info.num_integration_steps, info.acceptance_rate)

        state = algorithm.init(start)._replace(step_size=step_size)
        return jax.lax.scan(iterate, state, jax.random.split(key, NUM_LEFT_OUT + NUM_DRAWS))[1]

    rows = []
    for step_size in step_sizes:
        chains = [run(jax.random.key(chain), jnp.asarray(step_size)) for chain in range(NUM_CHAINS)]
        x, steps, acceptance = (np.stack(parts)[:, NUM_LEFT_OUT:] for parts in zip(*chains, strict=True))
        effective = float(ess(x.reshape(*x.shape[:2], -1), method="bulk").min())
        rows.append(
            {
                "target": name,
                "step_size": step_size,
                "gradients_per_effective_draw": float(steps.sum()) / effective,
                "gradients_per_draw": float(steps.mean()),
                "longest": int(steps.max()),
                "acceptance_rate": float(acceptance.mean()),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    rows = [row for name in TARGETS for row in measure(name)]
    facts = {"benchmark": "nuts_step_sizes", "versions": installed("jax", "jaxlib", "numpy"), "rows": rows}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
