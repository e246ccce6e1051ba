"""Errors that end a run early. Each says what was computed and where it is."""

from typing import Any


class StartError(ValueError):
    """A chain cannot start at its initial position."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used: it is damaged or belongs to another run."""


class OtherRunError(CheckpointError):
    """A checkpoint belongs to another run, or to another version of the model."""


class StorageError(OSError):
    """Draws or a checkpoint could not be written or read.

    Attributes:
        draws: The draws so far, as a DataTree, or None if there are none.
        fit: For a variational fit, what :func:`geodax.vi.fit` would have returned at that moment.
    """

    draws: Any = None
    fit: Any = None


class FolderInUseError(StorageError):
    """Another run uses the same folder."""


class HostLostError(RuntimeError):
    """Another process of the run has ended or cannot be reached."""


class NonFiniteError(RuntimeError):
    """A stochastic-gradient sampler or a variational fit produced non-finite values.

    Attributes:
        draws: The draws before that, as a DataTree, or None if there are none.
        chain: The chain that failed first; 0 for a fit.
        iteration: The iteration of the failure, counted from 0 with the warm-up.
        fit: For a variational fit, what :func:`geodax.vi.fit` would have returned after the previous step.
    """

    def __init__(self, message: str, *, chain: int, iteration: int, draws: Any = None, fit: Any = None):
        super().__init__(message)
        self.draws = draws
        self.chain = chain
        self.iteration = iteration
        self.fit = fit


class SamplingInterrupted(KeyboardInterrupt):
    """A run was stopped by SIGINT or SIGTERM, at the end of an iteration.

    Attributes:
        draws: The draws so far, as a DataTree, or None if there are none.
        signal: Number of the signal.
        fit: For a variational fit, what :func:`geodax.vi.fit` would have returned at that moment.
    """

    def __init__(self, message: str, *, signal: int, draws: Any = None, fit: Any = None):
        super().__init__(message)
        self.draws = draws
        self.signal = signal
        self.fit = fit
