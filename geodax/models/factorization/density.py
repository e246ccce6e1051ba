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

The sampler works in coordinates: free parameters divided by fixed factors, chosen so that all have similar curvature
and one step size suits all. The recorded values are the parameters themselves.
"""

import math
from typing import NamedTuple

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
    """

    num_users: int
    num_items: int
    rank: int
    factorization: str
    has_offsets: bool
    interaction_scale: float
    offset_scale: float
    factors: dict[str, float]

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
    if has_offsets:
        prior = 1.0 / offset_scale**2
        curvatures |= {"user_offset": most_user + prior, "item_offset": most_item + prior}
    factors = {name: math.sqrt(stiffness / value) for name, value in curvatures.items()}
    return FactorizationForm(m, n, rank, factorization, has_offsets, interaction_scale, offset_scale, factors)


def geometry(form: FactorizationForm) -> Product:
    """Return the manifold of the coordinates."""
    side = Stiefel() if form.factorization == "svd" else Euclidean()
    return Product({"left": side, "right": side})


def parameters(position: Position, form: FactorizationForm) -> dict[str, Array]:
    """Convert coordinates to parameters; ``scales`` replace ``log_gaps``."""
    found = {name: form.factors[name] * x if name in form.factors else x for name, x in position.items()}
    if "log_gaps" in found:
        found["scales"] = ordered_scales(found.pop("log_gaps"))
    return found


def log_prior(position: Position, form: FactorizationForm) -> Scalar:
    """Compute the log prior density in the coordinates, up to a constant."""
    natural = {name: form.factors[name] * x if name in form.factors else x for name, x in position.items()}
    total = Gaussian(1.0).log_density(natural["intercept"]) + _NOISE.log_density(natural["log_noise"])
    if form.has_offsets:
        prior = Gaussian(form.offset_scale)
        total = total + prior.log_density(natural["user_offset"]) + prior.log_density(natural["item_offset"])
    if form.factorization == "svd":
        scales, prior = ordered_scales(natural["log_gaps"]), Gaussian(form.singular_value_scale)
        return total + prior.log_density(scales) + jnp.sum(natural["log_gaps"])
    prior = Gaussian(math.sqrt(form.entry_variance))
    return total + prior.log_density(natural["left"]) + prior.log_density(natural["right"])


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
