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
        fit: Of a variational fit what :func:`geodax.vi.fit` would have returned at that moment.
    """

    def __init__(self, message: str, draws: Any = None, fit: Any = None):
        super().__init__(message)
        self.draws = draws
        self.fit = fit


class FolderInUseError(StorageError):
    """Another run is at work in the same folder."""


class HostLostError(RuntimeError):
    """Another process of a run of several has ended or cannot be reached."""


class NonFiniteError(RuntimeError):
    """A stochastic-gradient sampler or a variational fit has left the numbers.

    Attributes:
        draws: The draws before that, as a DataTree, or None where there are none.
        chain: The chain that failed first; 0 for a fit.
        iteration: The iteration at which it did, counted from 0 with the warm-up.
        fit: Of a variational fit what :func:`geodax.vi.fit` would have returned after the step before.
    """

    def __init__(self, message: str, draws: Any, chain: int, iteration: int, fit: Any = None):
        super().__init__(message)
        self.draws = draws
        self.chain = chain
        self.iteration = iteration
        self.fit = fit


class SamplingInterrupted(KeyboardInterrupt):
    """A run was stopped by SIGINT or SIGTERM, at the end of an iteration.

    Attributes:
        draws: The draws computed so far, as a DataTree, or None where there are none.
        signal: The signal's number.
        fit: Of a variational fit what :func:`geodax.vi.fit` would have returned at that moment.
    """

    def __init__(self, message: str, draws: Any, signal: int, fit: Any = None):
        super().__init__(message)
        self.draws = draws
        self.signal = signal
        self.fit = fit
