"""Minibatches: drawn inside the compiled loop from arrays on the device, or streamed from the host.

The batch number ``index`` of a chain depends only on the key of the chain and the index. So an interrupted run
reproduces its batches when it resumes, and only the iteration has to be saved.
"""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._tree import named_leaves, on_device
from geodax._types import Array, Cycle, PRNGKey, PyTree

_NUM_ROUNDS = 6
_FEW = 16  # with so few examples the permutation is biased: of 5, one is left out 10 per cent more often than another
_AUGMENTED = 0x90000000  # indices of batches and passes are smaller
_NUM_TRACED = 7
_ORDERS = ("independent", "epochs", "symmetric")


class Batches(eqx.Module):
    """Batches of data on the device that a compiled loop can draw, created by :func:`batches`.

    Attributes:
        data: Arrays whose first axis runs over the examples.
        batch_size: Number of examples per batch.
        order: ``"independent"``, ``"epochs"`` or ``"symmetric"``.
        augment: Function of a key and one example, or None.
    """

    data: PyTree
    batch_size: int = eqx.field(static=True)
    order: str = eqx.field(static=True)
    augment: Callable[[PRNGKey, PyTree], PyTree] | None = eqx.field(static=True, default=None)

    @property
    def num_data(self) -> int:
        """Number of examples."""
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def num_an_epoch(self) -> int:
        """Number of batches in one pass through the data; examples that do not fill a batch wait for the next pass."""
        return self.num_data // self.batch_size

    @property
    def cycle(self) -> Cycle | None:
        """The pass in which the errors of batches cancel, or None for independent batches."""
        used = self.num_an_epoch * self.batch_size
        return None if self.order == "independent" else Cycle(self.num_an_epoch, 1.0 - used / self.num_data)

    def rows(self, key: PRNGKey, index: Array) -> Array:
        """Indices of the examples in batch ``index``, shape (batch_size,); a batch of all examples has each once."""
        if self.batch_size == self.num_data:
            return jnp.arange(self.num_data, dtype=jnp.int32)
        if self.order == "independent":
            key = jax.random.fold_in(key, index)
            return jax.random.randint(key, (self.batch_size,), 0, self.num_data, jnp.int32)
        epoch, place = jnp.divmod(index, self.num_an_epoch)
        if self.order == "symmetric":
            epoch, is_backward = jnp.divmod(epoch, 2)
            place = jnp.where(is_backward == 1, self.num_an_epoch - 1 - place, place)
        num_rounds = _NUM_ROUNDS if self.num_data > _FEW else 2 * _NUM_ROUNDS
        words = jax.random.bits(jax.random.fold_in(key, epoch), (num_rounds,), jnp.uint32)
        first = (place * self.batch_size).astype(jnp.uint32)
        return _permuted(words, first + jnp.arange(self.batch_size, dtype=jnp.uint32), self.num_data)

    def draw(self, key: PRNGKey, index: Array) -> PyTree:
        """Draw the batch number ``index`` of the chain with this key: the examples of :meth:`rows`, augmented."""
        return self.gather(key, index, self.rows(key, index))

    def gather(self, key: PRNGKey, index: Array, rows: Array, first: int | Array = 0) -> PyTree:
        """Gather some examples of batch ``index``, of which the first has the place ``first``, and augment them."""
        examples = jax.tree.map(lambda leaf: leaf[rows], self.data)
        if self.augment is None:
            return examples
        key = jax.random.fold_in(jax.random.fold_in(key, jnp.uint32(_AUGMENTED)), index)
        places = jnp.asarray(first, jnp.int32) + jnp.arange(rows.shape[0], dtype=jnp.int32)
        return jax.vmap(self.augment)(jax.vmap(lambda place: jax.random.fold_in(key, place))(places), examples)


