r"""Pooling of the orthonormal matrices across groups in canonical correlation analysis: priors and coordinates.

The four orthonormal matrices of a group (W and B of both views) have one of three priors; means, scales and noise are
always specific to the group, with normal and half-normal priors.

``separate``: uniform on the Stiefel manifold, independently for each group. Sampled on the manifold.

``complete``: one matrix for all groups, uniform. Sampled on the manifold.

``hierarchical`` (Pourzanjani et al. 2021, section 6.3): with Q the Givens map of angles, in the chart whose zero angles
are a reference matrix,

.. math::
    Q(\theta_0) \sim \mathrm{uniform}, \qquad \theta_g = \theta_0 + \tau \eta_g,\ \eta_g \sim N(0, I),
    \qquad \tau \sim N^+(0, s^2), \qquad W_g = Q(\theta_g),

with one spread for each of the four matrices. A spread of zero is complete pooling.

This prior depends on the chart, which is chosen as follows. The reference is estimated from all groups together and so
lies near the posterior: at zero angles every angle has unit speed (the volume element is 1), which makes the normal
distribution nearly isotropic there; the poles are a right angle away, and the cuts of the longitudes half a turn.
Angles of groups are not truncated: longitudes wrap around the circle and latitudes continue over a pole, so the prior
of a group's matrix is the image of a normal distribution (a wrapped normal distribution, on a circle) and has no
boundary. Only the common angles have bounded ranges. Their logistic coordinates are sampled together with the
deviations :math:`\eta_g`, so that small spreads cause no funnel.

Signs and order: changing the sign of a column in both views of a group leaves the likelihood unchanged. It corresponds
to half a turn of its longitude, which the prior of the group's angles makes improbable unless the spread is near one
radian. The hierarchy thus ties signs and order of the columns across groups. One sign per column, common to all groups,
remains; the mirror images of the reference lie at the cuts, which no chain reaches if the common directions are
identified at all. Draws are reported with aligned signs and order (:mod:`geodax.models.cca.signs`).
"""

import math
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from geodax import _checks
from geodax._types import Array, LogDensity, Position, PRNGKey
from geodax.diagnostics.subspaces import with_positive_largest_entry
from geodax.geometry.manifolds import AbstractManifold
from geodax.geometry.product import Product
from geodax.geometry.stiefel import Stiefel
from geodax.geometry.transforms import Givens
from geodax.geometry.transforms.rotations import num_angles
from geodax.models.cca.density import CCAParameters, GroupedRows, log_likelihood
from geodax.models.cca.signs import FRAMES, Frames
from geodax.models.principal_axes import LEAST_NOISE

Pooling = Literal["hierarchical", "separate", "complete"]
POOLINGS: tuple[Pooling, ...] = ("hierarchical", "separate", "complete")

_SCALES = ("shared_scale_1", "shared_scale_2", "own_scale_1", "own_scale_2", "noise_1", "noise_2")


class CCAPrior(NamedTuple):
    """Prior of the model, on standardised data (columns of variance about 1 within groups).

    Attributes:
        mean_scale: Standard deviation of each entry of the means.
        scale_scale: Standard deviation of the half-normal prior of the scales, divided by the square root of the
            number of columns of the view.
        noise_scale: Standard deviation of the half-normal prior of the noise.
        spread_scale: Standard deviation of the half-normal prior of the spreads, in radians.
    """

    mean_scale: float = 5.0
    scale_scale: float = 1.0
    noise_scale: float = 1.0
    spread_scale: float = 0.5


def checked_pooling(owner: str, pooling: str) -> Pooling:
    """Return the pooling; raises ValueError for an unknown one."""
    return cast(Pooling, _checks.chosen(owner, "pooling", pooling, POOLINGS))


def manifold(pooling: Pooling) -> AbstractManifold | None:
    """Return the manifold of positions with orthonormal matrices, or None for positions with angles."""
    return None if pooling == "hierarchical" else Product(dict.fromkeys(FRAMES, Stiefel()))


