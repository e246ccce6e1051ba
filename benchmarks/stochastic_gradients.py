"""Milliseconds a step of the stochastic-gradient samplers on a 784-400-400-10 network, beside plain SGD and peers.

    python benchmarks/stochastic_gradients.py            # writes benchmarks/results/stochastic_gradients.json

One thread, single precision, batches of 100 of 10,000 random images that lie on the device, drawn inside the compiled
loop. All candidates alternate in one process; a figure is the median over the rounds of the mean over a scan of steps,
and its ratio that to plain SGD's in the same round. SGD draws the same batches and takes the same gradient.
"""

import argparse
import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx

NUM_DATA, BATCH, WIDTHS = 10_000, 100, (784, 400, 400, 10)
LEARNING_RATE = 1e-4  # on the mean potential: the chains barely move, the cost does not depend on it
RESULTS = Path(__file__).parent / "results" / "stochastic_gradients.json"


def network(key):
    keys = jax.random.split(key, len(WIDTHS) - 1)
    pairs = zip(keys, WIDTHS[:-1], WIDTHS[1:], strict=True)
    return [{"w": jax.random.normal(k, (n, p)) / np.sqrt(n), "b": jnp.zeros(p)} for k, n, p in pairs]


def logits(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def log_likelihood(params, batch):
    return jnp.take_along_axis(jax.nn.log_softmax(logits(params, batch["x"])), batch["y"][:, None], 1)[:, 0]


def log_prior(params):
    return -0.5 * sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params))


def orthogonal_start(key):
    keys = jax.random.split(key, 3)
    params = [{"w": jnp.zeros((n, p)), "b": jnp.zeros(p)} for n, p in ((784, 300), (300, 300), (300, 10))]
    for layer, k in zip(params[:2], keys, strict=False):
        layer["w"] = gx.Stiefel().random_point(k, layer["w"])
    params[2]["w"] = jax.random.normal(keys[2], (300, 10)) / np.sqrt(300)
    return params


def steps_of(algorithm, batches, num_steps):
    """A compiled scan over steps of a sampler."""

    @jax.jit
    def run(state, batches, key):
        def body(state, i):
            key_step, key_data = jax.random.split(jax.random.fold_in(key, i))
            state, info = algorithm.step(key_step, state, batches.draw(key_data, i))
            return state, info.potential

        return jax.lax.scan(body, state, jnp.arange(num_steps))

    return run


def sgd(num_steps, posterior):
    @jax.jit
    def run(params, batches, key):
        def body(params, i):
            _, key_data = jax.random.split(jax.random.fold_in(key, i))
            value, gradient = jax.value_and_grad(posterior.logdensity)(params, batches.draw(key_data, i))
            rate = LEARNING_RATE / NUM_DATA
            return jax.tree.map(lambda p, g: p + rate * g, params, gradient), value

        return jax.lax.scan(body, params, jnp.arange(num_steps))

    return run


def plain_sgld(num_steps, posterior):
    """Hand-written, with JAX's own normal variates."""

    @jax.jit
    def run(params, batches, key):
        def body(params, i):
            key_step, key_data = jax.random.split(jax.random.fold_in(key, i))
            value, gradient = jax.value_and_grad(posterior.logdensity)(params, batches.draw(key_data, i))
            rate = LEARNING_RATE / NUM_DATA
            leaves, structure = jax.tree.flatten(params)
            keys = jax.random.split(key_step, len(leaves))
            noise = structure.unflatten([jax.random.normal(k, p.shape) for k, p in zip(keys, leaves, strict=True)])
            moved = jax.tree.map(lambda p, g, z: p + rate * g + np.sqrt(2 * rate) * z, params, gradient, noise)
            return moved, value

        return jax.lax.scan(body, params, jnp.arange(num_steps))

    return run


def blackjax_sgld(num_steps, posterior):
    import blackjax

    sampler = blackjax.sgld(jax.grad(posterior.logdensity))

    @jax.jit
    def run(params, batches, key):
        def body(params, i):
            key_step, key_data = jax.random.split(jax.random.fold_in(key, i))
            return sampler.step(key_step, params, batches.draw(key_data, i), LEARNING_RATE / NUM_DATA), 0.0

        return jax.lax.scan(body, params, jnp.arange(num_steps))

    return run


