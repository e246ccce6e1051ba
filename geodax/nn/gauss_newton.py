r"""Generalised Gauss-Newton matrices of the dense layers of a network, in factors whose eigenbasis is known.

For outputs :math:`f_n` of example n with the output Hessian :math:`H_n = -\nabla_f^2 \log p(y_n \mid f)`, the matrix of
a layer with the weight and bias :math:`\theta = (W \mid b)`, the inputs :math:`a_n = (x_n, 1)` and the derivatives
:math:`g_n = \partial f_n / \partial (\theta a_n)` is

.. math::
    G = \sum_n (g_n^T H_n g_n) \otimes (a_n a_n^T) \approx \tfrac1N \sum_n g_n^T H_n g_n \otimes \sum_n a_n a_n^T .

The approximation (K-FAC) is exact if one of the factors is equal for all examples, as for the last layer under normal
noise. Columns of a root of :math:`H_n` are propagated backwards one after the other; for a layer whose outputs are the
network's outputs the sums have a closed form.

Sources:
    Martens and Grosse (2015), Optimizing neural networks with Kronecker-factored approximate curvature. ICML.
    Ritter, Botev and Barber (2018), A scalable Laplace approximation for neural networks. ICLR.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from geodax import _tree
from geodax._types import Array, PyTree
from geodax.vi.dense import extended, layers_at, output_zeros, places_of, replaced, require_one_call
from geodax.vi.stand_ins import AbstractStandIn


class Block(eqx.Module):
    """A positive semi-definite matrix over o x i parameters, in an eigenbasis that is a Kronecker product.

    The orthogonal matrices for the rows, ``left``, and the columns, ``right``, are None for the identity.
    """

    values: Float[Array, "o i"]
    left: Float[Array, "o o"] | None = None
    right: Float[Array, "i i"] | None = None

    def inward(self, theta: Float[Array, "*batch o i"]) -> Float[Array, "*batch o i"]:
        """Return the coordinates in the eigenbasis."""
        theta = theta if self.left is None else jnp.einsum("pq,...pi->...qi", self.left, theta)
        return theta if self.right is None else jnp.einsum("...oi,ij->...oj", theta, self.right)

    def outward(self, z: Float[Array, "o i"]) -> Float[Array, "o i"]:
        """Return the parameters with the given coordinates."""
        z = z if self.left is None else self.left @ z
        return z if self.right is None else z @ self.right.T


class _Record:
    input: Any = None
    output: Any = None


class _Tapped(AbstractStandIn):
    """A dense layer that records its input, and whose output is shifted, so that it can be differentiated."""

    layer: Any
    shift: Array
    record: _Record = eqx.field(static=True)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        self.record.input, self.record.output = x, self.layer(x) + self.shift
        return self.record.output


class Taps:
    """Dense layers of a network, by default all :class:`equinox.nn.Linear`, and their inputs and derivatives.

    The network is a function of one example. Raises TypeError if the selection has anything but its dense layers, and
    ValueError if there is none.
    """

    def __init__(self, owner: str, network: PyTree, where: Callable[[Any], Any] | None):
        self.owner = owner
        self.places = places_of(owner, network, where)

    def __eq__(self, other: object) -> bool:
        """Whether the layers have the same places, so that a compiled function serves both."""
        return isinstance(other, Taps) and self.places == other.places

    def __hash__(self) -> int:
        return hash(self.places)

    def call(self, network: PyTree, shifts: list[Array], x: PyTree) -> tuple[Array, list[Array], list[bool]]:
        """Return the outputs as a vector, each layer's input, and whether its outputs are the network's."""
        records = [_Record() for _ in self.places]

        def tapped(layers: list[Any]) -> list[Any]:
            return [_Tapped(*parts) for parts in zip(layers, shifts, records, strict=True)]

        y: Any = replaced(network, self.places, tapped)(x)
        inputs = [record.input.reshape(-1) for record in records]
        return y.reshape(-1), inputs, [record.output is y for record in records]

    def shifts(self, network: PyTree) -> list[Array]:
        """Return shifts of zero."""
        return [output_zeros(node) for node in layers_at(network, self.places)]

    def are_last(self, network: PyTree, x: PyTree) -> list[bool]:
        """Return which layers' outputs are the network's; x is a batch."""
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)
        require_one_call(self.owner, network, self.places, lambda network, x: network(x), row)
        are_last: list[bool] = []

        def traced(x: PyTree) -> Array:
            y, _, are_last[:] = self.call(network, self.shifts(network), x)
            return y

        jax.eval_shape(traced, row)
        return are_last


def batch_sums(
    taps: Taps,
    are_last: Sequence[bool],
    structure: str,
    is_classes: bool,
    network: PyTree,
    x: PyTree,
    weights: Float[Array, " B"],
    only: Array | None = None,
) -> Any:
    """Sum what the Gauss-Newton matrices need over the examples of a batch, each as often as its weight says.

    With ``only``, the index of an output with normal noise, the sums are this output's share.

    Returns:
        For each layer the pair of Kronecker factors, or the diagonal; the matrix of all layers for ``"full"``.
    """
    layers = layers_at(network, taps.places)
    is_full = structure == "full"
    back = [i for i, last in enumerate(are_last) if is_full or not last]

    def outputs(shifts: list[Array], x: PyTree) -> tuple[Array, list[Array]]:
        # layers in closed form are not differentiated
        full = taps.shifts(network)
        for i, shift in zip(back, shifts, strict=True):
            full[i] = shift
        return taps.call(network, full, x)[:2]

    size = jax.tree.leaves(x)[0].shape[0]
    zeros = [jnp.broadcast_to(shift, (size, *shift.shape)) for shift in (taps.shifts(network)[i] for i in back)]
    y, pull, inputs = jax.vjp(lambda shifts: jax.vmap(outputs)(shifts, x), zeros, has_aux=True)
    inputs = [extended(layer, a) for layer, a in zip(layers, inputs, strict=True)]
    p = jax.nn.softmax(_tree.widened(y)) if is_classes else jnp.ones_like(_tree.widened(y))
    columns = jnp.arange(y.shape[1])
    if only is not None:
        p, columns = p * jax.nn.one_hot(only[None], y.shape[1], dtype=p.dtype), only[None]
    weights = weights.astype(p.dtype)[:, None]

    def products(g: list[Array]) -> Any:
        """Contributions of one column of the roots of the output Hessians."""
        if is_full:
            rows = [(g[:, :, None] * a[:, None, :]).reshape(size, -1) for g, a in zip(g, inputs, strict=True)]
            v = jnp.concatenate(rows, axis=1)
            return v.T @ v
        if structure == "diagonal":
            return [(g * g).T @ (inputs[i] * inputs[i]) for i, g in zip(back, g, strict=True)]
        return [g.T @ g for g in g]

    def add(total: Any, k: Array) -> tuple[Any, None]:
        cotangent = jax.nn.one_hot(k, y.shape[1], dtype=p.dtype)[None]
        column = jnp.sqrt(p[:, k])[:, None] * (cotangent - p) if is_classes else jnp.broadcast_to(cotangent, p.shape)
        (g,) = pull((jnp.sqrt(weights) * column).astype(y.dtype))
        g = [_tree.widened(part.reshape(size, -1)) for part in g]
        return _tree.add(total, products(g)), None

    def shapes() -> Any:
        return products([_tree.widened(part.reshape(size, -1)) for part in zeros])

    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(shapes))
    through = jax.lax.scan(add, start, columns)[0] if back else start
    if is_full:
        return through
    found = dict(zip(back, through, strict=True))
    for i, last in enumerate(are_last):
        if last and structure == "diagonal":
            found[i] = (weights * (p - p * p if is_classes else p)).T @ (inputs[i] * inputs[i])
        elif last:
            found[i] = jnp.diag(jnp.sum(weights * p, axis=0)) - ((weights * p).T @ p if is_classes else 0.0)
    if structure == "diagonal":
        return [found[i] for i in range(len(layers))]
    return [(found[i], a.T @ (weights * a)) for i, a in enumerate(inputs)]


def blocks_of(sums: Any, num_data: float) -> tuple[Block, ...]:
    """Decompose the sums over all examples."""
    if not isinstance(sums, list):  # "full"
        values, left = _eigh(sums)
        return (Block(values[:, None], left),)
    return tuple(_factored(each, num_data) if isinstance(each, tuple) else Block(each) for each in sums)


def _factored(factors: tuple[Array, ...], num_data: float) -> Block:
    (b, left), (a, right) = (_eigh(factor) for factor in factors)
    return Block(b[:, None] * a[None] / num_data, left, right)


def weighted_sum(shares: Any, precisions: Float[Array, " outputs"]) -> Any:
    """Return the sums of all outputs, from the stacked shares of each and the precisions of their noise."""

    def added(share: Any) -> Any:
        if isinstance(share, tuple):
            return added(share[0]), share[1][0]  # the factors of the inputs are the same for all outputs
        return jnp.tensordot(precisions, share, 1)

    return [added(share) for share in shares] if isinstance(shares, list) else added(shares)


def traces(shares: Any, blocks: Sequence[Block], values: Sequence[Array], num_data: float) -> Float[Array, " outputs"]:
    """Compute the trace of each output's share (see :func:`weighted_sum`) times the inverse of a matrix.

    The matrix is diagonal, with the given values, in the eigenbases of the weighted sum's decomposition.
    """

    def diagonal(block: Block, share: Any) -> Array:
        if isinstance(share, tuple):
            rows, columns = _in_basis(block.left, share[0]), _in_basis(block.right, share[1])
            return rows[:, :, None] * columns[:, None, :] / num_data
        return share if block.left is None else _in_basis(block.left, share)[:, :, None]

    parts = zip(blocks, shares if isinstance(shares, list) else [shares], values, strict=True)
    each = [jnp.sum(diagonal(block, share) / value[None], axis=(1, 2)) for block, share, value in parts]
    return sum(each[1:], each[0])


def _in_basis(basis: Any, matrices: Array) -> Array:
    """Diagonals of matrices in an orthogonal basis."""
    return jnp.sum(basis[None] * (matrices @ basis), axis=1)


def _eigh(matrix: Array) -> tuple[Array, Array]:
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.maximum(values, 0.0), vectors
