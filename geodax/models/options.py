"""Checks of the options shared by estimators, and their conversion to arguments of a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.utils import check_random_state

from geodax import _checks
from geodax._types import LogDensity, Position, PRNGKey
from geodax._wording import argument
from geodax.geometry.manifolds import AbstractManifold
from geodax.mcmc.nuts import nuts
from geodax.run.locks import require_no_links
from geodax.run.sample import sample
from geodax.run.sharding import as_mesh

_LARGEST_SEED = 2**32 - 1
_MOST_ITERATIONS = 10**9


def seed_of(estimator: Any) -> int:
    """Return the seed of a fit, an integer of 31 bits, from the estimator's ``random_state``."""
    state = estimator.random_state
    if state is not None and not isinstance(state, np.random.RandomState):
        state = _checks.whole(type(estimator).__name__, "random_state", state, least=0, most=_LARGEST_SEED)
    return int(check_random_state(state).randint(0, 2**31 - 1))


def require_targets(owner: str, y: Any) -> None:
    """Raise ValueError for missing values, which scikit-learn's own checks do not find among names, nor in pandas."""
    if hasattr(y, "isna"):
        is_missing = np.asarray(y.isna(), bool).ravel()
    elif y is None or hasattr(y, "toarray") or getattr(getattr(y, "dtype", None), "kind", "O") != "O":
        return
    else:
        is_missing = _checks.missing(np.asarray(y, dtype=object))
    if is_missing.any():
        raise ValueError(
            f"{owner}: Input y contains NaN or another missing value in {int(is_missing.sum())} of "
            f"{is_missing.size} rows, the first of them row {int(np.argmax(is_missing))} (counted from 0). Drop these "
            "rows from X and y."
        )


def require_positive(estimator: Any, *names: str) -> None:
    """Raise TypeError or ValueError unless the named options of an estimator are positive numbers."""
    for name in names:
        _checks.number(type(estimator).__name__, name, getattr(estimator, name), above=0.0)


def require_count(estimator: Any, name: str, most: int, why: str) -> None:
    """Raise ValueError unless an option is an integer from 1 to ``most``; ``why`` explains this number."""
    owner = type(estimator).__name__
    number = _checks.whole(owner, name, getattr(estimator, name), least=-_checks.LARGEST)
    if not 1 <= number <= most:
        raise ValueError(f"{owner}: {argument(name)} must be an integer from 1 to {most} ({why}), found {number}.")


def require_numbers(owner: str, settings: Any, *counts: str) -> None:
    """Raise TypeError or ValueError for a step size or a count out of range; None is a batch size chosen later."""
    if settings.step_size is not None:
        _checks.number(owner, "step_size", settings.step_size, above=0.0)
    for name in counts:
        if name != "batch_size" or settings.batch_size is not None:
            _checks.whole(owner, name, getattr(settings, name), most=_MOST_ITERATIONS)


def run_options(estimator: Any) -> dict[str, Any]:
    """Return the arguments that an exact sampler's estimator passes to :func:`geodax.sample`, by name."""
    owner = type(estimator).__name__
    num_chains = _checks.whole(owner, "num_chains", estimator.num_chains)
    as_mesh(owner, num_chains, estimator.devices, None)
    return {
        "num_samples": _checks.whole(owner, "num_samples", estimator.num_samples),
        "num_warmup": _checks.whole(owner, "num_warmup", estimator.num_warmup, least=0),
        "num_chains": num_chains,
        **kept_in(estimator.checkpoint),
        "devices": estimator.devices,
        "progress": estimator.progress,
    }


def sampled(
    estimator: Any,
    seed: int,
    logdensity_fn: LogDensity,
    start: Callable[[PRNGKey], Position],
    *,
    manifold: AbstractManifold | None,
    keep: Callable[[Position], Any] | None = None,
    thinning: int = 1,
) -> Any:
    """Sample a posterior by NUTS in double precision, with the options of an estimator."""
    with jax.enable_x64(True):
        algorithm = nuts(logdensity_fn, manifold=manifold, target_acceptance_rate=estimator.target_acceptance_rate)
        key, options = jax.random.key(seed), run_options(estimator)
        return sample(key, algorithm, start, keep=keep, thinning=thinning, **options)


def kept_in(folder: str | Path | None) -> dict[str, Any]:
    """Return the paths of draws and checkpoints within a run folder as arguments of :func:`geodax.sample`, by name.

    Raises StorageError if one of them is, or contains, a symbolic link.
    """
    if folder is None:
        return {"store": None, "checkpoint": None}
    for name in ("posterior.zarr", "posterior.zarr.lock", "checkpoint"):
        require_no_links(Path(folder) / name)
    return {"store": Path(folder) / "posterior.zarr", "checkpoint": Path(folder) / "checkpoint"}
