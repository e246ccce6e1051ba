r"""Hierarchical canonical correlation analysis in NumPyro (Pourzanjani et al. 2021, section 6.3).

This is the model of :class:`geodax.models.HierarchicalCCA` as an ordinary NumPyro model. It works with every NumPyro
algorithm; copy and edit it to change parts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from geodax._types import Array
from geodax.geometry.transforms import Givens
from geodax.interop.numpyro.distributions import StiefelUniform


def hierarchical_cca(
    views: Sequence[Any],
    groups: Any,
    *,
    reference: Mapping[str, Any],
    mean_scale: float = 5.0,
    scale_scale: float = 1.0,
    noise_scale: float = 1.0,
    spread_scale: float = 0.5,
) -> None:
    """Two views of rows in groups, with orthonormal matrices whose angles are normal around common ones.

    Columns should have mean 0 and, within groups, variance about 1. Sites: ``common_*`` (orthonormal), ``spread_*``,
    ``deviation_*`` for each of ``shared_1``, ``shared_2``, ``own_1``, ``own_2``; scales, noise and means of the groups;
    the groups' matrices are deterministic.

    Args:
        views: Two matrices with the same rows.
        groups: The group of each row, 0, 1, 2, ...
        reference: Orthonormal matrices for the middles of the charts of angles, by the four names; their columns
            determine the number of latent variables. ``HierarchicalCCA`` computes them from the data (``reference_``).
        mean_scale: Prior standard deviation of the means.
        scale_scale: Scale of the half-normal prior of the scales, over the square root of the number of columns.
        noise_scale: Scale of the half-normal prior of the noise.
        spread_scale: Scale of the half-normal prior of the spreads, in radians.

    Raises:
        ValueError: If the views do not have the same rows, or a reference is missing.
    """
    first, second = (jnp.asarray(view) for view in views)
    members = np.asarray(groups)
    if first.ndim != 2 or second.ndim != 2 or not len(first) == len(second) == len(members):
        raise ValueError(
            "hierarchical_cca: expected two matrices and one group for each of their rows, found shapes "
            f"{first.shape}, {second.shape} and {members.shape}."
        )
    names = ("shared_1", "shared_2", "own_1", "own_2")
    missing = [name for name in names if name not in reference]
    if missing:
        raise ValueError(f"hierarchical_cca: the reference has no {', '.join(missing)}.")
    num_groups = int(members.max()) + 1
    columns: list[Array] = []
    for name in names:
        center = jnp.asarray(reference[name])
        n, p = center.shape
        chart = Givens(n, p, center=center)
        common: Any = numpyro.sample(f"common_{name}", StiefelUniform(n, p, chart=chart))
        spread: Any = numpyro.sample(f"spread_{name}", dist.HalfNormal(spread_scale))
        count = n * p - p * (p + 1) // 2
        deviation: Any = numpyro.sample(
            f"deviation_{name}", dist.Normal(0.0, 1.0).expand([num_groups, count]).to_event(2)
        )
        # angles are not truncated: longitudes continue around the circle, latitudes across a pole
        angles = chart.decompose(common) + spread * deviation
        frames = numpyro.deterministic(name, jax.vmap(chart.compose)(angles))
        scale = dist.HalfNormal(scale_scale * n**0.5).expand([num_groups, p]).to_event(2)
        scales: Any = numpyro.sample(name.replace("_", "_scale_"), scale)
        columns.append(frames * scales[:, None, :])
    noises, means = [], []
    for v, view in ((1, first), (2, second)):
        n = view.shape[1]
        noise: Any = numpyro.sample(f"noise_{v}", dist.HalfNormal(noise_scale).expand([num_groups]).to_event(1))
        mean: Any = numpyro.sample(f"mean_{v}", dist.Normal(0.0, mean_scale).expand([num_groups, n]).to_event(2))
        noises.append(jnp.broadcast_to(noise[:, None] ** 2, mean.shape))
        means.append(mean)
    shared_1, shared_2, own_1, own_2 = columns
    top = jnp.concatenate([shared_1, own_1, jnp.zeros((*own_1.shape[:2], own_2.shape[2]))], axis=2)
    bottom = jnp.concatenate([shared_2, jnp.zeros((*own_2.shape[:2], own_1.shape[2])), own_2], axis=2)
    loadings = jnp.concatenate([top, bottom], axis=1)
    noise, mean = jnp.concatenate(noises, axis=1), jnp.concatenate(means, axis=1)
    with numpyro.plate("rows", len(members)):
        distribution = dist.LowRankMultivariateNormal(mean[members], loadings[members], noise[members])
        numpyro.sample("x", distribution, obs=jnp.concatenate([first, second], axis=1))
