"""Trained networks whose dense layers become the nearest orthonormal or low-rank ones."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._types import PyTree
from geodax.data.errors import listed
from geodax.nn.adaptation import nodes_of, ranks_of
from geodax.nn.layers import LowRankLinear, OrthogonalLinear
from geodax.nn.priors import Pattern
from geodax.vi.dense import has_weight

_OWNER = "orthogonalize"


def orthogonalize(
    network: PyTree, *, rank: int | Sequence[int] | None = None, where: Pattern | Sequence[Pattern] | None = None
) -> Any:
    r"""Replace dense layers of a trained network by the nearest ones with orthonormal weights or factors.

    With the singular values :math:`W = U \mathrm{diag}(s) V^T`, the nearest multiple of a matrix with orthonormal rows
    or columns is :math:`\bar s U V^T` (Schönemann 1966, Psychometrika 31), and the nearest matrix of rank r keeps the
    first r (Eckart and Young 1936, Psychometrika 1), in the Frobenius norm.

    Args:
        network: An Equinox module with :class:`equinox.nn.Linear` layers.
        rank: None for :class:`~geodax.nn.OrthogonalLinear` layers; or the rank of
            :class:`~geodax.nn.LowRankLinear` layers, one number or one for each pattern.
        where: Pattern of the paths of layers, or several, as for :func:`~geodax.nn.adapt`; None means all.

    Returns:
        The network with the new layers, which start a sampler with ``manifold=gx.nn.geometry(network)``. Biases are
        kept, as is the function of a layer whose weight has that form.

    Raises:
        ValueError: If there is no such layer, a pattern matches none, a weight is zero or non-finite, or the rank
            exceeds that of a weight.

    Example:
        ``start = gx.nn.orthogonalize(trained, where="layers.0")``
    """
    named, structure = nodes_of(network)
    dense = {name: node for name, node in named if _is_replaceable(node)}
    if not dense:
        raise ValueError(
            f"{_OWNER}: expected a network with equinox.nn.Linear layers, found "
            f"{listed([name for name, _ in named]) or 'no arrays'}."
        )
    ranks = ranks_of(_OWNER, network, dense, 1 if rank is None else rank, where)

    def replaced(name: str, node: Any) -> Any:
        if name not in ranks:
            return node
        weight = _checks.numbers(_OWNER, name, node.weight).astype(np.float64)
        if not np.isfinite(weight).all():
            raise ValueError(f"{_OWNER}: the weight of {name!r} has entries that are not finite.")
        u, s, vt = np.linalg.svd(weight, full_matrices=False)
        least = 1 if rank is None else ranks[name]
        found = int(np.sum(s > s[0] * max(weight.shape) * jnp.finfo(node.weight.dtype).eps))
        if least > found:
            raise ValueError(f"{_OWNER}: the weight of {name!r} has rank {found}; expected at least {least}.")
        m, n = weight.shape
        form = {"use_bias": node.use_bias, "dtype": node.weight.dtype, "key": jax.random.key(0)}
        if rank is None:
            layer = OrthogonalLinear(n, m, gain=float(s.mean()), **form)
            return _filled(layer, node, weight=u @ vt if m >= n else (u @ vt).T)
        gaps = s[:least] - np.append(s[1:least], 0.0)
        log_gaps = np.log(np.maximum(gaps, s[0] * np.finfo(np.float32).tiny))  # equal singular values have none
        layer = LowRankLinear(n, m, rank=least, **form)
        return _filled(layer, node, left=u[:, :least], right=vt[:least].T, log_gaps=log_gaps)

    return structure.unflatten([replaced(name, node) for name, node in named])


def _is_replaceable(node: Any) -> bool:
    is_linear = isinstance(node, eqx.nn.Linear)
    return is_linear and "scalar" not in (node.in_features, node.out_features) and has_weight(node)


def _filled(layer: Any, node: Any, **values: np.ndarray) -> Any:
    arrays = [jnp.asarray(value, node.weight.dtype) for value in values.values()]
    layer = eqx.tree_at(lambda layer: [getattr(layer, name) for name in values], layer, arrays)
    return layer if node.bias is None else eqx.tree_at(lambda layer: layer.bias, layer, node.bias)
