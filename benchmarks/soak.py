"""Long runs: memory over a million steps, distance from the manifold on the way, seconds of a checkpoint; float32, one thread.

Each run is one of a million iterations of one chain in a process of its own, with draws streamed to disk and a checkpoint every two
seconds, some hundred times as often as usual. *Memory* is the resident set, looked at after every chunk of about half a second;
*growth* compares the mean over its last tenth with that over its second tenth. *Residual* is the largest of all iterations, not of the
recorded draws alone. *Checkpoints* are timed for the states of three runs; the share of the time that they take at one a minute is
their seconds over 60 (processor seconds beside them, for a machine that does other things too).

    python benchmarks/soak.py [--steps 1000000] [--parts sgrld cayley geodesic sghmc checkpoints] [--out FILE]

writes benchmarks/results/soak.json; parts that are not run, and the kills of `make soak`, keep their figures.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "soak.json"
SAMPLERS = ("sgrld", "cayley", "geodesic", "sghmc")
PARTS = (*SAMPLERS, "checkpoints")


def record(part: str, figures: dict[str, Any], out: Path = RESULTS) -> None:
    """Put figures into the file of results, beside what is there."""
    from geodax import __version__  # the runs have processes of their own; this one computes nothing

    found = json.loads(out.read_text()) if out.exists() else {"benchmark": "soak"}
    found["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, one thread"
    found["versions"] = {"geodax": __version__} | {name: version(name) for name in ("jax", "zarr", "orbax-checkpoint")}
    found[part] = found.get(part, {}) | figures
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def resident_bytes() -> int:
    """Memory of this process by now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class WorstState(NamedTuple):
    """A sampler's state, and the largest residual so far."""

    position: Any
    inner: Any
    worst: Any


def with_worst_residual(algorithm):
    """The same sampler; the residual that it reports is the largest of all its iterations."""
    import jax.numpy as jnp

    def init(position):
        return WorstState(position, algorithm.init(position), jnp.zeros((), jnp.float32))

    def step(key, state, *batch):
        inner, info = algorithm.step(key, state.inner, *batch)
        worst = jnp.maximum(state.worst, info.residual.astype(jnp.float32))
        return WorstState(inner.position, inner, worst), info._replace(residual=worst)

    return algorithm._replace(init=init, step=step)


def build(name: str):
    """Sampler, start and batches of a run."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import geodax as gx

    generator = np.random.default_rng(0)
    if name == "sgrld":
        x = generator.normal(size=(500, 20)).astype(np.float32)
        y = (x[:, 0] > generator.logistic(size=500)).astype(np.float32)
        posterior = gx.Posterior(
            log_prior=lambda w: -0.5 * jnp.sum(w**2),
            log_likelihood=lambda w, b: jax.nn.log_sigmoid((2.0 * b[1] - 1.0) * (b[0] @ w)),
            num_data=500,
        )
        batches = gx.data.batches((x, y), batch_size=50)
        return gx.sgrld(posterior, metric=gx.metrics.RMSProp(), step_size=1e-4), jnp.zeros(20, jnp.float32), batches
    weights = jnp.asarray(generator.normal(size=(10, 3)), jnp.float32)

    def langevin(x):
        return jnp.sum(weights * x)

    manifold = gx.Stiefel(metric="embedded", flow="geodesic") if name == "geodesic" else gx.Stiefel()
    if name == "sghmc":
        algorithm = gx.sghmc(langevin, manifold=manifold, step_size=0.1, friction=0.1)
    else:
        algorithm = gx.hmc(langevin, manifold=manifold, step_size=0.2, num_integration_steps=4)
    start = manifold.random_point(jax.random.key(0), jnp.zeros((10, 3), jnp.float32))
    return with_worst_residual(algorithm), start, None


def soak(name: str, num_steps: int) -> dict[str, Any]:
    """One run in this process."""
    import jax
    import numpy as np

    import geodax as gx

    algorithm, start, batches = build(name)
    thinning = max(1, num_steps // 10_000)
    seen: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = gx.sample(
            jax.random.key(1),
            algorithm,
            start,
            batches=batches,
            num_samples=num_steps // thinning,
            thinning=thinning,
            num_chains=1,
            checkpoint=folder,
            checkpoint_seconds=2.0,
            progress=lambda p: seen.append((p.iteration, resident_bytes())),
        )
        iterations, sizes = np.array(seen, dtype=np.float64).T
        early = sizes[(iterations > 0.1 * num_steps) & (iterations <= 0.2 * num_steps)]
        late = sizes[iterations > 0.9 * num_steps]
        stats = tree["sample_stats"]
        row = {
            "steps": num_steps,
            "seconds": float(tree.attrs["sampling_seconds"]),
            "chunks": len(sizes),
            "megabytes_early": float(early.mean() / 2**20),
            "megabytes_late": float(late.mean() / 2**20),
            "growth": float(late.mean() / early.mean() - 1.0),
            "is_finite": bool(np.isfinite(tree["posterior"]["position"].values).all()),
        }
        if name != "sgrld":
            row["worst_residual"] = float(stats["residual"].values.max())
        if "acceptance_rate" in stats:
            row["acceptance_rate"] = float(stats["acceptance_rate"].values.mean())
    return row


def checkpoints(repeats: int = 7) -> dict[str, Any]:
    """Seconds of a checkpoint of states of three sizes, and their share of a minute."""
    import jax.numpy as jnp

    from geodax.run.checkpoint import Checkpointer

    rows = {}
    for name, num_chains, num_numbers in (
        ("4 chains of 500 numbers", 4, 500),
        ("10 chains of 478,000 numbers", 10, 478_000),
        ("1 chain of 25,000,000 numbers", 1, 25_000_000),
    ):
        tree = {"position": jnp.ones((num_chains, num_numbers), jnp.float32), "step": jnp.zeros(num_chains)}
        with tempfile.TemporaryDirectory() as folder:
            checkpointer = Checkpointer(Path(folder) / "steps")
            seconds, processor = [], []
            for step in range(repeats + 2):
                started = time.perf_counter(), time.process_time()
                checkpointer.save(step + 1, tree, {})
                seconds.append(time.perf_counter() - started[0])
                processor.append(time.process_time() - started[1])
            checkpointer.close()
        seconds, processor = seconds[2:], processor[2:]  # with the removal of an older one, as it goes on
        rows[name] = {
            "seconds": statistics.median(seconds),
            "spread": [min(seconds), max(seconds)],
            "share_at_one_a_minute": statistics.median(seconds) / 60.0,
            "processor_seconds": statistics.median(processor),
            "load_average": os.getloadavg()[0],
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--alone", action="store_true", help="run one part in this process and print its figures")
    options = parser.parse_args()
    if options.alone:
        (part,) = options.parts
        print(json.dumps(checkpoints() if part == "checkpoints" else soak(part, options.steps)))
        return
    for part in options.parts:
        command = [sys.executable, __file__, "--alone", "--parts", part, "--steps", str(options.steps)]
        environment = os.environ | {"NPROC": "1", "OMP_NUM_THREADS": "1"}  # one thread
        process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        figures = json.loads(process.stdout.splitlines()[-1])
        record(
            "checkpoints" if part == "checkpoints" else "steps",
            figures if part == "checkpoints" else {part: figures},
            options.out,
        )
        print(part, json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
