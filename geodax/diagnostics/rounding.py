"""Findings about rounding errors: draws off the manifold, log densities and numbers beyond their precision.

A proposal is accepted by a difference of log densities. Each is rounded to about eps * abs(log density), so that the
chain has the rounded density instead. With a constant of 1e7 in a normal log density in single precision the variances
by ``hmc`` were 3 % too large, with 2e7 8 %, and with 1e8 34 %; with 5e6 and less no error was measured. If the terms of
a sum are large but not the sum, warm-up shortens the steps until a number no longer changes when they are added.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from geodax._wording import in_python
from geodax.diagnostics.finding import Finding, share
from geodax.diagnostics.summary import SummaryRow, statistic

_LARGEST, _SEVERE = 0.3, 1.0  # of the rounding of the log density
_NARROWEST, _WIDEST = 4, 1e4  # standard deviations of all draws, in roundings of the mean
_TITLE = "Beyond the precision of the numbers"


def off_manifold(stats: Mapping[str, np.ndarray], bound: float | None) -> Iterator[Finding]:
    """Yield a finding if draws are further from the manifold than the bound, or than rounding explains."""
    residual = statistic(stats, "residual")
    if residual is None:
        return
    if bound is None:
        bound = float(np.finfo(residual.dtype).eps) ** (2 / 3)
    is_off = ~(residual <= bound)
    if is_off.any():
        yield Finding(
            "severe",
            "Draws off the manifold",
            f"{share(is_off)} are further from the manifold than {bound:.1e}, the furthest one by "
            f"{residual.max():.1e}; rounding in {residual.dtype} alone stays below that.",
            "Sample in double precision, or use a smaller step size; project stored draws with `manifold.nearest`.",
        )


def rounded_density(stats: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Yield a finding if an exact sampler knows its log density, in the dtype of the run, too roughly."""
    density = statistic(stats, "logdensity")
    if density is None or density.dtype.kind != "f" or statistic(stats, "acceptance_rate") is None:
        return
    middle = float(np.median(density))
    rounding = float(np.finfo(density.dtype).eps) * abs(middle)
    if rounding > _LARGEST:
        yield Finding(
            "severe" if rounding > _SEVERE else "warning",
            _TITLE,
            f"The log density is about {middle:.2g}, which {density.dtype} rounds to {rounding:.2g}; at most "
            f"{_LARGEST} was expected. Rounding errors decide on the proposals: draws spread too far, or chains hardly "
            "move.",
            _advice(),
        )


def equal_but_for_rounding(
    draws: Mapping[str, Any], stats: Mapping[str, np.ndarray], rows: Sequence[SummaryRow]
) -> Iterator[Finding]:
    """Yield a finding if chains of an exact sampler keep values that differ in the last digits only."""
    if statistic(stats, "acceptance_rate") is None:
        return
    names = []
    for row in rows:
        values = draws.get(row.name.partition("[")[0])
        if values is None or values.dtype.kind != "f" or not np.isposinf(row.rhat):
            continue
        rounding = np.finfo(values.dtype).eps * abs(row.mean)
        if _NARROWEST * rounding < row.sd <= _WIDEST * rounding:
            names.append(f"`{row.name}` ({values.dtype})")
    if names:
        yield Finding(
            "severe",
            _TITLE,
            f"{len(names)} of {len(rows)} numbers, first {names[0]}, have one value in each chain, and those of the "
            "chains differ in the last digits only: steps are too small to change them, since rounding errors of the "
            "log density decide on the proposals.",
            _advice(),
        )


def _advice() -> str:
    precise = in_python(', or use double precision: `jax.config.update("jax_enable_x64", True)`')
    return (
        "Leave out factors of the density without parameters, subtract a constant from each term before the terms are "
        f"summed, or centre the data{precise}."
    )