class Layout(NamedTuple):
    """Shapes of the model, and the structure of positions.

    A position has few leaves, because each one adds compilation time: ``means`` (groups x columns of both views) and
    ``log_scales`` (groups x all scales and noises), and either the orthonormal matrices by name, one per group or one
    for all, or ``common`` (coordinates in the charts, concatenated over the matrices), ``deviations`` (groups x angles)
    and ``log_spreads`` (4).

    Attributes:
        num_groups: Number of groups.
        charts: A chart for each orthonormal matrix, centred at its reference.
    """

    num_groups: int
    charts: tuple[Givens, ...]

    @property
    def widths(self) -> list[int]:
        """Number of scales of each kind, in the order of their columns."""
        shared, _, *own = (chart.p for chart in self.charts)
        return [shared, shared, *own, 1, 1]

    def spans(self) -> list[slice]:
        """Slices of the matrices' angles."""
        ends = np.cumsum([0, *(chart.num_unconstrained for chart in self.charts)]).tolist()
        return [slice(*ends[i : i + 2]) for i in range(len(self.charts))]


def layout(num_groups: int, reference: Frames) -> Layout:
    """Create the layout of a model with charts around a reference."""
    return Layout(num_groups, tuple(Givens(*frame.shape, center=frame) for frame in reference))


def group_frames(
    chart: Givens, common: Float[Array, " d"], deviations: Float[Array, "g d"], spread: Array
) -> Float[Array, "g n p"]:
    """Compute the groups' matrices from the common coordinates, and deviations in units of the spread."""
    theta = chart.angles(common)[None, :] + spread * deviations
    return jax.vmap(chart.compose)(theta)


def parameters(position: Position, shape: Layout) -> CCAParameters:
    """Compute the parameters of all groups at a position as in :class:`Layout`, for any of the three poolings."""
    frames = []
    for i, (name, chart, span) in enumerate(zip(FRAMES, shape.charts, shape.spans(), strict=True)):
        if name in position:
            frames.append(jnp.broadcast_to(position[name], (shape.num_groups, *chart.shape)))
        else:
            spread = jnp.exp(position["log_spreads"][i])
            frames.append(group_frames(chart, position["common"][span], position["deviations"][:, span], spread))
    ends = np.cumsum(shape.widths)[:-1].tolist()
    scales = dict(zip(_SCALES, jnp.split(jnp.exp(position["log_scales"]), ends, axis=1), strict=True))
    scales |= {name: scales[name][:, 0] for name in ("noise_1", "noise_2")}
    mean_1, mean_2 = jnp.split(position["means"], [shape.charts[0].n], axis=1)
    return CCAParameters(**dict(zip(FRAMES, frames, strict=True)), **scales, mean_1=mean_1, mean_2=mean_2)


def kept(position: Position, shape: Layout) -> dict[str, Array]:
    """Return the recorded values of a position: parameters, and common matrices and spreads if there are any."""
    record = parameters(position, shape)._asdict()
    if "common" in position:
        for i, (name, chart, span) in enumerate(zip(FRAMES, shape.charts, shape.spans(), strict=True)):
            record[f"common_{name}"] = chart.forward(position["common"][span])
            record[f"spread_{name}"] = jnp.exp(position["log_spreads"][i])
    return record


def log_density(data: GroupedRows, shape: Layout, prior: CCAPrior) -> LogDensity:
    """Return the log posterior density, a function of a position, whose leaves determine the pooling."""
    columns = [shape.charts[v].n for v in (0, 1, 0, 1)]
    prior_widths = [prior.scale_scale * math.sqrt(n) for n in columns] + 2 * [prior.noise_scale]
    widths = np.repeat(prior_widths, shape.widths)

    def logdensity_fn(position: Position) -> Array:
        log_scales, means = position["log_scales"], position["means"]
        total = jnp.sum(log_likelihood(parameters(position, shape), data))
        total = total - 0.5 * jnp.sum((means / prior.mean_scale) ** 2)
        # half-normal prior, with the volume element of the logarithm
        relative = jnp.exp(log_scales) / jnp.asarray(widths, log_scales.dtype)[None, :]
        total = total + jnp.sum(log_scales - 0.5 * relative**2)
        if "common" in position:
            log_spreads = position["log_spreads"]
            for chart, span in zip(shape.charts, shape.spans(), strict=True):
                total = total + chart.log_volume(position["common"][span])
            total = total - 0.5 * jnp.sum(position["deviations"] ** 2)
            total = total + jnp.sum(log_spreads - 0.5 * (jnp.exp(log_spreads) / prior.spread_scale) ** 2)
        return jnp.where(jnp.min(relative[:, -2:]) > LEAST_NOISE, total, -jnp.inf)

    return logdensity_fn


