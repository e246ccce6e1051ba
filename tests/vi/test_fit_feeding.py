"""Fits from batches: those of the device in other orders and augmented, and streams of the host."""

import itertools
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax import vi
from geodax.run import feeding
from geodax.run.errors import CheckpointError, NonFiniteError, SamplingInterrupted
from geodax.sgmcmc.schedules import polynomial

nn = gx.nn
RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 3))
Y = X @ np.array([1.0, -1.0, 0.5]) + 0.5 * RNG.normal(size=48)
START = vi.GaussianOver(jnp.zeros(3), prior_variance=0.8)
SETTINGS = {"num_steps": 60, "window": 20, "progress": False}


def log_likelihood(weights, batch):
    x, y = batch
    return -2.0 * (y - x @ weights) ** 2


def fitted(data, **options):
    return vi.fit(jax.random.key(3), START, log_likelihood, data, **SETTINGS | options)


def same_batches(order, num_data=48):
    """A stream of the batches that a fit from arrays draws."""
    on_device = gx.data.batches((X[:num_data], Y[:num_data]), batch_size=8, order=order)
    key = jax.random.split(jax.random.key(3), 3)[0]

    def start(first):
        return (on_device.draw(key, jnp.int32(i)) for i in itertools.count(first))

    return on_device, gx.data.stream(start)


def assert_same(one, other, rtol=0.0):
    found, expected = (jax.tree.leaves((fit.network, fit.history)) for fit in (one, other))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.thorough
def test_batches_of_a_size_are_those_of_the_arrays():
    assert_same(fitted((X, Y), batch_size=8), fitted(gx.data.batches((X, Y), batch_size=8)))


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["independent", "epochs"])
def test_a_stream_is_read_step_by_step(order, monkeypatch):
    """Against the same batches drawn on the device, in chunks that end within windows."""
    monkeypatch.setattr(feeding, "_LONGEST_STREAM", 7)
    on_device, stream = same_batches(order)
    one, other = fitted(on_device), fitted(stream, num_data=48)
    assert one.num_steps == other.num_steps == 60
    assert_same(one, other, rtol=1e-9)


@pytest.mark.thorough
def test_the_order_and_the_augmentation_of_batches_count():
    plain, epochs = fitted((X, Y), batch_size=8), fitted(gx.data.batches((X, Y), batch_size=8, order="epochs"))
    assert np.abs(plain.network.family.mean - epochs.network.family.mean).max() > 1e-6
    doubled = gx.data.batches((X, Y), batch_size=8, augment=lambda key, example: (example[0], 2.0 * example[1]))
    assert_same(fitted(doubled), fitted((X, 2.0 * Y), batch_size=8), rtol=1e-9)


def test_validation_has_the_form_of_an_augmented_batch():
    both = gx.data.batches((X, Y), batch_size=8, augment=lambda key, example: (example[0][:2], example[1]))
    start = vi.GaussianOver(jnp.zeros(2), prior_variance=0.8)
    vi.fit(jax.random.key(3), start, log_likelihood, both, validation=(X[:9, :2], Y[:9]), **SETTINGS)
    with pytest.raises(ValueError, match="validation must have the form of the data"):
        vi.fit(jax.random.key(3), start, log_likelihood, both, validation=(X[:9], Y[:9]), **SETTINGS)


def shuffled(number):
    order = np.random.default_rng(number).permutation(48)
    return [(X[rows], Y[rows]) for rows in order.reshape(6, 8)]


@pytest.mark.thorough
def test_an_interrupted_fit_from_a_loader_is_uninterrupted(tmp_path):
    def stop(progress):
        if progress.iteration >= 21:
            os.kill(os.getpid(), signal.SIGTERM)

    def options():
        return {"data": gx.data.from_loader(shuffled), "num_data": 48}

    whole = fitted(**options())
    with pytest.raises(SamplingInterrupted):
        fitted(**options(), checkpoint=tmp_path, progress=stop)
    assert_same(whole, fitted(**options(), checkpoint=tmp_path))
    with pytest.raises(CheckpointError, match="another fit: its num_data"):
        fitted(gx.data.from_loader(shuffled), num_data=4800, checkpoint=tmp_path)
    with pytest.warns(UserWarning, match="vi.fit: num_data is 4800, but a pass of the loader has 6 batches of 8"):
        fitted(gx.data.from_loader(shuffled), num_data=4800)


