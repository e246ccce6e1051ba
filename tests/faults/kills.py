"""Starting runs in processes of their own, killing them, and checking what is left after each kill."""

import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from geodax.app.run_folder.own import contents
from geodax.run.draws import open_draws
from tests.faults.runs import NUM_WARMUP, arrays_of, checkpoint_steps, draws_folder

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A process that forks children; see ``server.py``."""

    def __init__(self, process: subprocess.Popen):
        self._process = process

    def run(
        self, kind: str, folder: Path, result: Path, *, delay: float | None = None, event: int | None = None
    ) -> tuple[int, float]:
        """Start or resume a run; its exit code and the seconds it took."""
        result.unlink(missing_ok=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"kind": kind, "folder": str(folder), "result": str(result), "delay": delay, "event": event}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        if reply["code"] not in (0, -signal.SIGKILL):
            error = result.with_suffix(".error")
            raise AssertionError(error.read_text() if error.exists() else f"the run ended with {reply['code']}")
        return reply["code"], reply["seconds"]

    def finish(self, kind: str, folder: Path, result: Path) -> tuple[dict[str, np.ndarray], float, int]:
        """Let a run come to its end: what it computed, the seconds, and the changes of files that it made."""
        code, seconds = self.run(kind, folder, result)
        assert code == 0
        with np.load(result) as found:
            arrays = dict(found)
        return arrays, seconds, int(arrays.pop("events"))


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A server, for as long as the block lasts; its children have a compilation cache of their own.

    A process that is killed may leave half an entry in a cache, which is nothing for other tests to find.
    """
    cache = tempfile.TemporaryDirectory(prefix="compiled-")
    settings = {
        "JAX_COMPILATION_CACHE_DIR": cache.name,
        "JAX_COMPILATION_CACHE_MAX_SIZE": "-1",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | settings,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield Server(process)
    finally:
        process.communicate(timeout=60)  # it ends with its input
        cache.cleanup()


@dataclasses.dataclass
class Tally:
    """What happened to the runs of a kind.

    Attributes:
        at_moments: Kills after a random time.
        at_changes: Kills before a random change of a file.
        in_start: How many of them found no checkpoint yet.
        in_warmup: How many came in warm-up (of a fit: in its first third).
        in_sampling: How many came after it.
        in_writing: How many left a temporary file or folder behind.
        runs: Runs that were brought to their end.
        identical: How many of them have the bits of an uninterrupted run.
        lost: Kills after which a draw before the newest checkpoint was missing or another, or a checkpoint was gone.
    """

    at_moments: int = 0
    at_changes: int = 0
    in_start: int = 0
    in_warmup: int = 0
    in_sampling: int = 0
    in_writing: int = 0
    runs: int = 0
    identical: int = 0
    lost: int = 0

    @property
    def kills(self) -> int:
        """All of them."""
        return self.at_moments + self.at_changes


def kill_runs(server: Server, kind: str, folder: Path, num_kills: int, seed: int) -> Tally:
    """Kill runs of one kind, several times each, until there are so many kills; every run is brought to its end.

    Args:
        server: Starts them.
        kind: What is run.
        folder: For their folders.
        num_kills: How many times.
        seed: Of the moments.

    Returns:
        What happened.
    """
    generator = random.Random(seed)
    tally = Tally()
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / "result.npz"
    expected, _, num_changes = server.finish(kind, folder / "uninterrupted", result)
    # once more, with its programs compiled before: how long it takes to start, and all in all
    again, seconds, _ = server.finish(kind, folder / "again", result)
    assert same(again, expected)
    _, start, _ = server.finish(kind, folder / "again", result)
    while tally.kills < num_kills:
        run = folder / f"run-{tally.runs}"
        reached = 0
        while tally.kills < num_kills:
            if generator.random() < 0.6:
                # some come while it starts, most while it is at work, none so late that a run is killed only once
                first = 0.0 if generator.random() < 0.25 else start
                where = {"delay": generator.uniform(first, start + 0.4 * (seconds - start))}
            else:
                where = {"event": generator.randint(1, max(2, num_changes // 3))}
            code, _ = server.run(kind, run, result, **where)
            if code == 0:
                break
            tally.at_moments += "delay" in where
            tally.at_changes += "event" in where
            if kind == "command_line":
                assert contents(run).others == ()  # a leftover that is not known would stand in the way of --overwrite
            steps = checkpoint_steps(kind, run)
            newest = max(steps, default=0)
            tally.in_start += newest == 0
            tally.in_warmup += 0 < newest < NUM_WARMUP
            tally.in_sampling += newest >= NUM_WARMUP
            tally.in_writing += any(is_temporary(path) for path in run.rglob("*"))
            tally.lost += newest < reached or not has_draws(kind, run, newest, expected)
            reached = max(newest, reached)
        found, _, _ = server.finish(kind, run, result)
        tally.runs += 1
        tally.identical += same(found, expected)
    return tally


def is_temporary(path: Path) -> bool:
    """Whether a path has the name of what is not finished yet."""
    return ".partial" in path.name or "tmp" in path.name


def has_draws(kind: str, run: Path, step: int, expected: dict[str, np.ndarray]) -> bool:
    """Whether the draws before a checkpoint are on disk, with the right bits."""
    store = draws_folder(kind, run)
    num_draws = max(step - NUM_WARMUP, 0)
    if store is None or num_draws == 0:
        return True
    found = arrays_of(open_draws(store, num_draws))
    return same(found, {name: values[:, :num_draws] for name, values in expected.items()})


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    """Whether two runs computed the same bits."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and left[name].tobytes() == right[name].tobytes() for name in right
    )
