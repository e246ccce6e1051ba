"""The variance of the position that batches leave, by order of the batches and of the step, relative to the right one.

The mean of N observations with unit noise under a flat prior, in batches of N / 10: a normal target, and every batch moves it. Variances of
`sghmc` are exact: between two cycles of batches position and momentum are a linear map of themselves and of independent noise. That of
`sgnht`, whose friction moves, is simulated.

    python benchmarks/batch_orders.py

writes benchmarks/results/batch_orders.json, from which docs/tables.py writes its table.
"""

import argparse
import json
import math
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from _batch_variance import variance
from _versions import installed

import geodax as gx

RESULTS = Path(__file__).parent / "results"
NUM_DATA, NUM_BATCHES = 1000, 10
STEPS = (0.05, 0.1, 0.2)
"""Step sizes in standard deviations of the target."""
BATCHES = ("independent", "epochs", "symmetric")
STEP_ORDERS = ("paper", "baoab", "ubu")
NUM_CHAINS, NUM_ITERATIONS = 400, 6000


def simulated(order: str, step: float, friction: float) -> tuple[float, float]:
    """Variance of `sgnht` with its standard error."""
    data = np.random.default_rng(0).standard_normal(NUM_DATA)
    data = (data - data.mean()) / data.std()
    posterior = gx.Posterior(
        log_prior=lambda t: jnp.zeros(()), log_likelihood=lambda t, x: -0.5 * (x - t) ** 2, num_data=NUM_DATA
    )
    algorithm = gx.sgnht(posterior, step_size=step / NUM_DATA**0.5, friction=friction)
    batches = gx.data.batches(data, batch_size=NUM_DATA // NUM_BATCHES, order=order)

    def chain(key):
        key_batch, key_step = jax.random.split(key)

        def one(carry, i):
            state, total = carry
            state, _ = algorithm.step(jax.random.fold_in(key_step, i), state, batches.draw(key_batch, i))
            return (state, total + jnp.where(i >= NUM_ITERATIONS // 4, state.position**2, 0.0)), None

        (_, total), _ = jax.lax.scan(one, (algorithm.init(jnp.zeros(())), 0.0), jnp.arange(NUM_ITERATIONS))
        return NUM_DATA * total / (NUM_ITERATIONS - NUM_ITERATIONS // 4)

    found = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), NUM_CHAINS)))
    return float(found.mean()), float(found.std() / NUM_CHAINS**0.5)


def main() -> None:
    """Compute and simulate all variances."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    jax.config.update("jax_enable_x64", True)
    begun, rows = time.perf_counter(), []
    size = NUM_DATA // NUM_BATCHES
    noise = NUM_DATA / size * (1 - 1 / NUM_BATCHES) * NUM_DATA / (NUM_DATA - 1)
    for step in STEPS:
        friction = 1.0 - math.exp(-step)
        for order in BATCHES:
            for ordering in STEP_ORDERS:
                found = variance(ordering, order, step, friction, NUM_BATCHES, noise)
                rows.append({"sampler": ordering, "batches": order, "step": step, "variance": found, "error": 0.0})
            found, error = simulated(order, step, friction)
            rows.append({"sampler": "sgnht", "batches": order, "step": step, "variance": found, "error": error})
            print(*(row for row in rows[-4:]), sep="\n", flush=True)
    facts = {
        "versions": installed("jax", "jaxlib"),
        "num_data": NUM_DATA,
        "num_batches": NUM_BATCHES,
        "seconds": time.perf_counter() - begun,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "batch_orders.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
