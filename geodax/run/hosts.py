"""Run several processes as one under ``jax.distributed``: the same command on every host.

All processes compute. The first one reads and writes the run's folder for all, and broadcasts its decisions (the length
of a chunk, whether a checkpoint is due) and errors (a full disk, a damaged checkpoint). So only the first process needs
the folder, and a signal to any process stops all of them at the same iteration.

Each program that communicates finishes before the next one begins. Otherwise processes that start them in different
orders would confuse each other's messages.

If one process dies, the others learn of it by the closed connection or, if its machine is disconnected, by a missing
heartbeat, and end with :class:`~geodax.run.errors.HostLostError`. The run can resume from its last checkpoint.
"""

import atexit
import contextlib
import functools
import os
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from geodax._random import of_words
from geodax._types import PyTree
from geodax.run.errors import HostLostError

T = TypeVar("T")
_is_alone: list[bool] = []  # non-empty after another process was lost
_LOST = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED", "FAILED_PRECONDITION")


def connect(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    lost_after: int = 100,
) -> None:
    """Join the other processes of a run; call this before any computation.

    Under SLURM and Open MPI a process that is alone on its host uses all GPUs of the host. If there are several on a
    host, each uses one, as JAX assigns them; ``JAX_LOCAL_DEVICE_IDS=0,1`` overrides this.

    Args:
        coordinator: ``HOST:PORT`` of the first process, which listens only on this address, or on that of the
            environment variable ``JAX_COORDINATOR_BIND_ADDRESS``. None for all three arguments: JAX asks SLURM, Open
            MPI or Kubernetes, and process 0 listens on all addresses unless that variable is set.
        num_processes: Number of processes.
        process_id: Index of this process, from 0.
        lost_after: Seconds without a heartbeat after which a process counts as lost.

    Raises:
        ValueError: If the processes cannot be determined.
    """
    given = [value is not None for value in (coordinator, num_processes, process_id)]
    if any(given) and not all(given):
        raise ValueError(
            "Several processes: give the coordinator (HOST:PORT of process 0), the number of processes and the number "
            "of this one, or none of them under SLURM, mpirun or Kubernetes, which JAX can ask."
        )
    if num_processes is not None and process_id is not None and not 0 <= process_id < num_processes:
        raise ValueError(
            f"Several processes: the number of this one must lie between 0 and {num_processes - 1}, found {process_id}."
        )
    bind = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", coordinator if process_id == 0 else None)
    if bind is not None and bind == coordinator:
        _require_own_address(bind)
    # this exit handler runs before that of JAX
    atexit.register(_leave)
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            coordinator_bind_address=bind,
            heartbeat_timeout_seconds=lost_after,
            shutdown_timeout_seconds=60,
        )
    except ValueError as error:
        raise ValueError(
            f"Several processes: they could not be found out ({error}). Give --coordinator HOST:PORT --num-processes N "
            "--process-id I, the last one different on every host."
        ) from error
    if _is_alone_on_its_host() and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
        # under both JAX assigns one GPU per process, and the other GPUs of the host would be idle
        for name in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
            jax.config.update(name, os.environ.get(name.upper(), "all"))


def _require_own_address(address: str) -> None:
    """Require an address on which this machine can listen; warn if other machines may resolve the name differently."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    way_out = (
        "Give --coordinator the address of process 0 as the other hosts reach it, or set JAX_COORDINATOR_BIND_ADDRESS "
        "to the HOST:PORT to listen on."
    )
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        own = [at[0] for family, *_, at in found if _is_own(family, str(at[0]))]
        if not own:
            raise ValueError(f"{found[0][4][0]} is no address of this machine")
    except (OSError, ValueError) as error:
        raise ValueError(f"Several processes: process 0 cannot listen on {address} ({error}). {way_out}") from error
    if host != "localhost" and not host.startswith("127.") and all(str(at).startswith("127.") for at in own):
        warnings.warn(
            f"Process 0 listens on {own[0]}, which is what {host} means here; processes on other hosts cannot reach "
            f"it. {way_out}",
            stacklevel=3,
        )


def _is_own(family: int, host: str) -> bool:
    with socket.socket(family) as probe, contextlib.suppress(OSError):
        probe.bind((host, 0))
        return True
    return False


def _is_alone_on_its_host() -> bool:
    if "OMPI_COMM_WORLD_LOCAL_SIZE" in os.environ:
        return os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"] == "1"
    nodes, tasks = (os.environ.get(name) for name in ("SLURM_STEP_NUM_NODES", "SLURM_NTASKS"))
    return nodes is not None and nodes == tasks


def is_several() -> bool:
    """Whether there are several processes."""
    return jax.process_count() > 1


def is_first() -> bool:
    """Whether this process writes the run's folder."""
    return jax.process_index() == 0


