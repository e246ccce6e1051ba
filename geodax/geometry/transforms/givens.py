r"""Orthonormal matrices as products of Givens rotations.

.. math:: Q = (R_{12} \cdots R_{1n})(R_{23} \cdots R_{2n}) \cdots (R_{p,p+1} \cdots R_{pn})\, I_{n,p}

with counterclockwise rotations by :math:`\theta_{ij}` in the planes of coordinates :math:`i` and :math:`j`
(Pourzanjani et al. 2021, Bayesian Analysis 16, 639; algorithm 1 there is clockwise: it gives this map of the negative
angles). The *longitudes* :math:`\theta_{i,i+1}` are in :math:`(-\pi, \pi)`, the *latitudes*, all others, in
:math:`(-\pi/2, \pi/2)`; with wider latitudes every matrix would have several vectors of angles. The chart misses a set
of measure zero, and for square matrices one of the two components of the orthogonal group.

The volume element is :math:`\prod_{i < j} \cos^{j-i-1}\theta_{ij}`: under the uniform distribution all angles are
independent, the longitudes are uniform and :math:`\sin^2\theta_{ij}` has the distribution Beta(1/2, (j-i)/2). An angle
is computed from an unconstrained number by the logistic function, whose derivative is part of the log volume.
"""

import functools
import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from geodax import _checks
from geodax._precision import with_full_precision
from geodax._types import Array, Float, Scalar
from geodax.geometry.transforms import intervals
from geodax.geometry.transforms.base import AbstractTransform, check_matrix, check_size, check_vector
from geodax.geometry.transforms.completion import Completion, check_center, complete, middle
from geodax.geometry.transforms.rotations import num_angles, pairs, reduce, rotate, rotate_in_any_mode


