"""Runs that are stopped in every way there is, and go on in a new process as if nothing had happened."""

import errno
import functools
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.run import draws as draws_module
from geodax.run import driver, identity
from geodax.run import sample as loop
from geodax.run.checkpoint import Checkpointer
from geodax.run.draws import ZarrDraws, open_draws
from geodax.run.errors import CheckpointError, StorageError
from tests.marks import slow

# Orbax reads the arrays side by side; when one cannot be read, the others end in a closed event loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = Path(__file__).resolve().parents[2]
NUM_WARMUP, NUM_SAMPLES = 25, 35

# Every iteration is a chunk with a checkpoint after it, so that a kill finds the run at work on its files.
SCRIPT = textwrap.dedent(
    """
    import json, sys, time
    import jax, jax.numpy as jnp, numpy as np
    import geodax as gx
    from geodax.run import sample as loop, driver
    from geodax.run.errors import SamplingInterrupted

    settings = json.loads(sys.argv[1])
    jax.config.update("jax_enable_x64", True)
    driver._SECONDS_PER_CHUNK = 1e-9
    loop._LONGEST_BUFFER = 7
    sphere = gx.Sphere()
    weights = jnp.linspace(-1.0, 2.0, 12).reshape(4, 3)


    def density(position):
        return jnp.sum((weights @ position["w"]) ** 3) - 0.5 * jnp.sum((position["s"] / 3.0) ** 2)


    def start(key):
        key_w, key_s = jax.random.split(key)
        return {"w": sphere.random_point(key_w, jnp.zeros(3)), "s": jax.random.normal(key_s, (3,))}


    def report(progress):
        print(progress.iteration, flush=True)
        time.sleep(settings["pause"])


    try:
        tree = gx.sample(
            jax.random.key(settings["seed"]),
            gx.hmc(density, manifold=gx.Product({"w": sphere}), num_integration_steps=3),
            start,
            num_warmup=settings["num_warmup"],
            num_samples=settings["num_samples"],
            num_chains=settings["num_chains"],
            checkpoint=settings["folder"],
            checkpoint_seconds=settings["checkpoint_seconds"],
            devices=jax.devices()[: settings["num_devices"]],
            progress=report,
        )
        ending = "finished"
    except SamplingInterrupted as stop:
        tree, ending = stop.draws, f"stopped by {stop.signal}: {stop}"
    if tree is not None:
        arrays = {f"{g}/{n}": np.asarray(v) for g in tree.children if g != "adaptation" for n, v in tree[g].data_vars.items()}
        np.savez(settings["result"], **arrays)
    print(ending, flush=True)
    """
)


class Run:
    """One set of settings, started as often as it takes, each time in a new process."""

    def __init__(self, folder: Path, **settings):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.result = folder / "run", folder / "result.npz"
        self.script = folder / "script.py"
        self.script.write_text(SCRIPT)
        self.settings = {
            "seed": 5,
            "num_warmup": NUM_WARMUP,
            "num_samples": NUM_SAMPLES,
            "num_chains": 2,
            "num_devices": 1,
            "pause": 0.0,
            "checkpoint_seconds": 0.0,
            "folder": str(self.folder),
            "result": str(self.result),
        } | settings

    def start(self, **settings) -> subprocess.Popen:
        self.result.unlink(missing_ok=True)
        return subprocess.Popen(
            [sys.executable, str(self.script), json.dumps(self.settings | settings)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"},
        )

    def finish(self, **settings) -> dict[str, np.ndarray]:
        process = self.start(checkpoint_seconds=60.0, **settings)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.splitlines()[-1] == "finished"
        return self.arrays()

    def stop(self, number: int, after_iteration: int = 0, delay: float = 0.0, **settings) -> tuple[int, str, str]:
        """Start, wait until an iteration is reported and a little longer, send the signal."""
        process = self.start(**settings)
        last = None
        for line in process.stdout:
            last = line
            if not line.strip().isdigit() or int(line) >= after_iteration:
                break
        assert last is not None, process.stderr.read()
        time.sleep(delay)
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.result) as found:
            return dict(found)

    def checkpointed(self) -> int:
        """Draws before the newest checkpoint."""
        if not (self.folder / "steps").is_dir():
            return 0
        checkpointer = Checkpointer(self.folder / "steps")
        steps = checkpointer.steps()
        checkpointer.close()
        return max(max(steps, default=0) - NUM_WARMUP, 0)


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], num_draws: int | None = None):
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name][:, :num_draws], values[:, :num_draws], err_msg=name)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory):
    """The draws of a run that nobody has stopped."""
    return Run(tmp_path_factory.mktemp("uninterrupted")).finish()


