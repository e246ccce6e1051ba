r"""Row and column second moments of a Walsh-Hadamard posterior, and the subspace that contains its matrices.

For :math:`W = S_1 H \mathrm{diag}(g) H S_2` with :math:`g \sim N(\mu, \Sigma)`, :math:`\Sigma = R R^T`,

.. math::
    M &= S_1 H \mathrm{diag}(\mu) H S_2, \\
    U &= E[(W - M)(W - M)^T] = S_1 H \big(\Sigma \circ (H S_2^2 H)\big) H S_1, \\
    V &= E[(W - M)^T (W - M)] / \mathrm{tr}\,U = S_2 H \big(\Sigma \circ (H S_1^2 H)\big) H S_2 / \mathrm{tr}\,U,

so that tr V = 1. **The distribution is not matrix normal**: the covariance of vec(W) has rank D, while that of a matrix
normal distribution with these U and V has rank D^2, and all entries with the same :math:`i \oplus j` are perfectly
correlated up to sign. U and V are only second moments of rows and columns.

vec stacks columns. :math:`\mathrm{vec}(W) = A g` with :math:`A = L Q`, L diagonal with the entries
:math:`s_{2i}\, s_1`, Q the stack of :math:`H \mathrm{diag}(h_i)`, and :math:`Q^T Q = I`: the posterior is a
D-dimensional Gaussian, rotated into the space of matrices by Q and scaled along its axes by L.

Source:
    Rossi, Marmin and Filippone (2020), supplement, sections A and B; the root T_1 there has the covariance in place of
    its root.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax._types import Array
from geodax.geometry.hadamard import fwht, hadamard_matrix
from geodax.nn.hadamard import HadamardWeight, WHVIConv2d, WHVILinear
from geodax.vi.families import AbstractFamily, AbstractGaussian


class RowColMoments(NamedTuple):
    """Moments of the square blocks of a Walsh-Hadamard weight.

    Attributes:
        mean: M.
        row: U, second moments between rows.
        column: V, second moments between columns, of trace 1.
        row_root: A root of U, with the blocks side by side.
        column_root: A root of V.
    """

    mean: Float[Array, "blocks D D"]
    row: Float[Array, "blocks D D"]
    column: Float[Array, "blocks D D"]
    row_root: Float[Array, "blocks D k"]
    column_root: Float[Array, "blocks D k"]


class LQ(NamedTuple):
    """The linear map from g to the stacked columns of the blocks.

    Attributes:
        scale: The diagonal of L.
        rotation: Q, with orthonormal columns; the same for every block.
    """

    scale: Float[Array, "blocks D2"]
    rotation: Float[Array, "D2 D"]


def row_col_moments(layer: WHVILinear | WHVIConv2d | HadamardWeight) -> RowColMoments:
    """Compute mean, row and column second moments of a layer's blocks, with roots, before padding is removed.

    Args:
        layer: A layer with optimised S_1 and S_2 and a Gaussian g.

    Returns:
        The moments. They are *not* the parameters of a matrix normal distribution.

    Raises:
        ValueError: If S_1 and S_2 are variational, or g has flows.
    """
    weight, s1, s2 = _parts(layer)
    if not isinstance(weight.g, AbstractGaussian):
        raise ValueError(
            "row_col_moments: the distribution of g has no closed-form moments, because it has flows; average draws of "
            "layer.matrix(key) instead."
        )

    def sandwich(outer: Array, inner: Array, root: Array) -> tuple[Array, Array]:
        """Compute moments with ``outer`` on the outside, and their root."""
        size, width = root.shape
        spread = fwht(jnp.diag(inner), axis=0)
        products = (root[:, :, None] * spread[:, None, :]).reshape(size, width * size)
        half = outer[:, None] * fwht(products, axis=0)
        return half @ half.T, half

    def block(s1: Array, s2: Array, mu: Array, root: Array) -> RowColMoments:
        mean = s1[:, None] * fwht(mu[:, None] * fwht(jnp.diag(s2), axis=0), axis=0)
        row, row_root = sandwich(s1, s2, root)
        column, column_root = sandwich(s2, s1, root)
        trace = jnp.trace(row)
        return RowColMoments(mean, row, column / trace, row_root, column_root / jnp.sqrt(trace))

    return jax.vmap(block)(s1, s2, weight.g.location, weight.g.root())


def lq(layer: WHVILinear | WHVIConv2d | HadamardWeight) -> LQ:
    """Return the LQ form of a layer's blocks: ``vec(W) = (scale * rotation) @ g``, vec column by column.

    Raises:
        ValueError: If S_1 and S_2 are variational.
    """
    weight, s1, s2 = _parts(layer)
    h = jnp.asarray(hadamard_matrix(weight.order), s1.dtype)
    rotation = (h[None] * h[:, None, :]).reshape(-1, weight.order)
    return LQ((s2[:, :, None] * s1[:, None, :]).reshape(len(s1), -1), rotation)


def _parts(layer: WHVILinear | WHVIConv2d | HadamardWeight) -> tuple[HadamardWeight, Array, Array]:
    weight = layer if isinstance(layer, HadamardWeight) else layer.weight
    if isinstance(weight.s1, AbstractFamily) or isinstance(weight.s2, AbstractFamily):
        raise ValueError(
            "Walsh-Hadamard weight: expected optimised S_1 and S_2, found variational ones; fit the layer with "
            "scales='optimized', or use draws of layer.matrix(key)."
        )
    return weight, weight.s1, weight.s2