def gathered(row: np.ndarray) -> np.ndarray:
    """Gather the rows of all processes in order; all must call this, with the same shape and dtype."""
    return _exchanged(row).reshape(-1, *row.shape) if is_several() else row[None]


def from_first(tree: PyTree) -> PyTree:
    """Broadcast the arrays of the first process; all pass the same shapes and dtypes. PRNG keys are allowed."""
    if not is_several():
        return tree

    def shared(x: Any) -> Any:
        host = np.asarray(x)
        return _exchanged(host, of_first=True).reshape(host.shape) if host.size else host

    return jax.tree.map(functools.partial(of_words, shared), tree)


def first_does(function: Callable[[], T], purpose: str) -> T | None:
    """Let the first process call a function for all, and return its result, None in the others; if it fails, all end.

    The first process raises the original error, the others HostLostError, which names the purpose.
    """
    if not is_several():
        return function()
    return each_does(lambda: function() if is_first() else None, purpose)


def each_does(function: Callable[[], T], purpose: str) -> T:
    """Let every process call a function; if it fails in one, all end, those where it did not with HostLostError."""
    if not is_several():
        return function()
    result, failure = None, None
    try:
        result = function()
    except BaseException as error:  # the others are told before it is re-raised
        failure = error
    failed = np.flatnonzero(gathered(np.asarray(failure is not None)))
    if failure is not None:
        raise failure
    if failed.size:
        raise HostLostError(f"Process {failed[0]} could not {purpose}; its message says why.")
    return cast(T, result)


@contextlib.contextmanager
def lost_hosts(where: str = "") -> Iterator[None]:
    """Convert the errors that JAX raises when another process is lost to HostLostError."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # JAX raises one of these, depending on where it waits; both begin with the name of a status
        reason = str(error).splitlines()[0] if str(error) else ""
        if not is_several() or not reason.startswith(_LOST):
            raise
        _is_alone.append(True)
        raise HostLostError(
            f"Process {jax.process_index()} of {jax.process_count()} has lost another one{where} ({reason}). The run "
            "ends here; its last checkpoint is kept. Start the same command again on all hosts to resume from it."
        ) from error


def _leave() -> None:
    """Exit immediately after the loss of a process: JAX would wait for the others at shutdown, and abort."""
    if _is_alone:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed before the start
            stream.flush()
        os._exit(1)


@functools.cache
def _one_device_each() -> Mesh:
    firsts = {device.process_index: device for device in reversed(jax.devices())}
    return Mesh(np.asarray([firsts[i] for i in range(jax.process_count())]), ("host",))


def _exchanged(own: np.ndarray, of_first: bool = False) -> np.ndarray:
    """The entries of all processes, or of the first one, in every process."""
    mesh = _one_device_each()
    raw = np.ascontiguousarray(own).reshape(-1).view(np.uint8)  # a scalar gains an axis here
    sharding = NamedSharding(mesh, PartitionSpec("host"))
    rows = jax.make_array_from_callback((jax.process_count(), raw.size), sharding, lambda _: raw[None])
    with lost_hosts():
        return np.asarray(jax.block_until_ready(_sent(mesh, of_first)(rows))).view(own.dtype)


@functools.cache
def _sent(mesh: Mesh, of_first: bool) -> Callable[[jax.Array], jax.Array]:
    return jax.jit(lambda rows: rows[0] if of_first else rows, out_shardings=NamedSharding(mesh, PartitionSpec()))
