"""Feed a variational fit: all data in every step, batches drawn inside the compiled loop, or a stream of the host."""

import jax
import jax.numpy as jnp

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree
from geodax.data.minibatches import Batches, Stream, batches, require_no_list, require_no_loader
from geodax.data.parts import draw_part
from geodax.data.shard_files import Shards
from geodax.run.feeding import Feed, stream_feed

_OWNER = "vi.fit"


def make_step_feed(data: PyTree, batch_size: int | None, num_data: int | None) -> Feed:
    """Return the feed of a fit from arrays, or batches of :mod:`geodax.data`; ``num_data`` is for streams.

    Its ``draw`` takes one key, and its batches have no chain axis.
    """
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
        require_no_loader(_OWNER, data)
        require_no_list(_OWNER, data)
        found = _of_batches(data) if isinstance(data, Batches) else _of_arrays(data, batch_size)
    if num_data not in (None, found.num_data):
        raise ValueError(f"{_OWNER}: num_data={num_data}, but the data have {found.num_data} examples. Leave it out.")
    return found


def _of_arrays(data: PyTree, batch_size: int | None) -> Feed:
    if batch_size is not None:
        return _of_batches(batches(data, batch_size=batch_size))
    whole = batches(data, batch_size=1)  # validates the data
    return Feed(
        lambda start, stop: whole.data,
        lambda data, key, iteration, start, axis: data,
        whole.num_data,
        identity={"batch_size": None},
        examples_axis=0,
        examples=whole.data,
        num_data=whole.num_data,
    )


def _of_batches(given: Batches) -> Feed:
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


def _of_stream(stream: Stream, num_data: int) -> Feed:
    feed = stream_feed(stream, 1, num_data, _OWNER)
    return feed._replace(
        draw=lambda data, key, iteration, start, axis: feed.draw(data, key, iteration, start, None),
        identity={"num_data": num_data, **feed.identity},
        examples=jax.tree.map(jnp.asarray, feed.examples),
        num_data=num_data,
    )
