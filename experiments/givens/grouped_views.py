"""Grouped data of two views for the experiments of section 6.3: simulated in the paper's sizes, and real.

The paper's hospital data are closed. What it says of them: two views of injured patients, proteins in the blood and the
strength of clots; four groups by type of injury, the smallest of 16 and the largest of 86 patients.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from geodax.data import load
from geodax.diagnostics.findings import ess, rhat
from geodax.models import HierarchicalCCA
from geodax.models.cca import density as cca_density
from geodax.models.cca.density import CCAParameters
from geodax.models.cca.signs import FRAMES

GROUPS = ("A", "B", "C", "D")
PROTEINS = tuple(f"protein {i + 1}" for i in range(6))
CLOTS = tuple(f"clot {i + 1}" for i in range(5))
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@jax.jit
def _draw_rows(key: jax.Array, theta: CCAParameters, empty: jax.Array, groups: jax.Array) -> jax.Array:
    return cca_density.draw_rows(key, theta, empty, groups, jnp.zeros(empty.shape, dtype=bool))


class Simulated(NamedTuple):
    """A simulated set: parameters, rows to fit, rows to test, and their groups."""

    truth: CCAParameters
    rows: np.ndarray
    groups: np.ndarray
    test: np.ndarray
    test_groups: np.ndarray


def simulate(seed: int, spread: float, sizes: tuple[int, ...], num_test: int) -> Simulated:
    """Groups whose orthonormal matrices lie around common ones, ``spread`` radians away in each tangent direction.

    The perturbation is drawn in the tangent space and brought back by the nearest orthonormal matrix, so that no chart
    of angles has a part in the truth.
    """
    generator = np.random.default_rng([seed, round(1000 * spread)])
    n_1, n_2, num_groups = len(PROTEINS), len(CLOTS), len(sizes)

    def around() -> tuple[np.ndarray, ...]:
        found = []
        for n in (n_1, n_2, n_1, n_2):
            common = np.linalg.qr(generator.standard_normal((n, 1)))[0]
            step = spread * generator.standard_normal((num_groups, n, 1))
            moved = common + step - common @ (common.T @ step)
            found.append(moved / np.linalg.norm(moved, axis=1, keepdims=True))
        return tuple(found)

    def between(low: float, high: float, *shape: int) -> np.ndarray:
        return generator.uniform(low, high, (num_groups, *shape))

    shared, own = (1.2, 1.8), (0.8, 1.2)
    truth = CCAParameters(
        *around(),
        *(between(*bounds, 1) for bounds in (shared, shared, own, own)),
        *(between(0.5, 0.7) for _ in range(2)),
        *(generator.standard_normal((num_groups, n)) for n in (n_1, n_2)),
    )
    drawn = []
    for part, counts in enumerate((sizes, (num_test,) * num_groups)):
        places = np.repeat(np.arange(num_groups), counts)
        key = jax.random.fold_in(jax.random.key(seed), part)
        empty = jnp.zeros((len(places), n_1 + n_2))
        arrays = jax.tree.map(jnp.asarray, truth)
        drawn += [np.asarray(_draw_rows(key, arrays, empty, jnp.asarray(places))), places]
    return Simulated(truth, *drawn)


class RealGroups(NamedTuple):
    """What a real set is made of: names of its groups and of the columns of both views, and short ones of the first."""

    groups: tuple[str, ...]
    first: tuple[str, ...]
    second: tuple[str, ...]
    short: tuple[str, ...]
    logarithms: tuple[str, ...] = ()


REAL = {
    "wine": RealGroups(
        ("cultivar 1", "cultivar 2", "cultivar 3"),
        (
            "total phenols",
            "flavanoids",
            "nonflavanoid phenols",
            "proanthocyanins",
            "color intensity",
            "hue",
            "OD280/OD315 of diluted wines",
        ),
        ("alcohol", "malic acid", "ash", "alcalinity of ash", "magnesium", "proline"),
        ("phenols", "flavanoids", "nonflavanoids", "proanthocyanins", "color", "hue", "OD280/OD315"),
    ),
    "quality": RealGroups(
        ("grade 4", "grade 5", "grade 6", "grade 7"),
        ("fixed acidity", "volatile acidity", "citric acid", "pH"),
        (
            "residual sugar",
            "chlorides",
            "free sulfur dioxide",
            "total sulfur dioxide",
            "density",
            "sulphates",
            "alcohol",
        ),
        ("fixed acidity", "volatile acidity", "citric acid", "pH"),
        ("residual sugar", "chlorides", "free sulfur dioxide", "total sulfur dioxide", "sulphates"),
    ),
}


class Split(NamedTuple):
    """Rows to fit, rows held out, and their groups."""

    rows: np.ndarray
    groups: np.ndarray
    test: np.ndarray
    test_groups: np.ndarray


def real_groups(name: str, seed: int, sizes: tuple[int, ...]) -> Split:
    """So many rows of each group, chosen at random, and the others."""
    about = REAL[name]
    data = load("wine" if name == "wine" else "uci/wine-quality-red")
    x = np.array(data["features"], dtype=float)
    if name == "wine":
        labels = np.array([f"cultivar {k + 1}" for k in data["labels"]])
    else:
        labels = np.array([f"grade {k:.0f}" for k in data["targets"]])
    for column in about.logarithms:
        place = data.feature_names.index(column)
        x[:, place] = np.log(x[:, place])
    x = x[:, [data.feature_names.index(column) for column in (*about.first, *about.second)]]
    generator = np.random.default_rng(seed)
    is_fitted, is_used = np.zeros(len(labels), dtype=bool), np.isin(labels, about.groups)
    for label, size in zip(about.groups, sizes, strict=True):
        is_fitted[generator.permutation(np.flatnonzero(labels == label))[:size]] = True
    is_test = is_used & ~is_fitted
    return Split(x[is_fitted], labels[is_fitted], x[is_test], labels[is_test])


def fit_until_agreed(model: HierarchicalCCA, X: list[np.ndarray], groups: np.ndarray, most_rhat: float) -> None:
    """Fit, and once more with four times the iterations if the chains do not agree."""
    if health(model.fit(X, groups))["rhat"] > most_rhat:
        model.set_params(num_warmup=4 * model.num_warmup, num_samples=4 * model.num_samples).fit(X, groups)


def health(model: HierarchicalCCA) -> dict[str, Any]:
    """Whether the chains agree, on quantities that are identified once signs are aligned."""
    group, stats = (model.posterior_[name] for name in ("posterior", "sample_stats"))
    worst = {name: float(np.max(rhat(group[name].values))) for name in CCAParameters._fields}
    least = min(float(np.min(ess(group[name].values))) for name in FRAMES)
    return {
        "rhat": max(worst.values()),
        "rhat_of": max(worst, key=lambda name: worst[name]),
        "rhat_lp": float(rhat(stats["lp"].values)),
        "ess_frames": least,
        "divergences": int(stats["diverging"].values.sum()),
        "num_steps": float(stats["n_steps"].values.mean()),
        "num_samples": model.num_samples,
        "seconds": float(model.posterior_.attrs["sampling_seconds"]),
    }


def degrees_between(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Angles between lines, whatever the signs, along the last but one axis; the last holds columns."""
    return np.degrees(np.arccos(np.clip(np.abs((one * two).sum(axis=-2)), 0.0, 1.0)))


def mean_line(draws: np.ndarray) -> np.ndarray:
    """The line nearest to draws of unit vectors (draw, group, n, 1): leading eigenvectors of their mean projectors."""
    projectors = np.einsum("dgip,dgjp->gij", draws, draws) / len(draws)
    return np.linalg.eigh(projectors)[1][..., -1:]
