"""The graphical model of hierarchical CCA, drawn."""

from typing import TYPE_CHECKING, Any

from experiments.common.rendering import INK, blank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RADIUS = 0.33


def graphical_model(num_groups: int) -> "Figure":
    """Figure 6, left: common angles, groups, rows.

    Args:
        num_groups: Written into the plate of the groups.

    Returns:
        The figure.
    """
    from matplotlib.patches import Circle

    figure = blank(figsize=(7.4, 4.3), dpi=120)
    ax = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    places = {
        "$\\theta_0^{W_1}$": (1.0, 4.6),
        "$\\tau^{W_1}$": (1.0, 3.7),
        "$\\theta_0^{W_2}$": (9.0, 4.6),
        "$\\tau^{W_2}$": (9.0, 3.7),
        "$\\theta_0^{B_1}$": (1.0, 2.4),
        "$\\tau^{B_1}$": (1.0, 1.5),
        "$\\theta_0^{B_2}$": (9.0, 2.4),
        "$\\tau^{B_2}$": (9.0, 1.5),
        "$W_{g1}$": (2.6, 4.15),
        "$W_{g2}$": (7.4, 4.15),
        "$B_{g1}$": (2.6, 1.95),
        "$B_{g2}$": (7.4, 1.95),
        "$z_{gi}$": (5.0, 4.15),
        "$u_{gi1}$": (4.1, 1.55),
        "$u_{gi2}$": (5.9, 1.55),
        "$x_{gi1}$": (4.1, 2.85),
        "$x_{gi2}$": (5.9, 2.85),
    }
    _plate(ax, (1.85, 0.35), 6.3, 4.75, f"groups g = 1 … {num_groups}")
    _plate(ax, (3.5, 0.8), 3.0, 4.0, "rows i")
    for v in (1, 2):
        for kind, prior in (("W", f"W_{v}"), ("B", f"B_{v}")):
            target = f"${kind}_{{g{v}}}$"
            for source in (f"$\\theta_0^{{{prior}}}$", f"$\\tau^{{{prior}}}$"):
                _arrow(ax, places[source], places[target])
            _arrow(ax, places[target], places[f"$x_{{gi{v}}}$"])
        _arrow(ax, places["$z_{gi}$"], places[f"$x_{{gi{v}}}$"])
        _arrow(ax, places[f"$u_{{gi{v}}}$"], places[f"$x_{{gi{v}}}$"])
    for name, place in places.items():
        is_observed = name.startswith("$x")
        ax.add_patch(Circle(place, _RADIUS, facecolor="#cbd5e0" if is_observed else "white", edgecolor=INK, zorder=3))
        ax.text(*place, name, ha="center", va="center", fontsize=10, zorder=4)
    ax.text(5.0, 5.4, "shared by both views: z     a view's own: u", ha="center", fontsize=9, color=INK)
    ax.set_xlim(0.4, 9.6)
    ax.set_ylim(0.2, 5.75)
    ax.set_aspect("equal")
    ax.axis("off")
    return figure


def _plate(ax: Any, corner: tuple[float, float], width: float, height: float, words: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    box = FancyBboxPatch(corner, width, height, boxstyle="round,pad=0,rounding_size=0.15", fill=False, edgecolor=INK)
    ax.add_patch(box)
    ax.text(corner[0] + width - 0.12, corner[1] + 0.12, words, ha="right", va="bottom", fontsize=8, color=INK)


def _arrow(ax: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    from matplotlib.patches import FancyArrowPatch

    shrink = 17.5
    ax.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=INK, shrinkA=shrink, shrinkB=shrink)
    )
