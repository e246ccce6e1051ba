"""Draws in the type that the installed version of ArviZ takes."""

from typing import Any

import xarray as xr


def to_arviz(draws: xr.DataTree) -> Any:
    """Convert draws for the functions of ArviZ, such as ``az.summary``, ``az.loo`` and ``az.compare``.

    Args:
        draws: Draws of :func:`geodax.sample`, of :func:`geodax.interop.numpyro.sample`, or of a store.

    Returns:
        The same draws as an ``arviz.InferenceData`` for ArviZ 0.23; the DataTree itself for ArviZ 1.x, which takes it.

    Raises:
        ImportError: If ArviZ is not installed.
    """
    import arviz

    inference_data = vars(arviz).get("InferenceData")  # ArviZ 1.x warns where its attribute is asked for
    if inference_data is None:
        return draws
    return inference_data(attrs=draws.attrs, **{name: group.to_dataset() for name, group in draws.items()})