class Stream:
    """Batches from an iterator on the host, for data that do not fit on the device; created by :func:`stream`.

    Attributes:
        start: Function from the number of a batch to an iterator that begins with it.
        position: Number of the next batch.
        num_an_epoch: Number of batches of a pass through the data, None while it is unknown.
    """

    num_an_epoch: int | None = None

    def __init__(self, start: Callable[[int], Iterator[PyTree]]):
        self.start = start
        self.position = 0
        self._iterator: Iterator[PyTree] | None = None

    def rewind(self) -> None:
        """Discard the iterator; the next :meth:`read` starts a new one."""
        self._iterator = None

    def read(self, first: int, count: int) -> PyTree:
        """Read the batches ``first, ..., first + count - 1``, stacked along a new first axis.

        Raises:
            ValueError: If the iterator ends, or its batches differ in structure, shape or dtype.
        """
        if self._iterator is None or first != self.position:
            begun = self.start(first)
            if not _checks.is_series(begun):
                raise TypeError(
                    f"stream: start({first}) must return an iterator over batches, found {_checks.described(begun)}."
                )
            self._iterator, self.position = iter(begun), first
        found = []
        for _ in range(count):
            try:
                found.append(_as_numpy(next(self._iterator)))
            except StopIteration:
                self._iterator = None
                raise ValueError(
                    f"stream: the iterator ended before batch {self.position}; it must not end before the run. "
                    "Restart the data at the end of each pass."
                ) from None
            self.position += 1
        kinds = {(jax.tree.structure(b), tuple((a.shape, a.dtype.str) for a in jax.tree.leaves(b))) for b in found}
        if len(kinds) > 1:
            raise ValueError(
                f"stream: all batches must have the same arrays with the same shapes and dtypes; batches {first} "
                f"to {first + count - 1} are of {len(kinds)} kinds. Drop or pad the last batch of a pass."
            )
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def batches(
    data: PyTree,
    *,
    batch_size: int,
    order: str = "independent",
    augment: Callable[[PRNGKey, PyTree], PyTree] | None = None,
) -> Batches:
    """Create batches that are drawn on the device, inside the compiled loop.

    Args:
        data: A pytree of arrays whose first axis runs over the examples, for instance ``{"x": x, "y": y}`` or
            ``(x, y)``.
        batch_size: Number of examples per batch.
        order: ``"independent"``: each batch is drawn with replacement. ``"epochs"``: each pass goes through the
            data once, in its own random order, without replacement. ``"symmetric"``: every second pass takes the
            batches of the pass before it in reverse, so that the errors of their gradients cancel to the order of the
            step size squared (Paulin et al. 2025, symmetric minibatch splitting). In all cases a batch as large as the
            data contains each example once.
        augment: Random change of one example, ``(key, example) -> example``, applied to each example of each batch
            with a key of its own, for instance a random flip of ``example = (image, label)``. The arrays may change
            their shapes. The posterior is then that of the log likelihood averaged over augmentations
            (:doc:`/data` says what that means).

    Returns:
        The batches, for ``sample(..., batches=...)``.

    Raises:
        TypeError: If a leaf is not an array of numbers, ``batch_size`` is not an integer, or ``augment`` is not a
            function of two arguments that returns arrays.
        ValueError: If the leaves disagree on the number of examples, ``batch_size`` does not fit, or ``augment`` draws
            random numbers without its key.
    """
    require_no_loader("batches", data)
    _checks.arrays("batches", "data", data)

    def as_array(leaf: Any) -> Array:
        return leaf if isinstance(leaf, jax.Array) else on_device(_checks.plain("batches", "a leaf of the data", leaf))

    arrays = jax.tree.map(as_array, data)
    named = named_leaves(arrays, "the array")
    if not named:
        raise ValueError("batches: the data contain no array.")
    for name, leaf in named:
        if leaf.ndim == 0:
            raise ValueError(f"batches: {name} is a scalar; the first axis of each array runs over the examples.")
    sizes = {leaf.shape[0] for _, leaf in named}
    if len(sizes) > 1:
        found = ", ".join(f"{name}: {leaf.shape[0]}" for name, leaf in named)
        raise ValueError(f"batches: the arrays must have equally many examples along the first axis, found {found}.")
    num_data = sizes.pop()
    size = _checks.whole("batches", "batch_size", batch_size, least=-_checks.LARGEST)
    if not 1 <= size <= num_data:
        raise ValueError(
            f"batches: batch_size must lie between 1 and {num_data}, the number of examples, found "
            f"{_checks.described(size)}."
        )
    _checks.chosen("batches", "order", order, _ORDERS)
    if augment is not None:
        _require_augmentation(augment, arrays)
    return Batches(arrays, size, order, augment)


