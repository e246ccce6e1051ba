"""Closed-form functions of computer experiments on the unit cube, the regression sets of Figure 4.

Borehole, the robot arm and the transformerless push-pull circuit as in Surjanovic and Bingham's collection, with
inputs rescaled from their ranges; Hartman's function in six dimensions; Rastrigin's in five.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc


class Function(NamedTuple):
    """A function of inputs in the unit cube.

    Attributes:
        dimension: Number of inputs.
        size: Number of points in the paper's set.
        values: From inputs, rows x dimension, to one number a row.
    """

    dimension: int
    size: int
    values: Callable[[np.ndarray], np.ndarray]


def points(name: str, size: int | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A space-filling set: a scrambled Sobol sequence and the function's values.

    Args:
        name: A key of :data:`FUNCTIONS`.
        size: Number of points; None is the paper's.
        seed: Of the scrambling.

    Returns:
        Inputs in the unit cube, rows x dimension, and values.
    """
    function = FUNCTIONS[name]
    size = function.size if size is None else size
    sequence = qmc.Sobol(function.dimension, seed=seed).random(2 ** int(np.ceil(np.log2(size))))
    inputs = np.random.default_rng(seed).permutation(sequence)[:size]
    return inputs, function.values(inputs)


def _between(u: np.ndarray, *ranges: tuple[float, float]) -> list[np.ndarray]:
    return [low + (high - low) * column for column, (low, high) in zip(u.T, ranges, strict=True)]


def _borehole(u: np.ndarray) -> np.ndarray:
    rw, r, tu, hu, tl, hl, length, kw = _between(
        u,
        (0.05, 0.15),
        (100, 50000),
        (63070, 115600),
        (990, 1110),
        (63.1, 116),
        (700, 820),
        (1120, 1680),
        (9855, 12045),
    )
    log_ratio = np.log(r / rw)
    return 2 * np.pi * tu * (hu - hl) / (log_ratio * (1 + 2 * length * tu / (log_ratio * rw**2 * kw) + tu / tl))


def _hartman(u: np.ndarray) -> np.ndarray:
    alpha = np.array([1.0, 1.2, 3.0, 3.2])
    a = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    p = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return -np.exp(-np.einsum("kd,nkd->nk", a, (u[:, None] - p[None]) ** 2)) @ alpha


def _rastrigin(u: np.ndarray) -> np.ndarray:
    x = 10.24 * u - 5.12
    return 10 * x.shape[1] + np.sum(x**2 - 10 * np.cos(2 * np.pi * x), axis=1)


def _robot(u: np.ndarray) -> np.ndarray:
    angles, lengths = np.cumsum(2 * np.pi * u[:, :4], axis=1), u[:, 4:]
    return np.hypot(np.sum(lengths * np.cos(angles), axis=1), np.sum(lengths * np.sin(angles), axis=1))


def _circuit(u: np.ndarray) -> np.ndarray:
    rb1, rb2, rf, rc1, rc2, beta = _between(u, (50, 150), (25, 70), (0.5, 3), (1.2, 2.5), (0.25, 1.2), (50, 300))
    vb1 = 12 * rb2 / (rb1 + rb2)
    load = beta * (rc2 + 9)
    total = load + rf
    return (vb1 + 0.74) * load / total + 11.35 * rf / total + 0.74 * rf * load / (total * rc1)


FUNCTIONS = {
    "borehole": Function(8, 200_000, _borehole),
    "hartman6": Function(6, 30_000, _hartman),
    "rastrigin5": Function(5, 10_000, _rastrigin),
    "robot": Function(8, 150_000, _robot),
    "otlcircuit": Function(6, 20_000, _circuit),
}
"""The five functions by the paper's names."""
