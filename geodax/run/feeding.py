"""Feed batches of data to the compiled loop: drawn inside it, or loaded for each chunk."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from geodax import _checks
from geodax._tree import named_leaves
from geodax._types import Array, Cycle, PRNGKey, PyTree
from geodax.data import minibatches
from geodax.data.minibatches import Batches, Stream, require_no_list, require_no_loader
from geodax.data.parts import Part, draw_part
from geodax.data.shard_files import Shards, own_part
from geodax.run.content import content_of
from geodax.run.sharding import data_axis, own_part_of, put, put_part

_STREAM_BYTES = 64 << 20
_LONGEST_STREAM = 256
# iterations fold in 0, 1, ..., 2**31 - 2 and adaptation 2**32 - 1 downwards: nothing else uses this index
_DATA_INDEX = 0x80000000
_FIT = "vi.fit"


class Feed(NamedTuple):
    """The batches of a run.

    Attributes:
        load: ``(start, stop) -> data``, called before each chunk of iterations; the data always have the same shapes.
            With an ``examples_axis``, an optional third argument is a slice of this axis.
        draw: ``(data, chain_keys, iteration, start, axis) -> batches`` within the compiled loop; with a leading chain
            axis unless ``is_shared``. With the name of a mesh axis, returns this device's part of the batches.
        batch_size: Number of examples of a batch.
        is_shared: Whether all chains get the same batch.
        longest: The largest number of iterations of a chunk, or None.
        identity: Facts by name that must be equal for a run to be resumed.
        digest: A checksum of the data, or of the first batch of a stream, which must be equal too.
        examples_axis: The axis of the data of ``load`` that is sharded over the data axis of a mesh; None if every
            device has all data.
        scalars: Names of leaves without this axis.
        cycle: The pass without replacement in which batches come, if they do.
        num_data: Number of examples that the bound of a fit sums over.
    """

    load: Callable[..., PyTree]
    draw: Callable[[PyTree, Array, Array, Array, str | None], PyTree]
    batch_size: int
    is_shared: bool = False
    longest: int | None = None
    identity: Mapping[str, Any] = {}
    digest: Callable[[], str] = lambda: ""
    examples_axis: int | None = None
    scalars: tuple[str, ...] = ()
    examples: PyTree = ()  # all of them, or those of the first batch of a stream
    cycle: Cycle | None = None
    num_data: int = 0

    @property
    def chain_axis(self) -> int | None:
        """The chain axis of the result of ``draw``."""
        return None if self.is_shared else 0

    def of_chain(self, data: PyTree, key: PRNGKey, iteration: Any = 0) -> PyTree:
        """The batch of the chain with this key in the first iteration of the data."""
        number = jnp.asarray(iteration, jnp.int32)
        drawn = self.draw(data, key[None], number, number, None)
        return drawn if self.is_shared else jax.tree.map(lambda leaf: leaf[0], drawn)

    def placement(self, axis: str | None) -> PartitionSpec:
        """Placement of the data of ``load`` on the mesh."""
        if axis is None or self.examples_axis is None:
            return PartitionSpec()
        if self.scalars:
            raise ValueError(
                f"stream: {', '.join(self.scalars)} in the batches of the stream has no axis that runs over the "
                "examples, along which batches are shared out over the devices. Repeat it for each example, or give "
                'the devices to the axis "chain".'
            )
        return PartitionSpec(*[None] * self.examples_axis, axis)


def make_feed(batches: Any, num_batches: int, num_data: int = 0) -> Feed | None:
    """Return the feed for an algorithm, None for one without batches; ``num_data`` is 0 where the target has none."""
    if num_batches == 0:
        if batches is not None:
            raise ValueError(
                "sample: this sampler takes no batches: its log density does not depend on data that are drawn anew. "
                "Leave batches out, or give sghmc or sgrld a Posterior. A sampler of your own, whose step takes a "
                "batch as third argument, says so by an attribute num_batches = 1."
            )
        return None
    if batches is None:
        raise ValueError(
            "sample: this sampler's target is a Posterior, which needs batches=gx.data.batches(data, batch_size=...)."
        )
    # the size of a user-defined stream is unknown
    found = batches.num_data if isinstance(batches, Batches | Shards) else num_data
    if num_data and found != num_data:
        raise ValueError(
            f"sample: the Posterior has num_data={num_data}, but the data of the batches have {found} examples; the "
            f"likelihood of a batch is scaled to num_data. Make the Posterior with num_data={found}, or the batches of "
            f"all {num_data} examples."
        )
    if isinstance(batches, Batches):
        return _device_feed(batches, num_batches)
    if isinstance(batches, Stream):
        return stream_feed(batches, num_batches, num_data, "sample")
    require_no_loader("sample", batches)
    raise TypeError(
        "sample: batches must come from gx.data.batches(data, batch_size=...) or gx.data.stream(start), where "
        "start(number) is an iterator that begins with the batch of that number; found a "
        f"{type(batches).__name__}."
    )


def _device_feed(batches: Batches, num_batches: int) -> Feed:
    # all chains get all examples, as they are
    is_shared = batches.batch_size == batches.num_data and batches.augment is None

    def draw(data: Batches, chain_keys: Array, iteration: Array, start: Array, axis: str | None = None) -> PyTree:
        del start
        if is_shared:
            whole = data.data if axis is None else Part(draw_part(data, chain_keys[0], iteration, axis), (axis,))
            return whole if num_batches == 1 else jax.tree.map(lambda x: jnp.stack([x] * num_batches), whole)

        def one(key: Array, index: Array) -> PyTree:
            return data.draw(key, index) if axis is None else Part(draw_part(data, key, index, axis), (axis,))

        keys = jax.vmap(lambda key: jax.random.fold_in(key, jnp.uint32(_DATA_INDEX)))(chain_keys)
        first = iteration * num_batches
        if num_batches == 1:
            return jax.vmap(one, (0, None))(keys, first)
        indices = first + jnp.arange(num_batches, dtype=first.dtype)
        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, indices)

    leaves = jax.tree.leaves(batches.data)
    shapes = [f"{leaf.shape} {leaf.dtype.name}" for leaf in leaves]
    return Feed(
        lambda start, stop: batches,
        draw,
        batches.batch_size,
        is_shared=is_shared,
        identity={
            "batch_size": batches.batch_size,
            "order": batches.order,
            "augmented": batches.augment is not None,
            "arrays": shapes,
        },
        digest=lambda: data_digest(batches.data),
        examples=batches.data,
        cycle=batches.cycle,
    )


def stream_feed(stream: Stream, num_batches: int, num_data: int, owner: str) -> Feed:
    """Return the feed of a stream; ``num_data`` is the number of examples that the target sums over, 0 if unknown."""
    first = stream.read(0, 1)
    stream.rewind()
    batch_size = min((leaf.shape[1] for leaf in jax.tree.leaves(first) if leaf.ndim > 1), default=1)
    unwarned = [num_data] if num_data else []
    bytes_each = num_batches * sum(leaf.nbytes for leaf in jax.tree.leaves(first))
    longest = int(np.clip(_STREAM_BYTES // max(bytes_each, 1), 1, _LONGEST_STREAM))

    def load(start: int, stop: int, part: slice = slice(None)) -> PyTree:
        count = max(stop - start, 1)
        read = own_part(stream, start * num_batches, count * num_batches, part)
        if part == slice(None):
            _require_alike(read, first, start * num_batches)
        if stream.num_an_epoch is not None and unwarned:
            _warn_of_size(owner, stream.num_an_epoch, batch_size, unwarned.pop())

        def laid_out(leaf: np.ndarray) -> np.ndarray:
            room = np.zeros((longest, num_batches, *leaf.shape[1:]), leaf.dtype)
            room[:count] = leaf.reshape(count, num_batches, *leaf.shape[1:])
            return room[:, 0] if num_batches == 1 else room

        return jax.tree.map(lambda leaf: jnp.asarray(laid_out(leaf)), read)

    def draw(data: PyTree, chain_keys: Array, iteration: Array, start: Array, axis: str | None = None) -> PyTree:
        del chain_keys
        batch = jax.tree.map(lambda leaf: leaf[iteration - start], data)
        return batch if axis is None else Part(batch, (axis,))

    shapes = [f"{leaf.shape[1:]} {leaf.dtype.name}" for leaf in jax.tree.leaves(first)]
    return Feed(
        load,
        draw,
        batch_size,
        is_shared=True,
        examples_axis=1 if num_batches == 1 else 2,
        scalars=tuple(name for name, leaf in named_leaves(first, "a number") if leaf.ndim == 1),
        longest=longest,
        identity={"arrays of a batch of the stream": shapes},
        digest=lambda: data_digest(first),
        examples=jax.tree.map(lambda leaf: leaf[0] if leaf.ndim > 1 else leaf, first),
    )


def make_step_feed(data: PyTree, batch_size: int | None, num_data: int | None) -> Feed:
    """Return the feed of a fit from arrays, or batches of :mod:`geodax.data`; ``num_data`` is for streams.

    Its ``draw`` takes one key, and its batches have no chain axis.
    """
    is_stream = isinstance(data, Stream)
    if batch_size is not None and (is_stream or isinstance(data, Batches)):
        raise ValueError(
            f"{_FIT}: the data are batches of a size of their own, but batch_size={_checks.described(batch_size)} is "
            "given too. Leave batch_size out, or give the arrays."
        )
    if num_data is not None:
        num_data = _checks.whole(_FIT, "num_data", num_data)
    if is_stream:
        known = data.num_data if isinstance(data, Shards) else num_data
        if known is None:
            raise ValueError(
                f"{_FIT}: a stream does not tell how many examples a pass has, and the bound is of all of them. Give "
                "num_data=."
            )
        found = _feed_of_stream(data, known)
    else:
        require_no_loader(_FIT, data)
        require_no_list(_FIT, data)
        found = _feed_of_batches(data) if isinstance(data, Batches) else _feed_of_arrays(data, batch_size)
    if num_data not in (None, found.num_data):
        raise ValueError(f"{_FIT}: num_data={num_data}, but the data have {found.num_data} examples. Leave it out.")
    return found


def _feed_of_arrays(data: PyTree, batch_size: int | None) -> Feed:
    if batch_size is not None:
        return _feed_of_batches(minibatches.batches(data, batch_size=batch_size))
    whole = minibatches.batches(data, batch_size=1)  # validates the data
    return Feed(
        lambda start, stop: whole.data,
        lambda data, key, iteration, start, axis: data,
        whole.num_data,
        identity={"batch_size": None},
        examples_axis=0,
        examples=whole.data,
        num_data=whole.num_data,
    )


def _feed_of_batches(given: Batches) -> Feed:
    def draw(data: Batches, key: PRNGKey, iteration: Array, start: Array, axis: str | None) -> PyTree:
        return data.draw(key, iteration) if axis is None else draw_part(data, key, iteration, axis)

    is_usual = given.order == "independent" and given.augment is None
    unusual = {} if is_usual else {"order of the batches": given.order, "augmented": given.augment is not None}
    return Feed(
        lambda start, stop: given,
        draw,
        given.batch_size,
        identity={"batch_size": given.batch_size, **unusual},
        examples=given.data,
        num_data=given.num_data,
    )


def _feed_of_stream(stream: Stream, num_data: int) -> Feed:
    feed = stream_feed(stream, 1, num_data, _FIT)
    return feed._replace(
        draw=lambda data, key, iteration, start, axis: feed.draw(data, key, iteration, start, None),
        identity={"num_data": num_data, **feed.identity},
        examples=jax.tree.map(jnp.asarray, feed.examples),
        num_data=num_data,
    )


def warn_unless_repeatable(stream: Any, owner: str) -> None:
    """Warn where a resumed run would get other batches than an uninterrupted one; others than streams are ignored."""
    if not isinstance(stream, Stream) or isinstance(stream, Shards):
        return
    second = jax.tree.map(lambda leaf: leaf[1:], stream.read(0, 2))
    if data_digest(second) != data_digest(stream.read(1, 1)):
        _checks.warn(
            f"{owner}: start(1) of the stream does not begin with the second batch of start(0), so a run that resumes "
            "from its checkpoint cannot go on with the batches that follow. Begin with the batch of the given number, "
            "and give what shuffles the data a seed."
        )
    stream.rewind()


def _warn_of_size(owner: str, num_batches: int, batch_size: int, num_data: int) -> None:
    """Warn unless a pass has the target's examples, up to a last batch left out or filled up."""
    if abs(num_batches * batch_size - num_data) >= batch_size:
        _checks.warn(
            f"{owner}: num_data is {num_data}, but a pass of the loader has {num_batches} batches of {batch_size}, "
            f"{num_batches * batch_size} examples; the likelihood of a batch is scaled to num_data. Give the number of "
            "examples that a pass goes through."
        )


