"""Minibatches: drawn inside the compiled loop from arrays on the device, or streamed from the host.

The batch number ``index`` of a chain is a function of (key of the chain, index) alone. So a run that was interrupted
finds its batches again, whatever it had drawn before, and nothing but the iteration needs to be saved.
"""

import abc
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks as _arguments
from geodax._types import Array, PRNGKey, PyTree

_NUM_ROUNDS = 6
_FEW = 16  # examples, among which so few rounds prefer some: of 5 one is left out 10 per cent more often than another
_ORDERS = ("independent", "epochs")


class AbstractDeviceBatches(eqx.Module):
    """Batches that a compiled loop can draw."""

    @abc.abstractmethod
    def draw(self, key: PRNGKey, index: Array) -> PyTree:
        """The batch number ``index`` of the chain with this key."""


class Batches(AbstractDeviceBatches):
    """Batches of data that lie on the device; made by :func:`batches`.

    Attributes:
        data: Arrays whose first axis runs over the examples.
        batch_size: Examples of a batch.
        order: ``"independent"`` or ``"epochs"``.
    """

    data: PyTree
    batch_size: int = eqx.field(static=True)
    order: str = eqx.field(static=True)

    @property
    def num_data(self) -> int:
        """Number of examples."""
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def num_an_epoch(self) -> int:
        """Batches of one pass through the data; what does not fill a batch waits for the next pass."""
        return self.num_data // self.batch_size

    def rows(self, key: PRNGKey, index: Array) -> Array:
        """Which examples the batch number ``index`` holds, shape (batch_size,); one of all has each of them once."""
        if self.batch_size == self.num_data:
            return jnp.arange(self.num_data, dtype=jnp.int32)
        if self.order == "independent":
            key = jax.random.fold_in(key, index)
            return jax.random.randint(key, (self.batch_size,), 0, self.num_data, jnp.int32)
        epoch, place = jnp.divmod(index, self.num_an_epoch)
        num_rounds = _NUM_ROUNDS if self.num_data > _FEW else 2 * _NUM_ROUNDS
        words = jax.random.bits(jax.random.fold_in(key, epoch), (num_rounds,), jnp.uint32)
        first = (place * self.batch_size).astype(jnp.uint32)
        return _permuted(words, first + jnp.arange(self.batch_size, dtype=jnp.uint32), self.num_data)

    def draw(self, key: PRNGKey, index: Array) -> PyTree:
        """The examples of :meth:`rows`."""
        rows = self.rows(key, index)
        return jax.tree.map(lambda leaf: leaf[rows], self.data)


