"""Disks that are full or cannot be written, two runs on one folder, clocks that jump."""

import contextlib
import errno
import os
import random
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.app import main
from geodax.app.run_folder.files import write_config
from geodax.run import locks
from geodax.run.checkpoint import Checkpointer
from geodax.run.errors import FolderInUseError, StorageError
from tests.faults.kills import same, server
from tests.faults.runs import KINDS, arrays_of, chunks_of_one
from tests.faults.server import is_change

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class FailingDisk:
    """Lets Python's changes of files below a folder fail from one of them on; an audit hook, which cannot be taken off."""

    def __init__(self):
        self.folder, self.number, self.left = "", 0, -1
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def fails(self, folder, number, after):
        """From the change number ``after + 1`` on, for as long as the block lasts."""
        self.folder, self.number, self.left = str(folder), number, after
        try:
            yield
        finally:
            self.folder = ""

    def _hook(self, event, arguments):
        # removals work on a full disk, and make room in its temporary files
        if not self.folder or not is_change(event, arguments, self.folder) or "remove" in event or "rm" in event:
            return
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number), str(arguments[0]))


DISK = FailingDisk()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What a run of each kind computes when nothing goes wrong."""
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = KINDS[kind](tmp_path_factory.mktemp("whole") / kind)
        return made[kind]

    return make


def fill_up(kind, folder, expected, number, after):
    """Let a run meet a disk that fails after so many changes; then make room, and compare."""
    folder.mkdir()
    with chunks_of_one(), DISK.fails(folder, number, after), pytest.raises(OSError, match=str(folder)) as caught:
        KINDS[kind](folder)
    if after:  # the folder could be made
        assert isinstance(caught.value, StorageError)
        if caught.value.draws is not None:
            held = arrays_of(caught.value.draws)
            length = held["posterior/position"].shape[1]
            assert same(held, {name: values[:, :length] for name, values in expected.items()})
    found = KINDS[kind](folder)
    assert same(found, expected)
    return caught.value


class TestFullDisk:
    @pytest.mark.thorough
    @pytest.mark.parametrize(("kind", "after"), [("sgrld", 600), ("fit", 250)])
    def test_what_there_was_is_kept_and_goes_on(self, tmp_path, expected, kind, after):
        """Catches a raw error of the storage library, draws that are lost, and temporary files that stay in the way."""
        error = fill_up(kind, tmp_path / "run", expected(kind), errno.ENOSPC, after)
        assert "No space left" in str(error)
        if kind == "fit":
            assert 1 <= error.fit.num_steps < 24
            assert np.isfinite(error.fit.history.elbo).all()
        else:
            assert error.draws["posterior"].sizes["draw"] >= 1

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["sgrld", "fit", "hmc"])
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=lambda n: errno.errorcode[n])
    def test_at_any_place(self, tmp_path, expected, kind, number):
        with chunks_of_one(), DISK.fails(tmp_path / "whole", number, 10**9):
            KINDS[kind](tmp_path / "whole")
            num_changes = 10**9 - DISK.left
        generator = random.Random(number)
        for i in range(5):
            after = generator.randrange(1, num_changes)
            fill_up(kind, tmp_path / str(i), expected(kind), number, after)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["fit", "command_line"])
    def test_a_disk_that_is_really_full(self, tmp_path, expected, kind):
        """Catches errors that only a real disk gives: of compiled code, and halfway through a file."""
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o"]
        try:
            made = subprocess.run([*mount, "size=300k", "tmpfs", disk], capture_output=True, text=True, check=False)
        except OSError as error:
            pytest.skip(f"there is no mount command here: {error}")
        if made.returncode:
            pytest.skip(f"needs the right to mount a small disk: {made.stderr.strip()}")
        try:
            (disk / "ballast").write_bytes(b"x" * 180_000)
            with chunks_of_one(), pytest.raises((StorageError, RuntimeError), match="could not be written"):
                KINDS[kind](disk / "run")
            (disk / "ballast").unlink()
            subprocess.run([*mount, "remount,size=20m", "tmpfs", disk], check=True, capture_output=True)
            assert same(KINDS[kind](disk / "run"), expected(kind))
        finally:
            subprocess.run(["umount", disk], check=False, capture_output=True)


class TestReadOnly:
    @pytest.mark.parametrize("kind", ["sgrld", "fit"])
    def test_it_is_said_before_anything_is_computed(self, tmp_path, kind):
        """Catches a run that finds out at its end."""
        with (
            DISK.fails(tmp_path, errno.EROFS, 0),
            pytest.raises(StorageError, match=r"Cannot keep checkpoints in .*Read"),
        ):
            KINDS[kind](tmp_path / "run")


def gaussian(x):
    return -0.5 * jnp.sum(x**2)


def sample(folder, **settings):
    algorithm = gx.hmc(gaussian, step_size=0.3, num_integration_steps=2)
    settings = {"num_samples": 20, "num_chains": 2, "progress": False} | settings
    return gx.sample(jax.random.key(0), algorithm, jnp.ones(3), checkpoint=folder, **settings)


class TestTwoRuns:
    @pytest.mark.thorough
    def test_the_second_refuses_and_the_first_goes_on(self, tmp_path):
        """Catches two runs whose draws mix, and a second one that clears away what the first is writing."""
        whole = sample(tmp_path / "alone")
        messages = []

        def meanwhile(progress):
            for settings in ({}, {"num_samples": 40}, {"store": tmp_path / "elsewhere"}):
                with pytest.raises(FolderInUseError) as caught:
                    sample(tmp_path / "run", **settings)
                messages.append(str(caught.value))

        tree = sample(tmp_path / "run", progress=meanwhile)
        assert same(arrays_of(tree), arrays_of(whole))
        assert messages
        for message in messages:
            assert f"Cannot keep checkpoints in {tmp_path / 'run'}: another run is at work there" in message
            assert f"process {os.getpid()}" in message
            assert "use another folder" in message
        # it is free again, also for the same process
        assert same(arrays_of(sample(tmp_path / "run")), arrays_of(whole))

    def test_a_store_without_checkpoint(self, tmp_path):
        def meanwhile(progress):
            with pytest.raises(FolderInUseError, match=r"Cannot write draws to .*draws"):
                sample(None, store=tmp_path / "draws")

        sample(None, store=tmp_path / "draws", progress=meanwhile)

    @pytest.mark.slow
    def test_in_another_process(self, tmp_path):
        """Catches locks that hold within a process alone; and one that outlives its process would block what follows."""
        with server() as forks:
            with (
                locks.exclusive(tmp_path / "run" / "lock", tmp_path / "run", "keep checkpoints in"),
                pytest.raises(AssertionError, match=f"FolderInUseError.*process {os.getpid()} on"),
            ):
                forks.run("sgrld", tmp_path / "run", tmp_path / "result.npz")
            assert forks.run("sgrld", tmp_path / "run", tmp_path / "result.npz", delay=3.0)[0] in (0, -9)
            assert forks.run("sgrld", tmp_path / "run", tmp_path / "result.npz")[0] == 0

    def test_on_the_command_line(self, tmp_path, capsys):
        """Catches --overwrite that removes a folder under a run at work."""
        folder, table = tmp_path / "run", tmp_path / "table.csv"
        folder.mkdir()
        write_config(folder, {"format": 1, "model": "pca"})
        before = (folder / "config.json").read_text()
        table.write_text("a,b\n1,2\n2,3.5\n3,3\n4,5\n")
        with locks.exclusive(folder / "lock", folder, "make a run in"):
            words = ["fit", "pca", str(table), "--n-components", "1", "--out", str(folder), "--overwrite"]
            assert main([*words, "--no-progress"]) == 1
        assert "another run is at work there" in " ".join(capsys.readouterr().err.split())
        assert (folder / "config.json").read_text() == before

    @pytest.mark.slow
    def test_what_a_fit_left_that_was_killed_while_it_began_is_no_obstacle(self, tmp_path, capsys):
        folder, table = tmp_path / "run", tmp_path / "table.csv"
        folder.mkdir()
        (folder / "lock").write_text("process 123 on a machine\n")
        for name in ("data.npz", "config.json.partial", ".geodax-0123456789abcdef.npz"):
            (folder / name).write_text("half")
        table.write_text("a,b\n" + "\n".join(f"{i},{i**2 % 7}" for i in range(20)))
        words = ["fit", "pca", str(table), "--n-components", "1", "--num-warmup", "20", "--num-samples", "20"]
        assert main([*words, "--num-chains", "2", "--out", str(folder), "--no-progress"]) == 0
        (folder / "notes.txt").write_text("mine")
        (folder / "config.json").unlink()
        assert main([*words, "--out", str(folder), "--overwrite", "--no-progress"]) == 1
        assert "It is not a run folder" in " ".join(capsys.readouterr().err.split())


class TestClock:
    @pytest.mark.thorough
    def test_jumps_change_nothing(self, tmp_path, monkeypatch):
        """Catches draws, checkpoints or ends of chunks that hang on the time of day."""
        whole = sample(tmp_path / "whole")
        generator = random.Random(1)
        saved = []
        save = Checkpointer.save
        monkeypatch.setattr(time, "time", lambda: generator.uniform(0.0, 4e9))
        monkeypatch.setattr(time, "time_ns", lambda: generator.randrange(4 * 10**18))
        monkeypatch.setattr(
            Checkpointer, "save", lambda self, step, *rest: (saved.append(step), save(self, step, *rest))
        )
        with chunks_of_one_only():
            tree = sample(tmp_path / "run", progress=lambda p: time.sleep(0.05), checkpoint_seconds=0.2)
        assert same(arrays_of(tree), arrays_of(whole))
        # 20 iterations of at least 0.05 s: one checkpoint in five of them at the least
        assert len(saved) >= 4
        assert max(np.diff([0, *saved])) <= 6


@contextlib.contextmanager
def chunks_of_one_only():
    """Chunks of one iteration, with checkpoints on the clock."""
    from geodax.run import driver

    before, driver._SECONDS_PER_CHUNK = driver._SECONDS_PER_CHUNK, 1e-9
    try:
        yield
    finally:
        driver._SECONDS_PER_CHUNK = before
