"""What can end a run early. Every error says what was computed and where it is."""

from typing import Any


class StartError(ValueError):
    """A chain cannot start where it was told to."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used: damaged, or of another run."""


class StorageError(OSError):
    """Draws or a checkpoint could not be written or read.

    Attributes:
        draws: The draws computed so far, as a DataTree, or None where there are none.
    """

    def __init__(self, message: str, draws: Any = None):
        super().__init__(message)
        self.draws = draws


class NonFiniteError(RuntimeError):
    """A stochastic-gradient sampler has left the numbers: its potential or its draw is not finite.

    Attributes:
        draws: The draws before that, as a DataTree, or None where there are none.
        chain: The chain that failed first.
        iteration: The iteration at which it did, counted from 0 with the warm-up.
    """

    def __init__(self, message: str, draws: Any, chain: int, iteration: int):
        super().__init__(message)
        self.draws = draws
        self.chain = chain
        self.iteration = iteration


class SamplingInterrupted(KeyboardInterrupt):
    """A run was stopped by SIGINT or SIGTERM, at the end of an iteration.

    Attributes:
        draws: The draws computed so far, as a DataTree, or None where there are none.
        signal: The signal's number.
    """

    def __init__(self, message: str, draws: Any, signal: int):
        super().__init__(message)
        self.draws = draws
        self.signal = signal