def kill_again_and_again(run: Run, uninterrupted, first_iterations, longest_delay: float, seed: int) -> list[int]:
    """Kill a run at random moments, checking after each that nothing before the checkpoint is lost.

    Args:
        run: The run.
        uninterrupted: The draws it should have.
        first_iterations: For each kill, the iteration before which it does not come.
        longest_delay: The kill comes within so many seconds after that.
        seed: Of the moments.

    Returns:
        Draws before the newest checkpoint, after each kill.
    """
    generator = random.Random(seed)
    reached = []
    for first in first_iterations:
        delay = generator.uniform(0.0, longest_delay)
        code, _, err = run.stop(signal.SIGKILL, first, delay, pause=0.01)
        if code == 0:
            break
        assert code == -signal.SIGKILL, err
        num_draws = run.checkpointed()
        reached.append(num_draws)
        if num_draws:
            tree = open_draws(run.folder / "draws.zarr", num_draws)
            arrays = {
                f"{g}/{n}": np.asarray(v)
                for g in tree.children
                if g != "adaptation"
                for n, v in tree[g].data_vars.items()
            }
            assert_same(arrays, uninterrupted, num_draws)
    assert reached == sorted(reached)
    return reached


class TestKilled:
    @pytest.mark.thorough
    @pytest.mark.parametrize("worker", [slow(0), 1])
    def test_the_draws_are_those_of_an_uninterrupted_run(self, tmp_path, uninterrupted, worker):
        """Catches half-written checkpoints and chunks, draws written twice, and state that is not kept."""
        run = Run(tmp_path)
        # one is sure to come in warm-up, the other in sampling
        moments = [NUM_WARMUP // 2, 0, 0, 0] if worker == 0 else [0, NUM_WARMUP + NUM_SAMPLES // 3]
        reached = kill_again_and_again(run, uninterrupted, moments, longest_delay=0.5, seed=worker)
        assert len(reached) >= len(moments) - 1
        assert reached[0] < NUM_SAMPLES // 2 if worker == 0 else 0 < reached[-1] < NUM_SAMPLES
        assert_same(run.finish(), uninterrupted)

    @pytest.mark.slow
    @pytest.mark.parametrize("worker", range(4))
    def test_many_kills(self, tmp_path, uninterrupted, worker):
        """Catches what happens in a window of a few milliseconds."""
        count = 0
        for attempt in itertools.count():
            run = Run(tmp_path / str(attempt))
            reached = kill_again_and_again(run, uninterrupted, [0] * (15 - count), 0.8, seed=100 * worker + attempt)
            count += len(reached)
            assert_same(run.finish(), uninterrupted)
            if count == 15:
                break


class TestSignals:
    @pytest.mark.thorough
    @pytest.mark.parametrize("number", [slow(signal.SIGINT), signal.SIGTERM])
    def test_partial_draws_a_checkpoint_and_the_same_end(self, tmp_path, uninterrupted, number):
        """Catches a run that dies of the signal, or stops without a checkpoint."""
        run = Run(tmp_path)
        code, out, err = run.stop(number, NUM_WARMUP + 12, pause=0.01)
        assert code == 0, err
        assert f"stopped by {int(number)}: Stopped by a signal after iteration" in out
        assert f"the checkpoint in {run.folder / 'steps'} to resume from" in out
        partial = run.arrays()
        num_draws = partial["posterior/s"].shape[1]
        assert 12 <= num_draws < NUM_SAMPLES
        assert f"there are {num_draws} draws for each chain" in out
        assert run.checkpointed() == num_draws
        assert_same(partial, {k: v[:, :num_draws] for k, v in uninterrupted.items()})
        assert_same(run.finish(), uninterrupted)

    @pytest.mark.slow
    def test_in_warmup_there_are_no_draws_yet(self, tmp_path, uninterrupted):
        run = Run(tmp_path)
        code, out, err = run.stop(signal.SIGTERM, 10, pause=0.01)
        assert code == 0, err
        assert "there are 0 draws for each chain" in out
        assert not run.result.exists()
        assert_same(run.finish(), uninterrupted)

    def test_the_handlers_of_the_caller_come_back(self, key):
        """Catches a program that can no longer be interrupted after a run."""
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        sample(key, None, num_samples=5)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.slow
def test_onto_another_number_of_devices(tmp_path, uninterrupted):
    """Catches a checkpoint that is tied to the devices it was written from.

    What was drawn before is untouched; what follows uses the same random numbers in a program that rounds
    in another way.
    """
    run = Run(tmp_path)
    run.stop(signal.SIGTERM, NUM_WARMUP + 12, pause=0.01)
    num_draws = run.checkpointed()
    assert num_draws >= 12
    moved = run.finish(num_devices=2)
    assert_same(moved, uninterrupted, num_draws)
    assert moved["posterior/w"].shape == uninterrupted["posterior/w"].shape
    following = slice(num_draws, num_draws + 2)
    for name in ("posterior/w", "posterior/s", "sample_stats/lp"):
        np.testing.assert_allclose(moved[name][:, following], uninterrupted[name][:, following], rtol=1e-8, atol=1e-8)


# ------------------------------------------------------------------------------ within one process


def gaussian(x):
    return -0.5 * jnp.sum(x**2)


def sample(key, folder, density=gaussian, **settings):
    """A short run that writes a checkpoint after every iteration."""
    algorithm = gx.hmc(density, step_size=settings.pop("step_size", 0.3), num_integration_steps=2)
    settings = {"num_samples": 20, "num_chains": 2, "checkpoint_seconds": 0.0, "progress": False} | settings
    position = settings.pop("position", jnp.ones(3))
    return gx.sample(jax.random.clone(key), algorithm, position, checkpoint=folder, **settings)


def position(tree):
    return tree["posterior"]["position"].values


class TestAnotherRun:
    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"num_chains": 4}, r"its num_chains is 2, here it is 4"),
            ({"thinning": 2}, r"its thinning is 1, here it is 2"),
            ({"num_warmup": 3}, r"its num_warmup is 0, here it is 3"),
            ({"step_size": 0.2}, r"its step size at the start is \[0\.3, 0\.3\], here it is \[0\.2, 0\.2\]"),
            ({"density": lambda x: -2.0 * jnp.sum(x**2)}, r"its log density at the starting points is"),
            ({"position": jnp.zeros(3)}, r"its log density at the starting points is"),
            (
                {"keep": jnp.sum},
                r"its posterior\.position \(recorded\) is '\(3,\) float\d\d', here it is '\(\) float\d\d'",
            ),
            ({"keep": lambda x: 2.0 * x}, r"its recorded variable 'position' \(see keep\) near the starting points is"),
            ({"num_samples": 10}, r"at iteration 20, beyond the 10 asked for here; ask for at least as many"),
        ],
    )
    def test_is_refused_and_leaves_the_draws_alone(self, key, tmp_path, change, message):
        """Catches draws of two models in one folder, and a refusal that comes after the draws were cut."""
        expected = position(sample(key, tmp_path))
        with pytest.raises(CheckpointError, match=message) as found:
            sample(key, tmp_path, **change)
        assert str(tmp_path) in str(found.value)
        np.testing.assert_array_equal(position(open_draws(tmp_path / "draws.zarr")), expected)
        np.testing.assert_array_equal(position(sample(key, tmp_path)), expected)

    @pytest.mark.thorough
    @pytest.mark.parametrize("num_samples", [20, 30])
    @pytest.mark.parametrize("batches", [False, True])
    def test_another_function_of_the_position(self, tmp_path, num_samples, batches):
        """Catches two quantities in one variable, also where they are equal at the start, and in a finished run."""
        run = functools.partial(stochastic if batches else exact, tmp_path, keep=lambda x: {"a": x, "b": x**2})
        expected = run(num_samples=20)["posterior"]
        with pytest.raises(
            CheckpointError, match=r"its recorded variable 'b' \(see keep\) near the starting points is"
        ):
            run(num_samples=num_samples, keep=lambda x: {"a": x, "b": x})
        again = run(num_samples=num_samples)["posterior"]
        for name in ("a", "b"):
            np.testing.assert_array_equal(again[name].values[:, :20], expected[name].values)
        np.testing.assert_array_equal(again["b"].values, again["a"].values ** 2)

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "keep",
        [
            lambda x: {
                "count": jnp.sum(x > 0),
                "is": x > 0,
                "none": x[:0],
                "undefined": jnp.log(-x),
                "complex": jax.lax.complex(x, -x),
            },
            lambda x: jnp.sum(x).astype(jnp.bfloat16),
        ],
    )
    def test_values_of_all_kinds_go_on(self, tmp_path, keep):
        """Catches a comparison that other types than real numbers, or NaN, fail."""
        exact(tmp_path, keep=keep)
        assert exact(tmp_path, keep=keep, num_samples=9)["posterior"].sizes["draw"] == 9

    def test_another_seed(self, key, tmp_path):
        expected = position(sample(key, tmp_path))
        with pytest.raises(CheckpointError, match=r"its random key is '[0-9a-f]+', here it is"):
            sample(jax.random.fold_in(key, 1), tmp_path)
        np.testing.assert_array_equal(position(open_draws(tmp_path / "draws.zarr")), expected)

    def test_another_shape(self, key, tmp_path):
        sample(key, tmp_path)
        with pytest.raises(CheckpointError, match=r"belongs to another run: its posterior\.position \(recorded\) is"):
            sample(key, tmp_path, position=jnp.ones(4))

    def test_the_draws_must_be_there(self, key, tmp_path):
        """Catches NaN for the draws before the checkpoint when they lie in another store."""
        sample(key, tmp_path, store=tmp_path / "one")
        with pytest.raises(CheckpointError, match=r"goes on after 20 draws, but .*two does not hold them"):
            sample(key, tmp_path, store=tmp_path / "two", num_samples=30)

    @pytest.mark.parametrize("checkpoint", [None, "new"])
    def test_draws_of_another_run_are_kept(self, key, tmp_path, checkpoint):
        """Catches a store that is overwritten without a word."""
        expected = position(sample(key, None, store=tmp_path / "draws", num_samples=20))
        folder = checkpoint and tmp_path / checkpoint
        with pytest.raises(StorageError, match=r"draws already holds 20 draws of each chain\. Use another folder or"):
            sample(jax.random.fold_in(key, 1), folder, store=tmp_path / "draws", num_samples=5)
        np.testing.assert_array_equal(position(open_draws(tmp_path / "draws")), expected)

    @pytest.mark.parametrize("folder", ["run", None])
    def test_draws_before_the_first_checkpoint_are_drawn_again(self, key, tmp_path, folder):
        """Catches a run that cannot be started again, and draws of both attempts in one store.

        Without a checkpoint the store must be free.
        """

        class EnoughError(BaseException):
            pass

        def stop(progress):
            if progress.iteration == 1:
                raise EnoughError

        where = {"store": tmp_path / "draws", "num_samples": 20}
        with pytest.raises(EnoughError):
            sample(key, folder and tmp_path / folder, **where, progress=stop)
        assert position(open_draws(tmp_path / "draws")).shape[1] == 1
        if folder is None:
            with pytest.raises(StorageError, match="already holds 1 draws"):
                sample(key, None, **where)
        else:
            expected = position(sample(key, None, num_samples=20))
            np.testing.assert_array_equal(position(sample(key, tmp_path / folder, **where)), expected)


