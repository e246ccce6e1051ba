"""What a step costs on each of 1, 2, 4 and 8 devices, counted in the compiled program; nothing is run.

The network is 784-400-400-10 in single precision with 60,000 examples and batches of 128, the exact samplers' target has 500 dimensions.
Counted for one iteration of the loop that `gx.sample` and `gx.vi.fit` run, from XLA's program for one device: collectives and the
bytes that go into them, floating-point operations (a loop within the iteration, as NUTS has, counts once), and memory (what the loop
carries, the data, and the temporaries beside them). Forced CPU devices stand for any others: the partitioning does not depend on what
a device is.

    python benchmarks/scaling.py [--devices 1 2 4 8] [--only split]

writes benchmarks/results/scaling.json and prints the table. With ``--only split`` it counts again only steps with split
parameters: eight square layers of 256 units, batches of 64 examples, the axis "model". For these it also adds up the
bytes that a device sends in rings: (D - 1) / D of what a gather makes or a scatter takes, twice that of an all-reduce.
The options of `gx.Posterior` are counted with batches of 8,192 examples, whose activations are larger than the parameters.
"""

import argparse
import functools
import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import geodax as gx
from geodax import nn, vi
from geodax.run.advance import build_advance
from geodax.run.feeding import make_feed, make_step_feed
from geodax.run.fit_chunks import Keys, build, first_carry
from geodax.run.sharding import as_mesh, everywhere_alike
from geodax.run.split import split_of

RESULTS = Path(__file__).parent / "results" / "scaling.json"
NUM_DATA, BATCH, WIDTHS = 60_000, 128, (400, 400)
SPLIT_BATCH, LARGE_BATCH = 64, 8192
OPTIONS = {
    "no options": {},
    "num_micro_batches=8": {"num_micro_batches": 8},
    "checkpoint_activations": {"checkpoint_activations": True},
    "compute_dtype=bfloat16": {"compute_dtype": jnp.bfloat16},
    "all three": {"num_micro_batches": 8, "checkpoint_activations": True, "compute_dtype": jnp.bfloat16},
}
FACTORS = {"all-reduce": 2, "all-gather": 1, "all-to-all": 1, "collective-permute": 2}
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
METRICS = {
    "identity": gx.metrics.Identity,
    "rmsprop": gx.metrics.RMSProp,
    "wenzel": gx.metrics.Wenzel,
    "monge": lambda: gx.metrics.Monge(normalize=1.0),
    "shampoo": gx.metrics.Shampoo,
}


def counted(compiled) -> dict:
    """Collectives, bytes and operations of one iteration on one device."""
    found = COLLECTIVE.findall(compiled.as_text())
    shapes = [shape for shapes, _ in found for shape in re.findall(r"(\w+)\[([\d,]*)\]", shapes)]
    memory = compiled.memory_analysis()
    cost = compiled.cost_analysis()
    return {
        "collectives": dict(sorted((kind, [k for _, k in found].count(kind)) for _, kind in found)),
        "collective_bytes": sum(BYTES[t] * int(np.prod([int(n) for n in dims.split(",") if n])) for t, dims in shapes),
        "flops": cost["flops"],
        "argument_bytes": memory.argument_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
    }


def placed(tree, mesh, spec):
    """Shapes in place of arrays, on the mesh."""
    sharding = None if mesh is None else NamedSharding(mesh, spec)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def sent(text: str, count: int) -> float:
    """Bytes that a device sends in rings of ``count`` devices."""
    total = 0.0
    for shapes, kind in COLLECTIVE.findall(text):
        size = sum(
            BYTES[t] * int(np.prod([int(n) for n in dims.split(",") if n]))
            for t, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
        )
        total += size * (count - 1) / count * FACTORS.get(kind, count)
    return total


