"""Formats numbers for reports and commands, as people write them: 23,400 and not 2.34e+04."""

import math

import numpy as np

from geodax.diagnostics.summary import SummaryRow

_LONGEST = 10  # digits before the decimal point, above which a power of ten is shorter


def rounded(value: float, digits: int = 3) -> str:
    """Round a number to significant digits, with commas between thousands; powers of ten only for extreme numbers.

    NaN is a dash.
    """
    if not math.isfinite(value):
        return "∞" if value == math.inf else "–"
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if digits - _LONGEST <= decimals <= digits + 4:
        return f"{round(value, decimals):,.{max(decimals, 0)}f}".replace("-", "−")
    return f"{value:.{digits - 1}e}".replace("-", "−")


def digits_between(low: float, high: float, least: int) -> int:
    """Return the number of significant digits, at most 15, that resolve an interval, with two digits of its width.

    ``least`` is also used if the ends are not numbers.
    """
    largest, width = max(abs(low), abs(high)), high - low
    if not (math.isfinite(largest) and width > 0):
        return least
    return min(max(least, math.floor(math.log10(largest)) - math.floor(math.log10(width)) + 2), 15)


def with_interval(median: float, low: float, high: float, *, unit: str = "", decimals: int | None = None) -> str:
    """Format a number with its interval, as ``1.23 [1.10, 1.37]``, rounded to decimals or two digits of the width."""
    width = high - low
    if not (math.isfinite(median) and math.isfinite(width)):
        return "–"
    if decimals is None and (max(abs(low), abs(high)) >= 1e7 or width < 1e-6):
        digits = digits_between(low, high, 3)
        middle, *ends = (rounded(value, digits) for value in (median, low, high))
    else:
        shown = max(0, 1 - math.floor(math.log10(width))) if decimals is None else decimals
        middle, *ends = (_fixed(value, shown) for value in (median, low, high))
    return f"{middle} {between(*ends)}{unit}"


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}".replace("-", "−")


def between(low: str, high: str) -> str:
    """Write an interval: ``[1.10, 1.37]``, or for numbers that have commas themselves ``[23,400 to 24,100]``."""
    return f"[{low} to {high}]" if "," in low + high else f"[{low}, {high}]"


def with_error(value: float, error: float) -> str:
    """Format a number with its standard error, as ``0.86 ± 0.03``, rounded to two digits of the error.

    The error of a number without one is NaN or 0.
    """
    if not math.isfinite(value):
        return rounded(value)
    if not (math.isfinite(error) and error > 1e-12 * abs(value)):  # at most an error of rounding
        return rounded(value)
    decimals = 1 - math.floor(math.log10(error))
    if decimals > 6 or abs(value) >= 10**_LONGEST:
        return f"{rounded(value, digits_between(value - error, value + error, 3))} ± {rounded(error, 2)}"
    return " ± ".join(_fixed(x, decimals) for x in (value, error))


def agreement(row: SummaryRow) -> tuple[str, str]:
    """Format bulk ESS and R-hat of a row of a summary; a dash for one that is undefined."""
    return whole(row.ess_bulk), three_decimals(row.rhat)


def whole(value: float) -> str:
    """Format a number without decimals; a dash for NaN."""
    return f"{value:.0f}" if math.isfinite(value) else "–"


def three_decimals(value: float) -> str:
    """Format a number with three decimals; a dash for NaN."""
    return f"{value:.3f}" if math.isfinite(value) else rounded(value)


def interval_of(draws: np.ndarray, unit: str = "") -> str:
    """Format the median of draws with their 90 % interval."""
    low, median, high = (float(q) for q in np.quantile(draws, (0.05, 0.5, 0.95)))
    return with_interval(median, low, high, unit=unit)
