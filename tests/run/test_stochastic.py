"""``sample`` with batches: the posterior, resume bit for bit, and the stop at numbers that are not finite."""

import itertools
import warnings
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.predict.evaluation import evaluate
from geodax.run import driver
from geodax.run.errors import CheckpointError, NonFiniteError

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

DATA = np.random.default_rng(5).normal(1.5, 2.0, size=(200, 2))


def posterior():
    """The mean of a normal law of standard deviation 2 under a standard normal prior."""
    return gx.Posterior(
        log_prior=lambda t: -0.5 * jnp.sum(t**2),
        log_likelihood=lambda t, b: -0.125 * jnp.sum((b - t[None]) ** 2, axis=-1),
        num_data=len(DATA),
    )


def truth():
    precision = 1 + len(DATA) / 4
    return DATA.sum(0) / 4 / precision, precision**-0.5


def run(key, batches=None, algorithm=None, **settings):
    algorithm = gx.sghmc(posterior(), step_size=0.03, friction=0.2) if algorithm is None else algorithm
    batches = gx.data.batches(DATA, batch_size=50, order="epochs") if batches is None else batches
    settings = {"num_samples": 30, "num_warmup": 10, "num_chains": 2, "progress": False} | settings
    return gx.sample(jax.random.clone(key), algorithm, jnp.zeros(2), batches=batches, **settings)


def values(tree):
    return {f"{g}/{n}": v.values for g in ("posterior", "sample_stats") for n, v in tree[g].data_vars.items()}


def assert_same(left, right):
    left, right = values(left), values(right)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def counted_stream():
    def start(first):
        while True:
            yield np.random.default_rng(first).choice(DATA, 50)
            first += 1

    return gx.data.stream(start)


@pytest.mark.thorough
@pytest.mark.parametrize("batches", ["independent", "epochs", "stream"])
def test_the_posterior_of_a_mean(key, batches):
    """Catches a missing N / B and batches that do not reach the density.

    The noise of independent batches is known and deducted. That of an epoch is not independent from batch to batch, and
    cancels over the epoch.
    """
    fed = counted_stream() if batches == "stream" else gx.data.batches(DATA, batch_size=50, order=batches)
    noise = 0.0 if batches == "epochs" else len(DATA) / np.sqrt(50) * DATA.std() / 4
    algorithm = gx.sghmc(posterior(), step_size=0.03, friction=0.2, gradient_noise=noise)
    is_shared = batches == "stream"  # the chains see the same batches, so that their average is no better than one
    tree = run(key, fed, algorithm, num_samples=8000 if is_shared else 2000, num_warmup=300, num_chains=8)
    known = {"potential", "step_size", "temperature", "residual", "is_finite", "gradient_scale"}
    assert set(tree["sample_stats"].data_vars) == known
    mean, width = truth()
    draws = tree["posterior"]["position"].values
    errors = draws.mean(1).std(0, ddof=1) / np.sqrt(8)
    assert np.all(np.abs(draws.mean((0, 1)) - mean) < 5 * errors + (0.15 if is_shared else 0.02) * width)
    np.testing.assert_allclose(draws.std((0, 1)), width, rtol=0.06)


def weighted_stream():
    """The batches of the counted stream, with a number beside the examples."""

    def start(first):
        return ({"rows": rows, "weight": np.array(0.5)} for rows in counted_stream().start(first))

    return gx.data.stream(start)


@pytest.mark.thorough
@pytest.mark.parametrize("num_inner_steps", [1, 3])
def test_batches_of_a_stream_may_hold_a_number(key, num_inner_steps):
    """Catches a number that is cut along the examples."""
    plain = posterior()
    weighted = gx.Posterior(
        log_prior=plain.log_prior,
        log_likelihood=lambda t, b: 2.0 * b["weight"] * plain.log_likelihood(t, b["rows"]),
        num_data=len(DATA),
    )
    settings = {"step_size": 0.03, "friction": 0.2, "num_inner_steps": num_inner_steps}
    expected = run(key, counted_stream(), gx.sghmc(plain, **settings))
    found = run(key, weighted_stream(), gx.sghmc(weighted, **settings))
    np.testing.assert_allclose(
        found["posterior"]["position"].values, expected["posterior"]["position"].values, rtol=1e-8
    )
    if len(jax.devices()) > 1:
        with pytest.raises(ValueError, match="weight in the batches of the stream has no axis that runs over"):
            run(key, weighted_stream(), gx.sghmc(weighted, **settings), devices=gx.device_mesh(chain=1, data=2))


