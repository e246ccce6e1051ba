"""Draws on manifolds as findings see them: orthonormal matrices, unit vectors and angles, known by their values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from geodax.diagnostics.finding import Finding
from geodax.diagnostics.summary import SummaryRow, row_names
from geodax.run.blocks import are_orthonormal, draw_blocks

_NEAR_CUT = 0.5  # radians


def are_frames(values: Any) -> bool:
    """Whether the draws (chain, draw, ...) are orthonormal matrices, or several of them each, as in a plate."""
    places = np.ndindex(*values.shape[2:-2])
    return all(are_orthonormal(values[(slice(None), slice(None), *place)]) for place in places)


def are_unit_vectors(values: Any) -> bool:
    """Whether the last axis of the draws (chain, draw, ...) holds unit vectors."""
    if len(values.shape) < 3 or values.shape[-1] < 2 or values.dtype.kind != "f":
        return False
    return all(np.abs(np.linalg.norm(block, axis=-1) - 1).max() < 1e-3 for _, block in draw_blocks(values))


def cut_angles(draws: Mapping[str, Any], rows: Sequence[SummaryRow]) -> Iterator[Finding]:
    """Yield a note on angles between -pi and pi with draws near both ends, which are one place on the circle."""
    at_ends = {r.name for r in rows if r.quantile_5 < _NEAR_CUT - np.pi and r.quantile_95 > np.pi - _NEAR_CUT}
    names = [
        name
        for name, values in draws.items()
        if at_ends
        and values.dtype.kind == "f"
        and not at_ends.isdisjoint(row_names(name, values.shape[2:]))
        and all(np.abs(block).max() < np.pi + 1e-6 for _, block in draw_blocks(values))
    ]
    if names:
        yield Finding(
            "note",
            "Angles on both sides of the cut",
            f"{', '.join(f'`{name}`' for name in names)} lies between -pi and pi with draws near both, which are "
            "neighbours if these are angles: means, standard deviations and quantiles then depend on the cut.",
            "Summarise `gx.diagnostics.align_angles` of the draws, or their cosines and sines.",
        )
