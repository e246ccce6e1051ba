"""Run arguments common to all estimators, and the assembly of an estimator's docstring."""

import dataclasses
import functools
import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import numpy as np
    from sklearn.utils import Tags

    from geodax.run.progress import Reporter

_ARGS = re.compile(r"^Args:\n((?:    .*\n?|\n(?=    ))+)", re.MULTILINE)
_Fit = TypeVar("_Fit", bound=Callable[..., Any])
_OF_CHECKPOINTS = ("seed_", "_folder_of_seed")  # with which the next call of fit continues


def all_or_nothing(fit: _Fit) -> _Fit:
    """Decorate ``fit`` so that an error or Ctrl-C leaves the estimator as it was, and BLAS has one thread.

    Otherwise it would predict with the draws of the last fit and the standardisation of this one. Where other
    processes hold up one of several threads, all wait for it. The environment
    variable ``OPENBLAS_NUM_THREADS`` takes precedence.
    """

    @functools.wraps(fit)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        state, before = vars(self), dict(vars(self))
        from threadpoolctl import threadpool_limits

        try:
            with threadpool_limits(None if "OPENBLAS_NUM_THREADS" in os.environ else 1, user_api="blas"):
                return fit(self, *args, **options)
        except BaseException:
            if self.checkpoint is not None:
                before |= {name: state[name] for name in _OF_CHECKPOINTS if name in state}
            state.clear()
            state.update(before)
            raise

    return cast(_Fit, wrapped)


class AllowsMissing:
    """An estimator whose X may have missing cells."""

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class RunArguments:
    """Arguments shared by all estimators.

    Args:
        random_state: Seed: an integer, a NumPy RandomState, or None for a new seed each time.
        checkpoint: A folder for draws and checkpoints; an interrupted fit resumes from there.
        devices: Devices for the chains, as in :func:`geodax.sample`: a number, ``"all"``, or a mesh, whose axis
            ``"data"`` splits the rows of a batch.
        progress: True for a progress bar, or a function as in :func:`geodax.sample`.
    """

    random_state: "int | np.random.RandomState | None" = None
    checkpoint: str | Path | None = None
    devices: Any = None
    progress: "bool | Reporter" = False

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are draws; a fit that was stopped may leave its seed alone."""
        return hasattr(self, "posterior_")

    def __init_subclass__(cls, **options: Any):
        """Collect the documented arguments of all base classes in the subclass's docstring."""
        super().__init_subclass__(**options)
        if cls.__doc__ is None:
            return
        own = inspect.cleandoc(cls.__doc__)
        bases = [base for base in reversed(cls.__mro__[1:]) if "__dataclass_fields__" in vars(base)]
        found = [_ARGS.search(inspect.cleandoc(doc or "") + "\n") for doc in (own, *(base.__doc__ for base in bases))]
        arguments = "".join(match[1].rstrip("\n") + "\n" for match in found if match)
        own = _ARGS.sub("", own)
        head, marker, tail = own.partition("Attributes:\n")
        cls.__doc__ = f"{head.rstrip()}\n\nArgs:\n{arguments}\n{marker}{tail}"
