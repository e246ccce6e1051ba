"""Rates and estimates of the time left that a run reports."""

import math

import jax
import jax.numpy as jnp
import pytest

import geodax as gx
from geodax.run import driver
from geodax.run.progress import Progress, RecentRate, at_times, progress_bar


def _report(**changes) -> Progress:
    return Progress(300, 2000, 1000, 0.8, 0, 40.0, 42.5)._replace(**changes)


@pytest.mark.parametrize(
    ("rate", "words"),
    [(40.0, "40 iterations/s"), (2.26, "2.3 iterations/s"), (0.4, "2.5 s/iteration"), (1 / 12, "12 s/iteration")],
)
def test_slow_rates_are_times_of_one_iteration(rate, words):
    assert f", {words}, " in str(_report(iterations_per_second=rate))


@pytest.mark.parametrize(("seconds", "words"), [(42.4, "42 s left"), (4009.0, "67 min left"), (9000.0, "2.5 h left")])
def test_time_left_is_in_readable_units(seconds, words):
    assert str(_report(seconds_left=seconds)).endswith(f", {words}")


def test_no_time_left_without_an_estimate():
    assert str(_report(seconds_left=math.nan)).endswith("0 divergences")


def test_a_file_gets_lines_during_the_run(capsys, monkeypatch):
    """Catches a bar that appears in a file or pipe only at the end of the run."""
    with progress_bar(stderr=True) as report:
        report(_report(iteration=100))
        assert capsys.readouterr().err == ""
        report(_report(iteration=1000))
        report(_report(iteration=2000, seconds_left=0.0))
    found = capsys.readouterr()
    assert [line.split(",")[0] for line in found.err.splitlines()] == ["warm-up 1000/2000", "sampling 2000/2000"]
    assert found.out == ""
    now, lines = 0.0, []
    monkeypatch.setattr("time.monotonic", lambda: now)
    report = at_times(lines.append, 10.0)
    for now in (1.0, 9.0, 11.0, 12.0, 22.0):
        report(_report(iteration=200 + int(now)))
    assert [line.split("/")[0] for line in lines] == ["warm-up 211", "warm-up 222"]


def test_rate_follows_the_last_seconds():
    """A single short chunk changes it little, and old iterations are forgotten."""
    rate = RecentRate()
    for _ in range(20):
        found = rate.add(5, 0.5)
    assert found == pytest.approx(10.0)
    assert rate.add(1, 0.001) == pytest.approx(10.0, rel=0.05)
    for _ in range(120):
        found = rate.add(1, 0.5)
    assert found == pytest.approx(2.0, rel=0.01)


@pytest.mark.thorough
def test_estimates_begin_after_a_tenth_of_warmup(monkeypatch):
    """Trajectories of the first iterations are far shorter or longer than those of the run."""
    monkeypatch.setattr(driver, "_SECONDS_PER_CHUNK", 1e-6)  # one iteration a chunk
    reports: list[Progress] = []
    algorithm = gx.nuts(lambda x: -0.5 * jnp.sum(x**2))
    gx.sample(
        jax.random.key(0),
        algorithm,
        jnp.zeros(2),
        num_warmup=100,
        num_samples=20,
        num_chains=1,
        progress=reports.append,
    )
    assert all(math.isnan(report.seconds_left) == (report.iteration < 10) for report in reports)
    assert reports[-1].seconds_left == 0
