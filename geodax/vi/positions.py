"""A Gaussian posterior over all arrays of a position: an array, a dict of arrays, a layer, or a network."""

import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks, _parameters, _tree
from geodax._types import Array, Position, PRNGKey, PyTree, Scalar
from geodax.vi.families import AbstractFamily, DiagonalGaussian, gaussian, normal
from geodax.vi.modules import AbstractWhole, has_posterior
from geodax.vi.optimizers import rounded
from geodax.vi.split_family import GaussianArrays

NOISE, SPACINGS = "*log_noise", "*log_spacings"
"""Parameters of likelihoods, which a network may lack."""


def require_free(owner: str, position: Position) -> None:
    """Raise unless the parameters of a position are free real arrays, to which steps and noise can be added.

    Raises TypeError for complex arrays, and ValueError for parameters on a manifold.
    """
    for name, leaf in _tree.named_leaves(position):
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
                "gx.sghmc(posterior, manifold=gx.nn.geometry(network))."
            )


def same_positions(owner: str, network: PyTree) -> Callable[[PyTree], None]:
    """Check a position to which a method adds a posterior, and return the check of the one it starts from.

    The latter raises unless its argument has the same arrays. Raises TypeError if the position already has posteriors
    or a complex array, and ValueError if parameters lie on a manifold.
    """

    def require_plain(network: PyTree) -> None:
        if has_posterior(network):
            raise TypeError(
                f"{owner}: expected an ordinary network or position, to which it adds a posterior, found one that "
                "already has posteriors (GaussianOver, variational layers); pass the original position or network, "
                "before it was wrapped."
            )

    require_plain(network)
    require_free(owner, network)
    arrays = _described_arrays(network)

    def require_same(network: PyTree) -> None:
        require_plain(network)
        if _described_arrays(network) != arrays:
            raise ValueError(
                f"{owner}: expected a network with the arrays {arrays}, as passed to {owner}, found one with "
                f"{_described_arrays(network)}; pass the same network to both."
            )

    return require_same


def are_points(position: Position, points: Sequence[str]) -> list[bool]:
    """Return which leaves of a position have a path that matches one of some shell patterns."""
    names = _tree.leaf_names(position)
    for pattern in points:
        if pattern not in (NOISE, SPACINGS) and not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"points: no array matches {pattern!r}; the arrays are {', '.join(names[:12])}.")
    return [any(fnmatch.fnmatchcase(name, pattern) for pattern in points) for name in names]


def prior_variances_of(
    owner: str, position: Position, points: Sequence[str], prior_variance: float, priors: Any
) -> tuple[float, ...]:
    """Return the variance of the normal prior of each array of a position but the points.

    It is that of ``priors``, a :class:`geodax.nn.Priors` of normal distributions with mean 0, or one number for all.
    """
    is_point = are_points(position, points)
    if priors is None:
        variance = _checks.number(owner, "prior_variance", prior_variance, above=0.0)
        return (variance,) * is_point.count(False)
    if not callable(getattr(priors, "variances", None)):
        raise TypeError(f"{owner}: priors must be a gx.nn.Priors, found {_checks.described(priors)}.")
    found = priors.variances(position)
    for name, value, point in zip(_tree.leaf_names(position), found, is_point, strict=True):
        if value is None and not point:
            raise ValueError(
                f"{owner}: the prior of {name} must be nn.Gaussian with mean 0; for other priors use "
                "gx.vi.fit with a posterior of your own, or a sampler."
            )
    return tuple(value for value, point in zip(found, is_point, strict=True) if not point)


