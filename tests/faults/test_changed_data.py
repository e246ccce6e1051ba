"""Data that change while a run is stopped: the run does not go on with them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import vi
from geodax.app import main
from geodax.app.run_folder.actions import resume_run
from geodax.run.errors import CheckpointError, StorageError
from tests.faults.kills import same
from tests.faults.runs import arrays_of

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def numbers():
    return np.random.default_rng(5).normal(1.5, 2.0, size=(200, 2)).astype(np.float32)


def sghmc(folder, data, make_batches, num_samples=5):
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.125 * jnp.sum((b - t[None]) ** 2, axis=-1),
        num_data=len(data),
    )
    return gx.sample(
        jax.random.key(0),
        gx.sghmc(posterior, step_size=0.01),
        jnp.zeros(2, jnp.float32),
        batches=make_batches(data),
        num_samples=num_samples,
        num_chains=1,
        checkpoint=folder,
        progress=False,
    )


def exact(folder, data, num_samples=5):
    x = jnp.asarray(data, jnp.float64)
    return gx.sample(
        jax.random.key(0),
        gx.hmc(lambda t: -0.125 * jnp.sum((x - t[None]) ** 2), step_size=0.01, num_integration_steps=2),
        jnp.zeros(2),
        num_samples=num_samples,
        num_chains=1,
        checkpoint=folder,
        progress=False,
    )


def variational(folder, data, num_samples=5):
    return vi.fit(
        jax.random.key(0),
        vi.GaussianOver(jnp.zeros(2, jnp.float32)),
        lambda t, b: -0.5 * jnp.sum((b - t[None]) ** 2, axis=-1),
        data,
        num_steps=num_samples,
        checkpoint=folder,
        progress=False,
    )


def streamed(data):
    def start(first):
        while True:
            yield data[(10 * first) % len(data) :][:10]
            first += 1

    return gx.data.stream(start)


RUNS = {
    "batches": (lambda f, d, **s: sghmc(f, d, lambda d: gx.data.batches(d, batch_size=20), **s), "its data is"),
    "stream": (lambda f, d, **s: sghmc(f, d, streamed, **s), "its data is"),
    "exact": (exact, "its log density at the starting points is"),
    "fit": (variational, "its data and start is"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", sorted(RUNS))
def test_a_run_does_not_go_on_with_other_data(tmp_path, kind):
    """Catches a posterior half of which is of one table and half of another; a tenth of one number is enough."""
    run, message = RUNS[kind]
    data = numbers()
    run(tmp_path, data)
    changed = data.copy()
    changed[3, 1] *= 1.1
    with pytest.raises(CheckpointError, match=f"belongs to another (run|fit): {message}.*Use another folder"):
        run(tmp_path, changed)
    run(tmp_path, data)


@pytest.mark.slow
def test_a_run_folder(tmp_path, capsys):
    """The table may change or go, for the folder has the data; what the folder has may not."""
    table, folder = tmp_path / "table.csv", tmp_path / "run"
    lines = ["a,b,c", *(f"{x:.3f},{y:.3f},{x - y + 0.1 * i % 3:.3f}" for i, (x, y) in enumerate(numbers()[:40]))]
    table.write_text("\n".join(lines))
    words = ["--n-components", "1", "--num-warmup", "20", "--num-samples", "20", "--num-chains", "2", "--no-progress"]
    assert main(["fit", "pca", str(table), "--out", str(folder), *words]) == 0
    before = (folder / "data.npz").read_bytes()
    table.write_text("\n".join([*lines, "100,100,100"]))
    other = tmp_path / "other"
    assert main(["fit", "pca", str(table), "--out", str(other), *words]) == 0
    capsys.readouterr()
    result = resume_run(folder, num_samples=24, progress=False)
    assert any(
        "has changed since the run started. The run continues with its original data" in note for note in result.notes
    )
    assert "has changed since the run started" in (folder / "log").read_text()
    (folder / "data.npz").write_bytes((other / "data.npz").read_bytes())
    for words in (["resume", str(folder)], ["report", str(folder)], ["predict", str(folder), str(table)]):
        assert main(words) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert "data.npz was changed or damaged after the run started" in said
        assert "Restore the file, or fit again" in said
    with pytest.raises(StorageError, match=str(folder)):
        resume_run(folder, progress=False)
    (folder / "data.npz").write_bytes(before)
    assert resume_run(folder, progress=False).summary.num_draws == 24


@pytest.mark.thorough
def test_the_yardstick(tmp_path):
    """Without a change the same run is found again."""
    assert same(arrays_of(exact(tmp_path, numbers())), arrays_of(exact(tmp_path, numbers())))
