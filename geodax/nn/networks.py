"""Ready-made networks of dense layers; the convolutional ones are in :mod:`geodax.nn.convolutional`."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from equinox.nn import Linear
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey
from geodax.nn.layers import BottleneckLinear, LowRankLinear, OrthogonalLinear, check_sizes


class MLP(eqx.Module):
    """Dense layers with an activation between them, and no normalisation.

    The likelihood of an example depends only on that example, as a posterior requires. Normalisation is hardly needed:
    with the fan-in scales of :class:`~geodax.nn.Priors`, or with orthonormal weights, signals keep their scale through
    a few layers. The last layer always has ordinary weights, because orthonormal weights could not scale the logits
    (Yanush and Kropotov 2019, section 3.3).

    Args:
        in_features: Number of entries of an input, which may have any shape.
        out_features: Number of outputs, or ``"scalar"`` for an output of shape ().
        widths: Numbers of units of the hidden layers.
        activation: Applied after every layer but the last.
        orthogonal: Whether the hidden layers have orthonormal weights.
        rank: Ranks of the hidden layers' weights, one number for all of them or one per layer, where None means full.
        factorization: Storage of low-rank weights: ``"svd"``, on Stiefel manifolds (:class:`~geodax.nn.LowRankLinear`),
            or ``"bottleneck"``, as two ordinary factors.
        gain: Fixed factor of orthonormal weights.
        dtype: Dtype of the parameters; inputs should have the same.
        key: PRNG key for the initial parameters.

    Example:
        The networks of sections 3.3 and 3.5 of Yanush and Kropotov (2019):
        ``MLP(784, 10, widths=(300, 300), orthogonal=True, key=key)`` and
        ``MLP(784, 10, widths=(784, 784), rank=(100, 10), key=key)``.
    """

    layers: tuple[Callable[..., Array], ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int | str,
        *,
        widths: Sequence[int] = (300, 300),
        activation: Callable[[Array], Array] = jax.nn.relu,
        orthogonal: bool = False,
        rank: int | np.integer | Sequence[int | None] | None = None,
        factorization: str = "svd",
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        widths = widths.tolist() if isinstance(widths, np.ndarray) else widths
        if not isinstance(widths, Sequence) or isinstance(widths, str | bytes):
            raise TypeError(f"MLP: widths must be integers such as (300, 300), found {_checks.described(widths)}.")
        named = {f"widths[{i}]": width for i, width in enumerate(widths)}
        in_features, *widths = check_sizes("MLP", in_features=in_features, **named)
        if isinstance(out_features, str):
            _checks.chosen("MLP", "out_features", out_features, ("scalar",))
        else:
            (out_features,) = check_sizes("MLP", out_features=out_features)
        rank = checked_rank("MLP", rank)
        _checks.function("MLP", "activation", activation)
        key, dtype = _checks.random_key("MLP", key), _checks.real_dtype("MLP", dtype)
        ranks = rank if isinstance(rank, tuple) else (rank,) * len(widths)
        if len(ranks) != len(widths):
            raise ValueError(f"MLP: {len(widths)} hidden layers need as many ranks, found {len(ranks)}.")
        if orthogonal and any(r is not None for r in ranks):
            raise ValueError("MLP: choose one of orthogonal=True and rank=...")
        _checks.chosen("MLP", "factorization", factorization, ("svd", "bottleneck"))
        low_rank = LowRankLinear if factorization == "svd" else BottleneckLinear
        keys = jax.random.split(key, len(widths) + 1)
        layers: list[Callable[..., Array]] = []
        for i, (inputs, outputs) in enumerate(zip([in_features, *widths], widths, strict=False)):
            layer_rank = ranks[i]
            if orthogonal:
                layers.append(OrthogonalLinear(inputs, outputs, gain=gain, dtype=dtype, key=keys[i]))
            elif layer_rank is not None:
                layers.append(low_rank(inputs, outputs, rank=layer_rank, dtype=dtype, key=keys[i]))
            else:
                layers.append(Linear(inputs, outputs, dtype=dtype, key=keys[i]))
        last: Any = out_features
        layers.append(Linear([in_features, *widths][-1], last, dtype=dtype, key=keys[-1]))
        self.layers, self.activation = tuple(layers), activation

    def __call__(self, x: Float[Array, "..."], *, key: PRNGKey | None = None) -> Float[Array, "..."]:
        """Compute the outputs for one example."""
        *hidden, last = self.layers
        x = jnp.ravel(_checks.array("MLP", "x", x))
        expected = getattr(self.layers[0], "in_features", x.size)
        if x.size != expected:
            raise ValueError(f"MLP: expected one example of {expected} numbers, found {x.size}; use jax.vmap for many.")
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


def checked_rank(owner: str, rank: Any) -> int | tuple[Any, ...] | None:
    """The rank of all hidden layers, a tuple of one a layer, or None for full rank."""
    rank = rank.tolist() if isinstance(rank, np.ndarray) else rank
    if isinstance(rank, list | tuple):
        return tuple(rank)  # the layers check them
    return None if rank is None else _checks.whole(owner, "rank", rank)
