"""A network that classifies random images: the sizes, the data and the start that all libraries share."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Run = Callable[[int], None]  # a block of steps, with a seed; the next goes on where it ended

NUM_DATA, BATCH = 10_000, 100
WIDTHS = (784, 400, 400, 10)
ORTHOGONAL_WIDTHS = (784, 300, 300, 10)  # of which the first two layers have orthonormal columns
LEARNING_RATE = 1e-4  # on the mean potential: the chains barely move, the cost does not depend on it
STEP_SIZE = LEARNING_RATE / NUM_DATA
SHAMPOO_BLOCK, SHAMPOO_EVERY, STATISTICS_EVERY = 128, 100, 10


class Block(NamedTuple):
    """What a run does: so many steps of so many chains, each with batches of its own."""

    num_steps: int
    num_chains: int = 1


class OneChainError(Exception):
    """A peer that runs one chain was asked for several."""


def data() -> tuple[np.ndarray, np.ndarray]:
    """Images (10,000, 784) in single precision, and their classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_DATA, WIDTHS[0])).astype(np.float32)
    return x, rng.integers(0, WIDTHS[-1], NUM_DATA).astype(np.int32)


def start(widths: tuple[int, ...] = WIDTHS, num_orthogonal: int = 0) -> list[dict[str, np.ndarray]]:
    """For each layer the weights ``w`` (inputs, outputs) and biases ``b``; the first layers may be orthonormal."""
    rng = np.random.default_rng(1)
    layers = []
    for i, (n, p) in enumerate(itertools.pairwise(widths)):
        w = rng.normal(size=(n, p)) / np.sqrt(n)
        w = np.linalg.qr(w)[0] if i < num_orthogonal else w
        layers.append({"w": w.astype(np.float32), "b": np.zeros(p, np.float32)})
    return layers