EXAMPLES = np.random.default_rng(2).normal(1.0, 2.0, size=(40, 2))


def stochastic(folder, sampler=gx.sghmc, *, width=10.0, factor=1.0, **settings):
    """A short run with batches that starts in the middle of its prior."""
    posterior = gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2) / width**2,
        log_likelihood=lambda t, b: -0.125 * jnp.sum((b - factor * t[None]) ** 2, axis=-1),
        num_data=len(EXAMPLES),
    )
    names = {"num_samples", "position", "devices", "keep"} & settings.keys()
    of_run = {"num_samples": 8, "position": jnp.zeros(2)} | {name: settings.pop(name) for name in names}
    return gx.sample(
        jax.random.key(8),
        sampler(posterior, **{"step_size": 0.03} | settings),
        batches=gx.data.batches(EXAMPLES, batch_size=10, order="epochs"),
        num_warmup=6,
        num_chains=2,
        checkpoint=folder,
        progress=False,
        **of_run,
    )


def exact(folder, sampler=gx.hmc, num_samples=5, keep=None, **settings):
    options = {"num_integration_steps": 2} if sampler is gx.hmc else {}
    return gx.sample(
        jax.random.key(8),
        sampler(gaussian, **options | settings),
        jnp.ones(3),
        keep=keep,
        num_samples=num_samples,
        num_warmup=6,
        num_chains=2,
        checkpoint=folder,
        progress=False,
    )