class Stream:
    """Batches that an iterator on the host supplies, for data that do not fit on the device; made by :func:`stream`.

    Attributes:
        start: From the number of a batch to an iterator that begins with it.
        position: Number of the next batch.
    """

    def __init__(self, start: Callable[[int], Iterator[PyTree]]):
        self.start = start
        self.position = 0
        self._iterator: Iterator[PyTree] | None = None

    def rewind(self) -> None:
        """Forget the iterator; the next :meth:`read` begins one."""
        self._iterator = None

    def read(self, first: int, count: int) -> PyTree:
        """The batches ``first, ..., first + count - 1``, stacked along a new first axis.

        Raises:
            ValueError: If the iterator ends, or its batches differ in structure, shape or dtype.
        """
        if self._iterator is None or first != self.position:
            begun = self.start(first)
            if not isinstance(begun, Iterable) or isinstance(begun, str | bytes) or getattr(begun, "ndim", 1) == 0:
                raise TypeError(
                    f"stream: start({first}) must return an iterator over batches, found {_arguments.described(begun)}."
                )
            self._iterator, self.position = iter(begun), first
        found = []
        for _ in range(count):
            try:
                found.append(jax.tree.map(np.asarray, next(self._iterator)))
            except StopIteration:
                self._iterator = None
                raise ValueError(
                    f"stream: the iterator ended before batch {self.position}; it must go on for as long as the run "
                    "asks. Begin the data again at the end of each pass."
                ) from None
            self.position += 1
        kinds = {(jax.tree.structure(b), tuple((a.shape, a.dtype.str) for a in jax.tree.leaves(b))) for b in found}
        if len(kinds) > 1:
            raise ValueError(
                f"stream: all batches must have the same arrays with the same shapes and dtypes; among batches {first} "
                f"to {first + count - 1} there are {len(kinds)} kinds. Drop or fill up the last batch of a pass."
            )
        return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def batches(data: PyTree, *, batch_size: int, order: str = "independent") -> Batches:
    """Batches of data that are drawn on the device, inside the compiled loop.

    Args:
        data: A pytree of arrays whose first axis runs over the examples, for instance ``{"x": x, "y": y}`` or
            ``(x, y)``.
        batch_size: Examples of a batch.
        order: ``"independent"``: each batch is drawn anew, with replacement. ``"epochs"``: each pass goes through the
            data once, in an order of its own, without replacement. In either a batch of as many examples as there are
            holds each of them once.

    Returns:
        What ``sample(..., batches=...)`` takes.

    Raises:
        TypeError: If a leaf is no array of numbers, or ``batch_size`` no whole number.
        ValueError: If the leaves disagree on the number of examples, or ``batch_size`` does not fit.
    """
    _arguments.tree("batches", "data", data)
    arrays = jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else _as_array(leaf), data)
    named = [
        (jax.tree_util.keystr(path, simple=True, separator=".") or "the array", leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(arrays)[0]
    ]
    if not named:
        raise ValueError("batches: the data hold no array.")
    for name, leaf in named:
        if leaf.ndim == 0:
            raise ValueError(f"batches: {name} is a scalar; the first axis of each array runs over the examples.")
    sizes = {leaf.shape[0] for _, leaf in named}
    if len(sizes) > 1:
        found = ", ".join(f"{name}: {leaf.shape[0]}" for name, leaf in named)
        raise ValueError(f"batches: the arrays must have equally many examples along the first axis, found {found}.")
    num_data = sizes.pop()
    size = _arguments.whole("batches", "batch_size", batch_size, least=-_arguments.LARGEST)
    if not 1 <= size <= num_data:
        raise ValueError(
            f"batches: batch_size must lie between 1 and {num_data}, the examples there are, found "
            f"{_arguments.described(size)}."
        )
    _arguments.chosen("batches", "order", order, _ORDERS)
    return Batches(arrays, size, order)


def stream(start: Callable[[int], Any]) -> Stream:
    """Batches from the host, for data larger than the device's memory.

    All chains of a run see the same batch in an iteration. The saved position of a run is the number of the next batch,
    so a resumed run is bit-identical if ``start(number)`` continues the same sequence.

    Args:
        start: From the number of a batch (0, 1, ...) to an iterator over batches that begins with that one and does not
            end. Each batch is a pytree of NumPy arrays of the same shapes.

    Returns:
        What ``sample(..., batches=...)`` takes.

    Raises:
        TypeError: If ``start`` is no function of one argument.
    """
    if not callable(start):
        raise TypeError(
            f"stream: expected a function from the number of a batch to an iterator that begins with it, found a "
            f"{type(start).__name__}."
        )
    try:
        inspect.signature(start).bind(0)
    except TypeError as error:
        raise TypeError(
            f"stream: start must take one argument, the number of the batch with which its iterator begins (0 in a new "
            f"run, a later one where a run is resumed). The one that was given does not ({error})."
        ) from None
    except ValueError:
        pass  # a built-in function that does not say what it takes
    return Stream(start)


def _as_array(leaf: Any) -> Array:
    return jnp.asarray(_arguments.plain("batches", "a leaf of the data", leaf))


def _permuted(words: Array, places: Array, size: int) -> Array:
    """Images of ``places`` under a random permutation of ``0, ..., size - 1``, without making the permutation.

    A Feistel network, with a round for each of the random ``words``, permutes the numbers of an even count of bits;
    those that leave the range are mapped again until they come back (cycle walking: Black and Rogaway 2002), so that
    what remains is a permutation of the range.
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