def test_a_later_batch_of_another_kind_is_reported(key, monkeypatch):
    """In chunks of one iteration there is one batch at a time, which differs from none beside it."""
    monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
    fed = gx.data.stream(lambda first: (DATA[: 50 if i < 3 else 40] for i in itertools.count(first)))
    with pytest.raises(ValueError, match=r"the first batch has an array of shape \(50, 2\).* batch 3 has .*\(40, 2\)"):
        run(key, fed)


def failing_stream(last):
    """The batches of the counted stream up to a number, and an error in the place of what follows."""

    def start(first):
        for number, rows in enumerate(counted_stream().start(first), start=first):
            if number > last:
                raise ConnectionError("the server is gone")
            yield rows

    return gx.data.stream(start)


class TestErrorsInTheMiddleOfARun:
    """An error of a function of the user's takes the draws before it along, as a signal does."""

    settings: ClassVar = {"num_samples": 40, "num_warmup": 4}

    def test_of_a_stream(self, key, monkeypatch):
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
        with pytest.raises(ConnectionError, match="the server is gone") as caught:
            run(key, failing_stream(14), **self.settings)
        assert "after iteration 15 of 44; there are 11 draws for each chain" in caught.value.__notes__[0]
        assert "no checkpoint (give checkpoint=...)" in caught.value.__notes__[0]
        assert_same(caught.value.draws, run(key, counted_stream(), **self.settings | {"num_samples": 11}))

    def test_of_a_stream_before_any_draw(self, key, monkeypatch):
        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
        with pytest.raises(ConnectionError) as caught:
            run(key, failing_stream(1), **self.settings)
        assert caught.value.draws is None

    @pytest.mark.thorough
    def test_the_run_goes_on_from_there(self, key, tmp_path, monkeypatch):
        """Catches draws that are computed again although nothing but the stream had failed."""
        settings = self.settings | {"checkpoint": tmp_path}
        with monkeypatch.context() as patched:
            patched.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
            for _ in range(2):  # the second time there is nothing new to be kept
                with pytest.raises(ConnectionError) as caught:
                    run(key, failing_stream(14), **settings)
                assert caught.value.draws["posterior"].sizes["draw"] == 11
                assert f"the checkpoint in {tmp_path / 'steps'} to resume from" in caught.value.__notes__[0]
        asked = []

        def start(first):
            asked.append(first)
            return counted_stream().start(first)

        assert_same(run(key, gx.data.stream(start), **settings), run(key, counted_stream(), **self.settings))
        assert 15 in asked

    @pytest.mark.thorough
    def test_of_a_progress_function(self, key, tmp_path, monkeypatch):
        def tell(progress):
            if progress.iteration == 9:
                raise OSError("no room for the log")

        monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
        with pytest.raises(OSError, match="no room for the log") as caught:
            run(key, progress=tell, checkpoint=tmp_path, **self.settings)
        assert_same(caught.value.draws, run(key, **self.settings | {"num_samples": 5}))
        assert_same(run(key, checkpoint=tmp_path, **self.settings), run(key, **self.settings))


def test_shards_of_other_data_are_refused(key, tmp_path):
    """Catches a likelihood that is scaled to more examples than there are."""
    np.save(tmp_path / "0.npy", DATA[:150])
    with pytest.raises(ValueError, match="num_data=200, but the data of the batches have 150 examples"):
        run(key, gx.data.shards(tmp_path, batch_size=50))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["device", "stream"])
def test_chunks_do_not_matter(key, kind, monkeypatch):
    """One iteration per chunk gives the draws of long chunks, bit for bit."""
    make = counted_stream if kind == "stream" else lambda: None
    long = run(key, make())
    monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
    assert_same(long, run(key, make()))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["device", "stream"])
