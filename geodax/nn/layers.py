r"""Dense layers with orthonormal and with low-rank weights.

Like Equinox's layers, all layers act on one example; use ``jax.vmap`` for batches. Ordinary dense and convolution
layers are Equinox's own, :class:`equinox.nn.Linear` and :class:`equinox.nn.Conv2d`.

A weight o x i is *orthonormal* if its rows are, or its columns if there are more rows than columns. Both are stored as
an n x p matrix with orthonormal columns, n = max and p = min of the two, a point of the Stiefel manifold (Yanush and
Kropotov 2019, section 3.3).

A *low-rank* weight is stored as its singular value decomposition :math:`U \mathrm{diag}(s) V^T` with orthonormal U and
V and :math:`s_1 > \dots > s_r > 0` (section 3.4 there). The scales are cumulative sums of the exponentials of r free
numbers, starting from the smallest, so the sampler does not have to enforce order or sign; the decomposition is unique
up to common signs of the columns of U and V.
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, PyTree
from geodax.geometry.manifolds import AbstractManifold, Euclidean
from geodax.geometry.transforms.ordered import ordered_scales
from geodax.nn.densities import AbstractStructuredPrior, Haar, SingularValues
from geodax.nn.structure import AbstractStructured


class Sized(eqx.Module):
    """A dense layer with random weights that has its sizes as attributes, as Equinox's have."""

    weight: eqx.AbstractVar[Any]

    @property
    def in_features(self) -> int:
        """Number of inputs."""
        return getattr(self.weight, "location", self.weight).shape[-1]

    @property
    def out_features(self) -> int:
        """Number of outputs."""
        return getattr(self.weight, "location", self.weight).shape[-2]


class OrthogonalLinear(AbstractStructured):
    """A dense layer whose weight has orthonormal rows or columns.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        use_bias: Whether a bias is added; it is an ordinary parameter.
        gain: A fixed factor of the weight. Orthonormal weights preserve lengths and ReLU halves squared lengths, so
            ``sqrt(2)`` preserves the scale of deep ReLU networks.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial weight, which is uniformly distributed.

    Attributes:
        weight: n x p with orthonormal columns, n = max(out, in) and p = min(out, in).
        bias: out, or None.
    """

    weight: Float[Array, "n p"]
    bias: Float[Array, " out"] | None
    in_features: int = eqx.field(static=True)
    out_features: int = eqx.field(static=True)
    gain: float = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features = check_sizes("OrthogonalLinear", in_features=in_features, out_features=out_features)
        self.weight = orthonormal(key, out_features, in_features, dtype)
        self.bias = jnp.zeros(out_features, dtype) if use_bias else None
        self.in_features, self.out_features = in_features, out_features
        self.gain = _checks.number("OrthogonalLinear", "gain", gain)

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector("OrthogonalLinear", x, self.in_features)
        y = self.weight @ x if self.out_features >= self.in_features else x @ self.weight
        return _affine(y, self.gain, self.bias)

    @property
    def matrix(self) -> Float[Array, "out_features in_features"]:
        """Return the matrix that multiplies the input, including the gain."""
        return self.gain * (self.weight if self.out_features >= self.in_features else self.weight.T)

    def manifolds(self, stiefel: AbstractManifold) -> PyTree:
        return with_manifolds(self, stiefel, "weight")

    def structured_priors(self) -> Mapping[str, AbstractStructuredPrior]:
        return {"weight": Haar()}


class LowRankLinear(AbstractStructured):
    """A dense layer with weight ``left @ diag(scales) @ right.T`` of a given rank.

    Its default prior is that of a Gaussian matrix of that rank (:class:`~geodax.nn.densities.SingularValues`), from
    which the initial weight is also drawn.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        rank: Number of singular values, at most the smaller of the two.
        use_bias: Whether a bias is added; it is an ordinary parameter.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial weight.

    Attributes:
        left: out x rank with orthonormal columns.
        right: in x rank with orthonormal columns.
        log_gaps: Logarithms of the differences of consecutive singular values, and of the last one.
        bias: out, or None.
    """

    left: Float[Array, "out rank"]
    right: Float[Array, "in rank"]
    log_gaps: Float[Array, " rank"]
    bias: Float[Array, " out"] | None
    in_features: int = eqx.field(static=True)
    out_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        rank: int,
        use_bias: bool = True,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features, rank = check_sizes(
            "LowRankLinear", in_features=in_features, out_features=out_features, rank=rank
        )
        if rank > min(in_features, out_features):
            raise ValueError(
                f"LowRankLinear: rank must be at most min(in_features, out_features) = "
                f"{min(in_features, out_features)}, found {rank}."
            )
        key = _checks.random_key("LowRankLinear", key)
        key_left, key_right, key_scales = jax.random.split(key, 3)
        self.left = orthonormal(key_left, out_features, rank, dtype)
        self.right = orthonormal(key_right, in_features, rank, dtype)
        prior = SingularValues(out_features, in_features)
        self.log_gaps = prior.sample(key_scales, jnp.zeros(rank, dtype))
        self.bias = jnp.zeros(out_features, dtype) if use_bias else None
        self.in_features, self.out_features = in_features, out_features

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector("LowRankLinear", x, self.in_features)
        return _affine(self.left @ (self.scales * (x @ self.right)), 1.0, self.bias)

    @property
    def scales(self) -> Float[Array, " rank"]:
        """Return the singular values, descending."""
        return ordered_scales(self.log_gaps)

    @property
    def matrix(self) -> Float[Array, "out_features in_features"]:
        """Return the matrix that multiplies the input."""
        return (self.left * self.scales[None]) @ self.right.T

    def manifolds(self, stiefel: AbstractManifold) -> PyTree:
        return with_manifolds(self, stiefel, "left", "right")

    def structured_priors(self) -> Mapping[str, AbstractStructuredPrior]:
        return {"left": Haar(), "right": Haar(), "log_gaps": SingularValues(self.out_features, self.in_features)}