def split_step(algorithm, position, count: int, batch: int = SPLIT_BATCH) -> dict:
    """One iteration of `gx.sample` of one chain whose parameters, and batches, are split over ``count`` devices."""
    size = position["0"].shape[0]
    feed = make_feed(gx.data.batches(jnp.zeros((batch, size), jnp.float32), batch_size=batch), 1)
    assert feed is not None
    mesh = as_mesh("scaling", 1, gx.device_mesh(chain=1, model=count), batch)
    split = None if mesh is None else split_of("scaling", position, mesh, False)
    states = jax.eval_shape(lambda p: jax.vmap(algorithm.init)(jax.tree.map(lambda x: x[None], p)), position)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    build = functools.partial(
        build_advance, lambda _: (algorithm.step, None, lambda p: p["0"][0, 0]), num_warmup=0, thinning=1
    )
    advance = build(feed=feed, buffer_length=1, mesh=mesh, split=split)
    number, fed = jax.ShapeDtypeStruct((), np.int32), placed(feed.load(0, 0), mesh, PartitionSpec())
    if split is not None:
        states = jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), states, split.shardings(states, "chain")
        )
    keys = placed(keys, mesh, PartitionSpec("chain"))
    lowered = jax.jit(advance, donate_argnums=(1, 2)).lower((), states, (), keys, fed, number, number)
    compiled = lowered.compile()
    found = counted(compiled)
    data = sum(x.nbytes for x in jax.tree.leaves(feed.load(0, 0)))
    written = lowered.as_text()
    return found | {
        "state_bytes": found["argument_bytes"] - data,
        "sent_bytes": sent(compiled.as_text() or "", count),
        "gathers_written": written.count("stablehlo.all_gather"),
        "scatters_written": written.count('"stablehlo.reduce_scatter"'),
    }


def count_split(devices: list[int]) -> list[dict]:
    """Rows of steps with split parameters, on the smallest and the largest number of devices."""
    position = {str(i): jnp.ones((256, 256), jnp.float32) for i in range(8)}

    def log_likelihood(p, x):
        for layer in sorted(p):
            x = jnp.tanh(x @ p[layer])
        return -jnp.sum(x**2, axis=-1)

    def target(batch: int = SPLIT_BATCH, **options) -> gx.Posterior:
        return gx.Posterior(
            log_prior=lambda p: -0.5 * sum(jnp.sum(x**2) for x in jax.tree.leaves(p)),
            log_likelihood=log_likelihood,
            num_data=batch,
            **options,
        )

    makers = METRICS | {"shampoo": lambda: gx.metrics.Shampoo(block_size=32)}
    cases = {f"sgrld, {name}": gx.sgrld(target(), metric=make(), step_size=1e-6) for name, make in makers.items()}
    rows = []
    for name, algorithm in (cases | {"sghmc": gx.sghmc(target(), step_size=1e-3)}).items():
        for count in sorted({min(devices), max(devices)}):
            rows.append({"step": name, "axis": "model", "devices": count} | split_step(algorithm, position, count))
            print({k: v for k, v in rows[-1].items() if k != "flops"}, flush=True)
    for name, options in OPTIONS.items():
        algorithm = gx.sgrld(target(LARGE_BATCH, **options), step_size=1e-6)
        for count in sorted({min(devices), max(devices)}):
            row = {"step": f"sgrld, {name}", "axis": "model", "devices": count, "batch": LARGE_BATCH}
            rows.append(row | split_step(algorithm, position, count, LARGE_BATCH))
            print({k: v for k, v in rows[-1].items() if k != "flops"}, flush=True)
    return rows


def data_shapes():
    return jax.ShapeDtypeStruct((NUM_DATA, 784), np.float32), jax.ShapeDtypeStruct((NUM_DATA,), np.int32)


def sampler_step(algorithm, position, num_chains: int, chain: int, data: int) -> dict:
    """One iteration of `gx.sample` on chain times data devices."""
    has_batches = algorithm.num_batches > 0
    feed = (
        make_feed(gx.data.batches((jnp.zeros((BATCH, 1)), jnp.zeros(BATCH)), batch_size=BATCH), 1)
        if has_batches
        else None
    )
    mesh = as_mesh("scaling", num_chains, gx.device_mesh(chain=chain, data=data), BATCH if has_batches else None)
    states = jax.eval_shape(
        jax.vmap(algorithm.init),
        jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_chains, *x.shape), x.dtype), position),
    )
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), num_chains))
    advance = build_advance(
        lambda _: (algorithm, None, lambda p: jax.tree.leaves(p)[-1].ravel()[0]),
        feed=feed,
        num_warmup=0,
        thinning=1,
        buffer_length=1,
        mesh=mesh,
    )
    one, everywhere = PartitionSpec("chain"), PartitionSpec()
    fed = () if feed is None else gx.data.Batches(data_shapes(), BATCH, "independent")
    number = jax.ShapeDtypeStruct((), np.int32)
    lowered = jax.jit(advance, donate_argnums=(1, 2)).lower(
        (), placed(states, mesh, one), (), placed(keys, mesh, one), placed(fed, mesh, everywhere), number, number
    )
    return counted(lowered.compile())


