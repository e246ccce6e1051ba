"""SIGKILL at random moments and at exact places, over and over: nothing before a checkpoint is lost, and the end is the same."""

import dataclasses

import pytest

from benchmarks import soak
from tests.faults.kills import kill_runs, server
from tests.faults.runs import KINDS

KILLS = {"fit": 50, "sgrld": 50, "sghmc": 50, "hmc": 50, "nuts": 50, "command_line": 6}


@pytest.fixture(scope="module")
def forks():
    with server() as found:
        yield found


@pytest.mark.slow
def test_some_kills(forks, tmp_path):
    """Catches half-written files that stand in the way, draws that are lost, and state that is not kept."""
    tally = kill_runs(forks, "sgrld", tmp_path, 3, seed=1)
    assert tally.kills == 3
    assert tally.lost == 0
    assert tally.identical == tally.runs >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_run(forks, tmp_path, kind):
    tally = kill_runs(forks, kind, tmp_path, 5, seed=1)
    assert tally.lost == 0
    assert tally.identical == tally.runs >= 1


@pytest.mark.soak
@pytest.mark.parametrize("kind", KILLS)
def test_many_kills(forks, tmp_path, kind):
    """Catches what happens in a window of a millisecond."""
    tally = kill_runs(forks, kind, tmp_path, KILLS[kind], seed=2)
    soak.record("kills", {kind: dataclasses.asdict(tally) | {"kills": tally.kills}})
    assert tally.kills == KILLS[kind]
    assert tally.lost == 0
    assert tally.identical == tally.runs
    assert min(tally.at_moments, tally.at_changes) > 0
