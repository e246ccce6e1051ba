"""Several processes on the loopback address: equal draws, one folder, a lost process, resume onto another number."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from geodax.app import main
from geodax.run import hosts
from geodax.run.draws import open_draws
from geodax.run.errors import HostLostError

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).parent / "hosts_script.py"
NUM_DEVICES = 4
NUM_NUMBERS = 2 * 40 * 3  # chains, draws, coordinates; after them the fit's, and what warm-up has learned


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    data = np.random.default_rng(4).normal(size=(64, 3))
    for k, piece in enumerate(np.split(data, [10, 40])):
        np.save(folder / f"{k}.npy", piece)
    return folder


def start(num_processes: int, folder: Path, shards: Path, pause: float = 0.0) -> list[subprocess.Popen]:
    devices = f"--xla_force_host_platform_device_count={NUM_DEVICES // num_processes}"
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(i), str(num_processes), str(port), str(folder), str(shards), str(pause)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"XLA_FLAGS": devices, "PYTHONPATH": str(ROOT)},
        )
        for i in range(num_processes)
    ]


def finish(num_processes: int, folder: Path, shards: Path) -> list[np.ndarray]:
    for process in start(num_processes, folder, shards):
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    return [np.load(f"{folder}.{num_processes}.{i}.npy") for i in range(num_processes)]


def assert_same(found: np.ndarray, alone: np.ndarray) -> None:
    """The draws bit for bit: a mean over a group of two is the same in any order. That over the four devices of the fit
    is summed in another order by Gloo than within a process, so that it is the same up to rounding."""
    np.testing.assert_array_equal(found[:NUM_NUMBERS], alone[:NUM_NUMBERS])
    np.testing.assert_allclose(found[NUM_NUMBERS:], alone[NUM_NUMBERS:], rtol=1e-12)


@pytest.mark.slow
def test_equal_draws_at_any_number_of_processes(tmp_path, shards):
    """Catches work that depends on which process does it, rows read by the wrong one, and draws of one process only."""
    (alone,) = finish(1, tmp_path / "one", shards)
    learned = open_draws(tmp_path / "one-tuned" / "draws.zarr")["adaptation"].to_dataset().load()
    assert {"step_size", "scale"} <= set(learned.data_vars)
    for count in (2, 4):
        for draws in finish(count, tmp_path / f"of_{count}", shards):
            assert_same(draws, alone)
        stored = open_draws(tmp_path / f"of_{count}-tuned" / "draws.zarr")["adaptation"].to_dataset()
        xr.testing.assert_allclose(stored, learned, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_others_and_the_run_goes_on(tmp_path, shards, victim):
    """Catches a process that waits for ever, a folder that cannot be gone on with, and a checkpoint tied to processes."""
    (alone,) = finish(1, tmp_path / "alone", shards)
    processes = start(2, tmp_path / "run", shards, pause=0.3)
    for line in processes[0].stdout:
        if line.strip().isdigit() and int(line) >= 5:
            break
    processes[victim].send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    _, err = processes[1 - victim].communicate(timeout=120)
    assert time.monotonic() - killed_at < 60
    assert processes[1 - victim].returncode not in (0, None)
    # the loss of process 0, which the others ask for each other, may be told by JAX itself before anything else is
    assert "has lost another one" in err or (victim == 0 and "another task died" in err), err
    processes[victim].communicate()
    for count in (4, 1):
        for draws in finish(count, tmp_path / "run", shards):
            assert_same(draws, alone)


@pytest.mark.slow
def test_the_command_line_on_two_hosts(tmp_path):
    """Catches a folder that both write, a report of both, and a posterior that is not that of one process."""
    table = ROOT / "geodax" / "data" / "files" / "wine.csv"
    fit = [sys.executable, "-m", "geodax", "fit", "pca", str(table), "--n-components", "1", "--num-chains", "2"]
    fit += ["--num-warmup", "40", "--num-samples", "20", "--no-progress"]
    hosts_of_two = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", "2"]

    def begin(out: str, num_devices: int, *more: str) -> subprocess.Popen:
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}"}
        command = [*fit, "--out", str(tmp_path / out), *more]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | flags
        )

    processes = [begin("one", 2), *(begin("two", 1, *hosts_of_two, "--process-id", str(i)) for i in range(2))]
    printed = []
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        printed.append("Run folder" in out)
    assert printed == [True, True, False]
    one, two = (open_draws(tmp_path / name / "posterior.zarr")["posterior"] for name in ("one", "two"))
    for name in one.data_vars:
        np.testing.assert_array_equal(two[name].values, one[name].values)
    assert (tmp_path / "two" / "summary.csv").is_file()


def test_the_command_line_asks_for_all_three_facts(capsys):
    assert main(["fit", "pca", "table.csv", "--out", "run", "--coordinator", "node0:1"]) == 1
    assert "the number of processes and the number of this one" in " ".join(capsys.readouterr().err.split())


VISIBLE = """
import os, jax
from geodax.run import hosts
for settings in {settings!r}:
    os.environ.update(settings)
    hosts.connect()
    print(jax.config.values["jax_cuda_visible_devices"], jax.config.values["jax_rocm_visible_devices"])
    jax.distributed.shutdown()
    for name in settings:
        del os.environ[name]
