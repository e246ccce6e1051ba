"""Compiled programs on disk: a second process compiles nothing, and nothing of the user's settings is changed."""

import os
import subprocess
import sys

import pytest

from geodax.run import program_cache

_RUN = """
import jax, jax.monitoring
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
import geodax as gx
tree = gx.sample(jax.random.key(0), gx.hmc(lambda x: -0.5 * (x**2).sum(), step_size=0.3), jax.numpy.ones(4),
                 num_samples=20, num_chains=2, progress=False)
print(sum(hits), jax.config.jax_compilation_cache_dir, float(tree["posterior"]["position"].values.sum()))
"""


@pytest.fixture
def run(tmp_path):
    """A function that samples in a new process, with the user's cache folder in a temporary one."""
    plain = {name: value for name, value in os.environ.items() if "CACHE" not in name}

    def start(before="", **settings):
        environment = plain | {"XDG_CACHE_HOME": str(tmp_path), **settings}
        return subprocess.Popen(
            [sys.executable, "-W", "error::UserWarning", "-c", before + _RUN],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(process):
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
        assert not err
        number, folder, total = out.split()
        return int(number), folder, total

    return start, finish, tmp_path / "geodax" / "programs"


@pytest.mark.thorough
def test_a_second_process_takes_the_program(run):
    """But not that of another user: whoever can write to the folder can run code in the processes that read it."""
    start, finish, folder = run
    first = finish(start())
    assert first[:2] == (0, str(folder))
    assert folder.stat().st_mode & 0o077 == 0
    assert finish(start("import os; os.getuid = lambda: 12345"))[:2] == (0, "None")
    second = finish(start())
    assert second[0] > 0
    assert second[2] == first[2]


def test_what_a_kill_has_left_is_removed(tmp_path):
    """JAX would neither read it nor write the program again."""
    for name in ("half-cache", "whole-cache", "whole-atime"):
        (tmp_path / name).write_bytes(b"x")
    program_cache._tidy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"whole-cache", "whole-atime"}


def test_programs_used_long_ago_are_removed(tmp_path):
    """JAX takes time for each of them whenever it adds a program."""
    for number in range(program_cache._NUM_KEPT + 1):
        for end in ("cache", "atime"):
            (tmp_path / f"{number}-{end}").write_bytes(b"x")
            os.utime(tmp_path / f"{number}-{end}", ns=(0, 1000 - number))
    program_cache._tidy(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == 2 * program_cache._NUM_KEPT
    assert not {f"{program_cache._NUM_KEPT}-{end}" for end in ("cache", "atime")} & left


@pytest.mark.slow
def test_processes_side_by_side_and_what_a_kill_has_left(run):
    start, finish, folder = run
    expected = finish(start())[2]
    for program in folder.glob("*-cache"):
        program.write_bytes(program.read_bytes()[:100])
        program.with_name(program.name.removesuffix("-cache") + "-atime").unlink()
    found = [finish(process) for process in [start(), start()]]
    assert [total for *_, total in found] == [expected, expected]
    assert finish(start())[0] > 0


@pytest.mark.thorough
def test_settings_of_the_user_take_precedence(run, tmp_path):
    start, finish, folder = run
    own = str(tmp_path / "own")
    assert finish(start(JAX_COMPILATION_CACHE_DIR=own))[1] == own
    assert finish(start(JAX_ENABLE_COMPILATION_CACHE="0"))[:2] == (0, "None")
    assert not folder.exists()


@pytest.mark.thorough
def test_a_folder_that_cannot_be_made_is_no_error(run, tmp_path):
    start, finish, _ = run
    (tmp_path / "geodax").write_text("a file")
    assert finish(start())[:2] == (0, "None")