def decaying(**settings):
    return gx.sgmcmc.schedules.polynomial(0.03, **settings)


def without_new_facts(*args, **kwargs):
    """The identity as it was before densities, settings and recorded values were part of it."""
    new = ("densities", "settings", "recorded variables")
    found = identity.identity_of(*args, **kwargs)
    return {name: value for name, value in found.items() if name not in new}


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.hmc, slow(gx.nuts), slow(gx.mclmc)])
def test_another_target_with_the_same_value_at_the_start(sampler, tmp_path):
    """Catches another width of a prior, which a start at its middle does not show."""

    def run(width, **settings):
        options = {"num_integration_steps": 3} if sampler is gx.hmc else {}
        density = lambda x: -0.5 * jnp.sum((x / width) ** 2)  # noqa: E731
        settings = {"num_samples": 5, "num_warmup": 6, "progress": False, "checkpoint": tmp_path} | settings
        return gx.sample(jax.random.key(1), sampler(density, **options), jnp.zeros(3), **settings)

    first = position(run(1.0))
    with pytest.raises(CheckpointError, match="its log density near the starting points is"):
        run(2.0)
    np.testing.assert_array_equal(position(run(1.0)), first)
    assert position(run(1.0, num_samples=8)).shape[1] == 8


class OwnState(NamedTuple):
    position: Any
    key: Any