def test_a_resumed_run_is_the_same(key, kind, tmp_path):
    """Catches batches that begin anew after an interruption."""
    make = counted_stream if kind == "stream" else lambda: None
    run(key, make(), num_samples=11, checkpoint=tmp_path)
    assert_same(run(key, make(), checkpoint=tmp_path), run(key, make()))


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", [gx.sgrld, gx.sghmc])
def test_half_precision_is_recorded_in_single_precision(key, sampler, tmp_path):
    """Catches draws that Zarr cannot hold and ArviZ cannot summarise, and positions that come back in another type."""
    start = {"a": jnp.zeros(2, jnp.bfloat16), "b": jnp.zeros((), jnp.float16)}
    flat = lambda t: t["a"].astype(float) + t["b"].astype(float)  # noqa: E731
    wide = posterior()
    narrow = gx.Posterior(
        log_prior=lambda t: wide.log_prior(flat(t)),
        log_likelihood=lambda t, b: wide.log_likelihood(flat(t), b),
        num_data=len(DATA),
    )
    algorithm = sampler(narrow, step_size=0.01)
    settings = {"batches": gx.data.batches(DATA, batch_size=50), "num_chains": 2, "progress": False}

    def drawn(num_samples, **where):
        return gx.sample(jax.random.clone(key), algorithm, start, num_samples=num_samples, **where, **settings)

    whole = drawn(20)
    drawn(7, checkpoint=tmp_path / "run")
    assert_same(drawn(20, checkpoint=tmp_path / "run"), whole)
    assert whole["posterior"]["a"].dtype == np.float32
    assert whole["posterior"]["b"].dtype == np.float32
    assert np.ptp(whole["posterior"]["a"].mean("draw").values) > 0
    seen = []
    apply = lambda t, x: seen.append(t["a"].dtype) or x * t["a"].astype(float)[None]  # noqa: E731
    next(evaluate(whole, start, jnp.ones((3, 2)), apply=apply))
    assert {dtype.name for dtype in seen} == {"bfloat16"}


def test_a_checkpoint_of_other_batches_is_refused(key, tmp_path):
    run(key, num_samples=5, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"its batch_size \(batches\) is 50, here it is 20"):
        run(key, gx.data.batches(DATA, batch_size=20), num_samples=5, checkpoint=tmp_path)


def test_chains_see_other_batches(key):
    """At temperature 0 from the same start only the batches tell chains apart."""
    training = gx.sghmc(posterior(), step_size=0.03, temperature=0.0)
    draws = run(key, algorithm=training)["posterior"]["position"].values
    assert (draws[0] != draws[1]).any()


def test_inner_steps_take_a_batch_each(key):
    algorithm = gx.sghmc(posterior(), step_size=0.03, friction=0.2, num_inner_steps=3)
    tree = run(key, algorithm=algorithm)
    assert np.isfinite(tree["posterior"]["position"].values).all()


def test_two_devices_draw_the_same(key):
    devices = jax.devices()[:2]
    if len(devices) < 2:
        pytest.skip("needs two devices")
    one, two = run(key, devices=devices[:1]), run(key, devices=devices)
    np.testing.assert_allclose(two["posterior"]["position"].values, one["posterior"]["position"].values, rtol=1e-10)


def test_a_leaf_without_entries_on_two_devices(key, monkeypatch):
    """Catches a second stretch that refuses what the first has returned: where XLA puts an empty array is its own."""
    monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-9)
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    plain = posterior()
    target = gx.Posterior(
        log_prior=lambda t: plain.log_prior(t["mean"]) + jnp.sum(t["none"]),
        log_likelihood=lambda t, b: plain.log_likelihood(t["mean"], b),
        num_data=len(DATA),
    )
    tree = gx.sample(
        key,
        gx.sghmc(target, metric=gx.metrics.RMSProp(), step_size=0.03),
        {"mean": jnp.zeros(2), "none": jnp.zeros((0, 3))},
        num_samples=5,
        num_warmup=2,
        num_chains=2,
        batches=gx.data.batches(DATA, batch_size=50),
        devices=2,
        progress=False,
    )
    assert tree["posterior"]["none"].shape == (2, 5, 0, 3)


def test_progress_has_no_acceptance_rate(key):
    seen = []
    run(key, progress=seen.append)
    assert seen[-1].acceptance_rate is None
    assert "acceptance" not in str(seen[-1])


