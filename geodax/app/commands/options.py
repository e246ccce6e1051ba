"""Options shared by several commands: the new run, devices and processes, and the format of the file."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from geodax.app.tables.dialect import Dialect

AsJson = Annotated[bool, FlagCreatePairsOff]


@dataclasses.dataclass(frozen=True)
class NewRunOptions:
    """The run that a fit creates."""

    out: Path | None = None
    """Run folder to create; by default runs/MODEL-TABLE, with a number if that exists."""
    seed: int = 0
    """Random seed, of the held-out rows as well."""
    overwrite: bool = False
    """Replace a run in the folder once the new one has started."""
    progress: bool = True
    """Show a progress bar."""
    json: AsJson = False
    """Print the results as JSON."""


@dataclasses.dataclass(frozen=True)
class WhereOptions:
    """Devices and processes of a run; with several processes the same command runs on every host."""

    devices: int | Literal["all"] | None = None
    """Number of devices for the chains, or all; by default the largest number that divides the chains."""
    distributed: bool = False
    """This process is one of several started by SLURM, mpirun or Kubernetes, which are detected."""
    coordinator: str | None = None
    """HOST:PORT of process 0, if it cannot be detected; requires the next two options."""
    num_processes: int | None = None
    """Number of processes."""
    process_id: int | None = None
    """Index of this process, from 0."""
    lost_after: int = 100
    """Seconds without a heartbeat after which a process counts as lost."""

    def join(self) -> None:
        """Connect to the other processes, if there are any."""
        explicit = (self.coordinator, self.num_processes, self.process_id)
        if self.distributed or any(value is not None for value in explicit):
            from geodax.run.hosts import connect

            connect(*explicit, lost_after=self.lost_after)

    def how(self, progress: bool) -> dict[str, Any]:
        """Return the arguments ``devices`` and ``progress`` of a run."""
        return {"devices": self.devices, "progress": progress}


HERE = WhereOptions()
"""The default: one process and its default devices."""

NEW = NewRunOptions()
"""The default: a new folder in ``runs``."""

NewRunArgument = Annotated[OmitArgPrefixes[NewRunOptions], arg(name="")]
WhereArgument = Annotated[OmitArgPrefixes[WhereOptions], arg(name="")]
DialectArgument = Annotated[OmitArgPrefixes[Dialect], arg(name="")]
Run = Annotated[Positional[Path], arg(metavar="RUN")]
File = Annotated[Positional[Path], arg(metavar="FILE")]
NewData = Annotated[Positional[Path | None], arg(metavar="FILE")]
