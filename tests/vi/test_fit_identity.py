"""A checkpoint of a fit is gone on from by the same fit only, whether it had ended or not."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from geodax import vi
from geodax.run import fit as fitting
from geodax.run import fit_plan
from geodax.run.errors import CheckpointError, SamplingInterrupted
from geodax.sgmcmc.schedules import polynomial

DATA = np.random.default_rng(0).normal(3.0, 1.0, size=(20, 2))


def log_likelihood(position, batch):
    return -0.5 * jnp.sum((batch - position[None]) ** 2, axis=-1)


def fit(folder, *, prior_variance=0.5, likelihood=log_likelihood, progress=False, **options):
    start = vi.GaussianOver(jnp.zeros(2), prior_variance=prior_variance)
    options = {"num_steps": 30, "batch_size": 5, **options}
    return vi.fit(jax.random.key(0), start, likelihood, DATA, checkpoint=folder, progress=progress, **options)


def stopped(folder, **options):
    """A fit that a signal stops on its way."""

    def stop(progress):
        if progress.iteration >= 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SamplingInterrupted):
        fit(folder, progress=stop, **options)


def prior_at_zero(network):
    """At the start both it and its gradient are zero."""
    return -0.5 * jnp.sum(network.family.location**2)


OTHERS = {
    "prior_variance": ({"prior_variance": 5.0}, r"network.prior_variance is 0.5, here it is 5.0"),
    "likelihood": (
        {"likelihood": lambda p, b: 0.01 * log_likelihood(p, b)},
        r"log likelihood at the start is \[-.*here it is \[-",
    ),
    "likelihood off the start": (
        {"likelihood": lambda p, b: log_likelihood(p, b) - 50.0 * jnp.sum(p**2)},
        r"log likelihood (at|near) the start is",
    ),
    "learning_rate": ({"learning_rate": 1e-6}, r"learning_rate is 0.001, here it is 1e-06"),
    "schedule": (
        {"learning_rate": polynomial(1e-3, offset=5.0)},
        r"learning_rate at the steps 0, 1, 10, .* is 0.001, here it is \[0.001, 0.0009",
    ),
    "log_prior": ({"log_prior": prior_at_zero}, r"log prior near the start is \[0.0\], here it is \[-"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", OTHERS)
def test_another_fit_does_not_go_on_from_a_checkpoint(tmp_path, name):
    """Catches an old fit that is returned for a new question, and one half of which is of one prior, half of another."""
    changed, message = OTHERS[name]
    stopped(tmp_path)
    with pytest.raises(CheckpointError, match=f"belongs to another fit: its {message}.*Use another folder"):
        fit(tmp_path, **changed)
    whole = fit(tmp_path)
    with pytest.raises(CheckpointError, match=f"belongs to another fit: its {message}"):
        fit(tmp_path, **changed)
    np.testing.assert_array_equal(fit(tmp_path).network.family.location, whole.network.family.location)


@pytest.mark.thorough
@pytest.mark.relaxed
def test_optimisers_are_told_apart_by_their_steps(tmp_path):
    """Catches one whose state has the same arrays."""
    fit(tmp_path, optimizer=optax.sgd(0.01))
    with pytest.raises(CheckpointError, match="its length of the first steps is"):
        fit(tmp_path, optimizer=optax.sgd(0.02))
    fit(tmp_path, optimizer=optax.sgd(0.01))


@pytest.mark.thorough
def test_algorithms_are_told_apart_by_their_steps(tmp_path):
    def natural(rate, variance):
        return {
            "algorithm": vi.vogn(jnp.zeros(2), log_likelihood, rate, num_data=len(DATA), prior_variance=variance),
            "num_steps": 5,
            "checkpoint": tmp_path,
            "progress": False,
        }

    def run(**options):
        return vi.fit(jax.random.key(0), jnp.zeros(2), log_likelihood, DATA, **options)

    run(**natural(0.1, 1.0))
    with pytest.raises(CheckpointError, match="its length of the first steps is"):
        run(**natural(0.2, 1.0))
    with pytest.raises(CheckpointError, match=r"its (log likelihood|divergence) at the start is"):
        run(**natural(0.1, 4.0))
    run(**natural(0.1, 1.0))


def test_facts_that_an_earlier_version_did_not_write_are_not_asked_for(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        facts = fitting.fit_facts
        patch.setattr(fitting, "fit_facts", lambda *a: {n: v for n, v in facts(*a).items() if n != "settings"})
        patch.setattr(fit_plan, "start_facts", lambda *a: {})
        stopped(tmp_path)
        assert not list(tmp_path.rglob("*settings*"))
    np.testing.assert_array_equal(fit(tmp_path).network.family.location, fit(None).network.family.location)


def test_rounding_of_another_machine_is_no_other_fit(tmp_path):
    """Catches a comparison of all digits: sums in another order differ in the last ones."""
    fit(tmp_path)
    fit(tmp_path, likelihood=lambda p, b: log_likelihood(p, b) * (1.0 + 1e-13))


def test_half_precision_has_nothing_to_compare(tmp_path):
    start = vi.GaussianOver(jnp.zeros(2, jnp.bfloat16))
    for _ in range(2):
        vi.fit(
            jax.random.key(0),
            start,
            log_likelihood,
            DATA.astype(jnp.bfloat16),
            num_steps=2,
            checkpoint=tmp_path,
            progress=False,
        )
