"""Milliseconds a step of the stochastic-gradient samplers on a 784-400-400-10 network, beside plain SGD and peers.

    python benchmarks/stochastic_gradients.py            # writes benchmarks/results/stochastic_gradients.json
    python benchmarks/stochastic_gradients.py --only Adam vi. --out benchmarks/results/natural_gradients.json
    python benchmarks/stochastic_gradients.py --chains 10 --only SGD sgrld sghmc --out FILE    # on a GPU

Single precision, batches of 100 of 10,000 random images in memory, drawn inside the loop, which is compiled in JAX; on
a processor one thread. Samplers of geodax are compiled as `gx.sample` compiles them, everything else as JAX does by
itself; the row "SGD, compiled like geodax" tells what that is worth alone. All candidates alternate in one process; a figure is the median over the rounds of the mean over
a block of steps (a step takes one gradient), and its ratio that to plain SGD's (hand-written, in JAX) in the same round.
SGD draws the same batches and takes the same gradient. With several chains a step is one of each, by ``vmap``, and steps
a second are those of all. Peers that are not installed are left out, and said so; all are in the extra ``bench``.
"""

import argparse
import contextlib
import json
import os
import platform
import time
from pathlib import Path

import _threads  # noqa: F401  (before JAX)
import jax
import numpy as np
from _networks import jax_samplers as ours
from _networks import problem
from _networks import torch_samplers as peers
from _versions import installed

import geodax as gx

RESULTS = Path(__file__).parent / "results" / "stochastic_gradients.json"
VERSIONS = ("jax", "jaxlib", "optax", "blackjax", "torch", "posteriors", "geoopt", "pytorch_optimizer")
LEAPFROG = 10
POLAR = gx.Stiefel(metric="embedded", flow="polar")
SGD, ORTHOGONAL_SGD = "SGD", "SGD, 784-300-300-10"

