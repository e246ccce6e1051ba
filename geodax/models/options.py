"""The options that estimators share: checks of them, and what becomes of those of a run."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from geodax import _checks as _arguments
from geodax.run.locks import require_no_links
from geodax.run.sharding import as_mesh

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


def require_targets(owner: str, y: Any) -> None:
    """Raise ValueError for targets of pandas that are missing, on which scikit-learn's own checks stumble.

    Args:
        owner: The estimator, for the message.
        y: What was handed over as targets.
    """
    if hasattr(y, "isna"):
        is_missing = np.asarray(y.isna(), bool).ravel()
    elif getattr(y, "dtype", None) == np.dtype(object):
        is_missing = np.array([type(value).__name__ == "NAType" for value in np.ravel(y)], bool)
    else:
        return
    if is_missing.any():
        raise ValueError(
            f"{owner}: Input y contains NaN or another sign of a missing value, in {int(is_missing.sum())} of "
            f"{is_missing.size} rows, the first of them row {int(np.argmax(is_missing))} (counted from 0). Leave these "
            "rows out of X and y."
        )


def require_positive(estimator: Any, *names: str) -> None:
    """Raise TypeError or ValueError unless the named options of an estimator are positive numbers.

    Args:
        estimator: The estimator.
        *names: Its options.
    """
    for name in names:
        _arguments.number(type(estimator).__name__, name, getattr(estimator, name), above=0.0)


def run_options(estimator: Any) -> dict[str, Any]:
    """What an estimator with an exact sampler hands on to :func:`geodax.sample`: counts, folder, devices, progress.

    Args:
        estimator: The estimator.

    Returns:
        Arguments of :func:`geodax.sample` by name.

    Raises:
        TypeError: If the devices are none.
        ValueError: If the chains cannot be shared out evenly among them.
    """
    owner = type(estimator).__name__
    num_chains = _arguments.whole(owner, "num_chains", estimator.num_chains)
    as_mesh(owner, num_chains, estimator.devices, None)
    return {
        "num_samples": estimator.num_samples,
        "num_warmup": estimator.num_warmup,
        "num_chains": num_chains,
        **kept_in(estimator.checkpoint),
        "devices": estimator.devices,
        "progress": estimator.progress,
    }


def kept_in(folder: str | Path | None) -> dict[str, Any]:
    """Where in a run folder draws and checkpoints go.

    Args:
        folder: The run folder, or None.

    Returns:
        Arguments of :func:`geodax.sample` by name.

    Raises:
        StorageError: If one of them is or holds a symbolic link.
    """
    if folder is None:
        return {"store": None, "checkpoint": None}
    places = {"store": Path(folder) / "posterior.zarr", "checkpoint": Path(folder) / "checkpoint"}
    for place in places.values():
        require_no_links(place)
    return places