def stream(start: Callable[[int], Any]) -> Stream:
    """Create batches from the host, for data larger than the device's memory.

    All chains of a run use the same batch in an iteration. The saved state of a run is the number of the next batch,
    so a resumed run is bit-identical if ``start(number)`` continues the same sequence.

    Args:
        start: Function from the number of a batch (0, 1, ...) to an iterator over batches that begins with that one and
            does not end. Each batch is a pytree of NumPy arrays of the same shapes.

    Returns:
        The batches, for ``sample(..., batches=...)``.

    Raises:
        TypeError: If ``start`` is not a function of one argument.
    """
    require_no_loader("stream", start)
    kind = "a function from the number of a batch (0 in a new run, a later one in a resumed run) to an iterator that "
    _checks.takes("stream", "start", start, 1, kind + "begins with it")
    return Stream(start)


def require_no_batches(owner: str, data: PyTree) -> None:
    """Raise TypeError for batches, a stream or loader of them or a list of tuples in place of a function's arrays."""
    if isinstance(data, Batches | Stream) or _checks.is_loader(data):
        raise TypeError(
            f"{owner}: expected the arrays of the data, such as (x, y), found batches ({type(data).__name__})."
        )
    require_no_list(owner, data)


def require_no_loader(owner: str, data: Any) -> None:
    """Raise TypeError for the loader of another library in place of arrays or of our batches."""
    if _checks.is_loader(data):
        raise TypeError(
            f"{owner}: found a {type(data).__name__}, which is no array. Give the batches of a loader as "
            "gx.data.from_loader(loader)."
        )


def require_no_list(owner: str, data: PyTree) -> None:
    """Raise TypeError for a list of tuples in place of the arrays."""
    if isinstance(data, list) and data and all(isinstance(part, tuple) for part in data):
        raise TypeError(
            f"{owner}: expected the arrays of the data, such as (x, y), found a list of {len(data)} tuples."
        )


def _require_augmentation(augment: Any, data: PyTree) -> None:
    _checks.takes("batches", "augment", augment, 2, "a function (key, example) -> example")
    example = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), data)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def traced() -> tuple[tuple, Any]:
        program, found = jax.make_jaxpr(lambda *arguments: augment(*arguments), return_shape=True)(key, example)
        numbers = [x for x in program.consts if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
        return (str(program), *(np.asarray(x).tobytes() for x in numbers)), found

    program, found = traced()
    if any(traced()[0] != program for _ in range(_NUM_TRACED)):  # often, for random numbers that have few values
        raise ValueError(
            "batches: augment gives another program each time, so it draws its random numbers with NumPy or Python; "
            "JAX would draw them once, the same for every example. Draw them from its key, for instance with "
            "jax.random.normal(key)."
        )
    if jax.tree.structure(found) != jax.tree.structure(example):
        raise TypeError(
            f"batches: augment must return the arrays of one example, {jax.tree.structure(example)}, found "
            f"{jax.tree.structure(found)}."
        )


def _as_numpy(batch: PyTree) -> PyTree:
    """Copy the arrays and tensors of a batch, since a loader may write the next one into the same memory."""
    _checks.arrays("stream", "a batch", batch)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: np.array(_checks.plain("stream", f"batch{jax.tree_util.keystr(path)}", leaf)), batch
    )


def _permuted(words: Array, places: Array, size: int) -> Array:
    """Images of ``places`` under a random permutation of ``0, ..., size - 1``, without storing the permutation.

    A Feistel network, with one round for each of the random ``words``, permutes the numbers with an even number of
    bits; numbers outside the range are mapped again until they return (cycle walking: Black and Rogaway 2002), which
    gives a permutation of the range.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = jnp.uint32((1 << half) - 1)

    def mix(x: Array) -> Array:
        left, right = x >> jnp.uint32(half), x & mask
        for i in range(len(words)):
            left, right = right, left ^ (_hashed(right ^ words[i]) & mask)
        return (left << jnp.uint32(half)) | right

    def outside(x: Array) -> Array:
        return x >= jnp.uint32(size)

    walked = jax.lax.while_loop(lambda x: jnp.any(outside(x)), lambda x: jnp.where(outside(x), mix(x), x), mix(places))
    return walked.astype(jnp.int32)


def _hashed(x: Array) -> Array:
    """Murmur3's finaliser: each bit of the result depends on every bit of the argument."""
    x = (x ^ (x >> jnp.uint32(16))) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> jnp.uint32(13))) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> jnp.uint32(16))