class Estimate(NamedTuple):
    """Moment estimate from a covariance matrix of both views.

    Attributes:
        frames: The orthonormal matrices.
        scales: Scales and noise, by name.
    """

    frames: Frames
    scales: dict[str, Float[np.ndarray, "..."]]


def from_moments(covariance: Float[np.ndarray, "n n"], n_1: int, sizes: tuple[int, int, int]) -> Estimate:
    """Estimate W from the singular vectors of the covariance between views, and B from each view's residual.

    ``sizes`` are the numbers of columns of the shared matrices and of those specific to view 1 and view 2. The largest
    entry of each column of W (over both views together) and of B is positive.
    """
    q, *own = sizes
    left, strength, right = np.linalg.svd(covariance[:n_1, n_1:], full_matrices=False)
    shared = [left[:, :q], right[:q].T]
    blocks = [covariance[:n_1, :n_1], covariance[n_1:, n_1:]]
    along = [np.einsum("np,nm,mp->p", w, c, w) for w, c in zip(shared, blocks, strict=True)]
    ratio = np.sqrt(along[0] / along[1])
    frames, scales = {}, {}
    for v, (w, c, variance, factor) in enumerate(zip(shared, blocks, along, (ratio, 1 / ratio), strict=True)):
        shared_variance = np.clip(strength[:q] * factor, 0.02, 0.9 * variance)
        values, vectors = np.linalg.eigh(c - (w * shared_variance) @ w.T)
        k = own[v]
        rest = values[: max(1, len(values) - k - q)]
        noise_variance = max(float(rest.mean()), 0.02)
        frames[f"own_{v + 1}"] = with_positive_largest_entry(vectors[:, ::-1][:, :k])
        scales[f"own_scale_{v + 1}"] = np.sqrt(np.maximum(values[::-1][:k] - noise_variance, 0.05))
        scales[f"shared_scale_{v + 1}"] = np.sqrt(shared_variance)
        scales[f"noise_{v + 1}"] = np.sqrt(noise_variance)
    both = with_positive_largest_entry(np.concatenate(shared))
    frames |= {"shared_1": both[:n_1], "shared_2": both[n_1:]}
    return Estimate(Frames(**frames), scales)


def pooled_estimate(
    data: GroupedRows, n_1: int, sizes: tuple[int, int, int], reference: Frames | None = None
) -> Estimate:
    """Compute the moment estimate from the covariance within groups; optionally replace its frames."""
    freedom = max(float(data.num_rows.sum()) - len(data.num_rows), 1.0)
    found = from_moments(data.scatter.sum(axis=0) / freedom, n_1, sizes)
    return found if reference is None else found._replace(frames=reference)


def starting_point(
    key: PRNGKey, data: GroupedRows, estimate: Estimate, pooling: Pooling, *, spread: float = 0.3
) -> Position:
    """Draw an initial position near the pooled estimate; the perturbation separates the chains."""
    # NumPy seeded by the key avoids compilation for small arrays
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    num_groups = len(data.num_rows)
    noise = generator.standard_normal(data.average.shape) / np.sqrt(data.num_rows)[:, None]
    log_scales = np.log(np.concatenate([np.atleast_1d(estimate.scales[name]) for name in _SCALES]))
    position: dict[str, np.ndarray] = {
        "means": data.average + spread * noise,
        "log_scales": log_scales + spread * generator.standard_normal((num_groups, len(log_scales))),
    }
    if pooling == "hierarchical":
        count = sum(num_angles(*frame.shape) for frame in estimate.frames)
        position["common"] = 0.3 * spread * generator.standard_normal(count)
        position["deviations"] = spread * generator.standard_normal((num_groups, count))
        position["log_spreads"] = np.log(0.2) + spread * generator.standard_normal(len(FRAMES))
        return position
    for name, frame in zip(FRAMES, estimate.frames, strict=True):
        shape = frame.shape if pooling == "complete" else (num_groups, *frame.shape)
        perturbed = frame + spread / math.sqrt(len(frame)) * generator.standard_normal(shape)
        u, _, vh = np.linalg.svd(perturbed, full_matrices=False)
        position[name] = u @ vh
    return position
