r"""Posterior of a low-rank matrix with partly observed entries.

With users u, items i and standardised ratings y,

.. math::
    y_{ui} = \mu + a_u + b_i + W_{ui} + \mathrm{noise}, \qquad W = U\, \mathrm{diag}(s)\, V^T,

U and V with r orthonormal columns, uniform (Yanush and Kropotov 2019, section 3.4), and the singular values half-normal
and independent apart from their order, with a scale such that the entries of W have a given root mean square
:math:`\tau`. Unlike the singular values of a Gaussian matrix, which repel one another and zero, they may be near zero,
so components that the ratings do not need vanish. The *bottleneck* :math:`W = A B^T` has independent normal entries of
variance :math:`\tau / \sqrt r` in both factors, and the same :math:`\tau`. The offsets are normal with standard
deviation :math:`\beta`, the mean with standard deviation 1, the noise is log-normal around 0.6.

The sampler works in coordinates that the ratings determine, where :math:`\mu`, a, b and W can nearly take each other's
place: with bars for means over users or items,

.. math::
    a'_u = a_u + \bar W_u, \qquad b'_i = b_i + \bar W_i, \qquad
    \mu' = \mu - \bar W + \overline{a'} + \overline{b'},

of which :math:`\mu'` is the mean of all cells. They are divided by fixed factors, chosen so that all have similar
curvature and one step size suits all. The recorded values are the parameters themselves.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from geodax._types import Array, Position, Scalar
from geodax.geometry.manifolds import Euclidean
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.geometry.transforms.ordered import ordered_scales
from geodax.nn import Gaussian

FACTORIZATIONS = ("svd", "bottleneck")
Batch = tuple[Int[Array, " B"], Int[Array, " B"], Float[Array, " B"]]
_NOISE = Gaussian(1.0, mean=-0.5)


class FactorizationForm(NamedTuple):
    """The model, and the factors of the coordinates.

    Attributes:
        interaction_scale: Root mean square of the entries of W, in standardised units.
        offset_scale: Prior standard deviation of the offsets, in standardised units.
        factors: Factor of each free leaf, by name: a parameter is its coordinate times the factor.
        stretches: Further factor of the mean of the entries of a leaf, which the prior alone determines.
    """

    num_users: int
    num_items: int
    rank: int
    factorization: str
    has_offsets: bool
    interaction_scale: float
    offset_scale: float
    factors: dict[str, float]
    stretches: dict[str, float]

    @property
    def singular_value_scale(self) -> float:
        """Prior scale of the singular values."""
        return self.interaction_scale * math.sqrt(self.num_users * self.num_items / self.rank)

    @property
    def entry_variance(self) -> float:
        """Prior variance of an entry of a bottleneck's factors."""
        return self.interaction_scale / math.sqrt(self.rank)


def make_form(
    users: Int[np.ndarray, " N"],
    items: Int[np.ndarray, " N"],
    *,
    rank: int,
    factorization: str,
    has_offsets: bool,
    interaction_scale: float,
    offset_scale: float,
) -> FactorizationForm:
    """Create the form for given users and items, numbered from 0 without gaps.

    The stiffest direction of a factor belongs to the user or item with most ratings. The noise is common to all, so
    curvatures are measured in units of its inverse variance, at most 1 for standardised ratings; that of the prior is
    added. A uniform unit vector of m entries, each of variance 1 / m, counts as one of curvature m.
    """
    per_user, per_item = np.bincount(users), np.bincount(items)
    m, n, total = len(per_user), len(per_item), len(users)
    most_user, most_item = int(per_user.max()), int(per_item.max())
    if factorization == "svd":
        stiffness = interaction_scale**2 / rank * max(m * most_user, n * most_item) + max(m, n)
        curvatures = {"log_gaps": total * interaction_scale**2 / rank + 1.0}
    else:
        variance = interaction_scale / math.sqrt(rank)
        stiffness = variance * max(most_user, most_item) + 1.0 / variance
        curvatures = {}
    curvatures |= {"intercept": total + 1.0, "log_noise": 2.0 * total}
    stretches = {}
    if has_offsets:
        prior = 1.0 / offset_scale**2
        curvatures |= {"user_offset": most_user + prior, "item_offset": most_item + prior}
        stretches = {name: math.sqrt(curvatures[name] / prior) for name in ("user_offset", "item_offset")}
    factors = {name: math.sqrt(stiffness / value) for name, value in curvatures.items()}
    return FactorizationForm(
        m, n, rank, factorization, has_offsets, interaction_scale, offset_scale, factors, stretches
    )


