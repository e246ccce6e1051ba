"""Functions of rows, evaluated at the draws of a canonical correlation analysis."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from geodax.models import pooling
from geodax.models.cca import density as cca_density
from geodax.models.cca.density import CCAParameters
from geodax.models.cca.inputs import Rows


def over_rows(function: Callable[..., Any], draws: CCAParameters, rows: Rows) -> np.ndarray:
    """Evaluate a function of parameters and rows at each draw.

    Args:
        function: As :func:`geodax.models.cca.density.latent_mean`.
        draws: Parameters with a leading axis.
        rows: The rows.

    Returns:
        The function's values, with a leading axis for the draws.
    """
    return pooling.over_rows(function, draws, rows.values, rows.places, rows.observed)


def drawn_rows(seed: int, draws: CCAParameters, rows: Rows) -> Float[np.ndarray, "draw m n"]:
    """Draw rows given their observed columns.

    Args:
        seed: Seed of the draws.
        draws: Parameters with a leading axis.
        rows: The rows.

    Returns:
        All columns, newly drawn, one set of rows for each draw.
    """
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), len(draws.noise_1))
    return pooling.over_rows(
        lambda item, *given: cca_density.draw_rows(item[0], item[1], *given),
        (keys, draws),
        rows.values,
        rows.places,
        rows.observed,
    )
