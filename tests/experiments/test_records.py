"""Every experiment at its smoke size, and the tables of the docs against the records."""

import jax
import numpy as np
import pytest

from experiments import render
from experiments.common import command
from experiments.common import experiment as common

EXPERIMENTS = render.experiments()
ON_REAL_DATA = ("givens/figure_7_8_quality",)  # at the smoke size too


@pytest.fixture
def compiles_fast():
    """As ``--smoke`` does: small sizes take longer to compile than to run."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.slow
@pytest.mark.relaxed
@pytest.mark.usefixtures("compiles_fast")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_run_at_smoke_size(name, tmp_path, request):
    """Every piece runs, is kept, is not run again, and can be shown in every table and picture."""
    if name in ON_REAL_DATA:
        request.getfixturevalue("geodax_data")
    experiment = EXPERIMENTS[name]
    record = common.run(experiment, experiment.smoke, results=tmp_path, report=lambda _: None)
    assert len(record.pieces) == len(list(experiment.pieces(experiment.smoke))) > 0
    for piece in record.pieces:
        assert all(np.isfinite(v) for v in piece["figures"].values() if isinstance(v, float | int))
    assert common.load(experiment, tmp_path) == record
    again = common.run(experiment, experiment.smoke, results=tmp_path, report=lambda _: None)
    assert [piece["wall_time"] for piece in again.pieces] == [piece["wall_time"] for piece in record.pieces]
    for table in experiment.tables.values():
        assert isinstance(table(record), str)
    for number, picture in enumerate(experiment.pictures.values()):
        path = tmp_path / f"{number}.png"
        picture(record).savefig(path)
        assert path.stat().st_size > 10_000


def test_labels_with_commas_can_be_chosen():
    """A metric that varies another one has a comma in its name."""
    assert command._choice("metric=Monge,Monge, Γ and lag") == ("metric", ["Monge", "Monge, Γ and lag"])
    assert command._choice("seed=0,1") == ("seed", [0, 1])


def test_documentation_shows_what_the_records_say():
    """A table edited by hand, or not rendered after a new run."""
    assert render.main(["--check"]) == 0
