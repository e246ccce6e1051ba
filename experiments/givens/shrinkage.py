"""Pictures of shrinkage, laid out as figures 7 and 8 of the paper."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.common.rendering import INK, SERIES, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def interval_panels(
    quantiles: Sequence[tuple[str, np.ndarray]],
    names: Sequence[str],
    groups: Sequence[str],
    truth: np.ndarray | None = None,
) -> "Figure":
    """Figure 7: intervals of the entries of a column, one panel for each way of pooling.

    Args:
        quantiles: Title and 5, 25, 50, 75, 95 % of the entries: 5 x groups x entries.
        names: The entries.
        groups: The groups.
        truth: True entries, groups x entries.

    Returns:
        The figure.
    """
    figure, axes = panels(1, len(quantiles), height=3.3)
    bound = 1.05 * max(np.abs(found).max() for _, found in quantiles)
    for ax, (title, found) in zip(axes[0], quantiles, strict=True):
        places = np.arange(len(names))
        for g, group in enumerate(groups):
            shifted = places + 0.17 * (g - (len(groups) - 1) / 2)
            colour = SERIES[g]
            ax.vlines(shifted, found[0, g], found[4, g], color=colour, linewidth=1)
            ax.vlines(shifted, found[1, g], found[3, g], color=colour, linewidth=3)
            ax.plot(shifted, found[2, g], "o", color=colour, markersize=3, label=group)
            if truth is not None:
                last = "truth" if g == len(groups) - 1 else None
                ax.plot(shifted, truth[g], "_", color="black", markersize=6, markeredgewidth=1.2, label=last)
        ax.axhline(0, color=INK, linewidth=0.5, alpha=0.5)
        ax.set_xticks(places, names, rotation=35, ha="right", rotation_mode="anchor", fontsize=7)
        ax.set_ylim(-bound, bound)
        ax.set_title(title, fontsize=9, color=INK)
    axes[0, 0].set_ylabel("entry of W, median, 50 % and 90 %", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, frameon=False)
    return figure


def angle_panels(
    angles: Sequence[tuple[str, np.ndarray, np.ndarray]], names: tuple[str, str], truth: float | None = None
) -> "Figure":
    """Figure 8: two lines in their common plane, one panel for each way of pooling, and the law of their angle.

    Args:
        angles: Title, 5, 25, 50, 75, 95 % of the angle, and some draws of it, in degrees.
        names: The two groups.
        truth: The true angle.

    Returns:
        The figure.
    """
    figure, axes = panels(1, len(angles) + 1, height=2.9)
    colours = (SERIES[0], SERIES[1])
    for ax, (title, quantiles, draws) in zip(axes[0], angles, strict=False):
        around = np.radians(np.linspace(quantiles[0], quantiles[4], 50))
        ax.fill(np.append(0, np.cos(around)), np.append(0, np.sin(around)), color=colours[1], alpha=0.12, linewidth=0)
        for angle in np.radians(draws[:: max(1, len(draws) // 60)]):
            ax.plot([0, 0.97 * np.cos(angle)], [0, 0.97 * np.sin(angle)], color=colours[1], alpha=0.12, linewidth=0.7)
        for angle, colour, name in ((0.0, colours[0], names[1]), (np.radians(quantiles[2]), colours[1], names[0])):
            ax.annotate(
                "", (np.cos(angle), np.sin(angle)), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 2}
            )
            ax.plot([], [], color=colour, linewidth=2, label=name)
        if truth is not None:
            where = np.radians(truth)
            ax.plot([0, np.cos(where)], [0, np.sin(where)], color="black", linewidth=1, linestyle=":", label="truth")
        arc = np.radians(np.linspace(0, quantiles[2], 40))
        ax.plot(0.45 * np.cos(arc), 0.45 * np.sin(arc), color=INK, linewidth=0.8)
        middle = np.radians(quantiles[2] / 2)
        ax.text(0.52 * np.cos(middle), 0.52 * np.sin(middle), f"{quantiles[2]:.0f}°", va="center", fontsize=9)
        ax.set_title(title, fontsize=9, color=INK)
        ax.set_xlim(-0.05, 1.05)
        ax.set_ylim(-0.08, 1.05)
        ax.set_aspect("equal")
        ax.axis("off")
    last = axes[0, -1]
    top = max(draws.max() for _, _, draws in angles)
    for (title, _, draws), colour, style in zip(angles, (INK, SERIES[2]), ("--", "-"), strict=False):
        grid = np.linspace(0, top, 200)
        width = 1.06 * max(draws.std(), 1e-3) * len(draws) ** -0.2
        # reflected at zero, where the angle ends
        shape = sum(np.exp(-0.5 * ((grid[:, None] - s * draws) / width) ** 2).mean(axis=1) for s in (1, -1))
        last.plot(grid, shape / (width * np.sqrt(2 * np.pi)), style, color=colour, label=title)
    if truth is not None:
        last.axvline(truth, color="black", linewidth=1, linestyle=":", label="truth")
    last.set_xlabel("angle between the two, degrees", fontsize=8)
    last.set_yticks([])
    last.spines["left"].set_visible(False)
    last.set_ylim(0)
    last.legend(fontsize=7, frameon=False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, frameon=False)
    return figure
