"""Pictures of the hidden states of a school's contacts, in the layout of the paper's figures 9 and 10."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.common.rendering import INK, panels
from experiments.givens.contact_windows import COLOURS, state_name

TITLES = {"paper": "paper's model", "better": "negative binomial, intercepts"}


def rates(row: dict[str, Any]):
    """Rate matrices at the posterior mode above the busiest window of each state."""
    matrices, counts = np.asarray(row["mode_rates"]), np.asarray(row["example_counts"])
    figure, axes = panels(2, len(matrices), height=3.0)
    top = np.log1p(max(matrices.max(), counts.max()))
    image: Any = None
    for k in range(len(matrices)):
        name = state_name(k, len(matrices))
        for i, (matrix, words) in enumerate(((matrices[k], "rates"), (counts[k], "its busiest window"))):
            ax = axes[i, k]
            image = ax.imshow(np.log1p(matrix), vmin=0, vmax=top, cmap="viridis")
            ax.set_title(f"{name}: {words}" if i == 0 else words, fontsize=9, color=INK)
            places = range(len(row["names"]))
            ax.set_xticks(places, row["names"] if i else [], rotation=90, fontsize=6)
            ax.set_yticks(places, row["names"] if k == 0 else [], fontsize=6)
            for spine in ax.spines.values():
                spine.set_visible(False)
    bar = figure.colorbar(image, ax=axes.ravel().tolist(), shrink=0.7, label="contacts in eleven minutes")
    marks = [mark for mark in (0, 1, 3, 10, 30, 100, 300, 1000) if np.log1p(mark) <= top]
    bar.set_ticks([float(np.log1p(mark)) for mark in marks], labels=[str(mark) for mark in marks])
    return figure


def states(row: dict[str, Any]):
    """Intervals of the first two columns of two states' matrices; probabilities of the states, and draws of them."""
    from matplotlib.colors import ListedColormap

    probabilities = np.asarray(row["probabilities"])
    num_states = probabilities.shape[1]
    figure, axes = panels(2, 2, width=9.6, height=2.7)
    for ax, k in zip(axes[:, 0], range(2), strict=True):
        _intervals(ax, np.asarray(row["vector_quantiles"])[:, k], row["names"])
        ax.set_title(f"entries of W, {state_name(k, num_states)}", fontsize=9, color=INK)
        if k == 0:
            ax.set_ylim(top=1.25 * ax.get_ylim()[1])
            ax.legend(fontsize=7, frameon=False, ncols=2, loc="upper right")
    hours = np.asarray(row["hours"])
    ends = np.append(hours, 2 * hours[-1] - hours[-2])
    top, bottom = axes[:, 1]
    top.stackplot(
        ends,
        np.vstack([probabilities, probabilities[-1:]]).T,
        colors=COLOURS[:num_states],
        labels=[state_name(k, num_states) for k in range(num_states)],
        step="post",
    )
    top.set_title("probability of each state", fontsize=9, color=INK)
    top.legend(fontsize=7, loc="center", framealpha=0.9)
    draws = np.asarray(row["state_draws"])
    colours = ListedColormap(COLOURS[:num_states])
    bottom.pcolormesh(
        ends, np.arange(len(draws) + 1), draws, cmap=colours, vmin=-0.5, vmax=num_states - 0.5, rasterized=True
    )
    bottom.set_title("draws of the sequence of states", fontsize=9, color=INK)
    bottom.set_ylabel("draw", fontsize=8)
    bottom.set_yticks(np.linspace(0, len(draws), 5).astype(int))
    for ax in (top, bottom):
        ax.set_xlim(ends[0], ends[-1])
        ax.set_xlabel("hours from midnight of the first day", fontsize=8)
    return figure


def totals(rows: Sequence[dict[str, Any]]):
    """Contacts of each window, with the 90 % predictive interval of each model."""
    figure, axes = panels(len(rows), 1, height=2.4)
    for ax, row in zip(axes[:, 0], rows, strict=True):
        hours, predicted = np.asarray(row["hours"]), np.asarray(row["predicted_totals"])
        ax.fill_between(hours, predicted[0], predicted[4], color=COLOURS[0], alpha=0.3, linewidth=0, step="mid")
        ax.plot(hours, row["totals"], "o", color=INK, markersize=2)
        share = 100 * row["totals_inside_with_contacts"]
        ax.set_title(
            f"{TITLES[row['model']]}: {share:.0f} % of the windows with contacts inside 90 %", fontsize=9, color=INK
        )
        ax.set_ylabel("contacts in a window", fontsize=8)
    axes[-1, 0].set_xlabel("hours from midnight of the first day", fontsize=8)
    return figure


def _intervals(ax: Any, quantiles: np.ndarray, names: Sequence[str]) -> None:
    places = np.arange(quantiles.shape[1])
    ax.axhline(0, color=INK, linewidth=0.5)
    for j in range(quantiles.shape[2]):
        shifted = places + 0.24 * (j - 0.5)
        ax.vlines(shifted, quantiles[0, :, j], quantiles[4, :, j], color=COLOURS[j], linewidth=1)
        ax.vlines(shifted, quantiles[1, :, j], quantiles[3, :, j], color=COLOURS[j], linewidth=3)
        ax.plot(shifted, quantiles[2, :, j], "o", color=COLOURS[j], markersize=3, label=f"column {j + 1}")
    ax.set_xticks(places, names, rotation=90 if len(names) > 6 else 0, fontsize=7)