"""


def test_a_process_alone_on_its_host_has_all_its_gpus():
    """Catches seven of eight GPUs that lie idle under SLURM and Open MPI: JAX gives a process that they start one."""

    def slurm(num_nodes):
        found = {"JOB_ID": free_port(), "STEP_NODELIST": "localhost", "NTASKS": 1, "PROCID": 0, "LOCALID": 0}
        return {f"SLURM_{name}": str(value) for name, value in (found | {"STEP_NUM_NODES": num_nodes}).items()}

    mpi = {"OMPI_MCA_orte_hnp_uri": f"{free_port() * 4096}.0;tcp://127.0.0.1:1"}
    mpi |= {f"OMPI_COMM_WORLD_{name}": "1" for name in ("SIZE", "LOCAL_SIZE")}
    mpi |= {f"OMPI_COMM_WORLD_{name}": "0" for name in ("RANK", "LOCAL_RANK")}
    settings = [
        slurm(1),
        slurm(2),
        slurm(1) | {"JAX_LOCAL_DEVICE_IDS": "0,3"},
        mpi,
        mpi | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    ]
    process = subprocess.run(
        [sys.executable, "-c", VISIBLE.format(settings=settings)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines() == ["all all", "0 0", "0,3 0,3", "all all", "0 0"]


def test_what_only_one_process_knows_is_the_same_alone():
    values = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(hosts.gathered(values)[0], values)
    assert hosts.from_first({"x": values})["x"] is values
    assert hosts.first_does(lambda: 7, "count") == 7


@pytest.mark.parametrize("given", [("h:1", None, None), (None, 2, None), ("h:1", 2, 2), ("h:1", 2, -1)])
def test_processes_that_do_not_fit_are_refused(given):
    with pytest.raises(ValueError, match="Several processes"):
        hosts.connect(*given)


def test_an_error_of_one_process_alone_keeps_its_kind():
    """Catches every ValueError of a user's function being called a lost process."""
    with pytest.raises(ValueError, match="UNKNOWN flavour"), hosts.lost_hosts():
        raise ValueError("UNKNOWN flavour")
    assert issubclass(HostLostError, RuntimeError)


LISTENING = """
import sys
from geodax.run import hosts
hosts.connect(sys.argv[1], 1, 0)
port = int(sys.argv[1].rpartition(":")[2])
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(table).readlines()[1:]:
        words = line.split()
        address, _, number = words[1].partition(":")
        if words[3] == "0A" and int(number, 16) == port:
            print(address)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's table of sockets")
@pytest.mark.parametrize(("given", "bound"), [(None, "0100007F"), ("[::]", "0" * 32)])
def test_the_coordinator_listens_on_the_address_that_was_given(given, bound):
    """It had listened on all of them, whatever was given; that is for JAX's variable to say."""
    port = free_port()
    environment = (
        os.environ | {"PYTHONPATH": str(ROOT)} | ({"JAX_COORDINATOR_BIND_ADDRESS": f"{given}:{port}"} if given else {})
    )
    words = [sys.executable, "-c", LISTENING, f"127.0.0.1:{port}"]
    process = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr
    addresses = process.stdout.split()
    assert len(addresses) == 1
    assert addresses[0].endswith(bound)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("192.0.2.1:1234", "192.0.2.1 is no address of this machine"),
        ("127.0.0.1", "cannot listen on 127.0.0.1 "),
        ("none.invalid:1234", "cannot listen on none.invalid:1234"),
    ],
)
def test_an_address_that_is_not_process_0s_is_refused(address, message):
    with pytest.raises(ValueError, match=message) as caught:
        hosts.connect(address, 2, 0)
    assert "JAX_COORDINATOR_BIND_ADDRESS" in str(caught.value)


def test_a_name_that_other_hosts_know_otherwise_is_told(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.1.1", 1234))])
    with pytest.warns(UserWarning, match=r"listens on 127\.0\.1\.1, which is what node0 means here"):
        hosts._require_own_address("node0:1234")
