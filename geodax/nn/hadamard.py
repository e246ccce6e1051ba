r"""Dense and convolution layers of Walsh-Hadamard variational inference (WHVI).

A square weight of order D, a power of two, is

.. math::
    W = S_1 H \,\mathrm{diag}(g)\, H S_2, \qquad q(g) = N(\mu, \Sigma), \qquad p(g) = N(0, \lambda I),

with H the orthonormal Walsh-Hadamard matrix and S_1, S_2 diagonal: O(D) parameters, products in O(D log D). The entries
are :math:`W_{ij} = D^{-1/2}\, s_{1i}\, s_{2j}\, (H g)_{i \oplus j}` with the bitwise exclusive or of i and j.

**Other sizes.** Inputs are zero-padded to D; independent blocks are stacked as needed, and the first ``out_features``
of their rows are kept. **Columns.** The weight of a single output is long and thin; it is
:math:`w = \mathrm{vec}(W)`, column by column, for a W of order about the square root of its length, and
:math:`w^T h = g^T \mathrm{diag}(H S_1 X S_2 H)` with :math:`h = \mathrm{vec}(X)`. **Convolutions.** The kernel
out x in x h x w is the matrix out x ihw.

**Local reparametrisation.** The product with an input is linear in g, so only g is drawn, once per key. With one key
per example every example has its own weights: the expected log likelihood is unchanged, and the variance of its
gradients is far smaller.

The scales of g and of S_1, S_2 can be traded for each other: if S_1, S_2 are optimised, :math:`\lambda` does not change
the set of attainable posteriors, only the optimiser's path to them.

Source:
    Rossi, Marmin and Filippone (2020), Walsh-Hadamard variational inference for Bayesian deep learning. NeurIPS.
"""

import math
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, PRNGKey, Scalar
from geodax.geometry.hadamard import fwht, hadamard_size
from geodax.nn.convolve import patches_of
from geodax.nn.layers import Sized, check_sizes, kernel_shape, side_padding
from geodax.vi.families import AbstractFamily, DiagonalGaussian, gaussian
from geodax.vi.flows import planar
from geodax.vi.modules import AbstractVariational

_MOST_FLOWS = 1000


