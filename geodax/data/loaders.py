"""Streams from the data loaders of other libraries: PyTorch, TensorFlow, Grain, Hugging Face."""

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from geodax import _checks
from geodax.data.minibatches import Stream, stream


def from_loader(passes: Callable[[int], Iterable[Any]] | Iterable[Any]) -> Stream:
    """Create a stream from a data loader, which ends after each pass through the data and begins again.

    Args:
        passes: An iterable over the batches of a pass, which can be iterated again: a ``torch.utils.data.DataLoader``,
            a batched ``tf.data.Dataset``, ``grain.IterDataset`` or ``datasets.IterableDataset``. Or a function from the
            number of a pass (0, 1, ...) to such an iterable, which should set the seed of the order from that number: a
            resumed run is bit-identical only if each pass has the same batches when it is read again. Batches are
            pytrees of NumPy arrays or of tensors on the host, all of the same shapes (``drop_last=True``).

    Returns:
        The stream, for ``sample(..., batches=...)``. A run that resumes skips the batches before its own, whole passes
        at once if the loader has a length.

    Raises:
        TypeError: If ``passes`` is neither iterable nor a function of one argument.
        ValueError: If it is an iterator, which cannot begin again.
    """
    if isinstance(passes, Iterator):
        raise ValueError(
            "from_loader: found an iterator, which ends after one pass and cannot resume; pass the loader itself, or a "
            "function from the number of a pass to a loader."
        )
    if isinstance(passes, Iterable):
        return _as_stream(lambda _: passes)
    try:
        inspect.signature(passes).bind(0)
    except (TypeError, ValueError):
        raise TypeError(
            "from_loader: expected a loader, or a function from the number of a pass to a loader, found "
            f"{_checks.described(passes)}."
        ) from None
    return _as_stream(passes)


def _as_stream(passes: Callable[[int], Iterable[Any]]) -> Stream:
    made = stream(lambda first: _batches(passes, first, made))
    return made


def _batches(passes: Callable[[int], Iterable[Any]], first: int, made: Stream) -> Iterator[Any]:
    """Yield the batches of all passes from batch number ``first`` on, and tell the stream how many a pass has."""
    for number in itertools.count():
        count = 0
        loader = passes(number)
        try:
            length = len(loader)  # type: ignore[arg-type]
        except TypeError:
            length = None
        made.num_an_epoch = made.num_an_epoch if length is None else length
        if length is not None and first >= length > 0:
            first -= length
            continue
        for count, batch in enumerate(loader, 1):  # noqa: B007
            if first:
                first -= 1
            else:
                yield batch
        if not count:
            raise ValueError(f"from_loader: the loader has no batch in pass {number}.")
        made.num_an_epoch = count
