"""Figures of the draws of any model, as :class:`matplotlib.figure.Figure` and without global state.

Every function takes arrays of shape (chain, draw, ...) by name, shows a limited number of panels or rows, and leaves
the background transparent. The colours can be told apart with common kinds of colour blindness, on light and dark
pages; a report replaces them with those of the page (:mod:`geodax.app.report.page`).

Sources:
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization: an
    improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2). (Rank plots.)
    Säilynoja, Bürkner and Vehtari (2022), Graphical test for discrete uniformity and its applications in
    goodness-of-fit evaluation and multiple sample comparison. Statistics and Computing 32. (Differences of
    distribution functions.)
    Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo. (Energy.)
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from geodax.app.report.drawing import (
    SMALL,
    draw_intervals,
    finish,
    grid,
    labelled,
    legend,
    logarithmic,
    panel,
    say,
    short,
)
from geodax.app.report.page import INK, SERIES
from geodax.diagnostics.convergence import MINIMUM_DRAWS, e_bfmi, ess
from geodax.diagnostics.summary import row_names

_MOST_PANELS = 8
_MOST_POINTS = 250
_MOST_ROWS = 40


def trace_plot(draws: Mapping[str, np.ndarray], *, is_divergent: np.ndarray | None = None) -> Figure:
    """Plot every scalar of arrays (chain, draw, ...) against the iteration, one line per chain.

    Divergent iterations (chain, draw) are marked below the lines. Only the first scalars are shown, and of long chains
    evenly spaced draws.
    """
    panels = _scalars(draws, _MOST_PANELS)
    figure, axes = grid(len(panels), height=1.45)
    for ax, (name, values) in zip(axes, panels, strict=True):
        step = max(1, math.ceil(values.shape[1] / _MOST_POINTS))
        iterations = np.arange(1, values.shape[1] + 1)[::step]
        for chain, line in enumerate(np.where(np.isfinite(values), values, np.nan)[:, ::step]):
            colour = SERIES[chain % len(SERIES)]
            ax.plot(iterations, line, color=colour, linewidth=0.7, alpha=0.8)
        if is_divergent is not None and is_divergent.any():
            where = np.unique(np.nonzero(is_divergent)[1])[:500] + 1
            ax.plot(where, np.full(len(where), 0.02), "|", transform=ax.get_xaxis_transform(), color=INK, markersize=6)
        labelled(ax, title=short(name, 46))
        ax.margins(x=0.01)
    return _with_chains(figure, axes, "draw", len(panels[0][1]) if panels else 0)


def rank_plot(draws: Mapping[str, np.ndarray]) -> Figure:
    """Plot the ranks of each chain against uniform ranks, as differences of distribution functions.

    All draws of a scalar of arrays (chain, draw, ...) are ranked together. A chain that samples the same distribution
    as the others has uniform ranks, and its line stays near zero; above zero on the left it visits small values too
    often. All chains of 95 % of runs stay between the dotted lines if as many *effective* draws were independent
    (Kolmogorov's distribution, Bonferroni over chains). A single chain is split into halves, which are compared.
    """
    panels = _scalars(draws, _MOST_PANELS)
    figure, axes = grid(len(panels), height=1.45)
    labels = ""
    for ax, (name, values) in zip(axes, panels, strict=True):
        labelled(ax, title=short(name, 46))
        if values.shape[0] == 1 and values.shape[1] >= 2:
            half = values.shape[1] // 2
            values = np.concatenate([values[:, :half], values[:, -half:]])
            labels = "half"
        if not np.isfinite(values).all():
            say(ax, "some values are non-finite")
            continue
        num_chains, num_draws = values.shape
        ranks = stats.rankdata(values.ravel()).reshape(values.shape) / values.size
        places = np.linspace(0, 1, min(num_draws, 80) + 1)
        for chain in range(num_chains):
            below = np.searchsorted(np.sort(ranks[chain]), places, side="right") / num_draws
            colour = SERIES[chain % len(SERIES)]
            ax.plot(places, below - places, color=colour, linewidth=1.1, drawstyle="steps-post")
        effective = _effective_draws(ranks)
        if num_chains > 1:
            width = float(stats.kstwobign.ppf(1 - 0.05 / num_chains))
            width *= math.sqrt((1 - 1 / num_chains) / effective)
            for bound in (-width, width):
                ax.axhline(bound, color=INK, linewidth=0.9, linestyle=":")
        ax.axhline(0, color=INK, linewidth=0.6, alpha=0.6)
        ax.margins(x=0.01)
    num_chains = len(panels[0][1]) if panels else 0
    return _with_chains(
        figure, axes, "rank among all draws, as a fraction", 2 if labels else num_chains, labels or "chain"
    )


def _with_chains(figure: Figure, axes: list[Any], label: str, number: int, word: str = "chain") -> Figure:
    for ax in axes[-2:]:
        labelled(ax, x=label, size=SMALL)
    if axes and 2 <= number <= len(SERIES):
        handles = [axes[0].plot([], [], color=SERIES[i], linewidth=2)[0] for i in range(number)]
        legend(figure, handles, [f"{word} {i + 1}" for i in range(number)], number)
    return finish(figure)


def interval_plot(draws: Mapping[str, np.ndarray]) -> Figure:
    """Plot median, 50 % and 90 % interval of the first scalars of arrays (chain, draw, ...), one per row."""
    rows = _scalars(draws, _MOST_ROWS)
    figure, ax = panel(0.9 + 0.26 * len(rows))
    draw_intervals(ax, [name for name, _ in rows], [values.ravel() for _, values in rows])
    labelled(ax, x="value")
    return finish(figure)


def predicted_figure(
    centre: np.ndarray, interval: np.ndarray, y: np.ndarray, target: str, *, is_log: bool = False
) -> Figure:
    """Plot observed values y against predicted means or medians, with lower and upper ends of intervals."""
    low, high = interval
    figure, ax = panel(3.9)
    ax.vlines(centre, low, high, color=SERIES[0], alpha=0.25, linewidth=0.8)
    ax.plot(centre, y, ".", color=SERIES[0], markersize=5, markeredgewidth=0)
    ends = [min(centre.min(), y.min()), max(centre.max(), y.max())]
    ax.plot(ends, ends, ":", color=INK, linewidth=0.9)
    labelled(ax, x=f"predicted {short(target)}", y=f"observed {short(target)}")
    if is_log:
        logarithmic(ax, "xy")
    return finish(figure)


def energy_plot(energy: np.ndarray) -> Figure:
    """Plot the energies (chain, draw) of a Hamiltonian sampler and their changes between draws.

    If the changes are much narrower than the energies, momentum refreshment is too weak to explore the tails
    (Betancourt 2016).
    """
    figure, ax = panel(2.4)
    energy = np.asarray(energy, dtype=np.float64)
    centred = energy - energy.mean(axis=1, keepdims=True)
    changes = np.diff(energy, axis=1)
    if energy.shape[1] < 2 or not np.isfinite(energy).all():
        say(ax, "too few energies, or some are non-finite")
        return finish(figure)
    edge = float(max(np.abs(centred).max(), np.abs(changes).max(), 1e-12))
    bins = np.linspace(-edge, edge, 61)
    for values, colour, label in (
        (centred, SERIES[0], "energy minus its mean"),
        (changes, SERIES[1], "change of energy between draws"),
    ):
        ax.hist(values.ravel(), bins=bins, density=True, color=colour, alpha=0.4, histtype="stepfilled", label=label)
        ax.hist(values.ravel(), bins=bins, density=True, color=colour, histtype="step", linewidth=1.2)
    fractions = e_bfmi(energy)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    words = "energy"
    if np.isfinite(fractions).any():
        words += f" (smallest E-BFMI of a chain: {np.nanmin(fractions):.2f}; should be at least 0.3)"
    labelled(ax, x=words)
    ax.legend(frameon=False, fontsize=SMALL)
    return finish(figure)


def _scalars(draws: Mapping[str, np.ndarray], most: int) -> list[tuple[str, np.ndarray]]:
    """Return the first ``most`` scalars of all variables by name, each of shape (chain, draw) in double precision."""
    found: list[tuple[str, np.ndarray]] = []
    for name, values in draws.items():
        values = np.asarray(values)
        shape = values.shape[2:]
        columns = values.reshape(*values.shape[:2], -1)[..., : most - len(found)]
        names = row_names(name, shape) if math.prod(shape) <= most else _first_names(name, shape, most)
        found.extend((names[i], columns[..., i].astype(np.float64)) for i in range(columns.shape[-1]))
        if len(found) >= most:
            break
    return found


def _first_names(name: str, shape: tuple[int, ...], most: int) -> list[str]:
    return [f"{name}[{','.join(map(str, np.unravel_index(i, shape)))}]" for i in range(most)]


def _effective_draws(ranks: np.ndarray) -> float:
    """Mean effective draws per chain, each from its own chain, so that disagreement does not lower it."""
    num_draws = ranks.shape[1]
    if num_draws < MINIMUM_DRAWS:
        return float(num_draws)
    alone = np.array([ess(chain[None], method="identity") for chain in ranks])
    return float(np.clip(alone, 1, num_draws).mean())
