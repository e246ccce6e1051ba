r"""Low-rank adapters of dense layers: what is added to a weight of m x n.

With the *singular value decomposition* as parameters the update is :math:`U \mathrm{diag}(s) V^T` with orthonormal U
and V and free s. U and V are uniform a priori, so the prior of the update does not change under rotations of the
layer's inputs and outputs, whatever the prior of s is. The scales have signs and no order: the
:math:`4^r r!` decompositions of an update (signs and permutations) have the same density, and a chain passes from one
to the other through s = 0, where the update is zero and U and V have their prior. With positive ordered scales, as in
:class:`~geodax.nn.LowRankLinear`, s = 0 would be a boundary, and the prior that makes a matrix Gaussian is zero there.

The *polar* coordinates of the same distribution are free matrices with independent standard normal entries, whose
orthonormal polar factors are U and V. They suit methods that add steps or noise to free arrays.

The *bottleneck* is a product of two free matrices (LoRA), for comparison.

Sources:
    Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang and Chen (2022), LoRA: low-rank adaptation of large language models.
    ICLR.
    Yanush and Kropotov (2019), section 3.4.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox.nn import Linear
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, PRNGKey, PyTree
from geodax.geometry.linalg import polar_factor
from geodax.geometry.manifolds import AbstractManifold
from geodax.nn.densities import AbstractStructuredPrior, Haar
from geodax.nn.layers import BottleneckLinear, LowRankLinear, OrthogonalLinear, orthonormal, with_manifolds
from geodax.nn.structure import AbstractStructured
from geodax.vi.stand_ins import AbstractStandIn

DENSE = (Linear, OrthogonalLinear, LowRankLinear, BottleneckLinear)


class SVDAdapter(AbstractStructured):
    """An update with orthonormal factors; it starts at zero, with uniformly distributed factors.

    Attributes:
        left: m x rank with orthonormal columns.
        right: n x rank with orthonormal columns.
        scales: Factors of the columns, of any sign.
    """

    left: Float[Array, "m rank"]
    right: Float[Array, "n rank"]
    scales: Float[Array, " rank"]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.left @ (self.scales * (x @ self.right))

    @property
    def matrix(self) -> Float[Array, "m n"]:
        """Return the update."""
        return (self.left * self.scales[None]) @ self.right.T

    def manifolds(self, stiefel: AbstractManifold) -> PyTree:
        return with_manifolds(self, stiefel, "left", "right")

    def structured_priors(self) -> Mapping[str, AbstractStructuredPrior]:
        """Return the priors: uniform factors. Rules of :class:`~geodax.nn.Priors` give that of the scales."""
        return {"left": Haar(), "right": Haar()}


class PolarAdapter(eqx.Module):
    """The update of :class:`SVDAdapter` in free coordinates.

    Attributes:
        left: m x rank, of which only the orthonormal polar factor counts.
        right: n x rank, likewise.
        scales: Factors of the columns, of any sign.
    """

    left: Float[Array, "m rank"]
    right: Float[Array, "n rank"]
    scales: Float[Array, " rank"]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.svd(x)

    @property
    def matrix(self) -> Float[Array, "m n"]:
        """Return the update."""
        return self.svd.matrix

    @property
    def svd(self) -> SVDAdapter:
        """Return the adapter with orthonormal factors."""
        left, right = (polar_factor(_tree.widened(z)).astype(z.dtype) for z in (self.left, self.right))
        return SVDAdapter(left, right, self.scales)


class BottleneckAdapter(eqx.Module):
    """A product of two dense layers without biases, of which the second starts at zero.

    Attributes:
        down: From n numbers to rank numbers.
        up: From rank numbers to m numbers.
    """

    down: Linear
    up: Linear

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.up(self.down(x))

    @property
    def matrix(self) -> Float[Array, "m n"]:
        """Return the update."""
        return self.up.weight @ self.down.weight


class AdaptedLinear(AbstractStandIn):
    """A dense layer with an adapter beside it.

    Attributes:
        layer: The layer.
        adapter: Its adapter.
    """

    layer: Any
    adapter: Any

    def __call__(self, x: Float[Array, "..."], *, key: PRNGKey | None = None) -> Float[Array, "..."]:
        """Apply the layer to one vector, or to a number if it takes numbers."""
        y = self.layer(x, key=key)
        return y + self.adapter(jnp.ravel(x)).reshape(y.shape)


def svd_adapter(key: PRNGKey, m: int, n: int, rank: int, dtype: Any) -> SVDAdapter:
    """Draw uniform factors with scales of zero, in single precision at least: half precision is not orthonormal."""
    key_left, key_right = jax.random.split(key)
    dtype = _tree.widened(jnp.zeros((), dtype)).dtype
    left, right = orthonormal(key_left, m, rank, dtype), orthonormal(key_right, n, rank, dtype)
    return SVDAdapter(left, right, jnp.zeros(rank, dtype))


def polar_adapter(key: PRNGKey, m: int, n: int, rank: int, dtype: Any) -> PolarAdapter:
    """Draw standard normal factors with scales of zero."""
    key_left, key_right = jax.random.split(key)
    left, right = jax.random.normal(key_left, (m, rank), dtype), jax.random.normal(key_right, (n, rank), dtype)
    return PolarAdapter(left, right, jnp.zeros(rank, dtype))


def bottleneck_adapter(key: PRNGKey, m: int, n: int, rank: int, dtype: Any) -> BottleneckAdapter:
    """Initialise the first layer as Equinox does; the second is zero."""
    key_down, key_up = jax.random.split(key)
    down = Linear(n, rank, use_bias=False, dtype=dtype, key=key_down)
    up = Linear(rank, m, use_bias=False, dtype=dtype, key=key_up)
    return BottleneckAdapter(down, eqx.tree_at(lambda layer: layer.weight, up, jnp.zeros_like(up.weight)))


ADAPTERS = {"svd": svd_adapter, "polar": polar_adapter, "bottleneck": bottleneck_adapter}


def is_dense(node: object) -> bool:
    """Whether a node of a pytree is a dense layer without randomness."""
    return isinstance(node, DENSE)


def weight_of(node: Any) -> Any:
    """Return the matrix of a dense layer, outputs x inputs; an array is its own."""
    if not is_dense(node):
        return node
    if isinstance(node, BottleneckLinear):
        return node.left @ node.right
    return node.weight if isinstance(node, Linear) else node.matrix


def with_weight(node: Any, weight: Float[Array, "m n"]) -> Any:
    """Return an ordinary dense layer with the weight and the bias of a layer; for an array the weight."""
    if not is_dense(node):
        return weight
    if not isinstance(node, Linear):
        m, n = weight.shape
        plain = Linear(n, m, use_bias=node.bias is not None, dtype=weight.dtype, key=jax.random.key(0))
        node = plain if node.bias is None else eqx.tree_at(lambda layer: layer.bias, plain, node.bias)
    return eqx.tree_at(lambda layer: layer.weight, node, weight)