@with_full_precision
class Givens(AbstractTransform):
    """Angles of Givens rotations: a chart with coordinates that can be interpreted and given priors.

    If the posterior has mass on both sides of a cut (a longitude at plus or minus pi), one mode becomes two, and
    close to a pole (a latitude at a right angle) the volume element vanishes. There are three remedies: ``center``
    moves a given point to the middle of the chart, far from all cuts and poles; ``shift`` moves only the cuts;
    ``wrap="circle"`` removes them. :meth:`centered_on` and :meth:`shifted_for` choose the first two from draws.
    Draws from charts that each cover everything (no ``epsilon``, no ``half``) can be combined after ``forward``: each
    chart has the whole posterior.

    Args:
        n: Number of rows.
        p: Number of columns, at most ``n``.
        half: Whether to halve the ranges of the longitudes. The chart then contains exactly one of the matrices that
            differ only in the signs of columns (of square ones: in an even number of signs); ``inverse`` returns the
            vector of that one. For densities that are invariant to signs.
        epsilon: Margin removed from all ranges. The chart then covers only a part of the manifold, and the pull-back is
            the density restricted to it.
        shift: Middle of the ranges of the longitudes, one number or one for each of them.
        wrap: Treatment of the ends of the longitudes' ranges. ``"cut"``: they are boundaries. ``"circle"``: each
            longitude is the direction of a pair of standard normal variables, so that chains can move around the
            circle; the map is then redundant, and the second members of the pairs are the last entries of the vector.
        determinant: 1 or -1, the component that the chart of square matrices covers.
        center: Orthonormal matrix that is the image of zero angles; for square matrices it sets the determinant.
        forward_mode: Whether to support forward-mode derivatives (``jax.jvp``, ``jax.jacfwd``). Gradients then take
            several times the time and memory.

    Raises:
        ValueError: For arguments out of their ranges, or that exclude each other.
    """

    n: int = eqx.field(static=True)
    p: int = eqx.field(static=True)
    half: bool = eqx.field(static=True)
    epsilon: float = eqx.field(static=True)
    wrap: str = eqx.field(static=True)
    determinant: int = eqx.field(static=True)
    shift: Float[Array, " m"] | None
    completion: Completion | None
    forward_mode: bool = eqx.field(static=True)

    def __init__(
        self,
        n: int,
        p: int,
        *,
        half: bool = False,
        epsilon: float = 0.0,
        shift: Any = None,
        wrap: Literal["cut", "circle"] = "cut",
        determinant: int = 1,
        center: Any = None,
        forward_mode: bool = False,
    ):
        n, p = check_size("Givens", n, p)
        epsilon = _checks.number("Givens", "epsilon", epsilon, least=0.0, below=math.pi / 2)
        _checks.chosen("Givens", "wrap", wrap, ("cut", "circle"))
        if wrap == "circle" and (half or shift is not None):
            raise ValueError(
                'Givens: with wrap="circle" the longitudes have no ranges to halve or to shift; '
                "leave out half and shift."
            )
        determinant = _checks.whole("Givens", "determinant", determinant, least=-1, most=1)
        if determinant == 0 or (determinant == -1 and (n > p or center is not None)):
            raise ValueError(
                f"Givens: determinant must be 1, or -1 for square matrices without a center, found {determinant!r} "
                f"with n = {n}, p = {p}."
            )
        self.n, self.p, self.half, self.epsilon = n, p, bool(half), float(epsilon)
        self.wrap, self.determinant, self.forward_mode = wrap, int(determinant), bool(forward_mode)
        count = min(p, n - 1)
        self.shift = None if shift is None else _shift(shift, count)
        self.completion = None if center is None else complete(check_center("Givens", center, (n, p)))

    @property
    def num_unconstrained(self) -> int:
        """Dimension of the manifold; with ``wrap="circle"`` one more for each longitude."""
        extra = min(self.p, self.n - 1) if self.wrap == "circle" else 0
        return num_angles(self.n, self.p) + extra

    @property
    def is_injective(self) -> bool:
        """True unless the longitudes are directions of pairs."""
        return self.wrap == "cut"

    def forward_and_log_volume(self, z: Float[Array, " k"]) -> tuple[Float[Array, "n p"], Scalar]:
        cosines, sines, log_volume = self._polar_coordinates(z)
        return self._place(self._rotate(cosines, sines)), log_volume

    def forward(self, z: Float[Array, " k"]) -> Float[Array, "n p"]:
        return self.forward_and_log_volume(z)[0]

    def log_volume(self, z: Float[Array, " k"]) -> Scalar:
        return self._polar_coordinates(z)[2]

    def inverse(self, q: Float[Array, "n p"]) -> Float[Array, " k"]:
        """Compute the unconstrained vector of a matrix (with ``half``: of its mirror image in the chart).

        Points outside the chart are moved close to its border; the last column of a square matrix is
        assumed to have the chart's determinant.
        """
        return self.from_angles(self.decompose(q))

    def angles(self, z: Float[Array, " k"]) -> Float[Array, " d"]:
        """Compute the angles of an unconstrained vector, in the order 12, ..., 1n, 23, ..., pn."""
        z = check_vector(self, z)
        theta = intervals.angles(z[: num_angles(self.n, self.p)], self._widths())
        longitudes = _longitudes(self.n, self.p)
        if self.wrap == "circle":
            theta = theta.at[longitudes].set(jnp.arctan2(z[theta.size :], z[longitudes]))
        return theta if self.shift is None else theta.at[longitudes].add(self.shift.astype(z.dtype))

    def from_angles(self, theta: Float[Array, " d"]) -> Float[Array, " k"]:
        """Compute an unconstrained vector with these angles; angles outside the chart are moved to its border."""
        longitudes = _longitudes(self.n, self.p)
        if theta.shape != (num_angles(self.n, self.p),):
            raise ValueError(
                f"Givens({self.n}, {self.p}): expected {num_angles(self.n, self.p)} angles, found shape {theta.shape}."
            )
        middle = theta[longitudes] if self.shift is None else theta[longitudes] - self.shift.astype(theta.dtype)
        middle = middle - 2 * math.pi * jnp.round(middle / (2 * math.pi))
        z = intervals.unconstrained(theta.at[longitudes].set(middle), self._widths())
        if self.wrap == "cut":
            return z
        length = math.sqrt(math.pi / 2)  # the mean length of a pair
        return jnp.concatenate([z.at[longitudes].set(length * jnp.cos(middle)), length * jnp.sin(middle)])

    def compose(self, theta: Float[Array, " d"]) -> Float[Array, "n p"]:
        """Compute the matrix of any angles, inside the chart's ranges or not."""
        return self._place(self._rotate(jnp.cos(theta), jnp.sin(theta)))

    def _rotate(self, cosines: Float[Array, " d"], sines: Float[Array, " d"]) -> Float[Array, "n p"]:
        return (rotate_in_any_mode if self.forward_mode else rotate)(cosines, sines, self.n, self.p)

    def decompose(self, q: Float[Array, "n p"]) -> Float[Array, " d"]:
        """Compute the angles of a matrix (with ``half``: of its mirror image in the chart)."""
        q = check_matrix(self, q)
        if self.completion is not None:
            q = self.completion.apply_transpose(q)
        middle = jnp.zeros(min(self.p, self.n - 1), q.dtype) if self.shift is None else self.shift.astype(q.dtype)
        return reduce(q, middle, self.half)

    def centered_on(self, frames: Float[Array, "*batch n p"]) -> "Givens":
        """Return the same chart with the orthonormal matrix nearest to the mean of some frames in its middle."""
        options: Any = {"half": self.half, "epsilon": self.epsilon, "shift": self.shift, "wrap": self.wrap}
        options["forward_mode"] = self.forward_mode
        frames = _checks.array("Givens.centered_on", "frames", frames, half=False)
        if frames.shape[-2:] != self.shape or frames.size == 0:
            raise ValueError(
                f"Givens.centered_on: expected matrices of shape {self.shape}, found an array of shape {frames.shape}."
            )
        return Givens(self.n, self.p, center=middle(frames), **options)

    def shifted_for(self, frames: Float[Array, "*batch n p"]) -> "Givens":
        """Return the chart with each longitude cut in the middle of the widest gap between those of some frames."""
        if self.wrap == "circle":
            raise ValueError('Givens: with wrap="circle" there is no cut to shift.')
        frames = frames.reshape(-1, *self.shape)
        period = math.pi if self.half else 2 * math.pi
        shift, transform = np.zeros(min(self.p, self.n - 1)), self
        for i, place in enumerate(_longitudes(self.n, self.p)):  # halved ranges depend on the ones before
            longitude = np.sort(np.asarray(jax.vmap(transform.decompose)(frames))[:, place] % period)
            gaps = np.diff(longitude, append=longitude[:1] + period)
            cut = longitude[gaps.argmax()] + gaps.max() / 2
            shift[i] = (cut + period / 2 + math.pi) % (2 * math.pi) - math.pi
            transform = eqx.tree_at(lambda t: t.shift, self, jnp.asarray(shift), is_leaf=lambda x: x is None)
        return transform

    def _widths(self) -> np.ndarray:
        return _widths(self.n, self.p, self.half, self.epsilon)

    def _polar_coordinates(self, z: Array) -> tuple[Array, Array, Scalar]:
        """Cosines and sines of the angles, and the log volume."""
        z = check_vector(self, z)
        longitudes, exponents = _longitudes(self.n, self.p), _exponents(self.n, self.p)
        count = exponents.size
        cut = intervals.cut_angles(z[:count], self._widths())
        cosines, sines, log_slopes = cut.cosine, cut.sine, cut.log_slope
        constant = _log_constant(self.n, self.p)
        log_volume = jnp.sum(jnp.asarray(exponents, z.dtype) * cut.log_cosine)
        if self.wrap == "circle":
            first, second = z[longitudes], z[count:]
            squares = first * first + second * second
            length = jnp.sqrt(jnp.where(squares > 0, squares, 1))
            cosines = cosines.at[longitudes].set(jnp.where(squares > 0, first / length, 1))
            sines = sines.at[longitudes].set(second / length)
            log_slopes = log_slopes.at[longitudes].set(-0.5 * squares)
        elif self.shift is not None:
            shift = jnp.zeros(count, z.dtype).at[longitudes].set(self.shift.astype(z.dtype))
            c, s = jnp.cos(shift), jnp.sin(shift)
            cosines, sines = c * cosines - s * sines, s * cosines + c * sines
        return cosines, sines, log_volume + jnp.sum(log_slopes) + constant

    def _place(self, q: Array) -> Array:
        if self.completion is not None:
            return self.completion.apply(q)
        return q.at[:, -1].multiply(-1) if self.determinant == -1 else q