def fit_step(network, chain: int, data: int, num_samples: int) -> dict:
    """One step of `gx.vi.fit` on chain times data devices."""
    likelihood = nn.CategoricalLikelihood()
    algorithm = vi.ascent(
        network, likelihood, vi.adam(lambda _: jnp.float32(1e-3)), num_data=NUM_DATA, num_samples=num_samples
    )
    mesh = as_mesh("scaling", num_samples, gx.device_mesh(chain=chain, data=data), BATCH, "draws")
    axes = () if mesh is None else tuple(name for name in mesh.axis_names if mesh.shape[name] > 1)
    keys = Keys(*jax.random.split(jax.random.key(0), 3))
    feed = gx.data.Batches(data_shapes(), BATCH, "independent")
    advance, _ = build(algorithm, likelihood, make_step_feed(feed, None, None).draw, NUM_DATA, False, axes)
    everywhere = PartitionSpec()
    carry = first_carry(network, algorithm.init(network), 1, False)
    number = jax.ShapeDtypeStruct((), np.int32)
    shapes = *(placed(tree, mesh, everywhere) for tree in (carry, keys, feed)), number, number
    return counted(jax.jit(everywhere_alike(advance, mesh, everywhere), donate_argnums=0).lower(*shapes).compile())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--only", choices=["split"])
    arguments = parser.parse_args()
    devices = arguments.devices
    if arguments.only:
        record = json.loads(RESULTS.read_text(encoding="utf-8")) | {"split": count_split(devices)}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        return
    network = nn.MLP(784, 10, widths=WIDTHS, key=jax.random.key(0), dtype=jnp.float32)
    size = sum(x.size for x in jax.tree.leaves(network) if isinstance(x, jax.Array))
    posterior = gx.Posterior(
        log_prior=lambda p: -0.5 * sum(jnp.sum(x**2) for x in jax.tree.leaves(p)),
        log_likelihood=nn.CategoricalLikelihood(),
        num_data=NUM_DATA,
    )
    normal = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    point = jnp.zeros(500, jnp.float32)
    rows = []

    def add(name: str, axis: str, count: int, found: dict) -> None:
        rows.append({"step": name, "axis": axis, "devices": count} | found)
        kinds = ", ".join(f"{n} {k}" for k, n in found["collectives"].items()) or "none"
        print(
            f"{name:28s} {axis:6s} {count}  {kinds:16s} {found['collective_bytes']:>11,} B  {found['flops']:>15,.0f} flops  "
            f"{found['argument_bytes'] / 2**20:8.1f} MiB arguments {found['temporary_bytes'] / 2**20:8.1f} MiB temporary",
            flush=True,
        )

    ends = sorted({min(devices), max(devices)})
    for count in devices:
        algorithm = gx.sgrld(posterior, step_size=1e-6)
        add("sgrld, identity, 8 chains", "chain", count, sampler_step(algorithm, network, 8, count, 1))
        add("sgrld, identity, 1 chain", "data", count, sampler_step(algorithm, network, 1, 1, count))
    for count in ends:
        add("nuts, 8 chains", "chain", count, sampler_step(gx.nuts(normal, step_size=0.1), point, 8, count, 1))
        exact = gx.hmc(normal, step_size=0.1, num_integration_steps=16)
        add("hmc, 8 chains", "chain", count, sampler_step(exact, point, 8, count, 1))
        add("sghmc, 1 chain", "data", count, sampler_step(gx.sghmc(posterior, step_size=1e-3), network, 1, 1, count))
        for name, metric in METRICS.items():
            if name != "identity":
                algorithm = gx.sgrld(posterior, metric=metric(), step_size=1e-6)
                add(f"sgrld, {name}, 1 chain", "data", count, sampler_step(algorithm, network, 1, 1, count))
        whole = vi.GaussianOver(network)
        add("vi.fit, 8 draws", "data", count, fit_step(whole, 1, count, 8))
        add("vi.fit, 8 draws", "chain", count, fit_step(whole, count, 1, 8))
    RESULTS.parent.mkdir(exist_ok=True)
    record = {
        "parameters": size,
        "examples": NUM_DATA,
        "batch": BATCH,
        "versions": {name: version(name) for name in ("jax", "jaxlib")},
        "python": platform.python_version(),
        "rows": rows,
        "split": count_split(devices),
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