def loader_of(feed: Feed | None, mesh: Mesh | None) -> Callable[[int, int], PyTree]:
    """Function that loads the data of a chunk onto every device; constant data are loaded once."""
    if feed is None:
        return lambda start, stop: ()
    if feed.longest is not None:
        placement, part = feed.placement(data_axis(mesh)), own_part_of(mesh, feed.batch_size)
        return lambda start, stop: put_part(
            feed.load(start, stop, part), mesh, placement, feed.examples_axis, part, feed.batch_size
        )
    data = put(feed.load(0, 0), mesh, feed.placement(data_axis(mesh)))
    return lambda start, stop: data


def _require_alike(read: PyTree, first: PyTree, number: int) -> None:
    """Raise ValueError if later batches have another structure than the first, for which the loop was compiled."""

    def kind(batches: PyTree) -> tuple:
        return jax.tree.structure(batches), [(leaf.shape[1:], leaf.dtype) for leaf in jax.tree.leaves(batches)]

    def described(batches: PyTree) -> str:
        named = named_leaves(batches, "an array")
        return ", ".join(f"{name} of shape {leaf.shape[1:]} and dtype {leaf.dtype}" for name, leaf in named)

    if kind(read) != kind(first):
        raise ValueError(
            "stream: all batches must have the same arrays with the same shapes and dtypes; the first batch has "
            f"{described(first)}, batch {number} has {described(read)}. Drop or fill up the last batch of a pass."
        )


def data_digest(*trees: PyTree) -> str:
    """A checksum of arrays: shapes, dtypes, and contents, in place if they are split over devices."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(trees):
        digest.update(f"{leaf.shape} {leaf.dtype}".encode())
        if isinstance(leaf, jax.Array) and not leaf.sharding.is_fully_replicated:
            digest.update(np.asarray(content_of(leaf)).tobytes())
        elif getattr(leaf, "is_fully_addressable", True):
            digest.update(np.ascontiguousarray(leaf).view(np.uint8).data)
    return digest.hexdigest()[:16]