class HadamardWeight(eqx.Module):
    """The random matrix of the layers: stacked blocks, or one column for each output.

    The matrix has ``out_features`` rows and ``in_features`` columns; all arguments are those of :class:`WHVILinear`.

    Attributes:
        g: Distribution of g, with mean of shape (blocks, D).
        s1: S_1 of every block, or its distribution.
        s2: S_2 of every block, or its distribution.
    """

    g: AbstractFamily
    s1: Float[Array, "blocks D"] | AbstractFamily
    s2: Float[Array, "blocks D"] | AbstractFamily
    in_features: int = eqx.field(static=True)
    out_features: int = eqx.field(static=True)
    is_column: bool = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)
    scale_prior_variance: float = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        column: bool | None = None,
        covariance: str = "diagonal",
        rank: int = 4,
        num_flows: int = 0,
        scales: str = "optimized",
        prior_variance: float = 1.0,
        scale_prior_variance: float = 1.0,
        initial_deviation: float = 0.1,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        _checks.chosen("WHVI", "scales", scales, ("optimized", "variational"))
        for name, value in (
            ("prior_variance", prior_variance),
            ("scale_prior_variance", scale_prior_variance),
            ("initial_deviation", initial_deviation),
            ("gain", gain),
        ):
            _checks.number("WHVI", name, value, above=0.0)
        rank = _checks.whole("WHVI", "rank", rank)
        num_flows = _checks.whole("WHVI", "num_flows", num_flows, least=0, most=_MOST_FLOWS)
        key, dtype = _checks.random_key("WHVI", key), _checks.real_dtype("WHVI", dtype)
        self.is_column = out_features == 1 if column is None else column
        order = hadamard_size(math.isqrt(in_features - 1) + 1 if self.is_column else in_features)
        num_blocks = out_features if self.is_column else -(-out_features // order)
        key_g, key_1, key_2, key_flows = jax.random.split(key, 4)
        deviation = math.sqrt(prior_variance)
        mean = deviation * jax.random.normal(key_g, (num_blocks, order), dtype)
        family = gaussian(covariance, mean, initial_deviation * deviation, rank=min(rank, order))
        self.g = planar(family, num_flows, key=key_flows) if num_flows else family
        size = math.sqrt(gain) * (order / (in_features * prior_variance)) ** 0.25
        signs = [jax.random.rademacher(part, (num_blocks, order)).astype(dtype) for part in (key_1, key_2)]
        if scales == "variational":
            start = jnp.full((num_blocks, order), math.log(initial_deviation * size), dtype)
            self.s1, self.s2 = (DiagonalGaussian(size * sign, start) for sign in signs)
        else:
            self.s1, self.s2 = (size * sign for sign in signs)
        self.in_features, self.out_features = in_features, out_features
        self.prior_variance, self.scale_prior_variance = prior_variance, scale_prior_variance

    @property
    def order(self) -> int:
        """D."""
        return self.g.location.shape[-1]

    def parts(self, key: PRNGKey | None) -> tuple[Array, Array, Array]:
        """Return S_1, g and S_2, drawn using the key, or their means without one."""
        if isinstance(self.s1, AbstractFamily) and isinstance(self.s2, AbstractFamily):
            factors = (self.s1, self.g, self.s2)
            if key is None:
                s1, g, s2 = (factor.location for factor in factors)
            else:
                s1, g, s2 = (factor.sample(k) for factor, k in zip(factors, jax.random.split(key, 3), strict=True))
            return s1, g, s2
        s1, s2 = cast(tuple[Array, Array], (self.s1, self.s2))
        return s1, self.g.location if key is None else self.g.sample(key), s2

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.out_features, self.in_features

    def apply(self, x: Float[Array, "... in_features"], key: PRNGKey | None = None) -> Float[Array, "... out_features"]:
        """Multiply one or several vectors by the same random matrix, drawn using the key, or by the mean matrix."""
        s1, g, s2 = self.parts(None if key is None else _checks.random_key("WHVI", key))
        order, lead = self.order, x.shape[:-1]
        if self.is_column:
            padded = _padded(x, order * order).reshape(*lead, 1, order, order)
            square = _like(s1, lead)[..., None] * jnp.swapaxes(padded, -1, -2) * _like(s2, lead)[..., None, :]
            both = fwht(fwht(square, axis=-2))
            return jnp.sum(_like(g, lead) * jnp.diagonal(both, axis1=-2, axis2=-1), axis=-1)
        inner = fwht(_like(s2, lead) * _padded(x, order)[..., None, :])
        y = _like(s1, lead) * fwht(_like(g, lead) * inner)
        return y.reshape(*lead, -1)[..., : self.out_features]

    def matrix(self, key: PRNGKey | None = None) -> Float[Array, "out_features in_features"]:
        """Compute the dense matrix that :meth:`apply` uses for the same key in O(D^2), entry by entry."""
        s1, g, s2 = self.parts(key)
        order = self.order
        index = np.arange(order)
        mixed = fwht(g)[:, index[:, None] ^ index[None]] / math.sqrt(order)
        blocks = s1[:, :, None] * mixed * s2[:, None, :]
        if self.is_column:
            rows = jnp.swapaxes(blocks, -1, -2).reshape(self.out_features, -1)
            return rows[:, : self.in_features]
        return blocks.reshape(-1, order)[: self.out_features, : self.in_features]

    def kl(self, key: PRNGKey | None = None) -> Scalar:
        """Compute the divergence of g, and of variational S_1 and S_2, from their priors."""
        total = self.g.kl(self.prior_variance, key=key)
        for part in (self.s1, self.s2):
            if isinstance(part, AbstractFamily):
                total = total + part.kl(self.scale_prior_variance)
        return total


class WHVILinear(AbstractVariational, Sized):
    """A dense layer with a Walsh-Hadamard weight, of any size.

    Called with a key, the layer draws its weight for that example; without one, it applies the mean weight (with flows,
    the weight at the image of the base's mean). With in_features = out_features = D it has 4 D parameters plus the
    bias; a mean-field layer has 2 D^2.

    Args:
        in_features: Number of inputs.
        out_features: Number of outputs.
        use_bias: Whether a bias is added; it is optimised, without a posterior.
        column: Whether the weights of each output are a separate block, of order about the square root of
            ``in_features``; None means True for a single output.
        covariance: Covariance of g in each block: ``"diagonal"``, ``"full"`` or ``"low-rank"``.
        rank: Number of directions of ``"low-rank"``.
        num_flows: Number of planar flows applied to g; with flows the divergence is estimated from draws.
        scales: ``"optimized"``: S_1 and S_2 are parameters; ``"variational"``: they have a normal posterior with
            independent entries, and a normal prior of variance ``scale_prior_variance``.
        prior_variance: Prior variance (not standard deviation) of g.
        scale_prior_variance: Prior variance of variational S_1 and S_2.
        initial_deviation: Initial standard deviation of q(g), in units of the prior's.
        gain: The initial weights have the variance ``gain**2 / in_features``.
        dtype: Dtype of the parameters.
        key: PRNG key for the initial parameters.

    Attributes:
        weight: The :class:`HadamardWeight`, with the distribution ``g``.
        bias: out, or None.
    """

    weight: HadamardWeight
    bias: Float[Array, " out"] | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        column: bool | None = None,
        covariance: str = "diagonal",
        rank: int = 4,
        num_flows: int = 0,
        scales: str = "optimized",
        prior_variance: float = 1.0,
        scale_prior_variance: float = 1.0,
        initial_deviation: float = 0.1,
        gain: float = 1.0,
        dtype: Any = jnp.float32,
        key: PRNGKey,
    ):
        in_features, out_features = check_sizes("WHVILinear", in_features=in_features, out_features=out_features)
        self.weight = HadamardWeight(
            in_features,
            out_features,
            column=column,
            covariance=covariance,
            rank=rank,
            num_flows=num_flows,
            scales=scales,
            prior_variance=prior_variance,
            scale_prior_variance=scale_prior_variance,
            initial_deviation=initial_deviation,
            gain=gain,
            dtype=dtype,
            key=key,
        )
        self.bias = jnp.zeros(out_features, dtype) if use_bias else None

    def __call__(self, x: Float[Array, " in_features"], *, key: PRNGKey | None = None) -> Float[Array, " out_features"]:
        x = _checks.vector("WHVILinear", x, self.weight.in_features)
        y = self.weight.apply(x, key)
        return y if self.bias is None else y + self.bias

    def matrix(self, key: PRNGKey | None = None) -> Float[Array, "out_features in_features"]:
        """Return the dense weight, drawn using the key, or its mean."""
        return self.weight.matrix(key)

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return weight and bias of an ordinary layer, drawn using the key, or the means."""
        return self.weight.matrix(key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        return self.weight.kl(key)


class WHVIConv2d(AbstractVariational):
    """A convolution with a Walsh-Hadamard kernel.

    All positions of an image share one kernel; with one key per image, every image has its own kernel. The kernel is
    never formed: the fast transform is applied to the patches of the image.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel_size: Height and width, or one number for both.
        stride: Stride of the convolution.
        padding: Rows and columns of zeros on each side, or ``"SAME"`` or ``"VALID"``.
        use_bias: Whether a bias is added; it is optimised, without a posterior.
        dtype: Dtype of the parameters; images should have the same.
        key: PRNG key for the initial parameters.
        **options: ``covariance``, ``rank``, ``num_flows``, ``scales``, ``prior_variance``, ``scale_prior_variance``,
            ``initial_deviation`` and ``gain`` of :class:`WHVILinear`.

    Attributes:
        weight: The :class:`HadamardWeight`, out x (in * height * width).
        bias: out, or None.
    """

    weight: HadamardWeight
    bias: Float[Array, " out"] | None
    kernel_size: tuple[int, int] = eqx.field(static=True)
    stride: int = eqx.field(static=True)
    padding: int | str = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | np.integer | tuple[int, int],
        *,
        stride: int = 1,
        padding: int | str = 0,
        use_bias: bool = True,
        dtype: Any = jnp.float32,
        key: PRNGKey,
        **options: Any,
    ):
        shape, self.stride = kernel_shape("WHVIConv2d", in_channels, out_channels, kernel_size, stride)
        self.weight = HadamardWeight(math.prod(shape[1:]), shape[0], column=False, dtype=dtype, key=key, **options)
        self.bias = jnp.zeros(shape[0], dtype) if use_bias else None
        self.kernel_size = shape[2:]
        self.padding = side_padding("WHVIConv2d", padding)

    def __call__(
        self, x: Float[Array, "in_channels height width"], *, key: PRNGKey | None = None
    ) -> Float[Array, "out_channels out_height out_width"]:
        height, width = self.kernel_size
        x = _checks.image("WHVIConv2d", x, self.weight.in_features // (height * width))
        patches = patches_of(x, self.kernel_size, self.stride, self.padding)
        y = jnp.moveaxis(self.weight.apply(jnp.moveaxis(patches, 0, -1), key), -1, 0)
        return y if self.bias is None else y + self.bias[:, None, None]

    def kernel(self, key: PRNGKey | None = None) -> Float[Array, "out_channels in_channels h w"]:
        """Return the dense kernel, drawn using the key, or its mean."""
        matrix = self.weight.matrix(key)
        return matrix.reshape(len(matrix), -1, *self.kernel_size)

    def arrays(self, key: PRNGKey | None = None) -> tuple[Array, Array | None]:
        """Return kernel and bias of an ordinary layer, drawn using the key, or the means."""
        return self.kernel(key), self.bias

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        return self.weight.kl(key)


def _padded(x: Array, size: int) -> Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])


def _like(part: Array, lead: tuple[int, ...]) -> Array:
    """Add axes of length one to a (blocks, D) array for the vectors' leading axes."""
    return part.reshape((1,) * len(lead) + part.shape)