_every = f"{problem.SHAMPOO_BLOCK}, every {problem.SHAMPOO_EVERY}"
_orthogonal = "784-300-300-10, two orthogonal layers"
CANDIDATES = {
    SGD: lambda n: ours.descent(n),
    "SGD, compiled like geodax": lambda n: ours.descent(n, is_like_geodax=True),
    "SGD, optax": lambda n: ours.optax_descent(n),
    "Adam, optax": lambda n: ours.optax_adam(n),
    "vi.ivon": lambda n: ours.ivon(n),
    "vi.noisy_kfac": lambda n: ours.noisy_kfac(n),
    "SGD, torch": lambda n: peers.descent(n),
    "SGLD, hand-written in JAX": lambda n: ours.by_hand(n),
    "SGLD, noisy_sgd of optax": lambda n: ours.optax_descent(n, is_noisy=True),
    "SGLD, BlackJAX": lambda n: ours.blackjax_sgld(n),
    "SGLD, posteriors": lambda n: peers.posteriors_sampler(n, "sgld"),
    "sgrld Identity": lambda n: ours.sgrld(n, gx.metrics.Identity()),
    "sgrld RMSProp": lambda n: ours.sgrld(n, gx.metrics.RMSProp()),
    "sgrld Wenzel": lambda n: ours.sgrld(n, gx.metrics.Wenzel()),
    "sgrld Monge without Gamma": lambda n: ours.sgrld(n, gx.metrics.Monge(alpha2=1.0, gamma="none", lag=False)),
    "sgrld Monge": lambda n: ours.sgrld(n, gx.metrics.Monge(alpha2=1.0)),
    f"sgrld Shampoo, {_every}, eigh": lambda n: ours.sgrld(n, gx.metrics.Shampoo()),
    f"sgrld Shampoo, {_every}, newton": lambda n: ours.sgrld(n, gx.metrics.Shampoo(method="newton")),
    f"sgrld SOAP, {_every}": lambda n: ours.sgrld(n, gx.metrics.Shampoo(variant="soap")),
    f"Shampoo, pytorch_optimizer, {_every}": lambda n: peers.shampoo(n, is_blocked=True),
    "Shampoo, pytorch_optimizer, whole, every 100": lambda n: peers.shampoo(n, is_blocked=False),
    "SOAP, pytorch_optimizer, whole, every 100": lambda n: peers.soap(n),
    f"SGHMC, BlackJAX, {LEAPFROG} gradients an update": lambda n: ours.blackjax_sghmc(n, LEAPFROG),
    "SGHMC, posteriors": lambda n: peers.posteriors_sampler(n, "sghmc"),
    "sghmc": lambda n: ours.sghmc(n),
    ORTHOGONAL_SGD: lambda n: ours.descent(n, problem.ORTHOGONAL_WIDTHS),
    f"RSGLD, geoopt, {_orthogonal}": lambda n: peers.geoopt_sampler(n, "RSGLD"),
    f"SGRHMC, geoopt, {_orthogonal}": lambda n: peers.geoopt_sampler(n, "SGRHMC"),
    f"sghmc, {_orthogonal}": lambda n: ours.orthogonal_sghmc(n, gx.Stiefel()),
    f"sghmc, {_orthogonal}, polar flow": lambda n: ours.orthogonal_sghmc(n, POLAR),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps of a scan (a multiple of Shampoo's 100)")
    parser.add_argument("--chains", type=int, default=1, help="chains side by side; peers that run one are left out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", help="words of the candidates that are timed; SGD always is")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    times, busy, runs, left_out = {}, {}, {}, {}
    with contextlib.suppress(ModuleNotFoundError):
        np.testing.assert_allclose(peers.value_at_start(), ours.value_at_start(), rtol=1e-5)
    for name, make in CANDIDATES.items():
        is_asked = arguments.only is None or any(word.lower() in name.lower() for word in arguments.only)
        if not is_asked and name not in (SGD, ORTHOGONAL_SGD):
            continue
        started = time.perf_counter()
        try:
            runs[name] = make(problem.Block(arguments.steps, arguments.chains))
        except ModuleNotFoundError as error:
            left_out[name] = f"{error.name} is not installed"
            print(f"{name}: left out, {left_out[name]}", flush=True)
            continue
        except problem.OneChainError:
            left_out[name] = "one chain only"
            print(f"{name}: left out, {left_out[name]}", flush=True)
            continue
        runs[name](0)
        times[name], busy[name] = [], []
        print(f"{name}: ready in {time.perf_counter() - started:.1f} s", flush=True)
    for i in range(arguments.rounds):
        for name, run in runs.items():
            started, used = time.perf_counter(), time.process_time()
            run(i + 1)
            busy[name].append(1e3 * (time.process_time() - used) / arguments.steps)
            times[name].append(1e3 * (time.perf_counter() - started) / arguments.steps)
    rows = {}
    for name, values in times.items():
        base = times[ORTHOGONAL_SGD if "300" in name else SGD]
        ratios = np.asarray(values) / np.asarray(base)
        rows[name] = {
            "milliseconds": float(np.median(values)),
            "processor_milliseconds": float(np.median(busy[name])),
            "steps_a_second": 1e3 * arguments.chains / float(np.median(values)),
            "ratio_to_sgd": float(np.median(ratios)),
            "ratio_quartiles": [float(q) for q in np.quantile(ratios, [0.25, 0.75])],
            "fastest_milliseconds": float(np.min(values)),
            "ratio_of_fastest": float(np.min(values) / np.min(base)),
        }
        print(f"{name:60s} {rows[name]['milliseconds']:7.2f} ms   {rows[name]['ratio_to_sgd']:5.2f} x SGD", flush=True)
    facts = {
        "steps": arguments.steps,
        "chains": arguments.chains,
        "rounds": arguments.rounds,
        "threads": 1,
        "batch": problem.BATCH,
        "dtype": "float32",
        "machine": machine(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "versions": installed(*VERSIONS),
        "left_out": left_out,
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")


def machine() -> str:
    """The processor, with the widest vectors that it has if they are of 512 bits, or the accelerator that JAX runs on."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    with contextlib.suppress(OSError):
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        model = next(
            (line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("model name")), ""
        )
        return " ".join(filter(None, (platform.machine(), model, "with AVX-512" if " avx512f " in facts else "")))
    return platform.machine()


if __name__ == "__main__":
    main()