def geometry(form: FactorizationForm) -> Product:
    """Return the manifold of the coordinates."""
    side = Stiefel() if form.factorization == "svd" else Euclidean()
    return Product({"left": side, "right": side})


def parameters(position: Position, form: FactorizationForm) -> dict[str, Array]:
    """Convert coordinates to parameters; ``scales`` replace ``log_gaps``."""
    found = {name: form.factors.get(name, 1.0) * x for name, x in position.items()}
    if "log_gaps" in found:
        found["scales"] = ordered_scales(found.pop("log_gaps"))
    if form.has_offsets:
        users, items = (_stretched(found[name], by) for name, by in form.stretches.items())
        rows, columns, both = _means_of_matrix(found)
        found["intercept"] += both - users.mean() - items.mean()
        found |= {"user_offset": users - rows, "item_offset": items - columns}
    return found


def coordinates(theta: Mapping[str, Any], form: FactorizationForm) -> dict[str, Any]:
    """Convert parameters, NumPy arrays, to coordinates."""
    found = dict(theta)
    if form.has_offsets:
        rows, columns, both = _means_of_matrix(found)
        found |= {"user_offset": found["user_offset"] + rows, "item_offset": found["item_offset"] + columns}
        found["intercept"] = found["intercept"] - both + found["user_offset"].mean() + found["item_offset"].mean()
        found |= {name: _stretched(found[name], 1.0 / by) for name, by in form.stretches.items()}
    if "scales" in found:
        scales = found.pop("scales")
        found["log_gaps"] = np.log(scales - np.append(scales[1:], 0.0))
    return {name: x / form.factors.get(name, 1.0) for name, x in found.items()}


def _means_of_matrix(theta: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Means of the rows, the columns and all entries of W."""
    left, right = theta["left"], theta["right"]
    left = left * theta["scales"][None] if "scales" in theta else left
    of_left, of_right = left.mean(axis=0), right.mean(axis=0)
    return left @ of_right, right @ of_left, of_left @ of_right


def _stretched(x: Any, factor: float) -> Any:
    """A vector whose mean is multiplied."""
    return x + (factor - 1.0) * x.mean()


def log_prior(position: Position, form: FactorizationForm) -> Scalar:
    """Compute the log prior density in the coordinates, up to a constant."""
    theta = parameters(position, form)
    total = Gaussian(1.0).log_density(theta["intercept"]) + _NOISE.log_density(theta["log_noise"])
    if form.has_offsets:
        prior = Gaussian(form.offset_scale)
        total = total + prior.log_density(theta["user_offset"]) + prior.log_density(theta["item_offset"])
    if form.factorization == "svd":
        log_gaps, prior = form.factors["log_gaps"] * position["log_gaps"], Gaussian(form.singular_value_scale)
        return total + prior.log_density(theta["scales"]) + jnp.sum(log_gaps)
    prior = Gaussian(math.sqrt(form.entry_variance))
    return total + prior.log_density(theta["left"]) + prior.log_density(theta["right"])


def log_likelihood(position: Position, batch: Batch, form: FactorizationForm) -> Float[Array, " B"]:
    """Compute the log density of each standardised rating in a batch of users, items and ratings."""
    users, items, ratings = batch
    theta = parameters(position, form)
    scaled = theta["left"][users] * theta["scales"][None] if "scales" in theta else theta["left"][users]
    means = theta["intercept"] + jnp.sum(scaled * theta["right"][items], axis=1)
    if form.has_offsets:
        means = means + theta["user_offset"][users] + theta["item_offset"][items]
    z = (ratings - means) * jnp.exp(-theta["log_noise"])
    return -0.5 * z * z - theta["log_noise"] - 0.5 * math.log(2.0 * math.pi)
