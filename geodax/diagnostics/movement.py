r"""Whether chains move far enough: as far as their posterior is wide, and no farther.

**Configurational temperature.** For a density :math:`\pi \propto e^{-U / \tau}` on :math:`\mathbb{R}^d` and any fixed
point c, integration by parts gives

.. math::
    \frac1d \, \mathbb{E}_\pi \bigl[(\theta - c)^\top \nabla U(\theta)\bigr] = \tau .

With the mean of a chain as c this compares, averaged over all directions, the variance of its draws with that of its
target. For a normal target of precision H it is :math:`\mathrm{tr}(H \, \mathrm{Cov}) / d`. It is 1 for a chain that
has explored its mode, whatever the number of modes, near 0 for one that stays where it started, and above 1 where the
noise of batches or the step size heats the chain. It needs no reference. A chain that hardly moves lacks sampler time,
so that a smaller step size with more thinning changes neither its draws nor this value.

**Share of the quarters.** Without the density, the variance within the quarters of a chain is compared with that within
the whole: the same chain at a quarter of the sampler time. They agree for a chain that forgets its start within a
quarter; for one that still moves away from it like a random walk, the share is a quarter.

Sources:
    Leimkuhler and Matthews (2015), Molecular dynamics, chapter 6. Springer. (Configurational temperature.)
    Wenzel et al. (2020), How good is the Bayes posterior in deep neural networks really? ICML, appendix I. (As a
    diagnostic of stochastic-gradient samplers, with c = 0, whose value depends on where the optimum lies.)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from geodax import _checks, _tree
from geodax._types import Array, Position, PyTree, Scalar
from geodax.diagnostics import remedies
from geodax.diagnostics.finding import Finding
from geodax.geometry.manifolds import AbstractManifold
from geodax.run.blocks import number_blocks
from geodax.run.draws import open_draws
from geodax.run.positions import position_variables, positions_at
from geodax.run.programs import compiled

STUCK, SLOW = "Chains that hardly move", "Chains that move too little"
_STUCK, _SLOW, _HOT = 0.1, 0.5, 1.5  # of the temperature
_SMALLEST_SHARE = 0.4
_FEWEST_DRAWS = 40  # ten in each quarter


def configurational_temperature(
    draws: str | Path | xr.DataTree,
    logdensity_fn: Any,
    like: Position,
    *,
    manifold: AbstractManifold | None = None,
    max_num_draws: int = 50,
) -> Float[np.ndarray, " chain"]:
    r"""Estimate the temperature at which a log density has the spread of the draws, for each chain.

    The value is 1 for a chain that has explored its mode of the posterior, near 0 for a chain that stays where it
    started, and above 1 for a chain that is too hot, or still approaches the mode. It costs a gradient of the log
    density for each of the draws that are used.

    Args:
        draws: The result of :func:`geodax.sample`, or the folder of its store, with positions (no ``keep=...``).
        logdensity_fn: ``position -> scalar``, for a :class:`geodax.Posterior` ``posterior.full(data)``.
        like: A position with the structure of the draws.
        manifold: Geometry of the position; the identity is that of the Euclidean arrays, and others are left out. None
            is the geometry of a network's layers.
        max_num_draws: Number of draws of each chain that are used, evenly spaced.

    Returns:
        One temperature per chain; for :func:`geodax.diagnostics.check`.

    Raises:
        TypeError: If the log density is not a function.
        ValueError: If the draws do not have the structure of ``like``, a chain has fewer than two draws, or no array is
            Euclidean.
        StorageError: If the store cannot be read.
    """
    owner = "configurational_temperature"
    _checks.function(owner, "logdensity_fn", logdensity_fn, "a log density, such as posterior.full(data)")
    density: Any = logdensity_fn
    max_num_draws = _checks.whole(owner, "max_num_draws", max_num_draws, least=2)
    variables = position_variables(owner, draws if isinstance(draws, xr.DataTree) else open_draws(draws), like)
    num_chains, num_draws = next(iter(variables.values())).shape[:2]
    if num_draws < 2:
        raise ValueError(f"{owner}: each chain has {num_draws} draw; a spread needs at least two.")
    if manifold is None:
        from geodax.nn.structure import geometry

        manifold = geometry(like)
    is_flat = jax.tree.leaves(manifold.is_flat(like))
    size = sum(leaf.size for leaf, flat in zip(jax.tree.leaves(like), is_flat, strict=True) if flat)
    if not size:
        raise ValueError(f"{owner}: the position has no Euclidean array, so it has no such temperature.")
    chosen = np.unique(np.linspace(0, num_draws - 1, min(num_draws, max_num_draws)).astype(int))

    def product(centers: PyTree, positions: PyTree) -> Array:
        """Inner products of distance from the centre and gradient of the potential, (chain, draw)."""

        def of_one(center: PyTree, position: PyTree) -> Scalar:
            gradient = jax.grad(lambda x: -density(x))(position)
            pairs = zip(*map(jax.tree.leaves, (position, center, gradient)), is_flat, strict=True)
            return _tree.total([jnp.sum((x - c) * g) for x, c, g, flat in pairs if flat])

        return jax.lax.map(lambda pair: of_one(*pair), (centers, positions))

    total, program = np.zeros(num_chains), None
    read = [positions_at(variables, like, [draw]) for draw in chosen]
    centers = jax.tree.map(lambda *leaves: jnp.mean(jnp.stack(leaves), axis=(0, 2)), *read)
    for positions in read:
        here = jax.tree.map(lambda leaf: leaf[:, 0], positions)
        program = compiled(product, centers, here) if program is None else program
        total += np.asarray(program(centers, here), np.float64)
    return total / (size * (len(chosen) - 1))  # independent draws have this share of their variance about their mean


def share_of_quarters(draws: Mapping[str, Any]) -> float:
    """Divide the variance within quarters of the chains by that within the chains, on average over all numbers.

    Returns 1 for chains that forget their start within a quarter, a quarter for random walks, NaN if no number varies.
    """
    total, count = 0.0, 0
    for values in draws.values():
        if values.dtype.kind not in "fc" or 0 in values.shape:
            continue
        length = values.shape[1] // 4
        for _, block in number_blocks(values):
            in_quarters = block[:, : 4 * length].reshape(len(block), 4, length, -1)
            with np.errstate(invalid="ignore", over="ignore"):
                quarters = np.var(in_quarters, axis=2, ddof=1).mean(axis=(0, 1), dtype=np.float64)
                whole = np.var(block[:, : 4 * length], axis=1, ddof=1).mean(axis=0, dtype=np.float64)
            varies = np.isfinite(whole) & (whole > 0)
            total += float((quarters[varies] / whole[varies]).sum())
            count += int(varies.sum())
    return total / count if count else float("nan")


def hardly_moving(
    draws: Mapping[str, Any], temperature: float, found: Float[np.ndarray, " chain"] | None
) -> Iterator[Finding]:
    """Yield a finding if chains move less, or more, than their target is wide.

    ``temperature`` is the one they were to sample, ``found`` their configurational temperatures, if known.
    """
    if found is not None:
        relative = float(np.mean(found)) / temperature
        of = f"a configurational temperature of {relative:.2g} times that of the sampler, where 1 was expected"
        part = (
            "on average over all directions the variance of the draws of a chain is about "
            f"{max(100 * relative, 0):.2g} % of the posterior's."
        )
        if relative < _STUCK:
            start = "Predictions are those of the initial positions: start chains from trainings of their own. "
            yield Finding("severe", STUCK, f"The chains have {of}: {part}", start + remedies.of_small_moves())
        elif relative < _SLOW:
            yield Finding("warning", SLOW, f"The chains have {of}: {part}", remedies.of_small_moves())
        elif relative > _HOT:
            yield Finding(
                "warning",
                "Chains that are too hot",
                f"The chains have {of}: they spread more than the posterior, or still approach it.",
                "Use larger batches or a smaller step size, which heat the chains less, and a longer warm-up.",
            )
        return
    if next(iter(draws.values())).shape[1] < _FEWEST_DRAWS:
        return
    share = share_of_quarters(draws)
    if share < _SMALLEST_SHARE:
        yield Finding(
            "warning",
            SLOW,
            f"Within quarters of the run the draws of a chain have {100 * share:.0f} % of their variance in the whole "
            "run, on average over all numbers: the chains still leave their initial positions like random walks (25 "
            "%), and four times the iterations would give other answers.",
            remedies.of_small_moves(),
        )