def _described_arrays(network: PyTree) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes, as a list because names can collide, as in ``{"a.b": x, "a": {"b": y}}``."""
    arrays = eqx.filter(network, eqx.is_inexact_array)
    return list(zip(_tree.leaf_names(arrays), (leaf.shape for leaf in jax.tree.leaves(arrays)), strict=True))


def _is_on_manifold(node: object) -> bool:
    """Whether a node has the methods of a :class:`geodax.nn.AbstractStructured`, and its arrays are not left out."""
    methods = (getattr(type(node), name, None) for name in ("manifolds", "structured_priors"))
    if not (isinstance(node, eqx.Module) and all(map(callable, methods))):
        return False
    structured: Any = node
    return any(hasattr(getattr(structured, name), "shape") for name in structured.structured_priors())


class GaussianOver(AbstractWhole):
    """One Gaussian over the entries of all arrays of a position, in one vector.

    Arrays that are split over devices (:func:`geodax.shard`) keep their split with ``"diagonal"``: the family is then a
    :class:`~geodax.vi.GaussianArrays`, with one array for each in place of the vector.

    Use it for positions that are not networks, and for small networks with full covariance. Natural-gradient methods
    and the Laplace approximation return their result in this form. Its samples are positions like the original; called
    like a layer, it samples a position and calls it.

    Args:
        position: The means, a pytree of real arrays of one dtype.
        covariance: ``"diagonal"``, ``"full"`` or ``"low-rank"``, or a family over the vector, whose mean is then used.
        scale: The initial standard deviation.
        prior_variance: Variance of the normal prior of every entry, with mean 0; for ``"diagonal"`` also a tuple of one
            variance for each array with a posterior.
        log_prior: Any other prior, in place of ``prior_variance``: the normalised log density as a function of the
            position. The divergence is then estimated from one draw.
        points: Shell patterns of the paths of arrays that are parameters without a posterior, and without a prior other
            than ``log_prior``.
        rank: Number of directions of ``"low-rank"``; None uses 4, or the number of entries if it is smaller.

    Example:
        ``gx.vi.GaussianOver(jnp.zeros(3), covariance="full")``
    """

    family: AbstractFamily | GaussianArrays
    free: tuple[Array, ...]
    structure: Any = eqx.field(static=True)
    layout: tuple[tuple[tuple[int, ...], bool], ...] = eqx.field(static=True)
    prior_variance: float | tuple[float, ...] = eqx.field(static=True)
    log_prior: Callable[[Position], Scalar] | None = eqx.field(static=True)

    def __init__(
        self,
        position: Position,
        covariance: str | AbstractFamily = "diagonal",
        *,
        scale: float = 0.1,
        prior_variance: float | tuple[float, ...] = 1.0,
        log_prior: Callable[[Position], Scalar] | None = None,
        points: Sequence[str] = (),
        rank: int | None = None,
    ):
        """See the class."""
        _parameters.leaves("GaussianOver", "position", position)
        _parameters.warn_if_tied("GaussianOver", "position", position)
        require_free("GaussianOver", position)
        given = prior_variance if isinstance(prior_variance, tuple) else (prior_variance,)
        checked = tuple(_checks.number("GaussianOver", "prior_variance", value, above=0.0) for value in given)
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
        is_point = are_points(position, points)
        uncertain = [leaf for leaf, point in zip(leaves, is_point, strict=True) if not point]
        if not uncertain:
            raise ValueError(f"GaussianOver: none of the arrays {names} is left to have a posterior.")
        if len({leaf.dtype for leaf in uncertain}) > 1:
            raise TypeError("GaussianOver: all arrays must have one dtype; convert the position first.")
        if covariance == "diagonal" and any(map(_tree.is_split, uncertain)):
            self.family = _arrays(position, uncertain, is_point, scale)
        else:
            self.family = _family(uncertain, covariance, scale, rank)
        self.free = tuple(leaf for leaf, point in zip(leaves, is_point, strict=True) if point)
        self.layout = tuple((leaf.shape, point) for leaf, point in zip(leaves, is_point, strict=True))
        if log_prior is not None:
            _checks.function("GaussianOver", "log_prior", log_prior, "a function of the position")
            if prior_variance != 1.0:
                raise ValueError("GaussianOver: give one of log_prior and prior_variance.")
        self.log_prior = log_prior
        self.prior_variance = checked if isinstance(prior_variance, tuple) else checked[0]
        if isinstance(prior_variance, tuple):
            if len(checked) != len(uncertain):
                raise ValueError(
                    f"GaussianOver: expected one prior_variance for each of {len(uncertain)} arrays with a posterior, "
                    f"found {len(checked)}."
                )
            if not isinstance(self.family, DiagonalGaussian | GaussianArrays):
                raise ValueError(
                    "GaussianOver: prior_variance of each array needs covariance='diagonal'; give one number."
                )

    # Equinox compares an object of the structures of its modules by identity, which copies do not keep
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"structure": self.structure.unflatten(range(self.structure.num_leaves))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in (state | {"structure": jax.tree.structure(state["structure"])}).items():
            object.__setattr__(self, name, value)

    def __call__(self, x: Any, *, key: PRNGKey | None = None) -> Any:
        position: Any = self.mean if key is None else self.sample(key)
        return position(x)

    @property
    def mean(self) -> Position:
        """Return the position of the means."""
        return self.position(self.family.location)

    def sample(self, key: PRNGKey) -> Position:
        return self.position(self.family.sample(key))

    def log_prob(self, position: Position) -> Scalar:
        """Compute the log density at a position."""
        return self.family.log_prob(self.arranged(position)[0])

    def kl(self, *, key: PRNGKey | None = None) -> Scalar:
        """Compute the divergence from the prior, for ``log_prior`` an estimate that needs the key."""
        if self.log_prior is None:
            return self.family.kl(self.prior_variances(), key=key)
        if key is None:
            raise ValueError("GaussianOver: the divergence from log_prior is estimated from a draw; give key=.")
        position = self.sample(key)
        return self.log_prob(position) - _tree.widened(jnp.asarray(self.log_prior(position)))

    @property
    def is_split(self) -> bool:
        """Whether the family has an array for each array of the position, in its place."""
        return isinstance(self.family, GaussianArrays)

    def noise(self, key: PRNGKey, like: Any) -> Any:
        """Draw standard normal noise in the form of the means of the diagonal family."""
        if isinstance(self.family, GaussianArrays):
            return self.family.noise(key, like)
        return normal(key, like.shape, like.dtype)

    def fitted(self, mean: Any, log_scale: Any, points: tuple[Array, ...]) -> "GaussianOver":
        """Return the posterior with other parameters of the diagonal family, and other points."""

        def where(posterior: Any) -> tuple[Any, Any, Any]:
            return posterior.family.mean, posterior.family.log_scale, posterior.free

        return eqx.tree_at(where, self, tuple(map(rounded, (mean, log_scale, points), where(self))))

    def prior_variances(self) -> Any:
        """Return the prior variance: one number, or that of every entry in the form of the family."""
        if isinstance(self.family, GaussianArrays):
            given = self.prior_variance
            return self.family.arranged(given if isinstance(given, tuple) else (given,) * len(self.family.names))
        if not isinstance(self.prior_variance, tuple):
            return self.prior_variance
        sizes = [int(np.prod(shape)) for shape, is_point in self.layout if not is_point]
        dtype = _tree.widened(self.family.location).dtype
        parts = [jnp.full(size, value, dtype) for size, value in zip(sizes, self.prior_variance, strict=True)]
        return jnp.concatenate(parts)

    def arranged(self, position: Position) -> tuple[Any, tuple[Any, ...]]:
        """Return the arrays of a position that have a posterior, in the form of the family, and the others."""
        pairs = list(zip(jax.tree.leaves(position), self.layout, strict=True))
        uncertain = [leaf for leaf, (_, is_point) in pairs if not is_point]
        free = tuple(leaf for leaf, (_, is_point) in pairs if is_point)
        if isinstance(self.family, GaussianArrays):
            return self.family.arranged(uncertain), free
        return jnp.concatenate([jnp.ravel(leaf) for leaf in uncertain]), free

    def position(self, vector: Any) -> Position:
        """Return the position with the uncertain entries of a vector, or of arrays by name."""
        if isinstance(self.family, GaussianArrays):
            arrays, free = iter([vector[name] for name in self.family.names]), iter(self.free)
            return self.structure.unflatten([next(free if is_point else arrays) for _, is_point in self.layout])
        free, leaves, start = iter(self.free), [], 0
        for shape, is_point in self.layout:
            if is_point:
                leaves.append(next(free))
            else:
                size = int(np.prod(shape))
                leaves.append(vector[start : start + size].reshape(shape))
                start += size
        return self.structure.unflatten(leaves)


def _family(uncertain: list[Array], covariance: str | AbstractFamily, scale: float, rank: int | None) -> AbstractFamily:
    vector = jnp.concatenate([jnp.ravel(leaf) for leaf in uncertain])
    is_name = isinstance(covariance, str)
    family = gaussian(covariance, vector, scale, rank=rank, owner="GaussianOver") if is_name else covariance
    if family.location.shape != vector.shape:
        raise ValueError(
            f"GaussianOver: the position has {vector.size} entries, but the family has a mean of shape "
            f"{family.location.shape}."
        )
    return family


def _arrays(position: Position, uncertain: list[Array], is_point: list[bool], scale: float) -> GaussianArrays:
    """The family over arrays that keep their split."""
    if repeated := _tree.repeated_names(position):
        raise ValueError(f"GaussianOver: several arrays have the name {repeated[0]!r}; rename one of them.")
    names = tuple(name for name, point in zip(_tree.leaf_names(position), is_point, strict=True) if not point)
    log_scale = math.log(_checks.number("GaussianOver", "scale", scale, above=0.0))
    named = dict(zip(names, uncertain, strict=True))
    return GaussianArrays(named, {name: jnp.full_like(leaf, log_scale) for name, leaf in named.items()}, names)
