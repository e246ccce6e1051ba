"""Alignment of signs and order of the columns of a canonical correlation analysis.

The likelihood of a group is invariant under sign changes of a shared column in both views, sign changes of a column
specific to one view, and permutations of columns together with their scales. Draws are reported with the columns that
best match a reference: first one reference for all groups, then for each group the mean of its matched draws. The
matching is greedy: the pair of columns with the largest absolute inner product comes first.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from geodax.models.cca.density import CCAParameters
from geodax.models.pooling import thinned, with_variables

_PASSES = 3


class Frames(NamedTuple):
    """The four orthonormal matrices, of a group or of several.

    Attributes:
        shared_1: W of view 1.
        shared_2: W of view 2.
        own_1: B of view 1.
        own_2: B of view 2.
    """

    shared_1: Float[np.ndarray, "*groups n1 q"]
    shared_2: Float[np.ndarray, "*groups n2 q"]
    own_1: Float[np.ndarray, "*groups n1 k1"]
    own_2: Float[np.ndarray, "*groups n2 k2"]


FRAMES = Frames._fields


def match(
    draws: Float[np.ndarray, "*draws n p"], reference: Float[np.ndarray, "..."]
) -> tuple[Int[np.ndarray, "*draws p"], Float[np.ndarray, "*draws p"]]:
    """Match the columns of draws to those of a reference, whose leading axes are the last ones of the draws.

    Returns for each column of the reference the index of the draw's column, and its sign.
    """
    products = np.einsum("...np,...nk->...pk", draws, np.broadcast_to(reference, draws.shape))
    p = products.shape[-1]
    left = np.abs(products)
    order = np.zeros(products.shape[:-1], dtype=int)
    for _ in range(p):
        best = left.reshape(*left.shape[:-2], p * p).argmax(axis=-1)
        ours, theirs = best // p, best % p
        np.put_along_axis(order, theirs[..., None], ours[..., None], axis=-1)
        np.put_along_axis(left, ours[..., None, None], -1.0, axis=-2)
        np.put_along_axis(left, theirs[..., None, None], -1.0, axis=-1)
    chosen = np.take_along_axis(products, order[..., None, :], axis=-2)[..., 0, :]
    return order, np.where(chosen < 0, -1.0, 1.0)


def identified(draws: CCAParameters, reference: Frames) -> CCAParameters:
    """Align order and signs of the columns of draws, chain x draw x groups, with a reference without leading axes."""
    targets = reference
    for _ in range(_PASSES):
        draws = _matched(draws, targets)
        # only directions matter: the means need not be orthonormal
        targets = Frames(*(getattr(draws, name).mean(axis=(0, 1)) for name in FRAMES))
    return draws


def with_identified(posterior: Any, reference: Frames) -> Any:
    """Return a copy of a posterior with order and signs of the columns of all draws and common matrices aligned."""
    tree = thinned(posterior)
    group = tree["posterior"]
    changes = identified(CCAParameters(*(group[name].values for name in CCAParameters._fields)), reference)._asdict()
    if "common_shared_1" in group:
        common = matched_frames(Frames(*(group[f"common_{name}"].values for name in FRAMES)), reference)
        changes |= {f"common_{name}": frame for name, frame in common._asdict().items()}
    return with_variables(tree, **changes)


def matched_frames(draws: Frames, reference: Frames) -> Frames:
    """Align draws of single matrices, such as the common ones, to the order and signs of a reference."""
    return _aligned(draws, _matches(draws, reference))


def _matched(draws: CCAParameters, targets: Frames) -> CCAParameters:
    frames = Frames(*(np.asarray(getattr(draws, name)) for name in FRAMES))
    matches = _matches(frames, targets)
    changes = _aligned(frames, matches)._asdict()
    for frame, (order, _) in zip(FRAMES, matches, strict=True):
        name = frame.replace("_", "_scale_")
        changes[name] = np.take_along_axis(np.asarray(getattr(draws, name)), order, axis=-1)
    return draws._replace(**changes)


def _aligned(frames: Frames, matches: list[tuple[np.ndarray, np.ndarray]]) -> Frames:
    pairs = zip(frames, matches, strict=True)
    return Frames(*(_arranged(frame, order) * signs[..., None, :] for frame, (order, signs) in pairs))


def _matches(frames: Frames, reference: Frames) -> list[tuple[np.ndarray, np.ndarray]]:
    """Order and signs of the columns of each matrix, which are the same for both shared ones."""
    shared = match(_both(frames), _both(reference))
    return [shared, shared, *map(match, frames[2:], reference[2:])]


def _both(frames: Frames) -> np.ndarray:
    """Stack W of both views: a shared column has one sign and one position."""
    return np.concatenate([frames.shared_1, frames.shared_2], axis=-2)


def _arranged(frame: np.ndarray, order: np.ndarray) -> np.ndarray:
    return np.take_along_axis(frame, order[..., None, :], axis=-1)
