"""Numbers as reports and commands write them."""

import math


def rounded(value: float, digits: int = 3) -> str:
    """A number to some significant digits, without powers of ten where it reads better so.

    Args:
        value: The number.
        digits: Its significant digits.

    Returns:
        The number, or a dash where it is not one.
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
    """Significant digits with which numbers between two ends can be told apart, as two digits of their distance need.

    Args:
        low: The lower end.
        high: The upper end.
        least: Digits where the ends are not near each other, or no numbers.

    Returns:
        The digits, 15 at most.
    """
    largest, width = max(abs(low), abs(high)), high - low
    if not (math.isfinite(largest) and width > 0):
        return least
    return min(max(least, math.floor(math.log10(largest)) - math.floor(math.log10(width)) + 2), 15)


def with_interval(median: float, low: float, high: float, *, unit: str = "", decimals: int | None = None) -> str:
    """A number with its interval, rounded to two digits of the interval's width.

    Args:
        median: The number.
        low: The interval's lower end.
        high: Its upper end.
        unit: Written after the interval.
        decimals: Rounds to so many instead.

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
