"""Checks of the options that estimators share."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from geodax import _arguments

_LARGEST_SEED = 2**32 - 1


def seed_of(owner: str, random_state: Any) -> int:
    """The seed of all randomness of a fit.

    Args:
        owner: The estimator, for the message.
        random_state: A whole number, a NumPy RandomState, or None.

    Returns:
        A whole number of 31 bits.

    Raises:
        TypeError: If it is none of them.
        ValueError: If the number is negative or has more than 32 bits.
    """
    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        random_state = _arguments.whole(owner, "random_state", random_state, least=0, most=_LARGEST_SEED)
    return int(check_random_state(random_state).randint(0, 2**31 - 1))


def require_positive(estimator: Any, *names: str) -> None:
    """Raise TypeError or ValueError unless the named options of an estimator are positive numbers.

    Args:
        estimator: The estimator.
        *names: Its options.
    """
    for name in names:
        _arguments.number(type(estimator).__name__, name, getattr(estimator, name), above=0.0)