@pytest.mark.thorough
def test_shards_tell_their_number(tmp_path):
    for name, array in (("x", X), ("y", Y)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "0.npy", array)

    def likelihood(weights, batch):
        return log_likelihood(weights, (batch["x"], batch["y"]))

    fit = vi.fit(
        jax.random.key(3),
        START,
        likelihood,
        gx.data.shards(tmp_path, batch_size=8),
        **SETTINGS | {"num_steps": 3000, "learning_rate": polynomial(0.05, offset=10.0, power=1.0)},
    )
    precision = np.eye(3) / 0.8 + 4 * X.T @ X
    draws = jax.vmap(fit.network.sample)(jax.random.split(jax.random.key(4), 4000))
    deviations = np.diag(precision) ** -0.5  # of the best independent Gaussians
    np.testing.assert_allclose(draws.std(axis=0), deviations, rtol=0.15)
    assert np.all(np.abs(draws.mean(axis=0) - np.linalg.solve(precision, 4 * X.T @ Y)) < deviations)


@pytest.mark.thorough
def test_a_stream_on_two_devices_is_that_on_one():
    _, stream = same_batches("independent")
    for mesh in ({"chain": 1, "data": 2}, {"chain": 2, "data": 1}):
        options = {"num_samples": 2, "num_data": 48, "num_steps": 12}
        one, two = fitted(stream, **options), fitted(stream, **options, devices=gx.device_mesh(**mesh))
        assert_same(one, two, rtol=1e-9)


@pytest.mark.thorough
def test_a_bad_batch_of_a_stream_is_named(monkeypatch):
    monkeypatch.setattr(feeding, "_LONGEST_STREAM", 7)
    _, stream = same_batches("epochs")

    def start(first):
        for number, (x, y) in enumerate(stream.start(first), first):
            yield np.asarray(x), np.where(number == 30, np.nan, np.asarray(y))

    with pytest.raises(
        NonFiniteError, match=r"finite at step 30 of 60.*NaN or infinity in 8 of 8 examples \(1\)"
    ) as caught:
        fitted(gx.data.stream(start), num_data=48)
    before = fitted(same_batches("epochs")[1], num_data=48, num_steps=30)
    np.testing.assert_allclose(caught.value.fit.network.family.mean, before.network.family.mean, rtol=1e-9)


def test_what_does_not_fit_is_said(tmp_path):
    on_device, stream = same_batches("epochs")
    for data, options, words in (
        (stream, {}, "a stream does not tell how many examples a pass has.*num_data="),
        (stream, {"num_data": 48, "batch_size": 8}, "batches of a size of their own, but batch_size=8"),
        (on_device, {"batch_size": 8}, "batches of a size of their own"),
        (on_device, {"num_data": 40}, "num_data=40, but the data have 48"),
        ((X, Y), {"num_data": 40}, "num_data=40, but the data have 48"),
    ):
        with pytest.raises(ValueError, match=words):
            fitted(data, **options)
    unseeded = np.random.default_rng(0)
    again = gx.data.stream(lambda number: (unseeded.normal(size=(8, 3)) for _ in itertools.count()))
    with pytest.warns(UserWarning, match=r"vi.fit: start\(1\) of the stream does not begin"):
        vi.fit(
            jax.random.key(3),
            START,
            lambda w, x: -2.0 * (x @ w) ** 2,
            again,
            num_data=48,
            checkpoint=tmp_path,
            **SETTINGS,
        )


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_loss_in_place_of_a_log_likelihood_is_named(sign, recwarn):
    """Catches silence where a bound has no maximum; log densities of far targets, large or small, are none."""
    data = (X, 1e-20 * Y if sign > 0 else Y)

    def signed(weights, batch):
        x, y = batch
        return sign * nn.GaussianLikelihood(1e-20 if sign > 0 else 1e-6, lambda w, x: 1e-20 * (x @ w))(weights, (x, y))

    vi.fit(jax.random.key(3), START, signed, data, **SETTINGS)
    named = [str(found.message) for found in recwarn if "a loss in place of a log likelihood" in str(found.message)]
    assert len(named) == (sign < 0)