class OwnWalk(NamedTuple):
    """A sampler that says nothing of itself: no description, no log density in its states."""

    scale: Any
    centre: float = 0.0
    num_batches: int = 0

    def init(self, position):
        return OwnState(position, jax.random.key(7))

    def step(self, key, state, batch=0.0):
        key_move, key_accept = jax.random.split(key)
        proposal = state.position + self.scale * jax.random.normal(key_move, state.position.shape)
        before, after = (jnp.sum((x - self.centre - jnp.mean(batch)) ** 2) for x in (state.position, proposal))
        rate = jnp.minimum(1.0, jnp.exp(0.5 * (before - after)))
        position = jnp.where(jax.random.uniform(key_accept) < rate, proposal, state.position)
        return state._replace(position=position), {"rate": rate, "is_accepted": rate > 0.5, "worst": jnp.inf}


@pytest.mark.parametrize("changed", [OwnWalk(0.5), OwnWalk(1.0, 2.0), OwnWalk(jnp.full(2, 2.0))])
@pytest.mark.parametrize("num_batches", [0, 1])
def test_own_samplers_are_compared_by_their_first_step(changed, num_batches, tmp_path):
    """Catches a run whose draws are of two targets, or of a sampler with two step sizes."""
    options = {"num_chains": 2, "progress": False, "checkpoint": tmp_path / "checkpoint"}
    if num_batches:
        options["batches"] = gx.data.batches(jnp.arange(10.0), batch_size=2)

    def run(walk, num_samples):
        walk = walk._replace(num_batches=num_batches)
        return gx.sample(jax.random.key(0), walk, jnp.zeros(2), num_samples=num_samples, **options)

    run(OwnWalk(1.0), 10)
    assert run(OwnWalk(1.0), 20).posterior.sizes["draw"] == 20
    with pytest.raises(CheckpointError, match="another run: its position or info after the first step"):
        run(changed, 30)