class TestStop:
    def wild(self, step_size):
        """A density whose curvature grows: one chain in a while leaves the numbers."""
        return gx.sghmc(lambda x: -jnp.sum(x**4), step_size=step_size)

    def test_a_run_stops_where_it_is_no_longer_finite(self, key, tmp_path):
        algorithm = self.wild(1.0)
        with pytest.raises(NonFiniteError, match=r"chain \d+ is no longer finite at iteration \d+ of 200") as caught:
            gx.sample(key, algorithm, jnp.ones(2), num_samples=200, num_chains=2, progress=False)
        error = caught.value
        if error.iteration:
            draws = error.draws["posterior"]["position"].values
            assert draws.shape[1] == error.iteration
            assert np.isfinite(draws).all()
        else:
            assert error.draws is None

    def test_the_draws_before_it_are_those_of_a_shorter_run(self, key):
        settings = {"num_chains": 2, "progress": False}
        with pytest.raises(NonFiniteError) as caught:
            gx.sample(key, self.wild(0.6), jnp.zeros(2), num_samples=5000, **settings)
        error = caught.value
        assert error.iteration > 0
        shorter = gx.sample(
            jax.random.clone(key), self.wild(0.6), jnp.zeros(2), num_samples=error.iteration, **settings
        )
        assert_same(error.draws, shorter)


@pytest.mark.parametrize(
    ("algorithm", "batches", "error", "message"),
    [
        (gx.sghmc(posterior(), step_size=0.1), None, ValueError, "needs batches="),
        (
            gx.sghmc(lambda x: -jnp.sum(x**2), step_size=0.1),
            gx.data.batches(DATA, batch_size=3),
            ValueError,
            "takes no batches",
        ),
        (
            gx.sghmc(posterior(), step_size=0.1),
            gx.data.batches(DATA[:150], batch_size=3),
            ValueError,
            r"num_data=200, but the data of the batches have 150 examples; .*num_data=150, or the batches of all 200",
        ),
        (
            gx.sgrld(posterior(), step_size=0.1),
            gx.data.batches(np.concatenate([DATA, DATA]), batch_size=3),
            ValueError,
            r"num_data=200, but the data of the batches have 400 examples",
        ),
    ],
)
def test_arguments_are_checked(key, algorithm, batches, error, message):
    with pytest.raises(error, match=message):
        gx.sample(key, algorithm, jnp.zeros(2), num_samples=3, batches=batches, progress=False)


@pytest.mark.thorough
@pytest.mark.parametrize("is_stream", [False, True])
def test_not_finite_data_are_named(key, is_stream):
    """Catches NaN in the data that are reported as a step size alone."""
    data = np.array([1.0, np.nan, 3.0, np.inf])
    posterior = gx.Posterior(
        log_prior=lambda x: -(x**2), log_likelihood=lambda x, batch: -((x - batch) ** 2), num_data=4
    )
    batches = gx.data.batches(data, batch_size=4)
    if is_stream:
        batches = gx.data.stream(lambda number: itertools.repeat(data))
    with pytest.raises(NonFiniteError, match=r"NaN or infinity in 2 of 4 examples .*, first in 1"):
        gx.sample(
            key, gx.sgrld(posterior, step_size=0.1), jnp.zeros(()), batches=batches, num_samples=3, progress=False
        )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("start", "warns"),
    [
        (lambda number: ({"x": np.full((10, 2), float(n))} for n in itertools.count(number)), False),
        (lambda number: ({"x": np.full((10, 2), float(n))} for n in itertools.count(0)), True),
        (lambda number: ({"x": np.random.default_rng().normal(size=(10, 2))} for _ in itertools.count()), True),
    ],
    ids=["right", "ignores the number", "without a seed"],
)
def test_streams_that_a_resumed_run_cannot_continue_are_named(tmp_path, start, warns):
    log_likelihood = lambda mean, batch: -0.5 * jnp.sum((batch["x"] - mean) ** 2, 1)  # noqa: E731
    sampler = gx.sghmc(
        gx.Posterior(log_prior=lambda mean: -jnp.sum(mean**2), log_likelihood=log_likelihood, num_data=10),
        step_size=1e-3,
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        gx.sample(
            jax.random.key(0),
            sampler,
            jnp.zeros((1, 2)),
            batches=gx.data.stream(start),
            num_samples=3,
            num_chains=1,
            checkpoint=tmp_path,
            progress=False,
        )
    assert any("start(1) of the stream does not begin" in str(warning.message) for warning in found) == warns
