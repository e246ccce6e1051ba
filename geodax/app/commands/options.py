"""What several commands are told: where a run goes, how it is made, and where it is computed."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from geodax.app.tables.dialect import Dialect


@dataclasses.dataclass(frozen=True)
class NewRunOptions:
    """The run that a fit makes."""

    out: Path
    """Run folder to make."""
    seed: int = 0
    """Seed of all randomness."""
    overwrite: bool = False
    """Replace a run that is already in the folder, once the new one has begun."""
    progress: bool = True
    """Show a progress bar."""


@dataclasses.dataclass(frozen=True)
class WhereOptions:
    """Where a run goes: its devices, and several processes, which are the same command on every host."""

    devices: int | Literal["all"] | None = None
    """Devices among which the chains are shared out: how many, or all; as many as divide the chains if left out."""
    distributed: bool = False
    """One of several processes that SLURM, mpirun or Kubernetes has started, and can be asked about."""
    coordinator: str | None = None
    """HOST:PORT of process 0, where nobody can be asked; then the next two are needed too."""
    num_processes: int | None = None
    """Number of processes."""
    process_id: int | None = None
    """Number of this process, from 0."""
    lost_after: int = 100
    """Seconds without a sign of life after which a process counts as lost."""

    def join(self) -> None:
        """Join the other processes, if there are any."""
        explicit = (self.coordinator, self.num_processes, self.process_id)
        if self.distributed or any(value is not None for value in explicit):
            from geodax.run.hosts import connect

            connect(*explicit, lost_after=self.lost_after)

    def how(self, progress: bool) -> dict[str, Any]:
        """What every run is told of the machine and the terminal."""
        return {"devices": self.devices, "progress": progress}


HERE = WhereOptions()
"""The default device of this process alone."""

NewRunArgument = Annotated[OmitArgPrefixes[NewRunOptions], arg(name="")]
WhereArgument = Annotated[OmitArgPrefixes[WhereOptions], arg(name="")]
DialectArgument = Annotated[OmitArgPrefixes[Dialect], arg(name="")]
Run = Annotated[Positional[Path], arg(metavar="RUN")]
File = Annotated[Positional[Path], arg(metavar="FILE")]
