"""Small runs of every kind, each a function of a folder that starts or resumes it and returns all it computed.

Every iteration is a chunk with a checkpoint after it, so that a kill finds a run at work on its files.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import geodax as gx
from geodax import vi
from geodax.app import main
from geodax.run import driver
from geodax.run import fit as fitting
from geodax.run import sample as sampling
from geodax.run.draws import open_draws

NUM_WARMUP, NUM_SAMPLES, NUM_STEPS = 8, 16, 24
_DATA = np.random.default_rng(3).normal(1.0, 2.0, size=(60, 3)).astype(np.float32)


@contextlib.contextmanager
def chunks_of_one() -> Iterator[None]:
    """Let every chunk have one iteration, and save a checkpoint after each, whatever the run asks for."""
    before = driver._SECONDS_PER_CHUNK, driver.drive

    def drive(run, chunks, checkpoints, **settings):
        checkpoints.seconds = 0.0
        before[1](run, chunks, checkpoints, **settings)

    driver._SECONDS_PER_CHUNK = 1e-9
    sampling.drive = fitting.drive = drive
    try:
        yield
    finally:
        driver._SECONDS_PER_CHUNK = before[0]
        sampling.drive = fitting.drive = before[1]


def arrays_of(tree) -> dict[str, np.ndarray]:
    """Every array of draws by group and name; a store has no group of the adaptation."""
    return {f"{g}/{n}": np.asarray(v) for g in tree.children if g != "adaptation" for n, v in tree[g].data_vars.items()}


def langevin(x):
    """A matrix Langevin density on orthonormal 5 x 2 matrices."""
    return jnp.sum(jnp.arange(10.0).reshape(5, 2).astype(x.dtype) * x)


def mean_posterior() -> gx.Posterior:
    """The mean of a normal law of standard deviation 2."""
    return gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.125 * jnp.sum((b - t[None]) ** 2, axis=-1),
        num_data=len(_DATA),
    )


def _start(key):
    return gx.Stiefel().random_point(key, jnp.zeros((5, 2)))


def _sample(folder: Path, algorithm, position, **settings) -> dict[str, np.ndarray]:
    settings = {"num_samples": NUM_SAMPLES, "num_warmup": NUM_WARMUP, "num_chains": 2, "progress": False} | settings
    tree = gx.sample(
        jax.random.key(7),
        algorithm,
        position,
        checkpoint=folder,
        devices=jax.devices()[:1],
        **settings,
    )
    return arrays_of(tree)


def hmc(folder: Path) -> dict[str, np.ndarray]:
    """HMC on orthonormal matrices, by the geodesic flow."""
    manifold = gx.Stiefel(metric="embedded", flow="geodesic")
    return _sample(folder, gx.hmc(langevin, manifold=manifold, num_integration_steps=3), _start)


def nuts(folder: Path) -> dict[str, np.ndarray]:
    """NUTS on orthonormal matrices, by the Cayley flow."""
    return _sample(folder, gx.nuts(langevin, manifold=gx.Stiefel()), _start)


def sgrld(folder: Path) -> dict[str, np.ndarray]:
    """Langevin dynamics in a metric that is learnt, with minibatches."""
    algorithm = gx.sgrld(mean_posterior(), metric=gx.metrics.RMSProp(), step_size=1e-3)
    return _sample(
        folder, algorithm, jnp.zeros(3, jnp.float32), batches=gx.data.batches(_DATA, batch_size=10, order="epochs")
    )


def sghmc(folder: Path) -> dict[str, np.ndarray]:
    """Stochastic-gradient HMC on unit vectors, with minibatches; its step size is found in warm-up."""
    algorithm = gx.sghmc(mean_posterior(), manifold=gx.Sphere(), friction=0.2)
    start = jnp.asarray([1.0, 0.0, 0.0], jnp.float32)
    return _sample(folder, algorithm, start, batches=gx.data.batches(_DATA, batch_size=10))


def fit(folder: Path) -> dict[str, np.ndarray]:
    """A variational fit with minibatches and validation data."""

    def log_likelihood(weights, batch):
        return -0.5 * (batch[:, 2] - batch[:, :2] @ weights) ** 2

    found = vi.fit(
        jax.random.key(7),
        vi.GaussianOver(jnp.zeros(2, jnp.float32), "full"),
        log_likelihood,
        _DATA[:40],
        num_steps=NUM_STEPS,
        batch_size=8,
        window=6,
        kl_warmup=10,
        validation=_DATA[40:],
        checkpoint=folder,
        checkpoint_seconds=0.0,
        progress=False,
    )
    leaves = {f"network/{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(found.network))}
    return leaves | {f"history/{n}": v for n, v in found.history._asdict().items()}


def command_line(folder: Path) -> dict[str, np.ndarray]:
    """A run folder of ``geodax fit pca``, begun if it is not there yet, resumed if it is."""
    table = folder.with_suffix(".csv")
    if not table.exists():
        table.write_text("\n".join(["a,b,c", *(",".join(f"{v:.4f}" for v in row) for row in _DATA)]))
    if (folder / "config.json").exists():
        words = ["resume", str(folder)]
    else:
        words = ["fit", "pca", str(table), "--n-components", "1", "--num-warmup", str(NUM_WARMUP)]
        words += ["--num-samples", str(NUM_SAMPLES), "--num-chains", "2", "--out", str(folder), "--seed", "3"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([*words, "--no-progress"])
    if code != 0:
        raise RuntimeError(f"geodax {' '.join(words)} ended with {code}: {said.getvalue()}")
    return arrays_of(open_draws(folder / "posterior.zarr"))


KINDS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    "hmc": hmc,
    "nuts": nuts,
    "sgrld": sgrld,
    "sghmc": sghmc,
    "fit": fit,
    "command_line": command_line,
}


def steps_folder(kind: str, folder: Path) -> Path:
    """Where a run of a kind keeps its checkpoints."""
    return folder / "checkpoint" / "steps" if kind == "command_line" else folder / "steps"


def draws_folder(kind: str, folder: Path) -> Path | None:
    """Where a run of a kind keeps its draws; None for one that has none."""
    if kind == "fit":
        return None
    return folder / ("posterior.zarr" if kind == "command_line" else "draws.zarr")


def checkpoint_steps(kind: str, folder: Path) -> list[int]:
    """The iterations of the checkpoints on disk, read off their names alone."""
    steps = steps_folder(kind, folder)
    return sorted(int(p.name) for p in steps.iterdir() if p.name.isdigit()) if steps.is_dir() else []
