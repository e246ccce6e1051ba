r"""Ordered classes: the cumulative logit (proportional odds) model.

With cut points :math:`c_1 < \dots < c_{K-1}` and the network's output f,

.. math::
    P(y \le k \mid x) = \sigma(c_k - f(x)).

The cut points sum to zero, since the network's last bias shifts f; their spacings :math:`c_{k+1} - c_k =
e^{\text{log\_spacings}_k}` are parameters. For two classes this is logistic regression on f.

Source:
    McCullagh (1980), Regression models for ordinal data. JRSS B 42.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, PyTree


class WithCutPoints(eqx.Module):
    """A network with one output, and cut points between ordered classes.

    Calling it returns the log probabilities of the classes, which are logits for
    :class:`~geodax.nn.CategoricalLikelihood` and :func:`~geodax.predict.predictive.predict_classes`.

    Args:
        network: The network, with a scalar output.
        num_classes: Number of classes.
        dtype: Dtype of the parameters ``log_spacings`` (num_classes - 2), which are initially 0; None for two classes.
    """

    network: PyTree
    log_spacings: Float[Array, " spacings"] | None  # no array of size zero, which stores cannot hold

    def __init__(self, network: PyTree, num_classes: int, *, dtype: Any = jnp.float32):
        self.network = network
        number = _checks.whole("WithCutPoints", "num_classes", num_classes, least=2)
        self.log_spacings = jnp.zeros(number - 2, dtype) if number > 2 else None

    def __call__(self, *args: Any, **kwargs: Any) -> Float[Array, " classes"]:
        """Return the log probabilities of the classes for one example."""
        output = _tree.widened(self.network(*args, **kwargs))
        if output.shape != ():
            raise ValueError(
                f"WithCutPoints: expected a network with one scalar output (out_features='scalar'), found shape "
                f"{output.shape}."
            )
        if self.log_spacings is None:
            return jnp.stack([jax.nn.log_sigmoid(-output), jax.nn.log_sigmoid(output)])
        log_spacings = _tree.widened(self.log_spacings).astype(output.dtype)
        cuts = jnp.concatenate([jnp.zeros(1, output.dtype), jnp.cumsum(jnp.exp(log_spacings))])
        ends = cuts - jnp.mean(cuts) - output
        below, above = jax.nn.log_sigmoid(ends), jax.nn.log_sigmoid(-ends)
        # s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), which does not cancel in the tails
        between = below[1:] + above[:-1] + jnp.log(-jnp.expm1(-jnp.exp(log_spacings)))
        return jnp.concatenate([below[:1], between, above[-1:]])