class TestAnotherSampler:
    """Catches the draws of one sampler or target handed over, or gone on with, as those of another."""

    @pytest.fixture(scope="class")
    @classmethod
    def folders(cls, tmp_path_factory):
        """Finished runs, which refusals leave as they are."""
        folder = tmp_path_factory.mktemp("samplers")
        runs = {
            "sghmc": stochastic,
            "schedule": lambda f, **s: stochastic(f, **{"step_size": decaying()} | s),
            "metric": lambda f, **s: stochastic(
                f, gx.sgrld, **{"metric": gx.metrics.Frozen(gx.metrics.RMSProp(), after=4), "step_size": 1e-3} | s
            ),
            "found": lambda f, **s: stochastic(f, **{"step_size": None} | s),
            "hmc": lambda f, **s: exact(f, **{"sampler": gx.hmc, "num_integration_steps": 2} | s),
            "nuts": lambda f, **s: exact(f, **{"sampler": gx.nuts} | s),
        }
        draws = {name: position(run(folder / name)) for name, run in runs.items()}
        return folder, runs, draws

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        ("kind", "change", "message"),
        [
            ("sghmc", {"step_size": 0.003}, r"its step_size is 0\.03, here it is 0\.003"),
            ("sghmc", {"step_size": None}, r"its step_size is 0\.03, here it is None"),
            (
                "sghmc",
                {"step_size": decaying()},
                r"its step_size at the iterations 0, 1, 10, .* is 0\.03, here it is \[",
            ),
            ("sghmc", {"temperature": 0.01}, r"its temperature is 1\.0, here it is 0\.01"),
            ("sghmc", {"friction": 0.5}, r"its friction is 0\.1, here it is 0\.5"),
            ("sghmc", {"ordering": "baoab"}, r"its ordering is 'paper', here it is 'baoab'"),
            ("sghmc", {"num_inner_steps": 2}, r"its num_inner_steps is 1, here it is 2"),
            ("sghmc", {"resample_momentum": True}, r"its resample_momentum is False, here it is True"),
            ("sghmc", {"renormalize_every": 5}, r"its renormalize_every is 10, here it is 5"),
            ("sghmc", {"gradient_noise": 0.5}, r"its gradient_noise is 0\.0, here it is 0\.5"),
            ("sghmc", {"perturb_gradient": lambda key, g: g}, r"its perturb_gradient is False, here it is True"),
            ("sghmc", {"metric": gx.metrics.RMSProp()}, r"its metric is None, here it is .RMSProp\(decay=0\.99, "),
            ("sghmc", {"width": 1.0}, r"its log prior near the starting points is \[-[0-9.e-]+, "),
            ("sghmc", {"factor": 1.01}, r"its log density near the starting points is \["),
            ("sghmc", {"position": jnp.ones(2)}, r"its log prior at the starting points is \[[-0., ]+\], here it is"),
            ("sghmc", {"sampler": gx.sgrld}, r"its sampler is 'sghmc', here it is 'sgrld'"),
            (
                "schedule",
                {"step_size": decaying(offset=999.0)},
                r"its step_size at the iterations 0, 1, .* is \[0\.03, ",
            ),
            (
                "metric",
                {"metric": gx.metrics.Frozen(gx.metrics.RMSProp(decay=0.9), after=4)},
                r"its metric is .Frozen\(",
            ),
            ("metric", {"metric": gx.metrics.Frozen(gx.metrics.RMSProp(), after=5)}, r"here it is .*, after=5\)"),
            ("metric", {"clip_norm": 1.0}, r"its clip_norm is None, here it is 1\.0"),
            ("metric", {"metric_warmup": 2}, r"its metric_warmup is 0, here it is 2"),
            ("found", {"friction": 0.2}, r"its friction is 0\.1, here it is 0\.2"),
            ("hmc", {"num_integration_steps": 3}, r"its num_integration_steps is 2, here it is 3"),
            ("hmc", {"target_acceptance_rate": 0.9}, r"its target_acceptance_rate is 0\.8, here it is 0\.9"),
            ("hmc", {"length_jitter": 0.5}, r"its length_jitter is 0\.0, here it is 0\.5"),
            ("nuts", {"max_num_doublings": 3}, r"its max_num_doublings is 10, here it is 3"),
            ("nuts", {"sampler": gx.hmc, "num_integration_steps": 2}, r"its sampler is 'nuts', here it is 'hmc'"),
            (
                "nuts",
                {"manifold": gx.Product(None)},
                r"its manifold is 'Euclidean\(\)', here it is 'Product\(tree=None\)'",
            ),
        ],
    )
    def test_is_refused(self, folders, kind, change, message):
        folder, runs, draws = folders
        more = {} if kind == "sghmc" else {"num_samples": 12}
        with pytest.raises(CheckpointError, match=f"belongs to another run: .*{message}"):
            runs[kind](folder / kind, **change, **more)
        np.testing.assert_array_equal(position(open_draws(folder / kind / "draws.zarr")), draws[kind])

    @pytest.mark.thorough
    @pytest.mark.parametrize(
        "kind",
        [
            "metric",
            "nuts",
            slow("sghmc"),
            slow("schedule"),
            slow("found"),
            slow("hmc"),
        ],
    )
    def test_the_same_goes_on(self, folders, tmp_path, kind):
        folder, runs, draws = folders
        np.testing.assert_array_equal(position(runs[kind](folder / kind)), draws[kind])
        shutil.copytree(folder / kind, tmp_path / "run")
        longer = position(runs[kind](tmp_path / "run", num_samples=12))
        np.testing.assert_array_equal(longer, position(runs[kind](None, num_samples=12)))

    @pytest.mark.thorough
    def test_geometries_are_told_apart(self, tmp_path):
        """Frames of the same shape under another law of momenta, and a sphere in place of free numbers."""

        def run(**settings):
            start = {"w": jnp.eye(3, 2)}
            return gx.sample(
                jax.random.key(8),
                gx.sghmc(lambda p: jnp.sum(p["w"]), step_size=0.1, **settings),
                start,
                num_samples=3,
                num_chains=1,
                checkpoint=tmp_path,
                progress=False,
            )

        run(manifold=gx.Product({"w": gx.Stiefel()}))
        for other, message in (
            (gx.Product({"w": gx.Stiefel(metric="embedded")}), r"here it is .*'embedded'"),
            (gx.Product({}), r"its manifold is"),
            (gx.Product({"w": gx.Stiefel(flow="geodesic")}), r"its manifold is"),
        ):
            with pytest.raises(CheckpointError, match=message):
                run(manifold=other)
        run(manifold=gx.Product({"w": gx.Stiefel()}))

    @pytest.mark.thorough
    def test_on_another_number_of_devices_it_is_the_same(self, folders, tmp_path):
        folder, runs, draws = folders
        shutil.copytree(folder / "found", tmp_path / "run")
        for devices in (1, 2):
            again = position(runs["found"](tmp_path / "run", num_samples=10 + devices, devices=devices))
            np.testing.assert_array_equal(again[:, :8], draws["found"])

    @pytest.mark.thorough
    @pytest.mark.parametrize("kind", ["sghmc", "hmc"])
    def test_a_folder_of_an_earlier_version_is_gone_on_with(self, folders, tmp_path, monkeypatch, kind):
        """Catches a run of weeks that is lost with a new version."""
        _, runs, draws = folders
        with monkeypatch.context() as patch:
            patch.setattr(loop, "identity_of", without_new_facts)
            runs[kind](tmp_path)
        np.testing.assert_array_equal(position(runs[kind](tmp_path)), draws[kind])


