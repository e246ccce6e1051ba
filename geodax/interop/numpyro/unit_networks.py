r"""The ReLU network with unit vectors for weights in NumPyro (Pourzanjani et al. 2021, section 6.1).

This is the model of :class:`geodax.models.UnitNetworkRegressor` as an ordinary NumPyro model. It works with every
NumPyro algorithm; copy and edit it to change parts. A unit vector is a matrix with one column on ``stiefel(n, 1)``,
whose coordinates are Givens angles.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from geodax._types import Array
from geodax.geometry.transforms import Givens
from geodax.interop.numpyro.distributions import StiefelUniform


def unit_network(
    inputs: Any,
    targets: Any = None,
    *,
    num_hidden: int = 4,
    weights: Literal["unit", "free"] = "unit",
    bias: Literal["joint", "separate"] = "joint",
    centers: Any = None,
    bias_scale: float = 1.0,
    output_scale: float = 2.0,
    intercept_scale: float = 1.0,
    noise_scale: float = 1.0,
    weight_scale: float = 1.0,
) -> None:
    r"""Rows :math:`y \sim N(a + \sum_h v_h \max\{0, w_h^T x + b_h\}, \sigma^2)`.

    The sites are ``units`` (H x K x 1 on the spheres, or H x K normal), ``output``, ``intercept``, ``noise`` and,
    with separate biases, ``bias``; ``weights`` and the other ``bias`` are deterministic. With ``centers`` each unit
    is a site of its own, ``units_0`` and so on, and ``units`` is deterministic. Standardise the data first.

    Args:
        inputs: Rows x D.
        targets: One number per row; None for predictions.
        num_hidden: Number of hidden units H.
        weights: ``"unit"`` or ``"free"``.
        bias: ``"joint"``: weight and bias of a unit are one vector of K = D + 1 entries. ``"separate"``: K = D.
        centers: H x K unit vectors, each the middle of the chart of one unit, for guides and samplers that need the
            mode there. None: the cuts of all charts are at their default positions.
        bias_scale: Scale of the distances of the hinges from the centre (joint), or of the biases (separate).
        output_scale: Prior standard deviation of the output weights times ``sqrt(num_hidden)``.
        intercept_scale: Prior standard deviation of the intercept.
        noise_scale: Scale of the half-normal prior of the noise.
        weight_scale: Prior standard deviation of free weights.

    Raises:
        ValueError: For inputs that are not a matrix, unknown options, and centers of another shape.
    """
    x = jnp.asarray(inputs)
    if x.ndim != 2:
        raise ValueError(f"unit_network: expected inputs of shape (rows, columns), found shape {x.shape}.")
    if weights not in ("unit", "free") or bias not in ("joint", "separate"):
        raise ValueError(
            f"unit_network: weights must be 'unit' or 'free' and bias 'joint' or 'separate', found {weights!r} and "
            f"{bias!r}."
        )
    num_inputs = x.shape[1]
    size = num_inputs + (bias == "joint")
    if weights == "free":
        units: Any = numpyro.sample("units", dist.Normal(0.0, weight_scale).expand([num_hidden, size]).to_event(2))
    else:
        units = _unit_vectors(num_hidden, size, centers)
    if bias == "joint":
        shift: Any = numpyro.deterministic("bias", bias_scale * num_inputs**0.5 * units[:, -1])
        slopes = numpyro.deterministic("weights", units[:, :-1])
    else:
        shift = numpyro.sample("bias", dist.Normal(0.0, bias_scale).expand([num_hidden]).to_event(1))
        slopes = numpyro.deterministic("weights", units)
    scale = output_scale / num_hidden**0.5
    output: Any = numpyro.sample("output", dist.Normal(0.0, scale).expand([num_hidden]).to_event(1))
    intercept: Any = numpyro.sample("intercept", dist.Normal(0.0, intercept_scale))
    noise: Any = numpyro.sample("noise", dist.HalfNormal(noise_scale))
    mean = intercept + jax.nn.relu(x @ jnp.asarray(slopes).T + shift) @ output
    numpyro.deterministic("mean", mean)
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(mean, noise), obs=None if targets is None else jnp.asarray(targets))


def _unit_vectors(num_hidden: int, size: int, centers: Any) -> Array:
    """Unit vectors, H x K, uniform."""
    if size < 2:
        raise ValueError(
            "unit_network: with one input a unit vector of weights is only a sign; use bias='joint', which makes "
            "weight and bias together a unit vector."
        )
    if centers is None:
        with numpyro.plate("hidden", num_hidden):
            return jnp.asarray(numpyro.sample("units", StiefelUniform(size, 1)))[..., 0]
    middle = np.asarray(centers)
    if middle.shape != (num_hidden, size):
        raise ValueError(f"unit_network: expected centers of shape {(num_hidden, size)}, found {middle.shape}.")
    vectors: list[Any] = [
        numpyro.sample(f"units_{h}", StiefelUniform(size, 1, chart=Givens(size, 1, center=middle[h][:, None])))
        for h in range(num_hidden)
    ]
    return jnp.asarray(numpyro.deterministic("units", jnp.concatenate(vectors, axis=1).T))
