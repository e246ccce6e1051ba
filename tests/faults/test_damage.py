"""Files that are cut short, emptied or have a bit turned, every file of a folder: found, or without effect on the results."""

import contextlib
import random
import shutil

import numpy as np
import pytest

from geodax.app.run_folder.actions import report_run, resume_run
from geodax.app.run_folder.files import RunFolderError
from geodax.run.draws import open_draws
from geodax.run.errors import CheckpointError, StorageError
from tests.faults.kills import same
from tests.faults.runs import KINDS, arrays_of, checkpoint_steps, chunks_of_one, draws_folder, steps_folder
from tests.marks import slow

# Orbax reads the arrays side by side; when one cannot be read, the others end in a closed event loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

WAYS = ("flipped", "truncated", "emptied")
EXPLAINED = (CheckpointError, RunFolderError, StorageError)


def damage(path, how, generator):
    """Do one kind of damage to a file, at a random place."""
    contents = path.read_bytes()
    if how == "flipped":
        place = generator.randrange(8 * len(contents))
        bad = bytearray(contents)
        bad[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(bad))
    else:
        path.write_bytes(contents[: generator.randrange(len(contents)) if how == "truncated" else 0])


def files_of(folder):
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file() and p.stat().st_size)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of each kind, made when it is asked for: its folder and what it computed."""
    made = {}

    def make(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp("finished") / kind
            with chunks_of_one():
                made[kind] = folder, KINDS[kind](folder)
            assert len(checkpoint_steps(kind, folder)) == 2
        return made[kind]

    return make


def resume(kind, folder):
    if kind == "command_line":
        resume_run(folder, progress=False)
        return arrays_of(open_draws(folder / "posterior.zarr"))
    return KINDS[kind](folder)


def outcome(kind, folder, expected) -> str:
    """What becomes of a run in a damaged folder; fails where it ends with other numbers, or an unexplained error."""
    written_before = written(kind, folder)
    message = None
    try:
        found = resume(kind, folder)
    except EXPLAINED as error:
        message = str(error)
    if message is not None:
        assert str(folder) in message
        return "refused"
    assert same(found, expected)
    return "as before" if written(kind, folder) == written_before else "mended"


def written(kind, folder):
    """What tells a checkpoint from another of the same iteration."""
    found = [(step, (steps_folder(kind, folder) / str(step)).stat()) for step in checkpoint_steps(kind, folder)]
    return [(step, of_step.st_ino, of_step.st_ctime_ns) for step, of_step in found]  # numbers of inodes are used again


def try_all(kind, finished, tmp_path, chosen, seed):
    """Damage the chosen files of copies of a folder, one at a time, and count what becomes of the runs."""
    folder, expected = finished(kind)
    generator = random.Random(seed)
    counts = dict.fromkeys(("refused", "as before", "mended"), 0)
    for number, (path, how) in enumerate(chosen(files_of(folder), generator)):
        copy = tmp_path / str(number)
        shutil.copytree(folder, copy)
        damage(copy / path, how, generator)
        store = draws_folder(kind, copy)
        if store is not None and (copy / path).is_relative_to(store):
            with contextlib.suppress(StorageError):
                assert same(arrays_of(open_draws(store)), expected), f"{path} {how}: wrong draws"
        try:
            counts[outcome(kind, copy, expected)] += 1
        except Exception as error:
            error.add_note(f"after {path} was {how}")
            raise
        shutil.rmtree(copy)
    return counts


def newest_first(kind, folder, expected_file):
    """A file of the newest checkpoint."""
    newest = steps_folder(kind, folder) / str(checkpoint_steps(kind, folder)[-1])
    return next(p.relative_to(folder) for p in sorted(newest.rglob(expected_file)) if p.is_file())


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["sgrld", slow("fit")])
def test_some_files(finished, tmp_path, kind):
    """Catches a damaged file that is taken for a whole one, and one that ends a run without a word of where it lies."""

    def chosen(files, generator):
        folder, _ = finished(kind)
        fixed = [
            (newest_first(kind, folder, "_METADATA"), "truncated"),
            (newest_first(kind, folder, "metadata"), "flipped"),
        ]
        return fixed + [(path, generator.choice(WAYS)) for path in generator.sample(files, 4)]

    counts = try_all(kind, finished, tmp_path, chosen, seed=1)
    assert sum(counts.values()) == 6
    assert counts["mended"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sgrld", "hmc", "fit", "command_line"])
def test_every_file_in_every_way(finished, tmp_path, kind):
    def chosen(files, generator):
        return [(path, how) for path in files for how in WAYS]

    counts = try_all(kind, finished, tmp_path, chosen, seed=2)
    assert min(counts["mended"], counts["as before"]) > 0
    assert kind == "fit" or counts["refused"] > 0


@pytest.mark.slow
def test_many_bits_of_what_has_no_checksum_of_its_own(finished, tmp_path):
    """Descriptions of arrays are text: most of their bits matter, and some can be turned into another valid text."""

    def chosen(files, generator):
        described = [path for path in files if path.name == "zarr.json"]
        return [(generator.choice(described), "flipped") for _ in range(150)]

    try_all("sgrld", finished, tmp_path, chosen, seed=3)


@pytest.mark.thorough
def test_a_damaged_run_folder_is_not_reported(finished, tmp_path):
    """Catches a report of data or options that are not those of the run."""
    folder, _ = finished("command_line")
    for name in ("config.json", "data.npz", "posterior.zarr/posterior/components/zarr.json"):
        copy = tmp_path / name.replace("/", "-")
        shutil.copytree(folder, copy)
        damage(copy / name, "truncated", random.Random(4))
        with pytest.raises(EXPLAINED, match=str(copy)):
            report_run(copy)


@pytest.mark.thorough
def test_options_changed_by_hand_are_refused(finished, tmp_path):
    """Catches a resumed run whose second half has another prior than its first."""
    folder, _ = finished("command_line")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    config = (copy / "config.json").read_text()
    changed = config.replace('"num_components": 1', '"num_components": 2').replace(
        '"n_components": 1', '"n_components": 2'
    )
    assert changed != config
    (copy / "config.json").write_text(changed)
    with pytest.raises(RunFolderError, match=r"config\.json was changed after geodax wrote it.*Restore the file"):
        resume_run(copy, progress=False)


def test_leftovers_of_a_killed_process(finished, tmp_path):
    """Catches warnings about temporary files, and such files that gather over many kills."""
    folder, expected = finished("sgrld")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    store = draws_folder("sgrld", copy)
    leftovers = [
        store / name for name in ("zarr." + "0f" * 16 + ".partial", "posterior/position/zarr." + "a1" * 16 + ".partial")
    ]
    for path in leftovers:
        path.write_bytes(b"half")
    (store / "mine.partial").write_text("not of a run")
    assert same(arrays_of(open_draws(store)), expected)
    assert same(resume("sgrld", copy), expected)
    assert not any(path.exists() for path in leftovers)
    assert (store / "mine.partial").exists()


def test_draws_of_a_finished_run_are_whole(finished):
    """The yardstick itself: without damage nothing is refused."""
    folder, expected = finished("sgrld")
    assert same(arrays_of(open_draws(draws_folder("sgrld", folder))), expected)
    assert all(np.isfinite(values).all() for values in expected.values())
