"""Draws in the type that the installed version of ArviZ takes, and its functions under one name."""

from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float


def to_arviz(draws: xr.DataTree) -> Any:
    """Convert draws for the functions of ArviZ, such as ``az.summary``, ``az.loo`` and ``az.compare``.

    Args:
        draws: Draws of :func:`geodax.sample`, of :func:`geodax.interop.numpyro.sample`, or of a store.

    Returns:
        The same draws as an ``arviz.InferenceData`` for ArviZ 0.23, as a DataTree for ArviZ 1.x. Axes without labels
        are numbered, which some plots of ArviZ 1.x need. Arrays of JAX, as in a group of your own, become NumPy's.

    Raises:
        ImportError: If ArviZ is not installed.
    """
    import arviz

    inference_data = vars(arviz).get("InferenceData")  # ArviZ 1.x warns where its attribute is asked for
    groups = {name: _numbered(group.to_dataset()) for name, group in draws.items()}
    if inference_data is None:
        return draws.assign({name: xr.DataTree(group) for name, group in groups.items()})
    return inference_data(attrs=draws.attrs, **groups)


def pareto_smoothed(log_weights: Float[np.ndarray, " draw"]) -> tuple[Float[np.ndarray, " draw"], float]:
    """Smooth the tail of importance weights, given by their logarithms, by a generalised Pareto distribution.

    Returns logarithms of weights that sum to 1, and the shape k of the tail; raises ImportError without ArviZ.
    """
    try:
        from arviz_stats.base import array_stats  # pyright: ignore[reportMissingImports]  # of ArviZ 1.x
    except ImportError:
        from arviz import psislw

        smoothed, k = psislw(np.array(log_weights))
    else:
        smoothed, k = array_stats.psislw(-log_weights)  # of log likelihoods, which are minus log weights
    smoothed = np.asarray(smoothed)
    return smoothed - np.logaddexp.reduce(smoothed), float(k)


def _writeable(variable: xr.DataArray) -> xr.DataArray:
    """ArviZ 0.23 writes to copies, but those of JAX arrays are read-only; draws on disk are not loaded."""
    is_of_jax = isinstance(getattr(variable.variable, "_data", None), jax.Array)
    return variable.copy(data=np.array(variable.data)) if is_of_jax else variable


def _numbered(group: xr.Dataset) -> xr.Dataset:
    group = group.assign({name: _writeable(variable) for name, variable in group.items()})
    return group.assign_coords({axis: np.arange(n) for axis, n in group.sizes.items() if axis not in group.coords})
