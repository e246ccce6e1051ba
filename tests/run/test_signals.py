"""A signal is answered while compiled code is at work, however long that takes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.app import main
from geodax.run import signals
from geodax.run.errors import SamplingInterrupted
from geodax.run.signals import interruptible, stop_signals, wait

LONG = 60.0


@pytest.fixture(autouse=True)
def _none_left(monkeypatch):
    monkeypatch.setattr(signals, "_left", [])
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
    yield
    signal.signal(signal.SIGINT, previous)


def _interrupt_soon(seconds: float = 0.2) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_a_call_is_left_behind_at_an_interruption():
    """And known to be at work until it ends; without an interruption its value or error is that of the function."""
    may_end = threading.Event()
    _interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        interruptible(may_end.wait, LONG)
    assert signals.is_computing()
    may_end.set()
    while signals.is_computing():
        time.sleep(0.01)
    assert interruptible(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        interruptible(divmod, 7, 0)


class _NeverReady:
    """Stands for an array whose program has not ended."""

    def is_ready(self) -> bool:
        return False


def test_results_are_waited_for_but_not_long_after_a_signal(monkeypatch):
    assert wait({"a": jnp.ones(3), "b": np.ones(2)}, [])
    monkeypatch.setattr(signals.jax, "Array", _NeverReady)
    _interrupt_soon()
    with stop_signals() as received:
        assert not wait([_NeverReady()], received, seconds=0.1)
    assert received == [signal.SIGINT]
    assert signals.is_computing()


def test_a_second_interruption_does_not_wait(monkeypatch):
    monkeypatch.setattr(signals.jax, "Array", _NeverReady)
    _interrupt_soon(0.5)
    _interrupt_soon(1.0)
    with stop_signals() as received, pytest.raises(KeyboardInterrupt):
        wait([_NeverReady()], received, seconds=LONG)


@pytest.mark.thorough
def test_iterations_that_do_not_end_are_left_with_the_draws_before_them(monkeypatch, tmp_path):
    """From the checkpoint before them the run goes on as if nothing had happened."""

    arguments = {
        "algorithm": gx.hmc(lambda x: -0.5 * jnp.sum(x**2), step_size=0.3, num_integration_steps=3),
        "position": jnp.ones(2),
        "num_chains": 2,
        "checkpoint": tmp_path,
        "progress": False,
    }

    def run(num_samples):
        return gx.sample(jax.random.key(3), **arguments | {"num_samples": num_samples})

    run(20)
    waits = []

    def impatient(arrays, received):
        waits.append(wait(arrays, received))
        if len(waits) == 2:
            received.append(signal.SIGINT)
        return len(waits) < 2

    with monkeypatch.context() as patch:
        patch.setattr("geodax.run.driver.wait", impatient)
        with pytest.raises(SamplingInterrupted, match="which were not waited for") as caught:
            run(60)
    there = caught.value.draws["posterior"]["position"].values
    assert there.shape[1] == 21
    resumed = run(60)["posterior"]["position"].values
    np.testing.assert_array_equal(resumed[:, :21], there)
    whole = gx.sample(jax.random.key(3), **arguments | {"num_samples": 60, "checkpoint": None})["posterior"][
        "position"
    ].values
    np.testing.assert_array_equal(resumed, whole)


def test_an_interruption_that_an_import_passes_over_is_remembered(monkeypatch, capsys):
    class Finder:
        @staticmethod
        def find_spec(name, *_):
            if name == "geodax.app.commands.entry":
                with contextlib.suppress(KeyboardInterrupt):
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.1)

    monkeypatch.delitem(sys.modules, "geodax.app.commands.entry", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    assert main(["--version"]) == 130
    assert capsys.readouterr().err == "Interrupted.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_the_command_line_ends_within_seconds_of_a_long_iteration(tmp_path):
    """The process does not wait for what it has left behind."""
    script = """
import sys, time
import jax, jax.numpy as jnp
from geodax.app import main
import geodax.app.commands.entry as entry
import geodax as gx

def run(arguments):
    x = jnp.eye(600) + 1e-3
    slow = lambda p: -0.5 * jnp.sum((jax.lax.fori_loop(0, 3000, lambda i, y: jnp.tanh(x @ y), x) @ p) ** 2)
    algorithm = gx.hmc(slow, step_size=1e-3, num_integration_steps=50)
    print("begin", flush=True)
    try:
        gx.sample(jax.random.key(0), algorithm, jnp.ones(600), num_samples=50, num_chains=1, progress=False)
    except KeyboardInterrupt as error:
        print("told", error, flush=True)
        return 130

entry.run_command = run
raise SystemExit(main([]))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begin\n"
        time.sleep(15)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130
        assert time.monotonic() - asked < LONG / 2
        assert "told" in process.stdout.read()
