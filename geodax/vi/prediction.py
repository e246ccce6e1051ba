"""Outputs of a fitted network for draws of its weights."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree
from geodax.vi.modules import Rows, draw


def predict(key: PRNGKey, network: PyTree, x: Array, *, num_samples: int = 64) -> Float[Array, "draws examples ..."]:
    """Compute outputs for the rows of x with independent draws of the weights.

    Args:
        key: A PRNG key.
        network: A network that contains variational modules, or a posterior over a network.
        x: Examples, one per row.
        num_samples: Number of draws.

    Returns:
        The network's outputs, stacked by draw. Layers also draw different weights for every row: each row's outputs
        have the right distribution, but correlations between rows are not those of one function.
    """
    key, x = _checks.random_key("vi", key), _examples(x)
    num_samples = _checks.whole("vi", "num_samples", num_samples)
    if not callable(network):
        raise TypeError(f"vi: expected a network, a function of one example, found {_checks.described(network)}.")

    def once(key: PRNGKey) -> Array:
        drawn: Any = draw(network, key)
        return drawn.rows(x) if isinstance(drawn, Rows) else jax.vmap(drawn)(x)

    return jax.lax.map(once, jax.random.split(key, num_samples))


def sample_functions(
    key: PRNGKey, network: PyTree, x: Array, *, num_samples: int = 64
) -> Float[Array, "draws examples ..."]:
    """Compute outputs for the rows of x where each draw is one function, with the same weights for all rows.

    Args:
        key: A PRNG key.
        network: As for :func:`predict`.
        x: Examples, one per row.
        num_samples: Number of draws.

    Returns:
        The network's outputs, stacked by draw. Layers with normal weights draw these weights, whereas :func:`predict`
        draws their outputs. A :class:`~geodax.nn.InducingPointGP` has no weights: its values at all rows are drawn
        jointly, in time cubic in the number of rows.

    Raises:
        TypeError: If the network is not callable.
        ValueError: If x has no rows, or the network calls an :class:`~geodax.nn.InducingPointGP` several times.
    """
    key, x = _checks.random_key("vi", key), _examples(x)
    num_samples = _checks.whole("vi", "num_samples", num_samples)
    if not callable(network):
        raise TypeError(f"vi: expected a network, a function of one example, found {_checks.described(network)}.")

    def once(key: PRNGKey) -> Array:
        drawn: Any = draw(network, key)
        return drawn.jointly(x) if isinstance(drawn, Rows) else jax.vmap(drawn)(x)

    return jax.lax.map(once, jax.random.split(key, num_samples))


def _examples(x: Any) -> Array:
    """Convert examples as :func:`geodax.vi.fit` does; integers, such as word indices, stay integers."""
    plain = x if isinstance(x, jax.Array) else _checks.plain("vi", "x", x)
    x = jnp.asarray(plain) if jnp.issubdtype(plain.dtype, jnp.integer) else _checks.array("vi", "x", plain)
    if not x.ndim or not x.size:
        raise ValueError(f"vi: expected one example per row, found an array of shape {x.shape}.")
    return x