def candidates(num_steps):
    posterior = gx.Posterior(log_prior=log_prior, log_likelihood=log_likelihood, num_data=NUM_DATA)
    rng = np.random.default_rng(0)
    data = {
        "x": jnp.asarray(rng.normal(size=(NUM_DATA, 784)), jnp.float32),
        "y": jnp.asarray(rng.integers(0, 10, NUM_DATA), jnp.int32),
    }
    batches = gx.data.batches(data, batch_size=BATCH)
    params, step_size = network(jax.random.key(0)), LEARNING_RATE / NUM_DATA
    metrics = {
        "sgrld Identity": gx.metrics.Identity(),
        "sgrld RMSProp": gx.metrics.RMSProp(),
        "sgrld Wenzel": gx.metrics.Wenzel(),
        "sgrld Monge without Gamma": gx.metrics.Monge(gamma="none", lag=False),
        "sgrld Monge": gx.metrics.Monge(),
        "sgrld Shampoo, 128, every 100, eigh": gx.metrics.Shampoo(),
        "sgrld Shampoo, 128, every 100, newton": gx.metrics.Shampoo(method="newton"),
        "sgrld SOAP, 128, every 100": gx.metrics.Shampoo(variant="soap"),
    }
    found = {
        "SGD": (sgd(num_steps, posterior), params),
        "SGLD, hand-written": (plain_sgld(num_steps, posterior), params),
    }
    try:
        version("blackjax")
        found["SGLD, BlackJAX"] = (blackjax_sgld(num_steps, posterior), params)
    except PackageNotFoundError:
        pass
    for name, metric in metrics.items():
        algorithm = gx.sgrld(posterior, metric=metric, step_size=step_size)
        found[name] = (steps_of(algorithm, batches, num_steps), algorithm.init(params))
    algorithm = gx.sghmc(posterior, step_size=float(np.sqrt(step_size)))
    found["sghmc"] = (steps_of(algorithm, batches, num_steps), algorithm.init(params))
    manifold = gx.Product([{"w": gx.Stiefel()}, {"w": gx.Stiefel()}, {"w": None, "b": None}])
    algorithm = gx.sghmc(posterior, manifold=manifold, step_size=float(np.sqrt(step_size)))
    orthogonal = orthogonal_start(jax.random.key(1))
    found["SGD 784-300-300-10"] = (sgd(num_steps, posterior), orthogonal)
    found["sghmc 784-300-300-10, two orthogonal layers"] = (
        steps_of(algorithm, batches, num_steps),
        algorithm.init(orthogonal),
    )
    return found, batches


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps of a scan (a multiple of Shampoo's 100)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    found, batches = candidates(arguments.steps)
    times = {name: [] for name in found}
    compiled = {}
    for name, (run, state) in found.items():
        started = time.perf_counter()
        compiled[name] = run.lower(state, batches, jax.random.key(2)).compile()
        print(f"{name}: compiled in {time.perf_counter() - started:.1f} s", flush=True)
        jax.block_until_ready(compiled[name](state, batches, jax.random.key(2)))
    for i in range(arguments.rounds):
        for name, (_, state) in found.items():
            started = time.perf_counter()
            jax.block_until_ready(compiled[name](state, batches, jax.random.key(3 + i)))
            times[name].append(1e3 * (time.perf_counter() - started) / arguments.steps)
    rows = {}
    for name, values in times.items():
        base = times["SGD 784-300-300-10" if "300" in name else "SGD"]
        ratios = np.asarray(values) / np.asarray(base)
        rows[name] = {
            "milliseconds": float(np.median(values)),
            "ratio_to_sgd": float(np.median(ratios)),
            "ratio_quartiles": [float(q) for q in np.quantile(ratios, [0.25, 0.75])],
            "fastest_milliseconds": float(np.min(values)),
            "ratio_of_fastest": float(np.min(values) / np.min(base)),
        }
        print(f"{name:50s} {rows[name]['milliseconds']:7.2f} ms   {rows[name]['ratio_to_sgd']:5.2f} x SGD", flush=True)
    facts = {
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "threads": 1,
        "batch": BATCH,
        "dtype": "float32",
        "machine": platform.processor() or platform.machine(),
        "versions": {name: version(name) for name in ("geodax", "jax", "jaxlib")},
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