def _shift(shift: Any, count: int) -> Array:
    value = _checks.array("Givens", "shift", shift).astype(float)
    if value.shape not in ((), (count,)):
        raise ValueError(f"Givens: shift must be one number or {count} of them, found shape {value.shape}.")
    return jnp.broadcast_to(value, (count,))


@functools.cache
def _longitudes(n: int, p: int) -> np.ndarray:
    i, j = pairs(n, p)
    return np.flatnonzero(j == i + 1)


@functools.cache
def _exponents(n: int, p: int) -> np.ndarray:
    i, j = pairs(n, p)
    return (j - i - 1).astype(float)


@functools.cache
def _widths(n: int, p: int, half: bool, epsilon: float) -> np.ndarray:
    is_long = (_exponents(n, p) == 0) & (not half)
    return np.where(is_long, math.pi, math.pi / 2) - epsilon


@functools.cache
def _log_constant(n: int, p: int) -> float:
    """Logarithm of the density of zero angles under the uniform distribution."""
    distances = _exponents(n, p)[_exponents(n, p) > 0] + 1
    latitudes = sum(math.lgamma(0.5) + math.lgamma(d / 2) - math.lgamma((d + 1) / 2) for d in distances)
    longitudes = min(p, n - 1) * math.log(2 * math.pi)
    return -latitudes - longitudes - (math.log(2) if n == p else 0.0)
