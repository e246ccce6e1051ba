"""Feed a variational fit: all data in every step, batches drawn inside the compiled loop, or a stream of the host."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree
from geodax.data.minibatches import Batches, Stream, batches, require_no_list
from geodax.data.parts import draw_part
from geodax.data.shard_files import Shards
from geodax.run.feeding import Feed, loader_of, stream_feed
from geodax.run.sharding import data_axis, put

_OWNER = "vi.fit"


class StepFeed(NamedTuple):
    """The batches of a fit.

    Attributes:
        examples: All of them, or those of the first batch of a stream.
        batch: Arrays of the shapes of a batch.
        num_data: Number of examples that the bound sums over.
        draw: ``(data, key, iteration, start, axis) -> batch`` within the compiled loop; with the name of a mesh axis,
            this device's part of it.
        placement: From a mesh to the placement of the data.
        data: Data that are placed once, or the feed of a stream.
        facts: What must be equal for a fit to be resumed, by name.
    """

    examples: PyTree
    batch: PyTree
    num_data: int
    batch_size: int
    draw: Callable[[Any, PRNGKey, Array, Array, str | None], PyTree]
    placement: Callable[[Mesh | None], PartitionSpec]
    data: PyTree | Feed
    facts: Mapping[str, Any]

    @property
    def longest(self) -> int | None:
        """The largest number of steps of a chunk, or None."""
        return self.data.longest if isinstance(self.data, Feed) else None

    def loader(self, mesh: Mesh | None) -> Callable[[int, int], PyTree]:
        """Function ``(start, stop) -> data`` that is called before each chunk of steps."""
        if isinstance(self.data, Feed):
            return loader_of(self.data, mesh)
        fed = put(self.data, mesh, self.placement(mesh))
        return lambda start, stop: fed


def make_step_feed(data: PyTree, batch_size: int | None, num_data: int | None) -> StepFeed:
    """Return the feed of a fit from arrays, or batches of :mod:`geodax.data`; ``num_data`` is for streams."""
    is_stream = isinstance(data, Stream)
    if batch_size is not None and (is_stream or isinstance(data, Batches)):
        raise ValueError(
            f"{_OWNER}: the data are batches of a size of their own, but batch_size={_checks.described(batch_size)} is "
            "given too. Leave batch_size out, or give the arrays."
        )
    if num_data is not None:
        num_data = _checks.whole(_OWNER, "num_data", num_data)
    if is_stream:
        known = data.num_data if isinstance(data, Shards) else num_data
        if known is None:
            raise ValueError(
                f"{_OWNER}: a stream does not tell how many examples a pass has, and the bound is of all of them. Give "
                "num_data=."
            )
        found = _of_stream(data, known)
    else:
        require_no_list(_OWNER, data)
        found = _of_batches(data) if isinstance(data, Batches) else _of_arrays(data, batch_size)
    if num_data not in (None, found.num_data):
        raise ValueError(f"{_OWNER}: num_data={num_data}, but the data have {found.num_data} examples. Leave it out.")
    return found


def _of_arrays(data: PyTree, batch_size: int | None) -> StepFeed:
    if batch_size is not None:
        return _of_batches(batches(data, batch_size=batch_size))
    whole = batches(data, batch_size=1)  # validates the data
    return StepFeed(
        whole.data,
        whole.data,
        whole.num_data,
        whole.num_data,
        lambda data, key, iteration, start, axis: data,
        lambda mesh: PartitionSpec(data_axis(mesh)),
        whole.data,
        {"batch_size": None},
    )


def _of_batches(given: Batches) -> StepFeed:
    def draw(data: Batches, key: PRNGKey, iteration: Array, start: Array, axis: str | None) -> PyTree:
        return data.draw(key, iteration) if axis is None else draw_part(data, key, iteration, axis)

    is_usual = given.order == "independent" and given.augment is None
    unusual = {} if is_usual else {"order of the batches": given.order, "augmented": given.augment is not None}
    return StepFeed(
        given.data,
        jax.eval_shape(given.draw, jax.random.key(0), jnp.int32(0)),
        given.num_data,
        given.batch_size,
        draw,
        lambda mesh: PartitionSpec(),
        given,
        {"batch_size": given.batch_size, **unusual},
    )


def _of_stream(stream: Stream, num_data: int) -> StepFeed:
    feed = stream_feed(stream, 1, num_data, _OWNER)
    examples = jax.tree.map(jnp.asarray, feed.examples)
    return StepFeed(
        examples,
        examples,
        num_data,
        feed.batch_size,
        lambda data, key, iteration, start, axis: feed.draw(data, key[None], iteration, start, None),
        lambda mesh: feed.placement(data_axis(mesh)),
        feed,
        {"num_data": num_data, **feed.identity},
    )
