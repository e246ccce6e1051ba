"""What the benchmark asks of a sampler."""

import abc
from typing import NamedTuple

import numpy as np


class Draws(NamedTuple):
    """A block of draws.

    Attributes:
        x: Array (draw, n, p).
        num_gradients: Gradients of the log density that they took.
        seconds: Time that they took, without warm-up and compilation.
    """

    x: np.ndarray
    num_gradients: int
    seconds: float


class AbstractChain(abc.ABC):
    """A warmed-up chain.

    Attributes:
        warmup_seconds: Time of the warm-up, without compilation.
        compile_seconds: Time of all compilation, that of the warm-up included.
    """

    warmup_seconds: float
    compile_seconds: float

    @abc.abstractmethod
    def draw(self, seed: int) -> Draws:
        """The next block of draws of the chain."""


class PeerMissingError(Exception):
    """A peer cannot run here, and why."""
