"""Memory while draws are made, returned and summarised, against the size of the draws."""

import tracemalloc
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import geodax as gx
from geodax.diagnostics import convergence
from geodax.diagnostics.findings import Summary, check, ess, summarize
from geodax.run import blocks
from geodax.run import sample as loop
from geodax.run.draws import MemoryDraws, ZarrDraws, open_draws, to_datatree
from tests.marks import slow

CHAINS, NUMBERS = 4, 400
SHAPES = {
    "posterior": {"x": ((NUMBERS,), np.dtype("float32"))},
    "sample_stats": {"diverging": ((), np.dtype("bool"))},
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks as small beside some megabytes as they are beside gigabytes."""
    monkeypatch.setattr(blocks, "_READ_BYTES", 1 << 16)
    monkeypatch.setattr(blocks, "_LEAST_BYTES", 1 << 15)
    monkeypatch.setattr(convergence, "_BLOCK_SIZE", 1 << 10)
    monkeypatch.setattr("geodax.run.draws._CHUNK_BYTES", 1 << 16)


@pytest.fixture
def peak():
    """Most bytes that NumPy and Python have held since the peak was reset."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


class State(NamedTuple):
    position: Any


class Info(NamedTuple):
    potential: Any


class Counting:
    """A sampler whose draws are the numbers of its steps."""

    def init(self, position):
        return State(position)

    def step(self, rng_key, state):
        return State(state.position + 1), Info(state.position[0])


def sample(num_samples, **settings):
    settings = {"progress": False, "num_samples": num_samples, "num_chains": CHAINS} | settings
    return gx.sample(jax.random.key(0), Counting(), jnp.zeros(1000, jnp.float32), **settings)


@pytest.mark.thorough
def test_draws_in_memory_are_there_once(peak, monkeypatch):
    """Catches pieces that are kept until they are joined."""
    monkeypatch.setattr(loop, "_LONGEST_BUFFER", 64)
    sample(64)  # what is compiled and imported stays
    tracemalloc.reset_peak()
    num_draws = 2000
    tree = sample(num_draws)
    assert peak() < 1.2 * CHAINS * num_draws * 1001 * 4
    np.testing.assert_array_equal(tree["posterior"]["position"][:, :, 3], np.tile(np.arange(1, num_draws + 1), (4, 1)))


@pytest.mark.thorough
@pytest.mark.parametrize("is_stopped", [slow(False), True])
def test_draws_on_disk_are_not_read_back(peak, monkeypatch, tmp_path, is_stopped):
    """Catches a run that ends, well or with an error, by reading all that it has written."""
    monkeypatch.setattr(loop, "_LONGEST_BUFFER", 64)
    sample(64, store=tmp_path / "first")
    tracemalloc.reset_peak()
    num_draws = 2000

    class EnoughError(Exception):
        draws: Any

    def stop(news):
        if is_stopped and news.iteration > 1800:
            raise EnoughError

    settings = {"store": tmp_path / "draws", "progress": stop}
    if is_stopped:
        with pytest.raises(EnoughError) as found:
            sample(num_draws, **settings)
        tree = found.value.draws
    else:
        tree = sample(num_draws, **settings)
    assert peak() < 0.25 * CHAINS * num_draws * 1000 * 4
    np.testing.assert_array_equal(tree["posterior"]["position"][1, :1800, 7], np.arange(1, 1801))


def random_draws(num_draws):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(CHAINS, num_draws, NUMBERS)).astype(np.float32)
    x[:, :, 3] += np.arange(CHAINS)[:, None]
    return {"posterior": {"x": x}, "sample_stats": {"diverging": np.zeros((CHAINS, num_draws), bool)}}


@pytest.mark.thorough
def test_summaries_and_findings_take_blocks(peak, tmp_path):
    """Catches a table, or a finding, for which all draws are read into memory; and blocks that change a figure."""
    num_draws = 700  # what does not grow with the draws is a megabyte
    groups = random_draws(num_draws)
    ZarrDraws(tmp_path, SHAPES, CHAINS, num_draws).write(0, groups)
    expected = summarize(groups["posterior"], groups["sample_stats"])
    findings = check(groups["posterior"], groups["sample_stats"], summary=expected)
    size = groups["posterior"]["x"].nbytes
    del groups
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    tree = open_draws(tmp_path)
    summary = summarize(tree["posterior"], tree["sample_stats"])
    assert check(tree["posterior"], tree["sample_stats"], summary=summary) == findings
    assert tracemalloc.get_traced_memory()[1] - before < 0.5 * size
    assert any(finding.title == "Chains that disagree" for finding in findings)
    np.testing.assert_allclose([row[1:] for row in summary], [row[1:] for row in expected], rtol=1e-9)
    some = tree["posterior"]["x"][:, :50, :3]
    np.testing.assert_array_equal(ess(some), ess(some.values))


@pytest.mark.thorough
@pytest.mark.parametrize("at", [(0, 0, 0), slow((2, 500, 49)), (3, 799, 1)])
def test_findings_of_blocks_say_where(tmp_path, at):
    """Catches a draw that is counted from the beginning of its block, and chains that stand still but for one block."""
    groups = random_draws(800)
    x = groups["posterior"]["x"]
    x[...] = x[:, :1]
    x[at[0], 790] += 1
    store = ZarrDraws(tmp_path / "still", SHAPES, CHAINS, 800)
    store.write(0, groups)
    none = Summary((), CHAINS, 800, {})
    found = check(open_draws(tmp_path / "still")["posterior"], summary=none)
    still = [f for f in found if f.title == "A chain that never moved"]
    others = ", ".join(str(chain) for chain in range(CHAINS) if chain != at[0])
    assert still[0].detail.startswith(f"Chains {others} repeated")
    x[at] = np.inf
    x[3, 799, 7] = np.nan
    store = ZarrDraws(tmp_path / "infinite", SHAPES, CHAINS, 800)
    store.write(0, groups)
    first = check(open_draws(tmp_path / "infinite")["posterior"], summary=none)[0]
    assert f"`x` has 2 values that are NaN or infinite, first in chain {at[0]} at draw {at[1]}" in first.detail


def test_more_draws_than_memory_are_refused_at_the_start():
    with pytest.raises(MemoryError, match=r"do not fit into memory .* Give store="):
        MemoryDraws({"posterior": {"x": ((10**9,), np.dtype("float64"))}}, 4, 10**9)


def test_a_function_of_draws_is_made_where_it_is_used(monkeypatch, tmp_path):
    """Catches blocks that are put in the wrong place, and draws that are read before."""
    groups = random_draws(900)
    x = groups["posterior"]["x"]
    ZarrDraws(tmp_path, SHAPES, CHAINS, 900).write(0, groups)
    sizes = []

    def twice(draws):
        sizes.append(draws.shape[1])
        return 2.0 * draws

    small = blocks.mapped(twice, to_datatree(groups)["posterior"]["x"])
    assert sizes == [900]
    monkeypatch.setattr(blocks, "_MAPPED_AT_ONCE", 1000)
    large = blocks.mapped(twice, open_draws(tmp_path)["posterior"]["x"])
    for found in (small, large):
        np.testing.assert_array_equal(found[1:, 10:880:7, [3, 1]].values, 2 * x[1:, 10:880:7, [3, 1]])
    assert max(sizes[1:]) < 100
