"""Checkpoints of a run: plain arrays written by Orbax, atomic, verified when read; the last two are kept.

Arrays that are split over devices are written and read by shard, by every process its own, and restored onto the
devices of the run, whatever their number was before.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from geodax._types import PyTree
from geodax.run.content import content_of
from geodax.run.errors import CheckpointError, StorageError
from geodax.run.locks import require_no_links

_NUM_KEPT = 2


class Checkpointer:
    """Checkpoints of one run in one folder; with ``is_split`` arrays, every process needs a checkpointer.

    Raises StorageError if the folder is not writable, or contains a symbolic link.
    """

    def __init__(self, folder: Path, is_split: bool = False):
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.ERROR)
        self.folder = Path(folder).absolute()
        require_no_links(self.folder)
        self._ocp, self._is_split = ocp, is_split
        alone: dict[str, Any] = {"create": True}
        if jax.process_count() > 1 and not is_split:  # the first of several processes writes the checkpoints for all
            alone = {
                "create": False,
                "multiprocessing_options": ocp.options.MultiprocessingOptions(
                    primary_host=0, active_processes={0}, barrier_sync_key_prefix="geodax"
                ),
            }
        options = ocp.CheckpointManagerOptions(max_to_keep=_NUM_KEPT, enable_async_checkpointing=False, **alone)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(self.folder, options=options)
        except OSError as error:
            raise StorageError(f"Cannot keep checkpoints in {self.folder}: {error}.") from error

    def save(self, step: int, tree: PyTree, metadata: Mapping[str, Any]) -> None:
        """Write arrays and PRNG keys after some iterations, with JSON-compatible facts about the run, atomically."""
        arrays = _to_arrays(tree, self._is_split)
        facts = dict(metadata) | {"step": step}
        if self._is_split:
            facts["arrays"] = {name: [*x.shape, str(x.dtype)] for name, x in arrays.items()}
        facts["digest"] = _digest(arrays, facts)
        # a damaged checkpoint that was skipped would block its successor
        for later in self.steps():
            if later >= step:
                self._manager.delete(later)
        items = self._ocp.args.Composite(
            state=self._ocp.args.StandardSave(arrays), facts=self._ocp.args.JsonSave(facts)
        )
        self._manager.save(step, args=items, force=True)
        self._manager.wait_until_finished()

    def steps(self) -> list[int]:
        """Iterations of the checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def restore(
        self, template: PyTree, check: Callable[[Mapping[str, Any]], None] = lambda facts: None
    ) -> tuple[PyTree, dict[str, Any]] | None:
        """Read the newest undamaged checkpoint, None if the folder holds no checkpoint.

        The template has arrays with the expected structure, shapes, dtypes and, if they are split, shardings; ``check``
        is called with the metadata before the arrays are compared with it, and may raise. Raises CheckpointError if
        there are checkpoints but none can be read, or they belong to another run.
        """
        problems = []
        for step in reversed(self.steps()):
            try:
                facts = self._facts(step)
                found = self._read(step, template, facts, check)
                digest = facts.pop("digest")
                if digest != _digest(found, facts) or facts["step"] != step:
                    raise ValueError("its contents do not match their checksum")
            except CheckpointError:
                raise
            except Exception as error:  # a damaged file can raise anything; try the previous checkpoint
                problems.append(
                    f"step {step}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                )
                continue
            check(facts)
            return _from_arrays(template, found, self.folder), facts
        if problems:
            raise CheckpointError(
                f"No checkpoint in {self.folder} can be read ({'; '.join(problems)}). The draws beside it "
                "are kept; remove the checkpoint folder to start the run again."
            )
        return None

    def _facts(self, step: int) -> dict[str, Any]:
        items = self._ocp.args.Composite(facts=self._ocp.args.JsonRestore())
        return dict(self._manager.restore(step, args=items)["facts"])

    def _read(
        self, step: int, template: PyTree, facts: Mapping[str, Any], check: Callable[[Mapping[str, Any]], None]
    ) -> dict[str, Any]:
        """The arrays: on this host, or each in its place on the devices."""
        places = None
        if self._is_split or "arrays" in facts:
            check(facts)  # arrays of other shapes cannot be read
            plain = {
                name: jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
                for name, (*shape, dtype) in facts.get("arrays", {}).items()
            }
            arrays = _to_arrays(_from_arrays(template, plain, self.folder) if plain else template, True)
            places = {name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for name, x in arrays.items()}
        items = self._ocp.args.Composite(state=self._ocp.args.StandardRestore(places))
        found = self._manager.restore(step, args=items)["state"]
        return found if self._is_split else {name: np.asarray(value) for name, value in found.items()}

    def close(self) -> None:
        """Close the folder."""
        self._manager.close()


def _to_arrays(tree: PyTree, is_split: bool) -> dict[str, Any]:
    leaves = [jax.random.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(tree)]
    # Orbax does not write empty arrays, and they hold no values
    return {f"{i:05d}": x if is_split else np.asarray(x) for i, x in enumerate(leaves) if x.size}


def _from_arrays(template: PyTree, arrays: Mapping[str, Any], folder: Path) -> PyTree:
    """The tree of the arrays; the template if only their shapes are given, which are compared with it."""
    expected, structure = jax.tree.flatten(template)
    num_needed = sum(x.size > 0 for x in expected)
    if len(arrays) != num_needed:
        raise CheckpointError(
            f"The checkpoint in {folder} holds {len(arrays)} arrays, but this run needs {num_needed}: it "
            "was written by another model or sampler, or another version. Use another folder, or the "
            "settings it was written with."
        )
    leaves, found = [], iter([arrays[name] for name in sorted(arrays)])
    for i, want in enumerate(expected):
        if want.size == 0:
            leaves.append(want)
            continue
        have = next(found)
        plain = jax.random.key_data(want) if _is_key(want) else want
        if plain.shape != have.shape or plain.dtype != have.dtype:
            raise CheckpointError(
                f"The checkpoint in {folder} has an array ({i}) of shape {have.shape} and dtype {have.dtype} "
                f"where this run needs {plain.shape} and {plain.dtype}: it was written with another model, "
                "number of chains or precision."
            )
        if isinstance(have, jax.ShapeDtypeStruct):
            leaves.append(want)
            continue
        leaf = jnp.asarray(have)
        leaves.append(jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(want)) if _is_key(want) else leaf)
    return structure.unflatten(leaves)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _digest(arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Checksum of facts and arrays; of arrays that were split when they were written, by words that any split has."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    is_split = "arrays" in facts
    words = np.asarray(content_of(dict(arrays))) if is_split else np.zeros((len(arrays), 2))
    for name, own in zip(sorted(arrays), words, strict=True):
        array = arrays[name]
        digest.update(f"{name} {np.dtype(array.dtype).str} {array.shape}".encode())
        digest.update(own.tobytes() if is_split else np.asarray(array).tobytes())
    return digest.hexdigest()
