"""Formats numbers for reports and commands."""

import math


def rounded(value: float, digits: int = 3) -> str:
    """Round a number to significant digits, without a power of ten if that is short enough.

    Args:
        value: The number.
        digits: Number of significant digits.

    Returns:
        The text; a dash for NaN.
    """
    if not math.isfinite(value):
        return "∞" if value == math.inf else "–"
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    if -4 <= decimals <= digits + 4:
        return f"{round(value, decimals):.{max(decimals, 0)}f}".replace("-", "−")
    return f"{value:.{digits - 1}e}".replace("-", "−")


def digits_between(low: float, high: float, least: int) -> int:
    """Return the number of significant digits that resolve an interval, with two digits of its width.

    Args:
        low: The lower end.
        high: The upper end.
        least: Least number of digits, also used if the ends are not numbers.

    Returns:
        The number of digits, at most 15.
    """
    largest, width = max(abs(low), abs(high)), high - low
    if not (math.isfinite(largest) and width > 0):
        return least
    return min(max(least, math.floor(math.log10(largest)) - math.floor(math.log10(width)) + 2), 15)


def with_interval(median: float, low: float, high: float, *, unit: str = "", decimals: int | None = None) -> str:
    """Format a number with its interval, rounded to two digits of the interval's width.

    Args:
        median: The number.
        low: The interval's lower end.
        high: Its upper end.
        unit: Text after the interval.
        decimals: Number of decimals, instead of the rounding by width.

    Returns:
        Text such as ``1.23 [1.10, 1.37]``.
    """
    width = high - low
    if not (math.isfinite(median) and math.isfinite(width)):
        return "–"
    if decimals is None:
        if max(abs(low), abs(high)) >= 1e7 or width < 1e-6:
            digits = digits_between(low, high, 3)
            median_, low_, high_ = (rounded(value, digits) for value in (median, low, high))
            return f"{median_} [{low_}, {high_}]{unit}"
        decimals = max(0, 1 - math.floor(math.log10(width)))
    median, low, high = (round(value, decimals) + 0.0 for value in (median, low, high))
    text = f"{median:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]{unit}"
    return text.replace("-", "−")
