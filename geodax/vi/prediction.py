"""Outputs of a fitted network for draws of its weights."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree
from geodax.vi.application import apply_network
from geodax.vi.modules import Rows, draw


def predict(
    key: PRNGKey,
    network: PyTree,
    x: Array,
    *,
    apply: Callable[[Any, Array], Array] = apply_network,
    num_samples: int = 64,
) -> Float[Array, "draws examples ..."]:
    """Compute outputs for the rows of x with independent draws of the weights.

    Args:
        key: A PRNG key.
        network: A network that contains variational modules, or a posterior over a network or another position, such as
            ``fit.network``.
        x: Examples, one per row.
        apply: ``(position, x) -> outputs``, as in the likelihood of the fit, where drawn positions are not networks of
            one example: parameters of Flax or Haiku, or one part of ``equinox.partition``.
        num_samples: Number of draws.

    Returns:
        The outputs, stacked by draw. Layers also draw different weights for every row: each row's outputs have the
        right distribution, but correlations between rows are not those of one function.

    Raises:
        TypeError: If the network is not callable, and there is no ``apply``.
        ValueError: If x has no rows, or ``apply`` does not return one row for each of them.
    """
    return _over_draws(key, network, x, num_samples, apply)


def sample_functions(
    key: PRNGKey,
    network: PyTree,
    x: Array,
    *,
    apply: Callable[[Any, Array], Array] = apply_network,
    num_samples: int = 64,
) -> Float[Array, "draws examples ..."]:
    """Compute outputs for the rows of x where each draw is one function, with the same weights for all rows.

    Args:
        key: A PRNG key.
        network: As for :func:`predict`.
        x: Examples, one per row.
        apply: As for :func:`predict`.
        num_samples: Number of draws.

    Returns:
        The outputs, stacked by draw. Layers with normal weights draw these weights, whereas :func:`predict` draws their
        outputs. A :class:`~geodax.nn.InducingPointGP` has no weights: its values at all rows are drawn jointly, in time
        cubic in the number of rows.

    Raises:
        TypeError: As for :func:`predict`.
        ValueError: As for :func:`predict`, or if the network calls an :class:`~geodax.nn.InducingPointGP` several
            times.
    """

    def once(drawn: Any, x: Array) -> Array:
        return drawn.jointly(x, apply) if isinstance(drawn, Rows) else apply(drawn, x)

    return _over_draws(key, network, x, num_samples, once)


def _over_draws(key: Any, network: PyTree, x: Any, num_samples: Any, once: Callable[[Any, Any], Any]) -> Any:
    key, x = _checks.random_key("vi", key), _examples(x)
    num_samples = _checks.whole("vi", "num_samples", num_samples)

    def rows(key: PRNGKey) -> Any:
        outputs = once(draw(network, key), x)
        if any(leaf.shape[:1] != x.shape[:1] for leaf in jax.tree.leaves(outputs)):
            raise ValueError(
                f"vi: expected apply to return an array whose first axis runs over the {len(x)} examples, found "
                f"shape {jax.tree.leaves(outputs)[0].shape}. A function of one example needs jax.vmap."
            )
        return outputs

    return jax.lax.map(rows, jax.random.split(key, num_samples))


def _examples(x: Any) -> Array:
    """Convert examples as :func:`geodax.vi.fit` does; integers, such as word indices, stay integers."""
    plain = x if isinstance(x, jax.Array) else _checks.plain("vi", "x", x)
    x = jnp.asarray(plain) if jnp.issubdtype(plain.dtype, jnp.integer) else _checks.array("vi", "x", plain)
    if not x.ndim or not x.size:
        raise ValueError(f"vi: expected one example per row, found an array of shape {x.shape}.")
    return x