class BottleneckLinear(eqx.Module):
    """A dense layer with weight ``left @ right`` of a given rank, with two ordinary factors.

    The usual low-rank layer, for comparison. Its factors are not identified: any invertible matrix, such as a scale,
    can be moved from one factor to the other without changing the function.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        rank: Number of columns of ``left`` and rows of ``right``.
        use_bias: Whether a bias is added.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial weight.
    """

    left: Float[Array, "out rank"]
    right: Float[Array, "rank in"]
    bias: Float[Array, " out"] | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        rank: int,
        use_bias: bool = True,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features, rank = check_sizes(
            "BottleneckLinear", in_features=in_features, out_features=out_features, rank=rank
        )
        key, dtype = _checks.random_key("BottleneckLinear", key), _checks.real_dtype("BottleneckLinear", dtype)
        key_left, key_right = jax.random.split(key)
        self.left = jax.random.normal(key_left, (out_features, rank), dtype) * math.sqrt(2.0 / rank)
        self.right = jax.random.normal(key_right, (rank, in_features), dtype) * math.sqrt(1.0 / in_features)
        self.bias = jnp.zeros(out_features, dtype) if use_bias else None

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector("BottleneckLinear", x, self.right.shape[1])
        return _affine(self.left @ (self.right @ x), 1.0, self.bias)


def orthonormal(key: PRNGKey, rows: int, columns: int, dtype: Any) -> Float[Array, "n p"]:
    """Draw a uniformly distributed orthonormal weight in storage layout, n = max and p = min of the two numbers.

    Half-precision weights, which LAPACK does not support, are rounded from single precision.
    """
    key, dtype = _checks.random_key("a layer's weight", key), _checks.real_dtype("a layer's weight", dtype)
    return Haar().sample(key, jnp.zeros((max(rows, columns), min(rows, columns)), dtype))


def _affine(y: Array, gain: float, bias: Array | None) -> Array:
    y = y if gain == 1.0 else gain * y
    return y if bias is None else y + bias


def with_manifolds(layer: eqx.Module, stiefel: AbstractManifold, *names: str) -> PyTree:
    """Return the layer with ``stiefel`` in the named fields and ``Euclidean()`` in place of the other arrays."""
    flat = jax.tree.map(lambda _: Euclidean(), layer)
    return eqx.tree_at(
        lambda tree: [getattr(tree, name) for name in names],
        flat,
        [stiefel] * len(names),
        is_leaf=lambda node: isinstance(node, AbstractManifold),
    )


def kernel_shape(
    owner: str, in_channels: Any, out_channels: Any, kernel_size: Any, stride: Any
) -> tuple[tuple[int, int, int, int], int]:
    """Shape of a kernel, out x in x height x width, and stride; TypeError for a size that is not one number or two."""
    sides = kernel_size if np.ndim(kernel_size) else (kernel_size, kernel_size)
    if isinstance(kernel_size, str) or len(sides) != 2:
        found = _checks.described(kernel_size)
        raise TypeError(f"{owner}: kernel_size must be an integer, or a pair of them, found {found}.")
    sizes = {"in_channels": in_channels, "out_channels": out_channels, "height": sides[0], "width": sides[1]}
    inputs, outputs, height, width, stride = check_sizes(owner, **sizes, stride=stride)
    return (outputs, inputs, height, width), stride


def side_padding(owner: str, padding: Any) -> int | str:
    """Check the padding: rows and columns of zeros on each side of an image, or the name of a rule."""
    if isinstance(padding, str):
        return _checks.chosen(owner, "padding", padding.upper(), ("SAME", "SAME_LOWER", "VALID"))
    return _checks.whole(owner, "padding", padding, least=0)


def prior_variances(owner: str, of_weights: float, of_biases: float | None) -> tuple[float, float | None]:
    """Check normal prior variances and return floats; None for the biases if they use that of the weights."""
    variance = _checks.number(owner, "prior_variance", of_weights, above=0.0)
    if of_biases is None:
        return variance, None
    return variance, _checks.number(owner, "bias_prior_variance", of_biases, above=0.0)


def check_sizes(owner: str, **sizes: Any) -> tuple[int, ...]:
    """Sizes of a layer as Python's integers."""
    return tuple(_checks.whole(owner, name, size) for name, size in sizes.items())
