"""Checkpoints: what is written comes back, damage is found, the one before is used."""

import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from geodax.run.checkpoint import Checkpointer
from geodax.run.errors import CheckpointError, StorageError

# Orbax reads the arrays side by side; when one cannot be read, the others end in a closed event loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def tree(value=0.0):
    return {
        "single": jnp.full((3, 2), value, jnp.float32),
        "double": jnp.asarray(value + np.pi),
        "complex": jnp.full(2, value + 1j),
        "whole": jnp.arange(3, dtype=jnp.int32),
        "flag": jnp.array([True, False]),
        "key": jax.random.key(7),
        "empty": jnp.zeros((0, 2)),
    }


@pytest.fixture
def checkpointer(tmp_path):
    found = Checkpointer(tmp_path / "steps")
    yield found
    found.close()


def plain(value):
    return {k: np.asarray(jax.random.key_data(v) if k == "key" else v) for k, v in value.items()}


def assert_tree(found, expected):
    for name, values in plain(expected).items():
        assert plain(found)[name].dtype == values.dtype
        np.testing.assert_array_equal(plain(found)[name], values, err_msg=name)


def payloads(folder, step):
    """The files of a checkpoint that hold bytes of it, the largest first."""
    files = [p for p in (folder / str(step)).rglob("*") if p.is_file() and p.stat().st_size]
    return sorted(files, key=lambda p: (-p.stat().st_size, str(p)))


def test_every_kind_of_leaf_comes_back(checkpointer):
    """Catches lost precision, keys and empty arrays."""
    checkpointer.save(3, tree(0.1), {"num_chains": 2, "name": "x", "numbers": [0.1, 1e-300]})
    found, facts = checkpointer.restore(tree())
    assert_tree(found, tree(0.1))
    assert facts == {"num_chains": 2, "name": "x", "numbers": [0.1, 1e-300], "step": 3}
    assert jnp.issubdtype(found["key"].dtype, jax.dtypes.prng_key)


def test_none_yet(checkpointer):
    assert checkpointer.restore(tree()) is None


def test_the_last_two_are_kept(checkpointer):
    for step in (1, 5, 6, 20):
        checkpointer.save(step, tree(step), {})
    assert checkpointer.steps() == [6, 20]
    found, facts = checkpointer.restore(tree())
    assert_tree(found, tree(20))
    assert facts["step"] == 20


def test_a_step_can_be_written_again(checkpointer):
    """Catches a resumed run that cannot pass the damaged checkpoint it had skipped."""
    for step in (10, 20, 30):
        checkpointer.save(step, tree(step), {})
    checkpointer.save(20, tree(-20.0), {})
    assert checkpointer.steps() == [20]
    assert_tree(checkpointer.restore(tree())[0], tree(-20.0))


@pytest.mark.parametrize("change", ["leaves", "shape", "dtype"])
def test_another_structure_is_refused(checkpointer, change):
    checkpointer.save(3, tree(), {})
    template = tree()
    if change == "leaves":
        del template["single"]
        message = r"holds 6 arrays, but this run needs 5.*another model or sampler"
    elif change == "shape":
        template["single"] = jnp.zeros((4, 2), jnp.float32)
        message = r"shape \(3, 2\) and dtype float32 where this run needs \(4, 2\) and float32"
    else:
        template["single"] = jnp.zeros((3, 2))
        message = r"dtype float32 where this run needs \(3, 2\) and float64"
    with pytest.raises(CheckpointError, match=message):
        checkpointer.restore(template)


def test_a_truncated_file_leads_to_the_checkpoint_before(checkpointer):
    """Catches damage that is not seen, or that ends the run although there is a good checkpoint."""
    checkpointer.save(10, tree(10), {})
    checkpointer.save(20, tree(20), {})
    for path in payloads(checkpointer.folder, 20):
        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        found, facts = checkpointer.restore(tree())
        # some files are not read at all: then the newest is whole
        assert_tree(found, tree(facts["step"]))
        path.write_bytes(good)
    largest = payloads(checkpointer.folder, 20)[0]
    largest.write_bytes(largest.read_bytes()[:-7])
    assert checkpointer.restore(tree())[1]["step"] == 10


def test_flipped_bits_never_come_back_as_numbers(checkpointer):
    """Catches a damaged checkpoint that is taken for a whole one, wherever the bit is."""
    checkpointer.save(10, tree(10), {"num_chains": 2})
    checkpointer.save(20, tree(20), {"num_chains": 2})
    generator = random.Random(0)
    skipped = 0
    for path in payloads(checkpointer.folder, 20):
        good = path.read_bytes()
        for _ in range(4):
            position = generator.randrange(8 * len(good))
            bad = bytearray(good)
            bad[position // 8] ^= 1 << position % 8
            path.write_bytes(bytes(bad))
            found, facts = checkpointer.restore(tree())
            assert_tree(found, tree(facts["step"]))
            assert facts["num_chains"] == 2
            skipped += facts["step"] == 10
        path.write_bytes(good)
    assert skipped > 5
    assert checkpointer.restore(tree())[1]["step"] == 20


def test_changed_facts_are_damage_too(checkpointer):
    """Catches an iteration number that is changed on disk: the run would go on elsewhere, silently."""
    checkpointer.save(10, tree(10), {"divergences": 4})
    checkpointer.save(20, tree(20), {"divergences": 4})
    path = checkpointer.folder / "20" / "facts" / "metadata"
    facts = json.loads(path.read_text())
    for change in ({"step": 21}, {"divergences": 5}):
        path.write_text(json.dumps(facts | change))
        assert checkpointer.restore(tree())[1]["step"] == 10


def test_all_damaged(checkpointer):
    checkpointer.save(10, tree(10), {})
    checkpointer.save(20, tree(20), {})
    for step in (10, 20):
        payloads(checkpointer.folder, step)[0].write_bytes(b"")
        for path in checkpointer.folder.glob(f"{step}/state/**/d/*"):
            path.write_bytes(b"nothing")
    with pytest.raises(
        CheckpointError, match=r"No checkpoint in .*steps can be read \(step 20: .*; step 10: "
    ) as found:
        checkpointer.restore(tree())
    assert "remove the checkpoint folder to start the run again" in str(found.value)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"Cannot keep checkpoints in .*file/steps"):
        Checkpointer(tmp_path / "file" / "steps")