class TestDamagedCheckpoints:
    @pytest.fixture
    @classmethod
    def expected(cls, key):
        return position(sample(key, None, num_samples=30))

    @staticmethod
    def damage(folder, step, how):
        files = sorted(p for p in (folder / "steps" / str(step)).rglob("*") if p.is_file() and p.stat().st_size)
        assert files
        for path in files:
            contents = path.read_bytes()
            if how == "truncated":
                path.write_bytes(contents[: len(contents) // 2])
            else:
                middle = len(contents) // 2
                path.write_bytes(contents[:middle] + bytes([contents[middle] ^ 16]) + contents[middle + 1 :])

    @pytest.mark.thorough
    @pytest.mark.parametrize("how", ["truncated", "flipped"])
    @pytest.mark.parametrize("num_samples", [slow(20), 30])
    def test_the_one_before_is_used(self, key, tmp_path, expected, how, num_samples):
        """Catches a run that cannot go on, or goes on wrongly, or cannot write its last checkpoint again."""
        sample(key, tmp_path)
        self.damage(tmp_path, 20, how)
        reports = []
        tree = sample(key, tmp_path, num_samples=num_samples, progress=reports.append)
        assert 1 <= reports[0].iteration <= 20
        np.testing.assert_array_equal(position(tree), expected[:, :num_samples])
        again = sample(key, tmp_path, num_samples=num_samples)
        np.testing.assert_array_equal(position(again), expected[:, :num_samples])

    def test_none_is_whole(self, key, tmp_path):
        """Catches a run that starts over silently and writes over its draws."""
        before = position(sample(key, tmp_path))
        steps = [int(p.name) for p in (tmp_path / "steps").iterdir()]
        assert len(steps) == 2
        for step in steps:
            self.damage(tmp_path, step, "truncated")
        with pytest.raises(CheckpointError, match=r"No checkpoint in .*steps can be read") as found:
            sample(key, tmp_path)
        assert str(tmp_path / "steps") in str(found.value)
        np.testing.assert_array_equal(position(open_draws(tmp_path / "draws.zarr")), before)


class TestDamagedDraws:
    @pytest.mark.parametrize("num_samples", [20, 30])
    def test_a_flipped_bit_is_found(self, key, tmp_path, num_samples):
        """Catches wrong draws handed over, or mixed with new ones, without a word."""
        sample(key, tmp_path)
        (path,) = [
            p
            for p in (tmp_path / "draws.zarr" / "posterior" / "position").rglob("*")
            if p.suffix != ".json" and p.is_file()
        ]
        contents = bytearray(path.read_bytes())
        contents[100] ^= 1
        path.write_bytes(bytes(contents))
        with pytest.raises(StorageError, match=r"draws\.zarr"):
            sample(key, tmp_path, num_samples=num_samples)


class TestNoRoom:
    @pytest.mark.thorough
    def test_for_draws(self, key, tmp_path, monkeypatch):
        """Catches lost draws, and a run that cannot go on after room is made."""
        expected = position(sample(key, None))
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
        write = ZarrDraws.write
        put = Path.write_bytes

        def full(self, contents):
            if "position/c/" in self.as_posix() and is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return put(self, contents)

        is_full = False

        def fill_up(self, start, groups):
            nonlocal is_full
            is_full = start >= 12
            return write(self, start, groups)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", full)
            patch.setattr(ZarrDraws, "write", fill_up)
            with pytest.raises(StorageError, match=r"Draws from number 12 on could not .*No space left") as found:
                sample(key, tmp_path)
        assert "Make room and resume" in str(found.value)
        np.testing.assert_array_equal(position(found.value.draws), expected[:, :12])
        np.testing.assert_array_equal(position(sample(key, tmp_path)), expected)

    @pytest.mark.thorough
    def test_for_checkpoints(self, key, tmp_path, monkeypatch):
        expected = position(sample(key, None))
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
        save = Checkpointer.save

        def full(self, step, *rest):
            if step >= 9:
                # what the storage library makes of it
                raise ValueError("RESOURCE_EXHAUSTED: No space left on device")
            return save(self, step, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(Checkpointer, "save", full)
            with pytest.raises(StorageError, match=r"checkpoint at iteration 9 could not be written") as found:
                sample(key, tmp_path)
        assert found.value.draws is not None
        held = position(found.value.draws)
        np.testing.assert_array_equal(held, expected[:, : held.shape[1]])
        assert held.shape[1] >= 8
        np.testing.assert_array_equal(position(sample(key, tmp_path)), expected)

    @pytest.mark.thorough
    @pytest.mark.parametrize("what", ["draws", "checkpoints"])
    def test_on_a_disk_that_is_really_full(self, key, tmp_path, monkeypatch, what):
        """Catches errors of a kind that only a real disk gives, and temporary files that stay in the way."""
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o"]
        try:
            made = subprocess.run([*mount, "size=200k", "tmpfs", disk], capture_output=True, text=True, check=False)
        except OSError as error:
            pytest.skip(f"there is no mount command here: {error}")
        if made.returncode:
            pytest.skip(f"needs the right to mount a small disk: {made.stderr.strip()}")
        try:
            monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
            start = jnp.ones(200)
            folder = disk / "run" if what == "checkpoints" else tmp_path / "run"
            store = disk / "draws" if what == "draws" else tmp_path / "draws"
            settings = {"position": start, "num_samples": 40, "store": store}
            expected = position(sample(key, None, position=start, num_samples=40))
            # small chunks, so that some draws fit; ballast, so that a few checkpoints do
            monkeypatch.setattr(draws_module, "_CHUNK_BYTES", 8192)
            (disk / "ballast").write_bytes(b"x" * (0 if what == "draws" else 130_000))
            with pytest.raises(StorageError, match=r"No space left|could not be written") as found:
                sample(key, folder, **settings)
            if found.value.draws is not None:
                held = position(found.value.draws)
                np.testing.assert_array_equal(held, expected[:, : held.shape[1]])
            assert found.value.draws is not None or what == "checkpoints"
            subprocess.run([*mount, "remount,size=20m", "tmpfs", disk], check=True, capture_output=True)
            np.testing.assert_array_equal(position(sample(key, folder, **settings)), expected)
        finally:
            subprocess.run(["umount", disk], check=False, capture_output=True)


class TestReadOnly:
    def test_a_folder_that_cannot_be_written(self, key, tmp_path):
        """Catches a traceback of the storage library, or a run that finds out at its end."""
        folder = tmp_path / "disk"
        folder.mkdir()
        is_mounted = False
        if os.access("/", os.W_OK):  # permissions mean nothing to root: a read-only disk does
            options = ["-o", "ro,size=64k"]
            try:
                made = subprocess.run(
                    ["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, check=False
                )
            except OSError as error:
                pytest.skip(f"there is no mount command here: {error}")
            is_mounted = made.returncode == 0
            if not is_mounted:
                pytest.skip("runs as root, for whom no folder is read-only, and cannot mount a disk")
        else:
            folder.chmod(0o500)
        try:
            with pytest.raises(StorageError, match=r"Cannot keep checkpoints in .*disk"):
                sample(key, folder / "run")
            with pytest.raises(StorageError, match=r"Cannot write draws to .*disk"):
                sample(key, None, store=folder / "draws")
        finally:
            if is_mounted:
                subprocess.run(["umount", folder], check=False, capture_output=True)
            else:
                folder.chmod(0o700)
