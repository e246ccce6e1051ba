"""True expectations on frames by quadrature over Givens angles and by rejection, in NumPy alone."""

import functools
from typing import NamedTuple

import numpy as np


class Truth(NamedTuple):
    """Expectations of statistics, their standard errors (zero by quadrature) and the spread of one draw."""

    mean: np.ndarray
    error: np.ndarray
    spread: np.ndarray


@functools.cache
def givens_frames(n: int, p: int, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a product quadrature over Givens angles for the Haar measure (for SO(n) where n = p).

    The frame is ``R_12 R_13 ... R_pn I`` with counterclockwise rotations, and
    ``log |J| = sum (j - i - 1) log cos theta_ij``. The angles ``theta_{i,i+1}`` run over the whole circle (trapezoid
    rule), the others over half of it (Gauss-Legendre).

    Returns:
        Frames (node, n, p) and weights that sum to 1.
    """
    pairs = [(i, j) for i in range(p) for j in range(i + 1, n)]
    axes, weights = [], []
    for i, j in pairs:
        if j == i + 1:
            axes.append(2 * np.pi * np.arange(num_nodes) / num_nodes - np.pi)
            weights.append(np.full(num_nodes, 1 / num_nodes))
        else:
            node, weight = np.polynomial.legendre.leggauss(num_nodes)
            angle = 0.5 * np.pi * node
            weight = weight * np.cos(angle) ** (j - i - 1)
            axes.append(angle)
            weights.append(weight / weight.sum())
    angles = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")])
    weight = functools.reduce(np.multiply.outer, weights).ravel()
    frames = np.broadcast_to(np.eye(n, p), (len(weight), n, p)).copy()
    for (i, j), angle in reversed(list(zip(pairs, angles, strict=True))):
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        frames[:, i], frames[:, j] = c * frames[:, i] - s * frames[:, j], s * frames[:, i] + c * frames[:, j]
    return frames, weight


@functools.cache
def orthogonal_frames(n: int, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The same on all of O(n): SO(n) and its mirror image."""
    frames, weight = givens_frames(n, n, num_nodes)
    mirrored = frames * np.where(np.arange(n) == 0, -1.0, 1.0)
    return np.concatenate([frames, mirrored]), np.concatenate([weight, weight]) / 2


def by_quadrature(nodes, logdensity, statistics) -> Truth:
    """Expectations of vector-valued statistics (of stacked frames) under a log density with respect to Haar measure."""
    frames, weight = nodes
    log_weight = logdensity(frames)
    weight = weight * np.exp(log_weight - log_weight.max())
    weight = weight / weight.sum()
    values = statistics(frames)
    mean = weight @ values
    return Truth(mean, np.zeros_like(mean), np.sqrt(weight @ (values - mean) ** 2))


def haar_frames(rng, num: int, n: int, p: int, is_complex: bool = False) -> np.ndarray:
    """Haar distributed frames by Gram and Schmidt, columns of Gaussian matrices."""
    z = rng.normal(size=(num, n, p))
    if is_complex:
        z = z + 1j * rng.normal(size=(num, n, p))
    for k in range(p):
        overlap = np.einsum("cnk,cn->ck", z[:, :, :k].conj(), z[:, :, k])
        z[:, :, k] -= np.einsum("cnk,ck->cn", z[:, :, :k], overlap)
        z[:, :, k] /= np.linalg.norm(z[:, :, k], axis=1, keepdims=True)
    return z


def by_rejection(rng, num: int, shape: tuple, logdensity, log_bound: float, statistics, is_complex=False) -> Truth:
    """Expectations over exact draws: Haar proposals, accepted with probability ``exp(logdensity - log_bound)``."""
    kept = []
    for _ in range(0, num, 100_000):
        proposals = haar_frames(rng, 100_000, *shape, is_complex)
        log_ratio = logdensity(proposals) - log_bound
        assert np.all(log_ratio <= 1e-12), "the bound is none"
        kept.append(proposals[np.log(rng.uniform(size=len(proposals))) < log_ratio])
    values = statistics(np.concatenate(kept))
    spread = values.std(0, ddof=1)
    return Truth(values.mean(0), spread / np.sqrt(len(values)), spread)
