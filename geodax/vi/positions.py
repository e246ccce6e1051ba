"""A Gaussian posterior over all arrays of a position: an array, a dict of arrays, a layer, or a network."""

import fnmatch
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, Position, PRNGKey, Scalar
from geodax.vi.families import AbstractFamily, gaussian
from geodax.vi.modules import AbstractWhole


def require_free(owner: str, position: Position) -> None:
    """Raise unless the parameters of a position are free real arrays, to which steps and noise can be added.

    Args:
        owner: Name of the caller, for the message.
        position: A network or any other position, with or without a posterior.

    Raises:
        TypeError: If an array is complex.
        ValueError: If parameters lie on a manifold.
    """
    for name, leaf in zip(_tree.leaf_names(position), jax.tree.leaves(position), strict=True):
        if eqx.is_inexact_array(leaf) and jnp.iscomplexobj(leaf):
            raise TypeError(
                f"{owner}: {name} must be a real floating-point array, found {_checks.described(leaf)}; take its "
                "real and imaginary parts as two arrays."
            )
    nodes = jax.tree_util.tree_flatten_with_path(position, is_leaf=_is_on_manifold)[0]
    for path, node in nodes:
        if _is_on_manifold(node):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ValueError(
                f"{owner}: expected free arrays, to which it adds steps or noise, but {name or 'the position'} is a "
                f"{type(node).__name__}, whose weights lie on a manifold and would leave it. Use ordinary layers (of "
                "nn.MLP: orthogonal=False, rank=None; of nn.adapt: factorization='polar'), or sample this network: "
                "gx.sghmc(posterior, "
                "manifold=gx.nn.geometry(network))."
            )


def _is_on_manifold(node: object) -> bool:
    """Whether a node has the methods of a :class:`geodax.nn.AbstractStructured`."""
    methods = (getattr(type(node), name, None) for name in ("manifolds", "structured_priors"))
    return isinstance(node, eqx.Module) and all(map(callable, methods))


class GaussianOver(AbstractWhole):
    """One Gaussian over the entries of all arrays of a position, in one vector.

    Use it for positions that are not networks, and for small networks with full covariance. Natural-gradient methods
    and the Laplace approximation return their result in this form. Its samples are positions like the original; called
    like a layer, it samples a position and calls it.

    Args:
        position: The means, a pytree of real arrays of one dtype.
        covariance: ``"diagonal"``, ``"full"`` or ``"low-rank"``, or a family over the vector, whose mean is then used.
        scale: The initial standard deviation.
        prior_variance: Variance of the normal prior of every entry, with mean 0.
        points: Shell patterns of the paths of arrays that are parameters without a posterior and without a prior.
        rank: Number of directions of ``"low-rank"``; None uses 4, or the number of entries if it is smaller.

    Example:
        ``gx.vi.GaussianOver(jnp.zeros(3), covariance="full")``
    """

    family: AbstractFamily
    free: tuple[Array, ...]
    structure: Any = eqx.field(static=True)
    layout: tuple[tuple[tuple[int, ...], bool], ...] = eqx.field(static=True)
    prior_variance: float = eqx.field(static=True)

    def __init__(
        self,
        position: Position,
        covariance: str | AbstractFamily = "diagonal",
        *,
        scale: float = 0.1,
        prior_variance: float = 1.0,
        points: Sequence[str] = (),
        rank: int | None = None,
    ):
        """See the class.

        Raises:
            TypeError: If a leaf is not a real array, or the dtypes differ.
            ValueError: If nothing has a posterior, or the family has another size, or parameters lie on a manifold.
        """
        _checks.parameters("GaussianOver", "position", position)
        require_free("GaussianOver", position)
        prior_variance = _checks.number("GaussianOver", "prior_variance", prior_variance, above=0.0)
        if not isinstance(covariance, str | AbstractFamily):
            found = _checks.described(covariance)
            raise TypeError(f"GaussianOver: covariance must be the name of a family, or a family, found {found}.")
        leaves, self.structure = jax.tree.flatten(position)
        names = _tree.leaf_names(position)
        for name, leaf in zip(names, leaves, strict=True):
            if not (eqx.is_inexact_array(leaf) and jnp.isrealobj(leaf)):
                raise TypeError(
                    f"GaussianOver: {name} must be a real floating-point array, found {_checks.described(leaf)}; "
                    "leave out non-parameters by equinox.filter(position, equinox.is_inexact_array), or convert it by "
                    "jnp.asarray(value, dtype=float)."
                )
        is_point = [any(fnmatch.fnmatchcase(name, pattern) for pattern in points) for name in names]
        uncertain = [leaf for leaf, point in zip(leaves, is_point, strict=True) if not point]
        if not uncertain:
            raise ValueError(f"GaussianOver: none of the arrays {names} is left to have a posterior.")
        if len({leaf.dtype for leaf in uncertain}) > 1:
            raise TypeError("GaussianOver: all arrays must have one dtype; convert the position first.")
        vector = jnp.concatenate([jnp.ravel(leaf) for leaf in uncertain])
        is_name = isinstance(covariance, str)
        self.family = gaussian(covariance, vector, scale, rank=rank, owner="GaussianOver") if is_name else covariance
        if self.family.location.shape != vector.shape:
            raise ValueError(
                f"GaussianOver: the position has {vector.size} entries, but the family has a mean of shape "
                f"{self.family.location.shape}."
            )
        self.free = tuple(leaf for leaf, point in zip(leaves, is_point, strict=True) if point)
        self.layout = tuple((leaf.shape, point) for leaf, point in zip(leaves, is_point, strict=True))
        self.prior_variance = prior_variance

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        """Call the position with sampled arrays, or with the means."""
        position: Any = self.mean if key is None else self.sample(key)
        return position(x)

    @property
    def mean(self) -> Position:
        """Return the position of the means."""
        return self.position(self.family.location)

    def sample(self, key: PRNGKey) -> Position:
        """Draw a position."""
        return self.position(self.family.sample(key))

    def log_prob(self, position: Position) -> Scalar:
        """Compute the log density at a position."""
        leaves = [leaf for leaf, (_, point) in zip(jax.tree.leaves(position), self.layout, strict=True) if not point]
        return self.family.log_prob(jnp.concatenate([jnp.ravel(leaf) for leaf in leaves]))

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Compute the divergence from independent normal entries."""
        return self.family.kl(self.prior_variance, key=key)

    def position(self, vector: Float[Array, " D"]) -> Position:
        """Return the position with the uncertain entries of a vector."""
        free, leaves, start = iter(self.free), [], 0
        for shape, is_point in self.layout:
            if is_point:
                leaves.append(next(free))
            else:
                size = int(np.prod(shape))
                leaves.append(vector[start : start + size].reshape(shape))
                start += size
        return self.structure.unflatten(leaves)
