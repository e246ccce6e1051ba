"""A Walsh-Hadamard layer 1,024 x 1,024 against a mean-field dense layer, batch 64, forward and backward, drawn weights.

    python benchmarks/whvi_layer.py            # writes benchmarks/results/whvi_layer.json

Single precision, one thread, compiled. Both layers return outputs with weights drawn anew for each example; the value
and the gradient with respect to the parameters of half the sum of squares plus the divergence from the prior are timed.
The candidates alternate in one process; a figure is the median over the rounds of the ratio to the Walsh-Hadamard layer
of the same round. "mean-field, one draw a batch" draws the whole weight once, as a layer without local
reparametrisation does; "deterministic dense" has no posterior.
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
from _versions import installed

import geodax as gx
from geodax.geometry.hadamard import is_native

BATCH, SECONDS = 64, 0.05
RESULTS = Path(__file__).parent / "results" / "whvi_layer.json"


def candidates(size):
    key = jax.random.key(0)
    options = {"key": key, "use_bias": False}
    mean_field = gx.nn.MeanFieldLinear(size, size, **options)
    layers = {
        "WHVI": gx.nn.WHVILinear(size, size, **options),
        "WHVI, full covariance": gx.nn.WHVILinear(size, size, covariance="full", **options),
        "WHVI, two planar flows": gx.nn.WHVILinear(size, size, num_flows=2, **options),
        "mean-field": mean_field,
        "mean-field, one draw a batch": gx.vi.GaussianOver(gx.nn.Linear(size, size, **options)),
        "deterministic dense": gx.nn.Linear(size, size, **options),
    }

    def objective(layer, x, key):
        key_draw, key_kl = jax.random.split(key)
        drawn = gx.vi.draw(layer, key_draw)
        y = drawn.rows(x) if hasattr(drawn, "rows") else jax.vmap(drawn)(x)
        return 0.5 * jnp.sum(y**2) + gx.nn.total_kl(layer, key=key_kl)

    return {name: (jax.jit(jax.value_and_grad(objective)), layer) for name, layer in layers.items()}


def seconds(f, layer, x, key, repeats):
    started = time.process_time()
    for _ in range(repeats):
        found = f(layer, x, key)
    jax.block_until_ready(found)
    return (time.process_time() - started) / repeats


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    key = jax.random.key(1)
    x = jax.random.normal(jax.random.key(2), (BATCH, arguments.size))
    found, repeats = candidates(arguments.size), {}
    for name, (f, layer) in found.items():
        jax.block_until_ready(f(layer, x, key))
        repeats[name] = max(1, int(SECONDS / max(seconds(f, layer, x, key, 2), 1e-6)))
    times = {name: [] for name in found}
    for _ in range(arguments.rounds):
        for name, (f, layer) in found.items():
            times[name].append(seconds(f, layer, x, key, repeats[name]))
    base, rows = np.asarray(times["WHVI"]), {}
    for name, values in times.items():
        ratios = np.asarray(values) / base
        parameters = sum(leaf.size for leaf in jax.tree.leaves(found[name][1]))
        rows[name] = {
            "parameters": parameters,
            "microseconds": float(np.median(values) * 1e6),
            "least_microseconds": float(np.min(values) * 1e6),
            "times_whvi": float(np.median(ratios)),
            "times_whvi_quartiles": [float(q) for q in np.quantile(ratios, [0.25, 0.75])],
            "times_whvi_of_least": float(np.min(values) / base.min()),
        }
        row = rows[name]
        print(f"{name:30s} {parameters:9,d} parameters {row['microseconds']:9.0f} us {row['times_whvi']:6.2f} x WHVI")
    facts = {
        "size": arguments.size,
        "batch": BATCH,
        "rounds": arguments.rounds,
        "dtype": "float32",
        "clock": "processor time, one thread",
        "native": is_native(),
        "machine": platform.processor() or platform.machine(),
        "versions": installed("jax", "jaxlib"),
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
